//! Schedules: runs that are started at certain times.

use serde::{Deserialize, Serialize};

use crate::{Payload, Problem, RunId, Timestamp};

/// How late a tick is still worth starting, if its schedule does not say it: a day.
pub const CATCH_UP_MS_DEFAULT: u64 = 86_400_000;

/// What a schedule is to do: the body of `PUT /api/schedules/{schedule}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// The workflow that each tick starts a run of.
    pub workflow: String,
    /// When it ticks: a cron expression of five fields, or six with seconds first; `every 5 minutes`; `every weekday at
    /// 9:00 in Europe/Berlin`; or once, `at 2026-12-01T09:00:00Z`.
    pub when: String,
    /// The time zone whose clocks it goes by; UTC, if neither this nor `when` names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// What the runs are started with.
    #[serde(default)]
    pub input: Payload,
    /// The tags of the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// It does not tick before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
    /// It does not tick after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// When it does not tick: days such as `2026-12-25`, or cron expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Its runs start up to so much later than it ticks: always by the same time, which depends on its id.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ms: u64,
    /// What happens if the run of an earlier tick has not ended.
    #[serde(default, skip_serializing_if = "Overlap::is_allow")]
    pub overlap: Overlap,
    /// Which of the ticks are started that have been missed.
    #[serde(default, skip_serializing_if = "CatchUp::is_last")]
    pub catch_up: CatchUp,
    /// How late a tick is still started. A later one counts as missed.
    #[serde(default = "catch_up_ms")]
    pub catch_up_ms: u64,
    /// After how many failed runs in a row it is paused; never, if that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<u32>,
}

impl ScheduleSpec {
    /// A schedule of which only this is said.
    #[must_use]
    pub fn new(workflow: &str, when: &str) -> Self {
        Self {
            workflow: workflow.to_owned(),
            when: when.to_owned(),
            zone: None,
            input: Payload::null(),
            tags: Vec::new(),
            starts_at: None,
            ends_at: None,
            except: Vec::new(),
            jitter_ms: 0,
            overlap: Overlap::Allow,
            catch_up: CatchUp::Last,
            catch_up_ms: CATCH_UP_MS_DEFAULT,
            pause_after_failures: None,
        }
    }
}

fn catch_up_ms() -> u64 {
    CATCH_UP_MS_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What happens to a tick while the run of an earlier one has not ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    /// It starts a run beside it.
    #[default]
    #[serde(rename = "allow")]
    Allow,
    /// It is left out.
    #[serde(rename = "skip")]
    Skip,
    /// It waits for the end of that run. Of several that wait, only the latest starts a run.
    #[serde(rename = "queue_one")]
    QueueOne,
    /// It waits for the end of that run, and so does each one after it.
    #[serde(rename = "queue_all")]
    QueueAll,
    /// That run is cancelled, and the tick starts the next one after its end.
    #[serde(rename = "cancel")]
    Cancel,
}

impl Overlap {
    /// Whether it is what nobody has to say.
    pub fn is_allow(&self) -> bool {
        *self == Self::Allow
    }
}

/// Which ticks are started of those that have been missed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    /// The latest.
    #[default]
    #[serde(rename = "last")]
    Last,
    /// Each of them.
    #[serde(rename = "all")]
    All,
}

impl CatchUp {
    /// Whether it is what nobody has to say.
    pub fn is_last(&self) -> bool {
        *self == Self::Last
    }
}

/// A schedule, as `GET /api/schedules/{schedule}` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleView {
    /// Its id.
    pub id: String,
    /// What it is to do.
    pub spec: ScheduleSpec,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Who has changed it last.
    pub changed_by: String,
    /// What the code declares, if it is declared in code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredSchedule>,
    /// Why it does not tick, if it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedSchedule>,
    /// When it ticks next, without its jitter; never, if that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_tick: Option<Timestamp>,
    /// When the run of that tick starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_start: Option<Timestamp>,
    /// The runs that have not ended, as far as it has to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunId>,
    /// What became of the latest tick that has started a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastTick>,
    /// What became of its ticks so far.
    pub counts: TickCounts,
    /// A range that is being started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<Backfill>,
    /// Why the run of the present tick could not be started yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// What the code declares of a schedule, and what became of that.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredSchedule {
    /// What the code declares.
    pub spec: ScheduleSpec,
    /// Whether an operator has changed it: then `spec` of the schedule is the operator's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// When it was removed from the code. It no longer ticks, and is deleted 30 days later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
}

/// Why and since when a schedule does not tick.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedSchedule {
    /// Since when.
    pub at: Timestamp,
    /// Who has paused it.
    pub by: String,
    /// The reason, if the engine paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A tick that has started a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTick {
    /// When it was due.
    pub tick: Timestamp,
    /// When its run was started.
    pub at: Timestamp,
    /// The run.
    pub run: RunId,
}

/// What became of a schedule's ticks.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickCounts {
    /// How many have started a run.
    pub started: u64,
    /// How many were left out because an earlier run had not ended.
    pub skipped: u64,
    /// How many were missed: they came too late, or others came after them.
    pub missed: u64,
    /// How many would have started a run that was refused for good.
    pub refused: u64,
    /// How many runs in a row have failed, as far as it has to know.
    pub failures: u32,
}

/// A range of ticks that is started again: the body of `POST /api/schedules/{schedule}/backfill`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// From this instant on.
    pub from: Timestamp,
    /// Up to this one, which belongs to it.
    pub to: Timestamp,
}

/// Schedules, by their ids.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScheduleList {
    /// The schedules.
    pub schedules: Vec<ScheduleView>,
    /// The ids of those that this release cannot read. Replace or delete them, or deploy the release that stored them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Where the next page begins: pass it on as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// When a schedule ticks next.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextTicks {
    /// Its next ticks, without its jitter.
    pub ticks: Vec<Timestamp>,
}

/// What has started a run, if a schedule has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticked {
    /// The schedule.
    pub schedule: String,
    /// Which of its ticks.
    pub tick: TickId,
    /// Where the schedule is, if it wants to hear of the run's end: the name of its station.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells: Option<String>,
}

/// By what a schedule knows a tick. Two runs are never started for the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TickId {
    /// The one that is due at this instant.
    #[serde(rename = "at")]
    At(Timestamp),
    /// One that somebody has triggered, by the mark of the request.
    #[serde(rename = "triggered")]
    Triggered(String),
    /// One of a range that is started again: which range, and the instant.
    #[serde(rename = "again")]
    Again(u64, Timestamp),
}

impl std::fmt::Display for TickId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(at) => write!(f, "at-{}", at.as_millis()),
            Self::Triggered(mark) => write!(f, "triggered-{mark}"),
            Self::Again(range, at) => write!(f, "again-{range}-{}", at.as_millis()),
        }
    }
}
