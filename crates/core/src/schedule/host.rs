//! What a station of schedules has of its host: rows, and somebody who asks cells.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Payload, Place, Problem, RunId, Timestamp, rest::Status, schedule::Ticked};

use super::{Heard, Schedule};

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

    /// The schedules after an id, in order and at most so many; nothing for one that cannot be read.
    fn page(&self, after: &str, limit: usize) -> Result<Vec<(String, Option<Schedule>)>, Self::Error>;

    /// Stores a schedule in the place of the one that was there. One row.
    fn put(&self, schedule: &Schedule) -> Result<(), Self::Error>;

    /// What was heard of the code.
    fn heard(&self) -> Result<Heard, Self::Error>;

    /// Stores what was heard of the code, and the schedules that it has changed.
    fn declare(&self, heard: &Heard, schedules: &[Schedule]) -> Result<(), Self::Error>;

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
    /// Ask whether a run has ended, and say so if it has.
    Look {
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
    /// The cell that gets it if that one is full; nothing if it has to wait.
    #[serde(default)]
    pub spare: Option<Place>,
    /// Whether it is given up: the cell says whether the tick has a run, and never starts it if it has none.
    #[serde(default)]
    pub given_up: bool,
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
    /// There is no run, and never will be: the tick was given up.
    Never,
    /// It is at home in another cell, for good: that one has to be asked.
    Moved(Place),
    /// It was answered with no, for now.
    Declined(Problem),
    /// Nobody knows.
    Failed,
}

/// What became of a run that was asked whether it has ended, or that had to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It has ended in this way; or nobody knows it any more, which counts as cancelled.
    Over(Status),
    /// It has not.
    Open,
    /// Nobody knows.
    Failed,
}
