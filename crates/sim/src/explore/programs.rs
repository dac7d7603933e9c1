//! Programs: the app's side of an activation, by the replay VM that is shipped.
//!
//! A VM cannot be copied, and need not be: what it says next follows from what it was called with and what it has heard
//! since. So it is made anew each time it hears something.

use std::{
    rc::Rc,
    task::{Context, Poll, Waker},
};

use stepwell::vm::{Order, Vm};
use stepwell_core::{cell::Rows as _, object::Fault, run::CallEnd};
use stepwell_protocol::{
    Code, Epoch, Event as JournalEvent, Op, OpKind, Seq,
    program::{Activation, Answer, Commit, Page, RawPage},
};

use super::state::{Message, Program, Said, World};
use crate::{
    check::Holder,
    family::{FAMILY, Heard, Member},
    host::Cause,
    outside::{self, Effect, Received},
    rng::hash64,
    sabotage::Sabotage,
    world::{refused, short},
};

/// How often a program is polled before it counts as one that waits for nothing.
const POLLS_MAX: u32 = 8;

impl World {
    /// The machine has ordered a call: what it is called with is read at once, and leaves with the commit.
    pub(super) fn call_program(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch, cause: Cause) {
        let activation =
            self.turn(cell, id, cause, |machine, store, now| machine.activation(store, now, number, epoch));
        let Some(head) = self.sites[cell].instance(id).map(|instance| instance.store.peek(number)) else {
            return;
        };
        let Ok(activation) = activation else {
            let end = CallEnd::Lost("its journal could not be read".into());
            self.wire.push(Message::CallEnded { cell, id, number, epoch, end });
            return;
        };
        let name = u32::try_from(self.called.len()).expect("there are few");
        self.called.push((number, epoch));
        let program = Program {
            cell,
            instance: id,
            number,
            epoch,
            head: head.map_or(Seq(0), |run| run.head),
            activation: Rc::new(read(&activation)),
            begun: false,
            heard: Vec::new(),
            call: 0,
            hung: false,
            survives: false,
            over: false,
            committed: None,
        };
        self.programs.insert(name, Rc::new(program));
        if let Some(instance) = self.sites[cell].instance_mut(id) {
            instance.called(number, epoch, name);
        }
        if cause == Cause::Alarm && self.is(Sabotage::AlarmAwaitsDispatch) {
            self.sites[cell].awaited.push(name);
        }
        self.send(cell, id, Message::Begin(name));
    }

    /// The call arrives at the app.
    pub(super) fn begin(&mut self, name: u32) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        let program = Rc::make_mut(program);
        program.begun = true;
        let (cell, number, epoch) = (program.cell, program.number, program.epoch);
        self.note(|| format!("program {name} begins: run {number}, activation {}", epoch.0));
        let site = &self.sites[cell];
        let check = Rc::make_mut(&mut self.check);
        let checked = check.begun(&site.disk, &site.place, cell, number, epoch);
        self.must(checked);
        self.go_on(name);
    }

    /// A program goes on, and says something or ends.
    fn go_on(&mut self, name: u32) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        let program = Rc::make_mut(program);
        let (said, effects) = next_word(&self.setting.app, name, program);
        let holder =
            Holder { cell: program.cell, number: program.number, epoch: program.epoch, head: program.head };
        program.call += 1;
        let call = program.call;
        for effect in effects {
            self.note(|| {
                format!("program {name} runs {}", effect.key.rsplit('/').next().unwrap_or_default())
            });
            let site = &self.sites[holder.cell];
            let check = Rc::make_mut(&mut self.check);
            let checked = check.effect(&site.disk, &site.place, holder, &effect);
            self.must(checked);
        }
        match said {
            Some(said) => self.wire.push(Message::ToCell(name, call, said)),
            None => self.end_program(name, CallEnd::Returned),
        }
    }

    /// An answer arrives at a program. The first one counts.
    pub(super) fn hear(&mut self, name: u32, call: u32, received: Received) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        if program.call != call || program.hung || program.over {
            return;
        }
        if let Received::Lost = received {
            self.end_program(name, CallEnd::Lost("its session broke".into()));
            return;
        }
        let program = Rc::make_mut(program);
        program.heard.push(Rc::new(received));
        self.go_on(name);
    }

    /// A program comes to an end.
    pub(super) fn end_program(&mut self, name: u32, end: CallEnd) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        Rc::make_mut(program).over = true;
        let Program { cell, instance: id, number, epoch, .. } = **program;
        self.note(|| format!("program {name} ends: {end:?}"));
        self.forget_silent(name);
        if self.sites[cell].instance(id).is_some() {
            self.wire.push(Message::CallEnded { cell, id, number, epoch, end });
        }
    }

    /// Forgets a program that has ended, unless a copy of what it has said is still under way.
    pub(super) fn forget_silent(&mut self, name: u32) {
        let is_word = |message: &Message| matches!(message, Message::ToCell(of, ..) if *of == name);
        if self.programs.get(&name).is_some_and(|program| program.over) && !self.wire.iter().any(is_word) {
            self.forget(name);
        }
    }

    /// A program is gone, and whatever is under way from or to it.
    pub(super) fn forget(&mut self, name: u32) {
        self.programs.remove(&name);
        self.wire.retain(|message| !is_of(message, name));
        for site in &mut self.sites {
            site.awaited.retain(|awaited| *awaited != name);
        }
    }

    /// The instance that has called some programs is gone.
    pub(super) fn orphan(&mut self, cell: usize, id: u64, survive: bool) {
        let is_its = |program: &Rc<Program>| program.cell == cell && program.instance == id;
        let orphans: Vec<_> =
            self.programs.iter().filter(|(_, program)| is_its(program)).map(|(name, _)| *name).collect();
        for name in orphans {
            if survive && let Some(program) = self.programs.get_mut(&name) {
                Rc::make_mut(program).survives = true;
                self.note(|| format!("program {name} outlives it"));
            } else {
                self.forget(name);
            }
        }
        self.wire.retain(|message| {
            !matches!(message, Message::CallEnded { cell: of, id: to, .. } | Message::Receipt { cell: of, id: to, .. }
                if (*of, *to) == (cell, id))
        });
    }

    /// The instance that a program's next word reaches; nothing, if its session is dead.
    #[expect(clippy::option_option, reason = "a session may be dead, and its cell may have no instance")]
    pub(super) fn reached_by(&self, name: u32) -> Option<Option<u64>> {
        let program = self.programs.get(&name)?;
        let site = &self.sites[program.cell];
        if site.instance(program.instance).is_some() {
            Some(Some(program.instance))
        } else {
            program.survives.then(|| site.live.as_ref().map(|live| live.id))
        }
    }

    /// A program's message arrives at its cell.
    pub(super) fn on_message(&mut self, name: u32, turn: u32, said: &Said) {
        let Some(reached) = self.reached_by(name) else { return };
        let program = self.programs[&name].clone();
        let (cell, number, epoch) = (program.cell, program.number, program.epoch);
        let id = match reached {
            Some(id) if id == program.instance => id,
            Some(_) | None => {
                // A session that outlives the instance finds the next one, as any other caller does.
                let id = self.load(cell);
                if self.repair(cell, id).is_err() || self.sites[cell].instance(id).is_none() {
                    self.wire.push(Message::ToProgram(name, turn, Received::Lost));
                    return;
                }
                id
            }
        };
        match said {
            Said::Commit(text) => self.on_commit(name, turn, cell, id, text),
            Said::Page(after) => {
                let is_unfenced = self.is(Sabotage::PagesUnfenced);
                let Some(instance) = self.sites[cell].instance(id) else { return };
                let page = if is_unfenced {
                    instance.store.page(number, *after).map_err(Fault::Storage)
                } else {
                    instance.machine.page(&instance.store, number, epoch, *after)
                };
                let is_over = instance.store.peek(number).is_none_or(|run| !run.is_held_by(epoch));
                if is_over && page.is_ok() {
                    let detail =
                        format!("cell {cell}, run {number}: activation {} was shown the journal", epoch.0);
                    self.must(Err(("6 a superseded activation is refused", detail)));
                }
                self.note(|| format!("program {name} asks for its journal after {}", after.0));
                let received = page.map_or(Received::Lost, |page| Received::Page(read_page(&page)));
                self.send(cell, id, Message::ToProgram(name, turn, received));
            }
        }
    }

    fn on_commit(&mut self, name: u32, turn: u32, cell: usize, id: u64, text: &str) {
        let program = self.programs[&name].clone();
        let (number, mut epoch) = (program.number, program.epoch);
        let mut commit: Commit = serde_json::from_str(text).expect("a program writes commits");
        let mut hash = hash64(text);
        let before = self.sites[cell].instance(id).and_then(|instance| instance.store.peek(number));
        let first = program.committed.as_ref().filter(|(of, ..)| *of == turn);
        if let Some(before) = &before {
            if self.is(Sabotage::NoFence) {
                epoch = before.epoch;
            }
            if self.is(Sabotage::NewsSkipped) {
                commit.base = before.head;
            }
            if self.is(Sabotage::RepeatRecorded) && first.is_some() {
                commit.base = before.head;
                hash ^= 1;
            }
        }
        if self.is(Sabotage::RepeatUnknown) && first.is_some() {
            hash ^= 2;
        }
        let pending = self.sites[cell].instance(id).map_or(0, |instance| instance.pending.len());
        let answered = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
            machine.commit(store, now, number, epoch, commit, hash)
        });
        let answer = refused(answered);
        let kind = short(&answer);
        self.note(|| format!("program {name} commits (turn {turn}): {kind}"));
        if self.is(Sabotage::EndedRunWritten) && matches!(answer, Answer::Refused { .. }) {
            self.write_to_ended(cell, id, number);
        }
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let after = instance.store.peek(number);
        let writes = instance.pending.iter().skip(pending).flat_map(|batch| &batch.writes);
        let wrote = writes.into_iter().any(|write| write.number == number);
        match first {
            // The repeat of a commit that is on record gets the same answer, and changes nothing.
            Some((_, answered, stood)) => {
                let failed = matches!(&answer, Answer::Refused { problem } if problem.code == Code::Internal);
                let is_same = stood.as_deref() == before.as_deref();
                if is_same && !failed && *answered != "refused" && (*answered != kind || wrote) {
                    let written = if wrote { " and written again" } else { "" };
                    let detail = format!(
                        "cell {cell}, run {number}: a commit was answered '{answered}', its repeat '{kind}'{written}"
                    );
                    self.must(Err(("6 a repeat is known", detail)));
                }
            }
            None => {
                // Only for as long as a copy is under way.
                let is_copy = |message: &Message| matches!(message, Message::ToCell(of, asked, _) if (*of, *asked) == (name, turn));
                if self.wire.iter().any(is_copy)
                    && let Some(program) = self.programs.get_mut(&name)
                {
                    Rc::make_mut(program).committed = Some((turn, kind, after));
                }
            }
        }
        self.send(cell, id, Message::ToProgram(name, turn, Received::Answer(answer)));
    }

    /// What a planted bug does with a commit that came too late.
    fn write_to_ended(&mut self, cell: usize, id: u64, number: u64) {
        let clock = self.clock();
        let op = Op { kind: OpKind::Step, name: "late".into(), occurrence: 0 };
        let _ = self.turn(cell, id, Cause::Request, |_, store, _| {
            store.write_anyway(number, clock, &JournalEvent::TimerFired { op, since: None });
            Ok(())
        });
    }
}

/// Whether a message comes from a program, or goes to it.
pub(super) fn is_of(message: &Message, name: u32) -> bool {
    match message {
        Message::Begin(of) | Message::ToCell(of, ..) | Message::ToProgram(of, ..) => *of == name,
        Message::Request(_)
        | Message::Response(..)
        | Message::CallEnded { .. }
        | Message::Letter { .. }
        | Message::Receipt { .. } => false,
    }
}

/// What a program says next, if it goes on, and the code of steps that runs on the way.
fn next_word(app: &stepwell::App, name: u32, program: &Program) -> (Option<Said>, Vec<Effect>) {
    if program.activation.workflow == FAMILY {
        return (next_word_of_member(program), Vec::new());
    }
    outside::enter(name);
    let mut vm = Vm::new(app, program.activation.as_ref().clone());
    let mut said = Some(poll(&mut vm));
    for received in &program.heard {
        // What it has done before it has heard this is known.
        let _ = outside::leave();
        let goes_on = match received.as_ref() {
            Received::Page(page) => vm.page(page.clone()),
            Received::Answer(answer) => vm.answered(answer.clone()),
            Received::Lost => false,
        };
        said = goes_on.then(|| poll(&mut vm));
    }
    let (_, effects) = outside::leave();
    (said, effects)
}

/// What a member of a family says next, if it goes on.
fn next_word_of_member(program: &Program) -> Option<Said> {
    let activation = program.activation.as_ref();
    let mut member = Member::new(activation);
    let (mut more, mut said) = (activation.journal.more, None);
    for received in &program.heard {
        more = match received.as_ref() {
            Received::Page(page) => {
                page.events.iter().for_each(|record| member.read(record));
                page.more
            }
            Received::Answer(answer) => {
                let commit = said.take().unwrap_or_else(|| member.say(activation));
                match member.hear(&commit, answer) {
                    Heard::All => false,
                    Heard::More => true,
                    Heard::Over => return None,
                }
            }
            Received::Lost => return None,
        };
        said = (!more).then(|| member.say(activation));
    }
    if more {
        return Some(Said::Page(member.base()));
    }
    let text = serde_json::to_string(&member.say(activation)).expect("a commit is JSON");
    Some(Said::Commit(text.into()))
}

fn poll(vm: &mut Vm) -> Said {
    for _ in 0..POLLS_MAX {
        match vm.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Order::Commit(commit)) => {
                let text = serde_json::to_string(&commit).expect("a commit is JSON");
                return Said::Commit(text.into());
            }
            Poll::Ready(Order::Page(after)) => return Said::Page(after),
            Poll::Pending => {}
        }
    }
    panic!("the model's workflows wait for nothing that takes time but suspended");
}

/// What a program is called with, as it reads it.
fn read(activation: &Activation<RawPage>) -> Activation {
    let text = serde_json::to_string(activation).expect("an activation is JSON");
    serde_json::from_str(&text).expect("it was written as one")
}

fn read_page(page: &RawPage) -> Page {
    let text = serde_json::to_string(page).expect("a page is JSON");
    serde_json::from_str(&text).expect("it was written as one")
}
