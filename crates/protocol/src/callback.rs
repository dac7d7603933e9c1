//! Callbacks: what an address hears of the end of a run. The body is shaped as Standard Webhooks recommend it.

use serde::{Deserialize, Serialize};

use crate::{Failure, Payload, RunId, rest::Status};

/// The queue that callbacks go out by. Each namespace has one, from its first callback on.
pub const CALLBACK_QUEUE: &str = "stepwell.webhooks";

/// The largest result that a callback carries, in bytes of JSON.
pub const RESULT_BYTES_MAX: usize = 262_144;

/// What is posted to the address when a run ends.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Callback {
    /// `run.completed`, `run.failed` or `run.cancelled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When the run ended: `2026-11-17T22:00:00Z`.
    pub timestamp: String,
    /// The run.
    pub data: EndedRun,
}

/// A run that has ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedRun {
    /// Its id.
    pub run: RunId,
    /// Its workflow.
    pub workflow: String,
    /// How it ended: `completed`, `failed` or `cancelled`.
    pub status: Status,
    /// The idempotency key that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What it returned, if that has at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// How many bytes its result has, if it is too large to be sent along. Read it by the run's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
    /// Why it failed. A run that took too long has the code `run_timed_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}
