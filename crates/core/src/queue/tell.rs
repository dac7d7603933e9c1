//! Tells another queue of dead letters: of each once, in the order of their deaths, up to a watermark in the head.
//!
//! The dead letter stays where it is. What tells of a dead letter is told to nobody else when it dies: two queues that
//! tell each other would do so forever.

use stepwell_protocol::{
    Timestamp,
    queue::{DEAD_LETTER, JobView},
};

use super::{MOVED_BYTES_MAX, Order, Queue, Rows, drive::Known};
use crate::object::{DEAD_MAN_MS, Fault, Hosted as _, pause_ms};

/// How many dead letters are told at once.
const TOLD_MAX: usize = 16;

/// How long the host may take to tell them.
const LATE_MS: u64 = 30_000;

/// How much longer than its time a dead letter is kept that has to be told: as long as a letter is sent again, and more.
const UNTOLD_MS: u64 = 7 * 86_400_000;

/// Where a dead letter stands in the order of deaths.
pub type Died = (Timestamp, u64);

/// Dead letters for the host to tell another queue of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// Its number, which the answer says.
    pub flight: u64,
    /// That queue.
    pub queue: String,
    /// They, with their bodies, in order.
    pub jobs: Vec<(Died, JobView)>,
    /// How far everything is told once they are.
    pub through: Died,
}

/// What an instance knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tells {
    /// When to look for dead letters that have to be told.
    pub at: Option<Timestamp>,
    /// What the host is at, how far it will have told then, and by when.
    flies: Option<(u64, Died, Timestamp)>,
    /// The number of the latest.
    last: u64,
    /// How often in a row it has failed.
    failures: u32,
}

impl Queue {
    /// Lets the host tell of the next dead letters, if their time has come. One that cannot be read holds up these, and
    /// nothing else.
    pub(super) fn tell<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        if self.try_to_tell(rows, now).is_err()
            && let Some(known) = &mut self.known
        {
            known.tells.fails(now);
        }
    }

    fn try_to_tell<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let partition = self.partition;
        let Some(known) = self.known.as_mut().filter(|known| known.tells.at.is_some_and(|at| at <= now))
        else {
            return Ok(());
        };
        if known.tells.flies.is_some_and(|(_, _, until)| until > now) {
            known.tells.at = Some(now.plus_millis(DEAD_MAN_MS));
            return Ok(());
        }
        (known.tells.at, known.tells.flies) = (None, None);
        let Some(queue) = known.head.settings.dead_to.clone() else { return Ok(()) };
        let dead = rows.dead(known.head.told, TOLD_MAX).map_err(Fault::Storage)?;
        let (mut jobs, mut bytes, mut through) = (Vec::new(), 0, known.head.told);
        for (number, row) in dead {
            let Some(died_at) = row.death.as_ref().map(|death| death.at) else { continue };
            if died_at >= now {
                // Another one may die in this millisecond, and come before it.
                known.tells.at = Some(died_at.plus_millis(1));
                break;
            }
            bytes += row.size;
            if bytes > MOVED_BYTES_MAX && !jobs.is_empty() {
                break;
            }
            through = (died_at, number);
            let content = rows.content(number).map_err(Fault::Storage)?;
            if let Some(content) = content.filter(|content| content.content_type != DEAD_LETTER) {
                jobs.push((through, known.whole(now, partition, number, row, content)));
            }
        }
        if jobs.is_empty() {
            // Whoever dies next is no failure.
            known.tells.failures = 0;
            if through == known.head.told {
                return Ok(());
            }
            known.tells.at = Some(now);
            return self.is_told(rows, now, through);
        }
        let flight = known.tells.last + 1;
        known.tells.last = flight;
        // An instance that dies meanwhile leaves it to the next one, which the alarm wakes.
        known.tells.at = Some(now.plus_millis(DEAD_MAN_MS));
        known.tells.flies = Some((flight, through, now.plus_millis(LATE_MS)));
        self.object.order(Order::Tell(Box::new(Telling { flight, queue, jobs, through })));
        Ok(())
    }

    /// How far the other queue was told, and whether that was all. An answer that comes late counts, but another one goes
    /// on with the next.
    pub fn told<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        flight: u64,
        through: Option<Died>,
        is_all: bool,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        if !self.read(rows, now)? {
            return Ok(());
        }
        let told = through.map_or(Ok(()), |through| self.is_told(rows, now, through));
        let is_it = |known: &&mut Known| known.tells.flies.is_some_and(|(flies, ..)| flies == flight);
        if let Some(known) = self.known.as_mut().filter(is_it) {
            known.tells.flies = None;
            if is_all {
                // By the alarm: what one invocation may call has an end.
                (known.tells.failures, known.tells.at) = (0, Some(now));
            } else {
                known.tells.fails(now);
            }
        }
        let told = self.settle(told);
        self.commit(rows, now, &[])?;
        told
    }

    fn is_told<R: Rows>(&mut self, rows: &R, now: Timestamp, through: Died) -> Result<(), Fault<R::Error>> {
        let Some(known) = self.known.as_mut().filter(|known| known.head.told < through) else {
            return Ok(());
        };
        known.head.told = through;
        let change = known.store_head();
        self.commit(rows, now, &[change])
    }
}

impl Tells {
    /// Looks for what has to be told, unless the host is at it or it was tried in vain.
    pub fn looks(&mut self, now: Timestamp) {
        if self.flies.is_none() && self.failures == 0 {
            self.at = Some(now);
        }
    }

    /// It is tried again after a while.
    fn fails(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        (self.at, self.flies) = (Some(now.plus_millis(pause_ms(self.failures))), None);
    }
}

impl Known {
    /// Whether a dead letter whose time is over may go: it was told, or need not be, or could not be for long.
    pub fn may_forget(&self, now: Timestamp, died: Died, over: Timestamp) -> bool {
        self.head.settings.dead_to.is_none() || died <= self.head.told || over.plus_millis(UNTOLD_MS) <= now
    }

    /// A job dies, and another queue may have to be told. Says when: after all that were told, even if the clock says
    /// otherwise.
    pub fn dies_at(&mut self, now: Timestamp) -> Timestamp {
        if self.head.settings.dead_to.is_none() {
            return now;
        }
        let flies = self.tells.flies.map_or(self.head.told, |(_, through, _)| through);
        let (told, _) = flies.max(self.head.told);
        let at = now.max(told.plus_millis(1));
        if self.tells.failures == 0 && self.tells.flies.is_none() {
            let look = at.plus_millis(1);
            self.tells.at = Some(self.tells.at.map_or(look, |known| known.min(look)));
        }
        at
    }
}
