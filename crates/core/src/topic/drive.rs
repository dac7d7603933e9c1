//! The one loop of a topic: accept, match, ask, store how far it is. Synchronous, like a cell's.

use stepwell_protocol::{
    Code, Place, Problem, Timestamp,
    topic::{
        Accepted, AcceptedStatus, EVENT_RETENTION_MS, EventList, EventView, MET_SHOWN_MAX, NewEvent,
        Triggered,
    },
};

use super::{
    BYTES_MAX, EventRow, EventStart, LIST_MAX, NewRow, Order, Parked, Rows, StartEnd, Trigger, event_key,
    flights::Starts,
    pages::{self, Page},
    parked::{Queues, home, is_queue},
    recent::{EVENTS_READ, Recent},
    row::{Meets, condition},
    waits::{EXAMINED_MAX, KnownWaits},
    webhooks::{HookKeys, Hooks},
};
use crate::{
    expression::{Expression, Failed},
    object::{DEAD_AFTER_MS, DEAD_MAN_MS, Fault, Hosted, Machine, Object},
    ordered::{OrdMap, OrdSet},
    pools::{Pool, spread},
};

/// How many events are looked at in one turn, before the alarm has to go on with it.
const SLICE: usize = 16;

/// How many expired events are deleted in one turn.
const EXPIRE_SLICE: usize = 256;

/// How long what is done stays in memory only.
const FLUSH_MS: u64 = 1_000;

/// How many events that trigger nothing are passed over before that is stored.
const UNSTORED_MAX: u64 = 1_000;

/// Events that expire within this time are deleted together.
const EXPIRY_ROUND_MS: u64 = 60_000;

/// A topic, put together with its storage's rows.
#[derive(Clone, Debug)]
pub struct Topic {
    object: Object<Order>,
    pub(super) name: String,
    pub(super) pool: Pool,
    retention_ms: u64,
    pub(super) flights: Starts,
    /// What webhooks are known and sealed by.
    pub(super) keys: HookKeys,
    /// Nothing until the rows were read, and again when one could not be written.
    pub(super) known: Option<Known>,
    /// The latest requests; nothing until the rows were asked for them.
    recent: Option<Recent>,
    /// How many waits were compared with events in this turn.
    pub(super) examined: usize,
}

/// What was read of the rows, and what they will say.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub triggers: OrdMap<String, Loaded>,
    /// Triggers whose rows this release cannot read: their events are kept for one that can.
    pub unreadable: OrdSet<String>,
    /// The number of the latest event.
    pub last: u64,
    /// Up to which event it is known what it triggers.
    pub matched: u64,
    /// Up to which event everything is done, as the rows say.
    pub through: u64,
    oldest: Option<Timestamp>,
    /// Since when there is something to be stored that is only in memory.
    pub unstored: Option<Timestamp>,
    /// What is parked.
    pub parked: Queues,
    pub waits: KnownWaits,
    /// Up to which wait the rows say that it was looked back for it.
    pub looked: u64,
    /// Who may deliver events without a key.
    pub hooks: Hooks,
}

impl Known {
    /// Whether a trigger cannot be read: its parked starts wait for a release that can.
    pub fn is_unreadable(&self, trigger: &str) -> bool {
        self.unreadable.contains(trigger)
            || self.triggers.get(trigger).is_some_and(|loaded| !loaded.is_readable)
    }

    /// Whether nobody has to look at events: there are neither triggers nor waits.
    pub fn is_idle(&self) -> bool {
        self.triggers.is_empty() && self.unreadable.is_empty() && self.waits.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub trigger: Trigger,
    pub when: Option<Expression>,
    /// Whether this release can read its condition.
    pub is_readable: bool,
    /// Whether the row says less than this.
    pub is_changed: bool,
}

impl Hosted for Topic {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }

    fn begin(&mut self) {
        self.flights.begin();
        self.examined = 0;
    }
}

impl<R: Rows> Machine<R> for Topic {
    type Error = R::Error;

    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.go_on(rows, now)?;
        Ok(self.next_look(now))
    }

    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.known(rows, now)?;
        Ok(self.next_look(now))
    }
}

impl Topic {
    /// The topic of this name, whose runs go to this pool.
    pub fn new(name: String, pool: Pool) -> Self {
        Self {
            object: Object::new(),
            name,
            pool,
            retention_ms: EVENT_RETENTION_MS,
            flights: Starts::default(),
            keys: HookKeys::default(),
            known: None,
            recent: None,
            examined: 0,
        }
    }

    /// The same with keys for webhooks.
    #[must_use]
    pub fn with_keys(self, keys: HookKeys) -> Self {
        Self { keys, ..self }
    }

    /// Accepts events: each is stored once, whatever comes after. The mark is that of the request, and the source whoever
    /// has sent it.
    pub fn accept<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        mark: &str,
        source: Option<&str>,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Accepted>, Fault<R::Error>> {
        let now = self.now(clock);
        if rows.bytes().map_err(Fault::Storage)? >= BYTES_MAX {
            let detail =
                format!("The topic '{}' is full until its events expire. Try again later.", self.name);
            return Err(Problem::new(Code::TooMany, detail).into());
        }
        let last = self.known(rows, now)?.last;
        let generation = self.pool.any(0).generation;
        let mut new: Vec<(EventRow, bool)> = Vec::new();
        let mut accepted = Vec::new();
        for (index, NewEvent { name, id, data }) in (0..).zip(events) {
            let given = |number: u64| format!("{number}-{mark}-{index}");
            let known = match &id {
                Some(id) if new.iter().any(|(event, _)| event.id == *id) => Some(id.clone()),
                Some(id) => rows.find(id).map_err(Fault::Storage)?.map(|_| id.clone()),
                None => self.recent(rows)?.find(mark, index).map(given),
            };
            let is_known = known.is_some();
            let number = last + u64::try_from(new.len()).unwrap_or(u64::MAX) + 1;
            let has_own_id = id.is_some();
            let id = known.or(id).unwrap_or_else(|| given(number));
            let status = if is_known { AcceptedStatus::Duplicate } else { AcceptedStatus::Accepted };
            accepted.push(Accepted { status, name: name.clone(), id: Some(id.clone()), problem: None });
            if !is_known {
                if !has_own_id {
                    self.recent(rows)?.note(mark, index, number);
                }
                let source = source.map(ToOwned::to_owned);
                new.push((EventRow { number, at: now, generation, name, id, data, source }, has_own_id));
            }
        }
        if new.is_empty() {
            // This instance may have been superseded: only a write says that it has not.
            self.object.arm_anew(now);
            return Ok(accepted);
        }
        let stored = new.iter().map(|(event, has_own_id)| NewRow { event, has_own_id: *has_own_id });
        if let Err(error) = rows.append(&stored.collect::<Vec<_>>()) {
            self.known = None;
            self.recent = None;
            return Err(Fault::Storage(error));
        }
        if let Some(known) = &mut self.known {
            known.last += u64::try_from(new.len()).unwrap_or_default();
            known.oldest = known.oldest.or(Some(now));
        }
        self.carry_on(rows, now);
        Ok(accepted)
    }

    /// What is known of the latest requests. A call that the runtime delivers again may come to another instance.
    fn recent<R: Rows>(&mut self, rows: &R) -> Result<&mut Recent, Fault<R::Error>> {
        if self.recent.is_none() {
            let ids = rows.latest_ids(EVENTS_READ).map_err(Fault::Storage)?;
            self.recent = Some(Recent::read(&ids));
        }
        Ok(self.recent.get_or_insert_default())
    }

    /// Lists events before a number, newest first. A page of large ones has few.
    pub fn list<R: Rows>(&self, rows: &R, before: u64, limit: usize) -> Result<EventList, Fault<R::Error>> {
        let limit = limit.clamp(1, LIST_MAX);
        let page = pages::read(before, limit, |from, count| rows.before(from, count));
        let Page { events, last, more } = page.map_err(Fault::Storage)?;
        let events = events.into_iter().map(|event| event.view(&self.name)).collect();
        Ok(EventList { events, next: last.filter(|_| more) })
    }

    /// Shows an event.
    pub fn get<R: Rows>(&self, rows: &R, id: &str) -> Result<EventView, Fault<R::Error>> {
        let number = match rows.find(id).map_err(Fault::Storage)? {
            Some(number) => Some(number),
            None => id.split_once('-').and_then(|(number, _)| number.parse().ok()),
        };
        let event = number.map(|number| rows.event(number).map_err(Fault::Storage)).transpose()?.flatten();
        let Some(event) = event.filter(|event| event.id == id) else {
            return Err(no_event().into());
        };
        let waits = rows.met(event.number, MET_SHOWN_MAX).map_err(Fault::Storage)?;
        Ok(EventView { waits, ..event.view(&self.name) })
    }

    /// What became of a question to a cell.
    pub fn answered<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        asked: &EventStart,
        end: StartEnd,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        // The answer to a question that was given up comes too late: the same is asked again.
        let is_answered = end != StartEnd::Failed;
        let Some(what) = self.flights.landed(now, asked.flight, is_answered) else { return Ok(()) };
        let taken = self.take_answer(rows, now, &what, end);
        if taken.is_err() {
            self.start_over();
        }
        self.carry_on(rows, now);
        taken
    }

    fn take_answer<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: &Parked,
        end: StartEnd,
    ) -> Result<(), Fault<R::Error>> {
        match end {
            StartEnd::Started(run) => {
                self.is_answered(what);
                self.note(rows, now, what, |trigger, event| trigger.started(now, event, Some(run)))?;
                self.done(rows, now, what)
            }
            StartEnd::Sent => {
                self.is_answered(what);
                self.note(rows, now, what, |trigger, event| trigger.started(now, event, None))?;
                self.done(rows, now, what)
            }
            StartEnd::Refused(problem) => {
                self.is_answered(what);
                self.note(rows, now, what, |trigger, event| trigger.refused(now, event, problem.detail))?;
                self.done(rows, now, what)
            }
            StartEnd::Moved(to) => {
                self.flights.sent_on(now, what, to);
                Ok(())
            }
            StartEnd::Declined(problem) => {
                self.note(rows, now, what, |trigger, event| trigger.note(now, event, problem.detail))?;
                self.ask_again(rows, now, what, true)
            }
            StartEnd::Failed => self.ask_again(rows, now, what, false),
        }
    }

    /// Remembers something of a trigger, and stores it with the watermark.
    fn note<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: &Parked,
        note: impl FnOnce(&mut Trigger, &str),
    ) -> Result<(), Fault<R::Error>> {
        let event = rows.event(what.event).map_err(Fault::Storage)?;
        let known = self.known(rows, now)?;
        known.unstored.get_or_insert(now);
        if let (Some(loaded), Some(event)) = (known.triggers.get_mut(&what.trigger), event) {
            note(&mut loaded.trigger, &event.id);
            loaded.is_changed = true;
        }
        Ok(())
    }

    pub(super) fn count_waiting(&mut self, trigger: &str, count: impl FnOnce(u64) -> u64) {
        let loaded = self.known.as_mut().and_then(|known| known.triggers.get_mut(trigger));
        if let Some(loaded) = loaded {
            loaded.trigger.counts.waiting = count(loaded.trigger.counts.waiting);
            loaded.is_changed = true;
        }
    }

    /// What is stored is stored, whatever comes after it.
    pub(super) fn carry_on<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        if self.go_on(rows, now).is_err() {
            self.object.arm_by(now, now.plus_millis(DEAD_MAN_MS));
        }
        if let Some(at) = self.next_look(now) {
            self.object.arm_by(now, at);
        }
    }

    /// A row could not be written: everything is read again, and asked for again.
    pub(super) fn start_over(&mut self) {
        self.known = None;
        self.flights.clear();
    }

    /// Does what is due, as much as may be at once.
    fn go_on<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let gone_on = self.try_to_go_on(rows, now);
        if gone_on.is_err() {
            self.start_over();
        }
        gone_on
    }

    fn try_to_go_on<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        self.known(rows, now)?;
        for what in self.flights.give_up_late(now) {
            self.ask_again(rows, now, &what, false)?;
        }
        self.match_next(rows, now)?;
        self.look_back(rows, now)?;
        self.take_parked(rows, now)?;
        self.leave_silent(rows, now)?;
        // Each of them is asked for, or done with.
        while self.flights.may_ask() && self.examined < EXAMINED_MAX {
            let Some(what) = self.flights.take(now) else { break };
            self.ask(rows, now, what)?;
        }
        self.flush(rows, now)?;
        self.end_waits(rows, now)?;
        self.forget_retired(rows, now)?;
        self.expire(rows, now)
    }

    /// Finds out what the next events trigger.
    fn match_next<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        if known.is_idle() {
            known.matched = known.last;
        }
        if known.matched >= known.last || !self.flights.has_room() {
            return Ok(());
        }
        let page = pages::read(known.matched, SLICE, |from, count| rows.after(from, count));
        let Page { events, last, .. } = page.map_err(Fault::Storage)?;
        let (mut found, mut kept): (Vec<(Parked, Place)>, Vec<Parked>) = (Vec::new(), Vec::new());
        for event in &events {
            let value = event.value();
            let park = |trigger: &String| Parked { event: event.number, trigger: trigger.clone() };
            kept.extend(known.unreadable.iter().map(park));
            for (id, loaded) in known.triggers.iter_mut() {
                if !loaded.is_readable {
                    kept.extend(loaded.trigger.is_about(event).then(|| park(id)));
                    continue;
                }
                match loaded.trigger.meets(loaded.when.as_ref(), event, &value) {
                    Meets::No => {}
                    // Those before it have spent what all may spend together: it is looked at by itself.
                    Meets::Failed(Failed::TooMuch) => kept.push(park(id)),
                    Meets::Failed(failed) => {
                        loaded.trigger.failed(now, &event.id, failed);
                        loaded.is_changed = true;
                        known.unstored.get_or_insert(now);
                    }
                    Meets::Yes if known.parked.is_blocked(id) => kept.push(park(id)),
                    Meets::Yes => {
                        let what = park(id);
                        let to = home(&self.pool, &self.name, event.generation, &what, &loaded.trigger.spec);
                        found.push((what, to));
                    }
                }
            }
            found.extend(known.waits.cells(rows, event, &value).map_err(Fault::Storage)?);
        }
        // What cannot be read is passed over, and nothing else.
        known.matched = last.unwrap_or(known.last);
        if known.matched - known.through.min(known.matched) >= UNSTORED_MAX {
            known.unstored.get_or_insert(now);
        }
        for (what, to) in found {
            self.flights.add(what, to, now, false);
        }
        // A release that can read its trigger finds out whether that is about the event; or nobody has to be asked now.
        for what in kept {
            self.park(rows, now, &what)?;
        }
        Ok(())
    }

    /// Lets the host ask a cell for a start, if that is still wanted.
    fn ask<R: Rows>(&mut self, rows: &R, now: Timestamp, what: Parked) -> Result<(), Fault<R::Error>> {
        if let Some(cell) = what.cell() {
            return self.ask_cell(rows, now, what, cell);
        }
        let loaded = self.known.as_mut().and_then(|known| known.triggers.get_mut(&what.trigger));
        let Some(loaded) = loaded.filter(|loaded| loaded.trigger.is_active()) else {
            return self.done(rows, now, &what);
        };
        let event = rows.event(what.event).map_err(Fault::Storage)?;
        let Some(event) = event else { return self.done(rows, now, &what) };
        // It may have been parked by a release that could not read the trigger.
        if self.flights.is_parked(&what) {
            match loaded.trigger.meets(loaded.when.as_ref(), &event, &event.value()) {
                Meets::Yes => {}
                Meets::No => return self.done(rows, now, &what),
                Meets::Failed(failed) => {
                    loaded.trigger.failed(now, &event.id, failed);
                    loaded.is_changed = true;
                    return self.done(rows, now, &what);
                }
            }
        }
        if event.at.plus_millis(DEAD_AFTER_MS) <= now {
            let why = match &loaded.trigger.spec.queue {
                Some(queue) => format!("The queue '{queue}' took no job for six days."),
                None => "No run could be started for six days.".to_owned(),
            };
            loaded.trigger.refused(now, &event.id, why);
            loaded.is_changed = true;
            return self.done(rows, now, &what);
        }
        let triggered =
            Triggered { topic: self.name.clone(), trigger: what.trigger.clone(), event: event.number };
        let Trigger { spec, .. } = &loaded.trigger;
        let mut tags = spec.tags.clone();
        tags.push(Triggered::tag(&self.name, event.number));
        let (workflow, queue) = (spec.workflow.clone(), spec.queue.clone());
        let input = loaded.trigger.input(&event);
        if !self.flights.has_bytes(now, &what, input.size()) {
            return Ok(());
        }
        let here = home(&self.pool, &self.name, event.generation, &what, spec);
        if self
            .flights
            .to(&what)
            .is_some_and(|to| is_queue(to) != spec.queue.is_some() || (is_queue(to) && *to != here))
        {
            // The trigger has changed since.
            self.flights.sent_on(now, &what, here);
            return Ok(());
        }
        let key = event_key(&triggered);
        let home = self.pool.home_of(event.generation, &key);
        let Some((home, to)) = home.zip(self.flights.to(&what).cloned()) else {
            // The pool of a Worker that was not told of all generations.
            return self.ask_again(rows, now, &what, true);
        };
        let spare = self.pool.instead_of(&to, &home, spread(&key));
        let flight = self.flights.ask(now, what, &to);
        let start = EventStart { flight, to, spare, triggered, workflow, queue, input, tags };
        self.object.order(Order::Start(Box::new(start)));
        Ok(())
    }

    /// Up to which event everything is done, as far as this instance knows.
    pub(super) fn done_through(&self) -> u64 {
        let matched = self.known.as_ref().map_or(0, |known| known.matched);
        self.flights.first_open().map_or(matched, |open| (open - 1).min(matched))
    }

    /// Stores how far everything is done, if that has been in memory for long enough.
    fn flush<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let done = self.done_through();
        let Some(known) = &mut self.known else { return Ok(()) };
        if known.unstored.is_none_or(|since| now < since.plus_millis(FLUSH_MS)) {
            return Ok(());
        }
        let is_changed = |loaded: &&Loaded| loaded.is_changed && loaded.is_readable;
        let changed: Vec<_> = known.triggers.values().filter(is_changed).collect();
        let changed: Vec<_> = changed.into_iter().map(|loaded| &loaded.trigger).collect();
        let looked = known.waits.looked_for_good(|what| self.flights.is_open(what)).max(known.looked);
        rows.flush(done.max(known.through), looked, &changed).map_err(Fault::Storage)?;
        known.looked = looked;
        known.through = known.through.max(done);
        known.unstored = None;
        for loaded in known.triggers.values_mut() {
            loaded.is_changed = false;
        }
        Ok(())
    }

    /// Deletes some of the events whose time is over.
    fn expire<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let until = Timestamp::from_millis(now.as_millis().saturating_sub(self.retention_ms));
        // Those that nobody triggers are done, whatever the rows say.
        let done = self.done_through();
        let Some(known) = &mut self.known else { return Ok(()) };
        if known.oldest.is_none_or(|oldest| oldest > until) {
            return Ok(());
        }
        let oldest = rows.oldest(EXPIRE_SLICE).map_err(Fault::Storage)?;
        // One that cannot be read goes with those before it.
        let is_over =
            |(number, at): &(u64, Option<Timestamp>)| *number <= done && at.is_none_or(|at| at <= until);
        if let Some((last, _)) = oldest.into_iter().take_while(is_over).last() {
            rows.expire(last, done).map_err(Fault::Storage)?;
        }
        known.oldest = rows.head().map_err(Fault::Storage)?.oldest;
        Ok(())
    }

    /// When the alarm has to fire: while something is under way it is the dead man's switch as well.
    fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(known) = &self.known else { return Some(now) };
        let flying = self.flights.is_flying().then(|| now.plus_millis(DEAD_MAN_MS));
        let has_more = known.matched < known.last && self.flights.has_room();
        let more = has_more.then_some(now);
        let unstored = known.unstored.map(|since| since.plus_millis(FLUSH_MS));
        let parked = known.parked.next_look(|trigger| known.is_unreadable(trigger));
        let parked = parked.filter(|_| self.flights.has_room());
        let waits = known.waits.next_look(self.flights.has_room());
        let expires = known.oldest.map(|oldest| {
            let over = oldest.plus_millis(self.retention_ms).as_millis();
            Timestamp::from_millis(over.div_ceil(EXPIRY_ROUND_MS) * EXPIRY_ROUND_MS)
        });
        let retired = known.next_forgotten();
        let due = [flying, self.flights.next_due(), more, unstored, parked, expires, waits, retired];
        due.into_iter().flatten().min()
    }

    pub(super) fn known<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<&mut Known, Fault<R::Error>> {
        if self.known.is_none() {
            let head = rows.head().map_err(Fault::Storage)?;
            let (mut triggers, mut unreadable) = (OrdMap::new(), OrdSet::new());
            for (id, trigger) in rows.triggers().map_err(Fault::Storage)? {
                let Some(trigger) = trigger else {
                    unreadable.insert(id);
                    continue;
                };
                let when = condition(&self.name, &trigger.spec);
                let is_readable = when.is_ok();
                let when = when.unwrap_or_default();
                triggers.insert(id, Loaded { trigger, when, is_readable, is_changed: false });
            }
            let parked = Queues::read(rows, now).map_err(Fault::Storage)?;
            let waits = KnownWaits::read(rows, now).map_err(Fault::Storage)?;
            let hooks = Hooks::read(rows, &self.name, &self.keys).map_err(Fault::Storage)?;
            self.flights.clear();
            let mut known = Known {
                triggers,
                unreadable,
                last: head.last,
                matched: head.through,
                through: head.through,
                oldest: head.oldest,
                unstored: None,
                parked,
                hooks,
                looked: waits.looked,
                waits,
            };
            if known.is_idle() {
                known.matched = known.last;
            }
            self.known = Some(known);
        }
        self.known.as_mut().ok_or_else(|| Problem::new(Code::Internal, "The topic was not read.").into())
    }
}

/// There is no such event.
pub fn no_event() -> Problem {
    let detail = "The topic has no event with this id. Events are kept for seven days.";
    Problem::new(Code::EventNotFound, detail)
}
