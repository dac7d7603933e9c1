//! What a run says of itself for people to see and to find it by: its progress and its attributes.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, text::is_hidden};

/// How far a run has come, for people to see. A program says the first three, and the estimate if it knows better;
/// the engine adds the times.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// What it is doing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The progress in units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<Units>,
    /// The estimated time at which it reaches 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// When it was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Where it began, for the estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
}

/// Progress in what a run counts: files, rows, pages.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// The number done.
    pub done: u64,
    /// The total.
    pub total: u64,
}

/// Where progress began.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Since {
    /// When it was first reported.
    pub at: Timestamp,
    /// The percentage at that time.
    pub percent: f64,
}

impl Progress {
    /// The longest message, in bytes.
    pub const MESSAGE_LENGTH_MAX: usize = 1_024;
}

/// What goes for a run's attributes: free names and values, to find it by.
#[derive(Clone, Copy, Debug)]
pub struct Attributes;

impl Attributes {
    /// The most of one run: each is a row.
    pub const MAX: usize = 16;

    /// The longest name, in bytes.
    pub const NAME_LENGTH_MAX: usize = 64;

    /// The longest value, in bytes.
    pub const VALUE_LENGTH_MAX: usize = 256;

    /// Whether an attribute may have this name: a colon ends it where runs are looked for.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty()
            && name.len() <= Self::NAME_LENGTH_MAX
            && !name.chars().any(|c| c == ':' || is_hidden(c))
    }
}
