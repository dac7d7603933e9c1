//! What went wrong, in a form that both people and programs can use: `application/problem+json`.

use serde::{Deserialize, Serialize};

/// Why a request was refused or a run stopped. The text of a code never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request has no valid key.
    Unauthorized,
    /// No such route.
    RouteNotFound,
    /// The route exists, but not with this method.
    MethodNotAllowed,
    /// No such run.
    RunNotFound,
    /// The program has no workflow of this name.
    WorkflowNotFound,
    /// The request cannot be understood.
    InvalidRequest,
    /// The body, a payload or a header is larger than allowed.
    PayloadTooLarge,
    /// The idempotency key was used before with another request.
    IdempotencyKeyReused,
    /// The run has ended; nothing can be done to it.
    RunEnded,
    /// This activation was superseded by a later one.
    StaleEpoch,
    /// The commit does not continue the journal as it is.
    BaseMismatch,
    /// The program stopped again and again without getting anywhere.
    ProgramDied,
    /// The run took longer than it may.
    RunTimedOut,
    /// A step that must not run twice was cut short.
    StepInterrupted,
    /// An attempt of a step took longer than it may.
    StepTimedOut,
    /// What was asked for does not fit where the run stands.
    WrongStatus,
    /// The run has no such step.
    StepNotFound,
    /// The program's code no longer matches the run's journal.
    Diverged,
    /// The workflow awaits something that is neither a step, a sleep nor a wait.
    NotDurable,
    /// The cell has no room for new runs.
    CellFull,
    /// The code of a workflow or of a step panicked.
    Panicked,
    /// Something is wrong in Stepwell itself.
    Internal,
}

impl Code {
    /// Every code there is.
    pub const ALL: [Self; 22] = [
        Self::Unauthorized,
        Self::RouteNotFound,
        Self::MethodNotAllowed,
        Self::RunNotFound,
        Self::WorkflowNotFound,
        Self::InvalidRequest,
        Self::PayloadTooLarge,
        Self::IdempotencyKeyReused,
        Self::RunEnded,
        Self::StaleEpoch,
        Self::BaseMismatch,
        Self::ProgramDied,
        Self::RunTimedOut,
        Self::StepInterrupted,
        Self::StepTimedOut,
        Self::WrongStatus,
        Self::StepNotFound,
        Self::Diverged,
        Self::NotDurable,
        Self::CellFull,
        Self::Panicked,
        Self::Internal,
    ];

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::RouteNotFound | Self::RunNotFound | Self::WorkflowNotFound | Self::StepNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RunEnded | Self::StaleEpoch | Self::BaseMismatch | Self::WrongStatus => 409,
            Self::PayloadTooLarge => 413,
            Self::IdempotencyKeyReused => 422,
            Self::ProgramDied
            | Self::RunTimedOut
            | Self::StepInterrupted
            | Self::StepTimedOut
            | Self::Diverged
            | Self::NotDurable
            | Self::Panicked
            | Self::Internal => 500,
            // Not 503: it does not pass by itself.
            Self::CellFull => 507,
        }
    }

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Unauthorized => "A valid key is needed",
            Self::RouteNotFound => "No such route",
            Self::MethodNotAllowed => "This route does not take that method",
            Self::RunNotFound => "No such run",
            Self::WorkflowNotFound => "No such workflow",
            Self::InvalidRequest => "The request cannot be understood",
            Self::PayloadTooLarge => "Too large",
            Self::IdempotencyKeyReused => "The idempotency key belongs to another request",
            Self::RunEnded => "The run has ended",
            Self::StaleEpoch => "This activation was superseded",
            Self::BaseMismatch => "The commit does not continue the journal",
            Self::ProgramDied => "The program kept stopping without progress",
            Self::RunTimedOut => "The run took too long",
            Self::StepInterrupted => "A step that must not run twice was cut short",
            Self::StepTimedOut => "The step took too long",
            Self::WrongStatus => "Not in this status",
            Self::StepNotFound => "No such step",
            Self::Diverged => "The code no longer matches the run's journal",
            Self::NotDurable => "The workflow awaits something that is not durable",
            Self::CellFull => "The cell is nearly full",
            Self::Panicked => "The code panicked",
            Self::Internal => "Something is wrong in Stepwell",
        }
    }
}

/// A problem, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{title}: {detail}")]
pub struct Problem {
    /// Which problem.
    pub code: Code,
    /// Its name.
    pub title: String,
    /// What happened this time, and what to do next.
    pub detail: String,
    /// The HTTP status.
    pub status: u16,
}

impl Problem {
    /// A problem with its own words.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, title: code.title().into(), detail: detail.into(), status: code.status() }
    }
}
