//! The cell's one alarm: never later than the earliest time at which a run is due.
//!
//! It is only ever armed earlier, and looks for the next time when it fires. While a program is called it is
//! also the dead man's switch: if the instance dies, the alarm wakes the next one, which finds the calls gone.

use stepwell_protocol::Timestamp;

use super::{ALARM_SLICE, Cell, DEAD_MAN_MS, Fault, Order, Rows, queued::Nudges};
use crate::run::{Input, Phase, Run, Session};

/// How many runs one alarm may fail to take up before it gives up.
const FAILURES_MAX: usize = 8;

impl Cell {
    /// The alarm has fired: takes up what is due and arms the next alarm. Programs are called after that,
    /// by the orders: an alarm that waited for one would keep all others waiting.
    pub fn alarm<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.calls_made = 0;
        self.armed = None;
        self.repaired = true;
        let taken = self.end_silent_calls(rows, now).and(self.take_up_due(rows, now));
        self.dispatch(rows, now);
        self.nudge_due(now);
        // After whatever has to go on.
        let deleted = self.delete_slice(rows, now);
        let armed = self.arm_next(rows, now);
        if taken.is_err() || deleted.is_err() || armed.is_err() {
            self.look_again(now);
        }
        taken.and(deleted).and(armed)
    }

    /// A request has come. A fresh instance trusts rows, not alarms: one may have been lost. An instance that an
    /// alarm has loaded looks at all rows anyway.
    pub fn repair<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<R::Error>> {
        self.calls_made = 0;
        if self.repaired {
            return Ok(());
        }
        let now = self.now(clock);
        if let Some(first) = rows.wake_after((Timestamp::default(), 0)).map_err(Fault::Storage)? {
            // A platform that has lost the alarm, and does not know, does nothing about one that is set for the same
            // time again. It may fire a moment early, and is then set for the right time.
            let is_known = self.found.take() == Some(first);
            let at = if is_known { Timestamp::from_millis(first.as_millis() - 1) } else { first };
            self.arm_by(now, at);
        }
        self.repaired = true;
        Ok(())
    }

    /// Makes sure that the alarm fires by then.
    pub(super) fn arm_by(&mut self, now: Timestamp, at: Timestamp) {
        // An alarm armed from within an alarm for the very millisecond that fires would be lost.
        let soonest = now.plus_millis(1);
        // After an alarm that could not be set, an earlier one of another run must not be replaced.
        let at = if std::mem::take(&mut self.arm_at_once) { soonest } else { at.max(soonest) };
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            self.orders.push(Order::Arm(at));
        }
    }

    fn take_up_due<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let due = rows.due(self.scanned, now, ALARM_SLICE).map_err(Fault::Storage)?;
        let is_all = due.len() < ALARM_SLICE;
        let mut failures = Failures::default();
        for (wake_at, number) in due {
            // One run that the storage fails for must not keep those behind it waiting.
            failures.note(self.take_up(rows, now, number))?;
            self.scanned = (wake_at, number);
        }
        if is_all {
            // Whatever is recorded from now on is due at a later time than this.
            self.scanned = (now, u64::MAX);
        }
        // Runs at work are in the rows by when they began; what they wait for besides is only here.
        let at_work: Vec<_> =
            self.runs.iter().filter(|(_, run)| is_due(run, now)).map(|(number, _)| *number).collect();
        for number in at_work {
            failures.note(self.take_up(rows, now, number))?;
        }
        failures.first.map_or(Ok(()), Err)
    }

    pub(super) fn take_up<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
    ) -> Result<(), Fault<R::Error>> {
        let run = match self.runs.get(&number) {
            Some(run) => run.clone(),
            None => match self.load_or_quarantine(rows, number)? {
                Some(run) => run,
                None => return Ok(()),
            },
        };
        match run.phase {
            Phase::Running { session: Session::Capability, .. } if !self.window.holds(number, run.epoch) => {
                self.drive_run(rows, now, run, None, |_| Input::Reload)?;
            }
            Phase::Running { session: Session::Token, lease: None, .. } => {
                self.drive_run(rows, now, run, None, |_| Input::Reload)?;
            }
            Phase::Running { .. } if !is_due(&run, now) => {}
            Phase::Ended { .. } => self.set_aside(number),
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } => {
                self.drive_run(rows, now, run, None, |slot| Input::Wake { slot })?;
            }
        }
        Ok(())
    }

    fn arm_next<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let in_rows = rows.wake_after(self.scanned).map_err(Fault::Storage)?;
        let at_work = self.runs.values().filter_map(|run| next_look(now, run)).min();
        let nudge = self.queue.as_ref().and_then(Nudges::next);
        // A cell that holds calls has a turn so often, or it could not tell a silent call from a time that it slept through.
        let silence = self.window.next_silence().map(|at| at.min(now.plus_millis(DEAD_MAN_MS)));
        if let Some(next) = [in_rows, at_work, nudge, silence].into_iter().flatten().min() {
            self.arm_by(now, next);
        }
        Ok(())
    }
}

/// Runs that one alarm could not take up.
struct Failures<E> {
    first: Option<Fault<E>>,
    left: usize,
}

impl<E> Default for Failures<E> {
    fn default() -> Self {
        Self { first: None, left: FAILURES_MAX }
    }
}

impl<E> Failures<E> {
    /// Keeps a failure for later, unless there were too many: then it is not a run's, but the storage's.
    fn note(&mut self, taken: Result<(), Fault<E>>) -> Result<(), Fault<E>> {
        let Err(fault) = taken else { return Ok(()) };
        if self.left == 0 {
            return Err(fault);
        }
        self.left -= 1;
        self.first.get_or_insert(fault);
        Ok(())
    }
}

/// When the cell has to look at a run again.
pub(super) fn next_look(now: Timestamp, run: &Run) -> Option<Timestamp> {
    match run.phase {
        // Should the instance die, the alarm tells the next one of a call that is gone; a lease has its own end.
        Phase::Running { lease, .. } => {
            let dead_man = lease.unwrap_or_else(|| now.plus_millis(DEAD_MAN_MS));
            [run.next_due(), Some(dead_man)].into_iter().flatten().min()
        }
        // It waits for a place, and is called by whatever frees one; but only this instance knows of it.
        Phase::Pending { not_before } if not_before <= now => Some(now.plus_millis(DEAD_MAN_MS)),
        Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
            run.wake_at()
        }
    }
}

/// Whether something that a run at work waits for is over.
fn is_due(run: &Run, now: Timestamp) -> bool {
    match run.phase {
        Phase::Running { lease, .. } => [run.next_due(), lease].into_iter().flatten().any(|at| at <= now),
        Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => false,
    }
}
