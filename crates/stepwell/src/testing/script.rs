//! What happens to a run in a test, and how it ends.

use stepwell_protocol::{Failure, Op, Outcome, Payload, Problem, RunId, Seq};

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
