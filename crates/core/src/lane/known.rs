//! What the rows of a lane say: who holds slots, who waits, and who is to be told of.

use stepwell_protocol::{
    Place, RunId, Timestamp,
    lane::{Ask, Hold, Limit, PRIORITY_MS, SetLimit, Standing, Ticket},
};

use super::{
    CHECK_MS, CHECK_WHOLE_MS, LINE_MAX, STOPPED_LINE_MAX, TELLS_MAX, TICKET_BYTES_MAX, TICKETS_MAX, Waiter,
    gates::{Gates, Turn},
};
use crate::ordered::{OrdMap, OrdSet};

/// How many slots of rates are given back in one turn.
const RATED_SLICE: usize = 1_000;

/// How many shares are remembered that have had their turn.
const SHARES_MAX: usize = 10_000;

/// How many slots are looked at to say when one is free.
const FREES_LOOKED_AT: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub waiters: OrdMap<u64, Entry>,
    /// How much memory those take, about.
    pub bytes: usize,
    /// By the run and, if it is a step, by its ticket.
    pub by_holder: OrdMap<(RunId, u32), u64>,
    pub gates: Gates,
    /// The limits that people have set.
    pub set: Vec<SetLimit>,
    pub last: u64,
    /// The latest round of each share, and that of whoever was let in last.
    pub rounds: OrdMap<String, u64>,
    pub round: u64,
    /// How many shares are remembered before those that have had their turn are forgotten.
    pub shares_max: usize,
    /// When cells are asked about the slots that their runs hold.
    pub checks: OrdSet<(Timestamp, u64)>,
    /// When slots of rates are given back: whose, and of which of its limits. Whoever is in here is in `waiters`.
    pub rated: OrdSet<(Timestamp, u64, usize)>,
    /// How many are in `waiters` only because of that.
    pub over: usize,
    /// Who is to be told of, by cell.
    pub tell: OrdMap<Place, OrdSet<u64>>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub waiter: Waiter,
    /// How many limits it has passed.
    pub passed: usize,
    /// When its cell is asked about it, once it was let in.
    pub check: Option<Timestamp>,
}

impl Entry {
    /// How much memory it takes, about.
    fn bytes(&self) -> usize {
        let limits = self.waiter.limits.iter().map(|limit| 100 + limit.by.len() + limit.key.len());
        let names = [&self.waiter.share, &self.waiter.step];
        300 + limits.sum::<usize>() + names.into_iter().flatten().map(String::len).sum::<usize>()
    }

    pub fn turn(&self, number: u64) -> Turn {
        (self.waiter.round, self.waiter.order, number)
    }
}

/// What a turn has changed.
#[derive(Default)]
pub(super) struct Changes {
    pub put: OrdSet<u64>,
    pub deleted: OrdSet<u64>,
}

impl Known {
    /// A ticket wants to be let in.
    pub fn add(&mut self, now: Timestamp, ask: Ask, changes: &mut Changes) -> Standing {
        let known = self.by_holder.get(&ask.ticket.holder()).copied();
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
        if taken >= TICKETS_MAX || self.bytes >= TICKET_BYTES_MAX || self.has_long_line(&ask.limits) {
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
        let Ask { ticket, limits, share, hold, started, step, .. } = ask;
        self.by_holder.insert(ticket.holder(), number);
        let (is_in, is_over) = (false, false);
        let waiter =
            Waiter { ticket, limits, round, order, share, started, hold, since: now, step, is_in, is_over };
        self.insert(number, Entry { waiter, passed: 0, check: None });
        changes.put.insert(number);
        let is_in = self.go_on(now, number, 0, changes);
        if is_in {
            // The answer to this question says so.
            self.heard(now, number, false);
        }
        if is_in { Standing::In } else { Standing::InLine }
    }

    pub fn insert(&mut self, number: u64, entry: Entry) {
        self.bytes += entry.bytes();
        self.waiters.insert(number, entry);
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.waiters.remove(&number)?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Whether so many of the same key wait already that there might be no room for others. Those of a key that is stopped
    /// are not waited for by a slot, so only few are known here: the others ask again.
    fn has_long_line(&self, limits: &[Limit]) -> bool {
        limits.iter().filter(|limit| !limit.by.is_empty()).any(|limit| {
            let most = if self.gates.max(limit) == 0 { STOPPED_LINE_MAX } else { LINE_MAX };
            self.gates.line(limit) >= most
        })
    }

    /// A start takes its slots of rates, if there is one of each.
    pub fn admit(
        &mut self,
        now: Timestamp,
        start: RunId,
        limits: Vec<Limit>,
        changes: &mut Changes,
    ) -> Option<Timestamp> {
        if self.by_holder.contains_key(&(start.clone(), 0)) {
            return None;
        }
        for number in self.gates.declare(now, &limits) {
            self.passes(now, number, changes);
        }
        if let Some(full) = limits.iter().find(|limit| !self.gates.has_room(limit)) {
            return Some(self.frees_at(now, full));
        }
        if self.waiters.len() >= TICKETS_MAX || self.bytes >= TICKET_BYTES_MAX {
            return Some(now.plus_millis(1_000));
        }
        self.last += 1;
        let number = self.last;
        self.by_holder.insert((start.clone(), 0), number);
        let waiter = Waiter {
            ticket: Ticket::of_run(start, 0),
            limits,
            round: self.round,
            order: now.as_millis(),
            share: None,
            started: now,
            hold: Hold::Work,
            since: now,
            step: None,
            is_in: true,
            is_over: true,
        };
        for (place, limit) in waiter.limits.iter().enumerate() {
            self.gates.hold(limit);
            self.rated.extend(waiter.holds_until(limit).map(|until| (until, number, place)));
        }
        self.over += 1;
        self.insert(number, Entry { passed: waiter.limits.len(), waiter, check: None });
        changes.put.insert(number);
        None
    }

    /// About when a rate that is full has room again.
    pub fn frees_at(&self, now: Timestamp, full: &Limit) -> Timestamp {
        let holds = |number: &u64, place: usize| {
            let limit = self.waiters.get(number).and_then(|entry| entry.waiter.limits.get(place));
            limit.is_some_and(|limit| {
                (&limit.by, &limit.key, limit.per_ms) == (&full.by, &full.key, full.per_ms)
            })
        };
        let found = self.rated.iter().take(FREES_LOOKED_AT).find(|(_, number, place)| holds(number, *place));
        let guess = || now.plus_millis(full.per_ms.unwrap_or_default() / u64::from(full.max.max(1)));
        found.map_or_else(guess, |(at, ..)| *at)
    }

    /// The round in which somebody of a share has its turn: after whoever has the same one, and never in the past.
    pub fn round_of(&mut self, share: Option<&str>) -> u64 {
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
    pub fn go_on(&mut self, now: Timestamp, number: u64, passed: usize, changes: &mut Changes) -> bool {
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
    pub fn passes(&mut self, now: Timestamp, number: u64, changes: &mut Changes) {
        let passed = self.waiters.get(&number).map_or(0, |entry| entry.passed + 1);
        self.go_on(now, number, passed, changes);
    }

    /// The number of a ticket.
    pub fn number(&self, ticket: &Ticket) -> Option<u64> {
        let number = self.by_holder.get(&ticket.holder()).copied()?;
        self.waiters.get(&number).filter(|entry| entry.waiter.ticket == *ticket).map(|_| number)
    }

    /// A ticket is over.
    pub fn end(&mut self, now: Timestamp, ticket: &Ticket, changes: &mut Changes) {
        let number = self.by_holder.get(&ticket.holder()).copied();
        let entry = number.and_then(|number| Some((number, self.waiters.get(&number)?)));
        if let Some((number, entry)) = entry
            && entry.waiter.ticket.number <= ticket.number
        {
            self.leave(now, number, changes);
        }
    }

    /// Somebody goes. Slots of rates stay with one who was let in, until their time is over.
    pub fn leave(&mut self, now: Timestamp, number: u64, changes: &mut Changes) {
        let Some(entry) = self.remove(number) else { return };
        let turn = entry.turn(number);
        let Entry { mut waiter, passed, check } = entry;
        let holder = waiter.ticket.holder();
        if self.by_holder.get(&holder) == Some(&number) {
            self.by_holder.remove(&holder);
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
            self.insert(number, Entry { waiter, passed, check: None });
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
    pub fn is_rated(&self, number: u64, waiter: &Waiter) -> bool {
        let holds = |(place, limit)| {
            waiter.holds_until(limit).is_some_and(|until| self.rated.contains(&(until, number, place)))
        };
        waiter.is_in && waiter.limits.iter().enumerate().any(holds)
    }

    /// Gives back the slots of rates whose time is over: some of them, if there are many.
    pub fn free_rated(&mut self, now: Timestamp, changes: &mut Changes) {
        for _ in 0..RATED_SLICE {
            let Some(&(at, number, place)) = self.rated.first().filter(|(at, ..)| *at <= now) else { return };
            self.rated.remove(&(at, number, place));
            let Some(entry) = self.waiters.get(&number) else { continue };
            let limit = entry.waiter.limits.get(place).cloned();
            if entry.waiter.is_over && !self.is_rated(number, &entry.waiter) {
                if entry.waiter.is_start() {
                    self.by_holder.remove(&entry.waiter.ticket.holder());
                }
                drop(self.remove(number));
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
    pub fn heard(&mut self, now: Timestamp, number: u64, is_confirmed: bool) {
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

    pub fn tell_no_more(&mut self, to: &Place, number: u64) {
        if let Some(numbers) = self.tell.get_mut(to) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.tell.remove(to);
            }
        }
    }

    /// Cells are asked about those whose time has come.
    pub fn take_checks(&mut self, now: Timestamp) {
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
    pub fn take_telling(&mut self, to: &Place) -> Vec<Ticket> {
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
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.deleted.is_empty()
    }
}
