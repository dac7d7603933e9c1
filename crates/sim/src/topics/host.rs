//! Objects in a world of topics, whatever their kind: when they are loaded, what a turn costs them, what becomes of them.

use std::rc::Rc;

use stepwell_core::object::{Fault, Hosted as _, Machine as _, Sending};
use stepwell_protocol::Timestamp;

use super::{
    BEGINNING_MS, Planted, World,
    events::{Event, Out},
};
use crate::{
    check::Checked,
    host::{Batch, Cause, Host, OrderOf, Refused, Simulated, Turn, WriteOf, is_long_past},
    sabotage::Sabotage,
};

/// Any object of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Any {
    /// A cell.
    Cell(usize),
    /// The topic.
    Topic,
}

/// The topic, as an address.
#[derive(Clone, Copy, Debug)]
pub struct TheTopic;

/// An object's place: its host, and what the platform under it is about to do.
pub struct Site<K: Simulated> {
    /// The host.
    pub host: Host<K, Out>,
    /// How much its clock is ahead, from a day.
    pub offset_ms: u64,
    /// The latest that its clock has ever shown.
    pub latest: Timestamp,
    /// Until when nothing can be written, in the world's time.
    pub refuses_until_ms: u64,
    /// Whether the next write is done, and answered with an error.
    pub errs_next: bool,
    /// Whether the instance dies at the next flush, and whether after it.
    pub trap: Option<Trap>,
}

/// When an instance dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// Before what it has written is durable.
    Before,
    /// As soon as it is.
    After,
}

impl<K: Simulated> Default for Site<K> {
    fn default() -> Self {
        Self {
            host: Host::default(),
            offset_ms: 0,
            latest: Timestamp::default(),
            refuses_until_ms: 0,
            errs_next: false,
            trap: None,
        }
    }
}

impl<K: Simulated> Site<K> {
    /// What its clock shows.
    pub fn clock(&mut self, now_ms: u64) -> Timestamp {
        let clock = Timestamp::from_millis(BEGINNING_MS + now_ms + self.offset_ms);
        self.latest = self.latest.max(clock);
        clock
    }

    /// When its clock will show this, in the world's time.
    fn world_time(&self, at: Timestamp) -> u64 {
        at.as_millis().saturating_sub(BEGINNING_MS + self.offset_ms)
    }
}

/// The address of an object, and what is done for its kind alone.
pub trait At: Copy {
    /// Its kind.
    type Kind: Simulated;

    /// The same, for events.
    fn any(self) -> Any;

    /// Where it is.
    fn site(self, world: &World) -> &Site<Self::Kind>;

    /// Where it is, to change it.
    fn site_mut(self, world: &mut World) -> &mut Site<Self::Kind>;

    /// A machine that has looked at nothing yet, and rows on what is on disk.
    fn make(
        self,
        world: &World,
        disk: Rc<<Self::Kind as Simulated>::Disk>,
        is_second: bool,
    ) -> (<Self::Kind as Simulated>::Machine, <Self::Kind as Simulated>::Rows);

    /// Does what was ordered.
    fn perform(self, world: &mut World, id: u64, cause: Cause, orders: Vec<OrderOf<Self::Kind>>);

    /// Lets messages go out with the commit.
    fn post(self, world: &mut World, id: u64, sends: Vec<Sending>);

    /// A transaction reaches the disk.
    fn durable(self, world: &mut World, write: &WriteOf<Self::Kind>);

    /// An instance is dead.
    fn died(self, world: &mut World, id: u64);

    /// The armed alarm is not later than the earliest thing that is due.
    fn check_alarm(self, world: &World, latest: Timestamp) -> Checked;
}

/// Does something with the address of any object.
macro_rules! with_address {
    ($any:expr, $at:ident => $does:expr) => {
        match $any {
            $crate::topics::host::Any::Cell($at) => $does,
            $crate::topics::host::Any::Topic => {
                let $at = $crate::topics::host::TheTopic;
                $does
            }
        }
    };
}
pub(super) use with_address;

impl World {
    /// The instance that has the object's name, made anew from what is on disk if there is none.
    pub(super) fn load<A: At>(&mut self, at: A) -> u64 {
        if let Some(live) = &at.site(self).host.live {
            return live.id;
        }
        let host = &at.site(self).host;
        let made = at.make(self, host.disk.clone(), host.instances > 0);
        at.site_mut(self).host.load(|_, _| made).id
    }

    /// The instance that a request reaches, once it has looked after its alarm: now and then one that has lost the name.
    pub(super) fn reach<A: At>(&mut self, at: A) -> Option<u64> {
        let stale = at.site(self).host.stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            Some(stale) if self.rng.percent(30) => {
                self.note("a request reaches an instance that has lost its name");
                stale
            }
            Some(_) | None => self.load(at),
        };
        if self.is(Planted::NoRepair) {
            at.site_mut(self).host.alarm_lost = false;
            return Some(id);
        }
        let believed = at.site(self).host.believed_alarm();
        let mut is_fresh = false;
        let repaired = self.turn(at, id, Cause::Request, |machine, rows, now| {
            is_fresh = machine.wants_repair();
            if is_fresh {
                machine.found_alarm(believed);
            }
            machine.repair(rows, now)
        });
        let now_ms = self.now_ms;
        let site = at.site_mut(self);
        let clock = site.clock(now_ms);
        let host = &mut site.host;
        // Whoever has set the alarm itself cannot know before its time that it was lost.
        let should_know = is_fresh || host.lost.is_none_or(|lost| is_long_past(lost, clock));
        if repaired.is_ok() && should_know && !host.is_stale(id) {
            host.alarm_lost = false;
        }
        repaired.ok()?;
        host.instance(id).map(|instance| instance.id)
    }

    /// Lets the machine do something and performs what it orders.
    pub(super) fn turn<A: At, T>(
        &mut self,
        at: A,
        id: u64,
        cause: Cause,
        act: impl FnOnce(
            &mut <A::Kind as Simulated>::Machine,
            &<A::Kind as Simulated>::Rows,
            Timestamp,
        ) -> Result<T, Fault<Refused>>,
    ) -> Result<T, Fault<Refused>> {
        self.transitions += 1;
        let now_ms = self.now_ms;
        let site = at.site_mut(self);
        let (clock, refuses) = (site.clock(now_ms), now_ms < site.refuses_until_ms);
        let errs = std::mem::take(&mut site.errs_next);
        let turn = Turn { cause, clock, refuses, unarmed: false, errs, sabotage: None };
        let Some(turned) = site.host.turn(id, turn, act) else { return Err(Fault::Storage(Refused)) };
        site.errs_next |= turned.still_errs;
        if turned.is_broken {
            self.reset(at, id, cause);
            return turned.result;
        }
        if turned.batch.is_some() {
            let delay_ms = if self.rng.percent(70) { 0 } else { self.rng.between(1, 25) };
            self.put(delay_ms, Event::Flush(at.any(), id));
        }
        at.perform(self, id, cause, turned.orders);
        at.post(self, id, turned.sends);
        turned.result
    }

    /// The write stands, an error came back, and the platform resets the instance.
    fn reset<A: At>(&mut self, at: A, id: u64, cause: Cause) {
        self.note("a write is done, and answered with an error");
        if !at.site(self).host.is_stale(id) {
            self.make_durable(at, id);
            let host = &mut at.site_mut(self).host;
            host.firing |= cause == Cause::Alarm;
            // What the machine could not say any more includes the alarm.
            host.alarm_lost = true;
            let delay_ms = self.rng.between(50, 5_000);
            self.put(delay_ms, Event::Touch(at.any()));
        }
        self.crash(at, id);
    }

    /// Sends once everything that was written so far is durable.
    pub(super) fn send<A: At>(&mut self, at: A, id: u64, out: Out) {
        let unfenced = match at.any() {
            Any::Cell(_) => self.is(Planted::CellUnfenced),
            Any::Topic => self.is(Planted::TopicUnfenced),
        };
        let is_answer = matches!(out, Out::Answer(..));
        let site = at.site_mut(self);
        let is_only_armed = |batch: &Rc<Batch<WriteOf<A::Kind>>>| batch.writes.is_empty();
        let opens = unfenced
            && site.host.instance(id).is_some_and(|instance| instance.pending.iter().all(is_only_armed));
        let opens = opens || is_answer && self.is(Planted::AnsweredEarly);
        let sabotage = opens.then_some(Sabotage::GateOpen);
        if let Some(out) = at.site_mut(self).host.send(id, out, sabotage) {
            self.release(out);
        }
    }

    /// What an instance has written reaches the disk, unless it was superseded or dies.
    pub(super) fn flush<A: At>(&mut self, at: A, id: u64) {
        let site = at.site_mut(self);
        if site.host.instance(id).is_none_or(|instance| instance.pending.is_empty()) {
            return;
        }
        if site.host.is_stale(id) {
            self.note("an instance that has lost its name is fenced");
            return self.crash(at, id);
        }
        let trap = site.trap.take();
        if trap == Some(Trap::Before) {
            self.note("an instance dies before its write is durable");
            return self.crash(at, id);
        }
        self.make_durable(at, id);
        if trap == Some(Trap::After) {
            self.note("an instance dies after its write is durable");
            return self.crash(at, id);
        }
        for out in at.site_mut(self).host.released(id) {
            self.release(out);
        }
        let host = &at.site(self).host;
        if let Some(latest) = host.instance(id).filter(|_| host.knows_its_alarm()).map(|known| known.latest) {
            let checked = at.check_alarm(self, latest);
            self.must(checked);
        }
    }

    fn make_durable<A: At>(&mut self, at: A, id: u64) {
        for batch in at.site_mut(self).host.take_pending(id) {
            for write in &batch.writes {
                self.order += 1;
                let applied = at.site_mut(self).host.apply(write);
                self.must(applied.map_err(|refused| ("5 what was recorded stays", refused)));
                at.durable(self, write);
            }
            if let Some(alarm) = batch.alarm {
                self.set_alarm(at, alarm);
            }
            if batch.cause == Cause::Alarm {
                at.site_mut(self).host.firing = false;
            }
        }
    }

    fn set_alarm<A: At>(&mut self, at: A, alarm: Timestamp) {
        if at.site_mut(self).host.set_alarm(alarm) {
            let is_late = self.breaks() && self.rng.percent(5);
            let late_ms = if is_late { self.rng.between(1, 20_000) } else { 0 };
            let due_ms = at.site(self).world_time(alarm).max(self.now_ms) + late_ms;
            self.put_at(due_ms, Event::Alarm(at.any(), alarm));
        }
    }

    pub(super) fn on_alarm<A: At>(&mut self, at: A, alarm: Timestamp) {
        if at.site(self).host.alarm != Some(alarm) {
            return;
        }
        let due_ms = at.site(self).world_time(alarm);
        if due_ms > self.now_ms {
            // Set back, the clock has to get there again.
            return self.put_at(due_ms, Event::Alarm(at.any(), alarm));
        }
        at.site_mut(self).host.alarm = None;
        self.fire(at);
    }

    /// The platform calls the alarm.
    pub(super) fn fire<A: At>(&mut self, at: A) {
        at.site_mut(self).host.firing = true;
        let id = self.load(at);
        let fired = self.turn(at, id, Cause::Alarm, |machine, rows, now| {
            // What could not be read, the machine comes back to.
            let _ = machine.alarm(rows, now);
            Ok(())
        });
        let now_ms = self.now_ms;
        let site = at.site_mut(self);
        let clock = site.clock(now_ms);
        if let Some(again) = site.host.fired(id, fired.is_ok(), clock) {
            self.set_alarm(at, again);
        }
    }

    /// An instance dies, and everything that was only in memory.
    pub(super) fn crash<A: At>(&mut self, at: A, id: u64) {
        let now_ms = self.now_ms;
        let site = at.site_mut(self);
        let Some(dead) = site.host.kill(id) else { return };
        let clock = site.clock(now_ms);
        if dead.was_firing {
            let again = clock.plus_millis(self.rng.between(1, 2_000));
            if at.site(self).host.alarm.is_none_or(|armed| again < armed) {
                self.set_alarm(at, again);
            }
        }
        at.died(self, id);
    }
}
