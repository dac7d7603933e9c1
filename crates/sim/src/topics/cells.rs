//! Cells in a world of topics: the production machine, the programs that it calls, and what it has to do with events.

use std::{
    rc::Rc,
    task::{Context, Poll, Waker},
};

use stepwell::vm::{Order as Word, Vm};
use stepwell_core::{
    cell::{Action, Cell as Machine, Chance, Order, TriggeredRun},
    object::{Delivery, Fault, Receipt, Sending},
    pools::Pool,
    run::{CallEnd, Phase},
    topic::{EventStart, Meeting, StartEnd, event_key},
};
use stepwell_protocol::{
    Code, Epoch, Event as JournalEvent, Payload, Place, Problem, RunId, Seq, Timestamp,
    program::{Activation, Commit, Dispatch, Page, RawPage},
    topic::Waiter,
};

use super::{
    CELLS, Planted, World,
    events::{Event, Out, Post},
    host::{Any, At, Site},
};
use crate::{
    check::{Checked, Checker},
    host::{Cause, Cells, Refused},
    outside::Received,
    rng::hash64,
    sabotage::Sabotage,
    store::Store,
    tables::{Tables, Write},
    world::refused,
};

/// How many programs a cell calls at once.
const WINDOW: usize = 8;

/// How many events go into a page of a journal.
const PAGE_EVENTS: usize = 20;

/// How often a program is polled before it counts as one that waits for nothing.
const POLLS_MAX: u32 = 8;

/// What a program says to its cell.
#[derive(Clone, Debug)]
pub enum Said {
    /// It reports.
    Commit(Rc<str>),
    /// It reads on in its journal.
    Page(Seq),
}

/// A call of a program.
pub struct Program {
    cell: usize,
    instance: u64,
    number: u64,
    epoch: Epoch,
    activation: Option<Activation>,
    vm: Option<Vm>,
    call: u32,
}

/// Where a cell is.
pub fn place(cell: usize) -> Place {
    Place { pool: "default".into(), generation: 1, cell: u32::try_from(cell).expect("small") }
}

/// The pool of all cells.
pub fn pool() -> Pool {
    Pool::parse("default", &CELLS.to_string()).expect("a pool")
}

impl At for usize {
    type Kind = Cells;

    fn any(self) -> Any {
        Any::Cell(self)
    }

    fn site(self, world: &World) -> &Site<Cells> {
        &world.cells[self]
    }

    fn site_mut(self, world: &mut World) -> &mut Site<Cells> {
        &mut world.cells[self]
    }

    fn make(self, world: &World, disk: Rc<Tables>, is_second: bool) -> (Machine, Store) {
        let sabotage = match world.planted {
            Some(Planted::StartKeyless) => Some(Sabotage::KeyLost),
            Some(Planted::HadForgotten) => Some(Sabotage::SignalIdLost),
            Some(Planted::LettersForgotten) => Some(Sabotage::LettersForgotten),
            Some(_) | None => None,
        };
        let store = Store::new(place(self), disk, PAGE_EVENTS, is_second, sabotage);
        (Machine::new(WINDOW).with_pool(pool(), None), store)
    }

    fn perform(self, world: &mut World, id: u64, cause: Cause, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Call { number, epoch } => world.call_program(self, id, number, epoch, cause),
                Order::GiveUp { number, epoch } => {
                    world.programs.retain(|_, program| {
                        (program.cell, program.instance, program.number, program.epoch)
                            != (self, id, number, epoch)
                    });
                }
                // There is no queue, nobody listens, and nobody follows.
                Order::Nudge { .. }
                | Order::TellProgram(_)
                | Order::TellEnd(_)
                | Order::SendSpansAt(_)
                | Order::Log(_)
                | Order::TellAt(_)
                | Order::TellReaders(_)
                | Order::AskLane(_)
                | Order::TellCellReaders => {}
            }
        }
    }

    fn post(self, world: &mut World, id: u64, sends: Vec<Sending>) {
        for sending in sends {
            world.send(self, id, Out::Letter(Post { cell: self, id, sending }));
        }
    }

    fn durable(self, world: &mut World, write: &Write) {
        let (order, now_ms) = (world.order, world.now_ms);
        world.tell(|| {
            let entries: Vec<_> = write.entries.iter().map(|entry| format!("{entry:?}")).collect();
            let posted = write.mail.post.len();
            format!("[{order}] cell {self}: run {} {} ({posted} letters)", write.number, entries.join(" + "))
        });
        let checked = world.model.cell_wrote(self, &world.cells[self].host.disk, write, (order, now_ms));
        world.must(checked);
    }

    fn died(self, world: &mut World, id: u64) {
        world.programs.retain(|_, program| (program.cell, program.instance) != (self, id));
    }

    fn check_alarm(self, world: &World, latest: Timestamp) -> Checked {
        let host = &world.cells[self].host;
        Checker::new(CELLS).alarm(self, &host.disk, host.alarm, latest)
    }
}

impl World {
    /// The machine has ordered a call: what it is called with is read at once, and leaves with the commit.
    fn call_program(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, cause: Cause) {
        let activation =
            self.turn(cell, id, cause, |machine, store, now| machine.activation(store, now, number, epoch));
        let Ok(activation) = activation else {
            let end = CallEnd::Lost("its journal could not be read".into());
            return self.put(1, Event::CallEnded(cell, id, number, epoch, end));
        };
        self.last_program += 1;
        let text = serde_json::to_string(&activation).expect("an activation is JSON");
        let activation = serde_json::from_str(&text).expect("it was written as one");
        let program =
            Program { cell, instance: id, number, epoch, activation: Some(activation), vm: None, call: 0 };
        self.programs.insert(self.last_program, program);
        if let Some(instance) = self.cells[cell].host.instance_mut(id) {
            instance.called(number, epoch, self.last_program);
        }
        self.send(cell, id, Out::Begin(self.last_program));
    }

    /// Something leaves a cell for a program. A connection that breaks is noticed.
    pub(super) fn release_to_program(&mut self, out: Out) {
        let (Out::Begin(name) | Out::ToProgram(name, ..)) = &out else { return };
        let name = *name;
        if self.breaks_with_program(name) {
            return;
        }
        let delay_ms = self.rng.between(0, 20);
        match out {
            Out::ToProgram(name, call, received) => {
                self.put(delay_ms, Event::ToProgram(name, call, received));
            }
            Out::Begin(_)
            | Out::Letter(_)
            | Out::Receipt(..)
            | Out::Start(..)
            | Out::Started(..)
            | Out::Meet(..)
            | Out::Met(..)
            | Out::Answer(..) => self.put(delay_ms, Event::Begin(name)),
        }
    }

    fn breaks_with_program(&mut self, name: u32) -> bool {
        let breaks = self.breaks() && self.rng.percent(2);
        if breaks {
            self.note("the connection with a program breaks");
            self.end_program(name, CallEnd::Lost("the connection broke".into()));
        }
        breaks
    }

    fn end_program(&mut self, name: u32, end: CallEnd) {
        let Some(program) = self.programs.remove(&name) else { return };
        let Program { cell, instance, number, epoch, .. } = program;
        self.put(5, Event::CallEnded(cell, instance, number, epoch, end));
    }

    /// The call arrives at the app.
    pub(super) fn begin(&mut self, name: u32) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        let Some(activation) = program.activation.take() else { return };
        program.vm = Some(Vm::new(&self.app, activation));
        self.go_on(name);
    }

    fn go_on(&mut self, name: u32) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        let Some(vm) = &mut program.vm else { return };
        let said = poll(vm);
        program.call += 1;
        let call = program.call;
        if !self.breaks_with_program(name) {
            let delay_ms = self.rng.between(0, 20);
            self.put(delay_ms, Event::ToCell(name, call, said));
        }
    }

    /// An answer arrives at a program.
    pub(super) fn hear(&mut self, name: u32, call: u32, received: Received) {
        let Some(program) = self.programs.get_mut(&name).filter(|program| program.call == call) else {
            return;
        };
        let Some(vm) = &mut program.vm else { return };
        let goes_on = match received {
            Received::Answer(answer) => vm.answered(answer),
            Received::Page(page) => vm.page(page),
            Received::Lost => return self.end_program(name, CallEnd::Lost("the connection broke".into())),
        };
        if goes_on {
            self.go_on(name);
        } else {
            self.end_program(name, CallEnd::Returned);
        }
    }

    /// What a program says arrives at its cell.
    pub(super) fn on_said(&mut self, name: u32, call: u32, said: Said) {
        let Some(program) = self.programs.get(&name) else { return };
        let &Program { cell, instance: id, number, epoch, .. } = program;
        let received = match said {
            Said::Commit(text) => {
                let commit: Commit = serde_json::from_str(&text).expect("a program writes commits");
                let answer = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
                    machine.commit(store, now, number, epoch, commit, hash64(&text))
                });
                Received::Answer(refused(answer))
            }
            Said::Page(after) => {
                let Some(instance) = self.cells[cell].host.instance(id) else { return };
                let page = instance.machine.page(&instance.store, number, epoch, after);
                page.map_or(Received::Lost, |page| Received::Page(read_page(&page)))
            }
        };
        self.send(cell, id, Out::ToProgram(name, call, received));
    }

    /// The end of a program's call arrives at its cell.
    pub(super) fn call_ended(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, end: CallEnd) {
        let Some(instance) = self.cells[cell].host.instance_mut(id) else { return };
        instance.call_is_over(number, epoch);
        // What the storage does not take, the machine takes for the death of a cell.
        let _ = self.turn(cell, id, Cause::CallEnded, |machine, store, now| {
            machine.call_ended(store, now, number, epoch, end)
        });
    }

    /// People let go on what was paused because too much has broken.
    pub(super) fn resume_all(&mut self, cell: usize) {
        let disk = self.cells[cell].host.disk.clone();
        let paused = disk.runs.keys().filter_map(|number| disk.run(&place(cell), *number));
        let paused: Vec<_> = paused
            .filter(|run| matches!(run.phase, Phase::Paused { .. }))
            .map(|run| run.id.clone())
            .collect();
        for run in paused {
            let Some(id) = self.reach(cell) else { return };
            let _ = self.turn(cell, id, Cause::Request, |machine, store, now| {
                machine.act(store, now, &run, "root", Action::Resume)
            });
        }
    }

    /// What became of a letter arrives at its sender.
    pub(super) fn on_receipt(&mut self, post: &Post, delivery: Delivery) {
        let Post { cell, id, sending } = post;
        if self.cells[*cell].host.instance(*id).is_some() {
            // What the storage does not take is sent again.
            let _ = self.turn(*cell, *id, Cause::Request, |machine, store, now| {
                machine.delivered(store, now, sending, delivery)
            });
        }
    }

    /// A cell is asked to start the run of an event.
    pub(super) fn on_start(&mut self, from: u64, start: Box<EventStart>) {
        let cell = usize::try_from(start.to.cell).expect("small");
        let key = event_key(&start.triggered);
        let is_refused = self.model.refused.contains(&key);
        if is_refused || self.breaks() && self.rng.percent(1) && !self.model.has_run(&start.triggered) {
            self.note("a run is refused for good");
            self.model.refused.insert(key);
            let end = StartEnd::Refused(Problem::new(Code::PayloadTooLarge, "never"));
            return self.release(Out::Started(from, start, end));
        }
        if self.declines(cell) {
            self.note("a run is declined for now");
            let end = StartEnd::Declined(Problem::new(Code::LimitReached, "not now"));
            return self.release(Out::Started(from, start, end));
        }
        let Some(id) = self.reach(cell) else {
            return self.release(Out::Started(from, start, StartEnd::Failed));
        };
        let EventStart { triggered, workflow, input, tags, spare, .. } = (*start).clone();
        let run = TriggeredRun {
            callback: None,
            flow: None,
            joins: None,
            triggered,
            workflow,
            input,
            tags,
            spare,
            dispatch: Dispatch::default(),
            timeout_ms: None,
            retention_ms: None,
            retention_is_default: false,
        };
        let drawn = self.rng.bits();
        let chance = Chance { suffix: RunId::suffix_from(drawn), seed: drawn };
        let started = self.turn(cell, id, Cause::Request, |machine, store, now| {
            machine.start_triggered(store, now, place(cell), chance, run)
        });
        let end = match started {
            Ok(Receipt::Started { run } | Receipt::Joined { run }) => StartEnd::Started(run),
            Ok(Receipt::Moved { to }) => StartEnd::Moved(to),
            Ok(Receipt::Gone | Receipt::Taken | Receipt::Passed | Receipt::Later)
            | Err(Fault::Storage(Refused) | Fault::Moved(_)) => StartEnd::Failed,
            Err(Fault::Rejected(problem)) => StartEnd::Declined(problem),
        };
        self.send(cell, id, Out::Started(from, start, end));
    }

    /// A cell is told of an event that runs of it wait for.
    pub(super) fn on_meet(&mut self, from: u64, meeting: Box<Meeting>) {
        let cell = usize::try_from(meeting.to.cell).expect("small");
        let Some(id) = self.reach(cell) else { return self.release(Out::Met(from, meeting, None)) };
        let waits = meeting.waits.iter().map(|wait| {
            // Its cell knows the rest.
            Waiter { when: None, input: Payload::default(), ..wait.waiter.clone() }
        });
        let waits: Vec<_> = waits.collect();
        let receipts = self.turn(cell, id, Cause::Request, |machine, store, now| {
            Ok(machine.meet(store, now, &meeting.event, waits))
        });
        let mut receipts = receipts.ok();
        self.meet_anyway(cell, id, &meeting, receipts.as_deref());
        self.tell(|| format!("cell {cell}.{id} is told of {}: {receipts:?}", meeting.event.tag));
        for receipt in receipts.iter().flatten() {
            self.note(match receipt {
                Receipt::Taken => "a wait takes an event",
                Receipt::Gone => "a wait is over when its event comes",
                Receipt::Passed => "a wait passes an event that its run has had",
                Receipt::Started { .. } | Receipt::Joined { .. } | Receipt::Moved { .. } | Receipt::Later => {
                    "a wait cannot take its event yet"
                }
            });
        }
        if self.is(Planted::LaterIsGone) {
            let later = receipts.iter_mut().flatten().filter(|receipt| **receipt == Receipt::Later);
            later.for_each(|receipt| *receipt = Receipt::Gone);
        }
        if self.cells[cell].host.instance(id).is_some() {
            self.send(cell, id, Out::Met(from, meeting, receipts));
        } else {
            self.release(Out::Met(from, meeting, None));
        }
    }

    /// What planted bugs do with an event that a wait has had, or that comes too late.
    fn meet_anyway(&mut self, cell: usize, id: u64, meeting: &Meeting, receipts: Option<&[Receipt]>) {
        let wanted = match self.planted {
            Some(Planted::TakenTwice) => Receipt::Taken,
            Some(Planted::TakenTooLate) => Receipt::Gone,
            Some(_) | None => return,
        };
        for (wait, receipt) in meeting.waits.iter().zip(receipts.unwrap_or_default()) {
            let (number, op) = (wait.waiter.run.number, wait.waiter.op.clone());
            let is_wanted = *receipt == wanted && !wait.waiter.cancels && self.rng.percent(50);
            let Some(instance) = self.cells[cell].host.instance(id).filter(|_| is_wanted) else { continue };
            let Some(known) = instance.store.peek(number) else { continue };
            if matches!(known.phase, Phase::Ended { .. }) {
                continue;
            }
            let event = JournalEvent::SignalReceived {
                name: op.name.clone(),
                id: Some(format!("\n{}/{}", meeting.event.tag, op.name)),
                payload: Payload::default(),
                by: Some(meeting.event.tag.clone()),
                since: None,
                to: Some(op.occurrence),
            };
            let clock = self.cells[cell].latest;
            let _ = self.turn(cell, id, Cause::Request, |_, store, _| {
                store.write_anyway(number, clock, &event);
                Ok(())
            });
        }
    }
}

fn poll(vm: &mut Vm) -> Said {
    for _ in 0..POLLS_MAX {
        match vm.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Word::Commit(commit)) => {
                let text = serde_json::to_string(&commit).expect("a commit is JSON");
                return Said::Commit(text.into());
            }
            Poll::Ready(Word::Page(after)) => return Said::Page(after),
            Poll::Pending => {}
        }
    }
    panic!("these workflows wait for nothing that takes time but suspended");
}

fn read_page(page: &RawPage) -> Page {
    let text = serde_json::to_string(page).expect("a page is JSON");
    serde_json::from_str(&text).expect("it was written as one")
}
