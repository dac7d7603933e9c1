//! Jobs as operators see them, and dead letters.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{JOB_BYTES_MAX, JobId, SentJob};
use crate::{Payload, Timestamp};

/// Where a job stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStatus {
    /// It can be claimed, or waits for the jobs of its group before it.
    #[serde(rename = "queued")]
    Queued,
    /// Its time has not come.
    #[serde(rename = "delayed")]
    Delayed,
    /// A consumer holds it.
    #[serde(rename = "in_flight")]
    InFlight,
    /// It is a dead letter.
    #[serde(rename = "dead")]
    Dead,
}

/// Why a job became a dead letter.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DeadCode {
    /// Its attempts are spent.
    #[serde(rename = "attempts")]
    Attempts,
    /// A consumer has rejected it.
    #[serde(rename = "rejected")]
    Rejected,
    /// No consumer has claimed it within the queue's retention.
    #[serde(rename = "expired")]
    Expired,
    /// Its address is disabled, because it has answered 410.
    #[serde(rename = "disabled")]
    Disabled,
}

/// How a job became a dead letter.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Why.
    pub code: DeadCode,
    /// When.
    pub at: Timestamp,
    /// What the last consumer said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A job, as `GET /api/queues/{queue}/jobs/{job}` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// How many attempts it has had.
    pub attempts: u32,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it can be claimed, if that is known; or until when it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Its priority.
    pub priority: u8,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The address that it is pushed to, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How it became a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<Death>,
    /// How many bytes its body has.
    pub size: usize,
    /// The type of its body; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body, if it was sent as JSON; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    /// The body, if it was sent as text; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The body, if it was sent as bytes; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// The type of a job that tells of a dead letter.
pub const DEAD_LETTER: &str = "application/vnd.stepwell.dead-letter+json";

/// A dead letter of another queue, as the body of a job: what the queue is told that `dead_to` names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The queue that it is a dead letter of.
    pub queue: String,
    /// Its id there, by which it can be shown, edited and redriven.
    pub job: JobId,
    /// Why it died.
    pub code: DeadCode,
    /// What the last consumer said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it died.
    pub died_at: Timestamp,
    /// How many attempts it has had.
    pub attempts: u32,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many bytes its body has.
    pub size: usize,
    /// The type of its body.
    pub content_type: String,
    /// The body, if it was sent as JSON and is not too large to be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    /// The same, if it was sent as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The same, if it was sent as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

impl DeadLetter {
    /// Of a job, if it is a dead letter.
    pub fn of(queue: &str, job: JobView) -> Option<Self> {
        let JobView { id, attempts, sent_at, group, death, size, content_type, body, text, base64, .. } = job;
        let Death { code, at, reason } = death?;
        let content_type = content_type.unwrap_or_default();
        let (queue, job, died_at) = (queue.to_owned(), id, at);
        Some(Self {
            queue,
            job,
            code,
            reason,
            died_at,
            attempts,
            sent_at,
            group,
            size,
            content_type,
            body,
            text,
            base64,
        })
    }

    /// The body as a value of this type; nothing if it is of another one, or was not sent as JSON. Many a job dies because
    /// its body does not fit.
    pub fn body_as<T: DeserializeOwned>(&self) -> Option<T> {
        self.body.as_ref()?.decode().ok()
    }

    /// The job that tells of it, for this queue.
    pub fn told_to(self, queue: &str) -> SentJob {
        let whole = Payload::encode(&self).unwrap_or_default();
        let is_too_large = whole.size() > JOB_BYTES_MAX;
        let without = || Payload::encode(&Self { body: None, text: None, base64: None, ..self });
        let body = if is_too_large { without().unwrap_or_default() } else { whole };
        SentJob { content_type: Some(DEAD_LETTER.to_owned()), ..SentJob::new(queue.to_owned(), body) }
    }
}

/// Dead letters, without their bodies: a page of one partition, oldest first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobList {
    /// Them.
    pub jobs: Vec<JobView>,
    /// Pass it as `cursor` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The body of `PUT /api/queues/{queue}/jobs/{job}`: a dead letter gets another body.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditJob {
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// The body of `POST /api/queues/{queue}/redrive`: which dead letters are queued again. Without a field, all that are there.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redrive {
    /// Those that died for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<DeadCode>,
    /// Those whose reason has this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Those of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many in a second at the most: 1 to 1,000. Without it, as fast as it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
}
