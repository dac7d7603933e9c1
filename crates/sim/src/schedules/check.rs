//! What must hold of schedules: what operators were told, which runs cells have started, and what is on disk.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::schedule::{LOOK_MS, MINUTE_MS, Schedule, TickStart, Upcoming};
use stepwell_protocol::{
    RunId, Timestamp,
    schedule::{CatchUp, Overlap, ScheduleSpec, TickId, Ticked},
};

use super::rows::Table;
use crate::{check::Checked, host::is_long_past};

/// How far behind a schedule may be at the end: it may be asking a cell again.
const BEHIND_MS: u64 = 130_000;

/// A run that a cell has started.
#[derive(Clone, Debug)]
pub struct Started {
    /// By what.
    pub ticked: Ticked,
    /// Whether it has ended.
    pub ended: bool,
}

/// What is known beside the rows.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What each schedule is to do. Never changes.
    pub specs: BTreeMap<String, ScheduleSpec>,
    /// The runs, by id.
    pub runs: BTreeMap<String, Started>,
    /// The run of each tick.
    ticks: BTreeMap<(String, TickId), RunId>,
    /// Those that an operator knows to be paused.
    pub paused: BTreeSet<String>,
    /// Those that somebody has begun to resume.
    pub resumed: BTreeSet<String>,
    /// Those that somebody has paused, triggered or retired at any time: their ticks do not add up.
    pub touched: BTreeSet<String>,
    /// Those that the catalog knows to be retired.
    pub retired: BTreeSet<String>,
}

impl Model {
    /// A cell is about to be asked for a run.
    pub fn asks(&mut self, start: &TickStart, clock: Timestamp, latest: Timestamp) -> Checked {
        let Ticked { schedule, tick, .. } = &start.ticked;
        let TickId::At(at) = tick else { return Ok(()) };
        // That starts nothing.
        if start.given_up {
            return Ok(());
        }
        let spec = self.specs.get(schedule);
        if *at > latest {
            return Err(("10 a tick is never early", format!("{schedule} {tick}")));
        }
        if self.paused.contains(schedule) {
            return Err(("13 a paused schedule does not tick", format!("{schedule} {tick}")));
        }
        if self.retired.contains(schedule) {
            return Err(("13 a retired schedule does not tick", format!("{schedule} {tick}")));
        }
        let window_ms = spec.map_or(u64::MAX, |spec| spec.catch_up_ms).max(MINUTE_MS);
        if at.plus_millis(window_ms) < clock {
            return Err(("13 a tick is not started after its window", format!("{schedule} {tick}")));
        }
        Ok(())
    }

    /// A cell has started a run, or found it, while its schedule knows that these are running.
    pub fn started(&mut self, ticked: &Ticked, run: &RunId, running: &[RunId]) -> Checked {
        let (schedule, tick) = (ticked.schedule.clone(), ticked.tick.clone());
        let before = self.ticks.insert((schedule.clone(), tick.clone()), run.clone());
        if before.as_ref().is_some_and(|before| before != run) {
            return Err(("13 a tick starts at most one run", format!("{schedule} {tick}")));
        }
        if let Some(known) = self.runs.get(&run.to_string()) {
            if known.ticked.tick != tick || known.ticked.schedule != schedule {
                let detail = format!("{schedule} {tick} has the run of {}", known.ticked.tick);
                return Err(("13 a tick has a run of its own", detail));
            }
            return Ok(());
        }
        let is_exclusive = self.specs.get(&schedule).is_some_and(|spec| spec.overlap != Overlap::Allow);
        // Whoever pauses a schedule gives up its tick, whether a cell was asked for it or not.
        let is_whole = !self.touched.contains(&schedule);
        let is_beside = |id: &str| is_whole || running.iter().any(|running| running.to_string() == id);
        let mut others =
            self.runs.iter().filter(|(_, known)| known.ticked.schedule == schedule && !known.ended);
        if is_exclusive && matches!(tick, TickId::At(_)) && others.any(|(id, _)| is_beside(id)) {
            return Err(("13 runs of a schedule overlap only if they may", format!("{schedule} {tick}")));
        }
        self.runs.insert(run.to_string(), Started { ticked: ticked.clone(), ended: false });
        Ok(())
    }

    /// The alarm is never later than what is due.
    pub fn alarm(table: &Table, alarm: Option<Timestamp>, latest: Timestamp) -> Checked {
        for (id, due) in table.due() {
            let Some(due) = due else { continue };
            // What is due is under way, or tried again: the longest pause is a minute, and more if a run is in the way that
            // was asked whether it has ended.
            let is_held = table.get(id).is_some_and(|row| !row.running.is_empty());
            let pause_ms = if is_held { LOOK_MS + 1_000 } else { 61_000 };
            let by = if due > latest { due } else { latest.plus_millis(pause_ms) };
            if alarm.is_none_or(|alarm| alarm > by) {
                let detail = format!(
                    "{id} is due at {}, the alarm is set to {:?}, the time is {}",
                    due.as_millis(),
                    alarm.map(Timestamp::as_millis),
                    latest.as_millis()
                );
                return Err(("12 the alarm is never later than what is due", detail));
            }
        }
        Ok(())
    }

    /// Everything has been well for long.
    pub fn at_rest(&self, table: &Table, latest: Timestamp) -> Checked {
        for (id, spec) in &self.specs {
            let Some(row) = table.get(id) else { continue };
            Self::keeps_up(&row, spec, latest)?;
            if !self.touched.contains(id) {
                self.adds_up(&row, spec)?;
            }
        }
        Ok(())
    }

    fn keeps_up(row: &Schedule, spec: &ScheduleSpec, latest: Timestamp) -> Checked {
        let is_active = row.paused.is_none() && row.retired_at().is_none();
        // Those that queue ticks may be behind for long, if their runs take longer than a tick or nobody tells of an end;
        // but they go on.
        let goes_on_by = BEHIND_MS + 2 * LOOK_MS;
        let last = row.last.as_ref().map(|last| last.at.plus_millis(goes_on_by));
        let queues = matches!(spec.overlap, Overlap::QueueAll | Overlap::QueueOne);
        let is_busy = queues && last.is_some_and(|at| at > latest);
        match &row.next {
            Some(Upcoming::Tick { at, .. })
                if is_active
                    && !is_busy
                    && is_long_past(at.plus_millis(BEHIND_MS + interval_ms(spec)), latest) =>
            {
                let detail = format!(
                    "{} stands at {}, it is {}: {:?}, running {:?}, last {:?}",
                    row.id,
                    at.as_millis(),
                    latest.as_millis(),
                    spec.overlap,
                    row.running,
                    row.last
                );
                Err(("13 a schedule ticks again once all is well", detail))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Each tick that a schedule is past is accounted for, and those that it says to have started have runs.
    fn adds_up(&self, row: &Schedule, spec: &ScheduleSpec) -> Checked {
        let Some(Upcoming::Tick { at: next, .. }) = &row.next else { return Ok(()) };
        let step = interval_ms(spec);
        let passed = next.as_millis() / step - row.created_at.as_millis() / step - 1;
        let counts = &row.counts;
        let counted = counts.started + counts.skipped + counts.missed + counts.refused;
        if counted != passed {
            let detail = format!("{}: {passed} ticks are over, {counts:?}", row.id);
            return Err(("13 each tick starts a run, is skipped or is missed", detail));
        }
        let runs = self.ticks.keys().filter(|(schedule, _)| *schedule == row.id).count() as u64;
        // Some may have been started whose answers have not come.
        if runs < counts.started {
            let detail = format!("{}: {runs} runs, {counts:?}", row.id);
            return Err(("13 a tick that counts as started has a run", detail));
        }
        if spec.catch_up == CatchUp::All
            && spec.overlap == Overlap::Allow
            && counts.missed > 0
            && is_wide(spec)
        {
            return Err(("13 missed ticks follow the policy", format!("{}: {counts:?}", row.id)));
        }
        Ok(())
    }
}

/// Whether no outage of a world is longer than the window.
fn is_wide(spec: &ScheduleSpec) -> bool {
    spec.catch_up_ms >= 86_400_000
}

fn interval_ms(spec: &ScheduleSpec) -> u64 {
    let seconds: u64 = spec.when.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    seconds * 1_000
}
