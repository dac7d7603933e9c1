//! The bodies of the REST interface.

use serde::{Deserialize, Serialize};

use crate::{Failure, Payload, Problem, RunId, Seq, Timestamp};

/// Where a run stands, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted; its program will be called.
    Pending,
    /// Its program is at work.
    Running,
    /// It waits for a time.
    Sleeping,
    /// It waits for a signal.
    Waiting,
    /// It was stopped and can go on.
    Paused,
    /// It returned.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing will change any more.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Sleeping | Self::Waiting | Self::Paused => false,
        }
    }
}

/// A run, as `GET /api/executions/{id}` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunView {
    /// Its id.
    pub id: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Where it stands.
    pub status: Status,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it wakes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes_at: Option<Timestamp>,
    /// The signals it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Why it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The last position of its journal.
    pub head: Seq,
    /// How often its program was called.
    pub activations: u32,
}

/// A run's history, as `GET /api/executions/{id}/history` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History<R = crate::Record> {
    /// Events in order.
    pub events: Vec<R>,
    /// Where to go on, with `?after=`; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Seq>,
}

/// What a signal did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignalReceipt {
    /// Whether this id had been received before, so that nothing changed.
    pub duplicate: bool,
}
