//! Which starts wait, which are under way, and how far everything is done. In memory only.

use stepwell_protocol::{Place, Timestamp};

use super::Parked;
use crate::{
    object::{Flights, pause_ms},
    ordered::{OrdMap, OrdSet},
};

/// How many starts are known at once; the rest are still events.
const WAITING_MAX: usize = 1_000;

/// After how many attempts a start is parked.
const ATTEMPTS_MAX: u32 = 5;

/// A start that waits or is under way.
#[derive(Clone, Debug)]
struct Waiting {
    attempts: u32,
    /// Whether a row says that it is parked.
    is_parked: bool,
    /// The cell that is asked.
    to: Place,
    /// How many bytes it says; 0 until it was read.
    bytes: usize,
    /// When it is asked for next; nothing while it is under way.
    due: Option<Timestamp>,
}

/// What has to happen after an attempt that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: it is asked for again.
    Again,
    /// It has to be parked.
    Park,
    /// It stays parked.
    StaysParked,
}

/// The starts that an instance knows of.
#[derive(Clone, Debug, Default)]
pub(super) struct Starts {
    waiting: OrdMap<Parked, Waiting>,
    /// Those that are not under way, by the cells that are asked.
    agenda: OrdMap<Place, OrdSet<(Timestamp, Parked)>>,
    asking: Flights<Parked>,
    /// Whether the next one is too large to be asked for before an answer comes.
    is_crowded: bool,
}

impl Starts {
    pub fn begin(&mut self) {
        self.asking.begin();
    }

    /// Whether there is room for the starts of another event.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    pub fn may_ask(&self) -> bool {
        self.asking.may_ask()
    }

    pub fn is_flying(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Whether a row says that a start is parked.
    pub fn is_parked(&self, what: &Parked) -> bool {
        self.waiting.get(what).is_some_and(|waiting| waiting.is_parked)
    }

    /// Whether something is to be done of which no row tells.
    pub fn is_open(&self, what: &Parked) -> bool {
        self.waiting.get(what).is_some_and(|waiting| !waiting.is_parked)
    }

    /// The first event that is not done, if starts that are not parked are.
    pub fn first_open(&self) -> Option<u64> {
        let open = self.waiting.iter().find(|(_, waiting)| !waiting.is_parked);
        open.map(|(what, _)| what.event)
    }

    /// Adds a start of this cell, unless it is known. Says whether it was not.
    pub fn add(&mut self, what: Parked, to: Place, now: Timestamp, is_parked: bool) -> bool {
        if self.waiting.contains_key(&what) {
            return false;
        }
        self.agenda.get_or_default(to.clone()).insert((now, what.clone()));
        self.waiting.insert(what, Waiting { attempts: 0, is_parked, to, bytes: 0, due: Some(now) });
        true
    }

    /// Takes the first start that is due, of those whose cells may be asked.
    pub fn take(&mut self, now: Timestamp) -> Option<Parked> {
        let is_free = |to: &Place| self.asking.free_at(to).is_some_and(|at| at <= now);
        let due = self.agenda.iter().filter(|(to, _)| is_free(to)).filter_map(|(_, due)| due.first()).min();
        let (at, what) = due.filter(|(at, _)| *at <= now).cloned()?;
        let waiting = self.waiting.get_mut(&what)?;
        self.is_crowded = self.asking.is_too_much(waiting.bytes);
        if self.is_crowded {
            return None;
        }
        waiting.due = None;
        let to = waiting.to.clone();
        self.leave_agenda(&to, at, &what);
        Some(what)
    }

    fn leave_agenda(&mut self, to: &Place, at: Timestamp, what: &Parked) {
        if let Some(due) = self.agenda.get_mut(to) {
            due.remove(&(at, what.clone()));
            if due.is_empty() {
                self.agenda.remove(to);
            }
        }
    }

    /// The cell that a start goes to.
    pub fn to(&self, what: &Parked) -> Option<&Place> {
        self.waiting.get(what).map(|waiting| &waiting.to)
    }

    /// The cell of a start has sent it on. No row says so: an instance that does not know asks the same cell, and gets the
    /// same answer.
    pub fn sent_on(&mut self, now: Timestamp, what: &Parked, to: Place) {
        if let Some(waiting) = self.waiting.get_mut(what) {
            waiting.to = to;
            self.put_off(what, now);
        }
    }

    /// A start that was taken has so many bytes. Says whether it may be asked for: if not, it waits for others.
    pub fn has_bytes(&mut self, now: Timestamp, what: &Parked, bytes: usize) -> bool {
        if let Some(waiting) = self.waiting.get_mut(what) {
            waiting.bytes = bytes;
        }
        self.is_crowded = self.asking.is_too_much(bytes);
        if self.is_crowded {
            self.put_off(what, now);
        }
        !self.is_crowded
    }

    /// It goes on later, which is no failure.
    pub fn put_off(&mut self, what: &Parked, due: Timestamp) {
        if let Some(waiting) = self.waiting.get_mut(what) {
            waiting.due = Some(due);
            self.agenda.get_or_default(waiting.to.clone()).insert((due, what.clone()));
        }
    }

    /// Its cell is asked. Gives the number of the question.
    pub fn ask(&mut self, now: Timestamp, what: Parked, to: &Place) -> u64 {
        let bytes = self.waiting.get(&what).map_or(0, |waiting| waiting.bytes);
        self.asking.ask(now, to.clone(), bytes, what)
    }

    /// What a question was about, unless it was given up.
    pub fn landed(&mut self, now: Timestamp, flight: u64, is_answered: bool) -> Option<Parked> {
        self.is_crowded = false;
        if is_answered { self.asking.answered(flight) } else { self.asking.failed(now, flight) }
    }

    /// Nothing is left to do. Says whether a row says that it is parked.
    pub fn done(&mut self, what: &Parked) -> bool {
        let Some(waiting) = self.waiting.remove(what) else { return false };
        if let Some(due) = waiting.due {
            self.leave_agenda(&waiting.to, due, what);
        }
        waiting.is_parked
    }

    /// It has to be asked for again, unless it is better parked at once.
    pub fn again(&mut self, now: Timestamp, what: &Parked, is_stuck: bool) -> Then {
        let Some(waiting) = self.waiting.get_mut(what) else { return Then::Again };
        if waiting.is_parked {
            return Then::StaysParked;
        }
        if is_stuck || waiting.attempts >= ATTEMPTS_MAX {
            return Then::Park;
        }
        waiting.attempts += 1;
        let due = now.plus_millis(pause_ms(waiting.attempts));
        self.put_off(what, due);
        Then::Again
    }

    /// Those that wait for cells that have not answered for long: they would take the room of all others. One that is
    /// parked stays, to find out when its cell answers again.
    pub fn of_silent_cells(&self, now: Timestamp) -> Vec<Parked> {
        let silent = self.agenda.iter().filter(|(to, _)| self.asking.is_silent(now, to));
        let of_cell = silent.flat_map(|(to, due)| {
            let mut keeps_one = self.asking.free_at(to).is_some();
            due.iter().filter(move |(_, what)| !(self.is_parked(what) && std::mem::take(&mut keeps_one)))
        });
        of_cell.map(|(_, what)| what.clone()).collect()
    }

    /// Starts whose answers have not come.
    pub fn give_up_late(&mut self, now: Timestamp) -> Vec<Parked> {
        let late = self.asking.give_up_late(now);
        self.is_crowded &= late.is_empty();
        late
    }

    /// When the next one is asked for, if it may be.
    pub fn next_due(&self) -> Option<Timestamp> {
        // The next answer goes on with what has no room.
        if self.asking.is_full() || self.is_crowded {
            return None;
        }
        let due = self.agenda.iter().filter_map(|(to, due)| {
            let (at, _) = due.first()?;
            Some(self.asking.free_at(to)?.max(*at))
        });
        due.min()
    }

    /// Forgets everything but which cells do not answer. What is under way is about nothing any more.
    pub fn clear(&mut self) {
        self.asking.forget(|_| true);
        self.is_crowded = false;
        self.waiting.clear();
        self.agenda.clear();
    }

    /// Forgets the starts of a trigger.
    pub fn forget(&mut self, trigger: &str) {
        let gone: Vec<_> = self.waiting.keys().filter(|what| what.trigger == trigger).cloned().collect();
        for what in gone {
            self.done(&what);
        }
        self.asking.forget(|what| what.trigger == trigger);
        self.is_crowded = false;
    }
}
