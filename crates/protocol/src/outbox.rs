//! What objects have written to each other and has not arrived, as people see it.

use serde::{Deserialize, Serialize};

use crate::{RunId, Timestamp};

/// Messages that have not arrived.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxList {
    /// The messages, the oldest first in each cell.
    pub messages: Vec<OutboxMessage>,
    /// Whether these are all.
    pub complete: bool,
}

/// A message that has not arrived.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxMessage {
    /// The letter that it is of: what one commit has written is delivered again together.
    pub letter: String,
    /// When it was written.
    pub posted_at: Timestamp,
    /// Whether nobody sends it any more: it has not arrived in six days, or was refused for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
    /// What it is about.
    #[serde(flatten)]
    pub head: MessageHead,
}

/// What a message is about.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageHead {
    /// What it does where it arrives: `start`, `ended`, `tick_ended` or `cancel`.
    pub what: String,
    /// The run that has caused it.
    pub from: RunId,
    /// The address of the object that it goes to.
    pub to: String,
}

/// A letter that is sent again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redelivery {
    /// The letter.
    pub letter: String,
    /// Whether it was dead.
    pub was_dead: bool,
}
