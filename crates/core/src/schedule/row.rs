//! One schedule: its row, and what becomes of its ticks. Decides; never writes.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Place, Problem, RunId, Timestamp,
    rest::Status,
    schedule::{
        Backfill, CatchUp, LastTick, Overlap, PausedSchedule, ScheduleSpec, ScheduleView, TickCounts, TickId,
    },
};

use super::{BadSpec, Next, NoZone, Plan, Zones, spread};
use crate::pools::Pool;

/// How late a tick is that has been missed. Whatever is less late is only slow.
pub const MINUTE_MS: u64 = 60_000;

/// How many ticks a schedule passes over at once; its row says how far it has come.
const PASSES_MAX: usize = 1_000;

/// The most runs that a schedule knows of at once: beyond that, it does not ask to be told of their ends.
pub const RUNNING_MAX: usize = 100;

/// The most ticks that are triggered and have not started a run, and how many are remembered that have.
pub const TRIGGERS_MAX: usize = 16;

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
    /// How many such ranges there were.
    #[serde(default)]
    pub ranges: u64,
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
    fn at(&self) -> Timestamp {
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
}

/// What a schedule goes by.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The rules of time zones.
    pub zones: &'a dyn Zones,
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
    /// Cancel its runs: a tick waits for their ends.
    Cancel(Vec<RunId>),
    /// Store what it is by now.
    Store(Box<Schedule>),
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
        let mut new = Self {
            id,
            spec,
            created_at: now,
            changed_at: now,
            changed_by: by,
            paused: None,
            next: None,
            triggered: Vec::new(),
            marks: Vec::new(),
            again: None,
            ranges: 0,
            running: Vec::new(),
            last: None,
            counts: TickCounts::default(),
        };
        new.next = new.upcoming(world, &plan, now).map_err(|error| BadSpec(error.to_string()))?;
        if new.next.is_none() {
            let detail =
                format!("'{}' never comes: its time is over, or all of it is left out.", new.spec.when);
            return Err(BadSpec(detail));
        }
        Ok(new)
    }

    /// The same with something else to do. A tick that is due stays: it may be under way.
    pub fn changed(
        &self,
        world: World<'_>,
        now: Timestamp,
        spec: ScheduleSpec,
        by: String,
    ) -> Result<Self, BadSpec> {
        let new = Self::new(world, now, self.id.clone(), spec, by)?;
        let is_due = self.tick_due_at().is_some_and(|at| at <= now) && self.paused.is_none();
        let next = if is_due { self.next.clone() } else { new.next.clone() };
        let running = if new.tracks() { self.running.clone() } else { Vec::new() };
        Ok(Self {
            spec: new.spec,
            changed_at: now,
            changed_by: new.changed_by,
            next,
            running,
            ..self.clone()
        })
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
        let triggered = self.triggered.first().map(|triggered| triggered.at);
        let again = self.again.as_ref().filter(|_| !self.is_held()).map(|_| self.changed_at);
        let waits = match self.spec.overlap {
            Overlap::Allow | Overlap::Skip | Overlap::Cancel => false,
            Overlap::QueueOne | Overlap::QueueAll => self.is_held(),
        };
        let next = self.tick_due_at().filter(|_| self.paused.is_none() && !waits);
        [triggered, again, next].into_iter().flatten().min()
    }

    /// Whether a run has to end before the next one starts.
    fn is_held(&self) -> bool {
        self.spec.overlap != Overlap::Allow && !self.running.is_empty()
    }

    /// When the run of its next tick starts, whether it is paused or not.
    fn tick_due_at(&self) -> Option<Timestamp> {
        self.next.as_ref().map(|next| match next {
            Upcoming::Tick { at, .. } => at.plus_millis(self.slot_ms()),
            Upcoming::Look { at } => *at,
        })
    }

    /// What is next after an instant.
    fn upcoming(&self, world: World<'_>, plan: &Plan, after: Timestamp) -> Result<Option<Upcoming>, NoZone> {
        Ok(match plan.next_after(world.zones, after)? {
            Next::At(at) => Some(Upcoming::Tick { at, to: self.home(world, &TickId::At(at)) }),
            Next::NotUpTo(at) => Some(Upcoming::Look { at }),
            Next::Never => None,
        })
    }

    /// The cell that gets the run of a tick. Stored with the tick: it stays the same when the pool grows.
    fn home(&self, world: World<'_>, tick: &TickId) -> Place {
        world.pool.any(spread(&format!("{}\n{tick}", self.id)))
    }

    fn plan(&self, world: World<'_>) -> Result<Plan, BadSpec> {
        Plan::read(&self.spec, world.zones)
    }

    /// What has to be done for it now.
    pub fn job(&self, world: World<'_>, now: Timestamp) -> Job {
        if let Some(Triggered { mark, to, .. }) = self.triggered.first() {
            return Job::Start { tick: TickId::Triggered(mark.clone()), to: to.clone() };
        }
        let is_due = self.paused.is_none() && self.tick_due_at().is_some_and(|at| at <= now);
        let job = if is_due { self.next_job(world, now) } else { Ok(Job::Wait) };
        let job = match job {
            Ok(Job::Wait) => self.job_again(world),
            other => other,
        };
        // The rules of its zone are gone, or its text was written by a later release.
        job.unwrap_or_else(|bad| Job::Store(Box::new(self.stopped(now, bad.0))))
    }

    /// About the tick that is due.
    fn next_job(&self, world: World<'_>, now: Timestamp) -> Result<Job, BadSpec> {
        let plan = self.plan(world)?;
        let no_zone = |error: NoZone| BadSpec(error.to_string());
        let mut this = self.clone();
        for _ in 0..PASSES_MAX {
            let Some(next) = this.next.clone() else { break };
            if this.tick_due_at().is_none_or(|due_at| due_at > now) {
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
            if this.is_missed(at, after.as_ref(), now) {
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

    /// About the range that is started again.
    fn job_again(&self, world: World<'_>) -> Result<Job, BadSpec> {
        let Some(again) = self.again.as_ref().filter(|_| !self.is_held()) else { return Ok(Job::Wait) };
        match &again.next {
            Upcoming::Tick { at, to } => {
                Ok(Job::Start { tick: TickId::Again(again.number, *at), to: to.clone() })
            }
            Upcoming::Look { at } => {
                let mut this = self.clone();
                this.again = this.again_after(world, again, *at)?;
                Ok(Job::Store(Box::new(this)))
            }
        }
    }

    /// What is left of a range after an instant.
    fn again_after(
        &self,
        world: World<'_>,
        again: &Again,
        after: Timestamp,
    ) -> Result<Option<Again>, BadSpec> {
        let plan = self.plan(world)?;
        let next = self.upcoming(world, &plan, after).map_err(|error| BadSpec(error.to_string()))?;
        let next = next.filter(|next| next.at() <= again.range.to);
        Ok(next.map(|next| Again { next, ..again.clone() }))
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
                this.next = this.upcoming(world, &plan, *at).map_err(|error| BadSpec(error.to_string()))?;
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
                Some(again) => this.again_after(world, &again, *at).map(|left| this.again = left),
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
    fn stopped(&self, now: Timestamp, why: String) -> Self {
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

    /// Ticking again. What would have been due meanwhile is left out.
    pub fn resumed(&self, world: World<'_>, now: Timestamp) -> Result<Self, BadSpec> {
        if self.paused.is_none() {
            return Ok(self.clone());
        }
        let plan = self.plan(world)?;
        let mut this = Self { paused: None, ..self.clone() };
        this.counts.failures = 0;
        if this.tick_due_at().is_some_and(|at| at <= now) {
            this.next = this.upcoming(world, &plan, now).map_err(|error| BadSpec(error.to_string()))?;
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

    /// With a range of ticks to be started again.
    pub fn backfilled(&self, world: World<'_>, now: Timestamp, range: Backfill) -> Result<Self, Problem> {
        if self.again.is_some() {
            let detail = "A backfill of this schedule is under way. Wait until it is done.";
            return Err(Problem::new(Code::WrongStatus, detail));
        }
        if range.to < range.from || range.to > now {
            let detail = "A backfill goes from an instant to a later one that is not in the future.";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let mut this = Self { ranges: self.ranges + 1, changed_at: now, ..self.clone() };
        let empty = Again { number: this.ranges, range, next: Upcoming::Look { at: range.from } };
        let before = Timestamp::from_millis(range.from.as_millis().saturating_sub(1));
        this.again = this.again_after(world, &empty, before)?;
        if this.again.is_none() {
            let detail = "The schedule does not tick in this range.";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        Ok(this)
    }

    /// Its next ticks after an instant, at most so many.
    pub fn next_ticks(
        &self,
        world: World<'_>,
        now: Timestamp,
        count: usize,
    ) -> Result<Vec<Timestamp>, BadSpec> {
        let plan = self.plan(world)?;
        let (mut ticks, mut after) = (Vec::new(), now);
        if let Some(Upcoming::Tick { at, .. }) = &self.next
            && *at <= now
            && self.paused.is_none()
        {
            ticks.push(*at);
        }
        // Some of the looks may find nothing.
        for _ in 0..count.saturating_mul(2) {
            if ticks.len() >= count {
                break;
            }
            match plan.next_after(world.zones, after).map_err(|error| BadSpec(error.to_string()))? {
                Next::At(at) => {
                    ticks.push(at);
                    after = at;
                }
                Next::NotUpTo(at) => after = at,
                Next::Never => break,
            }
        }
        Ok(ticks)
    }

    /// As people see it.
    pub fn view(&self, problem: Option<Problem>) -> ScheduleView {
        let next_tick = match &self.next {
            Some(Upcoming::Tick { at, .. }) if self.paused.is_none() => Some(*at),
            Some(Upcoming::Tick { .. } | Upcoming::Look { .. }) | None => None,
        };
        ScheduleView {
            id: self.id.clone(),
            spec: self.spec.clone(),
            created_at: self.created_at,
            changed_at: self.changed_at,
            changed_by: self.changed_by.clone(),
            paused: self.paused.clone(),
            next_tick,
            next_start: next_tick.map(|at| at.plus_millis(self.slot_ms())),
            running: self.running.clone(),
            last: self.last.clone(),
            counts: self.counts,
            backfill: self.again.as_ref().map(|again| again.range),
            problem,
        }
    }
}

/// Whether a tick is due.
fn is_due(next: Option<&Upcoming>, slot_ms: u64, now: Timestamp) -> bool {
    match next {
        Some(Upcoming::Tick { at, .. }) => at.plus_millis(slot_ms) <= now,
        Some(Upcoming::Look { .. }) | None => false,
    }
}
