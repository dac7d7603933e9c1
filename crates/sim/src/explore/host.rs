//! Cells in the explorer: what their orders come to, and what must hold of what they write.

use std::rc::Rc;

use stepwell_core::{
    cell::{Cell as Machine, Order},
    object::{Fault, Hosted as _, Machine as _},
    pools::Pool,
    run::CallEnd,
};
use stepwell_protocol::{Epoch, Timestamp};

use super::state::{BEGINNING_MS, Message, Storage, World};
use crate::{
    host::{Cause, Dead, Refused, Turn, Turned, differs, is_long_past, was_called},
    sabotage::Sabotage,
    store::Store,
    tables::{Batch, Write},
};

/// Places in a cell's window.
const WINDOW: usize = 2;

impl World {
    /// The instance that has the cell's name, made anew from what is on disk if there is none.
    pub(super) fn load(&mut self, cell: usize) -> u64 {
        let (setting, place) = (self.setting.clone(), self.sites[cell].place.clone());
        let pool = Pool::parse("default", &self.sites.len().to_string()).expect("a pool");
        let loaded = self.sites[cell].load(|disk, is_second| {
            let store = Store::new(place, disk, setting.page_events, is_second, setting.sabotage);
            (Machine::new(WINDOW).with_pool(pool, None), store)
        });
        if loaded.is_new {
            self.note(|| format!("cell {cell}: instance {} is loaded", loaded.id));
        }
        loaded.id
    }

    /// Lets the machine do something and performs what it orders.
    pub(super) fn turn<T>(
        &mut self,
        cell: usize,
        id: u64,
        cause: Cause,
        act: impl FnOnce(&mut Machine, &Store, Timestamp) -> Result<T, Fault<Refused>>,
    ) -> Result<T, Fault<Refused>> {
        let turn = Turn {
            cause,
            clock: self.clock(),
            refuses: self.storage == Storage::Refuses,
            unarmed: self.storage == Storage::Unarmed,
            errs: self.storage == Storage::Errs,
            sabotage: self.setting.sabotage,
        };
        let turned = self.sites[cell].turn(id, turn, act);
        let Some(Turned { result, orders, sends, batch, not_armed, is_broken, .. }) = turned else {
            return Err(Fault::Storage(Refused));
        };
        // An alarm that could not be set is set at the next request, or when its cell has another reason to.
        self.sites[cell].alarm_lost |= not_armed && !self.sites[cell].is_stale(id);
        self.struck |= not_armed || is_broken || matches!(&result, Err(Fault::Storage(_)));
        self.after_turn(cell, id, cause, batch.as_deref(), result.is_ok());
        let mut calls = Vec::new();
        for order in orders {
            match order {
                Order::Call { number, epoch } => calls.push((number, epoch)),
                // Whatever becomes of the instance: what it has written may say that it has given up.
                Order::GiveUp { number, epoch } => self.give_up_call(cell, id, number, epoch),
                // There is no queue, nobody listens, and nobody follows.
                Order::Nudge { .. }
                | Order::AskLane(_)
                | Order::TellProgram(_)
                | Order::TellEnd(_)
                | Order::SendSpansAt(_)
                | Order::Log(_)
                | Order::TellAt(_)
                | Order::TellReaders(_)
                | Order::TellCellReaders => {}
            }
        }
        if is_broken {
            self.reset(cell, id, cause, batch.as_deref());
            return result;
        }
        for (number, epoch) in calls {
            self.call_program(cell, id, number, epoch, cause);
        }
        self.send_mail(cell, id, cause, sends);
        result
    }

    /// The storage has written and throws from then on: the platform resets the instance, and the write stands.
    fn reset(&mut self, cell: usize, id: u64, cause: Cause, batch: Option<&Batch>) {
        self.note(|| format!("cell {cell}: written, but an error came back"));
        if let Some(instance) = self.sites[cell].instance_mut(id) {
            let called = batch.into_iter().flat_map(was_called);
            instance.own.calls.extend(called.map(|number| (number, (Epoch(0), 0))));
        }
        if !self.sites[cell].is_stale(id) {
            self.make_durable(cell, id);
            self.sites[cell].firing |= cause == Cause::Alarm;
            // What the machine could not say any more includes the alarm.
            self.sites[cell].alarm_lost = true;
        }
        self.crash(cell, id, false);
    }

    fn after_turn(&mut self, cell: usize, id: u64, cause: Cause, batch: Option<&Batch>, ok: bool) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        if let Some(wrong) = batch.and_then(|batch| differs(instance, batch)) {
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
        let sent = self.sites[cell].send(id, message, self.setting.sabotage);
        self.wire.extend(sent);
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
        let released = self.sites[cell].released(id);
        self.wire.extend(released);
        self.note(|| format!("cell {cell}: what instance {id} has written is durable"));
        if !is_stale {
            self.check_alarm(cell, id);
        }
    }

    /// Everything that was written reaches the disk.
    pub(super) fn make_durable(&mut self, cell: usize, id: u64) {
        let latest = self.clock();
        for batch in self.sites[cell].take_pending(id) {
            for write in &batch.writes {
                let program = match batch.cause {
                    Cause::Program(name) => self.called.get(name as usize).copied(),
                    Cause::Request | Cause::CallEnded | Cause::Alarm => None,
                };
                let program = program.filter(|(number, _)| *number == write.number);
                self.check_mail(cell, write);
                let site = &mut self.sites[cell];
                let before = site.disk.run(&site.place, write.number);
                let applied = site.apply(write);
                let after = site.disk.run(&site.place, write.number);
                let Some(after) = after else { continue };
                let check = Rc::make_mut(&mut self.check);
                let checked = match applied {
                    Err(refused) => Err(("5 each outcome is recorded once", refused)),
                    Ok(()) => check.durable(
                        (cell, &site.disk),
                        program.map(|(_, epoch)| epoch),
                        write,
                        before.as_deref(),
                        &after,
                        latest,
                    ),
                };
                self.must(checked);
            }
            if let Some(at) = batch.alarm {
                self.sites[cell].set_alarm(at);
            }
            if batch.cause == Cause::Alarm {
                self.sites[cell].firing = false;
            }
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
        let clock = self.clock();
        let site = &mut self.sites[cell];
        if let Some(at) = site.fired(id, fired.is_ok(), clock) {
            site.set_alarm(at);
        }
        if fired.is_ok() && site.instance(id).is_some() {
            site.alarm_lost = false;
        }
    }

    /// An instance dies, and everything that was only in memory. Its programs are cancelled, or go on and reach whoever
    /// has the name next.
    pub(super) fn crash(&mut self, cell: usize, id: u64, survive: bool) {
        let Some(Dead { instance, was_live, was_firing }) = self.sites[cell].kill(id) else { return };
        self.note(|| format!("cell {cell}: instance {id} dies"));
        let soon = self.clock().plus_millis(1);
        let site = &mut self.sites[cell];
        if was_firing {
            // The platform knows that its alarm was not handled.
            site.alarm = Some(site.alarm.map_or(soon, |armed| armed.min(soon)));
            site.lost = None;
        }
        let called = site.called_by(&site.place, &instance);
        self.check().instance_died(cell, &called);
        self.orphan(cell, id, survive);
        if self.is(Sabotage::JournalRowLost) && was_live {
            let disk = Rc::make_mut(&mut self.sites[cell].disk);
            if let Some(journal) = disk.journal.values_mut().find(|journal| journal.len() > 1) {
                Rc::make_mut(journal).pop();
            }
        }
    }

    /// Another instance gets the name; the first one keeps what it has and does not know.
    pub(super) fn supersede(&mut self, cell: usize) {
        let site = &mut self.sites[cell];
        let Some(stale) = site.supersede().cloned() else { return };
        let called = site.called_by(&site.place, &stale);
        self.check().instance_died(cell, &called);
        self.note(|| format!("cell {cell}: another instance gets the name"));
        self.load(cell);
    }

    /// The end of a program's call arrives.
    pub(super) fn call_ended(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, end: CallEnd) {
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        instance.call_is_over(number, epoch);
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
        if let Some(instance) = self.sites[cell].instance_mut(id) {
            instance.call_is_ending(number);
        }
    }

    /// The machine has given up on a call: its program may still be at work, and is refused when it says something.
    fn give_up_call(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch) {
        self.note(|| format!("cell {cell}: nothing was heard of run {number}, activation {}", epoch.0));
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        if let Some(name) = instance.call_is_over(number, epoch)
            && self.programs.get(&name).is_some_and(|program| program.hung)
        {
            self.forget(name);
        }
        self.check().call_ended(cell, number, &CallEnd::Silent);
    }

    /// What a planted bug does before the alarm looks at silent calls.
    fn hear_all_calls(&mut self, cell: usize, id: u64) {
        let clock = self.clock();
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let calls: Vec<_> = instance.own.calls.iter().map(|(number, (epoch, _))| (*number, *epoch)).collect();
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
        let believed = self.sites[cell].believed_alarm();
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
        if !site.knows_its_alarm() {
            return;
        }
        let Some(latest) = site.instance(id).map(|instance| instance.latest) else { return };
        let checked = self.check.alarm(cell, &site.disk, site.alarm, latest);
        self.must(checked);
    }
}

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
