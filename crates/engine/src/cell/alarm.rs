//! The cell's one alarm: never later than the earliest time at which a run is due.
//!
//! It is only ever armed earlier, and looks for the next time when it fires. While a program is called it is
//! also the dead man's switch: if the instance dies, the alarm wakes the next one, which finds the calls gone.

use std::rc::Rc;

use stepwell_core::run::{Input, Phase, Run};
use stepwell_protocol::Timestamp;

use super::{Host, fault::Fault};

/// How long a dead cell stays unnoticed at the most, if nobody asks it anything.
const DEAD_MAN_MS: u64 = 10_000;

/// How many due runs one alarm takes up; the next alarm follows at once.
const SLICE: usize = 256;

impl Host {
    /// When the cell has to look at a run again.
    pub(super) fn next_look(&self, run: &Run) -> Option<Timestamp> {
        match run.phase {
            Phase::Running { orphaned_until, .. } => {
                let dead_man = self.now().plus_millis(DEAD_MAN_MS);
                [run.next_open(), orphaned_until].into_iter().flatten().chain([dead_man]).min()
            }
            Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
                run.wake_at()
            }
        }
    }

    /// Makes sure that the alarm fires by then.
    pub(super) fn arm_by(&self, at: Timestamp) -> Result<(), Fault> {
        // An alarm armed from within an alarm for the very millisecond that fires would be lost.
        let at = at.max(self.now().plus_millis(1));
        if self.armed.get().is_some_and(|armed| armed <= at) {
            return Ok(());
        }
        // Part of the commit before it; whoever answers a caller waits for both.
        #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
        let _written = self.storage.set_alarm(at.as_millis() as f64)?;
        self.store.count_rows(1);
        self.armed.set(Some(at));
        Ok(())
    }

    /// A fresh instance trusts rows, not alarms: one may have been lost. Done at its first request; an
    /// instance that an alarm has loaded looks at all rows anyway.
    pub(super) fn repair_alarm(&self) {
        if self.repaired.replace(true) {
            return;
        }
        let repaired = self.store.first_wake().and_then(|first| match first {
            Some(first) => self.arm_by(first),
            None => Ok(()),
        });
        if let Err(fault) = repaired {
            worker::console_error!("stepwell: the alarm could not be repaired: {fault}");
        }
    }

    /// Takes up what is due, arms the next alarm, returns. Programs are called after that: an alarm that
    /// waited for one would keep all others waiting. An error makes the platform try again, so it is only
    /// given when even arming failed.
    pub(super) fn on_alarm(self: &Rc<Self>) -> Result<(), Fault> {
        self.armed.set(None);
        self.repaired.set(true);
        if let Err(fault) = self.take_up_due() {
            worker::console_error!("stepwell: not all that is due could be taken up: {fault}");
            return self.arm_by(self.now().plus_millis(1_000));
        }
        self.dispatch();
        self.arm_next()
    }

    fn take_up_due(self: &Rc<Self>) -> Result<(), Fault> {
        let now = self.now();
        let due = self.store.due(self.scanned.get(), now, SLICE)?;
        for &(wake_at, number) in &due {
            self.take_up(number, now)?;
            self.scanned.set((wake_at, number));
        }
        if due.len() < SLICE {
            // Whatever is recorded from now on is due at a later time than this.
            self.scanned.set((now, u64::MAX));
        }
        // Runs at work are in the rows by when they began; what they wait for besides is only here.
        let at_work: Vec<_> =
            self.runs.borrow().iter().filter(|(_, run)| is_due(run, now)).map(|(n, _)| *n).collect();
        for number in at_work {
            self.take_up(number, now)?;
        }
        Ok(())
    }

    fn take_up(self: &Rc<Self>, number: u64, now: Timestamp) -> Result<(), Fault> {
        let run = self.run(number)?;
        let called = self.window.borrow().holds(number);
        match run.phase {
            Phase::Running { orphaned_until: None, .. } if !called => {
                self.drive(number, |_| Input::Reload)?;
            }
            Phase::Running { .. } if !is_due(&run, now) => {}
            Phase::Pending { .. }
            | Phase::Running { .. }
            | Phase::Suspended
            | Phase::Paused { .. }
            | Phase::Ended { .. } => {
                self.drive(number, |slot| Input::Wake { slot })?;
            }
        }
        Ok(())
    }

    fn arm_next(&self) -> Result<(), Fault> {
        let scanned = self.scanned.get();
        let rows = self.store.wake_after(scanned)?;
        let at_work = self.runs.borrow().values().filter_map(|run| self.running_look(run)).min();
        match [rows, at_work].into_iter().flatten().min() {
            Some(next) => self.arm_by(next),
            None => Ok(()),
        }
    }

    fn running_look(&self, run: &Run) -> Option<Timestamp> {
        matches!(run.phase, Phase::Running { .. }).then(|| self.next_look(run)).flatten()
    }
}

/// Whether something that a run at work waits for is over.
fn is_due(run: &Run, now: Timestamp) -> bool {
    match run.phase {
        Phase::Running { orphaned_until, .. } => {
            [run.next_open(), orphaned_until].into_iter().flatten().any(|at| at <= now)
        }
        Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => false,
    }
}
