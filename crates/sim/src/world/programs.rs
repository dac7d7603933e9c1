//! Programs: the app's side of an activation, run by the real driver and the real replay VM.

use std::{
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use stepwell::drive;
use stepwell_core::{
    cell::Rows as _,
    object::Fault,
    run::{BEAT_MS, CallEnd, Run},
};
use stepwell_protocol::{
    Code, Epoch, Event as JournalEvent, Failure, Op, OpKind, Payload, Problem, RunId, Seq,
    program::{Activation, Answer, Commit, Page, RawPage, Then},
};

use super::{
    Called, World,
    consumers::Relay,
    events::{Event, Listener, Outgoing, What, Word},
};
use crate::{
    check::Holder,
    family::{self, FAMILY},
    host::{Cause, Refused},
    outside::{self, Deed, Message, Received, Wire},
    rng::hash64,
    sabotage::Sabotage,
};

/// How often a program may wake itself before something else happens.
const TURNS_MAX: u32 = 1_000;

type Running = Pin<Box<dyn Future<Output = Result<(), ()>>>>;

/// One call of a program.
pub(super) struct Program {
    pub number_of: u32,
    pub cell: usize,
    /// The instance that has called it.
    pub instance: u64,
    pub run: RunId,
    pub epoch: Epoch,
    /// How much of the journal it was called with.
    pub head: Seq,
    /// Whether it does nothing any more.
    pub hung: bool,
    /// Whether nobody but its cell will ever notice.
    pub hangs_for_ever: bool,
    /// Whether it reaches whichever instance has the name.
    pub survives: bool,
    /// What a consumer knows of it; nothing if its cell holds the call.
    pub relay: Option<Relay>,
    activation: Option<Activation>,
    future: Option<Running>,
    woken: Arc<Woken>,
    work_at_ms: Option<u64>,
}

/// Whose word it is, and who gets it.
#[derive(Clone, Copy)]
pub(super) struct From {
    pub cell: usize,
    pub id: u64,
    pub name: u32,
    pub number: u64,
    pub epoch: Epoch,
}

/// What was answered to a commit, and how the run stood after that.
pub(super) struct Committed {
    answer: &'static str,
    run: Option<Rc<Run>>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl World {
    /// The machine has ordered a call: what it is called with is read at once, and leaves with the commit.
    pub(super) fn call_program(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, cause: Cause) {
        self.addressed.insert(number);
        let activation =
            self.turn(cell, id, cause, |machine, store, now| machine.activation(store, now, number, epoch));
        if self.sites[cell].instance(id).is_none() {
            return;
        }
        let Ok(activation) = activation else {
            let end = CallEnd::Lost("its journal could not be read".into());
            self.put(1, Event::CallEnded(cell, id, number, epoch, end));
            return;
        };
        let Some(name) = self.new_program(cell, id, &activation) else { return };
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        instance.called(number, epoch, name);
        if cause == Cause::Alarm && self.is(Sabotage::AlarmAwaitsDispatch) {
            self.sites[cell].platform.awaited.push(name);
        }
        self.send(cell, id, Outgoing::Begin(name));
    }

    /// A program that is about to be called with this.
    pub(super) fn new_program(
        &mut self,
        cell: usize,
        id: u64,
        activation: &Activation<RawPage>,
    ) -> Option<u32> {
        self.last_program += 1;
        let (name, number, epoch) = (self.last_program, activation.run.number, activation.epoch);
        let text = serde_json::to_string(activation).expect("an activation is JSON");
        let activation: Activation = serde_json::from_str(&text).expect("it was written as one");
        let head = self.sites[cell].instance(id)?.store.peek(number).map_or(Seq(0), |run| run.head);
        let program = Program {
            number_of: name,
            cell,
            instance: id,
            run: activation.run.clone(),
            epoch,
            head,
            hung: false,
            hangs_for_ever: false,
            survives: false,
            relay: None,
            activation: Some(activation),
            future: None,
            woken: Arc::default(),
            work_at_ms: None,
        };
        self.programs.insert(name, program);
        Some(name)
    }

    /// Something leaves for good.
    pub(super) fn release(&mut self, outgoing: Outgoing) {
        let copies = self.network();
        let mut arrives = |event: &Event| {
            for delay_ms in &copies {
                self.put(*delay_ms, event.clone());
            }
        };
        match outgoing {
            Outgoing::Ask(question) => arrives(&Event::Question(question)),
            Outgoing::Told(question, answer) => arrives(&Event::Told(question, answer)),
            Outgoing::Tell(telling) => arrives(&Event::Telling(telling)),
            Outgoing::Forgot(telling) => arrives(&Event::Forgot(telling)),
            Outgoing::Letter(post) => self.release_letter(&post, &copies),
            Outgoing::Shown(connection, shown) => self.release_shown(connection, shown, !copies.is_empty()),
            Outgoing::Receipt(post, delivery) => self.release_receipt(&post, &delivery, &copies),
            Outgoing::Response(request, response) => {
                for delay_ms in copies {
                    self.put(delay_ms, Event::Response(request, response.clone()));
                }
            }
            Outgoing::ToProgram(program, call, received) => {
                if copies.is_empty() {
                    self.put(200, Event::ToProgram(program, call, Received::Lost));
                }
                for delay_ms in copies {
                    self.put(delay_ms, Event::ToProgram(program, call, received.clone()));
                }
            }
            Outgoing::Nudge(cell, number) => self.enqueue(cell, number, &copies),
            Outgoing::Dropped(program) => {
                for delay_ms in copies {
                    self.put(delay_ms, Event::Dropped(program));
                }
            }
            Outgoing::Begin(program) => match copies.first() {
                Some(delay_ms) => self.put(*delay_ms, Event::Begin(program)),
                // The claim is on record, and its consumer never hears of it.
                None if self.is_queued(program) => self.vanish(program),
                None => self.put(200, Event::Kill(program, CallEnd::Lost("it was not reached".into()))),
            },
        }
    }

    /// The call arrives at the app.
    pub(super) fn begin(&mut self, name: u32) {
        let (build, app) = (self.build, self.apps[self.build].clone());
        let Some(program) = self.programs.get_mut(&name) else { return };
        let Some(activation) = program.activation.take() else { return };
        program.future = Some(if activation.workflow == FAMILY {
            Box::pin(family::drive(activation, Wire(name)))
        } else {
            Box::pin(async move { drive::drive(&app, activation, &Wire(name)).await })
        });
        let (cell, number, epoch) = (program.cell, program.run.number, program.epoch);
        self.called.insert(name, Called { number, epoch, build });
        let checked = self.check.begun(&self.sites[cell].disk, &self.sites[cell].place, cell, number, epoch);
        self.must(checked);
        self.note(|| format!("program {name} begins: cell {cell}, run {number}, activation {}", epoch.0));
        if self.is_queued(name) {
            self.put(BEAT_MS, Event::Beat(name));
        }
        self.poll(name);
    }

    /// Lets a program go on as far as it can.
    pub(super) fn poll(&mut self, name: u32) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        if program.hung {
            return;
        }
        let Some(mut future) = program.future.take() else { return };
        let woken = program.woken.clone();
        let waker = Waker::from(woken.clone());
        outside::enter(name);
        let mut turns = 0;
        let polled = loop {
            turns += 1;
            woken.0.store(false, Ordering::Relaxed);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() || !woken.0.load(Ordering::Relaxed) || turns == TURNS_MAX {
                break polled;
            }
        };
        let (mail, effects) = outside::leave();
        program.future = Some(future);
        let work_at_ms = outside::next_work(name);
        if let Some(at_ms) = work_at_ms
            && program.work_at_ms != Some(at_ms)
        {
            program.work_at_ms = Some(at_ms);
            self.put_at(at_ms, Event::Work(name));
        }
        if turns == TURNS_MAX {
            self.fail("a program that waits is quiet", format!("program {name} wakes itself for ever"));
        }
        for effect in effects {
            self.on_effect(name, &effect);
        }
        for mail in mail {
            if self.is_queued(name) {
                self.say(name, mail.call, mail.message);
                continue;
            }
            let copies = self.network();
            if copies.is_empty() {
                self.put(200, Event::ToProgram(name, mail.call, Received::Lost));
            }
            for delay_ms in copies {
                self.put(delay_ms, Event::ToCell(name, mail.call, mail.message.clone()));
            }
        }
        match polled {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.end_program(name, CallEnd::Returned),
            Poll::Ready(Err(())) => self.end_program(name, CallEnd::Lost("its session broke".into())),
        }
    }

    fn on_effect(&mut self, name: u32, effect: &outside::Effect) {
        let Some(program) = self.programs.get(&name) else { return };
        let (cell, number, id) = (program.cell, program.run.number, program.instance);
        let holder = Holder { cell, number, epoch: program.epoch, head: program.head };
        self.note(|| format!("program {name} runs {} (attempt {})", effect.key, effect.attempt));
        let checked = self.check.effect(&self.sites[cell].disk, &self.sites[cell].place, holder, effect);
        self.must(checked);
        if self.healed {
            return;
        }
        match effect.deed {
            Deed::Plain => {}
            Deed::Poison if self.is_queued(name) => {
                self.count("poison kills its consumer");
                self.vanish(name);
            }
            Deed::Poison => {
                self.count("poison kills its cell");
                self.crash(cell, id);
            }
            Deed::Throws => {
                self.put(10, Event::Kill(name, CallEnd::Threw("it threw".into())));
            }
        }
    }

    /// A program comes to an end from outside.
    pub(super) fn kill(&mut self, name: u32, end: CallEnd) {
        self.end_program(name, end);
    }

    fn end_program(&mut self, name: u32, end: CallEnd) {
        let Some(program) = self.programs.remove(&name) else { return };
        self.note(|| format!("program {name} ends: {end:?}"));
        let (cell, id, number, epoch) = (program.cell, program.instance, program.run.number, program.epoch);
        let is_queued = program.relay.is_some();
        drop(program);
        outside::forget(name);
        if is_queued {
            self.send_word(&Word { program: name, cell, number, epoch, what: What::Ended(end) });
            return;
        }
        let delay_ms = self.rng.between(1, 4);
        self.put(delay_ms, Event::CallEnded(cell, id, number, epoch, end));
    }

    /// The instance that has called a program is gone: the program is cancelled, or goes on and does not know.
    pub(super) fn orphan(&mut self, name: u32) {
        let (dies, survives) = (self.rng.percent(45), self.survive);
        let Some(program) = self.programs.get_mut(&name) else { return };
        program.survives = survives;
        if dies || program.hung || (program.future.is_none() && !survives) {
            self.programs.remove(&name);
            outside::forget(name);
        }
    }

    /// A program's message arrives at its cell.
    pub(super) fn on_message(&mut self, name: u32, asked: u32, message: Message) {
        let Some(program) = self.programs.get(&name) else { return };
        let (cell, survives, epoch, number) =
            (program.cell, program.survives, program.epoch, program.run.number);
        let mut id = program.instance;
        if self.sites[cell].instance(id).is_none() {
            if !survives {
                self.put(1, Event::ToProgram(name, asked, Received::Lost));
                return;
            }
            // A session that outlives the instance finds the next one, as any other caller does.
            id = self.load(cell);
            if self.repair(cell, id).is_err() || self.sites[cell].instance(id).is_none() {
                self.put(1, Event::ToProgram(name, asked, Received::Lost));
                return;
            }
            self.count("late commit of an old activation");
        }
        match message {
            Message::Commit(text) => {
                let from = From { cell, id, name, number, epoch };
                self.on_commit(from, asked, 0, &text);
            }
            Message::Page(after) => {
                let Some(page) = self.page_of(From { cell, id, name, number, epoch }, after) else { return };
                let received = match page {
                    Ok(page) => {
                        let text = serde_json::to_string(&page).expect("a page is JSON");
                        let page: Page = serde_json::from_str(&text).expect("it was written as one");
                        Received::Page(page)
                    }
                    Err(_) => Received::Lost,
                };
                self.send(cell, id, Outgoing::ToProgram(name, asked, received));
            }
            Message::Beat(beat) => {
                self.cover(cell, id, number, "heard");
                let beaten = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
                    machine.beat(store, now, number, epoch, beat)
                });
                self.send(cell, id, Outgoing::ToProgram(name, asked, Received::Answer(refused(beaten))));
            }
            Message::Listen(after) => {
                self.addressed.insert(number);
                let listener = Listener { program: name, call: asked, number, epoch, after };
                let news = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
                    machine.news(store, now, number, epoch, after)
                });
                let answer = refused(news);
                if matches!(&answer, Answer::Go { news, .. } if news.is_empty()) {
                    if let Some(instance) = self.sites[cell].instance_mut(id) {
                        instance.own.listeners.entry(number).or_default().push(listener);
                    }
                    return;
                }
                self.send(cell, id, Outgoing::ToProgram(name, asked, Received::Answer(answer)));
            }
        }
    }

    /// What a program is shown of its journal; nothing, if the instance is gone.
    fn page_of(&mut self, from: From, after: Seq) -> Option<Result<RawPage, Fault<Refused>>> {
        let unfenced = self.is(Sabotage::PagesUnfenced);
        let instance = self.sites[from.cell].instance(from.id)?;
        Some(if unfenced {
            instance.store.page(from.number, after).map_err(Fault::Storage)
        } else {
            instance.machine.page(&instance.store, from.number, from.epoch, after)
        })
    }

    /// A listener looks again after it was told.
    pub(super) fn answer_listener(&mut self, cell: usize, id: u64, listener: Listener) {
        let Listener { program, call, number, epoch, after } = listener;
        self.addressed.insert(number);
        let news = self.turn(cell, id, Cause::Program(program), |machine, store, now| {
            machine.news(store, now, number, epoch, after)
        });
        self.send(cell, id, Outgoing::ToProgram(program, call, Received::Answer(refused(news))));
    }

    pub(super) fn on_commit(&mut self, from: From, asked: u32, turn: u32, text: &str) {
        let From { cell, id, name, number, mut epoch } = from;
        let mut commit: Commit = serde_json::from_str(text).expect("the driver writes commits");
        commit.turn = turn;
        let mut hash = hash64(text);
        let before = self.sites[cell].instance(id).and_then(|instance| instance.store.peek(number));
        let is_repeat = self.commits.contains_key(&(name, asked));
        if let Some(before) = &before {
            if self.is(Sabotage::NoFence) {
                epoch = before.epoch;
            }
            if self.is(Sabotage::ForesightTrusted) {
                commit.foresees = None;
            }
            if self.is(Sabotage::NewsSkipped) {
                commit.base = before.head;
            }
            if self.is(Sabotage::UnreadSignalLost)
                && let Then::Anew { keeps, .. } = &mut commit.then
            {
                keeps.clear();
            }
            if self.is(Sabotage::RepeatRecorded) && is_repeat {
                commit.base = before.head;
                hash ^= 1;
            }
        }
        if self.is(Sabotage::RepeatUnknown) {
            hash ^= self.transitions;
        }
        self.cover(cell, id, number, crate::coverage::then(&commit.then));
        let pending = self.sites[cell].instance(id).map_or(0, |instance| instance.pending.len());
        let answered = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
            machine.commit(store, now, number, epoch, commit, hash)
        });
        let answer = refused(answered);
        self.note(|| format!("program {name} commits (call {asked}): {}", short(&answer)));
        if self.is(Sabotage::EndedRunWritten) && matches!(answer, Answer::Refused { .. }) {
            self.write_to_ended(cell, id, number);
        }
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let after = instance.store.peek(number);
        let wrote = instance
            .pending
            .iter()
            .skip(pending)
            .any(|batch| batch.writes.iter().any(|write| write.number == number));
        let kind = short(&answer);
        if let Some(first) = self.commits.get(&(name, asked)) {
            // The repeat of a commit that is on record gets the same answer, and changes nothing.
            let failed = matches!(&answer, Answer::Refused { problem } if problem.code == Code::Internal);
            if first.run == before && !failed && first.answer != "refused" && (first.answer != kind || wrote)
            {
                let detail = format!(
                    "cell {cell}, run {number}: a commit was answered '{}', its repeat '{kind}'{}",
                    first.answer,
                    if wrote { " and written again" } else { "" }
                );
                self.fail("6 a repeat is known", detail);
            }
        } else {
            self.commits.insert((name, asked), Committed { answer: kind, run: after });
        }
        self.send(cell, id, Outgoing::ToProgram(name, asked, Received::Answer(answer)));
    }

    /// What a planted bug does with a commit that came too late.
    fn write_to_ended(&mut self, cell: usize, id: u64, number: u64) {
        if self.sites[cell].instance(id).is_none() {
            return;
        }
        let clock = self.sites[cell].clock(self.now_ms);
        let op = Op { kind: OpKind::Step, name: "late".into(), occurrence: 0 };
        let _ = self.turn(cell, id, Cause::Request, |_, store, _| {
            store.write_anyway(number, clock, &JournalEvent::TimerFired { op, since: None });
            Ok(())
        });
    }

    /// An activation that is over has a last word about some run, and asks for its journal: nothing of it may be
    /// recorded, and nothing may be shown.
    pub(super) fn old_word(&mut self, cell: usize) -> bool {
        let numbers: Vec<_> = self.sites[cell].disk.runs.keys().copied().collect();
        let Some(id) = self.sites[cell].live.as_ref().map(|live| live.id) else { return false };
        if numbers.is_empty() {
            return false;
        }
        let number = *self.rng.pick(&numbers);
        let Some(run) = self.sites[cell].instance(id).and_then(|instance| instance.store.peek(number)) else {
            return false;
        };
        let is_over = !run.is_held_by(run.epoch) && !run.draining;
        let epoch = if is_over { run.epoch } else { Epoch(run.epoch.0.saturating_sub(1)) };
        let then = match self.rng.below(6) {
            0 => Then::Complete { output: Payload::null() },
            1 => Then::Fail { failure: Failure::new("an old word") },
            2 => Then::Pause { problem: Problem::new(Code::NotDurable, "an old word") },
            3 => Then::Suspend { open: Vec::new() },
            4 => Then::Yield { open: None },
            _ if self.transitions.is_multiple_of(2) => {
                Then::Anew { input: Payload::null(), keeps: Vec::new(), keeps_bytes: 0 }
            }
            _ => Then::Continue { open: None },
        };
        self.cover(cell, id, number, crate::coverage::then(&then));
        let commit = Commit::new(epoch, run.head, Vec::new(), then);
        let answered = self.turn(cell, id, Cause::Request, |machine, store, now| {
            machine.commit(store, now, number, epoch, commit, 0)
        });
        if answered.is_ok() {
            let detail = format!("cell {cell}, run {number}: activation {} had a last word", epoch.0);
            self.fail("6 a superseded activation is refused", detail);
        }
        if let Some(Ok(_)) = self.page_of(From { cell, id, name: 0, number, epoch }, Seq(0)) {
            let detail = format!("cell {cell}, run {number}: activation {} was shown the journal", epoch.0);
            self.fail("6 a superseded activation is refused", detail);
        }
        true
    }

    /// A program says that it wants to go on later, and returns. If it has done nothing, that is its own fault.
    pub(super) fn yields(&mut self, name: u32) {
        let Some(program) = self.programs.get(&name) else { return };
        let (cell, id, number, epoch) = (program.cell, program.instance, program.run.number, program.epoch);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let Some(run) = instance.store.peek(number) else { return };
        let commit = Commit::new(epoch, run.head, Vec::new(), Then::Yield { open: None });
        self.check.yielded(cell, number);
        self.cover(cell, id, number, "yield");
        // A run that was cancelled or taken from it refuses this, as it does anything else.
        let hash = hash64("yield");
        let _ = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
            machine.commit(store, now, number, epoch, commit, hash)
        });
        self.kill(name, CallEnd::Returned);
    }

    /// A program says what makes no sense: nothing of it may be recorded.
    pub(super) fn garbage(&mut self, name: u32) {
        let Some(program) = self.programs.get(&name) else { return };
        let (cell, id, number, epoch) = (program.cell, program.instance, program.run.number, program.epoch);
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let Some(run) = instance.store.peek(number) else { return };
        let nameless = Op { kind: OpKind::Sleep, name: String::new(), occurrence: 0 };
        let open = vec![stepwell_protocol::program::Open::Sleep { op: nameless, ms: 5 }];
        let (base, then) = match self.rng.below(3) {
            0 => (Seq(run.head.0 + 3), Then::Continue { open: None }),
            1 => (run.head, Then::Suspend { open: Vec::new() }),
            _ => (run.head, Then::Suspend { open }),
        };
        let commit = Commit::new(Epoch(epoch.0 + 9), base, Vec::new(), then);
        self.addressed.insert(number);
        let answered = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
            machine.commit(store, now, number, epoch, commit, 0)
        });
        if answered.is_ok() {
            self.fail("6 nonsense is refused", format!("cell {cell}, run {number}: nonsense was accepted"));
        }
    }
}

/// What a program is told when its cell could not do it.
pub(crate) fn refused(answer: Result<Answer, Fault<Refused>>) -> Answer {
    answer.unwrap_or_else(|fault| Answer::Refused {
        problem: match fault {
            Fault::Rejected(problem) => problem,
            Fault::Storage(Refused) | Fault::Moved(_) => {
                Problem::new(Code::Internal, "Nothing was recorded.")
            }
        },
    })
}

pub(crate) fn short(answer: &Answer) -> &'static str {
    match answer {
        Answer::Go { .. } => "go",
        Answer::Stop => "stop",
        Answer::Refused { .. } => "refused",
    }
}
