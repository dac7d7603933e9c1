//! The journal: what happened to a run, in the one order that every replay repeats.
//!
//! The text of an [`Event`] is what a cell stores and what a program reads; the cell passes it on without
//! looking into it. The golden files under `tests/golden` hold every form that was ever written.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::Error as _};

use crate::{Code, OnClose, Payload, Place, RunId, Seq, Timestamp, text};

/// What kind of thing a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// A step: the user's code, whose result is recorded.
    Step,
    /// A sleep.
    Sleep,
    /// A wait for a signal.
    Wait,
    /// A run that this one invokes.
    Child,
}

impl OpKind {
    /// Its word in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Sleep => "sleep",
            Self::Wait => "wait",
            Self::Child => "child",
        }
    }
}

/// Names one thing that a program does: its kind, its name, and which occurrence of that name it is.
///
/// Written `step:0:charge`: the name comes last, so it may hold any character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// Step, sleep, wait or child.
    pub kind: OpKind,
    /// The name that the program gave.
    pub name: String,
    /// How often this kind and name came before in this run, counted from 0.
    pub occurrence: u32,
}

impl Op {
    /// The longest name of a step, sleep or wait, in bytes.
    pub const NAME_LENGTH_MAX: usize = 256;
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.kind.as_str(), self.occurrence, self.name)
    }
}

/// A text that names no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an operation: expected kind:occurrence:name")]
pub struct NotAnOp;

impl FromStr for Op {
    type Err = NotAnOp;

    fn from_str(text: &str) -> Result<Self, NotAnOp> {
        let mut parts = text.splitn(3, ':');
        let (Some(kind), Some(occurrence), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NotAnOp);
        };
        let kind = match kind {
            "step" => OpKind::Step,
            "sleep" => OpKind::Sleep,
            "wait" => OpKind::Wait,
            "child" => OpKind::Child,
            _ => return Err(NotAnOp),
        };
        let occurrence = occurrence.parse().map_err(|_| NotAnOp)?;
        Ok(Self { kind, name: name.to_owned(), occurrence })
    }
}

impl Serialize for Op {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Why something failed, for a person.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// Whether the program ruled out a retry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// Which of Stepwell's own problems it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
}

impl Failure {
    /// The most of a message that is kept, in bytes.
    pub const MESSAGE_LENGTH_MAX: usize = 4096;

    /// A failure that may be tried again; a long message is cut.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), terminal: false, code: None }.cut()
    }

    /// The same with as much of its message as is kept: whoever sends one may send any.
    #[must_use]
    pub fn cut(mut self) -> Self {
        text::cut(&mut self.message, Self::MESSAGE_LENGTH_MAX);
        self
    }

    /// A failure that must not be tried again.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self { terminal: true, ..Self::new(message) }
    }

    /// A failure that is one of Stepwell's own problems, and must not be tried again.
    pub fn coded(code: Code, message: impl Into<String>) -> Self {
        Self { code: Some(code), ..Self::terminal(message) }
    }
}

/// How something ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It returned a value.
    #[serde(rename = "ok")]
    Ok(Payload),
    /// It failed.
    #[serde(rename = "err")]
    Err(Failure),
}

/// Something that happened to a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A step ended, after this many attempts.
    #[serde(rename = "step_finished")]
    StepFinished {
        /// The step.
        op: Op,
        /// The attempt that ended it, from 1.
        attempt: u32,
        /// Its result.
        outcome: Outcome,
        /// How long that attempt took, by the program's clock. A Worker's clock moves on I/O only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took_ms: Option<u64>,
    },
    /// An attempt of a step failed; another follows.
    #[serde(rename = "step_retrying")]
    StepRetrying {
        /// The step.
        op: Op,
        /// The attempt that failed, from 1.
        attempt: u32,
        /// Why.
        failure: Failure,
        /// When the next attempt may begin.
        retry_at: Timestamp,
        /// How long that attempt took, by the program's clock. A Worker's clock moves on I/O only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took_ms: Option<u64>,
    },
    /// An at-most-once step is about to run.
    #[serde(rename = "step_begun")]
    StepBegun {
        /// The step.
        op: Op,
    },
    /// The step's lane has let it in: its next attempt may begin.
    #[serde(rename = "step_let_in")]
    StepLetIn {
        /// The step.
        op: Op,
        /// The lane.
        lane: String,
        /// By which of the tickets that the run's steps have had.
        ticket: u32,
        /// When it began to wait for that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// A sleep ended, or a wait timed out.
    #[serde(rename = "timer_fired")]
    TimerFired {
        /// The sleep or wait.
        op: Op,
        /// When the engine first heard of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// The run received a signal.
    #[serde(rename = "signal_received")]
    SignalReceived {
        /// The signal's name.
        name: String,
        /// The sender's id for it; the same id again has no effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Its payload.
        payload: Payload,
        /// Who sent it; absent for the deployment's own key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// When the run began to wait for it; absent if it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// Which wait with this name it is for, from 0, if it came by a token; absent if the first that waits gets it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u32>,
    },
    /// The run has invoked a child.
    #[serde(rename = "child_invoked")]
    ChildInvoked {
        /// The invocation.
        op: Op,
        /// The child's workflow.
        workflow: String,
        /// The cell that gets the child.
        to: Place,
        /// Whether the run continues as soon as the child has started.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        detached: bool,
        /// What happens to the child when the run no longer waits for it.
        #[serde(default, skip_serializing_if = "OnClose::is_cancel")]
        on_close: OnClose,
    },
    /// A child was started that the run does not wait for.
    #[serde(rename = "child_started")]
    ChildStarted {
        /// The invocation.
        op: Op,
        /// Where that is in the journal.
        invoked: Seq,
        /// The child.
        run: RunId,
        /// Whether its end is not reported.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandoned: bool,
    },
    /// A child has ended, could not be started, or the invocation timed out.
    #[serde(rename = "child_finished")]
    ChildFinished {
        /// The invocation.
        op: Op,
        /// Where that is in the journal.
        invoked: Seq,
        /// The child, if there is one and it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// Its result.
        outcome: Outcome,
    },
}

impl Event {
    /// Leaves its payload out, and gives how many bytes that has.
    pub fn leave_out(&mut self) -> Option<usize> {
        let payload = match self {
            Self::StepFinished { outcome: Outcome::Ok(payload), .. }
            | Self::ChildFinished { outcome: Outcome::Ok(payload), .. }
            | Self::SignalReceived { payload, .. } => payload,
            Self::StepFinished { .. }
            | Self::ChildFinished { .. }
            | Self::StepRetrying { .. }
            | Self::StepBegun { .. }
            | Self::StepLetIn { .. }
            | Self::TimerFired { .. }
            | Self::ChildInvoked { .. }
            | Self::ChildStarted { .. } => return None,
        };
        Some(std::mem::take(payload).size())
    }
}

/// An event at its place in the journal.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its position.
    pub seq: Seq,
    /// When the engine recorded it.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}
