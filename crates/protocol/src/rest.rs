//! The bodies of the REST interface.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Code, Failure, Life, Payload, Problem, RunId, Seq, Timestamp,
    export::ReplayFacts,
    filter::Filter,
    manifest::WorkflowView,
    outbox::LetterCounts,
    program::{Progress, StepAtWork},
};

/// The status of a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted; its program will be called.
    Pending,
    /// Its program is running.
    Running,
    /// It waits for a time.
    Sleeping,
    /// It waits for a signal or a child.
    Waiting,
    /// It is paused and can be resumed.
    Paused,
    /// It returned.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// Every status there is.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Sleeping,
        Self::Waiting,
        Self::Paused,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The status of this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    /// Its id.
    pub id: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Its status.
    pub status: Status,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it starts, while it waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it wakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes_at: Option<Timestamp>,
    /// The signals and events it waits for. Names of events begin with `event:`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The steps that have failed and wait for their next attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retrying: Vec<String>,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Why it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The latest failed attempt of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Its progress, as reported by its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// When it fails if it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When it will be deleted, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The last position of its journal.
    pub head: Seq,
    /// Its current life, if it has continued as new; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
    /// The run that invoked it, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The address that is called when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// The number of its open children, except detached ones that report nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children: u32,
    /// How often its program was called.
    pub activations: u32,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Its attributes, as set by its code.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Who started it; absent for the deployment's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// Operations on it, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<Act>,
    /// What it has cost so far.
    #[serde(default)]
    pub meter: Meter,
    /// The step in progress, if it has been running for more than 20 seconds; while someone follows the run, for more than
    /// half a second. Of several, the one that began first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<CurrentStep>,
    /// All of these, up to 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub working: Vec<StepAtWork>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A step in progress.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentStep {
    /// Its name.
    pub name: String,
    /// Its occurrence: the number of earlier steps with this name.
    pub occurrence: u32,
    /// The attempt, from 1.
    pub attempt: u32,
    /// When the attempt began.
    pub since: Timestamp,
    /// The number of other steps in progress.
    #[serde(default, skip_serializing_if = "is_alone")]
    pub beside: u32,
}

impl CurrentStep {
    /// What people are told about it.
    pub fn because(&self, now: Timestamp) -> String {
        let seconds = now.as_millis().saturating_sub(self.since.as_millis()) / 1_000;
        let beside = match self.beside {
            0 => String::new(),
            1 => " One other step is running beside it.".into(),
            others => format!(" {others} other steps are running beside it."),
        };
        format!("Step '{}' (attempt {}) has been running for {seconds} s.{beside}", self.name, self.attempt)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_alone(beside: &u32) -> bool {
    *beside == 0
}

/// The latest failed attempt of a step, whether or not it was retried.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// The step.
    pub step: String,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// What happened. A long message is cut.
    pub message: String,
    /// Which of Stepwell's own problems it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// When it was recorded.
    pub at: Timestamp,
    /// The number of failed attempts so far.
    pub count: u32,
}

impl LastError {
    /// The most of a message that is kept, in bytes: it is stored with each change of the run.
    pub const MESSAGE_LENGTH_MAX: usize = 512;
}

/// An operation on a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// When.
    pub at: Timestamp,
    /// Who: `key:` or `session:` with its id, `token:` with its subject, `bulk:` with the id of a bulk operation, or
    /// `root` for the deployment itself.
    pub by: String,
    /// What.
    pub what: Deed,
}

/// An operation on a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// End it.
    Cancel,
    /// Pause it.
    Pause,
    /// Resume it.
    Resume,
    /// Continue it from the step that failed.
    Retry,
    /// Continue it from an earlier step.
    Restart,
}

impl Deed {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry => "retry",
            Self::Restart => "restart",
        }
    }
}

/// What a run has cost so far, in what Cloudflare bills.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// Rows written for it.
    pub rows_written: u32,
    /// Requests to its cell that changed it: its start, and signals.
    pub requests: u32,
    /// What a million such runs cost by the list prices, in US dollars: $1.00 for a million rows, $0.15 for a
    /// million requests to objects, $0.30 for a million calls of Workers. Time that a cell is awake is shared by
    /// all its runs and not in it.
    pub dollars_per_million: f64,
}

/// One page of a list of runs, as `GET /api/executions` shows it: newest first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunList {
    /// The runs of this page.
    pub executions: Vec<RunView>,
    /// Where the next page begins: pass it as `?cursor=`. Absent at the end. A page can be short or empty before the
    /// last one, because a filter looks at a bounded number of runs at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An operation on all runs that match a filter: `POST /api/bulk`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// What.
    pub action: BulkAction,
    /// Which runs. At least one field is required.
    pub filter: Filter,
}

/// An operation on many runs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    /// Cancel those that have not ended.
    Cancel,
    /// Continue failed runs from the step that failed.
    Retry,
    /// Start over those that have ended or are paused.
    Restart,
}

impl BulkAction {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Restart => "restart",
        }
    }
}

/// What was done to many runs: the output of a run of `stepwell.bulk`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkReport {
    /// Runs to which it was done.
    pub changed: u64,
    /// Runs that fitted, but could not or need not be changed.
    pub unchanged: u64,
}

/// How many runs there are, as `GET /api/metrics` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// The total.
    pub total: u64,
    /// The number of runs in each status.
    pub statuses: Counts,
    /// The same for each workflow.
    pub workflows: BTreeMap<String, Counts>,
    /// Messages between runs that have not arrived; absent if only one workflow is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letters: Option<LetterCounts>,
    /// Whether all runs were counted. If not, ask again: the cells continue counting.
    pub complete: bool,
}

/// How many runs are in which status.
pub type Counts = BTreeMap<Status, u64>;

/// The app's workflows, including retired ones: `GET /api/workflows`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowList {
    /// By name.
    pub workflows: Vec<WorkflowView>,
}

/// What a run is waiting for, and why: `GET /api/executions/{id}/why`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Why {
    /// Its status.
    pub status: Status,
    /// The reason in a sentence.
    pub because: String,
    /// Its current life, if it has continued as new; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
    /// The lane that it waits to be let in by, if it does: its workflow, the lane that this shares with others, or that of
    /// a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<WaitsFor>,
    /// When it wakes next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_wake: Option<Timestamp>,
    /// What went wrong since its last progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleView>,
    /// The step in progress, if it has been running for more than 20 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<CurrentStep>,
}

/// Something that a run waits for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// `sleep`, `wait`, `token` (a wait with a link), `event`, `cancel_on` (an event that cancels the run), `child`, `step`
    /// (its next attempt) or `lane` (a step that its lane has to let in).
    pub kind: String,
    /// Its name; of an event, what it waits for, such as `order/paid`.
    pub name: String,
    /// Since when it waits, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What the signal's payload must be, in words; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<String>,
    /// The condition on the event, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// What went wrong since the run's last progress.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroubleView {
    /// Deaths of its program that it caused.
    pub strikes: u32,
    /// Times that its cell died while it ran.
    pub suspicion: u32,
    /// Times that its program could not be reached.
    pub losses: u32,
}

/// A run's history, as `GET /api/executions/{id}/history` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History<E = crate::Event> {
    /// The input of the run, or of its current life; on the first page only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Payload>,
    /// The run's current life, if it has continued as new; on the first page only. Earlier events are deleted
    /// gradually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
    /// Events in order.
    pub events: Vec<HistoryEvent<E>>,
    /// Where the next page begins: pass it as `?after=`. Absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Seq>,
    /// Further data for a replay; on the first page only, with `?replay=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayFacts>,
}

/// An event of a run's history.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEvent<E = crate::Event> {
    /// Its position.
    pub seq: Seq,
    /// When the engine recorded it.
    pub at: Timestamp,
    /// What happened.
    pub event: E,
    /// Whether it no longer counts, because the run was retried, restarted or continued as new.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// With `outline=true`: how many bytes the payload has, which is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

/// Where a run continues: `POST /api/executions/{id}/restart`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// Before which step. Without it, the run starts over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepName>,
    /// Before which signal, by its position in the history. The run continues as if that signal had not arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_signal: Option<Seq>,
}

/// A step, by its name and its occurrence.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepName {
    /// Its name.
    pub step: String,
    /// The number of earlier steps with this name in the run.
    #[serde(default)]
    pub occurrence: u32,
}

/// What became of a signal.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignalReceipt {
    /// Whether this id was already received, so that nothing changed.
    pub duplicate: bool,
    /// A warning, for example that the run does not wait for this signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Whether the engine answers: `GET /api/health`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Always `ok`. An engine with a problem answers with that problem, or not at all.
    pub status: HealthStatus,
    /// The version of the program protocol that it speaks.
    pub protocol: u32,
}

/// The state of the engine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// It answers.
    Ok,
}
