//! The run row: what of a run's state is stored, and how it is read back.
//!
//! The columns that queries use stand alone; the rest is one JSON text, whose fields are only ever added
//! with a default, so that the release before this one can read it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Epoch, Life, Parent, Problem, RunId, Seq, Timestamp, json,
    program::{Dispatch, Progress},
    rest::{Act, LastError},
    schedule::Ticked,
    topic::Triggered,
    trace::{Chapter, TraceParent},
};

use super::{
    Children, Cut, End, Gathering, Held, InLane, Inbox, Mark, OpenOp, PauseWhy, Phase, Run, Spent, Trailer,
    Transport, Trouble, cuts::counts, hex,
};

/// The columns of a run row that follow from its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its status, in the word that people see.
    pub status: &'static str,
    /// When its cell must look at it.
    pub wake_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The rest, as JSON.
    pub state: String,
}

/// What is read of a run beside its state: what the journal says about its own end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Its last position.
    pub head: Seq,
    /// What its last event says besides.
    pub trailer: Trailer,
    /// Whether the row's columns say that the run is in quarantine.
    pub quarantined: bool,
}

/// When a run's states last changed: see [`crate::stream::Stamper`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    /// Its status.
    #[serde(default)]
    pub status: u64,
    /// Its progress.
    #[serde(default, skip_serializing_if = "is_never")]
    pub progress: u64,
}

impl Stamps {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_never(stamp: &u64) -> bool {
    *stamp == 0
}

/// Stored data that no release of Stepwell has written.
#[derive(Debug, thiserror::Error)]
#[error("the stored state of run {number} cannot be read: {source}")]
pub struct Corrupt {
    number: u64,
    source: serde_json::Error,
}

#[derive(Serialize, Deserialize)]
struct State {
    #[serde(with = "hex")]
    seed: u64,
    epoch: Epoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starts_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_start")]
    began_at: Seq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
    #[serde(default, skip_serializing_if = "Inbox::is_empty")]
    inbox: Inbox,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    open: Vec<OpenOp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<Held>,
    #[serde(default, skip_serializing_if = "is_zero")]
    visits: u32,
    #[serde(default, skip_serializing_if = "Children::is_empty")]
    children: Children,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Parent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticked: Option<Ticked>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    triggered: Option<Triggered>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    callback: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<TraceParent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chapter: Option<Chapter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<Box<InLane>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gathering: Option<Box<Gathering>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    input_bytes: u32,
    #[serde(default, skip_serializing_if = "is_none")]
    trouble: Trouble,
    #[serde(default, skip_serializing_if = "Dispatch::is_direct")]
    dispatch: Dispatch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    // A field and not a phase: the release before this one takes such a run for one that has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleting: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    emptied: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patches: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cuts: Vec<Cut>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    life: Option<Life>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remains: Option<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_since: Option<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Stamps::are_none")]
    stamps: Stamps,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_by: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    acts: Vec<Act>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<LastError>,
    #[serde(default, skip_serializing_if = "is_nothing")]
    spent: Spent,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    draining: bool,
    phase: StoredPhase,
}

#[derive(Serialize, Deserialize)]
enum StoredPhase {
    #[serde(rename = "pending")]
    Pending { not_before: Timestamp },
    #[serde(rename = "running")]
    Running { since: Timestamp, session: Transport, alone: bool },
    #[serde(rename = "suspended")]
    Suspended,
    #[serde(rename = "paused")]
    Paused { problem: Problem },
    #[serde(rename = "paused_by_request")]
    PausedByRequest,
    #[serde(rename = "ended")]
    Ended { how: End, at: Timestamp },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_start(seq: &Seq) -> bool {
    seq.0 == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_none(trouble: &Trouble) -> bool {
    *trouble == Trouble::default()
}

fn is_nothing(spent: &Spent) -> bool {
    *spent == Spent::default()
}

impl Run {
    /// The columns that follow from its state.
    pub fn to_row(&self) -> RunRow {
        let ended_at = match self.phase {
            Phase::Ended { at, .. } => Some(at),
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } => None,
        };
        let phase = match self.phase.clone() {
            Phase::Pending { not_before } => StoredPhase::Pending { not_before },
            Phase::Running { since, session, alone, lease: _ } => {
                StoredPhase::Running { since, session, alone }
            }
            Phase::Suspended => StoredPhase::Suspended,
            Phase::Paused { why: PauseWhy::Problem(problem) } => StoredPhase::Paused { problem },
            Phase::Paused { why: PauseWhy::Request } => StoredPhase::PausedByRequest,
            Phase::Ended { how, at } => StoredPhase::Ended { how, at },
        };
        let state = State {
            seed: self.seed,
            epoch: self.epoch,
            starts_at: self.starts_at,
            began_at: self.began_at,
            mark: self.mark,
            inbox: self.inbox,
            open: self.open.clone(),
            held: self.held.clone(),
            visits: self.visits,
            children: self.children.clone(),
            parent: self.parent.clone(),
            ticked: self.ticked.clone(),
            triggered: self.triggered.clone(),
            callback: self.callback.clone(),
            trace: self.trace,
            chapter: self.chapter,
            lane: self.lane.clone(),
            gathering: self.gathering.clone(),
            input_bytes: self.input_bytes,
            trouble: self.trouble,
            dispatch: self.dispatch,
            timeout_ms: self.timeout_ms,
            deadline: self.deadline,
            retention_ms: self.retention_ms,
            deleting: self.deleting,
            emptied: self.emptied,
            key: self.key.clone(),
            patches: self.patches.clone(),
            cuts: self.cuts.clone(),
            life: self.life,
            remains: self.remains,
            token_key: self.token_key.clone(),
            failed_since: self.failed_since,
            progress: self.progress.clone(),
            stamps: self.stamps,
            tags: self.tags.clone(),
            attributes: self.attributes.clone(),
            started_by: self.started_by.clone(),
            acts: self.acts.clone(),
            last_error: self.last_error.clone(),
            spent: Spent { at: self.head, ..self.spent },
            draining: self.draining,
            phase,
        };
        RunRow {
            status: self.status().as_str(),
            wake_at: self.wake_at(),
            ended_at,
            state: serde_json::to_string(&state).expect("the state holds only what JSON can say"),
        }
    }

    /// What the last event of what is recorded with this state says besides itself.
    pub fn trailer(&self) -> Trailer {
        let (children, held) = (self.children.clone(), self.held.clone());
        Trailer { mark: self.mark, inbox: self.inbox, children, held }
    }

    /// A run from its row and its journal's tail.
    pub fn from_row(
        id: RunId,
        workflow: String,
        created_at: Timestamp,
        state: &str,
        tail: Tail,
    ) -> Result<Self, Corrupt> {
        let state: State = json::from_str(state).map_err(|source| Corrupt { number: id.number, source })?;
        let phase = match state.phase {
            StoredPhase::Pending { not_before } => Phase::Pending { not_before },
            StoredPhase::Running { since, session, alone } => {
                Phase::Running { since, session, alone, lease: None }
            }
            StoredPhase::Suspended => Phase::Suspended,
            StoredPhase::Paused { problem } => Phase::Paused { why: PauseWhy::Problem(problem) },
            StoredPhase::PausedByRequest => Phase::Paused { why: PauseWhy::Request },
            StoredPhase::Ended { how, at } => Phase::Ended { how, at },
        };
        // What earlier lives have left behind is deleted, the last event with it; but no position is used twice.
        let head = tail.head.max(state.spent.at);
        // Whatever was written last: a row knows where the journal ended when it was.
        let is_older = tail.head > state.spent.at;
        let row =
            Trailer { mark: state.mark, inbox: state.inbox, children: state.children, held: state.held };
        let Trailer { mark, inbox, children, held } = if is_older { tail.trailer } else { row };
        Ok(Self {
            id,
            workflow,
            seed: state.seed,
            created_at,
            starts_at: state.starts_at,
            epoch: state.epoch,
            head,
            quarantined: tail.quarantined,
            began_at: state.began_at,
            mark: mark.filter(|mark| counts(&state.cuts, mark.through)),
            inbox,
            open: state.open,
            held,
            visits: state.visits,
            children,
            parent: state.parent,
            ticked: state.ticked,
            triggered: state.triggered,
            callback: state.callback,
            trace: state.trace,
            chapter: state.chapter,
            lane: state.lane,
            gathering: state.gathering,
            input_bytes: state.input_bytes,
            trouble: state.trouble,
            dispatch: state.dispatch,
            timeout_ms: state.timeout_ms,
            deadline: state.deadline,
            retention_ms: state.retention_ms,
            deleting: state.deleting,
            emptied: state.emptied,
            key: state.key,
            patches: state.patches,
            cuts: state.cuts,
            life: state.life,
            remains: state.remains,
            token_key: state.token_key,
            failed_since: state.failed_since,
            progress: state.progress,
            stamps: state.stamps,
            tags: state.tags,
            attributes: state.attributes,
            started_by: state.started_by,
            acts: state.acts,
            last_error: state.last_error,
            spent: Spent {
                rows: state.spent.rows.saturating_add(head.0.saturating_sub(state.spent.at.0)),
                at: head,
                ..state.spent
            },
            draining: state.draining,
            phase,
        })
    }
}
