//! The cell's one alarm: never later than the earliest time at which a run is due.
//!
//! It is only ever armed earlier, and looks for the next time when it fires. While a program is called it is
//! also the dead man's switch: if the instance dies, the alarm wakes the next one, which finds the calls gone.

use stepwell_protocol::Timestamp;

use super::{ALARM_SLICE, Cell, DEAD_MAN_MS, Fault, LOOK_AGAIN_MS, Order, Rows, queued::Nudges};
use crate::run::{Input, Phase, Run, Session};

impl Cell {
    /// The alarm has fired: takes up what is due and arms the next alarm. Programs are called after that,
    /// by the orders: an alarm that waited for one would keep all others waiting.
    ///
    /// A run that the storage fails for is tried again later, and is no failure of the alarm. Otherwise the next alarm
    /// is ordered as well: only a host that cannot set it has to tell its platform that this one has failed.
    pub fn alarm<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.calls_made = 0;
        self.armed = None;
        self.repaired = true;
        // What the storage did not take of them was noted with their runs.
        drop(self.end_silent_calls(rows, now));
        let taken = self.take_up_due(rows, now);
        self.dispatch(rows, now);
        self.nudge_due(now);
        // After whatever has to go on.
        self.delete_slice(rows, now);
        let read = taken.and(self.arm_next(rows, now));
        if read.is_ok() {
            self.failed_alarms = 0;
        } else {
            self.scanned = (Timestamp::default(), 0);
            let pause_ms = (LOOK_AGAIN_MS << self.failed_alarms.min(16)).min(DEAD_MAN_MS);
            self.failed_alarms = self.failed_alarms.saturating_add(1);
            self.arm_by(now, now.plus_millis(pause_ms));
        }
        read
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
            let at =
                if is_known { Timestamp::from_millis(first.as_millis().saturating_sub(1)) } else { first };
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
        if self.refusals.take_overflow(now) {
            self.scanned = (Timestamp::default(), 0);
        }
        let due = rows.due(self.scanned, now, ALARM_SLICE).map_err(Fault::Storage)?;
        let is_all = due.len() < ALARM_SLICE;
        for (wake_at, number) in due {
            self.try_to_take_up(rows, now, number);
            self.scanned = (wake_at, number);
        }
        if is_all {
            // Whatever is recorded from now on is due at a later time than this.
            self.scanned = (now, u64::MAX);
        }
        for number in self.refusals.due(now) {
            self.try_to_take_up(rows, now, number);
        }
        // Runs at work are in the rows by when they began; what they wait for besides is only here.
        let at_work: Vec<_> =
            self.runs.iter().filter(|(_, run)| is_due(run, now)).map(|(number, _)| *number).collect();
        for number in at_work {
            self.try_to_take_up(rows, now, number);
        }
        Ok(())
    }

    /// Takes up a run, unless the storage has just failed for it: those behind it must not wait for that.
    fn try_to_take_up<R: Rows>(&mut self, rows: &R, now: Timestamp, number: u64) {
        if self.refusals.holds_back(now, number) {
            return;
        }
        if self.take_up(rows, now, number).is_err() {
            self.refusals.note(now, number);
        } else if self.runs.contains_key(&number) || self.expired.contains(&number) {
            self.refusals.put_off(now, number);
        } else {
            let _ = self.refusals.clear(number);
        }
    }

    pub(super) fn take_up<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
    ) -> Result<(), Fault<R::Error>> {
        let run = match self.runs.get(&number) {
            Some(run) => run.clone(),
            None => match self.load_or_quarantine(rows, now, number)? {
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
        let at_work = self.runs.iter().filter(|(number, _)| !self.refusals.holds_back(now, **number));
        let at_work = at_work.filter_map(|(_, run)| next_look(now, run)).min();
        let nudge = self.queue.as_ref().and_then(Nudges::next);
        // A cell that holds calls has a turn so often, or it could not tell a silent call from a time that it slept through.
        let silence = self.window.next_silence().map(|at| at.min(now.plus_millis(DEAD_MAN_MS)));
        let refused = self.refusals.next();
        if let Some(next) = [in_rows, at_work, nudge, silence, refused].into_iter().flatten().min() {
            self.arm_by(now, next);
        }
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
