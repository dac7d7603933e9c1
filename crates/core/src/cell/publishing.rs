//! What programs publish: logs, and chunks of their own. Kept in memory for a moment and stored in batches, at most
//! one row a second for a run; and before its program's last word is recorded, so that nothing is left behind.
//!
//! Owns: the batches, and which items were taken: a program that got no answer sends them again. Nobody is shown
//! what is not stored, so what dies with the instance was never seen.

use std::rc::Rc;

use stepwell_protocol::{
    Code, Epoch, Problem, Seq, Timestamp,
    program::Answer,
    stream::{Item, Published, StoredItem},
};

use super::{Cell, Order, Rows};
use crate::{
    object::{Fault, Hosted as _},
    ordered::OrdMap,
    run::{Phase, Run},
    stream::{PublishedMark, PublishedRow},
};

/// How long there is at the least between two rows of a run, but for the one at its program's last word.
pub const PUBLISH_EVERY_MS: u64 = 1_000;

/// How long the first item after a pause waits for others: a short run has one row for all that it says.
pub const LINGER_MS: u64 = 100;

/// How much goes into one row, in bytes of JSON. What a run publishes beyond that in a second is left out.
pub const PUBLISHED_ROW_BYTES_MAX: usize = 1 << 20;

/// How much one run publishes in its whole life, in bytes of JSON. What comes after that is left out, and the stream
/// says so once.
pub const PUBLISHED_BYTES_MAX: u64 = 64 << 20;

/// What is not stored yet, by run.
#[derive(Clone, Debug, Default)]
pub(super) struct Publishing {
    batches: OrdMap<u64, Batch>,
    /// When the host was told to call next.
    ordered: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Batch {
    /// The number of the last item that is stored.
    last: u32,
    /// When that was, and up to where the activation's own count has come, with what is not stored yet.
    mark: PublishedMark,
    items: Vec<StoredItem>,
    bytes: usize,
    left_out: u32,
    /// Whether the run has published all that it may.
    is_full: bool,
    /// When the items are to be stored.
    due: Timestamp,
}

impl Publishing {
    /// Whether a run has something that is not stored, and its program will say no more for now.
    pub(super) fn is_last_word_of(&self, run: &Run) -> bool {
        !self.batches.is_empty()
            && !matches!(run.phase, Phase::Running { .. })
            && self.batches.contains_key(&run.id.number)
    }
}

impl Batch {
    fn new(stored: Option<(u32, PublishedMark)>) -> Self {
        let (last, mark) = stored.unwrap_or_default();
        let due = Timestamp::default();
        Self { last, mark, items: Vec::new(), bytes: 0, left_out: 0, is_full: mark.is_full, due }
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.left_out == 0
    }

    /// Takes what was not taken before, if there is room for it.
    fn take(&mut self, now: Timestamp, epoch: Epoch, published: Published, has_room: bool) {
        if self.mark.epoch != epoch {
            self.mark.epoch = epoch;
            self.mark.taken = 0;
        }
        let was_empty = self.is_empty();
        for (item, index) in published.items.into_iter().zip(published.first..) {
            if index < self.mark.taken {
                continue;
            }
            self.mark.taken = index + 1;
            // That more is left out was said with the row that is the last one.
            if self.mark.is_full {
                continue;
            }
            let bytes = item.size();
            self.is_full |= self.mark.bytes + (self.bytes + bytes) as u64 > PUBLISHED_BYTES_MAX;
            let fits = item.fits() && self.bytes + bytes <= PUBLISHED_ROW_BYTES_MAX;
            if fits && has_room && !self.is_full {
                self.bytes += bytes;
                self.items.push(StoredItem { at: now, item });
            } else {
                self.left_out += 1;
            }
        }
        if was_empty {
            let soonest = self.mark.at.plus_millis(PUBLISH_EVERY_MS);
            self.due = now.plus_millis(LINGER_MS).max(soonest);
        }
    }

    /// The row to be stored, and what is left when it is.
    fn row(&self, now: Timestamp, after: Seq) -> PublishedRow {
        let mut items = self.items.clone();
        if self.left_out > 0 {
            items.push(StoredItem { at: now, item: Item::LeftOut { count: self.left_out } });
        }
        let count = u32::try_from(items.len()).expect("a batch has fewer items than 2^32");
        let bytes = self.mark.bytes + self.bytes as u64;
        let mark = PublishedMark { at: now, bytes, is_full: self.is_full, ..self.mark };
        PublishedRow { last: self.last + count, after, mark, items }
    }

    fn stored(&mut self, row: &PublishedRow) {
        *self = Self::new(Some((row.last, row.mark)));
    }
}

impl Cell {
    /// A program publishes something, apart from a commit.
    pub fn told<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
        published: Published,
    ) -> Result<Answer, Fault<R::Error>> {
        let now = self.now(clock);
        self.publish(rows, now, number, epoch, published)?;
        Ok(self.go(number, now, Vec::new()))
    }

    pub(super) fn publish<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        epoch: Epoch,
        published: Published,
    ) -> Result<(), Fault<R::Error>> {
        let run = self.run(rows, number)?;
        if !run.is_held_by(epoch) && !run.is_drained_by(epoch) {
            let detail = format!("The run is {} at activation {}.", run.status().as_str(), run.epoch.0);
            return Err(Problem::new(Code::StaleEpoch, detail).into());
        }
        // Nobody has published so much: a count that begins anew would let everything in again.
        let count = u32::try_from(published.items.len()).ok();
        if count.and_then(|count| published.first.checked_add(count)).is_none() {
            let detail = "One activation publishes fewer than 2^32 items.";
            return Err(Problem::new(Code::InvalidRequest, detail).into());
        }
        let bytes = published.items.iter().map(Item::size).sum();
        let has_room = match self.check_room(rows, bytes, "logs and chunks") {
            Ok(()) => true,
            // The program goes on without them; whoever follows is told that some are missing.
            Err(Fault::Rejected(_)) => false,
            Err(fault @ (Fault::Storage(_) | Fault::Moved(_))) => return Err(fault),
        };
        if !self.publishing.batches.contains_key(&number) {
            let last = match rows.told_last(number) {
                Ok(last) => last,
                // A result must not wait for a line of a log.
                Err(error) if R::is_unreadable(&error) => return Ok(()),
                Err(error) => return Err(Fault::Storage(error)),
            };
            self.publishing.batches.insert(number, Batch::new(last));
        }
        let Some(batch) = self.publishing.batches.get_mut(&number) else { return Ok(()) };
        batch.take(now, epoch, published, has_room);
        self.order_publishing();
        Ok(())
    }

    /// Stores what is due. For the host, at the time that it was ordered to.
    pub fn tell<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.publishing.ordered = None;
        let due = self.publishing.batches.iter().filter(|(_, batch)| !batch.is_empty() && batch.due <= now);
        let due: Vec<_> = due.map(|(number, _)| *number).collect();
        let mut told = Ok(());
        for number in due {
            told = told.and(self.tell_due(rows, now, number));
        }
        self.order_publishing();
        told
    }

    fn tell_due<R: Rows>(&mut self, rows: &R, now: Timestamp, number: u64) -> Result<(), Fault<R::Error>> {
        // One that was taken from its program while that was at work.
        let mut run = match self.run(rows, number) {
            Ok(run) => run,
            Err(fault) => {
                self.publishing.batches.remove(&number);
                return Err(fault);
            }
        };
        let head = run.head;
        let is_over = !matches!(run.phase, Phase::Running { .. }) && !run.draining;
        self.store_batch(rows, now, head, Rc::make_mut(&mut run))?;
        if is_over {
            self.publishing.batches.remove(&number);
        } else if let Some(known) = self.runs.get_mut(&number) {
            Rc::make_mut(known).spent = run.spent;
        }
        self.watching.tell(number, &mut self.object);
        Ok(())
    }

    /// Stores all that a run has published, before its program's last word is recorded.
    pub(super) fn tell_all<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        head: Seq,
        run: &mut Run,
    ) -> Result<(), Fault<R::Error>> {
        self.store_batch(rows, now, head, run)?;
        self.publishing.batches.remove(&run.id.number);
        Ok(())
    }

    fn store_batch<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        after: Seq,
        run: &mut Run,
    ) -> Result<(), Fault<R::Error>> {
        let Some(batch) = self.publishing.batches.get_mut(&run.id.number) else { return Ok(()) };
        if batch.is_empty() {
            return Ok(());
        }
        let row = batch.row(now, after);
        match rows.tell(run.id.number, &row) {
            Ok(()) => {
                batch.stored(&row);
                run.spent.rows += 1;
                Ok(())
            }
            Err(error) => {
                batch.due = now.plus_millis(PUBLISH_EVERY_MS);
                Err(Fault::Storage(error))
            }
        }
    }

    /// Lets the host come back when the next batch is due.
    fn order_publishing(&mut self) {
        let batches = self.publishing.batches.values().filter(|batch| !batch.is_empty());
        let Some(due) = batches.map(|batch| batch.due).min() else { return };
        if self.publishing.ordered.is_none_or(|ordered| due < ordered) {
            self.publishing.ordered = Some(due);
            self.object.order(Order::TellAt(due));
        }
    }
}
