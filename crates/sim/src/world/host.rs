//! Objects in a world, whatever their kind: when they are loaded, what a turn costs them, and what becomes of them.
//!
//! What a kind does besides is its [`At`]. The rest of the world calls these functions with an object's address, and
//! need not say which kind it is.

use std::rc::Rc;

use stepwell_core::object::{Fault, Hosted as _, Machine as _};
use stepwell_protocol::Timestamp;

use super::{
    World,
    events::{Event, Outgoing},
    site::{Site, Trap},
};
use crate::{
    host::{Batch, Cause, Dead, OrderOf, Refused, Simulated, Turn, WriteOf},
    sabotage::Sabotage,
};

/// Any object of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Any {
    /// A cell.
    Cell(usize),
    /// The catalog.
    Catalog,
}

/// The address of an object, and what is done for its kind alone.
pub trait At: Copy {
    /// Its kind.
    type Kind: Simulated;
    /// Where it is, as its kind says that.
    type Place;

    /// The same, for events.
    fn any(self) -> Any;

    /// What it is called in a transcript.
    fn name(self) -> String;

    /// Where it is.
    fn site(self, world: &World) -> &Site<Self::Kind, Self::Place>;

    /// Where it is, to change it.
    fn site_mut(self, world: &mut World) -> &mut Site<Self::Kind, Self::Place>;

    /// A machine that has looked at nothing yet, and rows on what is on disk.
    fn make(
        self,
        world: &World,
        disk: Rc<<Self::Kind as Simulated>::Disk>,
        is_second: bool,
    ) -> (<Self::Kind as Simulated>::Machine, <Self::Kind as Simulated>::Rows);

    /// What must hold after a turn, what is covered by it, and what the transcript says of it.
    fn after_turn(self, world: &mut World, id: u64, turn: &After<'_, Self::Kind>);

    /// What is to be known of orders although nobody will perform them: the instance is reset.
    fn unperformed(
        self,
        world: &mut World,
        id: u64,
        orders: Vec<OrderOf<Self::Kind>>,
        batch: Option<&Batch<WriteOf<Self::Kind>>>,
    );

    /// Does what was ordered.
    fn perform(self, world: &mut World, id: u64, cause: Cause, orders: Vec<OrderOf<Self::Kind>>);

    /// A transaction reaches the disk.
    fn durable(self, world: &mut World, cause: Cause, write: &WriteOf<Self::Kind>);

    /// The alarm is about to be called.
    fn before_alarm(self, world: &mut World, id: u64);

    /// An instance has lost the name, or is dead.
    fn superseded(self, world: &mut World);

    /// An instance is dead.
    fn died(self, world: &mut World, dead: Dead<Self::Kind, Outgoing>);

    /// The armed alarm is not later than the earliest thing that is due.
    fn check_alarm(self, world: &World, latest: Timestamp) -> crate::check::Checked;
}

/// What a turn has come to.
pub struct After<'a, K: Simulated> {
    pub cause: Cause,
    pub batch: Option<&'a Batch<WriteOf<K>>>,
    pub reads: &'a [u64],
    pub ok: bool,
}

/// Does something with the address of any object.
macro_rules! with_address {
    ($any:expr, $at:ident => $does:expr) => {
        match $any {
            $crate::world::host::Any::Cell($at) => $does,
            $crate::world::host::Any::Catalog => {
                let $at = $crate::world::catalog::TheCatalog;
                $does
            }
        }
    };
}
pub(super) use with_address;

impl World {
    /// The instance that has the object's name, made anew from what is on disk if there is none.
    pub(super) fn load<A: At>(&mut self, at: A) -> u64 {
        if let Some(live) = &at.site(self).live {
            return live.id;
        }
        let disk = at.site(self).disk.clone();
        let made = at.make(self, disk, at.site(self).instances > 0);
        let site = at.site_mut(self);
        let id = site.load(|_, _| made).id;
        if std::mem::take(&mut site.platform.crash_in_recovery) {
            site.platform.trap = Some(Trap::Before);
        }
        self.note(|| format!("{}: instance {id} is loaded", at.name()));
        id
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
        let (now_ms, sabotage) = (self.now_ms, self.sabotage);
        let site = at.site_mut(self);
        let turn = Turn {
            cause,
            clock: site.clock(now_ms),
            refuses: now_ms < site.platform.refuses_until_ms,
            unarmed: false,
            errs: std::mem::take(&mut site.platform.error_next),
            sabotage,
        };
        let turned = site.turn(id, turn, act).expect("only a loaded instance takes a turn");
        let (result, orders, batch, sends) = (turned.result, turned.orders, turned.batch, turned.sends);
        site.platform.error_next |= turned.still_errs;
        let ok = result.is_ok();
        at.after_turn(self, id, &After { cause, batch: batch.as_deref(), reads: &turned.reads, ok });
        if turned.is_broken {
            // The storage throws from here on: the platform resets the instance, and the write stands.
            self.note(|| format!("{}: written, but an error came back", at.name()));
            at.unperformed(self, id, orders, batch.as_deref());
            if !at.site(self).is_stale(id) {
                self.make_durable(at, id);
                // What the machine could not say any more includes the alarm: the platform tries a failed alarm
                // again, everything else waits for the next request.
                let site = at.site_mut(self);
                site.firing |= cause == Cause::Alarm;
                site.alarm_lost = true;
                let delay_ms = self.rng.between(50, 5_000);
                self.put(delay_ms, Event::Touch(at.any()));
            }
            self.crash(at, id);
            return result;
        }
        if batch.is_some() {
            let delay_ms = if self.rng.percent(70) { 0 } else { self.rng.between(1, 25) };
            self.put(delay_ms, Event::Flush(at.any(), id));
        }
        at.perform(self, id, cause, orders);
        if let Any::Cell(cell) = at.any() {
            self.send_mail(cell, id, cause, sends);
        }
        result
    }

    /// Sends once everything that was written so far is durable.
    pub(super) fn send<A: At>(&mut self, at: A, id: u64, outgoing: Outgoing) {
        let sabotage = self.sabotage;
        if let Some(outgoing) = at.site_mut(self).send(id, outgoing, sabotage) {
            self.release(outgoing);
        }
    }

    /// What an instance has written reaches the disk, unless it was superseded or dies.
    pub(super) fn flush<A: At>(&mut self, at: A, id: u64) {
        let writes_anyway = self.is(Sabotage::StaleInstanceWrites);
        let site = at.site_mut(self);
        let is_stale = site.is_stale(id);
        if site.instance(id).is_none_or(|instance| instance.pending.is_empty()) {
            return;
        }
        if is_stale && !writes_anyway {
            self.note(|| format!("{}: instance {id} was superseded and is fenced", at.name()));
            self.crash(at, id);
            return;
        }
        let unanswered = site.unanswered(id);
        let springs = |trap: &mut Trap| *trap != Trap::Unanswered || !unanswered.is_empty();
        let trap = if is_stale { None } else { site.platform.trap.take_if(springs) };
        if trap == Some(Trap::Before) {
            self.crash(at, id);
            return;
        }
        self.make_durable(at, id);
        match trap {
            Some(Trap::After) => return self.crash(at, id),
            Some(Trap::Unanswered) => {
                self.crash(at, id);
                return self.deliver_again(&unanswered);
            }
            Some(Trap::Before) | None => {}
        }
        for outgoing in at.site_mut(self).released(id) {
            self.release(outgoing);
        }
        if !is_stale {
            self.check_alarm(at, id);
        }
    }

    /// The platform saw the connection break, and delivers calls to whichever instance is next.
    fn deliver_again(&mut self, requests: &[u32]) {
        for request in requests {
            self.count("call delivered again to the next instance");
            let delay_ms = self.rng.between(1, 40);
            self.put(delay_ms, Event::Request(*request));
        }
    }

    /// Everything that was written reaches the disk.
    fn make_durable<A: At>(&mut self, at: A, id: u64) {
        for batch in at.site_mut(self).take_pending(id) {
            for write in &batch.writes {
                at.durable(self, batch.cause, write);
            }
            if let Some(alarm) = batch.alarm {
                self.set_alarm(at, alarm);
            }
            if batch.cause == Cause::Alarm {
                at.site_mut(self).firing = false;
            }
        }
    }

    fn set_alarm<A: At>(&mut self, at: A, alarm: Timestamp) {
        let site = at.site_mut(self);
        if !site.set_alarm(alarm) {
            return;
        }
        let platform = &mut site.platform;
        let due_ms = (platform.world_time(alarm) + platform.late_ms).saturating_sub(platform.early_ms);
        (platform.late_ms, platform.early_ms) = (0, 0);
        self.put_at(due_ms, Event::Alarm(at.any(), alarm.as_millis()));
    }

    pub(super) fn on_alarm<A: At>(&mut self, at: A, at_ms: u64) {
        let now_ms = self.now_ms;
        let alarm = Timestamp::from_millis(at_ms);
        if at.site(self).alarm != Some(alarm) {
            return;
        }
        let awaited = std::mem::take(&mut at.site_mut(self).platform.awaited);
        let awaited: Vec<_> =
            awaited.into_iter().filter(|program| self.programs.contains_key(program)).collect();
        if !awaited.is_empty() {
            at.site_mut(self).platform.awaited = awaited;
            self.put(50, Event::Alarm(at.any(), at_ms));
            return;
        }
        let site = at.site_mut(self);
        let due_ms = site.world_time(alarm);
        // Set back, the clock has to get there again. A few milliseconds too early are the platform's to give.
        if due_ms > now_ms + 25 {
            self.put_at(due_ms, Event::Alarm(at.any(), at_ms));
            return;
        }
        site.alarm = None;
        self.fire(at);
    }

    /// The platform calls the alarm.
    pub(super) fn fire<A: At>(&mut self, at: A) {
        at.site_mut(self).firing = true;
        let id = self.load(at);
        at.before_alarm(self, id);
        let fired = self.turn(at, id, Cause::Alarm, |machine, store, now| {
            // What could not be read, the machine comes back to.
            let _ = machine.alarm(store, now);
            Ok(())
        });
        let now_ms = self.now_ms;
        let site = at.site_mut(self);
        let clock = site.clock(now_ms);
        if let Some(again) = site.fired(id, fired.is_ok(), clock) {
            self.set_alarm(at, again);
        }
    }

    /// An instance dies, and everything that was only in memory.
    pub(super) fn crash<A: At>(&mut self, at: A, id: u64) {
        let now_ms = self.now_ms;
        let site = at.site_mut(self);
        let Some(dead) = site.kill(id) else { return };
        let clock = site.clock(now_ms);
        self.note(|| format!("{}: instance {id} dies", at.name()));
        if dead.was_firing {
            // The platform knows that its alarm was not handled.
            let again = clock.plus_millis(self.rng.between(1, 2_000));
            if at.site(self).alarm.is_none_or(|armed| again < armed) {
                self.set_alarm(at, again);
            }
        }
        at.died(self, dead);
    }

    /// What a host does first at every request.
    pub(super) fn repair<A: At>(&mut self, at: A, id: u64) -> Result<(), Fault<Refused>> {
        if self.is(Sabotage::NoRepair) {
            at.site_mut(self).alarm_lost = false;
            return Ok(());
        }
        let believed = at.site(self).believed_alarm();
        let repaired = self.turn(at, id, Cause::Request, |machine, store, now| {
            if machine.wants_repair() {
                machine.found_alarm(believed);
            }
            machine.repair(store, now)
        });
        let site = at.site_mut(self);
        if repaired.is_ok() && !site.is_stale(id) {
            site.alarm_lost = false;
        }
        repaired
    }

    /// The armed alarm is never later than the earliest thing that is due.
    fn check_alarm<A: At>(&mut self, at: A, id: u64) {
        let site = at.site(self);
        let Some(latest) = site.instance(id).filter(|_| site.knows_its_alarm()) else { return };
        let checked = at.check_alarm(self, latest.latest);
        self.must(checked);
    }
}
