//! What a lane has of its host: rows, and somebody who asks cells.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Place, Timestamp,
    lane::{Hold, Limit, SetLimit, Ticket},
};

/// What a lane needs of its storage.
pub trait Rows {
    /// Why the storage failed.
    type Error;

    /// All that hold a slot or wait for one, by their numbers and in their order; nothing for one that cannot be read.
    fn waiters(&self) -> Result<Vec<(u64, Option<Waiter>)>, Self::Error>;

    /// Stores these in the place of those with the same numbers and deletes others, in one transaction. One row each.
    fn write(&self, put: &[(u64, &Waiter)], deleted: &[u64]) -> Result<(), Self::Error>;

    /// The limits that people have set; none, if they cannot be read.
    fn set_limits(&self) -> Result<Vec<SetLimit>, Self::Error>;

    /// Stores these in the place of all others: one row.
    fn write_set_limits(&self, set: &[SetLimit]) -> Result<(), Self::Error>;
}

/// Who holds a slot of each of its limits, or waits for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Its run, and which time that wants to go to work.
    pub ticket: Ticket,
    /// The limits, in the order in which they are passed.
    pub limits: Vec<Limit>,
    /// The turn that its share has: earlier ones come first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u64,
    /// Its time in the line, with its priority.
    pub order: u64,
    /// Whose run it is, if they take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// When its run was started.
    pub started: Timestamp,
    /// For how long it holds its slots.
    #[serde(default, skip_serializing_if = "Hold::is_work")]
    pub hold: Hold,
    /// Since when it waits or, once it was let in, since then.
    pub since: Timestamp,
    /// The step's name, if it is a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether it was let in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in: bool,
    /// Whether its ticket is over, and only its slots of rates are still held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
}

impl Waiter {
    /// Whether it is a start that has become a run, or will: runs have later numbers.
    pub(super) fn is_start(&self) -> bool {
        self.ticket.number == 0
    }

    /// Until when it holds its slot of a rate, once it was let in; nothing for other limits.
    ///
    /// A moment longer than the rate says, because a run begins a moment after it was let in.
    pub fn holds_until(&self, limit: &Limit) -> Option<Timestamp> {
        let per_ms = limit.per_ms?;
        Some(self.since.plus_millis(per_ms + (per_ms / 20).min(500)))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(round: &u64) -> bool {
    *round == 0
}

/// Somebody who was let in, or waits, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its number in the lane.
    pub number: u64,
    /// Who it is, under its limits as they are in effect.
    pub waiter: Waiter,
    /// The limit that it waits for; none, if it was let in.
    pub waits_at: Option<usize>,
}

/// A part of those who were let in or wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Who, in the order in which they came.
    pub shown: Vec<Shown>,
    /// The limits that people have set, on the first page.
    pub set: Vec<SetLimit>,
}

/// What the host has to do for a lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Tell a cell who was let in, and say who is not there any more.
    Tell(Box<Telling>),
}

/// What a cell is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Telling {
    /// Which question.
    pub flight: u64,
    /// The cell.
    pub to: Place,
    /// Who was let in, now or some time ago.
    pub tickets: Vec<Ticket>,
}
