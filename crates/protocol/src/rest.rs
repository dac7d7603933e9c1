//! The bodies of the REST interface.

use serde::{Deserialize, Serialize};

use crate::{Failure, Payload, Problem, RunId, Seq, Timestamp, program::Progress};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// How far it has come, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// When it will be failed if it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When it will be deleted, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The last position of its journal.
    pub head: Seq,
    /// How often its program was called.
    pub activations: u32,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What it has cost.
    #[serde(default)]
    pub meter: Meter,
}

/// What a run has cost so far, in what Cloudflare bills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// Rows written for it.
    pub rows_written: u32,
    /// Requests that its cell got for it and that changed it: its start, and signals.
    pub requests: u32,
    /// What a million such runs cost by the list prices, in US dollars: $1.00 for a million rows, $0.15 for a
    /// million requests to objects, $0.30 for a million calls of Workers. Time that a cell is awake is shared by
    /// all its runs and not in it.
    pub dollars_per_million: f64,
}

/// One page of a list of runs, as `GET /api/executions` shows it: newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunList {
    /// The runs of this page.
    pub executions: Vec<RunView>,
    /// Where to go on, with `?cursor=`; absent at the end. A page may be short, or even empty, and not be the
    /// last: a filter looks at a bounded number of runs at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Why a run is where it is, as `GET /api/executions/{id}/why` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Why {
    /// Where it stands.
    pub status: Status,
    /// The reason in a sentence.
    pub because: String,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<WaitsFor>,
    /// When something happens to it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_wake: Option<Timestamp>,
    /// What went wrong since it last made progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleView>,
}

/// Something that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// `sleep`, `wait` or `step` (its next attempt).
    pub kind: String,
    /// Its name.
    pub name: String,
    /// When it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What went wrong since a run last made progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroubleView {
    /// Deaths of its program that are its own.
    pub strikes: u32,
    /// Times that its cell died while it ran.
    pub suspicion: u32,
    /// Times that its program could not be reached.
    pub losses: u32,
}

/// A run's history, as `GET /api/executions/{id}/history` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History<R = crate::Record> {
    /// What the run was started with; on the first page only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Payload>,
    /// Events in order.
    pub events: Vec<R>,
    /// Where to go on, with `?after=`; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Seq>,
}

/// Where a run shall be taken back to, for `POST /api/executions/{id}/restart`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// Before which step; before all of it, if none is named.
    #[serde(default)]
    pub from: Option<StepName>,
}

/// A step by its name, and which occurrence of that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepName {
    /// Its name.
    pub step: String,
    /// How often the name came before it in the run.
    #[serde(default)]
    pub occurrence: u32,
}

/// What a signal did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignalReceipt {
    /// Whether this id had been received before, so that nothing changed.
    pub duplicate: bool,
}
