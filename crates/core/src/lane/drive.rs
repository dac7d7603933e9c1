//! The machine of a lane.

use stepwell_protocol::{
    Place, RunId, Timestamp,
    lane::{Ask, Hold, PRIORITY_MS, Standing, Ticket},
};

use super::{
    Order, Rows, Shown, Telling, Waiter,
    gates::{Gates, Turn},
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

/// How many hold slots of a lane or wait for them at the most: each takes about 500 bytes of memory.
pub const TICKETS_MAX: usize = 100_000;

/// How many slots of rates are given back in one turn.
const RATED_SLICE: usize = 1_000;

/// How many shares are remembered that have had their turn.
const SHARES_MAX: usize = 10_000;

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

#[derive(Clone, Debug, Default)]
struct Known {
    waiters: OrdMap<u64, Entry>,
    by_run: OrdMap<RunId, u64>,
    gates: Gates,
    last: u64,
    /// The latest round of each share, and that of whoever was let in last.
    rounds: OrdMap<String, u64>,
    round: u64,
    /// How many shares are remembered before those that have had their turn are forgotten.
    shares_max: usize,
    /// When cells are asked about the slots that their runs hold.
    checks: OrdSet<(Timestamp, u64)>,
    /// When slots of rates are given back: whose, and of which of its limits. Whoever is in here is in `waiters`.
    rated: OrdSet<(Timestamp, u64, usize)>,
    /// How many are in `waiters` only because of that.
    over: usize,
    /// Who is to be told of, by cell.
    tell: OrdMap<Place, OrdSet<u64>>,
}

#[derive(Clone, Debug)]
struct Entry {
    waiter: Waiter,
    /// How many limits it has passed.
    passed: usize,
    /// When its cell is asked about it, once it was let in.
    check: Option<Timestamp>,
}

impl Entry {
    fn turn(&self, number: u64) -> Turn {
        (self.waiter.round, self.waiter.order, number)
    }
}

#[derive(Clone, Debug)]
struct Flight {
    to: Place,
    about: Vec<Ticket>,
    since: Timestamp,
}

/// What a turn has changed.
#[derive(Default)]
struct Changes {
    put: OrdSet<u64>,
    deleted: OrdSet<u64>,
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

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those who hold slots or wait for them after a number, in the order in which they came.
    pub fn page<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Shown>, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let Some(known) = &self.known else { return Ok(Vec::new()) };
        let entries = known.waiters.range(after.saturating_add(1)..);
        let entries = entries.filter(|(_, entry)| !entry.waiter.is_over).take(limit);
        let shown = |(number, entry): (&u64, &Entry)| {
            let waits_at = (!entry.waiter.is_in).then_some(entry.passed);
            Shown { number: *number, waiter: entry.waiter.clone(), waits_at }
        };
        Ok(entries.map(shown).collect())
    }

    /// Reads the rows, if that was not done yet.
    fn read<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        if self.known.is_some() {
            return Ok(());
        }
        let mut known = Known::default();
        let mut changes = Changes::default();
        let (mut lined, mut all) = (Vec::new(), Vec::new());
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
                known.by_run.insert(waiter.ticket.run.clone(), number);
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
                } else {
                    changes.deleted.insert(number);
                    continue;
                }
            } else {
                lined.push(turn);
            }
            known.waiters.insert(number, Entry { waiter, passed, check: None });
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

impl Known {
    /// A ticket wants to be let in.
    fn add(&mut self, now: Timestamp, ask: Ask, changes: &mut Changes) -> Standing {
        let known = self.by_run.get(&ask.ticket.run).copied();
        if let Some((number, entry)) = known.and_then(|number| Some((number, self.waiters.get(&number)?))) {
            let waiter = &entry.waiter;
            if waiter.ticket.number > ask.ticket.number {
                return Standing::Over;
            }
            if waiter.ticket.number == ask.ticket.number {
                let is_in = waiter.is_in;
                if is_in {
                    self.heard(now, number, false);
                }
                return if is_in { Standing::In } else { Standing::InLine };
            }
            // It wants to go to work again, so it has stopped before.
            self.leave(now, number, changes);
        }
        // Who is under no rate is not shut out by those who have begun.
        let is_rated = ask.limits.iter().any(|limit| limit.per_ms.is_some());
        let taken = if is_rated { self.waiters.len() } else { self.waiters.len() - self.over };
        if taken >= TICKETS_MAX {
            return Standing::Full;
        }
        for number in self.gates.declare(ask.started, &ask.limits) {
            self.passes(now, number, changes);
        }
        self.last += 1;
        let number = self.last;
        let round = self.round_of(ask.share.as_deref());
        let ahead_ms = i64::from(ask.priority).saturating_mul(PRIORITY_MS.cast_signed());
        let order = ask.since.min(now).as_millis().saturating_add_signed(ahead_ms.saturating_neg());
        let Ask { ticket, limits, share, hold, started, .. } = ask;
        self.by_run.insert(ticket.run.clone(), number);
        let (is_in, is_over) = (false, false);
        let waiter =
            Waiter { ticket, limits, round, order, share, started, hold, since: now, is_in, is_over };
        self.waiters.insert(number, Entry { waiter, passed: 0, check: None });
        changes.put.insert(number);
        let is_in = self.go_on(now, number, 0, changes);
        if is_in {
            // The answer to this question says so.
            self.heard(now, number, false);
        }
        if is_in { Standing::In } else { Standing::InLine }
    }

    /// The round in which somebody of a share has its turn: after whoever has the same one, and never in the past.
    fn round_of(&mut self, share: Option<&str>) -> u64 {
        let Some(share) = share else { return self.round };
        if self.rounds.len() > self.shares_max.max(SHARES_MAX) {
            let round = self.round;
            self.rounds.retain(|_, last| *last > round);
            // Those who are left have a turn to come: not all are looked at again for the next one.
            self.shares_max = 2 * self.rounds.len();
        }
        // After those who wait already: whoever comes for the first time overtakes nobody for ever.
        let last = self.rounds.get_or_default(share.to_owned());
        *last = (*last).max(self.round).saturating_add(1);
        *last
    }

    /// Passes the limits from one on, as far as it goes. Says whether it is in.
    fn go_on(&mut self, now: Timestamp, number: u64, passed: usize, changes: &mut Changes) -> bool {
        let Some(entry) = self.waiters.get_mut(&number) else { return false };
        let turn = entry.turn(number);
        entry.passed = self.gates.pass(&entry.waiter.limits, passed, turn);
        if entry.passed < entry.waiter.limits.len() {
            return false;
        }
        (entry.waiter.is_in, entry.waiter.since) = (true, now);
        self.round = self.round.max(entry.waiter.round);
        for (place, limit) in entry.waiter.limits.iter().enumerate() {
            self.rated.extend(entry.waiter.holds_until(limit).map(|until| (until, number, place)));
        }
        self.tell.get_or_default(entry.waiter.ticket.run.place.clone()).insert(number);
        changes.put.insert(number);
        true
    }

    /// Somebody who was in line has passed one more limit.
    fn passes(&mut self, now: Timestamp, number: u64, changes: &mut Changes) {
        let passed = self.waiters.get(&number).map_or(0, |entry| entry.passed + 1);
        self.go_on(now, number, passed, changes);
    }

    /// The number of a ticket.
    fn number(&self, ticket: &Ticket) -> Option<u64> {
        let number = self.by_run.get(&ticket.run).copied()?;
        self.waiters.get(&number).filter(|entry| entry.waiter.ticket == *ticket).map(|_| number)
    }

    /// A ticket is over.
    fn end(&mut self, now: Timestamp, ticket: &Ticket, changes: &mut Changes) {
        let number = self.by_run.get(&ticket.run).copied();
        let entry = number.and_then(|number| Some((number, self.waiters.get(&number)?)));
        if let Some((number, entry)) = entry
            && entry.waiter.ticket.number <= ticket.number
        {
            self.leave(now, number, changes);
        }
    }

    /// Somebody goes. Slots of rates stay with one who was let in, until their time is over.
    fn leave(&mut self, now: Timestamp, number: u64, changes: &mut Changes) {
        let Some(entry) = self.waiters.remove(&number) else { return };
        let turn = entry.turn(number);
        let Entry { mut waiter, passed, check } = entry;
        if self.by_run.get(&waiter.ticket.run) == Some(&number) {
            self.by_run.remove(&waiter.ticket.run);
        }
        if let Some(at) = check {
            self.checks.remove(&(at, number));
        }
        self.tell_no_more(&waiter.ticket.run.place, number);
        let mut freed = Vec::new();
        for (place, limit) in waiter.limits.iter().enumerate().take(passed + 1) {
            if place == passed {
                freed.append(&mut self.gates.leave_line(limit, turn));
            } else if !waiter.is_in || limit.per_ms.is_none() {
                freed.append(&mut self.gates.free(limit));
            }
        }
        if self.is_rated(number, &waiter) {
            waiter.is_over = true;
            self.over += 1;
            self.waiters.insert(number, Entry { waiter, passed, check: None });
            changes.put.insert(number);
        } else {
            changes.put.remove(&number);
            changes.deleted.insert(number);
        }
        for next in freed {
            self.passes(now, next, changes);
        }
    }

    /// Whether somebody holds a slot of a rate.
    fn is_rated(&self, number: u64, waiter: &Waiter) -> bool {
        let holds = |(place, limit)| {
            waiter.holds_until(limit).is_some_and(|until| self.rated.contains(&(until, number, place)))
        };
        waiter.is_in && waiter.limits.iter().enumerate().any(holds)
    }

    /// Gives back the slots of rates whose time is over: some of them, if there are many.
    fn free_rated(&mut self, now: Timestamp, changes: &mut Changes) {
        for _ in 0..RATED_SLICE {
            let Some(&(at, number, place)) = self.rated.first().filter(|(at, ..)| *at <= now) else { return };
            self.rated.remove(&(at, number, place));
            let Some(entry) = self.waiters.get(&number) else { continue };
            let limit = entry.waiter.limits.get(place).cloned();
            if entry.waiter.is_over && !self.is_rated(number, &entry.waiter) {
                self.waiters.remove(&number);
                self.over = self.over.saturating_sub(1);
                changes.put.remove(&number);
                changes.deleted.insert(number);
            }
            for next in limit.map(|limit| self.gates.free(&limit)).unwrap_or_default() {
                self.passes(now, next, changes);
            }
        }
    }

    /// Its cell knows that it was let in, or has even said so. One that may not have heard of it is asked soon.
    fn heard(&mut self, now: Timestamp, number: u64, is_confirmed: bool) {
        let Some(entry) = self.waiters.get_mut(&number) else { return };
        let check_ms = match entry.waiter.hold {
            Hold::Run if is_confirmed => CHECK_WHOLE_MS,
            Hold::Work | Hold::Run => CHECK_MS,
        };
        let at = now.plus_millis(check_ms);
        if let Some(before) = entry.check.replace(at) {
            self.checks.remove(&(before, number));
        }
        self.checks.insert((at, number));
        let place = entry.waiter.ticket.run.place.clone();
        self.tell_no_more(&place, number);
    }

    fn tell_no_more(&mut self, to: &Place, number: u64) {
        if let Some(numbers) = self.tell.get_mut(to) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.tell.remove(to);
            }
        }
    }

    /// Cells are asked about those whose time has come.
    fn take_checks(&mut self, now: Timestamp) {
        while let Some(&(at, number)) = self.checks.first()
            && at <= now
        {
            self.checks.pop_first();
            if let Some(entry) = self.waiters.get_mut(&number) {
                entry.check = None;
                self.tell.get_or_default(entry.waiter.ticket.run.place.clone()).insert(number);
            }
        }
    }

    /// Takes as many as one question to a cell is about.
    fn take_telling(&mut self, to: &Place) -> Vec<Ticket> {
        let Some(numbers) = self.tell.get_mut(to) else { return Vec::new() };
        let mut taken = Vec::new();
        while taken.len() < TELLS_MAX
            && let Some(number) = numbers.pop_first()
        {
            taken.extend(self.waiters.get(&number).map(|entry| entry.waiter.ticket.clone()));
        }
        if numbers.is_empty() {
            self.tell.remove(to);
        }
        taken
    }
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.deleted.is_empty()
    }
}
