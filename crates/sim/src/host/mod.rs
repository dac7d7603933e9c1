//! The host of an object: what is around its machine, whatever its kind.
//!
//! It does what the host on Durable Objects does, in the same order: lets the machine do something, sets the alarm in
//! the same turn, says if that failed, and holds back whatever goes out until all that was written before is durable.
//! The random worlds and the explorer both stand on it; what differs is who decides when something happens.
//!
//! Owns: instances and what becomes of them, the alarm as the platform sees it, what is pending and what is held back.
//! Does not own: what a kind's orders mean, and what must hold. That is each world's.

mod calls;
mod view;

use std::{collections::VecDeque, fmt::Debug, ops::Deref, rc::Rc};

use stepwell_core::object::{DEAD_MAN_MS, Delivery, Fault, Hosted, Machine, Receipt, Sending};
use stepwell_protocol::Timestamp;

pub use calls::{Calls, Cells, Connection, Listener, differs, was_called};
pub use view::{Batch, Cause, Disk, Refused, View};

use crate::sabotage::Sabotage;

/// How often the platform tries an alarm that fails.
const ALARM_RETRIES_MAX: u32 = 6;

/// How much ahead the clock of a planted bug is.
const EARLY_MS: u64 = 300;

/// A kind of object that the simulator hosts.
pub trait Simulated: Clone + Sized {
    /// What is shipped.
    type Machine: Machine<Self::Rows, Error = Refused> + Clone + Debug;
    /// Its rows, on a disk in memory.
    type Rows: Deref<Target = View<Self::Disk>> + Clone + Debug;
    /// Its tables.
    type Disk: Disk;
    /// What its host has in memory besides the machine, and loses with the instance.
    type Own: Clone + Debug + Default;
}

/// What a machine of a kind orders.
pub type OrderOf<K> = <<K as Simulated>::Machine as Hosted>::Order;

/// What a kind writes in one transaction.
pub type WriteOf<K> = <<K as Simulated>::Disk as Disk>::Write;

/// An object's place: its disk, its alarm, and the instances that take it for theirs. `M` is what they send.
#[derive(Clone)]
pub struct Host<K: Simulated, M: Clone> {
    /// What is durable.
    pub disk: Rc<K::Disk>,
    /// When the platform will call the alarm.
    pub alarm: Option<Timestamp>,
    /// When it believes that it will, and will not: it does nothing about one that is set for the same time again.
    pub lost: Option<Timestamp>,
    /// Whether that, or an alarm that could not be set, is still to be noticed.
    pub alarm_lost: bool,
    /// Whether the alarm is being handled, and that is not durable yet.
    pub firing: bool,
    /// How often the alarm has failed in a row.
    pub alarm_failures: u32,
    /// Whoever has the name.
    pub live: Option<Rc<Instance<K, M>>>,
    /// Whoever has lost it and does not know.
    pub stale: Option<Rc<Instance<K, M>>>,
    /// How many instances there were.
    pub instances: u64,
}

/// An instance of an object: the machine, and what is lost when it dies.
#[derive(Clone)]
pub struct Instance<K: Simulated, M: Clone> {
    /// Which one of the place.
    pub id: u64,
    /// The machine.
    pub machine: K::Machine,
    /// What it sees of the disk.
    pub store: K::Rows,
    /// What it has written and the disk has not.
    pub pending: VecDeque<Rc<Batch<WriteOf<K>>>>,
    /// How many batches it has written.
    pub written: u64,
    /// How many of them are durable.
    pub flushed: u64,
    /// What leaves once its batch is durable.
    pub held: VecDeque<(u64, M)>,
    /// The latest that it has seen.
    pub latest: Timestamp,
    /// What its host has besides.
    pub own: K::Own,
}

/// The circumstances of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Who has caused it.
    pub cause: Cause,
    /// What the clock shows.
    pub clock: Timestamp,
    /// Whether nothing can be written.
    pub refuses: bool,
    /// Whether the alarm cannot be set.
    pub unarmed: bool,
    /// Whether the next write is done, and answered with an error.
    pub errs: bool,
    /// A mechanism that is switched off.
    pub sabotage: Option<Sabotage>,
}

/// What came of a turn.
pub struct Turned<K: Simulated, T> {
    /// What the machine has answered.
    pub result: Result<T, Fault<Refused>>,
    /// What only this kind has to have done.
    pub orders: Vec<OrderOf<K>>,
    /// What has to go out to other objects.
    pub sends: Vec<Sending>,
    /// What was written.
    pub batch: Option<Rc<Batch<WriteOf<K>>>>,
    /// The rows that were read, by number.
    pub reads: Vec<u64>,
    /// Whether the alarm could not be set.
    pub not_armed: bool,
    /// Whether the storage throws from here on: the platform resets the instance, and what was written stands.
    pub is_broken: bool,
    /// Whether nothing was written that an error could have come back for.
    pub still_errs: bool,
}

/// An instance that is dead.
pub struct Dead<K: Simulated, M: Clone> {
    /// What it was.
    pub instance: Rc<Instance<K, M>>,
    /// Whether it had the name.
    pub was_live: bool,
    /// Whether the platform knows that its alarm was not handled, and will call it again.
    pub was_firing: bool,
}

impl<K: Simulated, M: Clone> Default for Host<K, M> {
    fn default() -> Self {
        Self {
            disk: Rc::default(),
            alarm: None,
            lost: None,
            alarm_lost: false,
            firing: false,
            alarm_failures: 0,
            live: None,
            stale: None,
            instances: 0,
        }
    }
}

impl<K: Simulated, M: Clone> Host<K, M> {
    /// The instance that has the name. If there is none, it is made anew from what is on disk; `is_second` says that
    /// another one was there before.
    pub fn load(&mut self, make: impl FnOnce(Rc<K::Disk>, bool) -> (K::Machine, K::Rows)) -> Loaded {
        if let Some(live) = &self.live {
            return Loaded { id: live.id, is_new: false };
        }
        self.instances += 1;
        let id = self.instances;
        let (machine, store) = make(self.disk.clone(), id > 1);
        self.live = Some(Rc::new(Instance {
            id,
            machine,
            store,
            pending: VecDeque::new(),
            written: 0,
            flushed: 0,
            held: VecDeque::new(),
            latest: Timestamp::default(),
            own: K::Own::default(),
        }));
        Loaded { id, is_new: true }
    }

    /// One of its instances.
    pub fn instance(&self, id: u64) -> Option<&Instance<K, M>> {
        [&self.live, &self.stale].into_iter().flatten().find(|instance| instance.id == id).map(Rc::as_ref)
    }

    /// One of its instances, to change it.
    pub fn instance_mut(&mut self, id: u64) -> Option<&mut Instance<K, M>> {
        let instances = [&mut self.live, &mut self.stale].into_iter().flatten();
        instances.into_iter().find(|instance| instance.id == id).map(Rc::make_mut)
    }

    /// Whether this instance has lost the name.
    pub fn is_stale(&self, id: u64) -> bool {
        self.stale.as_ref().is_some_and(|instance| instance.id == id)
    }

    /// Another instance may get the name: the one that has it keeps what it has, and does not know.
    pub fn supersede(&mut self) -> Option<&Rc<Instance<K, M>>> {
        self.stale = Some(self.live.take()?);
        self.stale.as_ref()
    }

    /// An instance dies, and everything that was only in memory.
    pub fn kill(&mut self, id: u64) -> Option<Dead<K, M>> {
        let was_live = !self.is_stale(id);
        let slot = if was_live { &mut self.live } else { &mut self.stale };
        let instance = slot.take_if(|instance| instance.id == id)?;
        let was_firing = was_live && std::mem::take(&mut self.firing);
        Some(Dead { instance, was_live, was_firing })
    }

    /// The platform takes an alarm. One that it has lost, and does not know, it does nothing about if it is set for the
    /// same time. Says whether it will call it.
    pub fn set_alarm(&mut self, at: Timestamp) -> bool {
        let is_lost = self.lost == Some(at);
        if !is_lost {
            (self.alarm, self.lost) = (Some(at), None);
        }
        !is_lost
    }

    /// What the platform says that the alarm is set for.
    pub fn believed_alarm(&self) -> Option<Timestamp> {
        self.alarm.or(self.lost)
    }

    /// The alarm was called. Says when the platform calls it again, if it has failed.
    pub fn fired(&mut self, id: u64, ok: bool, clock: Timestamp) -> Option<Timestamp> {
        let instance = self.instance(id)?;
        if instance.pending.iter().all(|batch| batch.cause != Cause::Alarm) {
            self.firing = false;
        }
        if ok {
            self.alarm_failures = 0;
            return None;
        }
        if self.alarm.is_some() || self.alarm_failures >= ALARM_RETRIES_MAX {
            return None;
        }
        self.alarm_failures += 1;
        Some(clock.plus_millis(2_000 << (self.alarm_failures - 1)))
    }

    /// Whether the alarm must be right by now.
    pub fn knows_its_alarm(&self) -> bool {
        !self.firing && !self.alarm_lost && self.alarm_failures == 0
    }

    /// A transaction reaches the disk.
    pub fn apply(&mut self, write: &WriteOf<K>) -> Result<(), String> {
        Rc::make_mut(&mut self.disk).apply(write)
    }

    /// What an instance has written and is about to become durable.
    pub fn take_pending(&mut self, id: u64) -> VecDeque<Rc<Batch<WriteOf<K>>>> {
        let Some(instance) = self.instance_mut(id) else { return VecDeque::new() };
        instance.flushed = instance.written;
        std::mem::take(&mut instance.pending)
    }

    /// What may leave, now that all that was written before is durable.
    pub fn released(&mut self, id: u64) -> Vec<M> {
        let Some(instance) = self.instance_mut(id) else { return Vec::new() };
        let flushed = instance.flushed;
        let mut released = Vec::new();
        while instance.held.front().is_some_and(|(after, _)| *after <= flushed) {
            released.extend(instance.held.pop_front().map(|(_, message)| message));
        }
        released
    }

    /// Sends once everything that was written so far is durable. Gives back what may leave at once.
    pub fn send(&mut self, id: u64, message: M, sabotage: Option<Sabotage>) -> Option<M> {
        let instance = self.instance_mut(id)?;
        if instance.written == instance.flushed || sabotage == Some(Sabotage::GateOpen) {
            return Some(message);
        }
        instance.held.push_back((instance.written, message));
        None
    }

    /// Lets the machine do something: rows and alarm are one commit. If the alarm cannot be set, the machine is told so,
    /// and the rest is done all the same.
    pub fn turn<T>(
        &mut self,
        id: u64,
        turn: Turn,
        act: impl FnOnce(&mut K::Machine, &K::Rows, Timestamp) -> Result<T, Fault<Refused>>,
    ) -> Option<Turned<K, T>> {
        let Turn { cause, clock, sabotage, .. } = turn;
        let (is, is_alarm) = (|bug| sabotage == Some(bug), cause == Cause::Alarm);
        let told = if is(Sabotage::TimerEarly) && is_alarm { clock.plus_millis(EARLY_MS) } else { clock };
        let never_armed = is(Sabotage::NeverArmed) || is(Sabotage::AlarmNotRearmed) && is_alarm;
        let instance = self.instance_mut(id)?;
        instance.latest = instance.latest.max(clock);
        instance.store.begin(cause, turn.refuses);
        if turn.errs {
            instance.store.fail_after_next();
        }
        let mut result = act(&mut instance.machine, &instance.store, told);
        let orders = instance.machine.take_orders();
        let mut not_armed = false;
        if let Some(at) = orders.arm.filter(|_| !never_armed)
            && let Err(refused) = if turn.unarmed { Err(Refused) } else { instance.store.set_alarm(at) }
        {
            not_armed = true;
            if !is(Sabotage::UnarmedUnheard) {
                instance.machine.not_armed();
            }
            result = Err(Fault::Storage(refused));
        }
        let batch = instance.store.take().map(Rc::new);
        if let Some(batch) = &batch {
            instance.written += 1;
            instance.pending.push_back(batch.clone());
        }
        Some(Turned {
            result,
            orders: orders.own,
            sends: orders.send,
            batch,
            reads: instance.store.take_reads(),
            not_armed,
            is_broken: instance.store.is_broken(),
            still_errs: instance.store.forget_failure(),
        })
    }
}

/// An instance that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Which one it is.
    pub id: u64,
    /// Whether it was made just now.
    pub is_new: bool,
}

/// What the sender of a message hears, by what its receiver's machine has said. Whoever has lost the name may not know of
/// anything that came after: that it refuses something proves nothing.
pub fn delivery(received: Result<Receipt, Fault<Refused>>, is_stale: bool) -> Delivery {
    match received {
        Ok(receipt) => Delivery::Arrived(receipt),
        Err(Fault::Rejected(problem)) if !is_stale => Delivery::refused(problem),
        Err(Fault::Rejected(_) | Fault::Storage(Refused) | Fault::Moved(_)) => Delivery::Failed,
    }
}

/// Whether an alarm for this time is not late any more, but lost.
pub fn is_long_past(at: Timestamp, clock: Timestamp) -> bool {
    at.plus_millis(DEAD_MAN_MS) <= clock
}
