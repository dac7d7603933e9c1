//! What happens to a run in a test, and how it ends.

use stepwell_core::run::{Input, OpenOp, Signal};
use stepwell_protocol::{
    Failure, Op, Outcome, Payload, Problem, RunId, Seq, Timestamp,
    signature::{Key, Purpose},
    topic::NewEvent,
    wait_token::Issuer,
};

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// It returned this JSON.
    Completed(String),
    /// It failed.
    Failed(Failure),
    /// It cannot go on.
    Paused(Problem),
    /// It was paused on request.
    Halted,
    /// It was cancelled.
    Cancelled,
    /// It waits for these signals, and none will come.
    Waiting(Vec<String>),
    /// It waits for a child that does not end, for this reason.
    Stuck(String),
}

impl Ended {
    /// In words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Completed(text) => format!("it returned {text}"),
            Self::Failed(failure) => format!("it failed: {}", failure.message),
            Self::Paused(problem) => format!("it was paused: {}", problem.detail),
            Self::Halted => "it is paused, and nobody resumes it".into(),
            Self::Cancelled => "it was cancelled".into(),
            Self::Waiting(signals) => {
                format!("it waits for a signal that the test does not send: '{}'", signals.join("', '"))
            }
            Self::Stuck(why) => why.clone(),
        }
    }
}

/// When the cell dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Never.
    Never,
    /// After it has recorded this commit, before it answers.
    After(usize),
    /// Before it has recorded this commit.
    Before(usize),
    /// After each commit that left something in the journal.
    AfterEachRecord,
}

/// What somebody does to a run.
#[derive(Clone)]
pub enum Outside {
    /// Sends a signal.
    Signal(String, Payload),
    /// Completes a token: the wait of this name and occurrence.
    Token(String, u32, Payload),
    /// Sends an event, which it may wait for.
    Event(Box<NewEvent>),
    /// Cancels it.
    Cancel,
    /// Pauses it.
    Pause,
    /// Lets it go on.
    Resume,
    /// A child that it does not wait for is started.
    ChildStarted {
        /// The invocation.
        op: Op,
        /// Where that is in the journal.
        invoked: Seq,
        /// The child.
        run: RunId,
        /// Whether nobody hears of its end.
        abandoned: bool,
    },
    /// A child has ended.
    ChildFinished {
        /// The invocation.
        op: Op,
        /// Where that is in the journal.
        invoked: Seq,
        /// The child.
        run: RunId,
        /// What it gave.
        outcome: Outcome,
    },
}

impl Outside {
    /// Whether it is the answer to a token that has expired: a cell refuses that.
    pub(super) fn is_late(&self, open: &[OpenOp], now: Timestamp) -> bool {
        let Self::Token(name, occurrence, _) = self else { return false };
        let is_it = |open: &&OpenOp| open.signal.as_ref() == Some(name) && open.op.occurrence == *occurrence;
        let asked = open.iter().find(is_it).and_then(|open| open.asked.as_ref());
        asked.is_some_and(|asked| asked.expires_at <= now)
    }

    /// What happens to the run.
    pub(super) fn into_input(self) -> Input {
        match self {
            Self::Signal(name, payload) => Input::Signal { signal: Signal::new(name, payload), slot: None },
            Self::Token(name, occurrence, payload) => {
                let signal = Signal { to: Some(occurrence), ..Signal::new(name, payload) };
                Input::Signal { signal, slot: None }
            }
            Self::Event(_) => unreachable!("an event is no input of a run that does not wait for it"),
            Self::Cancel => Input::Cancel,
            Self::Pause => Input::Pause,
            Self::Resume => Input::Resume { slot: None },
            Self::ChildStarted { op, invoked, run, abandoned } => {
                Input::ChildStarted { op, invoked, run, abandoned, slot: None }
            }
            Self::ChildFinished { op, invoked, run, outcome } => {
                Input::ChildFinished { op, invoked, run: Some(run), outcome, slot: None }
            }
        }
    }
}

/// A signal that is sent as soon as somebody waits for it, or a token that is completed then.
#[derive(Clone)]
pub(super) struct Awaited {
    pub name: String,
    /// Which wait of this name it is for, if it is a token.
    pub occurrence: Option<u32>,
    pub payload: Payload,
}

impl Awaited {
    /// Whether it is for this wait.
    pub fn is_for(&self, open: &OpenOp) -> bool {
        let is_named = open.signal.as_deref() == Some(self.name.as_str());
        is_named && self.occurrence.is_none_or(|occurrence| occurrence == open.op.occurrence)
    }
}

impl From<Awaited> for Outside {
    fn from(Awaited { name, occurrence, payload }: Awaited) -> Self {
        match occurrence {
            Some(occurrence) => Self::Token(name, occurrence, payload),
            None => Self::Signal(name, payload),
        }
    }
}

/// What makes the tokens of a run in tests. Nobody answers at its address.
pub(super) fn issuer(run: &RunId) -> Issuer {
    let key = Key::derive("a secret that only tests have", Purpose::Token);
    Issuer::of(&key, "https://stepwell.test".into(), "default", run)
}
