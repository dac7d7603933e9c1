//! One run: from its start to its end.
//!
//! Owns: which activation may write (epochs), the order of the journal, when a step is tried again, what
//! a suspended run waits for, and what happens when its program or its cell dies.
//! Does not own: the journal's content before its head, inputs and results (the store has them), and when
//! a slot is free ([`crate::window`]).
//!
//! Invariant: a run that has not ended has an activation, an activation due, a time to wake at, or a
//! signal to wait for; or it is paused and says why.

use std::collections::BTreeMap;

mod anew;
mod apply;
mod children;
mod commit;
mod cuts;
mod decide;
mod entry;
mod expiry;
mod fits;
mod gathering;
mod hex;
mod lane;
mod mark;
mod open;
mod people;
mod restart;
mod retry;
mod row;
mod spent;
mod tokens;
mod trouble;
mod visits;
mod why;

#[cfg(test)]
mod tests;
use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Epoch, Invocation, Life, Op, Outcome, Parent, Place, Problem, RunId, Seq, Timestamp,
    program::{Commit, Dispatch, Progress},
    queue::SentJob,
    rest::{Act, LastError, Status},
    schedule::Ticked,
    topic::{NewEvent, Triggered},
    trace::{Chapter, TraceParent},
};

pub(crate) use children::invocations;
pub use children::{Children, OpenChild};
pub use cuts::{CUTS_MAX, Cut};
pub use decide::Start;
pub(crate) use decide::check_op;
pub use entry::Entry;
pub use expiry::{EXPIRY_ROUND_MS, INVOCATION_KEPT_MS};
pub use fits::{ROW_BYTES_MAX, ROW_RESERVE_BYTES};
pub(crate) use gathering::{Admitted, list_of};
pub use gathering::{GatheredBy, Gathering, Joined, KnownJoin};
pub use lane::{IN_LINE_MS, InLane};
pub use mark::{Inbox, Mark, Trailer};
pub use open::OpenOp;
pub use people::{ACTS_MAX, Signal, check_signal_name};
pub use retry::delay_ms;
pub use row::{Corrupt, RunRow, Stamps, Tail};
pub use spent::Spent;
pub use trouble::{STRIKES_MAX, SUSPICION_ALONE, Trouble, UNSTORED_MAX};
pub use visits::{Held, VISIT_ASKED_MS, Visit};
pub(crate) use why::with_result;

/// How long a cell waits to hear of an activation that it does not hold the call of. Longer than two beats
/// (see [`BEAT_MS`]) that are lost or late.
pub const LEASE_MS: u64 = 6_000;

/// How often whoever holds the call of such an activation says that it is alive.
pub const BEAT_MS: u64 = 2_000;

/// The longest pause between two activations of a run whose program dies or cannot be reached; on average, where
/// chance has a say in it, which may make it twice as long. So half a minute after an app is back, all its runs are.
pub const TROUBLE_BACKOFF_MS_MAX: u64 = 15_000;

/// The most patches that one run's code may apply.
pub const PATCHES_MAX: usize = 1_000;

/// The longest message about a run's progress, in bytes.
pub const PROGRESS_MESSAGE_LENGTH_MAX: usize = Progress::MESSAGE_LENGTH_MAX;

/// How many signals a run is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalLimits {
    /// The most that wait for it to take them.
    pub unread: u32,
    /// The most bytes of all that it is ever sent.
    pub bytes: u64,
}

impl Default for SignalLimits {
    fn default() -> Self {
        Self { unread: 10_000, bytes: 256 << 20 }
    }
}

/// The most things that one run may wait for at once.
pub const OPEN_MAX: usize = 10_000;

/// What the caller did wrong, with a code.
pub type Rejection = Problem;

/// A run as its cell keeps it in memory: the run row and what the journal's tail says.
#[expect(clippy::struct_excessive_bools, reason = "each can be so whatever the others are")]
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The workflow it runs.
    pub workflow: String,
    /// Where its random numbers come from.
    pub seed: u64,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// It does not begin before, if whoever started it has said so.
    pub starts_at: Option<Timestamp>,
    /// The latest activation.
    pub epoch: Epoch,
    /// The last position of its journal.
    pub head: Seq,
    /// Whether it could not be read when its cell last looked at it, and does not go on before the next look. Only the
    /// row's columns say so: see [`crate::cell::Rows::quarantine`].
    pub quarantined: bool,
    /// Where its journal ended when its latest activation began.
    pub began_at: Seq,
    /// The last commit of its program.
    pub mark: Option<Mark>,
    /// The signals that it was sent.
    pub inbox: Inbox,
    /// What it waits for.
    pub open: Vec<OpenOp>,
    /// Its steps that were let in by their lanes.
    pub held: Vec<Held>,
    /// How many tickets of lanes its steps have had.
    pub visits: u32,
    /// Its children that have not ended, as far as it hears of them.
    pub children: Children,
    /// Who has invoked it, if it is a child.
    pub parent: Option<Parent>,
    /// What has started it, if a schedule has.
    pub ticked: Option<Ticked>,
    /// What has started it, if an event has.
    pub triggered: Option<Triggered>,
    /// The address that is called when it ends, if somebody has named one.
    pub callback: Option<String>,
    /// The span that it happens within, if whoever has started it has named one.
    pub trace: Option<TraceParent>,
    /// Which part of it has a span of its own in a trace; absent in the first.
    pub chapter: Option<Chapter>,
    /// The limits that it is under, if its workflow has any.
    pub lane: Option<Box<InLane>>,
    /// What it knows of its starts, if others may become part of it.
    pub gathering: Option<Box<Gathering>>,
    /// How many bytes its input has: they are in the same row.
    pub input_bytes: u32,
    /// How its program is called.
    pub dispatch: Dispatch,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// When it is failed if it has not ended.
    pub deadline: Option<Timestamp>,
    /// How long it is kept after its end; for ever, if that is not said.
    pub retention_ms: Option<u64>,
    /// Whether it is being deleted: it is gone for everybody already.
    pub deleting: bool,
    /// Whether nothing is left of it but its row.
    pub emptied: bool,
    /// Its idempotency key.
    pub key: Option<String>,
    /// The patches that its code applies.
    pub patches: Vec<String>,
    /// Parts of its journal that do not count any more, in order and apart from each other.
    pub cuts: Vec<Cut>,
    /// Its present life, unless it is the first.
    pub life: Option<Life>,
    /// Up to where earlier lives have left events behind that do not count and are still to be deleted.
    pub remains: Option<Seq>,
    /// The id of the key that its wait tokens are made with, if it has made any.
    pub token_key: Option<String>,
    /// If its workflow failed: the first position from which on steps failed and nothing was begun.
    pub failed_since: Option<Seq>,
    /// How far it has come, as its program says.
    pub progress: Option<Progress>,
    /// When its status and its progress last changed.
    pub stamps: Stamps,
    /// What people call it by.
    pub tags: Vec<String>,
    /// What it has said that it may be found by.
    pub attributes: BTreeMap<String, String>,
    /// Who has started it; nobody in particular, if that is not said.
    pub started_by: Option<String>,
    /// What people have done to it, the latest last.
    pub acts: Vec<Act>,
    /// What it has cost.
    pub spent: Spent,
    /// The latest attempt of a step that failed.
    pub last_error: Option<LastError>,
    /// What went wrong since it last made progress.
    pub trouble: Trouble,
    /// Whether it was paused while its program was at work, which may still say what it has done.
    pub draining: bool,
    /// Where it stands.
    pub phase: Phase,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// An activation is due.
    Pending {
        /// No earlier than this.
        not_before: Timestamp,
    },
    /// The program is at work, or was when the cell last heard of it.
    Running {
        /// Since when.
        since: Timestamp,
        /// How the program reaches the cell.
        session: Transport,
        /// Whether no other activation was under way beside it.
        alone: bool,
        /// With a token: until when the cell waits to hear of it. Only in memory: a cell that comes back waits
        /// anew. None with a capability: there the cell sees the call end.
        lease: Option<Timestamp>,
    },
    /// Nothing to do until something in [`Run::open`] happens.
    Suspended,
    /// Stopped, until a person lets it go on.
    Paused {
        /// Why.
        why: PauseWhy,
    },
    /// Over.
    Ended {
        /// In which way.
        how: End,
        /// When.
        at: Timestamp,
    },
}

/// Why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PauseWhy {
    /// Somebody asked for it. What its program is doing at that moment may still be recorded.
    #[serde(rename = "request")]
    Request,
    /// Its program cannot go on.
    #[serde(rename = "problem")]
    Problem(Problem),
}

/// The way in which a run ended. The result itself is in the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It returned.
    #[serde(rename = "completed")]
    Completed,
    /// It failed.
    #[serde(rename = "failed")]
    Failed,
    /// It was cancelled.
    #[serde(rename = "cancelled")]
    Cancelled,
}

/// How an activated program reaches its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// By a capability that came with the call, and that dies with the cell's instance.
    #[serde(rename = "capability")]
    Capability,
    /// By an address and a token, which outlive the cell's instance.
    #[serde(rename = "token")]
    Token,
}

/// What happens to a run.
#[derive(Clone, Debug)]
pub enum Input {
    /// The window has a slot for it.
    Activate(Slot),
    /// Its program reports.
    Commit {
        /// What it reports.
        commit: Commit,
        /// A hash of the commit as it came in.
        hash: u64,
        /// Where the children go that it invokes.
        homes: Vec<Place>,
    },
    /// A child that it does not wait for is started.
    ChildStarted {
        /// The invocation.
        op: Op,
        /// Where that is in its journal.
        invoked: Seq,
        /// The child.
        run: RunId,
        /// Whether nobody hears of its end.
        abandoned: bool,
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// A child has ended, or could not be started.
    ChildFinished {
        /// The invocation.
        op: Op,
        /// Where that is in its journal.
        invoked: Seq,
        /// The child, if there is one.
        run: Option<RunId>,
        /// What it gave.
        outcome: Outcome,
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// Somebody sends it a signal.
    Signal {
        /// What is sent.
        signal: Signal,
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// Somebody wants it to end.
    Cancel,
    /// Somebody wants it to stop for a while.
    Pause,
    /// Somebody wants it to go on.
    Resume {
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// Somebody wants it to go back and try again from there.
    Restart {
        /// The parts of its journal that shall not count any more.
        cuts: Vec<Cut>,
        /// The signals in them: they are received again.
        signals: Vec<Signal>,
        /// What the answer to a token was known by that is not among them: somebody else may answer.
        dropped: Option<String>,
        /// Whether what it has said of its progress still holds.
        keeps_progress: bool,
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// A time has come.
    Wake {
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// Its lane has let it in.
    LetIn {
        /// Whether it could be activated at once.
        slot: Option<Slot>,
    },
    /// Its lane has put it in line.
    InLine,
    /// A step's lane has let it in.
    StepLetIn {
        /// By this ticket.
        ticket: u32,
        /// Whether the run could be activated at once.
        slot: Option<Slot>,
    },
    /// A step's lane has put it in line, or has no room for it.
    StepPutOff {
        /// By this ticket.
        ticket: u32,
        /// When it is asked again.
        until: Timestamp,
    },
    /// Another start becomes part of it, or was skipped for it.
    Join {
        /// What of it changes by that.
        joined: Box<Joined>,
        /// A slot, if one is free.
        slot: Option<Slot>,
    },
    /// The call that activated it is over.
    ActivationEnded {
        /// Which activation.
        epoch: Epoch,
        /// How it ended.
        end: CallEnd,
    },
    /// The cell came back and has no call for this running run.
    Reload,
    /// It has been kept for long enough, and cannot be deleted all at once.
    Expire,
    /// All of it is deleted that can be by now.
    Empty,
    /// Its input or its journal cannot be read.
    Unreadable,
    /// Whoever holds the call of an activation is alive.
    Heard {
        /// Which activation.
        epoch: Epoch,
    },
}

/// A place in the window of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// How the program will reach the cell.
    pub session: Transport,
    /// Whether nothing else is under way.
    pub alone: bool,
}

/// How the call of a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned.
    Returned,
    /// It threw: the program's own fault.
    Threw(String),
    /// It could not be reached, or the connection broke: nobody's fault.
    Lost(String),
    /// What it ran in died while it ran: its own fault, a neighbour's, or nobody's.
    Died(String),
    /// The storage did not take what it reported: whatever became of the call after that is not its fault.
    Unstored,
    /// Nothing was heard of it for too long, and its cell gave up on it: it hangs, and counts as its own fault.
    Silent,
    /// It takes no calls from this deployment, and has done nothing: the deployment's fault, not the run's.
    Refused(Problem),
}

/// What the host has to do once the entries are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call the program.
    Activate {
        /// As this activation.
        epoch: Epoch,
    },
    /// Give it a slot when there is one.
    Enqueue,
    /// Tell a program that listens that there is news.
    TellProgram,
    /// Tell whoever waits for the end.
    TellEnd,
}

/// What a run's program sends to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outgoing {
    /// What it invokes, by its position in the journal.
    pub invoked: Vec<(Seq, Box<Invocation>)>,
    /// The events that it emits.
    pub emitted: Vec<NewEvent>,
    /// The jobs that it sends, by their positions in the journal.
    pub jobs: Vec<(Seq, Box<SentJob>)>,
}

impl Outgoing {
    /// Whether there is nothing of it.
    pub fn is_empty(&self) -> bool {
        self.invoked.is_empty() && self.emitted.is_empty() && self.jobs.is_empty()
    }
}

/// What the machine decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// To be stored in one transaction, then applied.
    pub entries: Vec<Entry>,
    /// To be performed after that.
    pub effects: Vec<Effect>,
    /// What goes out: its cell writes it to where it goes, in the same transaction.
    pub outgoing: Outgoing,
    /// What the caller is told.
    pub reply: Reply,
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    #[default]
    Done,
    /// To a commit: go on; here is what happened after its base.
    Go,
    /// To a commit: there is nothing left to do.
    Stop,
    /// It had been done before; nothing changed.
    Unchanged,
}

impl Run {
    /// Where it stands, in the word that people see.
    pub fn status(&self) -> Status {
        if self.quarantined {
            return Status::Paused;
        }
        match &self.phase {
            Phase::Pending { .. } => Status::Pending,
            Phase::Running { .. } => Status::Running,
            Phase::Suspended
                if self
                    .open
                    .iter()
                    .any(|open| open.signal.is_some() || open.child.is_some() || open.visit.is_some()) =>
            {
                Status::Waiting
            }
            Phase::Suspended => Status::Sleeping,
            Phase::Paused { .. } => Status::Paused,
            Phase::Ended { how: End::Completed, .. } => Status::Completed,
            Phase::Ended { how: End::Failed, .. } => Status::Failed,
            Phase::Ended { how: End::Cancelled, .. } => Status::Cancelled,
        }
    }

    /// Whether its present activation has reported anything yet.
    pub fn has_reported(&self) -> bool {
        self.mark.is_some_and(|mark| mark.epoch == self.epoch)
    }

    /// Until when it waits to begin for the first time, if it does.
    pub fn begins_at(&self) -> Option<Timestamp> {
        let waits = matches!(self.phase, Phase::Pending { not_before } if Some(not_before) == self.starts_at);
        self.starts_at.filter(|_| waits && self.epoch == Epoch(0))
    }

    /// When its cell must look at it again even if nothing happens. For a run at work that is a time in
    /// the past: a cell that comes back finds it at once.
    pub fn wake_at(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Pending { not_before } => Some(*not_before),
            Phase::Running { since, .. } => Some(*since),
            Phase::Suspended => self.next_due(),
            Phase::Paused { .. } => None,
            Phase::Ended { .. } => self.deleted_at(),
        }
    }

    /// The earliest time at which something happens to it by itself. What an earlier activation waited for does not
    /// happen to a program that has not reported yet: its code may have gone another way, and not know of it.
    pub fn next_due(&self) -> Option<Timestamp> {
        let is_unheard = matches!(self.phase, Phase::Running { .. }) && !self.has_reported();
        let open = if is_unheard { None } else { self.next_open() };
        [open, self.deadline].into_iter().flatten().min()
    }

    /// Whether it does nothing but wait, and for a signal of this name.
    pub fn waits_for(&self, signal: &str) -> bool {
        matches!(self.phase, Phase::Suspended)
            && self.open.iter().any(|open| open.signal.as_deref() == Some(signal))
    }

    /// Whether this activation may still write.
    pub fn is_held_by(&self, epoch: Epoch) -> bool {
        matches!(self.phase, Phase::Running { .. }) && self.epoch == epoch
    }

    /// Whether somebody else than its cell holds the call of its program.
    pub fn is_leased(&self) -> bool {
        matches!(self.phase, Phase::Running { session: Transport::Token, .. })
    }

    /// Whether this activation was at work when the run was paused, and may still end what it does.
    pub(crate) fn is_drained_by(&self, epoch: Epoch) -> bool {
        self.draining && self.epoch == epoch
    }

    /// Refuses an activation that may no longer report: a newer one replaced it, or the run has ended. The activation
    /// at work when a run was paused may finish what it does.
    pub(crate) fn check_reporter(&self, epoch: Epoch) -> Result<(), Rejection> {
        if self.is_held_by(epoch) || self.is_drained_by(epoch) { Ok(()) } else { Err(self.stale(epoch)) }
    }

    /// Whether it should be activated with nothing else under way.
    pub fn wants_to_be_alone(&self) -> bool {
        self.current_trouble().suspicion >= SUSPICION_ALONE
    }

    /// Whether its program could not be reached of late.
    pub fn has_losses(&self) -> bool {
        self.current_trouble().losses > 0
    }

    /// The position up to which the program itself has written.
    fn written_through(&self) -> Seq {
        self.mark.map_or(Seq(0), |mark| mark.through)
    }

    /// Its troubles, unless the program has written something since they were counted.
    pub(crate) fn current_trouble(&self) -> Trouble {
        let through = self.written_through();
        if self.trouble.since == through {
            self.trouble
        } else {
            Trouble { since: through, ..Trouble::default() }
        }
    }
}
