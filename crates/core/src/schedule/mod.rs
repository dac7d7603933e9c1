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
pub mod civil;
pub mod cron;
mod drive;
mod host;
mod next;
mod row;
mod spec;
#[cfg(test)]
mod tests;
mod zone;

use stepwell_protocol::{Code, Problem};

pub use drive::{ANSWER_MS, IN_FLIGHT_MAX, LIST_MAX, NEXT_MAX, SCHEDULES_MAX, STARTS_MAX, Schedules};
pub use host::{Order, Rows, StartEnd, TickStart};
pub use next::{Next, PASSED_MAX};
pub use row::{MINUTE_MS, RUNNING_MAX, Schedule, TRIGGERS_MAX, Upcoming};
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

/// Spreads texts evenly, and for ever in the same way: FNV-1a, and its bits mixed.
fn spread(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}
