//! What objects have written to each other and has not arrived, as people see it.

use serde::{Deserialize, Serialize};

use crate::{RunId, Timestamp};

/// Messages that have not arrived.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxList {
    /// The messages, the oldest letter first.
    pub messages: Vec<OutboxMessage>,
    /// The cursor of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The cells that did not answer. Their letters are missing from the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
    /// Whether the list is complete: no page follows, and every cell has answered.
    pub complete: bool,
}

/// How many letters have not arrived. Each cell counts up to 10,000 of each.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterCounts {
    /// Letters that are still being sent.
    pub waiting: u64,
    /// Dead letters, which are no longer sent.
    pub dead: u64,
}

/// A dead letter that was deleted.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardedLetter {
    /// The letter.
    pub letter: String,
    /// What it said.
    pub messages: Vec<MessageHead>,
}

/// A message that has not arrived.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxMessage {
    /// Its letter: the messages of one commit, which are sent again together.
    pub letter: String,
    /// When it was written.
    pub posted_at: Timestamp,
    /// Whether it is no longer sent, because it has not arrived in six days or was refused permanently.
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
    /// What it does: `start`, `ended`, `tick_ended`, `cancel` or `unbind`.
    pub what: String,
    /// The run that caused it.
    pub from: RunId,
    /// The address of the object that it goes to.
    pub to: String,
}

/// A letter that was sent again.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redelivery {
    /// The letter.
    pub letter: String,
    /// Whether it was dead.
    pub was_dead: bool,
}
