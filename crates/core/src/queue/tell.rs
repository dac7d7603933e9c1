//! Tells another queue of dead letters: of each once, in the order of their deaths, up to a watermark in the head.
//!
//! The dead letter stays where it is. What tells of a dead letter is told to nobody else when it dies: two queues that
//! tell each other would do so forever.

use stepwell_protocol::{
    Timestamp,
    queue::{DEAD_LETTER, JobView},
};

use super::{MOVED_BYTES_MAX, Order, Queue, Rows, drive::Known};
use crate::object::{Fault, Hosted as _};

/// How many dead letters are told at once.
const TOLD_MAX: usize = 16;

/// How long the host may take to tell them.
const LATE_MS: u64 = 30_000;

/// How long it takes until the next try, after the first one that failed. Each further one takes twice as long.
const AGAIN_MS: u64 = 1_000;

/// The longest time until the next try.
const AGAIN_MS_MAX: u64 = 60_000;

/// Where a dead letter stands in the order of deaths.
pub type Died = (Timestamp, u64);

/// Dead letters for the host to tell another queue of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
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
    /// Whether the host is at it.
    is_flying: bool,
    /// How often in a row it has failed.
    failures: u32,
}

impl Queue {
    /// Lets the host tell of the next dead letters, if their time has come.
    pub(super) fn tell<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let partition = self.partition;
        let Some(known) = self.known.as_mut().filter(|known| known.tells.at.is_some_and(|at| at <= now))
        else {
            return Ok(());
        };
        (known.tells.at, known.tells.is_flying) = (None, false);
        let Some(queue) = known.head.settings.dead_to.clone() else { return Ok(()) };
        let dead = rows.dead(known.head.told, TOLD_MAX).map_err(Fault::Storage)?;
        let (mut jobs, mut bytes, mut through) = (Vec::new(), 0, known.head.told);
        for (number, row) in dead {
            let Some(died_at) = row.death.as_ref().map(|death| death.at) else { continue };
            if died_at >= now {
                // Another one may die in this millisecond, and come before it.
                known.tells.at = Some(now.plus_millis(1));
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
        if !jobs.is_empty() {
            (known.tells.at, known.tells.is_flying) = (Some(now.plus_millis(LATE_MS)), true);
            self.object.order(Order::Tell(Box::new(Telling { queue, jobs, through })));
        } else if through > known.head.told {
            return self.is_told(rows, now, through);
        }
        Ok(())
    }

    /// How far the other queue was told, and whether that was all.
    pub fn told<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        through: Option<Died>,
        is_all: bool,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        if !self.read(rows, now)? {
            return Ok(());
        }
        let told = through.map_or(Ok(()), |through| self.is_told(rows, now, through));
        if let Some(known) = &mut self.known {
            known.tells.is_flying = false;
            known.tells.failures = if is_all { 0 } else { known.tells.failures.saturating_add(1) };
            let pause_ms = AGAIN_MS << known.tells.failures.saturating_sub(1).min(6);
            let pause_ms = if is_all { 0 } else { pause_ms.min(AGAIN_MS_MAX) };
            known.tells.at = Some(now.plus_millis(pause_ms));
        }
        let told = self.settle(told);
        if is_all {
            let next = self.tell(rows, now);
            self.settle(next)?;
        }
        // The alarm has to know when to go on.
        self.commit(rows, now, &[])?;
        told
    }

    fn is_told<R: Rows>(&mut self, rows: &R, now: Timestamp, through: Died) -> Result<(), Fault<R::Error>> {
        let Some(known) = self.known.as_mut().filter(|known| known.head.told < through) else {
            return Ok(());
        };
        known.head.told = through;
        known.tells.at = Some(now);
        let change = known.head();
        self.commit(rows, now, &[change])
    }
}

impl Known {
    /// A job has died: another queue may have to be told.
    pub fn will_tell(&mut self, now: Timestamp) {
        if self.head.settings.dead_to.is_some() && self.tells.failures == 0 && !self.tells.is_flying {
            let at = now.plus_millis(1);
            self.tells.at = Some(self.tells.at.map_or(at, |known| known.min(at)));
        }
    }
}
