//! What has happened to the runs of a cell, in numbers that only grow.
//!
//! A row for each count would be one more row for every run. So they are gathered in memory, and stored about once a
//! minute beside something that is stored anyway, or when the cell has come to rest. An instance that dies takes what it
//! has not stored with it: the numbers miss something then, and never go back. One that a panic stops leaves it to the
//! next.
//!
//! Each minute has a row of what has happened in it. All together are one row, as of some minute, and the rows since.

use std::fmt;

use stepwell_protocol::{
    Code, Event, Outcome, Timestamp,
    schedule::TickId,
    totals::{Durations, LATE_BOUNDS_MS, Minute, RUN_BOUNDS_MS, STEP_BOUNDS_MS, Totals},
};

use super::{Cell, Rows};
use crate::{
    object::{DEAD_MAN_MS, Fault, Hosted as _},
    ordered::OrdMap,
    run::{Entry, PauseWhy, Phase, Run, Trouble},
};

const MINUTE_MS: u64 = 60_000;

/// How many minutes are kept one by one: a day.
pub const MINUTES_KEPT: u64 = 1_440;

/// After how many minutes those before are added up.
const ADDED_UP_AFTER: u64 = 60;

/// How many workflows are told apart. If there are more, the others are counted as one.
const WORKFLOWS_MAX: usize = 200;

/// What the others are called: no app's workflow is called so.
const OTHERS: &str = "stepwell.others";

/// Under which name is counted what belongs to no workflow: no app's workflow is called so.
pub const NO_WORKFLOW: &str = "stepwell.none";

/// How long a cell at rest waits until it stores again what few things have happened.
const REST_MS: u64 = 20_000;

/// What has happened, by workflow.
pub type Happened = OrdMap<String, Totals>;

/// Adds what has happened besides. Bounded, whatever workflows there ever were: it has to fit into a row.
pub fn add_happened(all: &mut Happened, more: &Happened) {
    for (workflow, more) in more {
        let is_known = all.contains_key(workflow) || all.len() < WORKFLOWS_MAX;
        all.get_or_default(if is_known { workflow } else { OTHERS }.to_owned()).add(more);
    }
}

/// What has happened and is not stored yet.
#[derive(Clone, Default)]
pub(super) struct Unstored {
    happened: Happened,
    stored_at: Option<Timestamp>,
    /// As of which minute all before are added up, once that is known.
    added_up: Option<u64>,
}

/// Only what the alarm depends on: no run depends on how much was counted.
impl fmt::Debug for Unstored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unstored").field(&!self.happened.is_empty()).field(&self.stored_at).finish()
    }
}

impl Unstored {
    /// Counts something of a workflow. Each commit does: where there are counts of it, on these themselves.
    fn count(&mut self, workflow: &str, note: impl FnOnce(&mut Totals)) {
        if let Some(totals) = self.happened.get_mut(workflow) {
            return note(totals);
        }
        let mut totals = Totals::default();
        note(&mut totals);
        if totals != Totals::default() {
            add_happened(&mut self.happened, &[(workflow.to_owned(), totals)].into_iter().collect());
        }
    }

    fn is_late(&self, now: Timestamp) -> bool {
        self.stored_at.is_none_or(|at| at.plus_millis(MINUTE_MS) <= now)
    }
}

impl Cell {
    /// A run was started.
    pub(super) fn count_start(&mut self, run: &Run) {
        self.unstored_totals.count(&run.workflow, |totals| {
            totals.started += 1;
            totals.rows += u64::from(run.spent.rows);
            if let Some(TickId::At(due)) = run.ticked.as_ref().map(|ticked| &ticked.tick) {
                totals.tick_late_ms.note(&LATE_BOUNDS_MS, late_ms(*due, run.created_at));
            }
        });
    }

    /// Something was recorded of a run, which was like this before.
    pub(super) fn count_entries(&mut self, before: &Before, run: &Run, entries: &[Entry]) {
        // A deletion is no news: it would be stored as such, run after run.
        if entries.iter().all(|entry| matches!(entry, Entry::Expired | Entry::Emptied)) {
            return;
        }
        let rows = u64::from(run.spent.rows.saturating_sub(before.rows));
        let ran_ms = |at: Timestamp| at.as_millis().saturating_sub(run.life_began_at().as_millis());
        self.unstored_totals.count(&run.workflow, |totals| {
            totals.rows += rows;
            totals.timer_late_ms.add(&before.timer_late_ms);
            for entry in entries {
                count_entry(totals, before, entry, &ran_ms);
            }
        });
    }

    /// A request was refused by a limit. A flood of them writes nothing: they are stored with what happens to runs.
    pub(super) fn count_refusal(&mut self) {
        self.unstored_totals.count(NO_WORKFLOW, |totals| totals.refused += 1);
    }

    /// So many spans were left out, or did not reach the collector.
    pub fn count_lost_spans(&mut self, spans: u64) {
        self.unstored_totals.count(NO_WORKFLOW, |totals| totals.spans_lost += spans);
    }

    /// What was counted and is not stored.
    pub fn unstored(&self) -> &Happened {
        &self.unstored_totals.happened
    }

    /// Takes over what an earlier instance has counted and did not store.
    pub fn inherit_unstored(&mut self, happened: &Happened) {
        add_happened(&mut self.unstored_totals.happened, happened);
    }

    /// After a commit: a run that comes to rest is an occasion to store what was counted, or to see to it that it will be.
    pub(super) fn store_totals_beside<R: Rows>(&mut self, rows: &R, now: Timestamp, run: &Run) {
        let rests = match run.phase {
            Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => true,
            Phase::Pending { not_before } => not_before > now,
            // There is an alarm for it.
            Phase::Running { .. } => false,
        };
        if !rests || self.unstored_totals.happened.is_empty() {
            return;
        }
        if self.unstored_totals.is_late(now) {
            self.store_totals(rows, now);
        } else {
            self.object.arm_by(now, now.plus_millis(DEAD_MAN_MS));
        }
    }

    /// The alarm has fired: a cell at rest may be gone soon, with all that it has not stored. Says when it has to fire again.
    pub(super) fn store_totals_in_time<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Option<Timestamp> {
        if self.unstored_totals.happened.is_empty() {
            return None;
        }
        let pause_ms = if self.runs.is_empty() { REST_MS } else { MINUTE_MS };
        let due = self.unstored_totals.stored_at.map(|at| at.plus_millis(pause_ms));
        if due.is_none_or(|due| due <= now) {
            self.store_totals(rows, now);
        }
        due.filter(|due| *due > now)
    }

    /// No run waits for this: what could not be stored is stored the next time.
    fn store_totals<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        let Unstored { happened, stored_at, added_up } = &mut self.unstored_totals;
        *stored_at = Some(now);
        let stored = (|| {
            let now_minute = now.as_millis() / MINUTE_MS;
            let known = match *added_up {
                Some(known) => known,
                None => added_up_as_of(rows)?.unwrap_or(now_minute),
            };
            // A clock that has gone back adds to what is not added up yet.
            let minute = now_minute.max(known);
            rows.add_minute(minute, happened)?;
            *happened = OrdMap::new();
            *added_up = Some(known);
            if minute < known + ADDED_UP_AFTER {
                return Ok(());
            }
            let (from, mut all) = rows.totals()?;
            rows.each_minute(from, &mut |at, more| {
                if at < minute {
                    add_happened(&mut all, &more);
                }
            })?;
            rows.add_up(minute, &all, minute.saturating_sub(MINUTES_KEPT))?;
            *added_up = Some(minute);
            Ok::<(), R::Error>(())
        })();
        drop(stored);
    }

    /// All that was stored of what has ever happened.
    pub fn totals<R: Rows>(&self, rows: &R) -> Result<Happened, Fault<R::Error>> {
        let (from, mut all) = rows.totals().map_err(Fault::Storage)?;
        rows.each_minute(from, &mut |_, more| add_happened(&mut all, &more)).map_err(Fault::Storage)?;
        Ok(all)
    }

    /// What was stored of what has happened since a time.
    pub fn totals_since<R: Rows>(&self, rows: &R, since: Timestamp) -> Result<Happened, Fault<R::Error>> {
        let mut all = Happened::new();
        rows.each_minute(since.as_millis() / MINUTE_MS, &mut |_, more| add_happened(&mut all, &more))
            .map_err(Fault::Storage)?;
        Ok(all)
    }

    /// What was stored of each minute since a time, by when it began: of one workflow, or of all together.
    pub fn minutes<R: Rows>(
        &self,
        rows: &R,
        since: Timestamp,
        workflow: Option<&str>,
    ) -> Result<Vec<Minute>, Fault<R::Error>> {
        let mut minutes = Vec::new();
        let from = since.as_millis() / MINUTE_MS;
        let each = &mut |at: u64, happened: Happened| {
            let mut totals = Totals::default();
            for (name, more) in &happened {
                if workflow.is_none_or(|wanted| wanted == name) {
                    totals.add(more);
                }
            }
            if totals != Totals::default() {
                minutes.push(Minute { at: Timestamp::from_millis(at * MINUTE_MS), totals });
            }
        };
        rows.each_minute(from, each).map_err(Fault::Storage)?;
        Ok(minutes)
    }

    /// Since when the run has been due that has waited longest for a place, as far as it is in memory, and how many are at
    /// work. One that waits for its lane waits for others of its workflow, and not for a place.
    pub fn workload(&mut self, clock: Timestamp) -> (Option<Timestamp>, usize) {
        let now = self.now(clock);
        let due = self.runs.values().filter(|run| self.may_go(run)).filter_map(|run| match run.phase {
            Phase::Pending { not_before } => Some(not_before).filter(|at| *at <= now),
            Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => None,
        });
        let due = due.min();
        let at_work = self.runs.values().filter(|run| matches!(run.phase, Phase::Running { .. })).count();
        (due, at_work)
    }
}

/// What counting has to know of a run as it was before something was recorded of it.
pub(super) struct Before {
    rows: u32,
    trouble: Trouble,
    timer_late_ms: Durations,
}

impl Before {
    pub(super) fn of(run: &Run, entries: &[Entry]) -> Self {
        let mut timer_late_ms = Durations::default();
        for record in entries.iter().filter_map(Entry::record) {
            let Event::TimerFired { op, .. } = &record.event else { continue };
            let due = run.open.iter().find(|open| open.op == *op).and_then(|open| open.until);
            if let Some(due) = due {
                timer_late_ms.note(&LATE_BOUNDS_MS, late_ms(due, record.at));
            }
        }
        Self { rows: run.spent.rows, trouble: run.current_trouble(), timer_late_ms }
    }
}

fn late_ms(due: Timestamp, at: Timestamp) -> u64 {
    at.as_millis().saturating_sub(due.as_millis())
}

fn count_entry(totals: &mut Totals, before: &Before, entry: &Entry, ran_ms: &dyn Fn(Timestamp) -> u64) {
    let mut ended_at = None;
    if let Entry::Recorded { record, .. } = entry {
        count_event(totals, &record.event);
    } else if let Entry::Activated { .. } = entry {
        totals.activations += 1;
    } else if let Entry::Troubled(trouble) = entry {
        count_trouble(totals, &before.trouble, trouble);
    } else if let Entry::Paused(why) = entry {
        totals.paused += 1;
        if let PauseWhy::Problem(problem) = why {
            let is_diverged = problem.code == Code::Diverged;
            *(if is_diverged { &mut totals.diverged } else { &mut totals.stopped }) += 1;
        }
    } else if let Entry::Completed { at, .. } = entry {
        totals.completed += 1;
        ended_at = Some(*at);
    } else if let Entry::Failed { at, failure } = entry {
        totals.failed += 1;
        // The last death is not counted among its troubles any more.
        totals.deaths += u64::from(failure.code == Some(Code::ProgramDied));
        ended_at = Some(*at);
    } else if let Entry::Cancelled { at } = entry {
        totals.cancelled += 1;
        ended_at = Some(*at);
    }
    if let Some(at) = ended_at {
        totals.run_ms.note(&RUN_BOUNDS_MS, ran_ms(at));
    }
}

/// What is more in a run's troubles than there was.
fn count_trouble(totals: &mut Totals, before: &Trouble, after: &Trouble) {
    let died = |trouble: &Trouble| trouble.strikes + trouble.suspicion;
    totals.deaths += u64::from(died(after) > died(before) && after.losses <= before.losses);
    totals.losses += u64::from(after.losses > before.losses);
}

/// As of which minute all before are added up. Before that was ever done, there is nothing before the first one.
fn added_up_as_of<R: Rows>(rows: &R) -> Result<Option<u64>, R::Error> {
    let (from, _) = rows.totals()?;
    if from > 0 {
        return Ok(Some(from));
    }
    let mut first = None;
    rows.each_minute(0, &mut |at, _| first = first.or(Some(at)))?;
    Ok(first)
}

fn count_event(totals: &mut Totals, event: &Event) {
    match event {
        Event::StepFinished { outcome, took_ms, .. } => {
            match outcome {
                Outcome::Ok(_) => totals.steps += 1,
                Outcome::Err(_) => totals.steps_failed += 1,
            }
            if let Some(ms) = took_ms {
                totals.step_ms.note(&STEP_BOUNDS_MS, *ms);
            }
        }
        Event::StepRetrying { took_ms, .. } => {
            totals.retries += 1;
            if let Some(ms) = took_ms {
                totals.step_ms.note(&STEP_BOUNDS_MS, *ms);
            }
        }
        Event::SignalReceived { .. } => totals.signals += 1,
        Event::StepBegun { .. }
        | Event::StepLetIn { .. }
        | Event::TimerFired { .. }
        | Event::ChildInvoked { .. }
        | Event::ChildStarted { .. }
        | Event::ChildFinished { .. } => {}
    }
}
