//! Push: jobs that the engine takes to their consumer itself.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Claimed, JobId, PARTITIONS_MAX};
use crate::{Payload, Timestamp, signature::Signature};

/// The most jobs that a partition pushes at once: an object has six connections.
pub const PUSHES_OF_PARTITION_MAX: u32 = 6;

/// The most jobs that a queue pushes at once.
pub const PUSHES_MAX: u32 = PUSHES_OF_PARTITION_MAX * PARTITIONS_MAX;

/// The highest rate of pushes.
pub const PUSHES_PER_SECOND_MAX: u32 = 10_000;

/// The shortest time that a consumer may have.
pub const PUSH_TIMEOUT_MS_MIN: u64 = 1_000;

/// The longest time that a consumer may have: five minutes.
pub const PUSH_TIMEOUT_MS_MAX: u64 = 300_000;

/// The most bytes of an address.
pub const URL_LENGTH_MAX: usize = 2_048;

/// What the names of bindings begin with that are sinks: whoever deploys the engine says by that which queues jobs may go to.
pub const SINK_PREFIX: &str = "SINK_";

/// The largest body that is sent to a Cloudflare Queue: of the 128 KB that a message has, some are its own.
pub const SINK_BYTES_MAX: u32 = 127_000;

/// The header of a consumer's answer that makes its job a dead letter at once. It says why.
pub const REJECT_HEADER: &str = "stepwell-reject";

/// How a queue pushes its jobs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Where to: an https address. Absent if the app has a `#[job]` handler for the queue, which declares its push in code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where to: a Cloudflare Queue, by its binding, which is named `SINK_…`. Either this or `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// How many jobs are pushed at once: 1 to 384, of which each partition has its part, at least 1 and at most 6.
    #[serde(default = "concurrency")]
    pub concurrency: u32,
    /// How many pushes begin in a second at the most: 1 to 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// How long the consumer may take: one second to five minutes.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
}

fn concurrency() -> u32 {
    PUSHES_OF_PARTITION_MAX
}

fn timeout_ms() -> u64 {
    30_000
}

impl Default for Push {
    fn default() -> Self {
        Self { url: None, sink: None, concurrency: concurrency(), per_second: None, timeout_ms: timeout_ms() }
    }
}

/// Tells what is left out from what is `null`.
#[expect(clippy::option_option, reason = "it is both in JSON")]
pub(super) fn left_out_or_null<'de, D, T>(from: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(from).map(Some)
}

/// What signs the jobs of a queue when they are pushed to an address.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSecret {
    /// The secret, for a library of Standard Webhooks.
    pub secret: String,
    /// The one of the deployment's previous key, while both are set. Jobs are signed with both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

/// What the engine calls the app's handler with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCall {
    /// The queue.
    pub queue: String,
    /// The job's id.
    pub id: JobId,
    /// Which attempt this is; the first is 1.
    pub attempt: u32,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The type of its body.
    pub content_type: String,
    /// The body, if it was sent as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    /// The body, if it was sent as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The body, if it was sent as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// How long its handler may take.
    pub timeout_ms: u64,
    /// The engine's word that it has made this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

impl JobCall {
    /// A call with a job of this queue, which nobody has signed.
    pub fn new(queue: &str, job: Claimed, timeout_ms: u64) -> Self {
        let Claimed { id, attempt, sent_at, group, content_type, body, text, base64, .. } = job;
        let (queue, signature) = (queue.to_owned(), None);
        Self { queue, id, attempt, sent_at, group, content_type, body, text, base64, timeout_ms, signature }
    }
}

/// What became of a job that was pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushEnd {
    /// It is done.
    Done,
    /// The attempt has failed.
    Failed(PushFailure),
}

/// How an attempt has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushFailure {
    /// Why, for people.
    pub reason: String,
    /// For how long the job waits, if its consumer has said that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Whether the job becomes a dead letter at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
    /// Whether it is its consumer that is not well, and not the job: it did not answer, or says that it is overloaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_down: bool,
    /// Whether its consumer says that it is gone for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}
