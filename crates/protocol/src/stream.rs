//! What a run tells while it goes on, and the streams by which people follow it.
//!
//! A program *publishes* [`Item`]s: logs, and chunks of its own. A cell stores them in batches beside the
//! journal; a replay never sees them. A stream shows journal, items, status and progress as [`StreamEvent`]s.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Op, Payload, RunId, Timestamp, program::StepAtWork, rest::Status};

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// For whoever looks for a mistake.
    #[serde(rename = "debug")]
    Debug,
    /// For everybody.
    #[serde(rename = "info")]
    Info,
    /// Something is odd.
    #[serde(rename = "warn")]
    Warn,
    /// Something went wrong.
    #[serde(rename = "error")]
    Error,
}

/// Something that a program publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// A line of its log.
    #[serde(rename = "log")]
    Log(LogLine),
    /// A piece of something of its own: tokens of a model, say.
    #[serde(rename = "chunk")]
    Chunk(Chunk),
    /// So many items were left out, because there was too much at once.
    #[serde(rename = "left_out")]
    LeftOut {
        /// How many.
        count: u32,
    },
}

/// A line of a run's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub message: String,
    /// The step whose code says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
}

/// A piece of something of a run's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// What it is a piece of.
    pub name: String,
    /// The piece.
    pub value: Payload,
    /// The step whose code publishes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
}

impl Item {
    /// The longest message of a log line, in bytes.
    pub const MESSAGE_LENGTH_MAX: usize = 4_096;

    /// The longest name of chunks, in bytes.
    pub const NAME_LENGTH_MAX: usize = 64;

    /// The largest chunk, in bytes of JSON.
    pub const CHUNK_BYTES_MAX: usize = 65_536;

    /// About how many bytes its JSON has.
    pub fn size(&self) -> usize {
        let op_size = |op: &Option<Op>| op.as_ref().map_or(0, |op| op.name.len() + 32);
        match self {
            Self::Log(LogLine { message, op, .. }) => 64 + message.len() + op_size(op),
            Self::Chunk(Chunk { name, value, op }) => 64 + name.len() + value.size() + op_size(op),
            Self::LeftOut { .. } => 64,
        }
    }

    /// Whether it is within the limits above.
    pub fn fits(&self) -> bool {
        match self {
            Self::Log(LogLine { message, .. }) => message.len() <= Self::MESSAGE_LENGTH_MAX,
            Self::Chunk(Chunk { name, value, .. }) => {
                (1..=Self::NAME_LENGTH_MAX).contains(&name.len()) && value.size() <= Self::CHUNK_BYTES_MAX
            }
            Self::LeftOut { .. } => true,
        }
    }
}

/// Items on their way from a program to its cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// How many items of this activation came before these. What is sent twice is known by it.
    pub first: u32,
    /// The items.
    pub items: Vec<Item>,
}

impl Published {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// An item as it is stored: when the cell got it, and what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredItem {
    /// When.
    pub at: Timestamp,
    /// What.
    pub item: Item,
}

/// What kind of thing a stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Where the run stands.
    Status,
    /// A step ended, failed an attempt, or is about to run at most once.
    Step,
    /// A sleep ended, or a wait timed out.
    Timer,
    /// A signal came.
    Signal,
    /// How far the run has come.
    Progress,
    /// The steps that are under way, of those that take long enough to be seen.
    Working,
    /// A line of its log.
    Log,
    /// A piece of something of its own.
    Chunk,
    /// The stream has shown all that came before, and goes on live from here.
    Ready,
    /// The reader is to say that it follows.
    Ack,
    /// The run has ended, and so does the stream.
    End,
}

impl Kind {
    /// Those that can be asked for.
    pub const SELECTABLE: [Self; 8] = [
        Self::Status,
        Self::Step,
        Self::Timer,
        Self::Signal,
        Self::Progress,
        Self::Working,
        Self::Log,
        Self::Chunk,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Signal => "signal",
            Self::Progress => "progress",
            Self::Working => "working",
            Self::Log => "log",
            Self::Chunk => "chunk",
            Self::Ready => "ready",
            Self::Ack => "ack",
            Self::End => "end",
        }
    }
}

/// A word that names no kind that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stream has the types status, step, timer, signal, progress, working, log and chunk")]
pub struct NotAKind;

impl FromStr for Kind {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        Self::SELECTABLE.into_iter().find(|kind| kind.as_str() == text).ok_or(NotAKind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One message of a stream. Over server-sent events, `id` and `type` stand in fields of their own too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEvent {
    /// The cursor after it: whoever comes back with it goes on with what follows.
    pub id: String,
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub data: Payload,
}

/// The steps that a run works on, as its stream shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Working {
    /// The steps, the one that began first comes first.
    pub steps: Vec<StepAtWork>,
}

/// Where a run stands, as its stream shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    /// The run.
    pub id: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Its status.
    pub status: Status,
}
