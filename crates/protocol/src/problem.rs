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
    /// The app has no workflow with this name.
    WorkflowNotFound,
    /// The request is invalid.
    InvalidRequest,
    /// The body, a payload or a header is larger than allowed.
    PayloadTooLarge,
    /// The idempotency key was used for a different request.
    IdempotencyKeyReused,
    /// The run has ended and cannot be changed.
    RunEnded,
    /// This activation was superseded by a later one.
    StaleEpoch,
    /// The commit does not continue the journal.
    BaseMismatch,
    /// The program kept stopping without progress.
    ProgramDied,
    /// The run took longer than its timeout.
    RunTimedOut,
    /// An at-most-once step was interrupted.
    StepInterrupted,
    /// An attempt of a step took longer than its timeout.
    StepTimedOut,
    /// A workflow used an invalid duration.
    InvalidDuration,
    /// The signal's payload does not fit the type that the run waits for.
    SignalMismatch,
    /// The run's status does not allow the operation.
    WrongStatus,
    /// The run has no such step.
    StepNotFound,
    /// The run has no such signal.
    SignalNotFound,
    /// The program's code no longer matches the run's journal.
    Diverged,
    /// The workflow awaits something that is not a step, sleep, wait or invocation.
    NotDurable,
    /// The cell is nearly full.
    CellFull,
    /// The code of a workflow or of a step panicked.
    Panicked,
    /// The app did not answer.
    AppUnreachable,
    /// The app has no key to verify calls.
    AppKeyMissing,
    /// The app could not verify a call from the engine.
    ActivationUnverified,
    /// The request requires an idempotency key.
    IdempotencyKeyMissing,
    /// The first request with this idempotency key is still being answered.
    IdempotencyKeyInFlight,
    /// The key does not allow this.
    Forbidden,
    /// A limit of the namespace was reached.
    LimitReached,
    /// No such key.
    KeyNotFound,
    /// No such namespace.
    NamespaceNotFound,
    /// The namespace already exists.
    NamespaceExists,
    /// The namespace is being deleted.
    NamespaceDeleting,
    /// The maximum number of items of this kind exists.
    TooMany,
    /// The deployment's settings are invalid, or its key is missing or too weak.
    Misconfigured,
    /// A development server received a request for a host name that is not this machine's.
    HostNotAllowed,
    /// The run has too many signals.
    TooManySignals,
    /// No such letter in the outbox.
    LetterNotFound,
    /// No such schedule.
    ScheduleNotFound,
    /// No such event.
    EventNotFound,
    /// No such trigger.
    TriggerNotFound,
    /// No such webhook or delivery.
    WebhookNotFound,
    /// The delivery is not signed by a secret of its webhook.
    WebhookRefused,
    /// The child run was cancelled.
    ChildCancelled,
    /// The child run did not end within the timeout of its invocation.
    ChildTimedOut,
    /// The run has too many open children, or is nested too deeply.
    TooManyChildren,
    /// The stored data of the run cannot be read.
    RunUnreadable,
    /// A person has paused the workflow.
    WorkflowPaused,
    /// The app's manifest is invalid.
    InvalidManifest,
    /// No such wait token, or its signature does not match.
    TokenNotFound,
    /// The wait token's time is over.
    TokenExpired,
    /// The run no longer waits for the token.
    TokenRevoked,
    /// The run does not wait for this name.
    WaitNotFound,
    /// The engine does not know its public address.
    UrlMissing,
    /// No such queue.
    QueueNotFound,
    /// The queue is draining or being deleted, and accepts no jobs.
    QueueClosed,
    /// No such job.
    JobNotFound,
    /// The namespace has no such alert.
    AlertNotFound,
    /// The workflow has a run, and this start is skipped.
    StartSkipped,
    /// The workflow's rate has no room, and this start is dropped.
    StartDropped,
    /// An internal error.
    Internal,
    /// A code of a newer release. Codes are stored with runs: one that is not known must not make a run unreadable.
    /// Nobody makes such a problem, so it has no page.
    #[serde(other)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Unknown,
}

impl Code {
    /// Every code that this release knows.
    pub const ALL: [Self; 63] = [
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
        Self::NamespaceDeleting,
        Self::TooMany,
        Self::Misconfigured,
        Self::HostNotAllowed,
        Self::TooManySignals,
        Self::LetterNotFound,
        Self::ScheduleNotFound,
        Self::EventNotFound,
        Self::TriggerNotFound,
        Self::WebhookNotFound,
        Self::WebhookRefused,
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
        Self::TokenNotFound,
        Self::TokenExpired,
        Self::TokenRevoked,
        Self::WaitNotFound,
        Self::UrlMissing,
        Self::QueueNotFound,
        Self::QueueClosed,
        Self::JobNotFound,
        Self::AlertNotFound,
        Self::StartSkipped,
        Self::StartDropped,
    ];

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::IdempotencyKeyMissing => 400,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::WebhookRefused => 403,
            Self::RouteNotFound
            | Self::RunNotFound
            | Self::WorkflowNotFound
            | Self::StepNotFound
            | Self::SignalNotFound
            | Self::KeyNotFound
            | Self::LetterNotFound
            | Self::ScheduleNotFound
            | Self::EventNotFound
            | Self::TriggerNotFound
            | Self::WebhookNotFound
            | Self::NamespaceNotFound
            | Self::QueueNotFound
            | Self::JobNotFound
            | Self::AlertNotFound
            | Self::TokenNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RunEnded
            | Self::StaleEpoch
            | Self::BaseMismatch
            | Self::WrongStatus
            | Self::IdempotencyKeyInFlight
            | Self::NamespaceExists
            | Self::NamespaceDeleting
            | Self::RunUnreadable
            | Self::WorkflowPaused
            | Self::WaitNotFound
            | Self::QueueClosed
            | Self::StartSkipped
            | Self::TooMany => 409,
            Self::TokenExpired | Self::TokenRevoked => 410,
            Self::PayloadTooLarge => 413,
            Self::HostNotAllowed => 421,
            Self::IdempotencyKeyReused | Self::SignalMismatch | Self::InvalidManifest => 422,
            Self::LimitReached | Self::TooManySignals | Self::StartDropped => 429,
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
            | Self::UrlMissing
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
            Self::NamespaceDeleting => "namespace_deleting",
            Self::TooMany => "too_many",
            Self::Misconfigured => "misconfigured",
            Self::HostNotAllowed => "host_not_allowed",
            Self::TooManySignals => "too_many_signals",
            Self::LetterNotFound => "letter_not_found",
            Self::ScheduleNotFound => "schedule_not_found",
            Self::EventNotFound => "event_not_found",
            Self::TriggerNotFound => "trigger_not_found",
            Self::WebhookNotFound => "webhook_not_found",
            Self::WebhookRefused => "webhook_refused",
            Self::ChildCancelled => "child_cancelled",
            Self::ChildTimedOut => "child_timed_out",
            Self::TooManyChildren => "too_many_children",
            Self::RunUnreadable => "run_unreadable",
            Self::WorkflowPaused => "workflow_paused",
            Self::InvalidManifest => "invalid_manifest",
            Self::TokenNotFound => "token_not_found",
            Self::TokenExpired => "token_expired",
            Self::TokenRevoked => "token_revoked",
            Self::WaitNotFound => "wait_not_found",
            Self::UrlMissing => "url_missing",
            Self::QueueNotFound => "queue_not_found",
            Self::QueueClosed => "queue_closed",
            Self::JobNotFound => "job_not_found",
            Self::AlertNotFound => "alert_not_found",
            Self::StartSkipped => "start_skipped",
            Self::StartDropped => "start_dropped",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
        }
    }

    /// The address of the page that says what it means and what to do.
    pub fn page(self) -> String {
        format!("{PAGES}/{}.md", self.as_str())
    }

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Unauthorized => "A valid API key is required",
            Self::RouteNotFound => "No such route",
            Self::MethodNotAllowed => "The method is not allowed on this route",
            Self::RunNotFound => "No such run",
            Self::WorkflowNotFound => "No such workflow",
            Self::InvalidRequest => "The request is invalid",
            Self::PayloadTooLarge => "The payload is too large",
            Self::IdempotencyKeyReused => "The idempotency key was used for a different request",
            Self::RunEnded => "The run has ended",
            Self::StaleEpoch => "The activation was superseded",
            Self::BaseMismatch => "The commit does not continue the journal",
            Self::ProgramDied => "The program kept stopping without progress",
            Self::RunTimedOut => "The run took too long",
            Self::StepInterrupted => "An at-most-once step was interrupted",
            Self::StepTimedOut => "The step took too long",
            Self::InvalidDuration => "The duration is invalid",
            Self::SignalMismatch => "The signal has the wrong payload type",
            Self::WrongStatus => "The run's status does not allow this",
            Self::StepNotFound => "No such step",
            Self::SignalNotFound => "No such signal",
            Self::Diverged => "The code no longer matches the run's journal",
            Self::NotDurable => "The workflow awaits something that is not durable",
            Self::CellFull => "The cell is nearly full",
            Self::Panicked => "The code panicked",
            Self::AppUnreachable => "The app did not answer",
            Self::AppKeyMissing => "The app has no key to verify calls",
            Self::ActivationUnverified => "The app could not verify a call from the engine",
            Self::IdempotencyKeyMissing => "An idempotency key is required",
            Self::IdempotencyKeyInFlight => "The first request with this key is still in progress",
            Self::Forbidden => "The key does not allow this",
            Self::LimitReached => "A limit of the namespace was reached",
            Self::KeyNotFound => "No such key",
            Self::NamespaceNotFound => "No such namespace",
            Self::NamespaceExists => "The namespace already exists",
            Self::NamespaceDeleting => "The namespace is being deleted",
            Self::TooMany => "Too many items of this kind",
            Self::Misconfigured => "The deployment is misconfigured",
            Self::HostNotAllowed => "The development server does not accept this host",
            Self::TooManySignals => "The run has too many signals",
            Self::LetterNotFound => "No such letter",
            Self::ScheduleNotFound => "No such schedule",
            Self::EventNotFound => "No such event",
            Self::TriggerNotFound => "No such trigger",
            Self::WebhookNotFound => "No such webhook",
            Self::WebhookRefused => "The delivery was refused",
            Self::ChildCancelled => "The child run was cancelled",
            Self::ChildTimedOut => "The child run took too long",
            Self::TooManyChildren => "The run has too many children",
            Self::RunUnreadable => "The stored run cannot be read",
            Self::WorkflowPaused => "The workflow is paused",
            Self::InvalidManifest => "The app's manifest is invalid",
            Self::TokenNotFound => "No such token",
            Self::TokenExpired => "The token has expired",
            Self::TokenRevoked => "The token is no longer valid",
            Self::WaitNotFound => "The run does not wait for this",
            Self::UrlMissing => "The engine has no public address",
            Self::QueueNotFound => "No such queue",
            Self::QueueClosed => "The queue accepts no jobs",
            Self::JobNotFound => "No such job",
            Self::AlertNotFound => "No such alert",
            Self::StartSkipped => "The workflow has a run already",
            Self::StartDropped => "The workflow starts no more runs for now",
            Self::Internal => "Internal error",
            Self::Unknown => "An unknown problem, from a newer release",
        }
    }
}

/// A limit of a namespace, by the name that its settings have.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    /// Requests.
    RequestsPerSecond,
    /// Bytes of inputs and signals.
    PayloadBytesPerSecond,
    /// Runs that have not ended.
    LiveRuns,
    /// A limit that a newer release has.
    #[serde(other)]
    Unknown,
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
    /// What happened, and what to do next.
    pub detail: String,
    /// The HTTP status.
    pub status: u16,
    /// The address of the code's page.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub page: String,
    /// The number of seconds after which to try again, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// The limit of the namespace that was reached, as its settings name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitName>,
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
            limit: None,
        }
    }

    /// The same with as much of its texts as is kept: whoever sends one may send any.
    #[must_use]
    pub fn cut(mut self) -> Self {
        for text in [&mut self.title, &mut self.detail, &mut self.page] {
            crate::text::cut(text, crate::Failure::MESSAGE_LENGTH_MAX);
        }
        self
    }

    /// The same problem, because this limit was reached.
    #[must_use]
    pub fn of_limit(self, limit: LimitName) -> Self {
        Self { limit: Some(limit), ..self }
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
