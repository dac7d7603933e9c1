//! What a station asks cells: the runs of ticks, and whether runs have ended. Within the bounds of [`Flights`].
//!
//! [`Flights`]: crate::object::Flights

use stepwell_protocol::{
    Place, Problem, RunId, Timestamp,
    schedule::{TickId, Ticked},
};

use super::{Order, Schedule, Schedules, TickStart, tick_key};
use crate::{
    object::{DEAD_MAN_MS, IN_FLIGHT_TO_ONE_MAX, pause_ms},
    pools::spread,
};

/// Something that a cell is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The run of the tick of a schedule.
    Tick(String),
    /// Whether a run of a schedule has ended, or to cancel it.
    Run(String, RunId),
}

impl Asked {
    /// The schedule that it is asked for.
    pub fn schedule(&self) -> &str {
        match self {
            Self::Tick(schedule) | Self::Run(schedule, _) => schedule,
        }
    }
}

/// A tick that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub number: u64,
    pub tick: TickId,
}

/// Why a tick has not started a run yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// How often in a row.
    pub times: u32,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The cell that others have asked in vain meanwhile.
    pub held_by: Option<Place>,
    pub problem: Option<Problem>,
}

impl Schedules {
    /// Asks a cell for the run of a tick, as soon as it may be asked.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        schedule: &Schedule,
        tick: TickId,
        home: &Place,
        given_up: bool,
    ) {
        let id = &schedule.id;
        let moved = self.moved.get(id).filter(|(of, _)| *of == tick);
        let to = moved.map_or(home, |(_, to)| to).clone();
        let bytes = schedule.spec.input.size();
        let free_at = self.asking.free_at(&to).filter(|_| !self.asking.is_too_much(bytes));
        if free_at.is_none_or(|at| at > now) {
            self.hold(now, id, to, free_at);
            return;
        }
        if matches!(tick, TickId::At(_)) {
            self.untouched.remove(id);
        }
        let number = self.asking.ask(now, to.clone(), bytes, Asked::Tick(id.clone()));
        self.flights.insert(id.clone(), Flight { number, tick: tick.clone() });
        let tells = schedule.wants_to_hear().then(|| self.station.clone());
        let ticked = Ticked { schedule: id.clone(), tick, tells };
        let spare = self.pool.instead_of(&to, home, spread(&tick_key(&ticked)));
        self.object.order(Order::Start(Box::new(TickStart {
            flight: number,
            to,
            spare,
            given_up,
            ticked,
            workflow: schedule.spec.workflow.clone(),
            input: schedule.spec.input.clone(),
            tags: schedule.spec.tags.clone(),
        })));
    }

    /// A tick waits until its cell may be asked, or others have answered.
    fn hold(&mut self, now: Timestamp, id: &str, to: Place, free_at: Option<Timestamp>) {
        if self.asking.failures(&to) > 0 {
            let trouble = self.troubles.get_or_default(id.to_owned());
            trouble.since.get_or_insert(now);
            trouble.held_by = Some(to.clone());
        }
        if free_at.is_none() {
            self.held.get_or_default(to).insert(id.to_owned());
        }
        self.be_due(id, free_at.unwrap_or_else(|| now.plus_millis(DEAD_MAN_MS)));
    }

    /// Cells have answered: some of those that have waited for it go on.
    pub(super) fn wake_held(&mut self, now: Timestamp) {
        let free = self.held.keys().filter(|to| self.asking.free_at(to).is_some_and(|at| at <= now));
        let free: Vec<_> = free.cloned().collect();
        for to in free {
            let mut held = self.held.remove(&to).unwrap_or_default();
            for _ in 0..IN_FLIGHT_TO_ONE_MAX {
                let Some(id) = held.pop_first() else { break };
                if !self.flights.contains_key(&id)
                    && self.agenda.as_ref().is_some_and(|agenda| agenda.has(&id))
                {
                    self.be_due(&id, now);
                }
            }
            if !held.is_empty() {
                self.held.insert(to, held);
            }
        }
    }

    /// Whether the cell of a run may be asked about it: then it is.
    pub(super) fn ask_run(&mut self, now: Timestamp, id: &str, run: &RunId) -> bool {
        let asked = Asked::Run(id.to_owned(), run.clone());
        let is_free = self.asking.free_at(&run.place).is_some_and(|at| at <= now);
        if !is_free || !self.asking.may_ask() || self.asking.all().any(|known| *known == asked) {
            return false;
        }
        self.asking.ask(now, run.place.clone(), 0, asked);
        true
    }

    /// A cell could not be asked, or has said no for now.
    pub(super) fn ask_later(&mut self, now: Timestamp, id: &str, problem: Option<Problem>) {
        let trouble = self.troubles.get_or_default(id.to_owned());
        trouble.times = trouble.times.saturating_add(1);
        trouble.since.get_or_insert(now);
        trouble.problem = problem.or_else(|| trouble.problem.take());
        let pause_ms = pause_ms(trouble.times);
        if let Some(agenda) = &mut self.agenda {
            agenda.set(id, Some(now.plus_millis(pause_ms)));
        }
    }

    /// Gives up on answers that have not come: the same is asked again.
    pub(super) fn give_up_late(&mut self, now: Timestamp) {
        for asked in self.asking.give_up_late(now) {
            if let Asked::Tick(id) = asked {
                self.flights.remove(&id);
                self.ask_later(now, &id, None);
            }
        }
    }
}
