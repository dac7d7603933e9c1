//! The cells of a namespace, as operators see them.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, outbox::LetterCounts, rest::Counts};

/// From how full on a cell takes no new runs, in per cent.
pub const FULL_PERCENT: u64 = 80;

/// The cells of a namespace: `GET /api/cells`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellList {
    /// Those that have answered, by generation and number.
    pub cells: Vec<CellView>,
    /// Those that have not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// A cell: an object that holds a part of the runs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellView {
    /// Its name. Ids of its runs begin with it.
    pub cell: String,
    /// How many of its runs are in each status.
    pub statuses: Counts,
    /// Whether all of them were counted; if not, ask again.
    pub complete: bool,
    /// How many programs it calls at this moment.
    pub programs: u64,
    /// Since when the run has been due that has waited longest for a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_since: Option<Timestamp>,
    /// How many bytes it stores.
    pub bytes: u64,
    /// How many it could.
    pub bytes_max: u64,
    /// How many of its letters have not arrived.
    pub letters: LetterCounts,
}
