//! Schedules: runs that are started at certain times.
//!
//! Owns: when each schedule of a station ticks, what becomes of a tick, and which runs it waits for. Does not own: the
//! runs, which are their cells'; the rules of time zones ([`Zones`]).
//!
//! A schedule's row is the intent of its next tick: it names the instant, and the cell that will get the run. When the
//! tick is due, that cell is asked to start a run, which it knows by the schedule and the instant; only when it has
//! answered is the row changed to the tick after it. So a tick takes one row, a crash at any moment repeats the same
//! question to the same cell, and two runs are never started for one tick.
//!
//! Invariant: a row moves past a tick only if its run is started or refused for good, or if the tick is counted as
//! skipped or missed, or if its schedule was paused.

mod agenda;
mod asks;
mod backfill;
pub mod civil;
pub mod cron;
mod delay;
mod drive;
mod find;
mod host;
mod layers;
mod looks;
mod next;
mod row;
mod spec;
#[cfg(test)]
mod tests;
mod view;
mod zone;

use stepwell_protocol::{Code, Problem};

pub use delay::starts_at;
pub use drive::{LIST_MAX, NEXT_MAX, SCHEDULES_MAX, Schedules};
pub use host::{Order, Rows, Seen, StartEnd, TickStart};
pub use layers::{Heard, zone_of};
pub use next::{Effort, Next, PASSED_MAX};
pub use row::{
    BACKFILL_MS_MAX, BACKFILL_TICKS_MAX, LOOK_MS, MINUTE_MS, RETIRED_MS, RUNNING_MAX, Schedule, TRIGGERS_MAX,
    Upcoming,
};
pub use spec::Plan;
pub use zone::{NoZone, UTC, Zones};

/// A schedule that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSpec(pub String);

impl From<BadSpec> for Problem {
    fn from(bad: BadSpec) -> Self {
        Self::new(Code::InvalidRequest, bad.0)
    }
}

/// By what a cell knows the run of a tick. No workflow's name is empty, so no caller's key looks like it.
pub fn tick_key(ticked: &stepwell_protocol::schedule::Ticked) -> String {
    format!("\ntick\n{}\n{}", ticked.schedule, ticked.tick)
}
