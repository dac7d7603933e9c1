//! Queues and their jobs: what producers send, consumers claim, and operators set.
//!
//! A queue has partitions. A job stays in one partition for its life, and its id and its leases name that partition.

mod check;
mod dead;
mod push;
mod sent;
mod settings;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Payload, Problem, Timestamp, text::is_visible, topic::is_part};

pub use check::{check_terms, too_large};
pub use dead::{DEAD_LETTER, DeadCode, DeadLetter, Death, EditJob, JobList, JobStatus, JobView, Redrive};
pub use push::{
    JobCall, PUSH_TIMEOUT_MS_MAX, PUSH_TIMEOUT_MS_MIN, PUSHES_MAX, PUSHES_OF_PARTITION_MAX,
    PUSHES_PER_SECOND_MAX, Push, PushEnd, PushFailure, QueueSecret, REJECT_HEADER, SINK_BYTES_MAX,
    SINK_PREFIX, URL_LENGTH_MAX,
};
pub use sent::{SentJob, check_target};
pub use settings::{Purge, QueueCounts, QueueList, QueuePatch, QueueSettings, QueueState, QueueView};

/// The most jobs that one request sends.
pub const JOBS_MAX: usize = 1_000;

/// The most bytes of a request that sends jobs.
pub const SEND_BYTES_MAX: usize = 8_388_608;

/// The most bytes of a job's body.
pub const JOB_BYTES_MAX: usize = 1_900_000;

/// The most jobs of one claim.
pub const CLAIM_MAX: usize = 100;

/// The most bytes of all bodies in the answer to one claim, unless the first of them has more.
pub const CLAIM_BYTES_MAX: usize = 4_194_304;

/// The most leases that one request ends or extends.
pub const LEASES_MAX: usize = 100;

/// The longest that a claim waits for a job.
pub const WAIT_MS_MAX: u64 = 20_000;

/// The longest delay of a job: a year.
pub const DELAY_MS_MAX: u64 = 365 * 86_400_000;

/// The highest priority. The lowest is 0, which is that of jobs that have none.
pub const PRIORITY_MAX: u8 = 9;

/// The most partitions of a queue.
pub const PARTITIONS_MAX: u32 = 64;

/// The shortest time of a lease.
pub const VISIBILITY_MS_MIN: u64 = 1_000;

/// The longest time of a lease: twelve hours.
pub const VISIBILITY_MS_MAX: u64 = 12 * 3_600_000;

/// The most attempts of a job.
pub const ATTEMPTS_MAX: u32 = 1_000;

/// The shortest time that jobs and dead letters are kept.
pub const RETENTION_MS_MIN: u64 = 60_000;

/// The longest time that dedupe ids are known.
pub const DEDUPE_MS_MAX: u64 = 7 * 86_400_000;

/// The most bytes of a group, a dedupe id, a nonce or a content type.
pub const WORD_LENGTH_MAX: usize = 128;

/// The most bytes of the reason that a consumer gives.
pub const REASON_LENGTH_MAX: usize = 1_000;

/// What jobs have for a content type whose sender says none and whose body is JSON.
pub const JSON: &str = "application/json";

/// What jobs have for a content type whose sender says none and whose body is a text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// What jobs have for a content type whose sender says none and whose body is bytes.
pub const BYTES: &str = "application/octet-stream";

/// Whether a queue can be called that.
pub fn is_queue(name: &str) -> bool {
    is_part(name)
}

/// Whether a text may be a group, a dedupe id or a content type.
pub fn is_word(text: &str) -> bool {
    (1..=WORD_LENGTH_MAX).contains(&text.len()) && is_visible(text)
}

/// Whether a text may be the nonce of a claim.
pub fn is_nonce(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// A job to be sent. Give at most one of `body`, `text` and `base64`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// The body, if it is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    /// The body, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The body, if it is bytes: as base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The type of the body. Without one, it follows from the field that has the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// For how long no consumer gets it, up to a year.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// Jobs with a higher one come first: 0 to 9.
    #[serde(default, skip_serializing_if = "is_none")]
    pub priority: u8,
    /// Jobs of one group are handed out in order, one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A job with an id that the queue knows is not stored again. With a group, the id is one of that group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_id: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(priority: &u8) -> bool {
    *priority == 0
}

/// The body of `POST /api/queues/{queue}/jobs`, if its type is JSON: several jobs, or the fields of one.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendJobs {
    /// The jobs, up to 1,000. Without it, the other fields are one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<NewJob>>,
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
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// As in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_id: Option<String>,
}

/// What became of a job that was sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// What.
    pub status: SentStatus,
    /// Its id, if it was accepted, now or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Whether a job was accepted.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SentStatus {
    /// It is stored.
    #[serde(rename = "accepted")]
    Accepted,
    /// It was stored before, and has no further effect.
    #[serde(rename = "duplicate")]
    Duplicate,
    /// It was refused.
    #[serde(rename = "refused")]
    Refused,
}

/// What became of several jobs, in their order.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SentList {
    /// One for each.
    pub results: Vec<Sent>,
}

/// What a job is known by: which making of the queue, which partition, and which number there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId {
    /// When the queue was made: a queue that is deleted and made again has other jobs.
    pub made: Timestamp,
    /// The partition.
    pub partition: u32,
    /// The number.
    pub number: u64,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}-{}", self.made.as_millis(), self.partition, self.number)
    }
}

/// A text that is no job's id, or no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no id of a job, or no lease")]
pub struct NotAJob;

impl FromStr for JobId {
    type Err = NotAJob;

    fn from_str(text: &str) -> Result<Self, NotAJob> {
        let mut parts = text.split('-');
        let (Some(made), Some(partition), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAJob);
        };
        let id = Self {
            made: Timestamp::from_millis(u64::from_str_radix(made, 16).map_err(|_| NotAJob)?),
            partition: partition.parse().map_err(|_| NotAJob)?,
            number: number.parse().map_err(|_| NotAJob)?,
        };
        // One job, one id: `+1` and `01` are read as numbers, too. Beyond that, numbers are not exact in storage.
        if id.to_string() == text && id.number < 1 << 53 { Ok(id) } else { Err(NotAJob) }
    }
}

/// A consumer's hold on a job: the job, the attempt, and the claim that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// Which attempt.
    pub attempt: u32,
    /// The nonce of the claim.
    pub nonce: String,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.job, self.attempt, self.nonce)
    }
}

impl FromStr for Lease {
    type Err = NotAJob;

    fn from_str(text: &str) -> Result<Self, NotAJob> {
        let mut parts = text.splitn(3, '.');
        let (Some(job), Some(attempt), Some(nonce)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NotAJob);
        };
        let attempt = attempt.parse().map_err(|_| NotAJob)?;
        if !is_nonce(nonce) {
            return Err(NotAJob);
        }
        Ok(Self { job: job.parse()?, attempt, nonce: nonce.to_owned() })
    }
}

/// Writes and reads a type as its text.
macro_rules! as_text {
    ($type:ident) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    };
}

as_text!(JobId);
as_text!(Lease);

/// The body of `POST /api/queues/{queue}/claim`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// How many jobs at the most: 1 to 100, and 1 if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How long the leases last, unless they are extended; the queue's own time if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_ms: Option<u64>,
    /// How long to wait if there are no jobs: up to 20 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// What the claim is known by: 1 to 64 letters, digits, `-` or `_`. Repeat a claim whose answer was lost with the same
    /// one, and you get the same jobs without another attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// The jobs of a claim.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedList {
    /// Them.
    pub jobs: Vec<Claimed>,
}

/// A job that a consumer holds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// Its id.
    pub id: JobId,
    /// What to pass to `ack`, `nack` and `extend`.
    pub lease: Lease,
    /// Until when it is held, unless it is extended.
    pub until: Timestamp,
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
}

/// The body of `POST /api/queues/{queue}/ack`: the jobs are done.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// The leases, up to 100.
    pub leases: Vec<Lease>,
}

/// The body of `POST /api/queues/{queue}/nack`: the attempts have failed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nack {
    /// The leases, up to 100.
    pub leases: Vec<Lease>,
    /// For how long no consumer gets the jobs. Without it: 1 s after the first attempt, and twice as long after each further
    /// one, up to 15 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Why, for people. A dead letter keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the jobs become dead letters at once, even if they have attempts left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
}

/// The body of `POST /api/queues/{queue}/extend`: the consumer is still at work.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// The leases, up to 100.
    pub leases: Vec<Lease>,
    /// How long they last from now on; the queue's own time if it is not said. A lease never becomes shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_ms: Option<u64>,
}

/// What became of leases, in their order.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseList {
    /// One for each.
    pub results: Vec<LeaseResult>,
}

/// What became of a lease.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseResult {
    /// The job.
    pub id: JobId,
    /// What.
    pub status: LeaseStatus,
    /// Until when it is held, if it was extended; or when the next consumer gets the job, if it was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What became of a lease.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseStatus {
    /// The job is done: by this request, or before.
    #[serde(rename = "done")]
    Done,
    /// The job is queued again.
    #[serde(rename = "queued")]
    Queued,
    /// The job is a dead letter.
    #[serde(rename = "dead")]
    Dead,
    /// The lease lasts longer.
    #[serde(rename = "extended")]
    Extended,
    /// The lease is over: it has ended, and the job is queued, dead, or with another consumer.
    #[serde(rename = "lost")]
    Lost,
    /// The partition did not answer, or the request gives back too many large jobs at once. Try again.
    #[serde(rename = "failed")]
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_leases_are_read_as_they_are_written_and_in_no_other_form() {
        let job = JobId { made: Timestamp::from_millis(1_700_000_000_000), partition: 3, number: 184 };
        assert_eq!(job.to_string(), "18bcfe56800-3-184");
        assert_eq!(job.to_string().parse(), Ok(job.clone()));
        let lease = Lease { job, attempt: 2, nonce: "a-b_9".into() };
        assert_eq!(lease.to_string().parse(), Ok(lease));
        for text in [
            "",
            "1-2",
            "1-2-3-4",
            "1--2",
            "1-+2-3",
            "1-02-3",
            "x-1-2",
            "1-1-9007199254740992",
            "18BCFE56800-3-184",
        ] {
            assert_eq!(text.parse::<JobId>(), Err(NotAJob), "{text}");
        }
        for text in ["1-2-3.1", "1-2-3.1.", "1-2-3.x.n", "1-2-3.1.a b", "1-2-3.1.a.b"] {
            assert_eq!(text.parse::<Lease>(), Err(NotAJob), "{text}");
        }
    }

    #[test]
    fn a_field_that_no_request_has_is_refused() {
        for (text, is_good) in [
            (r#"{"body":1,"delay_ms":5}"#, true),
            (r#"{"body":1,"delay":5}"#, false),
            (r#"{"body":1,"priority":-1}"#, false),
            (r#"{"body":1,"priority":256}"#, false),
            (r#"{"body":1,"delay_ms":-1}"#, false),
            (r#"{"body":1,"delay_ms":1.5}"#, false),
        ] {
            assert_eq!(crate::json::from_str::<NewJob>(text).is_ok(), is_good, "{text}");
        }
        assert!(crate::json::from_str::<Claim>(r#"{"limits":1}"#).is_err());
        assert!(crate::json::from_str::<Ack>(r#"{"leases":[],"x":1}"#).is_err());
        assert!(crate::json::from_str::<QueuePatch>(r#"{"max_attemps":1}"#).is_err());
    }
}
