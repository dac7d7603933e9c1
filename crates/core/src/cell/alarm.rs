//! What a cell does when its alarm fires: it takes up the runs that are due.

use std::rc::Rc;

use stepwell_protocol::Timestamp;

use super::{ALARM_SLICE, Cell, Rows, queued::Nudges};
use crate::{
    object::{DEAD_MAN_MS, Fault, Machine},
    run::{Input, Phase, Run, Transport},
};

/// How long after keys could not be forgotten that is tried again.
const FORGET_AGAIN_MS: u64 = 60_000;

impl<R: Rows> Machine<R> for Cell {
    type Error = R::Error;

    /// A run that the storage fails for is tried again later, and is no failure of the alarm.
    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        // What the storage did not take of them was noted with their runs.
        drop(self.end_silent_calls(rows, now));
        let taken = self.take_up_due(rows, now);
        self.dispatch(rows, now);
        self.nudge_due(now);
        // After whatever has to go on.
        self.delete_slice(rows, now);
        let unstored = self.store_totals_in_time(rows, now);
        // No run waits for that: what cannot be forgotten now is tried again later.
        let lapse = Self::forget_lapsed(rows, now).unwrap_or(Some(now.plus_millis(FORGET_AGAIN_MS)));
        let next = taken.and_then(|()| self.next_due(rows, now));
        if next.is_err() {
            self.scanned = (Timestamp::default(), 0);
        }
        Ok([next?, lapse, unstored].into_iter().flatten().min())
    }

    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let first = rows.wake_after((Timestamp::default(), 0)).map_err(Fault::Storage)?;
        let letter = self.object.first_letter(rows, now).map_err(Fault::Storage)?;
        let lapse = rows.first_lapse().map_err(Fault::Storage)?;
        // No row tells of what it has inherited.
        let unstored = (!self.unstored().is_empty()).then(|| now.plus_millis(DEAD_MAN_MS));
        Ok([first, letter, lapse, unstored].into_iter().flatten().min())
    }
}

impl Cell {
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
                Some(run) => Rc::new(run),
                None => return Ok(()),
            },
        };
        if run.remains.is_some() {
            self.set_aside(number);
        }
        match run.phase {
            Phase::Running { session: Transport::Capability, .. }
                if !self.window.holds(number, run.epoch) =>
            {
                self.drive_run(rows, now, run, None, |_| Input::Reload)?;
            }
            Phase::Running { session: Transport::Token, lease: None, .. } => {
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

    fn next_due<R: Rows>(&self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let in_rows = rows.wake_after(self.scanned).map_err(Fault::Storage)?;
        let at_work = self.runs.iter().filter(|(number, _)| !self.refusals.holds_back(now, **number));
        let at_work = at_work.filter_map(|(_, run)| next_look(now, run)).min();
        let nudge = self.queue.as_ref().and_then(Nudges::next);
        // A cell that holds calls has a turn so often, or it could not tell a silent call from a time that it slept through.
        let silence = self.window.next_silence().map(|at| at.min(now.plus_millis(DEAD_MAN_MS)));
        let refused = self.refusals.next();
        Ok([in_rows, at_work, nudge, silence, refused].into_iter().flatten().min())
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
