//! The host around a cell's machine: the same things in the same order as the one on Durable Objects, with the platform
//! under it in the explorer's hands.

use std::{collections::BTreeMap, rc::Rc};

use stepwell_core::{
    cell::{Cell as Machine, Order},
    object::{DEAD_MAN_MS, Fault, Hosted as _, Machine as _},
    run::{CallEnd, Entry, Phase, Session},
};
use stepwell_protocol::{Epoch, Timestamp};

use super::state::{BEGINNING_MS, Instance, Message, Storage, World};
use crate::{
    sabotage::Sabotage,
    store::{Refused, Store},
    tables::{Batch, Cause, Write},
};

/// Places in a cell's window.
const WINDOW: usize = 2;

/// How often the platform tries an alarm that fails.
const ALARM_RETRIES_MAX: u32 = 6;

/// How much ahead the clock of a planted bug is.
const EARLY_MS: u64 = 300;

impl World {
    /// The instance that has the cell's name, made anew from what is on disk if there is none.
    pub(super) fn load(&mut self, cell: usize) -> u64 {
        let setting = self.setting.clone();
        let site = &mut self.sites[cell];
        if let Some(live) = &site.live {
            return live.id;
        }
        site.instances += 1;
        let id = site.instances;
        let disk = site.disk.as_ref().clone();
        site.live = Some(Rc::new(Instance {
            id,
            machine: Machine::new(WINDOW),
            store: Store::new(site.place.clone(), disk, setting.page_events, id > 1, setting.sabotage),
            pending: Vec::new(),
            held: Vec::new(),
            calls: BTreeMap::new(),
            ending: Vec::new(),
            latest: Timestamp::default(),
        }));
        self.note(|| format!("cell {cell}: instance {id} is loaded"));
        id
    }

    /// Lets the machine do something and performs what it orders.
    pub(super) fn turn<T>(
        &mut self,
        cell: usize,
        id: u64,
        cause: Cause,
        act: impl FnOnce(&mut Machine, &Store, Timestamp) -> Result<T, Fault<Refused>>,
    ) -> Result<T, Fault<Refused>> {
        let is_alarm = cause == Cause::Alarm;
        let clock = self.clock();
        let told =
            if self.is(Sabotage::TimerEarly) && is_alarm { clock.plus_millis(EARLY_MS) } else { clock };
        let never_armed = self.is(Sabotage::NeverArmed) || self.is(Sabotage::AlarmNotRearmed) && is_alarm;
        let unheard = self.is(Sabotage::UnarmedUnheard);
        let storage = self.storage;
        let Some(instance) = self.sites[cell].instance_mut(id) else { return Err(Fault::Storage(Refused)) };
        instance.latest = instance.latest.max(clock);
        instance.store.begin(cause, storage == Storage::Refuses);
        if storage == Storage::Errs {
            instance.store.fail_after_next();
        }
        let mut result = act(&mut instance.machine, &instance.store, told);
        let (mut calls, mut given_up, mut struck) = (Vec::new(), Vec::new(), false);
        let orders = instance.machine.take_orders();
        if let Some(at) = orders.arm.filter(|_| !never_armed) {
            let is_unarmed = storage == Storage::Unarmed;
            let set = if is_unarmed { Err(Refused) } else { instance.store.set_alarm(at) };
            if let Err(refused) = set {
                struck = true;
                if !unheard {
                    instance.machine.not_armed();
                }
                result = Err(Fault::Storage(refused));
            }
        }
        for order in orders.own {
            match order {
                Order::Call { number, epoch } => calls.push((number, epoch)),
                Order::GiveUp { number, epoch } => given_up.push((number, epoch)),
                // There is no queue, nobody listens, and nobody follows.
                Order::Nudge { .. }
                | Order::TellProgram(_)
                | Order::TellEnd(_)
                | Order::TellAt(_)
                | Order::TellReaders(_)
                | Order::TellCellReaders => {}
            }
        }
        let (batch, _) = instance.store.take();
        let is_broken = instance.store.is_broken();
        instance.store.forget_failure();
        instance.pending.extend(batch.clone());
        // An alarm that could not be set is set at the next request, or when its cell has another reason to.
        self.sites[cell].alarm_lost |= struck && !self.sites[cell].is_stale(id);
        self.struck |= struck || is_broken || matches!(&result, Err(Fault::Storage(_)));
        self.after_turn(cell, id, cause, batch.as_ref(), result.is_ok());
        // Whatever becomes of the instance: what it has written may say that it has given up on these.
        for (number, epoch) in given_up {
            self.give_up_call(cell, id, number, epoch);
        }
        if is_broken {
            self.reset(cell, id, cause, batch.as_ref());
            return result;
        }
        for (number, epoch) in calls {
            self.call_program(cell, id, number, epoch, cause);
        }
        result
    }

    /// The storage has written and throws from then on: the platform resets the instance, and the write stands.
    fn reset(&mut self, cell: usize, id: u64, cause: Cause, batch: Option<&Batch>) {
        self.note(|| format!("cell {cell}: written, but an error came back"));
        if let Some(instance) = self.sites[cell].instance_mut(id) {
            // The row says that its program is called, whether that was still ordered or not.
            let called = batch.into_iter().flat_map(|batch| &batch.writes).filter(|write| {
                write.entries.iter().any(|entry| {
                    matches!(entry, Entry::Activated { slot, .. } if slot.session == Session::Capability)
                }) || write.is_new
            });
            instance.calls.extend(called.map(|write| (write.number, (Epoch(0), 0))));
        }
        if !self.sites[cell].is_stale(id) {
            self.make_durable(cell, id);
            self.sites[cell].firing |= cause == Cause::Alarm;
            // What the machine could not say any more includes the alarm.
            self.sites[cell].alarm_lost = true;
        }
        self.crash(cell, id, false);
    }

    /// Memory is a cache of rows: whoever asks either must hear the same.
    fn after_turn(&mut self, cell: usize, id: u64, cause: Cause, batch: Option<&Batch>, ok: bool) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let mut wrong = None;
        for write in batch.into_iter().flat_map(|batch| &batch.writes) {
            let stored = instance.store.peek(write.number);
            let Some(stored) = stored.filter(|_| !instance.store.is_broken()) else { continue };
            match instance.machine.find(&instance.store, &stored.id) {
                Ok(mut kept) => {
                    if let Phase::Running { lease, .. } = &mut kept.phase {
                        *lease = None;
                    }
                    // Counted in memory, and stored with the next write.
                    kept.spent = stored.spent;
                    kept.last_error.clone_from(&stored.last_error);
                    if kept != stored {
                        wrong = Some(format!("run {}: memory {kept:?}, rows {stored:?}", write.number));
                    }
                }
                Err(_) => wrong = Some(format!("run {} is gone from its own instance", write.number)),
            }
        }
        if let Some(wrong) = wrong {
            self.must(Err(("24 memory is a cache of rows", wrong)));
        }
        if self.notes.is_some() {
            let writes = batch.into_iter().flat_map(|batch| &batch.writes);
            let mut what: Vec<_> = writes.map(brief).collect();
            let armed = batch.and_then(|batch| batch.alarm);
            what.extend(armed.map(|at| format!("the alarm is set to {}", Self::world_ms(at))));
            let failed = if ok { "" } else { " (refused)" };
            self.note(|| format!("cell {cell}.{id}: {cause:?}{failed}: {}", what.join(", ")));
        }
    }

    /// Sends once everything that was written so far is durable.
    pub(super) fn send(&mut self, cell: usize, id: u64, message: Message) {
        let is_open = self.is(Sabotage::GateOpen);
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        if instance.pending.is_empty() || is_open {
            self.wire.push(message);
        } else {
            instance.held.push(message);
        }
    }

    /// What an instance has written reaches the disk, unless it was superseded.
    pub(super) fn flush(&mut self, cell: usize, id: u64) {
        let is_stale = self.sites[cell].is_stale(id);
        if is_stale && !self.is(Sabotage::StaleInstanceWrites) {
            self.note(|| format!("cell {cell}: instance {id} was superseded and is fenced"));
            self.crash(cell, id, false);
            return;
        }
        self.make_durable(cell, id);
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let held = std::mem::take(&mut instance.held);
        self.wire.extend(held);
        self.note(|| format!("cell {cell}: what instance {id} has written is durable"));
        if !is_stale {
            self.check_alarm(cell, id);
        }
    }

    /// Everything that was written reaches the disk.
    pub(super) fn make_durable(&mut self, cell: usize, id: u64) {
        let latest = self.clock();
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        instance.ending.clear();
        for batch in std::mem::take(&mut instance.pending) {
            for write in &batch.writes {
                let program = match batch.cause {
                    Cause::Program(name) => self.called.get(name as usize).copied(),
                    Cause::Request | Cause::CallEnded | Cause::Alarm => None,
                };
                let program = program.filter(|(number, _)| *number == write.number);
                let site = &mut self.sites[cell];
                let before = site.disk.run(&site.place, write.number);
                let applied = Rc::make_mut(&mut site.disk).apply(write);
                let after = site.disk.run(&site.place, write.number);
                let Some(after) = after else { continue };
                let check = Rc::make_mut(&mut self.check);
                let checked = match applied {
                    Err(refused) => Err(("5 each outcome is recorded once", refused)),
                    Ok(()) => check.durable(
                        (cell, &site.disk),
                        program.map(|(_, epoch)| epoch),
                        write,
                        before.as_ref(),
                        &after,
                        latest,
                    ),
                };
                self.must(checked);
            }
            if let Some(at) = batch.alarm {
                self.set_alarm(cell, at);
            }
            if batch.cause == Cause::Alarm {
                self.sites[cell].firing = false;
            }
        }
    }

    fn set_alarm(&mut self, cell: usize, at: Timestamp) {
        let site = &mut self.sites[cell];
        // A platform that has lost an alarm, and does not know, does nothing about one that is set for the same time.
        if site.lost != Some(at) {
            (site.alarm, site.lost) = (Some(at), None);
        }
    }

    /// The platform calls the alarm.
    pub(super) fn fire(&mut self, cell: usize) {
        self.sites[cell].firing = true;
        let id = self.load(cell);
        if self.is(Sabotage::SilenceNeverEnds) {
            self.hear_all_calls(cell, id);
        }
        let fired = self.turn(cell, id, Cause::Alarm, |machine, store, now| {
            // What could not be read, the machine comes back to.
            let _ = machine.alarm(store, now);
            Ok(())
        });
        let retry_at = self.clock();
        let site = &mut self.sites[cell];
        let Some(instance) = site.instance(id) else { return };
        if instance.pending.iter().all(|batch| batch.cause != Cause::Alarm) {
            site.firing = false;
        }
        if fired.is_ok() {
            (site.alarm_failures, site.alarm_lost) = (0, false);
        } else if site.alarm_failures < ALARM_RETRIES_MAX {
            site.alarm_failures += 1;
            let at = retry_at.plus_millis(2_000 << (site.alarm_failures - 1));
            self.set_alarm(cell, at);
        }
    }

    /// An instance dies, and everything that was only in memory. Its programs are cancelled, or go on and reach whoever
    /// has the name next.
    pub(super) fn crash(&mut self, cell: usize, id: u64, survive: bool) {
        let was_live = !self.sites[cell].is_stale(id);
        let Some(instance) = self.sites[cell].remove(id) else { return };
        self.note(|| format!("cell {cell}: instance {id} dies"));
        let soon = self.clock().plus_millis(1);
        let site = &mut self.sites[cell];
        if was_live && std::mem::take(&mut site.firing) {
            // The platform knows that its alarm was not handled.
            site.alarm = Some(site.alarm.map_or(soon, |armed| armed.min(soon)));
            site.lost = None;
        }
        let called = self.sites[cell].called_by(&instance);
        self.check().instance_died(cell, &called);
        self.orphan(cell, id, survive);
        if self.is(Sabotage::JournalRowLost) && was_live {
            let disk = Rc::make_mut(&mut self.sites[cell].disk);
            if let Some(journal) = disk.journal.values_mut().find(|journal| journal.len() > 1) {
                journal.pop();
            }
        }
    }

    /// Another instance gets the name; the first one keeps what it has and does not know.
    pub(super) fn supersede(&mut self, cell: usize) {
        let site = &mut self.sites[cell];
        let Some(live) = site.live.take() else { return };
        let called = site.called_by(&live);
        site.stale = Some(live);
        self.check().instance_died(cell, &called);
        self.note(|| format!("cell {cell}: another instance gets the name"));
        self.load(cell);
    }

    /// The end of a program's call arrives.
    pub(super) fn call_ended(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, end: CallEnd) {
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        if instance.calls.get(&number).is_some_and(|(of, _)| *of == epoch) {
            instance.calls.remove(&number);
        }
        if self.is(Sabotage::EndOfCallLost) {
            return;
        }
        self.check().call_ended(cell, number, &end);
        let ended = self.turn(cell, id, Cause::CallEnded, |machine, store, now| {
            machine.call_ended(store, now, number, epoch, end)
        });
        if ended.is_err() {
            // The end of the call is lost with it: the machine will take the run for one whose cell has died.
            self.check().instance_died(cell, &[(number, Timestamp::default())]);
        }
        if let Some(instance) = self.sites[cell].instance_mut(id)
            && !instance.pending.is_empty()
        {
            instance.ending.push(number);
        }
    }

    /// The machine has given up on a call: its program may still be at work, and is refused when it says something.
    fn give_up_call(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch) {
        self.note(|| format!("cell {cell}: nothing was heard of run {number}, activation {}", epoch.0));
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let given_up = instance.calls.get(&number).copied().filter(|(of, _)| *of == epoch);
        if let Some((_, name)) = given_up {
            instance.calls.remove(&number);
            if self.programs.get(&name).is_some_and(|program| program.hung) {
                self.forget(name);
            }
        }
        self.check().call_ended(cell, number, &CallEnd::Silent);
    }

    /// What a planted bug does before the alarm looks at silent calls.
    fn hear_all_calls(&mut self, cell: usize, id: u64) {
        let clock = self.clock();
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let calls: Vec<_> = instance.calls.iter().map(|(number, (epoch, _))| (*number, *epoch)).collect();
        for (number, epoch) in calls {
            instance.machine.heard_from(clock, number, epoch);
        }
    }

    /// What a host does first at every request. Whoever has lost the alarm notices then, at the latest.
    pub(super) fn repair(&mut self, cell: usize, id: u64) -> Result<(), Fault<Refused>> {
        if self.is(Sabotage::NoRepair) {
            self.sites[cell].alarm_lost = false;
            return Ok(());
        }
        let believed = self.sites[cell].alarm.or(self.sites[cell].lost);
        let mut is_fresh = false;
        let repaired = self.turn(cell, id, Cause::Request, |machine, store, now| {
            is_fresh = machine.wants_repair();
            if is_fresh {
                machine.found_alarm(believed);
            }
            machine.repair(store, now)
        });
        let clock = self.clock();
        let site = &mut self.sites[cell];
        // Whoever has set the alarm itself cannot know before its time that it was lost.
        let should_know = is_fresh || site.lost.is_none_or(|lost| is_long_past(lost, clock));
        if repaired.is_ok() && should_know && !site.is_stale(id) {
            site.alarm_lost = false;
        }
        repaired
    }

    /// The armed alarm is never later than the earliest thing that is due.
    pub(super) fn check_alarm(&mut self, cell: usize, id: u64) {
        let site = &self.sites[cell];
        if site.firing || site.alarm_lost || site.alarm_failures > 0 {
            return;
        }
        let Some(latest) = site.instance(id).map(|instance| instance.latest) else { return };
        let checked = self.check.alarm(cell, &site.disk, site.alarm, latest);
        self.must(checked);
    }
}

/// Whether an alarm for this time is not late any more, but lost.
fn is_long_past(at: Timestamp, clock: Timestamp) -> bool {
    at.plus_millis(LOST_AFTER_MS) <= clock
}

/// How late an alarm may be.
const LOST_AFTER_MS: u64 = DEAD_MAN_MS;

/// What was written, in a few words.
fn brief(write: &Write) -> String {
    if write.is_new {
        return format!("run {} is new ({})", write.number, write.row.as_ref().map_or("", |row| row.status));
    }
    let names: Vec<_> = write
        .entries
        .iter()
        .map(|entry| {
            let text = match entry.record() {
                Some(record) => format!("[{}] {:?}", record.seq.0, record.event),
                None => format!("{entry:?}"),
            };
            let text = relative(&text);
            text.chars().take(100).collect::<String>()
        })
        .collect();
    format!("run {} {}", write.number, names.join(" + "))
}

/// A text with the world's own times.
fn relative(text: &str) -> String {
    let beginning = (BEGINNING_MS / 1_000_000_000).to_string();
    text.replace(&format!("Timestamp({beginning}"), "Timestamp(")
}
