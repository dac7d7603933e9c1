//! What cells say in numbers.

use serde::{Deserialize, Serialize};
use stepwell_core::{cell::Happened, ordered::OrdMap};
use stepwell_protocol::{
    Timestamp,
    failures::FailureGroup,
    outbox::LetterCounts,
    rest::Counts,
    totals::{Minute, Totals},
};

/// A cell's part of the counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CountedRuns {
    /// How many runs of each workflow are in which status.
    pub workflows: OrdMap<String, Counts>,
    /// Whether all were counted. If not, the next request goes on.
    pub is_all: bool,
    /// How many letters have not arrived.
    #[serde(default)]
    pub letters: LetterCounts,
}

/// A cell's part of what Prometheus is told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// How many runs there are.
    pub counted: CountedRuns,
    /// What has ever happened to them.
    pub totals: Happened,
    /// How many bytes are stored.
    pub bytes: u64,
    /// How many could be.
    pub bytes_max: u64,
    /// How many programs are called at this moment.
    pub at_work: u64,
    /// Since when the run has been due that has waited longest for a place.
    pub due_since: Option<Timestamp>,
}

/// A cell's part of what alert rules look at.
#[derive(Debug, Serialize, Deserialize)]
pub struct Summed {
    /// What has happened, in the order in which it was asked for.
    pub spans: Vec<Totals>,
    /// How many messages to other objects are dead.
    pub dead_letters: u64,
    /// How many bytes are stored.
    pub bytes: u64,
    /// How many could be.
    pub bytes_max: u64,
    /// Since when the run has been due that has waited longest for a place.
    pub due_since: Option<Timestamp>,
}

/// A cell's part of what has happened to the runs of each workflow.
#[derive(Debug, Serialize, Deserialize)]
pub struct Totalled {
    /// By workflow.
    pub totals: Happened,
}

/// A cell's groups of failed runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedFailures {
    /// In no order.
    pub failures: Vec<FailureGroup>,
}

/// A cell's part of what has happened.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedMinutes {
    /// Minute by minute.
    pub minutes: Vec<Minute>,
}
