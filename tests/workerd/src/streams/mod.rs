//! Streams at a size: how soon they show a step, and that nobody misses anything or sees it twice, whatever breaks.
//!
//! The judge is the run's own history, and a reader that comes when all is over: whoever followed and was thrown out
//! again and again must have seen the same.

mod breaks;
mod idle;
mod latency;

use std::time::Duration;

use serde_json::Value;

pub use self::{
    breaks::{Breaks, through_breaks},
    idle::{Idle, asleep},
    latency::{Latency, soon},
};
use crate::following::Seen;

/// How many of what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Runs that are live at once.
    pub runs: u32,
    /// Streams that are open at once.
    pub streams: u32,
    /// How often a client leaves and comes back, in all.
    pub reconnects: u32,
    /// SIGKILLs.
    pub kills: u32,
    /// Cells in the pool.
    pub cells: u32,
    /// Where chance comes from.
    pub seed: u64,
}

/// The path of a run's stream.
fn path(run: &str) -> String {
    format!("/api/executions/{run}/stream")
}

/// What of the journal is among events.
fn records(events: &[Seen]) -> Vec<Value> {
    let of_journal = events.iter().filter(|event| ["step", "timer", "signal"].contains(&event.kind.as_str()));
    of_journal.map(|event| event.data.clone()).collect()
}

/// The value below which so many percent of them are.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// How long everything may take to come to its end.
const PATIENCE: Duration = Duration::from_secs(180);
