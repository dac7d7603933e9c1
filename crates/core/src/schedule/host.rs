//! What a station of schedules has of its host: rows, and somebody who asks cells.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Payload, Place, Problem, RunId, Timestamp, schedule::Ticked};

use super::Schedule;

/// What a station of schedules needs of its storage. Every method that writes is one transaction.
pub trait Rows {
    /// Why the storage failed.
    type Error;

    /// Whether an error says that one row cannot be read. Others are not affected.
    fn is_unreadable(error: &Self::Error) -> bool;

    /// All schedules, and when each is due. Read once by each instance.
    fn due(&self) -> Result<Vec<(String, Option<Timestamp>)>, Self::Error>;

    /// A schedule.
    fn get(&self, id: &str) -> Result<Option<Schedule>, Self::Error>;

    /// The schedules after an id, in order; at most so many. What cannot be read is left out.
    fn page(&self, after: &str, limit: usize) -> Result<Vec<Schedule>, Self::Error>;

    /// Stores a schedule in the place of the one that was there. One row.
    fn put(&self, schedule: &Schedule) -> Result<(), Self::Error>;

    /// Deletes a schedule.
    fn delete(&self, id: &str) -> Result<(), Self::Error>;
}

/// What the host has to do for a station of schedules.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Ask a cell to start the run of a tick, and say what became of it.
    Start(Box<TickStart>),
    /// Cancel a run.
    Cancel {
        /// On behalf of this schedule.
        schedule: String,
        /// The run.
        run: RunId,
    },
    /// Let somebody know that the row of this schedule cannot be read.
    Report(String),
}

/// A run to be started for a tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TickStart {
    /// The number of the question.
    pub flight: u64,
    /// The cell that gets it.
    pub to: Place,
    /// By what it is known.
    pub ticked: Ticked,
    /// The workflow.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// Its tags.
    pub tags: Vec<String>,
}

/// What became of such a question.
#[derive(Clone, Debug, PartialEq)]
pub enum StartEnd {
    /// The run is started, now or before.
    Started(RunId),
    /// It was refused, and would be refused again.
    Refused(Problem),
    /// It was answered with no, for now.
    Declined(Problem),
    /// Nobody knows.
    Failed,
}
