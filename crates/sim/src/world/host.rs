//! The host around a cell's machine: the same things in the same order as the one on Durable Objects, with
//! the platform under it in our hands.

use std::collections::{BTreeMap, VecDeque};

use stepwell_core::{
    cell::{Cell as Machine, Order, Slice},
    object::{Fault, Hosted as _, Machine as _},
    run::{CallEnd, Entry, Phase, Session},
};
use stepwell_protocol::{Epoch, Timestamp, program::Budget, rest::Status};

use super::{
    World,
    events::{Event, Listener, Outgoing, Response},
    site::{Instance, Trap},
};
use crate::{
    flows,
    outside::Received,
    sabotage::Sabotage,
    store::{Refused, Store},
    tables::{Batch, Cause},
};

/// How often the platform tries an alarm that fails.
const ALARM_RETRIES_MAX: u32 = 6;

/// How many bytes of events are deleted at once.
const SLICE_BYTES: u64 = 600;

/// How much ahead the clock of a planted bug is.
const EARLY_MS: u64 = 300;

impl World {
    /// The instance that has the cell's name, made anew from what is on disk if there is none.
    pub(super) fn load(&mut self, cell: usize) -> u64 {
        let sabotage = self.sabotage;
        let (window, page_events, queue) = (self.script.window, self.script.page_events, self.script.queue);
        let slice = Slice { rows: self.script.delete_slice, bytes: SLICE_BYTES };
        let mut machine = Machine::new(window).with_delete_slice(slice).with_queue(queue);
        if let Some(commits) = self.script.commits {
            machine = machine.with_budget(Budget { commits, ms: None, step_timeout_ms: None });
        }
        let site = &mut self.sites[cell];
        if let Some(live) = &site.live {
            return live.id;
        }
        site.instances += 1;
        let id = site.instances;
        let store = Store::new(site.place.clone(), site.disk.clone(), page_events, id > 1, sabotage);
        if std::mem::take(&mut site.crash_in_recovery) {
            site.trap = Some(Trap::Before);
        }
        site.live = Some(Instance {
            id,
            machine,
            store,
            pending: VecDeque::new(),
            written: 0,
            flushed: 0,
            held: VecDeque::new(),
            listeners: BTreeMap::new(),
            waiters: BTreeMap::new(),
            calls: BTreeMap::new(),
            ending: Vec::new(),
            latest: Timestamp::default(),
        });
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
        self.transitions += 1;
        let is_early = self.is(Sabotage::TimerEarly) && cause == Cause::Alarm;
        let (never_armed, not_rearmed) =
            (self.is(Sabotage::NeverArmed), self.is(Sabotage::AlarmNotRearmed) && cause == Cause::Alarm);
        let unheard = self.is(Sabotage::UnarmedUnheard);
        let now_ms = self.now_ms;
        let site = &mut self.sites[cell];
        let clock = site.clock(now_ms);
        let refuses = now_ms < site.refuses_until_ms;
        let errs = std::mem::take(&mut site.error_next);
        let instance = site.instance(id).expect("only a loaded instance takes a turn");
        instance.latest = instance.latest.max(clock);
        instance.store.begin(cause, refuses);
        if errs {
            instance.store.fail_after_next();
        }
        let told = if is_early { clock.plus_millis(EARLY_MS) } else { clock };
        let mut result = act(&mut instance.machine, &instance.store, told);
        let forgets = self.sabotage == Some(Sabotage::NudgeForgotten) && id > 1;
        let (mut calls, mut nudges, mut programs, mut ends) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut given_up = Vec::new();
        let orders = instance.machine.take_orders();
        if let Some(at) = orders.arm.filter(|_| !never_armed && !not_rearmed)
            && let Err(refused) = instance.store.set_alarm(at)
        {
            if !unheard {
                instance.machine.not_armed();
            }
            result = Err(Fault::Storage(refused));
        }
        for order in orders.own {
            match order {
                Order::Call { number, epoch } => calls.push((number, epoch)),
                Order::GiveUp { number, epoch } => given_up.push((number, epoch)),
                Order::Nudge { .. } if forgets => {}
                Order::Nudge { number } => nudges.push(number),
                Order::TellProgram(number) => programs.push(number),
                Order::TellEnd(view) => ends.push(view.id.number),
                // Nothing is published in here, and nobody follows.
                Order::TellAt(_) | Order::TellReaders(_) | Order::TellCellReaders => {}
            }
        }
        let (batch, reads) = instance.store.take();
        let broken = instance.store.is_broken();
        let still_errs = instance.store.forget_failure();
        if let Some(batch) = &batch {
            instance.written += 1;
            instance.pending.push_back(batch.clone());
        }
        self.sites[cell].error_next |= still_errs;
        self.after_turn(cell, id, cause, batch.as_ref(), &reads, result.is_ok());
        // Whatever becomes of the instance: what it has written may say that it has given up on these.
        for (number, epoch) in given_up {
            self.give_up_call(cell, id, number, epoch);
        }
        if broken {
            // The storage throws from here on: the platform resets the instance, and the write stands.
            self.note(|| format!("cell {cell}: written, but an error came back"));
            if let Some(instance) = self.sites[cell].instance(id) {
                // The row says that its program is called, whether that was still ordered or not.
                let called = batch.iter().flat_map(|batch| &batch.writes).filter(|write| {
                    write.entries.iter().any(|entry| {
                        matches!(entry, Entry::Activated { slot, .. } if slot.session == Session::Capability)
                    })
                });
                instance.calls.extend(called.map(|write| (write.number, (Epoch(0), 0))));
            }
            if !self.sites[cell].is_stale(id) {
                self.make_durable(cell, id);
                // What the machine could not say any more includes the alarm: the platform tries a failed alarm
                // again, everything else waits for the next request.
                self.sites[cell].firing |= cause == Cause::Alarm;
                self.sites[cell].alarm_lost = true;
                let delay_ms = self.rng.between(50, 5_000);
                self.put(delay_ms, Event::Touch(cell));
            }
            self.crash(cell, id);
            return result;
        }
        if batch.is_some() {
            let delay_ms = if self.rng.percent(70) { 0 } else { self.rng.between(1, 25) };
            self.put(delay_ms, Event::Flush(cell, id));
        }
        for (number, epoch) in calls {
            self.call_program(cell, id, number, epoch, cause);
        }
        for number in nudges {
            self.send(cell, id, Outgoing::Nudge(cell, number));
        }
        for number in programs {
            self.tell_program(cell, id, number);
        }
        for number in ends {
            self.tell_end(cell, id, number);
        }
        result
    }

    /// What is noted, counted and checked about a turn.
    fn after_turn(
        &mut self,
        cell: usize,
        id: u64,
        cause: Cause,
        batch: Option<&Batch>,
        reads: &[u64],
        ok: bool,
    ) {
        let addressed = std::mem::take(&mut self.addressed);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let mut wrong = None;
        for write in batch.into_iter().flat_map(|batch| &batch.writes) {
            let stored = instance.store.peek(write.number).filter(|run| !run.deleting);
            let Some(stored) = stored else { continue };
            // Memory is a cache of rows: whoever asks either must hear the same.
            match instance.machine.find(&instance.store, &stored.id) {
                Ok(mut kept) => {
                    if let Phase::Running { lease, .. } = &mut kept.phase {
                        *lease = None;
                    }
                    // What it has cost is counted in memory and stored with the next write.
                    kept.spent = stored.spent;
                    // So is that nothing is left of its earlier lives.
                    kept.remains = kept.remains.or(stored.remains);
                    // So is its last error.
                    kept.last_error.clone_from(&stored.last_error);
                    if kept != stored && !instance.store.is_broken() {
                        wrong =
                            Some(format!("run {}: memory {kept:?} and rows {stored:?} differ", write.number));
                    }
                }
                Err(_) if instance.store.is_broken() => {}
                Err(_) => wrong = Some(format!("run {} is gone from its own instance", write.number)),
            }
        }
        let read: Vec<_> = reads
            .iter()
            .filter(|number| !addressed.contains(number))
            .filter_map(|number| instance.store.peek(*number))
            .collect();
        self.coverage.note_writes(batch, &addressed);
        for run in read {
            self.coverage.note_idle_grant(&run);
        }
        let (writes, alarm) =
            batch.map_or((0, 0), |batch| (batch.writes.len(), batch.alarm.map_or(0, Timestamp::as_millis)));
        self.digest([cell as u64, id, writes as u64 * 2 + u64::from(ok), alarm]);
        if self.transcript.is_some() {
            let what: Vec<_> = batch
                .into_iter()
                .flat_map(|batch| &batch.writes)
                .map(|write| format!("run {} {}", write.number, brief(write)))
                .collect();
            let armed = batch.and_then(|batch| batch.alarm);
            let armed = armed.map(|at| format!("; alarm at {}", self.sites[cell].world_time(at)));
            self.note(|| {
                let failed = if ok { "" } else { " (refused)" };
                format!(
                    "cell {cell}.{id}: {cause:?}{failed}: {}{}",
                    what.join(", "),
                    armed.unwrap_or_default()
                )
            });
        }
        if let Some(wrong) = wrong {
            self.fail("24 memory is a cache of rows", wrong);
        }
    }

    /// Sends once everything that was written so far is durable.
    pub(super) fn send(&mut self, cell: usize, id: u64, outgoing: Outgoing) {
        let gate_open = self.is(Sabotage::GateOpen);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        if instance.written == instance.flushed || gate_open {
            self.release(outgoing);
        } else {
            instance.held.push_back((instance.written, outgoing));
        }
    }

    /// What an instance has written reaches the disk, unless it was superseded or dies.
    pub(super) fn flush(&mut self, cell: usize, id: u64) {
        let writes_anyway = self.is(Sabotage::StaleInstanceWrites);
        let site = &mut self.sites[cell];
        let is_stale = site.is_stale(id);
        let Some(instance) = site.instance(id) else { return };
        if instance.pending.is_empty() {
            return;
        }
        if is_stale && !writes_anyway {
            self.note(|| format!("cell {cell}: instance {id} was superseded and is fenced"));
            self.crash(cell, id);
            return;
        }
        let unanswered = instance.unanswered();
        let springs = |trap: &mut Trap| *trap != Trap::Unanswered || !unanswered.is_empty();
        let trap = if is_stale { None } else { site.trap.take_if(springs) };
        if trap == Some(Trap::Before) {
            self.crash(cell, id);
            return;
        }
        self.make_durable(cell, id);
        match trap {
            Some(Trap::After) => return self.crash(cell, id),
            Some(Trap::Unanswered) => {
                self.crash(cell, id);
                return self.deliver_again(&unanswered);
            }
            Some(Trap::Before) | None => {}
        }
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let flushed = instance.flushed;
        let mut ready = Vec::new();
        while instance.held.front().is_some_and(|(after, _)| *after <= flushed) {
            ready.extend(instance.held.pop_front().map(|(_, outgoing)| outgoing));
        }
        for outgoing in ready {
            self.release(outgoing);
        }
        if !is_stale {
            self.check_alarm(cell, id);
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
    fn make_durable(&mut self, cell: usize, id: u64) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let batches = std::mem::take(&mut instance.pending);
        instance.flushed += batches.len() as u64;
        for batch in batches {
            for write in &batch.writes {
                let program = match batch.cause {
                    Cause::Program(program) => {
                        self.called.get(&program).copied().filter(|called| called.number == write.number)
                    }
                    Cause::Request | Cause::CallEnded | Cause::Alarm => None,
                };
                let site = &mut self.sites[cell];
                let before = site.disk.run(&site.place, write.number);
                let applied = site.disk.apply(write);
                let after = site.disk.run(&site.place, write.number);
                let latest = site.latest;
                if write.deleted.is_some() || write.entries.contains(&Entry::Expired) {
                    let site = (cell, &self.sites[cell].disk);
                    let checked = self.check.deleted(site, write, before.as_ref(), latest);
                    self.must(checked);
                    continue;
                }
                let Some(after) = after else { continue };
                let checked = match applied {
                    Err(refused) => Err(("5 each outcome is recorded once", refused)),
                    Ok(()) => self.check.durable(
                        (cell, &self.sites[cell].disk),
                        program.map(|called| called.epoch),
                        write,
                        before.as_ref(),
                        &after,
                        latest,
                    ),
                };
                self.must(checked);
                let is_patched = before.is_some_and(|before| !before.patches.is_empty());
                if is_patched && program.is_some_and(|called| !flows::has_patch(called.build)) {
                    self.check.rolled_back(cell, write.number);
                }
                if let Some(called) = program
                    && matches!(after.phase, Phase::Ended { .. } | Phase::Paused { .. })
                {
                    self.check.built_by(cell, write.number, called.build);
                }
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
        site.alarm = Some(at);
        let due_ms = (site.world_time(at) + site.late_ms).saturating_sub(site.early_ms);
        (site.late_ms, site.early_ms) = (0, 0);
        self.put_at(due_ms, Event::Alarm(cell, at.as_millis()));
    }

    pub(super) fn on_alarm(&mut self, cell: usize, at_ms: u64) {
        let now_ms = self.now_ms;
        if self.sites[cell].alarm != Some(Timestamp::from_millis(at_ms)) {
            return;
        }
        let awaited = std::mem::take(&mut self.sites[cell].awaited);
        let awaited: Vec<_> =
            awaited.into_iter().filter(|program| self.programs.contains_key(program)).collect();
        if !awaited.is_empty() {
            self.sites[cell].awaited = awaited;
            self.put(50, Event::Alarm(cell, at_ms));
            return;
        }
        let site = &mut self.sites[cell];
        let due_ms = site.world_time(Timestamp::from_millis(at_ms));
        // Set back, the clock has to get there again. A few milliseconds too early are the platform's to give.
        if due_ms > now_ms + 25 {
            self.put_at(due_ms, Event::Alarm(cell, at_ms));
            return;
        }
        site.alarm = None;
        self.fire(cell);
    }

    /// The platform calls the alarm.
    pub(super) fn fire(&mut self, cell: usize) {
        self.sites[cell].firing = true;
        let id = self.load(cell);
        self.cover_alarm(cell, id);
        if self.is(Sabotage::SilenceNeverEnds) {
            self.hear_all_calls(cell, id);
        }
        if self.is(Sabotage::LeaseNeverEnds) {
            self.renew_leases(cell, id);
        }
        let fired = self.turn(cell, id, Cause::Alarm, Machine::alarm);
        let site = &mut self.sites[cell];
        let Some(instance) = site.instance(id) else { return };
        if instance.pending.iter().all(|batch| batch.cause != Cause::Alarm) {
            site.firing = false;
        }
        if fired.is_ok() {
            site.alarm_failures = 0;
        } else if site.alarm.is_none() && site.alarm_failures < ALARM_RETRIES_MAX {
            site.alarm_failures += 1;
            let delay_ms = 2_000 << (site.alarm_failures - 1);
            let at = site.clock(self.now_ms).plus_millis(delay_ms);
            self.set_alarm(cell, at);
        }
    }

    /// An instance dies, and everything that was only in memory.
    pub(super) fn crash(&mut self, cell: usize, id: u64) {
        let site = &mut self.sites[cell];
        let was_live = !site.is_stale(id);
        let Some(instance) = site.remove(id) else { return };
        self.note(|| format!("cell {cell}: instance {id} dies"));
        let clock = self.sites[cell].clock(self.now_ms);
        if was_live && std::mem::take(&mut self.sites[cell].firing) {
            // The platform knows that its alarm was not handled.
            let at = clock.plus_millis(self.rng.between(1, 2_000));
            if self.sites[cell].alarm.is_none_or(|armed| at < armed) {
                self.set_alarm(cell, at);
            }
        }
        let called = self.sites[cell].called_by(&instance);
        self.check.instance_died(cell, &called);
        for (_, (_, program)) in instance.calls {
            self.orphan(program);
        }
        for listener in instance.listeners.into_values().flatten() {
            // Whoever asks through a consumer sees the call break, and asks again.
            if self.is_queued(listener.program) {
                self.put(1, Event::ToProgram(listener.program, listener.call, Received::Lost));
            }
        }
        if self.is(Sabotage::JournalRowLost) && was_live {
            let journal = self.sites[cell].disk.journal.values_mut().find(|journal| journal.len() > 1);
            if let Some(journal) = journal {
                journal.pop();
            }
        }
    }

    fn tell_program(&mut self, cell: usize, id: u64, number: u64) {
        if self.is(Sabotage::ListenerNotTold) {
            return;
        }
        let Some(instance) = self.sites[cell].instance(id) else { return };
        for listener in instance.listeners.remove(&number).unwrap_or_default() {
            self.put(0, Event::Hear(cell, id, listener));
        }
    }

    fn tell_end(&mut self, cell: usize, id: u64, number: u64) {
        if self.is(Sabotage::EndNotTold) {
            return;
        }
        let Some(instance) = self.sites[cell].instance(id) else { return };
        for request in instance.waiters.remove(&number).unwrap_or_default() {
            self.show(cell, id, number, request);
        }
    }

    /// Answers whoever waits for a run's end.
    pub(super) fn wait_over(&mut self, cell: usize, id: u64, number: u64, request: u32) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let Some(waiters) = instance.waiters.get_mut(&number) else { return };
        let Some(index) = waiters.iter().position(|waiter| *waiter == request) else { return };
        waiters.remove(index);
        let has_ended = self.show(cell, id, number, request).is_some_and(Status::is_terminal);
        if has_ended {
            let detail =
                format!("cell {cell}, run {number}: it has ended and request {request} was not told");
            self.fail("27 whoever waits for the end is told", detail);
        }
    }

    fn show(&mut self, cell: usize, id: u64, number: u64, request: u32) -> Option<Status> {
        let instance = self.sites[cell].instance(id)?;
        let status = instance.store.peek(number)?.status();
        self.send(cell, id, Outgoing::Response(request, Response::Shown(status)));
        Some(status)
    }

    /// The end of a program's call arrives.
    pub(super) fn call_ended(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, end: CallEnd) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        if instance.calls.get(&number).is_some_and(|(of, _)| *of == epoch) {
            instance.calls.remove(&number);
        }
        if self.is(Sabotage::EndOfCallLost) {
            return;
        }
        self.check.call_ended(cell, number, &end);
        self.cover(cell, id, number, crate::coverage::end(&end));
        let ended = self.turn(cell, id, Cause::CallEnded, |machine, store, now| {
            machine.call_ended(store, now, number, epoch, end)
        });
        if ended.is_err() {
            // The end of the call is lost with it: the machine will take the run for one whose cell has died.
            self.check.instance_died(cell, &[(number, Timestamp::default())]);
        }
        if let Some(instance) = self.sites[cell].instance(id) {
            instance.ending.push((number, instance.written));
        }
    }

    /// The machine has given up on a call: its program may still be at work, and is refused when it says something.
    fn give_up_call(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch) {
        self.note(|| format!("cell {cell}: nothing was heard of run {number}, activation {}", epoch.0));
        self.count("silent call");
        let Some(instance) = self.sites[cell].instance(id) else { return };
        if instance.calls.get(&number).is_some_and(|(of, _)| *of == epoch) {
            instance.calls.remove(&number);
        }
        self.check.call_ended(cell, number, &CallEnd::Silent);
    }

    /// What a planted bug does before the alarm looks at silent calls.
    fn hear_all_calls(&mut self, cell: usize, id: u64) {
        let clock = self.sites[cell].clock(self.now_ms);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let calls: Vec<_> = instance.calls.iter().map(|(number, (epoch, _))| (*number, *epoch)).collect();
        for (number, epoch) in calls {
            instance.machine.heard_from(clock, number, epoch);
        }
    }

    /// The armed alarm is never later than the earliest thing that is due.
    fn check_alarm(&mut self, cell: usize, id: u64) {
        let site = &mut self.sites[cell];
        if site.firing || site.alarm_lost || site.alarm_failures > 0 {
            return;
        }
        let alarm = site.alarm;
        let Some(latest) = site.instance(id).map(|instance| instance.latest) else { return };
        let checked = self.check.alarm(cell, &self.sites[cell].disk, alarm, latest);
        self.must(checked);
    }

    pub(super) fn hear(&mut self, cell: usize, id: u64, listener: Listener) {
        if self.sites[cell].instance(id).is_some() {
            self.answer_listener(cell, id, listener);
        }
    }
}

/// What was written, in a few words.
fn brief(write: &crate::tables::Write) -> String {
    if write.is_new {
        return format!("is new ({})", write.row.as_ref().map_or("", |row| row.status));
    }
    let names: Vec<_> = write
        .entries
        .iter()
        .map(|entry| {
            if let Entry::Recorded { record, .. } = entry {
                let event: String = format!("{:?}", record.event).chars().take(90).collect();
                return format!("[{}] {event}", record.seq.0);
            }
            format!("{entry:?}").chars().take(60).collect()
        })
        .collect();
    names.join(" + ")
}
