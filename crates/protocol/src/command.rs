//! What a program reports of a run, one by one.

use serde::{Deserialize, Serialize};

use crate::{
    Event, Failure, Invocation, Op, Outcome, Payload, program::Retry, queue::SentJob, topic::NewEvent,
};

/// Something that a program did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// An at-most-once step is about to run.
    #[serde(rename = "step_begun")]
    StepBegun {
        /// The step.
        op: Op,
    },
    /// A step gave a value.
    #[serde(rename = "step_succeeded")]
    StepSucceeded {
        /// The step.
        op: Op,
        /// The attempt, from 1.
        attempt: u32,
        /// The value.
        output: Payload,
        /// How long the attempt took, by the program's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took_ms: Option<u64>,
    },
    /// An attempt of a step failed. The engine decides whether another follows.
    #[serde(rename = "step_failed")]
    StepFailed {
        /// The step.
        op: Op,
        /// The attempt, from 1.
        attempt: u32,
        /// Why.
        failure: Failure,
        /// The step's policy.
        retry: Retry,
        /// When to retry, if the error says so itself: after this long, instead of after the policy's delay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        /// How long the attempt took, by the program's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took_ms: Option<u64>,
    },
    /// The run invokes a child.
    #[serde(rename = "child_invoked")]
    ChildInvoked {
        /// The invocation.
        op: Op,
        /// What is invoked.
        invocation: Box<Invocation>,
    },
    /// The run emits an event. On record, it is a step whose result is the event's id.
    #[serde(rename = "emitted")]
    Emitted {
        /// The step.
        op: Op,
        /// The event, with an id.
        event: Box<NewEvent>,
    },
    /// The run sends a job. On record, it is a step without a result.
    #[serde(rename = "job_sent")]
    JobSent {
        /// The step.
        op: Op,
        /// The job.
        job: Box<SentJob>,
    },
}

impl Command {
    /// What it became in the journal, when the engine says that it was recorded as it was sent.
    pub fn recorded(self) -> Option<Event> {
        match self {
            Self::StepSucceeded { op, attempt, output, took_ms } => {
                Some(Event::StepFinished { op, attempt, outcome: Outcome::Ok(output), took_ms })
            }
            Self::Emitted { op, event } => Some(event.recorded(op)),
            Self::JobSent { op, .. } => Some(SentJob::recorded(op)),
            // What becomes of a failed attempt is the engine's decision; it sends the event itself. And whether a child may
            // be invoked.
            Self::StepBegun { .. } | Self::StepFailed { .. } | Self::ChildInvoked { .. } => None,
        }
    }
}
