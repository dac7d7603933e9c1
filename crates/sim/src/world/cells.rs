//! Cells in a world: what their orders come to, and what must hold of what they write.

use std::rc::Rc;

use stepwell_core::{
    cell::{Cell as Machine, Order, Slice},
    pools::Pool,
    run::{CallEnd, Entry, Phase},
};
use stepwell_protocol::{Epoch, Place, Timestamp, program::Budget, rest::Status};

use super::{
    World,
    events::{Event, Outgoing, Response},
    host::{After, Any, At},
    site::Site,
};
use crate::{
    check::Checked,
    flows,
    host::{Cause, Cells, Dead, Listener, differs, was_called},
    outside::Received,
    sabotage::Sabotage,
    store::Store,
    tables::{Batch, Tables, Write},
};

/// How many bytes of events are deleted at once.
const SLICE_BYTES: u64 = 600;

/// A cell is known by its number.
impl At for usize {
    type Kind = Cells;
    type Place = Place;

    fn any(self) -> Any {
        Any::Cell(self)
    }

    fn name(self) -> String {
        format!("cell {self}")
    }

    fn site(self, world: &World) -> &Site<Cells> {
        &world.sites[self]
    }

    fn site_mut(self, world: &mut World) -> &mut Site<Cells> {
        &mut world.sites[self]
    }

    fn make(self, world: &World, disk: Rc<Tables>, is_second: bool) -> (Machine, Store) {
        let script = &world.script;
        let slice = Slice { rows: script.delete_slice, bytes: SLICE_BYTES };
        let mut machine = Machine::new(script.window).with_delete_slice(slice).with_queue(script.queue);
        let pool = Pool::parse("default", &script.cells.to_string()).expect("a pool");
        machine = machine.with_pool(pool, None);
        if let Some(commits) = script.commits {
            machine = machine.with_budget(Budget { commits, ms: None, step_timeout_ms: None });
        }
        let place = world.sites[self].place.clone();
        (machine, Store::new(place, disk, script.page_events, is_second, world.sabotage))
    }

    fn after_turn(self, world: &mut World, id: u64, turn: &After<'_, Cells>) {
        world.after_turn(self, id, turn);
    }

    fn unperformed(self, world: &mut World, id: u64, orders: Vec<Order>, batch: Option<&Batch>) {
        for order in orders {
            // What was written may say that it has given up on these.
            if let Order::GiveUp { number, epoch } = order {
                world.give_up_call(self, id, number, epoch);
            }
        }
        if let Some(instance) = world.sites[self].instance_mut(id) {
            let called = batch.into_iter().flat_map(was_called);
            instance.own.calls.extend(called.map(|number| (number, (Epoch(0), 0))));
        }
    }

    fn perform(self, world: &mut World, id: u64, cause: Cause, orders: Vec<Order>) {
        world.perform(self, id, cause, orders);
    }

    fn durable(self, world: &mut World, cause: Cause, write: &Write) {
        world.durable(self, cause, write);
    }

    fn before_alarm(self, world: &mut World, id: u64) {
        world.cover_alarm(self, id);
        if world.is(Sabotage::SilenceNeverEnds) {
            world.hear_all_calls(self, id);
        }
        if world.is(Sabotage::LeaseNeverEnds) {
            world.renew_leases(self, id);
        }
    }

    fn superseded(self, world: &mut World) {
        let site = &world.sites[self];
        if let Some(stale) = &site.stale {
            world.check.instance_died(self, &site.called_by(&site.place, stale));
        }
    }

    fn died(self, world: &mut World, dead: Dead<Cells, Outgoing>) {
        let site = &world.sites[self];
        world.check.instance_died(self, &site.called_by(&site.place, &dead.instance));
        for (_, program) in dead.instance.own.calls.values() {
            world.orphan(*program);
        }
        for connection in dead.instance.own.readers.keys() {
            let delay_ms = world.rng.between(1, 40);
            world.put(delay_ms, Event::Broken(*connection));
        }
        for listener in dead.instance.own.listeners.values().flatten() {
            // Whoever asks through a consumer sees the call break, and asks again.
            if world.is_queued(listener.program) {
                world.put(1, Event::ToProgram(listener.program, listener.call, Received::Lost));
            }
        }
        if world.is(Sabotage::JournalRowLost) && dead.was_live {
            let disk = Rc::make_mut(&mut world.sites[self].disk);
            if let Some(journal) = disk.journal.values_mut().find(|journal| journal.len() > 1) {
                Rc::make_mut(journal).pop();
            }
        }
    }

    fn check_alarm(self, world: &World, latest: Timestamp) -> Checked {
        let site = &world.sites[self];
        world.check.alarm(self, &site.disk, site.alarm, latest)
    }
}

impl World {
    fn perform(&mut self, cell: usize, id: u64, cause: Cause, orders: Vec<Order>) {
        let forgets = self.is(Sabotage::NudgeForgotten) && id > 1;
        let (mut calls, mut nudges, mut programs, mut ends) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for order in orders {
            match order {
                Order::Call { number, epoch } => calls.push((number, epoch)),
                Order::GiveUp { number, epoch } => self.give_up_call(cell, id, number, epoch),
                Order::Nudge { .. } if forgets => {}
                Order::Nudge { number } => nudges.push(number),
                Order::TellProgram(number) => programs.push(number),
                Order::TellEnd(view) => ends.push(view.id.number),
                Order::TellReaders(_) if self.is(Sabotage::ReaderNotTold) => {}
                Order::TellReaders(number) => self.mark(cell, id, number),
                // Nothing is published in here, nobody follows all runs, and no workflow has limits.
                Order::TellAt(_)
                | Order::TellCellReaders
                | Order::AskLane(_)
                | Order::SendSpansAt(_)
                | Order::Log(_) => {}
            }
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
    }

    /// What is noted, counted and checked about a turn.
    fn after_turn(&mut self, cell: usize, id: u64, turn: &After<'_, Cells>) {
        let After { cause, batch, reads, ok } = *turn;
        let addressed = std::mem::take(&mut self.addressed);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let wrong = batch.and_then(|batch| differs(instance, batch));
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
        if let Some(batch) = batch.filter(|_| cause == Cause::Alarm) {
            self.check_leases(cell, id, batch);
        }
        if let Some(wrong) = wrong {
            self.fail("24 memory is a cache of rows", wrong);
        }
    }

    /// A transaction reaches the disk.
    fn durable(&mut self, cell: usize, cause: Cause, write: &Write) {
        let program = match cause {
            Cause::Program(program) => {
                self.called.get(&program).copied().filter(|called| called.number == write.number)
            }
            Cause::Request | Cause::CallEnded | Cause::Alarm => None,
        };
        self.check_mail(cell, write);
        let site = &mut self.sites[cell];
        let before = site.disk.run(&site.place, write.number);
        let applied = site.apply(write);
        let after = site.disk.run(&site.place, write.number);
        let latest = site.platform.latest;
        let deletes = |entry: &Entry| matches!(entry, Entry::Expired | Entry::Emptied);
        if write.deleted.is_some() || write.entries.iter().any(deletes) {
            let site = (cell, self.sites[cell].disk.as_ref());
            let checked = self.check.deleted(site, write, before.as_deref(), latest);
            self.must(checked);
            return;
        }
        let Some(after) = after else { return };
        let checked = match applied {
            Err(refused) => Err(("5 each outcome is recorded once", refused)),
            Ok(()) => self.check.durable(
                (cell, &self.sites[cell].disk),
                program.map(|called| called.epoch),
                write,
                before.as_deref(),
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

    fn tell_program(&mut self, cell: usize, id: u64, number: u64) {
        if self.is(Sabotage::ListenerNotTold) {
            return;
        }
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        for listener in instance.own.listeners.remove(&number).unwrap_or_default() {
            self.put(0, Event::Hear(cell, id, listener));
        }
    }

    fn tell_end(&mut self, cell: usize, id: u64, number: u64) {
        if self.is(Sabotage::EndNotTold) {
            return;
        }
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        for request in instance.own.waiters.remove(&number).unwrap_or_default() {
            self.show(cell, id, number, request);
        }
    }

    /// Answers whoever waits for a run's end.
    pub(super) fn wait_over(&mut self, cell: usize, id: u64, number: u64, request: u32) {
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let Some(waiters) = instance.own.waiters.get_mut(&number) else { return };
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
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        instance.call_is_over(number, epoch);
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
        if let Some(instance) = self.sites[cell].instance_mut(id) {
            instance.call_is_ending(number);
        }
    }

    /// The machine has given up on a call: its program may still be at work, and is refused when it says something.
    fn give_up_call(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch) {
        self.note(|| format!("cell {cell}: nothing was heard of run {number}, activation {}", epoch.0));
        self.count("silent call");
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        instance.call_is_over(number, epoch);
        self.check.call_ended(cell, number, &CallEnd::Silent);
    }

    /// What a planted bug does before the alarm looks at silent calls.
    fn hear_all_calls(&mut self, cell: usize, id: u64) {
        let clock = self.sites[cell].clock(self.now_ms);
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let calls: Vec<_> = instance.own.calls.iter().map(|(number, (epoch, _))| (*number, *epoch)).collect();
        for (number, epoch) in calls {
            instance.machine.heard_from(clock, number, epoch);
        }
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
