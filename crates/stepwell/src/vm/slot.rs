//! What a workflow waits for, and how far each of it has come.

use std::{sync::Arc, task::Waker};

use stepwell_protocol::{
    Awaits, Invocation, Outcome, Payload, RunId, Seq, Shape, Timestamp, lane::StepLane, topic::EventWait,
    wait_token::Asked,
};

use super::{bell::CodeBell, line::Pass};

/// Something that was polled and is neither consumed nor dropped.
pub(super) struct Slot {
    pub order: u64,
    pub what: What,
    pub waker: Option<Waker>,
}

pub(super) enum What {
    /// `pass` is for the others of an [`crate::ops::Each`], if it is one of them; `visit` for its lane, if it has one.
    Step {
        stage: Stage,
        once: Once,
        failed_attempts: u32,
        retry_at: Timestamp,
        pass: Option<Pass>,
        visit: Option<Box<Visit>>,
    },
    Sleep {
        length: Length,
        over: bool,
    },
    Wait {
        timeout_ms: Option<u64>,
        shape: Shape,
        asked: Option<Box<Asked>>,
        event: Option<Box<EventWait>>,
        answer: Answer,
    },
    Child(Child),
}

/// A step's lane, and whether it has let in the next attempt.
pub(super) struct Visit {
    pub lane: StepLane,
    pub is_in: bool,
    /// Whether it was woken to show whether anybody awaits it.
    pub is_woken: bool,
    /// Whether somebody does, since the whole journal was delivered. Only then the engine is asked for a place.
    pub is_awaited: bool,
}

/// A child, from what is invoked to what became of it.
pub(super) struct Child {
    pub workflow: String,
    pub awaits: Awaits,
    pub timeout_ms: Option<u64>,
    pub stage: ChildStage,
}

pub(super) enum ChildStage {
    /// It may be invoked when the journal was delivered.
    Wanted(Box<Invocation>),
    /// The engine was told, or is about to be, and has not answered.
    Asked,
    /// The journal has the invocation, at this position.
    Invoked(Seq),
    /// What the workflow waits for has come.
    Concluded(Concluded),
    /// It was given to whoever awaited it; the future is still around.
    Taken,
}

/// What became of a child, as far as the workflow waits for it.
pub(crate) struct Concluded {
    /// The child, if there is one and it is known.
    pub run: Option<RunId>,
    pub outcome: Outcome,
}

/// How far a step has come that must not run twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Once {
    /// It may run again.
    No,
    /// It must not; the engine does not know yet that it is about to.
    Wanted,
    /// The engine was told and has not answered.
    Asked,
    /// The engine knows: this activation may run it.
    Here,
    /// The engine knows from an earlier activation, which has left no result.
    Before,
}

impl Once {
    /// Whether the calls that such a step needs can be made. One that the engine knows of must end here.
    pub fn is_covered(self, one: bool, two: bool) -> bool {
        match self {
            Self::No => one,
            Self::Wanted => two,
            Self::Asked | Self::Here | Self::Before => true,
        }
    }
}

/// How long a sleep is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// So many milliseconds from when the engine hears of it.
    Ms(u64),
    /// Until then.
    Until(Timestamp),
}

pub(super) enum Stage {
    /// Its code may run when the journal was delivered and its time has come.
    Idle,
    /// Its code is under way since this time of the engine's clock.
    Running(Arc<CodeBell>, Timestamp),
    /// Its code has ended; the engine has not recorded that yet.
    Reported,
    /// Recorded.
    Finished(Outcome),
}

/// A signal that nobody has taken yet.
pub(super) struct Signal {
    /// Where the journal has it.
    pub seq: Seq,
    /// The bytes of its payload.
    pub size: usize,
    /// Absent if there was no room for it: it is read again for whoever takes the signal.
    pub payload: Option<Payload>,
    /// Whether it came by a token, and is for one wait only.
    pub is_addressed: bool,
}

pub(super) enum Answer {
    None,
    /// It came before anyone waited, and is large: the payload follows when the workflow has been polled.
    Coming(Signal),
    /// One whose payload is here.
    Signal(Signal),
    TimedOut,
    /// It was given to whoever awaited it; the future is still around.
    Taken,
}

impl Slot {
    pub fn runs(&self) -> bool {
        matches!(self.what, What::Step { stage: Stage::Running(..), .. })
    }

    /// Whether it is a step that its lane has let in, and whose attempt is not on record.
    pub fn holds_place(&self) -> bool {
        match &self.what {
            What::Step { stage: Stage::Idle | Stage::Running(..) | Stage::Reported, visit, .. } => {
                visit.as_ref().is_some_and(|visit| visit.is_in)
            }
            What::Step { stage: Stage::Finished(_), .. }
            | What::Sleep { .. }
            | What::Wait { .. }
            | What::Child(_) => false,
        }
    }

    pub fn waits(&self) -> bool {
        match &self.what {
            // Whoever is in a line is woken by the one before.
            What::Step { stage, pass, .. } => {
                matches!(stage, Stage::Idle) && !pass.as_ref().is_some_and(Pass::is_in_line)
            }
            What::Sleep { over, .. } => !over,
            What::Wait { answer, .. } => matches!(answer, Answer::None),
            What::Child(child) => matches!(child.stage, ChildStage::Wanted(_) | ChildStage::Invoked(_)),
        }
    }
}

/// What a step's future may do.
pub(crate) enum Turn {
    /// Run the code, as this attempt.
    Attempt(u32),
    /// Give this result.
    Finished(Outcome),
}
