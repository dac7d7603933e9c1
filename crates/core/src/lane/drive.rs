//! The machine of a lane.

use stepwell_protocol::{
    Place, RunId, Timestamp,
    lane::{Ask, Limit, LimitChange, SET_LIMITS_MAX, SetLimit, SetLimits, Standing, Ticket},
};

use super::{
    Order, Page, Rows, Shown, Telling,
    known::{Changes, Entry, Known},
};
use crate::{
    object::{ANSWER_MS, Fault, Hosted, Machine, Object, pause_ms},
    ordered::{OrdMap, OrdSet},
    sorting::sort,
};

/// After how long a lane asks a cell about a slot that it has not heard of.
pub const CHECK_MS: u64 = 30_000;

/// The same for one that a run has from its beginning to its end: its cell writes when that is over.
pub const CHECK_WHOLE_MS: u64 = 600_000;

/// How many tickets one question to a cell is about.
pub const TELLS_MAX: usize = 256;

/// How many who work or wait one page shows.
pub const PAGE_MAX: usize = 100;

/// How many cells are asked at once.
const FLIGHTS_MAX: usize = 24;

/// How many hold slots of a lane or wait for them at the most.
pub const TICKETS_MAX: usize = 100_000;

/// How much memory they take at the most, about. An object has 128 MB, and reading its rows takes some, too.
pub const TICKET_BYTES_MAX: usize = 48 << 20;

/// How many wait for a slot of one key at the most. The others ask again: one key leaves room for the others.
pub const LINE_MAX: usize = 25_000;

/// The same for a key that lets in nobody.
pub const STOPPED_LINE_MAX: usize = 1_000;

/// The longest pause between two questions to a cell that does not answer.
const ASK_AGAIN_MS_MAX: u64 = 15_000;

/// Who is let in, and who waits.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    object: Object<Order>,
    /// What the rows say; nothing before they are read, and after they could not be written.
    known: Option<Known>,
    flights: OrdMap<u64, Flight>,
    last_flight: u64,
    /// Cells that have not answered: how often, and when they are asked again.
    silent: OrdMap<Place, (u32, Timestamp)>,
}

#[derive(Clone, Debug)]
struct Flight {
    to: Place,
    about: Vec<Ticket>,
    since: Timestamp,
}

impl Hosted for Lane {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }
}

impl<R: Rows> Machine<R> for Lane {
    type Error = R::Error;

    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.read(rows, now)?;
        self.give_up_late(now);
        if let Some(known) = &mut self.known {
            let mut changes = Changes::default();
            known.free_rated(now, &mut changes);
            self.store(rows, now, &changes)?;
        }
        Ok(self.next(now))
    }

    /// Whoever was let in may not have been told, and whoever was told may be over since.
    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.read(rows, now)?;
        Ok(self.next(now))
    }
}

impl Lane {
    /// Some tickets of a cell are over, and others want to be let in. Says of each of those how it stands.
    pub fn ask<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        asks: Vec<Ask>,
        over: &[Ticket],
    ) -> Result<Vec<Standing>, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let Some(known) = &mut self.known else { return Ok(Vec::new()) };
        let mut changes = Changes::default();
        known.free_rated(now, &mut changes);
        for ticket in over {
            known.end(now, ticket, &mut changes);
        }
        let mut standings = Vec::new();
        for ask in asks {
            standings.push(known.add(now, ask, &mut changes));
        }
        if changes.is_empty() && (standings.contains(&Standing::In) || !over.is_empty()) {
            // This instance may have been superseded, and not know of a ticket: only a write says that it has not.
            self.object.arm_anew(now);
        }
        self.store(rows, now, &changes)?;
        Ok(standings)
    }

    /// A start wants to become a run, within rates that drop what is beyond them. Nothing, if it may; otherwise when there
    /// may be room again. One that comes again within the time of the rates counts once.
    pub fn admit<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        start: RunId,
        limits: Vec<Limit>,
    ) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let Some(known) = &mut self.known else { return Ok(None) };
        let mut changes = Changes::default();
        known.free_rated(now, &mut changes);
        let dropped = known.admit(now, start, limits, &mut changes);
        self.store(rows, now, &changes)?;
        Ok(dropped)
    }

    /// A cell has said of each ticket whether it still goes, or has not answered.
    pub fn told<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        flight: u64,
        answer: Option<&[bool]>,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let (Some(flight), Some(known)) = (self.flights.remove(&flight), &mut self.known) else {
            return Ok(());
        };
        let mut changes = Changes::default();
        match answer.filter(|answer| answer.len() == flight.about.len()) {
            Some(answer) => {
                self.silent.remove(&flight.to);
                for (ticket, goes) in flight.about.iter().zip(answer) {
                    if !goes {
                        known.end(now, ticket, &mut changes);
                    } else if let Some(number) = known.number(ticket) {
                        known.heard(now, number, true);
                    }
                }
            }
            None => self.was_silent(now, &flight),
        }
        self.store(rows, now, &changes)
    }

    /// How many hold slots or wait for them.
    pub fn len(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.waiters.len())
    }

    #[cfg(test)]
    pub(super) fn own_numbers(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.gates.own_numbers())
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Somebody sets a limit, or has the code say it again. Gives all that are set then; nothing, if there are too many.
    pub fn set_limit<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        change: LimitChange,
        who: String,
    ) -> Result<Option<SetLimits>, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let Some(known) = &mut self.known else { return Ok(None) };
        let LimitChange { by, key, per_ms, max } = change;
        let mut set = known.set.clone();
        set.retain(|known| (&known.by, &known.key, known.per_ms) != (&by, &key, per_ms));
        if let Some(max) = max {
            if set.len() >= SET_LIMITS_MAX {
                return Ok(None);
            }
            set.push(SetLimit { by: by.clone(), key: key.clone(), per_ms, max, set_by: who, set_at: now });
        }
        rows.write_set_limits(&set).map_err(Fault::Storage)?;
        known.set.clone_from(&set);
        let mut changes = Changes::default();
        for number in known.gates.set(&by, key.as_deref(), per_ms, max) {
            known.passes(now, number, &mut changes);
        }
        self.store(rows, now, &changes)?;
        Ok(Some(SetLimits { set }))
    }

    /// Those who hold slots or wait for them after a number, in the order in which they came.
    pub fn page<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        after: u64,
        limit: usize,
    ) -> Result<Page, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let Some(known) = &self.known else { return Ok(Page::default()) };
        let entries = known.waiters.range(after.saturating_add(1)..);
        let entries = entries.filter(|(_, entry)| !entry.waiter.is_over).take(limit);
        let shown = |(number, entry): (&u64, &Entry)| {
            let waits_at = (!entry.waiter.is_in).then_some(entry.passed);
            let mut waiter = entry.waiter.clone();
            for limit in &mut waiter.limits {
                limit.max = known.gates.max(limit);
            }
            Shown { number: *number, waiter, waits_at }
        };
        let set = if after == 0 { known.set.clone() } else { Vec::new() };
        Ok(Page { shown: entries.map(shown).collect(), set })
    }

    /// What the rows say.
    pub(super) fn known<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<&Known, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        Ok(self.known.get_or_insert_default())
    }

    /// Reads the rows, if that was not done yet.
    fn read<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        if self.known.is_some() {
            return Ok(());
        }
        let mut known = Known::default();
        let mut changes = Changes::default();
        let (mut lined, mut all) = (Vec::new(), Vec::new());
        known.set = rows.set_limits().map_err(Fault::Storage)?;
        for SetLimit { by, key, per_ms, max, .. } in &known.set {
            drop(known.gates.set(by, key.as_deref(), *per_ms, Some(*max)));
        }
        for (number, waiter) in rows.waiters().map_err(Fault::Storage)? {
            known.last = number;
            match waiter {
                Some(waiter) => all.push((number, waiter)),
                // Its run asks again.
                None => drop(changes.deleted.insert(number)),
            }
        }
        for (number, waiter) in all {
            // The latest one knows best how many slots there are.
            drop(known.gates.declare(waiter.started, &waiter.limits));
            if !waiter.is_over {
                known.by_holder.insert(waiter.ticket.holder(), number);
            }
            if let Some(share) = &waiter.share {
                let round = known.rounds.get_or_default(share.clone());
                *round = waiter.round.max(*round);
            }
            let (passed, turn) = (waiter.limits.len(), (waiter.round, waiter.order, number));
            if waiter.is_in {
                known.round = known.round.max(waiter.round);
                for (place, limit) in waiter.limits.iter().enumerate() {
                    match waiter.holds_until(limit) {
                        Some(until) if until <= now => {}
                        Some(until) => {
                            known.gates.hold(limit);
                            known.rated.insert((until, number, place));
                        }
                        None if waiter.is_over => {}
                        None => known.gates.hold(limit),
                    }
                }
                if !waiter.is_over {
                    known.tell.get_or_default(waiter.ticket.run.place.clone()).insert(number);
                } else if known.is_rated(number, &waiter) {
                    known.over += 1;
                    if waiter.is_start() {
                        known.by_holder.insert(waiter.ticket.holder(), number);
                    }
                } else {
                    changes.deleted.insert(number);
                    continue;
                }
            } else {
                lined.push(turn);
            }
            known.insert(number, Entry { waiter, passed, check: None });
        }
        sort(&mut lined);
        for turn in lined {
            known.go_on(now, turn.2, 0, &mut changes);
        }
        self.known = Some(known);
        self.store(rows, now, &changes)
    }

    /// Stores what has changed, and tells whoever was let in.
    fn store<R: Rows>(&mut self, rows: &R, now: Timestamp, changes: &Changes) -> Result<(), Fault<R::Error>> {
        let Some(known) = &self.known else { return Ok(()) };
        if !changes.is_empty() {
            let put =
                changes.put.iter().filter_map(|number| Some((*number, &known.waiters.get(number)?.waiter)));
            let (put, deleted): (Vec<_>, Vec<_>) = (put.collect(), changes.deleted.iter().copied().collect());
            if let Err(error) = rows.write(&put, &deleted) {
                // The rows are read again: they are the truth.
                self.known = None;
                return Err(Fault::Storage(error));
            }
        }
        self.tell(now);
        if let Some(at) = self.next(now) {
            self.object.arm_by(now, at);
        }
        Ok(())
    }

    /// Asks cells about those who were let in, each cell one question at a time.
    fn tell(&mut self, now: Timestamp) {
        let Some(known) = &mut self.known else { return };
        known.take_checks(now);
        let busy: OrdSet<_> = self.flights.values().map(|flight| flight.to.clone()).collect();
        let is_free = |to: &Place| {
            !busy.contains(to) && self.silent.get(to).is_none_or(|(_, again_at)| *again_at <= now)
        };
        let room = FLIGHTS_MAX.saturating_sub(self.flights.len());
        let free: Vec<_> = known.tell.keys().filter(|to| is_free(to)).take(room).cloned().collect();
        for to in free {
            let tickets = known.take_telling(&to);
            if tickets.is_empty() {
                continue;
            }
            self.last_flight += 1;
            let flight = self.last_flight;
            self.flights.insert(flight, Flight { to: to.clone(), about: tickets.clone(), since: now });
            self.object.order(Order::Tell(Box::new(Telling { flight, to, tickets })));
        }
    }

    /// Questions that nobody has answered are asked again.
    fn give_up_late(&mut self, now: Timestamp) {
        let is_late = |flight: &Flight| flight.since.plus_millis(ANSWER_MS) <= now;
        let late: Vec<_> =
            self.flights.iter().filter(|(_, flight)| is_late(flight)).map(|(id, _)| *id).collect();
        for id in late {
            if let Some(flight) = self.flights.remove(&id) {
                self.was_silent(now, &flight);
            }
        }
    }

    fn was_silent(&mut self, now: Timestamp, flight: &Flight) {
        let (times, again_at) = self.silent.get_or_default(flight.to.clone());
        *times = times.saturating_add(1);
        *again_at = now.plus_millis(pause_ms(*times).min(ASK_AGAIN_MS_MAX));
        if let Some(known) = &mut self.known {
            let about: Vec<_> = flight.about.iter().filter_map(|ticket| known.number(ticket)).collect();
            for number in about {
                known.tell.get_or_default(flight.to.clone()).insert(number);
            }
        }
    }

    /// When something is due.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let known = self.known.as_ref()?;
        let check = known.checks.first().map(|(at, _)| *at);
        let late = self.flights.values().map(|flight| flight.since.plus_millis(ANSWER_MS)).min();
        let has_flight = |to: &Place| self.flights.values().any(|flight| flight.to == *to);
        let tell = known.tell.keys().filter(|to| !has_flight(to));
        let tell = tell.map(|to| self.silent.get(to).map_or(now, |(_, at)| *at)).min();
        // The end of a question asks the next ones.
        let tell = tell.filter(|_| self.flights.len() < FLIGHTS_MAX);
        // Where nobody waits for them, all rows of those who are over are deleted at once.
        let first = known.rated.first().filter(|(at, ..)| known.gates.has_line() || *at <= now);
        let rated = first.or_else(|| known.rated.last());
        [check, late, tell, rated.map(|(at, ..)| *at)].into_iter().flatten().min()
    }
}
