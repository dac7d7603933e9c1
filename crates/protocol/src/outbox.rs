//! What objects have written to each other and has not arrived, as people see it.

use serde::{Deserialize, Serialize};

use crate::{RunId, Timestamp};

/// Messages that have not arrived.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxList {
    /// The messages, the oldest letter first.
    pub messages: Vec<OutboxMessage>,
    /// Where the next page begins, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The cells that did not answer: they may have more, which no page shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
    /// Whether this page is all there is, or the end of it: nothing follows, and every cell that was asked has answered.
    pub complete: bool,
}

/// How many letters have not arrived. Each cell counts up to 10,000 of each.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterCounts {
    /// Those that are still being sent.
    pub waiting: u64,
    /// Those that nobody sends any more.
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
    /// What it does where it arrives: `start`, `ended` or `cancel`.
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
