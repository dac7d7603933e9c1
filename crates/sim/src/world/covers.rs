//! What the coverage and the end of a world look at.

use stepwell_core::run::Phase;

use super::World;
use crate::check::AtEnd;

impl World {
    /// An input is about to meet a run.
    pub(super) fn cover(&mut self, cell: usize, id: u64, number: u64, input: &'static str) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        if let Some(run) = instance.store.peek(number) {
            self.coverage.note(&run, input);
            self.addressed.insert(number);
        }
    }

    /// The alarm is about to meet what is due.
    pub(super) fn cover_alarm(&mut self, cell: usize, id: u64) {
        let clock = self.sites[cell].clock(self.now_ms);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let due: Vec<_> = instance.store.due_by(clock);
        for run in due {
            let called = self.sites[cell]
                .instance(id)
                .is_some_and(|instance| instance.own.calls.contains_key(&run.id.number));
            self.addressed.insert(run.id.number);
            match run.phase {
                Phase::Running { .. } if !called && !run.is_leased() => self.coverage.note(&run, "reload"),
                Phase::Running { .. } => {
                    if run.next_due().is_some_and(|at| at <= clock) {
                        self.coverage.note(&run, "wake");
                    }
                }
                Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
                    self.coverage.note(&run, "wake");
                }
            }
        }
    }

    /// What must hold when everything has come to rest.
    pub(super) fn check_end(&mut self) {
        self.check_keys_at_end();
        self.check_followers();
        let checked = self.check.mail_at_end(&self.disks());
        self.must(checked);
        for cell in 0..self.sites.len() {
            let clock = self.sites[cell].clock(self.now_ms);
            let site = &self.sites[cell];
            let at = AtEnd { cell, place: &site.place, disk: &site.disk, clock };
            let checked = self.check.at_end(&at, &self.apps, self.build);
            self.must(checked);
        }
    }
}
