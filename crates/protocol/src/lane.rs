//! Flow control: how many runs go on at once, and in which order they are let in.

use serde::{Deserialize, Serialize};

use crate::{RunId, Timestamp};

/// The most limits of one workflow.
pub const LIMITS_MAX: usize = 8;

/// The most bytes of a key that a limit counts by. A longer one is cut off.
pub const KEY_LENGTH_MAX: usize = 128;

/// The longest name of a lane that workflows share.
pub const LANE_LENGTH_MAX: usize = 64;

/// The most runs that a rate lets begin within its time: each is remembered for that long.
pub const RATE_MAX: u32 = 10_000;

/// The shortest and the longest time of a rate.
pub const RATE_MS: std::ops::RangeInclusive<u64> = 10..=86_400_000;

/// The most starts that become one run.
pub const BATCH_MAX: u32 = 1_000;

/// The shortest and the longest time for which starts are waited for.
pub const GATHER_MS: std::ops::RangeInclusive<u64> = 100..=7 * 86_400_000;

/// The highest priority, and below zero the lowest.
pub const PRIORITY_MAX: i8 = 100;

/// How far ahead of the line each point of priority puts a run. So one that waits long enough comes before any other.
pub const PRIORITY_MS: u64 = 10_000;

/// What the names of shared lanes begin with. It begins like the names that are Stepwell's own.
const SHARED_PREFIX: &str = "stepwell.lane.";

/// The same of lanes of steps.
pub const STEPS_PREFIX: &str = "stepwell.steps.";

/// How the runs of a workflow are let in, as its app declares it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// How many may be at work at once, or begin within a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitSpec>,
    /// An expression over `input` for the priority, a number from -100 to 100. Higher ones are let in first; each point
    /// is worth ten seconds of waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// An expression over `input` that says whose run it is. Those who wait are let in by turns, however many runs each
    /// of them has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_by: Option<String>,
    /// For how long a run counts.
    #[serde(default, skip_serializing_if = "Hold::is_work")]
    pub hold: Hold,
    /// How starts become runs, if not each of them a run of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<StartRule>,
    /// The name of a lane that it shares with other workflows: their runs count together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
}

impl Flow {
    /// The name of the lane of a workflow with these limits.
    pub fn lane_of(&self, workflow: &str) -> String {
        match &self.lane {
            // No workflow has such a name.
            Some(lane) => format!("{SHARED_PREFIX}{lane}"),
            None => workflow.to_owned(),
        }
    }
}

/// The lane that a step's code waits to be let in by, for each of its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLane {
    /// Its name, as the code says it.
    pub lane: String,
    /// How many such steps may be at work at once, or begin within a time.
    pub limits: Vec<Limit>,
}

/// The most steps of one run that wait for lanes, or have been let in, at once. Others begin to wait when these are done.
pub const VISITS_MAX: usize = 50;

impl StepLane {
    /// What the limits of steps go by that have a key: code has no expression for it.
    pub const BY: &str = "key";

    /// The name of the object of a lane that is called so. It is never that of workflows: a run that has a place in one
    /// may wait for the other, and so two of them could wait for each other.
    pub fn object(lane: &str) -> String {
        format!("{STEPS_PREFIX}{lane}")
    }
}

/// What an app calls a shared lane of this name.
pub fn shared_name(name: &str) -> &str {
    let stripped = name.strip_prefix(SHARED_PREFIX).or_else(|| name.strip_prefix(STEPS_PREFIX));
    stripped.unwrap_or(name)
}

/// How starts become runs, if not each of them a run of its own. Each of these has a `key`, an expression over `input`: it
/// holds for each of its values alone, or without one for all starts of the workflow together.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartRule {
    /// One run at a time: while it has not ended, other starts are skipped.
    Singleton {
        /// The key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Whether a new start cancels the run of before, and is not skipped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cancel: bool,
    },
    /// One run for all starts that come close together, with the input of the last one.
    Debounce {
        /// The key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// How long no other start has to come, in milliseconds.
        wait_ms: u64,
        /// After how many milliseconds the run begins however many starts come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_ms: Option<u64>,
        /// Whether the run begins at once, with the input of the first one, and the other starts are skipped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        leading: bool,
    },
    /// One run for many starts, with a list of their inputs.
    Batch {
        /// The key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// How many starts at the most.
        max: u32,
        /// How long it waits for them, in milliseconds.
        wait_ms: u64,
    },
}

impl StartRule {
    /// The expression of its key.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Singleton { key, .. } | Self::Debounce { key, .. } | Self::Batch { key, .. } => {
                key.as_deref()
            }
        }
    }
}

/// A limit, as an app declares it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSpec {
    /// How many runs may be at work at once or, with `per_ms`, begin within that time.
    pub max: u32,
    /// An expression over `input` for that number. If it says none, `max` holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_by: Option<String>,
    /// An expression over `input`: the limit holds for each of its values alone. Without one it holds for all runs of the
    /// workflow together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// For a rate: within how many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_ms: Option<u64>,
    /// For a rate: whether starts beyond it are refused. Otherwise their runs wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drop: bool,
}

/// For how long a run counts.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// While its code is at work: not while it sleeps or waits.
    #[default]
    #[serde(rename = "work")]
    Work,
    /// From its beginning to its end.
    #[serde(rename = "run")]
    Run,
}

impl Hold {
    /// Whether it is what nobody has to say.
    pub fn is_work(&self) -> bool {
        *self == Self::Work
    }
}

/// A limit that a run is under: its key is known.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which limit of the workflow: the expression of its key, or nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// How many runs may be at work at once or, with `per_ms`, begin within that time.
    pub max: u32,
    /// For a rate: within how many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_ms: Option<u64>,
    /// Whether the number is this key's own, by an expression over the run's input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
}

/// What a run that wants to go to work is known by in its lane. Each time that it wants to, it has another number, and one
/// that it does not want any more it never wants again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// The run.
    pub run: RunId,
    /// Which time.
    pub number: u32,
    /// Whether it is one of the run's steps that wants to: each of their tickets stands for itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_step: bool,
}

impl Ticket {
    /// A run's own.
    pub fn of_run(run: RunId, number: u32) -> Self {
        Self { run, number, is_step: false }
    }

    /// One of a run's steps.
    pub fn of_step(run: RunId, number: u32) -> Self {
        Self { run, number, is_step: true }
    }

    /// What a lane knows it by. A run's next ticket stands for the one before; a step's do not.
    pub fn holder(&self) -> (RunId, u32) {
        (self.run.clone(), if self.is_step { self.number } else { 0 })
    }
}

/// A run wants to go to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// By this ticket.
    pub ticket: Ticket,
    /// Within these limits.
    pub limits: Vec<Limit>,
    /// Ahead of those with a lower priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// In turns with those who have another share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// For how long.
    #[serde(default, skip_serializing_if = "Hold::is_work")]
    pub hold: Hold,
    /// Since when it wants to.
    pub since: Timestamp,
    /// When the run was started: the limits of the latest one hold.
    pub started: Timestamp,
    /// The step's name, if it is a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i8) -> bool {
    *number == 0
}

/// What a lane says of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Its run may go to work.
    In,
    /// It is in line. Its cell hears when it is let in.
    InLine,
    /// A later ticket of the same run is known.
    Over,
    /// The lane has no room for it. It may ask again later.
    Full,
}

/// The most limits of a workflow that people have set to another number.
pub const SET_LIMITS_MAX: usize = 1_000;

/// Another number for a limit of a workflow, in the place of what its code declares.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitChange {
    /// Which limit: the expression of its `key`, as the code has it. Without one, the limit of the whole workflow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// For this value of the expression alone. Without one, for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// For a rate: its time in milliseconds, as the code has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_ms: Option<u64>,
    /// The number; 0 lets in no run. Without one, what the code declares holds again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// A limit that a person has set. It holds until it is reset; a deploy does not change it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLimit {
    /// Which limit: the expression of its key, or nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// For this key alone; absent if it is for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// For a rate: within how many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_ms: Option<u64>,
    /// The number.
    pub max: u32,
    /// Who has set it.
    pub set_by: String,
    /// When.
    pub set_at: Timestamp,
}

/// The limits of a workflow that people have set.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLimits {
    /// The limits, the latest last.
    pub set: Vec<SetLimit>,
}

/// The lanes of steps, by name: `GET /api/lanes`. One is there once a step has asked it, or a limit was set.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneList {
    /// Their names, as the code has them.
    pub lanes: Vec<String>,
    /// Pass it as `after` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The runs of a workflow that work, and those that wait to be let in, in the order in which they came.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneView {
    /// The runs.
    pub runs: Vec<LaneRun>,
    /// The limits that people have set, on the first page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<SetLimit>,
    /// Pass it as `cursor` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A run that is under limits.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRun {
    /// The run.
    pub run: RunId,
    /// The step of the run that works or waits, in a lane of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Since when it works or waits.
    pub since: Timestamp,
    /// The limits that it is under, with the numbers in effect.
    pub limits: Vec<Limit>,
    /// The limit that it waits for; absent if it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Limit>,
}
