//! One schedule: its row, and what becomes of its ticks. Decides; never writes.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Place, Problem, RunId, Timestamp,
    rest::Status,
    schedule::{
        Backfill, CatchUp, DeclaredSchedule, LastTick, Overlap, PausedSchedule, ScheduleSpec, TickCounts,
        TickId,
    },
};

use super::{BadSpec, Effort, Next, NoZone, PASSED_MAX, Plan, Zones};
use crate::pools::{Pool, spread};

/// How late a tick is that has been missed. Whatever is less late is only slow.
pub const MINUTE_MS: u64 = 60_000;

/// How many ticks a schedule passes over at once; its row says how far it has come.
const PASSES_MAX: usize = 1_000;

/// The most runs that a schedule knows of at once: beyond that, it does not ask to be told of their ends.
pub const RUNNING_MAX: usize = 100;

/// For how long nothing is heard of a run before it is asked whether it has ended.
pub const LOOK_MS: u64 = 600_000;

/// How many runs of a schedule are asked that at once.
const LOOKS_MAX: usize = 16;

/// How long a schedule is kept that was retired: 30 days.
pub const RETIRED_MS: u64 = 30 * 86_400_000;

/// The most ticks that are triggered and have not started a run, and how many are remembered that have.
pub const TRIGGERS_MAX: usize = 16;

/// The longest range of a backfill: a year.
pub const BACKFILL_MS_MAX: u64 = 366 * 86_400_000;

/// The most ticks that a backfill starts.
pub const BACKFILL_TICKS_MAX: u32 = 10_000;

/// As how many ticks it counts that a backfill has passed over many that are left out.
pub(super) const LOOK_TICKS: u32 = 100;

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// By what it is known.
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
    /// What is next; nothing, if it never ticks again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Upcoming>,
    /// Ticks that somebody has triggered, by the marks of the requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggered: Vec<Triggered>,
    /// The marks of those that have started a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    /// A range of ticks that is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// The number of the latest such range. They are counted from when the schedule was made: the cells still know the runs
    /// of one that had the same id and was deleted.
    #[serde(default)]
    pub ranges: u64,
    /// Until when its ticks are left out, if that was decided while one of them may have been under way: whether that has a
    /// run is found out first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Timestamp>,
    /// The runs that have not ended, as far as it has to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunId>,
    /// The latest tick that has started a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastTick>,
    /// What became of its ticks.
    pub counts: TickCounts,
}

/// What a schedule comes to next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Upcoming {
    /// A tick.
    #[serde(rename = "tick")]
    Tick {
        /// When it is due, without jitter.
        at: Timestamp,
        /// The cell that gets its run.
        to: Place,
    },
    /// Nothing up to then: from there on one has to look again.
    #[serde(rename = "look")]
    Look {
        /// Then.
        at: Timestamp,
    },
}

impl Upcoming {
    pub(super) fn at(&self) -> Timestamp {
        match self {
            Self::Tick { at, .. } | Self::Look { at } => *at,
        }
    }
}

/// A tick that somebody has triggered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triggered {
    /// The mark of the request.
    pub mark: String,
    /// When it came.
    pub at: Timestamp,
    /// The cell that gets its run.
    pub to: Place,
}

/// A range of ticks that is started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Its number.
    pub number: u64,
    /// The range.
    pub range: Backfill,
    /// What is next.
    pub next: Upcoming,
    /// How many more ticks it may start.
    #[serde(default = "all_ticks")]
    pub left: u32,
}

fn all_ticks() -> u32 {
    BACKFILL_TICKS_MAX
}

/// What a schedule goes by.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The rules of time zones.
    pub zones: &'a dyn Zones,
    /// What may be spent on looking for ticks.
    pub effort: &'a Effort,
    /// The cells that runs go to.
    pub pool: &'a Pool,
}

/// What has to be done for a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Ask a cell to start the run of a tick.
    Start {
        /// Which.
        tick: TickId,
        /// The cell.
        to: Place,
    },
    /// Let a cell say whether a tick has started a run, and never start it if it has not: it is to be passed over.
    GiveUp {
        /// Which.
        tick: TickId,
        /// The cell.
        to: Place,
    },
    /// Cancel its runs: a tick waits for their ends.
    Cancel(Vec<RunId>),
    /// Store what it is by now.
    Store(Box<Schedule>),
    /// Ask whether these runs have ended: nothing was heard of them for long.
    Look(Vec<RunId>),
    /// Delete it: it was retired long ago.
    Forget,
    /// Nothing before it is due again.
    Wait,
}

impl Schedule {
    /// A new one.
    pub fn new(
        world: World<'_>,
        now: Timestamp,
        id: String,
        spec: ScheduleSpec,
        by: String,
    ) -> Result<Self, BadSpec> {
        let plan = Plan::read(&spec, world.zones)?;
        let mut new = Self::blank(now, id, spec, by);
        new.next = new.upcoming(world, &plan, now).map_err(|error| BadSpec(error.to_string()))?;
        match new.next {
            None => {
                let detail =
                    format!("'{}' never comes: its time is over, or all of it is left out.", new.spec.when);
                Err(BadSpec(detail))
            }
            Some(Upcoming::Look { .. }) if !world.effort.is_spent() => {
                let detail =
                    format!("`except` leaves out {PASSED_MAX} ticks of '{}' in a row.", new.spec.when);
                Err(BadSpec(detail))
            }
            Some(_) => Ok(new),
        }
    }

    /// One that never ticks.
    pub(super) fn blank(now: Timestamp, id: String, spec: ScheduleSpec, by: String) -> Self {
        Self {
            id,
            spec,
            created_at: now,
            changed_at: now,
            changed_by: by,
            declared: None,
            paused: None,
            next: None,
            triggered: Vec::new(),
            marks: Vec::new(),
            again: None,
            ranges: now.as_millis(),
            left_out: None,
            running: Vec::new(),
            last: None,
            counts: TickCounts::default(),
        }
    }

    /// By how much its runs start later than it ticks.
    pub fn slot_ms(&self) -> u64 {
        spread(&self.id).checked_rem(self.spec.jitter_ms).unwrap_or_default()
    }

    /// Whether it has to know of the ends of its runs.
    pub fn tracks(&self) -> bool {
        self.spec.overlap != Overlap::Allow || self.spec.pause_after_failures.is_some()
    }

    /// Whether it asks to be told of the end of the next run.
    pub fn wants_to_hear(&self) -> bool {
        self.tracks() && self.running.len() < RUNNING_MAX
    }

    /// When something has to be done for it; nothing, if somebody else has to do something first.
    pub fn due_at(&self) -> Option<Timestamp> {
        if let Some(retired_at) = self.retired_at() {
            return Some(retired_at.plus_millis(RETIRED_MS));
        }
        let triggered = self.triggered.first().map(|triggered| triggered.at);
        let again = self.running_again().map(|_| self.changed_at);
        let waits = match self.spec.overlap {
            Overlap::Allow | Overlap::Skip | Overlap::Cancel => false,
            Overlap::QueueOne | Overlap::QueueAll => self.is_held(),
        };
        let next = self.tick_due_at().filter(|_| self.paused.is_none());
        // A tick that waits for a run to end is looked after when that takes long: nobody may ever say that it has.
        let next = if waits { next.zip(self.look_at()).map(|(next, look)| next.max(look)) } else { next };
        [triggered, again, next].into_iter().flatten().min()
    }

    /// From when on its runs are asked whether they have ended, if it has to know that.
    pub fn look_at(&self) -> Option<Timestamp> {
        let last = self.last.as_ref().filter(|_| !self.running.is_empty())?;
        Some(last.at.plus_millis(LOOK_MS))
    }

    /// Whether a run has to end before the next one starts.
    fn is_held(&self) -> bool {
        self.spec.overlap != Overlap::Allow && !self.running.is_empty()
    }

    /// The range that is started again, unless that has to wait.
    pub(super) fn running_again(&self) -> Option<&Again> {
        self.again.as_ref().filter(|_| !self.is_held() && self.paused.is_none())
    }

    /// When the run of its next tick starts, whether it is paused or not.
    fn tick_due_at(&self) -> Option<Timestamp> {
        self.next.as_ref().map(|next| match next {
            Upcoming::Tick { at, .. } => at.plus_millis(self.slot_ms()),
            Upcoming::Look { at } => *at,
        })
    }

    /// Whether a tick is due, and may be under way.
    pub(super) fn is_tick_due(&self, now: Timestamp) -> bool {
        self.tick_due_at().is_some_and(|at| at <= now) && self.paused.is_none()
    }

    /// What is next after an instant.
    pub(super) fn upcoming(
        &self,
        world: World<'_>,
        plan: &Plan,
        after: Timestamp,
    ) -> Result<Option<Upcoming>, NoZone> {
        Ok(match plan.next_after(world.zones, world.effort, after)? {
            Next::At(at) => Some(Upcoming::Tick { at, to: self.home(world, &TickId::At(at)) }),
            Next::NotUpTo(at) => Some(Upcoming::Look { at }),
            Next::Never => None,
        })
    }

    /// The cell that gets the run of a tick. Stored with the tick: it stays the same when the pool grows.
    fn home(&self, world: World<'_>, tick: &TickId) -> Place {
        world.pool.any(spread(&format!("{}\n{tick}", self.id)))
    }

    pub(super) fn plan(&self, world: World<'_>) -> Result<Plan, BadSpec> {
        Plan::read(&self.spec, world.zones)
    }

    /// What has to be done for it now. Its tick is untouched if certainly no cell was ever asked for its run.
    pub fn job(&self, world: World<'_>, now: Timestamp, untouched: bool) -> Job {
        if let Some(retired_at) = self.retired_at() {
            return if retired_at.plus_millis(RETIRED_MS) <= now { Job::Forget } else { Job::Wait };
        }
        if let Some(Triggered { mark, to, .. }) = self.triggered.first() {
            return Job::Start { tick: TickId::Triggered(mark.clone()), to: to.clone() };
        }
        let is_due = self.is_tick_due(now);
        let job = if is_due { self.next_job(world, now, untouched) } else { Ok(Job::Wait) };
        let job = match job {
            Ok(Job::Wait) => self.job_again(world),
            other => other,
        };
        let job = match job {
            Ok(Job::Wait) if is_due && self.is_held() && self.look_at().is_some_and(|at| at <= now) => {
                Ok(Job::Look(self.looked_at()))
            }
            other => other,
        };
        // The rules of its zone are gone, or its text was written by a later release.
        job.unwrap_or_else(|bad| Job::Store(Box::new(self.stopped(now, bad.0))))
    }

    /// The runs that are asked at once whether they have ended: those that were started first.
    pub fn looked_at(&self) -> Vec<RunId> {
        self.running.iter().take(LOOKS_MAX).cloned().collect()
    }

    /// About the tick that is due.
    fn next_job(&self, world: World<'_>, now: Timestamp, untouched: bool) -> Result<Job, BadSpec> {
        let plan = self.plan(world)?;
        let no_zone = |error: NoZone| BadSpec(error.to_string());
        let mut this = self.clone();
        for _ in 0..PASSES_MAX {
            let Some(next) = this.next.clone() else { break };
            if this.tick_due_at().is_none_or(|due_at| due_at > now) {
                break;
            }
            // The next turn goes on from what is stored.
            if world.effort.is_spent() && this != *self {
                break;
            }
            let (at, to) = match next {
                Upcoming::Look { at } => {
                    this.next = this.upcoming(world, &plan, at).map_err(no_zone)?;
                    continue;
                }
                Upcoming::Tick { at, to } => (at, to),
            };
            let after = this.upcoming(world, &plan, at).map_err(no_zone)?;
            // What is passed over here has no run: the tick of the row may have one, those after it were never asked for.
            let give_up = (!untouched && this.next == self.next)
                .then(|| Job::GiveUp { tick: TickId::At(at), to: to.clone() });
            if let Some(until) = this.left_out {
                if let Some(give_up) = give_up {
                    return Ok(give_up);
                }
                this.left_out = None;
                this.next = this.upcoming(world, &plan, until.max(at)).map_err(no_zone)?;
                continue;
            }
            if this.is_missed(at, after.as_ref(), now) {
                if let Some(give_up) = give_up {
                    return Ok(give_up);
                }
                this.counts.missed = this.counts.missed.saturating_add(1);
                this.next = after;
                continue;
            }
            // Those that wait for a run to end, or end it, are there for the latest.
            let is_replaced = is_due(after.as_ref(), this.slot_ms(), now)
                && matches!(this.spec.overlap, Overlap::QueueOne | Overlap::Cancel);
            if !is_replaced {
                // The row is the intent: what was passed over is stored before anybody is asked for anything.
                let is_stored = this == *self;
                match this.spec.overlap {
                    _ if !this.is_held() && is_stored => return Ok(Job::Start { tick: TickId::At(at), to }),
                    _ if !this.is_held() => break,
                    Overlap::Skip => {}
                    Overlap::Cancel if is_stored => return Ok(Job::Cancel(this.running)),
                    Overlap::Allow | Overlap::QueueOne | Overlap::QueueAll | Overlap::Cancel => break,
                }
            }
            if let Some(give_up) = give_up {
                return Ok(give_up);
            }
            this.counts.skipped = this.counts.skipped.saturating_add(1);
            this.next = after;
        }
        Ok(if this == *self { Job::Wait } else { Job::Store(Box::new(this)) })
    }

    /// Whether a tick that is due comes too late to start a run.
    fn is_missed(&self, at: Timestamp, after: Option<&Upcoming>, now: Timestamp) -> bool {
        let starts_at = at.plus_millis(self.slot_ms());
        if starts_at.plus_millis(self.spec.catch_up_ms.max(MINUTE_MS)) < now {
            return true;
        }
        let is_late = starts_at.plus_millis(MINUTE_MS) < now;
        let waits = self.spec.overlap == Overlap::QueueAll;
        is_late && is_due(after, self.slot_ms(), now) && self.spec.catch_up == CatchUp::Last && !waits
    }

    /// Whether a tick has neither started a run nor been given up.
    pub fn awaits(&self, tick: &TickId) -> bool {
        match tick {
            TickId::At(at) => matches!(&self.next, Some(Upcoming::Tick { at: next, .. }) if next == at),
            TickId::Triggered(mark) => self.triggered.iter().any(|triggered| triggered.mark == *mark),
            TickId::Again(number, at) => self.again.as_ref().is_some_and(|again| {
                again.number == *number
                    && matches!(&again.next, Upcoming::Tick { at: next, .. } if next == at)
            }),
        }
    }

    /// The same after a tick that it awaits.
    fn past(&self, world: World<'_>, now: Timestamp, tick: &TickId) -> Self {
        let mut this = self.clone();
        let passed = match tick {
            TickId::At(at) => this.plan(world).and_then(|plan| {
                let after = this.left_out.take().map_or(*at, |until| until.max(*at));
                this.next = this.upcoming(world, &plan, after).map_err(|error| BadSpec(error.to_string()))?;
                Ok(())
            }),
            TickId::Triggered(mark) => {
                this.triggered.retain(|triggered| triggered.mark != *mark);
                this.marks.push(mark.clone());
                let surplus = this.marks.len().saturating_sub(TRIGGERS_MAX);
                this.marks.drain(..surplus);
                Ok(())
            }
            TickId::Again(_, at) => match this.again.take() {
                Some(again) => this.again_after(world, &again, *at, 1).map(|left| this.again = left),
                None => Ok(()),
            },
        };
        match passed {
            Ok(()) => this,
            Err(bad) => this.stopped(now, bad.0),
        }
    }

    /// The run of a tick is started.
    #[must_use]
    pub fn started(&self, world: World<'_>, now: Timestamp, tick: &TickId, run: RunId) -> Self {
        let hears = self.wants_to_hear();
        let mut this = self.past(world, now, tick);
        this.counts.started = this.counts.started.saturating_add(1);
        let due = match tick {
            TickId::At(at) | TickId::Again(_, at) => *at,
            TickId::Triggered(_) => now,
        };
        this.last = Some(LastTick { tick: due, at: now, run: run.clone() });
        if hears {
            this.running.push(run);
        }
        this
    }

    /// A tick that it awaits has no run, and never will.
    #[must_use]
    pub fn given_up(&self, world: World<'_>, now: Timestamp, tick: &TickId) -> Self {
        let mut this = self.past(world, now, tick);
        if self.left_out.is_some() {
            return this;
        }
        let is_missed = matches!(tick, TickId::At(at) if self.is_missed(*at, this.next.as_ref(), now));
        let count = if is_missed { &mut this.counts.missed } else { &mut this.counts.skipped };
        *count = count.saturating_add(1);
        this
    }

    /// The run of a tick was refused for good.
    #[must_use]
    pub fn refused(&self, world: World<'_>, now: Timestamp, tick: &TickId) -> Self {
        let mut this = self.past(world, now, tick);
        this.counts.refused = this.counts.refused.saturating_add(1);
        this
    }

    /// One of its runs has ended.
    #[must_use]
    pub fn ended(&self, now: Timestamp, run: &RunId, how: Status) -> Self {
        let mut this = self.clone();
        this.running.retain(|running| running != run);
        if how == Status::Completed {
            this.counts.failures = 0;
        } else if how == Status::Failed {
            this.counts.failures = this.counts.failures.saturating_add(1);
            let is_enough = this.spec.pause_after_failures.is_some_and(|max| this.counts.failures >= max);
            if is_enough && this.paused.is_none() {
                let why = format!("{} runs in a row have failed.", this.counts.failures);
                return this.stopped(now, why);
            }
        }
        this
    }

    /// Paused by Stepwell itself.
    pub(super) fn stopped(&self, now: Timestamp, why: String) -> Self {
        let paused = PausedSchedule { at: now, by: format!("schedule:{}", self.id), why: Some(why) };
        Self { paused: Some(paused), again: None, ..self.clone() }
    }

    /// Paused by a person.
    #[must_use]
    pub fn paused(&self, now: Timestamp, by: String) -> Self {
        if self.paused.is_some() {
            return self.clone();
        }
        Self { paused: Some(PausedSchedule { at: now, by, why: None }), ..self.clone() }
    }

    /// Ticking again. What would have been due meanwhile is left out, but for a tick that may have a run.
    pub fn resumed(&self, world: World<'_>, now: Timestamp, untouched: bool) -> Result<Self, BadSpec> {
        if self.paused.is_none() {
            return Ok(self.clone());
        }
        let plan = self.plan(world)?;
        let mut this = Self { paused: None, ..self.clone() };
        this.counts.failures = 0;
        if this.tick_due_at().is_some_and(|at| at <= now) {
            if untouched || !matches!(this.next, Some(Upcoming::Tick { .. })) {
                this.next = this.upcoming(world, &plan, now).map_err(|error| BadSpec(error.to_string()))?;
                this.left_out = None;
            } else {
                this.left_out = Some(now);
            }
        }
        Ok(this)
    }

    /// With a tick more, at once. The same mark is the same tick.
    pub fn triggered(&self, world: World<'_>, now: Timestamp, mark: String) -> Result<Self, Problem> {
        let is_known = self.triggered.iter().any(|known| known.mark == mark) || self.marks.contains(&mark);
        if is_known {
            return Ok(self.clone());
        }
        if self.triggered.len() >= TRIGGERS_MAX {
            let detail = format!(
                "{TRIGGERS_MAX} triggered runs of this schedule have not started yet. Try again later."
            );
            return Err(Problem::new(Code::TooMany, detail));
        }
        let to = self.home(world, &TickId::Triggered(mark.clone()));
        let mut this = self.clone();
        this.triggered.push(Triggered { mark, at: now, to });
        Ok(this)
    }
}

/// Whether a tick is due.
fn is_due(next: Option<&Upcoming>, slot_ms: u64, now: Timestamp) -> bool {
    match next {
        Some(Upcoming::Tick { at, .. }) => at.plus_millis(slot_ms) <= now,
        Some(Upcoming::Look { .. }) | None => false,
    }
}
