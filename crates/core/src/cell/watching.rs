//! Who follows which runs, and what they are shown. Only in memory: a host that comes back says again who is there.
//!
//! A run that nobody follows costs a look at an empty set.

use stepwell_protocol::{RunId, Timestamp, rest::Status};

use super::{Cell, Order, Rows};
use crate::{
    object::{Fault, Hosted as _, Object},
    ordered::OrdSet,
    run::{Entry, Run},
    stream::{Batch, CellReader, Change, Changes, Reader, Source, Stamper, WALKED_MAX, Walk},
};

/// Who follows which runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Watching {
    stamper: Stamper,
    runs: OrdSet<u64>,
    /// What has changed of late, while somebody follows all runs.
    changes: Option<Changes>,
}

impl Watching {
    /// Notes what of a run's states has changed. `before` is its status before these entries.
    pub(super) fn stamp(&mut self, now: Timestamp, run: &mut Run, before: Status, entries: &[Entry]) {
        if run.status() != before {
            run.stamps.status = self.stamper.stamp(now);
        }
        if entries.iter().any(|entry| matches!(entry, Entry::Progressed(_))) {
            run.stamps.progress = self.stamper.stamp(now);
        }
    }

    pub(super) fn stamp_start(&mut self, now: Timestamp, run: &mut Run) {
        run.stamps.status = self.stamper.stamp(now);
    }

    /// A stamp for what a program works on.
    pub(super) fn stamp_work(&mut self, now: Timestamp) -> u64 {
        self.stamper.stamp(now)
    }

    /// Whether somebody follows a run.
    pub(super) fn has(&self, number: u64) -> bool {
        !self.runs.is_empty() && self.runs.contains(&number)
    }

    /// Lets whoever follows a run read on.
    pub(super) fn tell(&self, number: u64, object: &mut Object<Order>) {
        if self.has(number) {
            object.order(Order::TellReaders(number));
        }
    }
}

impl Cell {
    /// Somebody follows a run.
    pub fn watch(&mut self, number: u64) {
        self.watching.runs.insert(number);
    }

    /// Nobody follows a run any more.
    pub fn unwatch(&mut self, number: u64) {
        self.watching.runs.remove(&number);
    }

    /// Somebody follows all runs. Gives the stamp from which on whoever has seen nothing begins.
    pub fn watch_all(&mut self, clock: Timestamp) -> u64 {
        let now = self.now(clock);
        let next = self.watching.stamper.next(now);
        self.watching.changes.get_or_insert_with(|| Changes::new(next));
        next
    }

    /// Nobody follows all runs any more.
    pub fn unwatch_all(&mut self) {
        self.watching.changes = None;
    }

    /// What a reader of one run is shown next.
    pub fn read<R: Rows>(&self, rows: &R, reader: &mut Reader) -> Result<Batch, Fault<R::Error>> {
        let run = self.find(rows, &reader.run)?;
        if reader.flow.is_closed() {
            return Ok(Batch::default());
        }
        let number = run.id.number;
        let journal = if run.head > reader.cursor.journal {
            rows.page(number, reader.cursor.journal).map_err(Fault::Storage)?
        } else {
            stepwell_protocol::program::RawPage::default()
        };
        let told = rows.told(number, reader.cursor.told).map_err(Fault::Storage)?;
        let at_work = self.steps.get(&number).map(|known| (known.stamp, known.of(&run)));
        Ok(reader.read(Source { run: &run, journal, told, at_work }))
    }

    /// What a reader of all runs is shown next.
    pub fn read_all<R: Rows>(&self, rows: &R, reader: &mut CellReader) -> Result<Batch, Fault<R::Error>> {
        if reader.flow.is_closed() {
            return Ok(Batch::default());
        }
        // Nothing that is recorded from now on has an earlier stamp.
        let next = self.watching.stamper.next(self.object.latest());
        let mut batch = match self.walk(reader, next) {
            Some(walk) => {
                let walked = rows.changed(walk.after, reader.from, WALKED_MAX).map_err(Fault::Storage)?;
                reader.read_walk(walk, walked)
            }
            None => Batch { more: true, ..Batch::default() },
        };
        // The walk is over, or there was none to make.
        if batch.more && self.walk(reader, next).is_none() {
            let Batch { events, more, ends } = self.read_recent(reader, next);
            batch.events.extend(events);
            (batch.more, batch.ends) = (more, ends);
        }
        Ok(batch)
    }

    /// The walk that a reader has to make before it can follow, if it is not over or has not begun.
    fn walk(&self, reader: &CellReader, next: u64) -> Option<Walk> {
        if reader.walk.is_some() {
            return reader.walk;
        }
        let is_known = self.watching.changes.as_ref().is_some_and(|changes| changes.knows(reader.from));
        (!is_known && reader.from < next).then_some(Walk { after: 0, until: next })
    }

    fn read_recent(&self, reader: &mut CellReader, through: u64) -> Batch {
        let limit = CellReader::CHANGES_MAX;
        let changes = self.watching.changes.as_ref().and_then(|changes| changes.since(reader.from, limit));
        let changes = changes.unwrap_or_default();
        let is_all = changes.len() < limit;
        reader.read(changes, is_all, through)
    }

    /// After a commit: lets readers read on.
    pub(super) fn tell_readers(&mut self, run: &Run, before: Status) {
        self.watching.tell(run.id.number, &mut self.object);
        if run.status() != before {
            self.tell_start(run);
        }
    }

    /// A run has a new status.
    pub(super) fn tell_start(&mut self, run: &Run) {
        let Some(changes) = &mut self.watching.changes else { return };
        let Run { id, workflow, stamps, .. } = run;
        let id: RunId = id.clone();
        let (workflow, status) = (workflow.clone(), run.status());
        changes.keep(Change { stamp: stamps.status, id, workflow, status });
        self.object.order(Order::TellCellReaders);
    }
}
