//! What went wrong, in a form that both people and programs can use: `application/problem+json`.

use serde::{Deserialize, Serialize};

/// Where the pages of the codes are.
const PAGES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/errors");

/// Why a request was refused or a run stopped. The text of a code never changes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// A workflow gave a length of time that cannot be read.
    InvalidDuration,
    /// The signal's payload is not what the run waits for.
    SignalMismatch,
    /// What was asked for does not fit where the run stands.
    WrongStatus,
    /// The run has no such step.
    StepNotFound,
    /// The run has no such signal.
    SignalNotFound,
    /// The program's code no longer matches the run's journal.
    Diverged,
    /// The workflow awaits something that is neither a step, a sleep nor a wait.
    NotDurable,
    /// The cell has no room for new runs.
    CellFull,
    /// The code of a workflow or of a step panicked.
    Panicked,
    /// The app did not answer.
    AppUnreachable,
    /// The app has no key to verify its engine's calls with.
    AppKeyMissing,
    /// No cell of the deployment has signed this activation.
    ActivationUnverified,
    /// The request needs an idempotency key and has none.
    IdempotencyKeyMissing,
    /// The first request with this idempotency key is still being answered.
    IdempotencyKeyInFlight,
    /// The key does not allow this.
    Forbidden,
    /// A limit of the namespace is reached for now.
    LimitReached,
    /// No such key.
    KeyNotFound,
    /// No such namespace.
    NamespaceNotFound,
    /// There is a namespace of this name.
    NamespaceExists,
    /// There are as many of them as there may be.
    TooMany,
    /// The deployment's settings make no sense, or its key is missing or too weak.
    Misconfigured,
    /// A development server was asked by another name than this machine's own.
    HostNotAllowed,
    /// The run has as many signals as it may.
    TooManySignals,
    /// No such letter in the outbox.
    LetterNotFound,
    /// No such schedule.
    ScheduleNotFound,
    /// The child run was cancelled.
    ChildCancelled,
    /// The child run was waited for as long as it might take.
    ChildTimedOut,
    /// The run has as many children as it may, or stands below too many others.
    TooManyChildren,
    /// What is stored of the run cannot be read.
    RunUnreadable,
    /// A person has paused the workflow.
    WorkflowPaused,
    /// What the app declares has mistakes.
    InvalidManifest,
    /// Something is wrong in Stepwell itself.
    Internal,
    /// A code of a newer release. Codes are stored with runs: one that is not known must not make a run unreadable.
    /// Nobody makes such a problem, so it has no page.
    #[serde(other)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Unknown,
}

impl Code {
    /// Every code that this release knows.
    pub const ALL: [Self; 47] = [
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
        Self::InvalidDuration,
        Self::SignalMismatch,
        Self::WrongStatus,
        Self::StepNotFound,
        Self::SignalNotFound,
        Self::Diverged,
        Self::NotDurable,
        Self::CellFull,
        Self::Panicked,
        Self::Forbidden,
        Self::LimitReached,
        Self::KeyNotFound,
        Self::NamespaceNotFound,
        Self::NamespaceExists,
        Self::TooMany,
        Self::Misconfigured,
        Self::HostNotAllowed,
        Self::TooManySignals,
        Self::LetterNotFound,
        Self::ScheduleNotFound,
        Self::ChildCancelled,
        Self::ChildTimedOut,
        Self::TooManyChildren,
        Self::RunUnreadable,
        Self::Internal,
        Self::AppUnreachable,
        Self::AppKeyMissing,
        Self::ActivationUnverified,
        Self::IdempotencyKeyMissing,
        Self::IdempotencyKeyInFlight,
        Self::WorkflowPaused,
        Self::InvalidManifest,
    ];

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::IdempotencyKeyMissing => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::RouteNotFound
            | Self::RunNotFound
            | Self::WorkflowNotFound
            | Self::StepNotFound
            | Self::SignalNotFound
            | Self::KeyNotFound
            | Self::LetterNotFound
            | Self::ScheduleNotFound
            | Self::NamespaceNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RunEnded
            | Self::StaleEpoch
            | Self::BaseMismatch
            | Self::WrongStatus
            | Self::IdempotencyKeyInFlight
            | Self::NamespaceExists
            | Self::RunUnreadable
            | Self::WorkflowPaused
            | Self::TooMany => 409,
            Self::PayloadTooLarge => 413,
            Self::HostNotAllowed => 421,
            Self::IdempotencyKeyReused | Self::SignalMismatch | Self::InvalidManifest => 422,
            Self::LimitReached | Self::TooManySignals => 429,
            Self::ProgramDied
            | Self::RunTimedOut
            | Self::StepInterrupted
            | Self::StepTimedOut
            | Self::InvalidDuration
            | Self::Diverged
            | Self::NotDurable
            | Self::Panicked
            | Self::ChildCancelled
            | Self::ChildTimedOut
            | Self::TooManyChildren
            | Self::AppKeyMissing
            | Self::ActivationUnverified
            | Self::Misconfigured
            | Self::Internal
            | Self::Unknown => 500,
            Self::AppUnreachable => 502,
            // Not 503: it does not pass by itself.
            Self::CellFull => 507,
        }
    }

    /// Its text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::RouteNotFound => "route_not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RunNotFound => "run_not_found",
            Self::WorkflowNotFound => "workflow_not_found",
            Self::InvalidRequest => "invalid_request",
            Self::PayloadTooLarge => "payload_too_large",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::RunEnded => "run_ended",
            Self::StaleEpoch => "stale_epoch",
            Self::BaseMismatch => "base_mismatch",
            Self::ProgramDied => "program_died",
            Self::RunTimedOut => "run_timed_out",
            Self::StepInterrupted => "step_interrupted",
            Self::StepTimedOut => "step_timed_out",
            Self::InvalidDuration => "invalid_duration",
            Self::SignalMismatch => "signal_mismatch",
            Self::WrongStatus => "wrong_status",
            Self::StepNotFound => "step_not_found",
            Self::SignalNotFound => "signal_not_found",
            Self::Diverged => "diverged",
            Self::NotDurable => "not_durable",
            Self::CellFull => "cell_full",
            Self::Panicked => "panicked",
            Self::AppUnreachable => "app_unreachable",
            Self::AppKeyMissing => "app_key_missing",
            Self::ActivationUnverified => "activation_unverified",
            Self::IdempotencyKeyMissing => "idempotency_key_missing",
            Self::IdempotencyKeyInFlight => "idempotency_key_in_flight",
            Self::Forbidden => "forbidden",
            Self::LimitReached => "limit_reached",
            Self::KeyNotFound => "key_not_found",
            Self::NamespaceNotFound => "namespace_not_found",
            Self::NamespaceExists => "namespace_exists",
            Self::TooMany => "too_many",
            Self::Misconfigured => "misconfigured",
            Self::HostNotAllowed => "host_not_allowed",
            Self::TooManySignals => "too_many_signals",
            Self::LetterNotFound => "letter_not_found",
            Self::ScheduleNotFound => "schedule_not_found",
            Self::ChildCancelled => "child_cancelled",
            Self::ChildTimedOut => "child_timed_out",
            Self::TooManyChildren => "too_many_children",
            Self::RunUnreadable => "run_unreadable",
            Self::WorkflowPaused => "workflow_paused",
            Self::InvalidManifest => "invalid_manifest",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
        }
    }

    /// The address of the page that says what it means and what to do.
    pub fn page(self) -> String {
        format!("{PAGES}/{}.md", self.as_str())
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
            Self::InvalidDuration => "The length of time cannot be read",
            Self::SignalMismatch => "The run waits for another payload",
            Self::WrongStatus => "Not in this status",
            Self::StepNotFound => "No such step",
            Self::SignalNotFound => "No such signal",
            Self::Diverged => "The code no longer matches the run's journal",
            Self::NotDurable => "The workflow awaits something that is not durable",
            Self::CellFull => "The cell is nearly full",
            Self::Panicked => "The code panicked",
            Self::AppUnreachable => "The app did not answer",
            Self::AppKeyMissing => "The app has no key to verify calls with",
            Self::ActivationUnverified => "The app cannot verify a call of the engine",
            Self::IdempotencyKeyMissing => "An idempotency key is needed",
            Self::IdempotencyKeyInFlight => "The first request with this key is still under way",
            Self::Forbidden => "The key does not allow this",
            Self::LimitReached => "A limit of the namespace is reached",
            Self::KeyNotFound => "No such key",
            Self::NamespaceNotFound => "No such namespace",
            Self::NamespaceExists => "There is a namespace of this name",
            Self::TooMany => "There are too many",
            Self::Misconfigured => "The deployment is misconfigured",
            Self::HostNotAllowed => "This development server does not answer to that host",
            Self::TooManySignals => "The run has too many signals",
            Self::LetterNotFound => "No such letter",
            Self::ScheduleNotFound => "No such schedule",
            Self::ChildCancelled => "The child run was cancelled",
            Self::ChildTimedOut => "The child run took too long",
            Self::TooManyChildren => "There are too many child runs",
            Self::RunUnreadable => "The stored run cannot be read",
            Self::WorkflowPaused => "The workflow is paused",
            Self::InvalidManifest => "What the app declares has mistakes",
            Self::Internal => "Something is wrong in Stepwell",
            Self::Unknown => "A problem that this release does not know",
        }
    }
}

/// A problem, as a client sees it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The address of the code's page.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub page: String,
    /// After how many seconds it is worth trying again, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
}

impl Problem {
    /// A problem with its own words.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            title: code.title().into(),
            detail: detail.into(),
            status: code.status(),
            page: code.page(),
            retry_after: None,
        }
    }

    /// The same with as much of its texts as is kept: whoever sends one may send any.
    #[must_use]
    pub fn cut(mut self) -> Self {
        for text in [&mut self.title, &mut self.detail, &mut self.page] {
            crate::journal::cut(text);
        }
        self
    }

    /// The same problem, which passes after so many seconds.
    #[must_use]
    pub fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_with_the_code_of_a_newer_release_can_be_read_and_keeps_its_words() {
        let text = r#"{"code":"moon_not_full","title":"Wait","detail":"It is waning.","status":503}"#;
        let problem: Problem = serde_json::from_str(text).expect("an unknown code is no obstacle");
        assert_eq!((problem.code, problem.detail.as_str()), (Code::Unknown, "It is waning."));
        assert!(!Code::ALL.contains(&Code::Unknown));
    }
}
