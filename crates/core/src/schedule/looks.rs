//! Runs whose ends are not heard of: a letter may be dead, or its cell gone, and no schedule waits for ever.

use stepwell_protocol::{RunId, Timestamp};

use super::{LOOK_MS, Order, Rows, Schedule, Schedules, Seen, asks::Asked};
use crate::object::{Fault, Hosted as _};

impl Schedules {
    /// Asks whether runs of a schedule have ended, if nothing was heard of them for long. At a tick that is due, and for
    /// a few of them at once.
    pub(super) fn look(&mut self, now: Timestamp, schedule: &Schedule) {
        let Some(at) = schedule.look_at() else {
            self.looks.remove(&schedule.id);
            return;
        };
        let last = self.looks.get(&schedule.id).map(|last| last.plus_millis(LOOK_MS));
        if last.unwrap_or(at).max(at) > now {
            return;
        }
        self.looks.insert(schedule.id.clone(), now);
        for run in schedule.looked_at() {
            if self.ask_run(now, &schedule.id, &run) {
                self.object.order(Order::Look { schedule: schedule.id.clone(), run });
            }
        }
    }

    /// What became of a run that was asked for, or that had to be cancelled. If it has ended, its letter may come later, or
    /// never.
    pub fn run_seen<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        run: &RunId,
        seen: Seen,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let asked = Asked::Run(id.to_owned(), run.clone());
        if let Some(flight) = self.asking.find(|known| *known == asked) {
            match seen {
                Seen::Over(_) | Seen::Open => self.asking.answered(flight),
                Seen::Failed => self.asking.failed(now, flight),
            };
        }
        if let Seen::Over(how) = seen
            && let Some(schedule) =
                rows.get(id).map_err(Fault::Storage)?.filter(|found| found.running.contains(run))
        {
            self.store(rows, now, Some(&schedule), &schedule.ended(now, run, how))?;
        }
        let gone_on = self.go_on(rows, now);
        self.arm(now);
        gone_on
    }
}
