//! Lanes in tests: they let steps in as the real ones do, for the one run that there is.

use stepwell_core::run::{Input, Phase, Visit};

use super::engine::Engine;

impl Engine {
    /// Lets the steps in that wait for their lanes, as far as the steps of this run leave them places. Says whether there
    /// were any. Rates are always free: no other run has used them up.
    pub(super) fn let_steps_in(&mut self) -> bool {
        let is_any = self.let_one_in();
        while self.let_one_in() {}
        is_any
    }

    fn let_one_in(&mut self) -> bool {
        if let Phase::Ended { .. } | Phase::Paused { .. } = self.run.phase {
            return false;
        }
        let visits: Vec<_> = self.run.open.iter().filter_map(|open| open.visit.as_deref().cloned()).collect();
        let Some(visit) = visits.into_iter().find(|visit| visit.ticket > 0 && self.has_room(visit)) else {
            return false;
        };
        let ticket = visit.ticket;
        self.let_in.insert(ticket, visit);
        self.give(Input::StepLetIn { ticket, slot: None }).expect("it is never refused");
        true
    }

    fn has_room(&self, visit: &Visit) -> bool {
        let held: Vec<_> = self.run.held.iter().filter_map(|held| self.let_in.get(&held.ticket)).collect();
        visit.limits.iter().filter(|limit| limit.per_ms.is_none()).all(|limit| {
            let takes = |other: &&&Visit| {
                other.lane == visit.lane
                    && other.limits.iter().any(|held| (&held.by, &held.key) == (&limit.by, &limit.key))
            };
            held.iter().filter(takes).count() < limit.max as usize
        })
    }
}
