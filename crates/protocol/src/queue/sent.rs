//! Jobs that runs and triggers send.

use serde::{Deserialize, Serialize};

use super::{JOB_BYTES_MAX, NewJob, check_terms, is_none, is_queue, is_zero, too_large};
use crate::{
    Code, Event, Op, Outcome, Payload, Problem,
    program::{RESERVED_PREFIX, is_reserved},
};

/// A job that a run or a trigger sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentJob {
    /// The queue.
    pub queue: String,
    /// The body.
    pub body: Payload,
    /// The type of the body, if Stepwell itself says another one than that of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// For how long no consumer gets it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// Its priority.
    #[serde(default, skip_serializing_if = "is_none")]
    pub priority: u8,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its dedupe id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_id: Option<String>,
}

impl SentJob {
    /// A job of this queue, with nothing else said.
    pub fn new(queue: String, body: Payload) -> Self {
        Self { queue, body, content_type: None, delay_ms: 0, priority: 0, group: None, dedupe_id: None }
    }

    /// Refuses one that no queue would take.
    pub fn check(&self) -> Result<(), Problem> {
        let Self { queue, body, content_type, delay_ms, priority, group, dedupe_id } = self;
        check_target(queue)?;
        if content_type.is_some() {
            return Err(Problem::new(Code::InvalidRequest, "A job of a run is JSON, and has no other type."));
        }
        if body.size() > JOB_BYTES_MAX {
            return Err(too_large(body.size()));
        }
        check_terms(*delay_ms, *priority, group.as_deref(), dedupe_id.as_deref())
    }

    /// What the journal of a run has of it: a step without a result.
    pub fn recorded(op: Op) -> Event {
        Event::StepFinished { op, attempt: 1, outcome: Outcome::Ok(Payload::null()), took_ms: None }
    }
}

/// How much is said of a name that is none.
const SHOWN_MAX: usize = 64;

/// Refuses a queue that jobs cannot be sent to.
pub fn check_target(queue: &str) -> Result<(), Problem> {
    if is_queue(queue) && !is_reserved(queue) {
        return Ok(());
    }
    // One that is too long is not said whole.
    let shown: String = queue.chars().take(SHOWN_MAX).collect();
    let detail = format!(
        "'{shown}' is no queue that jobs can be sent to: a name has letters, digits, '.', '_' and '-', and does not \
         begin with '{RESERVED_PREFIX}'."
    );
    Err(Problem::new(Code::InvalidRequest, detail))
}

impl From<SentJob> for NewJob {
    fn from(job: SentJob) -> Self {
        let SentJob { queue: _, body, content_type, delay_ms, priority, group, dedupe_id } = job;
        Self { body: Some(body), content_type, delay_ms, priority, group, dedupe_id, ..Self::default() }
    }
}
