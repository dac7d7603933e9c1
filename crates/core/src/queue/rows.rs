//! What a partition has of its host: rows.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Payload, Timestamp,
    queue::{Death, QueueSettings, QueueState},
};

use super::{Purging, Redriving, Unwell};

/// What a partition needs of its storage. What is read is bounded by the limits that are given.
pub trait Rows {
    /// Why the storage failed.
    type Error;

    /// Where the partition stands; nothing before it is made.
    fn head(&self) -> Result<Option<Head>, Self::Error>;

    /// The bytes that are stored.
    fn bytes(&self) -> Result<u64, Self::Error>;

    /// The latest plain job's number, and the counts that it came with.
    fn latest(&self) -> Result<Option<(u64, Option<Counts>)>, Self::Error>;

    /// The rows of claims, also those that hold nothing. What one cannot be read of is taken for nothing.
    fn leases(&self) -> Result<Vec<LeaseRow>, Self::Error>;

    /// Plain jobs after a number, in order.
    fn plain(&self, after: u64, limit: usize) -> Result<Vec<Plain>, Self::Error>;

    /// The first jobs of a priority that are in line, by the time when they can be claimed and by their places: all of them,
    /// or those that can be claimed by a time.
    fn line(&self, priority: u8, by: Option<Timestamp>, limit: usize)
    -> Result<Vec<(u64, Row)>, Self::Error>;

    /// How many jobs in line cannot be claimed yet, counted up to a limit.
    fn delayed(&self, now: Timestamp, limit: usize) -> Result<u64, Self::Error>;

    /// Jobs after a number that are not plain, in order.
    fn jobs(&self, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, Self::Error>;

    /// Dead letters after a time and number, in the order of their deaths.
    fn dead(&self, after: (Timestamp, u64), limit: usize) -> Result<Vec<(u64, Row)>, Self::Error>;

    /// The jobs of a group after a place that are not dead, in order.
    fn group(&self, group: &str, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, Self::Error>;

    /// The first jobs that stand back for an address, in order.
    fn back(&self, address: &str, limit: usize) -> Result<Vec<(u64, Row)>, Self::Error>;

    /// The addresses that are remembered: no more than [`super::ADDRESSES_MAX`].
    fn addresses(&self) -> Result<Vec<(String, Unwell)>, Self::Error>;

    /// A job.
    fn job(&self, number: u64) -> Result<Option<Found>, Self::Error>;

    /// The marks of the requests that jobs after a number came with, and the first number of each.
    fn marks(&self, after: u64) -> Result<Vec<(String, u64)>, Self::Error>;

    /// A job's body.
    fn content(&self, number: u64) -> Result<Option<Content>, Self::Error>;

    /// What a key stands for.
    fn key(&self, key: &str) -> Result<Option<Key>, Self::Error>;

    /// The keys that are over first.
    fn keys(&self, limit: usize) -> Result<Vec<(String, Key)>, Self::Error>;

    /// Does all of this, or nothing.
    fn write(&self, changes: &[Change]) -> Result<(), Self::Error>;
}

/// Where a partition stands. One row, written with whatever changes it, but for the counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The queue's settings, as far as the partition has heard.
    pub settings: QueueSettings,
    /// How many jobs there are. Other rows may have later counts.
    pub counts: Counts,
    /// What is being purged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purging: Option<Purging>,
    /// What is being redriven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriving: Option<Redriving>,
    /// Of the first partition: how the queue is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Deleting>,
    /// Of the first partition: the latest revision of the app's declarations that has changed how it pushes.
    #[serde(default)]
    pub heard: u64,
    /// Up to which dead letter, in the order of deaths, another queue was told.
    #[serde(default)]
    pub told: (Timestamp, u64),
    /// How often in a row the consumer that jobs are pushed to was not well.
    #[serde(default)]
    pub failures: u32,
    /// Before when nothing is pushed, because it is not.
    #[serde(default)]
    pub left_alone_until: Timestamp,
}

/// How many jobs there are. Each commit that changes that writes it: with the head, or else with a row that it writes
/// anyway, so that sending a plain job and acknowledging one take no row more. Those of the highest version hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counts {
    /// It grows each time they are stored.
    pub version: u64,
    /// The latest number.
    pub last: u64,
    /// How many jobs are there that are not dead.
    pub alive: u64,
    /// How many dead letters there are.
    pub dead: u64,
}

/// How a queue is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleting {
    /// Whether its jobs go with it. If not, it stays if it has any.
    pub with_jobs: bool,
    /// What it was before.
    pub was: QueueState,
}

/// A job without a priority, delay or group that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Its number.
    pub number: u64,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// How many bytes its body has.
    pub size: usize,
}

/// The state of any other job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When it was sent.
    pub sent_at: Timestamp,
    /// How many bytes its body has.
    pub size: usize,
    /// How many attempts it has had.
    #[serde(default)]
    pub attempts: u32,
    /// Its priority.
    #[serde(default)]
    pub priority: u8,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its place in its group.
    pub place: u64,
    /// The latest number when it was last queued, or died.
    pub since: u64,
    /// When it can be claimed.
    pub due: Timestamp,
    /// Whether it can be claimed by then: nobody holds it, it is alive, and the first of its group.
    pub is_in_line: bool,
    /// The address that it goes to, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether it stands back until that is well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_back: bool,
    /// How it died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<Death>,
}

/// A job, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A plain one.
    Plain(Plain),
    /// Any other.
    Row(Row),
}

/// A job that a consumer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its number.
    pub job: u64,
    /// Which attempt it is.
    pub attempt: u32,
    /// Until when.
    pub until: Timestamp,
    /// Whether it is a plain job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_plain: bool,
}

/// The row of a claim. Once that holds nothing, the row is there for the next one: to write it costs no more than to delete
/// it, and it has the counts. Only so many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// Which row it is: one of the first that no claim has.
    pub id: u32,
    /// The claim's nonce.
    pub nonce: String,
    /// What the claim holds, and nothing else.
    pub holds: Vec<Hold>,
    /// How many jobs there are.
    pub counts: Counts,
}

/// What a dedupe id or an idempotency key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The job; 0 for a request.
    pub job: u64,
    /// Until when it is known, at least.
    pub until: Timestamp,
    /// What was answered to the request, as JSON. Of a dedupe id, an empty text if its time is over: then `until` says only
    /// when to look whether its job is still there.
    pub told: Option<String>,
}

/// In which form a body was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// A JSON value.
    #[serde(rename = "json")]
    Json,
    /// A text.
    #[serde(rename = "text")]
    Text,
    /// Bytes, as base64.
    #[serde(rename = "bytes")]
    Bytes,
}

/// A body.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Its type.
    pub content_type: String,
    /// Its form.
    pub form: Form,
    /// What it says, in that form.
    pub data: String,
}

impl std::fmt::Debug for Content {
    // Bodies hold people's data: a log line shows only how much of it there is.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({} bytes of {})", self.size(), self.content_type)
    }
}

impl Content {
    /// How many bytes it has.
    pub fn size(&self) -> usize {
        match self.form {
            Form::Json | Form::Text => self.data.len(),
            Form::Bytes => {
                let padding = self.data.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
                (self.data.len() / 4 * 3).saturating_sub(padding)
            }
        }
    }

    /// How many bytes it has in an answer.
    pub fn encoded_size(&self) -> usize {
        match self.form {
            Form::Json | Form::Bytes => self.data.len(),
            Form::Text => self.data.bytes().map(escaped_size).sum(),
        }
    }

    /// Its type, and the one of `body`, `text` and `base64` that has it.
    pub fn into_fields(self) -> (String, Option<Payload>, Option<String>, Option<String>) {
        let Self { content_type, form, data } = self;
        match form {
            Form::Json => (content_type, Some(Payload::from_text(data).unwrap_or_default()), None, None),
            Form::Text => (content_type, None, Some(data), None),
            Form::Bytes => (content_type, None, None, Some(data)),
        }
    }
}

/// How many bytes a byte of a text has in JSON.
pub(super) fn escaped_size(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0x00..0x20 => 6,
        _ => 1,
    }
}

/// The request that a job came with. The platform may deliver a request twice, so each is known for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What it is known by.
    pub request: String,
    /// The first number of its jobs.
    pub first: u64,
}

/// Something to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Where the partition stands.
    Head(Box<Head>),
    /// A plain job is new.
    AddPlain {
        /// Its number.
        number: u64,
        /// When it was sent.
        sent_at: Timestamp,
        /// The request that it came with.
        mark: Mark,
        /// Its body.
        content: Content,
        /// How many jobs there are, with the last job of a commit that does not write the head.
        counts: Option<Counts>,
    },
    /// A job with a state is new.
    Add {
        /// Its number.
        number: u64,
        /// The request that it came with.
        mark: Mark,
        /// Its state.
        row: Box<Row>,
        /// Its body.
        content: Content,
    },
    /// A plain job gets a state.
    Demote {
        /// Its number.
        number: u64,
        /// Its state.
        row: Box<Row>,
    },
    /// A job has another state.
    Update {
        /// Its number.
        number: u64,
        /// Its state.
        row: Box<Row>,
    },
    /// A job that is not plain has another body.
    Edit {
        /// Its number.
        number: u64,
        /// Its body.
        content: Content,
    },
    /// A job is gone.
    Remove {
        /// Its number.
        number: u64,
        /// Whether it was plain.
        is_plain: bool,
    },
    /// What a claim holds, which may be nothing any more.
    Lease(LeaseRow),
    /// The row of a claim that holds nothing is deleted.
    RemoveLease(u32),
    /// A key stands for something.
    PutKey {
        /// It.
        key: String,
        /// For what.
        value: Key,
    },
    /// A key stands for nothing any more.
    RemoveKey(String),
    /// An address is remembered, or no more.
    Address {
        /// It.
        address: String,
        /// What is known of it.
        unwell: Option<Unwell>,
    },
}
