//! Children: runs that another run has invoked.

use serde::{Deserialize, Serialize};

use crate::{Op, Payload, Place, RunId, Seq, lane::Flow, program::Dispatch, trace::TraceParent};

/// What a run invokes: a run of another workflow, or of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// The workflow to run.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// Whether the run goes on as soon as the child is started, and is told nothing of its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// What happens to the child when the run no longer waits for it.
    #[serde(default, skip_serializing_if = "OnClose::is_cancel")]
    pub on_close: OnClose,
    /// How long the child may take, as its app says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long the child is kept after its end, as its app says; 0 is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// How the child's program is called, as its app says.
    #[serde(default, skip_serializing_if = "Dispatch::is_direct")]
    pub dispatch: Dispatch,
    /// The address that is called when the child ends, as its app says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// How the child is let in, as its app says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Box<Flow>>,
}

impl Invocation {
    /// The most children of one run that have not ended.
    pub const OPEN_MAX: u32 = 1_000;

    /// How many runs there are above each other at the most: a workflow that invokes itself has to come to an end.
    pub const DEPTH_MAX: u32 = 16;
}

/// What happens to a child when the run that invoked it ends, continues as new, is restarted from before the
/// invocation, or stops waiting.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnClose {
    /// It is cancelled.
    #[default]
    #[serde(rename = "cancel")]
    Cancel,
    /// It continues.
    #[serde(rename = "abandon")]
    Abandon,
}

impl OnClose {
    /// Whether it is what nobody has to say.
    pub fn is_cancel(&self) -> bool {
        *self == Self::Cancel
    }
}

/// What a run waits for of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Awaits {
    /// Its end.
    #[default]
    #[serde(rename = "finished")]
    Finished,
    /// That it is started.
    #[serde(rename = "started")]
    Started,
}

impl Awaits {
    /// Whether it is what nobody has to say.
    pub fn is_finished(&self) -> bool {
        *self == Self::Finished
    }
}

/// Who has invoked a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run that has invoked it.
    pub run: RunId,
    /// What the invocation is called there.
    pub op: Op,
    /// Where it is in that run's journal.
    pub invoked: Seq,
    /// How many runs there are above this one.
    pub depth: u32,
    /// Whether nobody waits for its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// The cell that its start went to first, if that was full and has sent it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Place>,
    /// The span that it happens within, if anybody traces that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub trace: Option<Box<TraceParent>>,
}
