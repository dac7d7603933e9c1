//! Queues as a whole: their settings and counts.

use serde::{Deserialize, Serialize};

use super::{
    DEDUPE_MS_MAX,
    push::{Push, left_out_or_null},
};
use crate::Timestamp;

/// How long an address may take to answer a callback.
const CALLBACK_TIMEOUT_MS: u64 = 15_000;

/// What consumers and producers of a queue may do.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueState {
    /// Send and claim.
    #[default]
    #[serde(rename = "active")]
    Active,
    /// Send. Claims are answered with no jobs.
    #[serde(rename = "paused")]
    Paused,
    /// Claim. Sends are refused.
    #[serde(rename = "draining")]
    Draining,
    /// Nothing: it is being deleted.
    #[serde(rename = "deleting")]
    Deleting,
}

/// The settings of a queue.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// When the queue was made.
    pub made_at: Timestamp,
    /// How often its settings were changed.
    pub revision: u64,
    /// What may be done with it.
    pub state: QueueState,
    /// How many partitions it has.
    pub partitions: u32,
    /// How many of them hold jobs with a group or a dedupe id: as many as the queue was made with.
    pub keyed_partitions: u32,
    /// How long a lease lasts, unless the claim says it.
    pub visibility_ms: u64,
    /// After how many attempts a job becomes a dead letter.
    pub max_attempts: u32,
    /// How long a job waits for a consumer, from when it can be claimed, until it becomes a dead letter.
    pub retention_ms: u64,
    /// How long dead letters are kept.
    pub dead_retention_ms: u64,
    /// How long dedupe ids and idempotency keys are known. A dedupe id is known at least until its job is done or deleted.
    pub dedupe_ms: u64,
    /// The queue that is told of each dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_to: Option<String>,
    /// How its jobs are pushed; absent if consumers claim them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    /// Whether the app's code declares how they are pushed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// Whether each job is pushed to an address of its own. Only Stepwell's own queues do that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub addressed: bool,
}

impl QueueSettings {
    /// Those of a queue about which nobody has said anything.
    pub fn new(made_at: Timestamp) -> Self {
        Self {
            made_at,
            revision: 1,
            state: QueueState::Active,
            partitions: 1,
            keyed_partitions: 1,
            visibility_ms: 30_000,
            max_attempts: 5,
            retention_ms: 14 * 86_400_000,
            dead_retention_ms: 30 * 86_400_000,
            dedupe_ms: 86_400_000,
            dead_to: None,
            push: None,
            declared: false,
            addressed: false,
        }
    }

    /// Those of the queue that callbacks go out by.
    pub fn of_callbacks(made_at: Timestamp) -> Self {
        Self {
            max_attempts: 10,
            dedupe_ms: DEDUPE_MS_MAX,
            dead_retention_ms: 7 * 86_400_000,
            push: Some(Push { timeout_ms: CALLBACK_TIMEOUT_MS, ..Push::default() }),
            addressed: true,
            ..Self::new(made_at)
        }
    }
}

/// The body of `PATCH /api/queues/{queue}`: what is left out stays as it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueuePatch {
    /// 1 to 64, and never fewer than there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// One second to twelve hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_ms: Option<u64>,
    /// 1 to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// A minute to a year.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// A minute to a year.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_retention_ms: Option<u64>,
    /// Up to seven days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_ms: Option<u64>,
    /// The queue to tell of each dead letter; `null` to tell none.
    #[serde(default, deserialize_with = "left_out_or_null", skip_serializing_if = "Option::is_none")]
    pub dead_to: Option<Option<String>>,
    /// How to push jobs; `null` to push them no more.
    #[serde(default, deserialize_with = "left_out_or_null", skip_serializing_if = "Option::is_none")]
    pub push: Option<Option<Push>>,
}

/// How many jobs there are.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Jobs that no consumer holds: those that wait for their time or for their group, too.
    pub depth: u64,
    /// Of these, jobs whose time has not come; counted up to 1,000 for each partition.
    pub delayed: u64,
    /// Jobs that consumers hold.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// Since when the oldest job that could be claimed waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// Whether a purge is in progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purging: bool,
    /// Whether dead letters are being redriven.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redriving: bool,
}

impl QueueCounts {
    /// Those of two partitions together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            depth: self.depth + other.depth,
            delayed: self.delayed + other.delayed,
            in_flight: self.in_flight + other.in_flight,
            dead: self.dead + other.dead,
            oldest: match (self.oldest, other.oldest) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
            purging: self.purging || other.purging,
            redriving: self.redriving || other.redriving,
        }
    }
}

/// A queue, as `GET /api/queues/{queue}` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: QueueSettings,
    /// How many jobs it has.
    pub counts: QueueCounts,
}

/// The queues of a namespace, by name.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueList {
    /// Their names.
    pub queues: Vec<String>,
    /// Pass it as `after` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The body of `POST /api/queues/{queue}/purge`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purge {
    /// Whether to delete dead letters instead of queued jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
}
