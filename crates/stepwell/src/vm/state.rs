//! What the VM and the futures of [`crate::ops`] share.

mod children;
pub(super) mod inbox;
mod open;
mod places;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    task::{Poll, Waker},
};

use stepwell_protocol::{
    Code, Event, Op, OpKind, Outcome, Payload, Problem, Record, Seq, Timestamp,
    lane::StepLane,
    program::{Budget, Command, LetIn, Open, Retry, StepAtWork},
};

use self::inbox::Signals;
use super::{
    allowance::Allowance,
    asides::{Asides, Hook, Timer},
    bell::CodeBell,
    line::{Line, Pass},
    slot::{Answer, Concluded, Length, Once, Signal, Slot, Stage, Turn, Visit, What},
    words,
};
use crate::{Error, Result};

/// The things that a workflow waits for, and what became of them.
pub(crate) struct State {
    /// How many of each kind and name were named: what a journal may speak of.
    named: BTreeMap<(OpKind, String), u32>,
    /// Those that were polled and are neither consumed nor dropped.
    pub(super) slots: BTreeMap<Op, Slot>,
    /// Those of them that wait for something from outside, in the order in which they began to.
    waiting: BTreeMap<u64, Op>,
    /// Those whose code is under way, in that order too.
    running: BTreeMap<u64, Op>,
    /// Those that the engine knows to be about to run, and whose code has not begun: they must.
    promised: BTreeSet<u64>,
    /// Those that wait only for another activation.
    held: BTreeSet<u64>,
    allowance: Allowance,
    /// The step whose code is being polled at this moment.
    pub(crate) inside: Option<Op>,
    /// The code that was not polled because events were being delivered.
    deferred: Vec<Waker>,
    /// How many were ever polled: the order in which waits get signals.
    begun: u64,
    /// The first of the steps that failed since something was last begun: where its failure is recorded, and how many
    /// were begun by then.
    failing: Option<(Seq, u64)>,
    /// Signals that nobody has taken.
    signals: Signals,
    outbox: Vec<Command>,
    /// Whether the whole journal was delivered, so that steps may run.
    live: bool,
    /// What the workflow takes for the time.
    now: Timestamp,
    /// The engine's clock.
    clock: Timestamp,
    randoms: u64,
    randoms_inside: u64,
    pub(super) asides: Asides,
    problem: Option<Problem>,
    /// Whether a step has made a call that ends with its attempt.
    calls: Rc<Cell<bool>>,
    /// What the run fails with, whatever the workflow does next.
    failure: Option<Error>,
    /// What its next life is started with, whatever the workflow does next.
    anew: Option<Payload>,
    /// The wait for an event that cancels the run.
    cancel: Option<Open>,
    /// Which of the steps that lanes have let in still have their places.
    let_in: Option<Box<LetIn>>,
}

impl State {
    pub fn new(now: Timestamp, clock: Timestamp, asides: Asides, budget: Option<Budget>) -> Self {
        Self {
            named: BTreeMap::new(),
            slots: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            promised: BTreeSet::new(),
            held: BTreeSet::new(),
            allowance: Allowance::new(budget, clock),
            inside: None,
            deferred: Vec::new(),
            begun: 0,
            failing: None,
            signals: Signals::default(),
            outbox: Vec::new(),
            live: false,
            now,
            clock,
            randoms: 0,
            randoms_inside: 0,
            asides,
            problem: None,
            failure: None,
            anew: None,
            cancel: None,
            let_in: None,
            calls: Rc::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The engine's clock, when it was last heard of.
    pub fn clock(&self) -> Timestamp {
        self.clock
    }

    pub fn set_clock(&mut self, clock: Timestamp) {
        self.clock = self.clock.max(clock);
    }

    /// The number of the next random block, and the step that it is for: a replay does not run that code,
    /// so what it draws must not count outside of it.
    pub fn next_random(&mut self) -> (Option<Op>, u64) {
        let count = if self.inside.is_some() { &mut self.randoms_inside } else { &mut self.randoms };
        *count += 1;
        (self.inside.clone(), *count)
    }

    /// Gives the next operation of this kind and name its occurrence.
    pub fn name_op(&mut self, kind: OpKind, name: String) -> Op {
        if let Some(outer) = &self.inside {
            // A replay does not run the outer step's code, and would not know what the journal speaks of.
            let detail = format!(
                "The code of step '{}' begins {} '{name}'. Nothing durable can happen within a step: move it \
                 out of there.",
                outer.name,
                kind.as_str(),
            );
            self.stop(Problem::new(Code::NotDurable, detail));
        }
        let count = self.named.entry((kind, name.clone())).or_default();
        let occurrence = *count;
        *count += 1;
        Op { kind, name, occurrence }
    }

    /// A step begins. Of those that share a line, or are in a lane, only so many run at once.
    pub fn begin_step(&mut self, op: &Op, at_most_once: bool, beside: Option<Line>, lane: Option<StepLane>) {
        let (once, retry_at) = (if at_most_once { Once::Wanted } else { Once::No }, Timestamp::default());
        let pass = beside.map(Pass::new);
        let visit =
            lane.map(|lane| Box::new(Visit { lane, is_in: false, is_woken: false, is_awaited: false }));
        let stage = Stage::Idle;
        self.begin(op, || What::Step { stage, once, failed_attempts: 0, retry_at, pass, visit });
    }

    pub fn poll_step(&mut self, op: &Op, waker: &Waker) -> Poll<Turn> {
        let is_live = self.live;
        let may_run = is_live && self.problem.is_none();
        let clock = self.clock;
        let (covers_one, covers_two) = (self.covers(1), self.covers(2));
        let (mut report, mut order, mut is_held) = (None, 0, false);
        let turn = self.change(op, |slot| {
            slot.waker = Some(waker.clone());
            order = slot.order;
            let What::Step { stage, once, failed_attempts, retry_at, pass, visit } = &mut slot.what else {
                unreachable!("an operation named a step is a step");
            };
            let is_its_time = may_run && *retry_at <= clock;
            let is_covered = once.is_covered(covers_one, covers_two);
            match (&stage, pass) {
                (Stage::Idle, Some(pass)) if is_its_time && is_covered => {
                    if !pass.enter(waker) {
                        return Poll::Pending;
                    }
                }
                (_, Some(pass)) => pass.give_way(),
                (_, None) => {}
            }
            match stage {
                Stage::Idle if is_its_time && !is_covered => {
                    is_held = true;
                    Poll::Pending
                }
                // The engine lets it in. What an earlier activation has left undone is only reported.
                Stage::Idle if *once != Once::Before && visit.as_ref().is_some_and(|visit| !visit.is_in) => {
                    if let Some(visit) = visit {
                        visit.is_awaited |= is_its_time;
                        // Whoever polls it while events are delivered shows nothing yet.
                        visit.is_woken &= is_live;
                    }
                    Poll::Pending
                }
                Stage::Idle if may_run && *once == Once::Wanted => {
                    *once = Once::Asked;
                    *stage = Stage::Reported;
                    report = Some(Command::StepBegun { op: op.clone() });
                    Poll::Pending
                }
                Stage::Idle if may_run && *once == Once::Before => {
                    *stage = Stage::Reported;
                    report = Some(words::interrupted(op));
                    Poll::Pending
                }
                Stage::Finished(_) => {
                    let Stage::Finished(outcome) = std::mem::replace(stage, Stage::Reported) else {
                        unreachable!("matched just above");
                    };
                    Poll::Ready(Turn::Finished(outcome))
                }
                Stage::Idle if is_its_time => {
                    *stage = Stage::Running(CodeBell::new(), clock);
                    Poll::Ready(Turn::Attempt(*failed_attempts + 1))
                }
                Stage::Idle | Stage::Running(..) | Stage::Reported => Poll::Pending,
            }
        });
        if is_held {
            self.held.insert(order);
        }
        match (&report, &turn) {
            (Some(Command::StepBegun { .. }), _) => {
                self.promised.insert(order);
            }
            (_, Some(Poll::Ready(_))) => {
                self.promised.remove(&order);
                self.held.remove(&order);
            }
            (_, _) => {}
        }
        self.outbox.extend(report);
        turn.expect("a step begins before it is polled")
    }

    /// What to poll a step's code with, if it may be polled. Not while events are delivered: code that happens
    /// to be busy then must not change when the workflow sees them.
    pub fn enter_code(&mut self, op: &Op, waker: &Waker) -> Option<Waker> {
        if !self.live {
            self.deferred.push(waker.clone());
            return None;
        }
        match &self.slots.get(op)?.what {
            What::Step { stage: Stage::Running(bell, _), .. } => {
                self.inside = Some(op.clone());
                bell.hang(waker);
                Some(Waker::from(bell.clone()))
            }
            What::Step { .. } | What::Sleep { .. } | What::Wait { .. } | What::Child(_) => None,
        }
    }

    /// The step whose code is being polled, and its attempt.
    #[cfg(target_arch = "wasm32")]
    pub fn inside(&self) -> Option<(Op, u32)> {
        let op = self.inside.as_ref()?;
        match self.slots.get(op)?.what {
            What::Step { failed_attempts, .. } => Some((op.clone(), failed_attempts + 1)),
            What::Sleep { .. } | What::Wait { .. } | What::Child(_) => None,
        }
    }

    pub fn leave_code(&mut self) {
        self.inside = None;
    }

    /// A step's code has ended.
    pub fn report_step(
        &mut self,
        op: &Op,
        attempt: u32,
        result: Result<Payload, Error>,
        retry: Retry,
        took_ms: Option<u64>,
    ) {
        self.change(op, |slot| {
            if let What::Step { stage, .. } = &mut slot.what {
                *stage = Stage::Reported;
            }
        });
        let op = op.clone();
        self.outbox.push(match result {
            Ok(output) => Command::StepSucceeded { op, attempt, output, took_ms },
            Err(error) => {
                let retry_after_ms = error.retry_after_ms();
                let failure = error.into_failure();
                Command::StepFailed { op, attempt, failure, retry, retry_after_ms, took_ms }
            }
        });
    }

    /// Something goes out with the next commit.
    pub fn report_outgoing(&mut self, op: &Op, command: Command) {
        self.change(op, |slot| {
            if let What::Step { stage, .. } = &mut slot.what {
                *stage = Stage::Reported;
            }
        });
        self.outbox.push(command);
    }

    pub fn poll_sleep(&mut self, op: &Op, length: Length, waker: &Waker) -> Poll<()> {
        let slot = self.begin(op, || What::Sleep { length, over: false });
        slot.waker = Some(waker.clone());
        match slot.what {
            What::Sleep { over: true, .. } => Poll::Ready(()),
            What::Sleep { over: false, .. } | What::Step { .. } | What::Wait { .. } | What::Child(_) => {
                Poll::Pending
            }
        }
    }

    /// An operation was consumed or dropped.
    pub fn forget(&mut self, op: &Op) {
        let Some(slot) = self.slots.remove(op) else { return };
        self.waiting.remove(&slot.order);
        self.running.remove(&slot.order);
        self.promised.remove(&slot.order);
        self.held.remove(&slot.order);
        if slot.holds_place() && !matches!(slot.what, What::Step { stage: Stage::Reported, .. }) {
            // It is for others.
            self.asides.leave_place(op.clone());
        }
        // A signal that was given to a wait which nobody awaits any more is for the next wait.
        if let What::Wait { answer: answer @ (Answer::Signal(_) | Answer::Coming(_)), .. } = slot.what {
            self.give_back(op, answer);
        }
    }

    /// Makes an event happen.
    pub fn deliver(&mut self, record: Record, workflow_ended: bool) {
        self.now = self.now.max(record.at);
        match record.event {
            Event::StepFinished { op, outcome, .. } => {
                if let Outcome::Err(_) = outcome
                    && self.failed_since().is_none()
                {
                    self.failing = Some((record.seq, self.begun));
                }
                self.deliver_to(&op, workflow_ended, |what| {
                    if let What::Step { stage, pass, .. } = what {
                        *stage = Stage::Finished(outcome);
                        pass.iter_mut().for_each(Pass::leave);
                    }
                });
            }
            Event::StepRetrying { op, attempt, retry_at: at, .. } => {
                self.deliver_to(&op, workflow_ended, |what| {
                    if let What::Step { stage, failed_attempts, retry_at, pass, visit, .. } = what {
                        *stage = Stage::Idle;
                        *failed_attempts = attempt;
                        *retry_at = at;
                        pass.iter_mut().for_each(Pass::leave);
                        if let Some(visit) = visit {
                            (visit.is_in, visit.is_woken, visit.is_awaited) = (false, false, false);
                        }
                    }
                });
            }
            Event::StepBegun { op } => self.deliver_to(&op, workflow_ended, |what| {
                if let What::Step { once, stage, .. } = what {
                    *once = if *once == Once::Asked { Once::Here } else { Once::Before };
                    *stage = Stage::Idle;
                }
            }),
            Event::StepLetIn { op, ticket, .. } => self.step_let_in(record.seq, op, ticket, workflow_ended),
            Event::TimerFired { op, .. } => self.deliver_to(&op, workflow_ended, |what| match what {
                What::Sleep { over, .. } => *over = true,
                // A signal that came first has won.
                What::Wait { answer: answer @ Answer::None, .. } => *answer = Answer::TimedOut,
                What::Wait { .. } | What::Step { .. } | What::Child(_) => {}
            }),
            Event::SignalReceived { name, payload, to, .. } => {
                let (size, is_addressed) = (payload.size(), to.is_some());
                let signal = Signal { seq: record.seq, size, payload: Some(payload), is_addressed };
                self.receive_signal(name, to, signal);
            }
            Event::ChildInvoked { op, workflow, detached, .. } => {
                self.child_invoked(record.seq, &op, &workflow, detached, workflow_ended);
            }
            Event::ChildStarted { op, invoked, run, .. } => {
                self.child_started(&op, invoked, run, workflow_ended);
            }
            Event::ChildFinished { op, invoked, run, outcome } => {
                self.child_finished(record.seq, &op, invoked, Concluded { run, outcome }, workflow_ended);
            }
        }
    }

    /// The first position from which on steps failed and nothing was begun.
    pub fn failed_since(&self) -> Option<Seq> {
        self.failing.filter(|(_, begun)| *begun == self.begun).map(|(seq, _)| seq)
    }

    /// Lets steps run.
    pub fn go_live(&mut self) {
        self.live = true;
        let (covers_one, covers_two) = (self.covers(1), self.covers(2));
        self.wake_wanted_children();
        for (order, op) in &self.waiting {
            if let Some(Slot { what: What::Step { retry_at, once, visit, .. }, waker, .. }) =
                self.slots.get_mut(op)
                && *retry_at <= self.clock
                && self.problem.is_none()
                // Its lane wakes it; but first it shows whether it is awaited.
                && visit.as_mut().is_none_or(|visit| {
                    let is_new = !std::mem::replace(&mut visit.is_woken, true);
                    is_new || visit.is_in || *once == Once::Before
                })
            {
                // A step that may not run would only leave its waker again, and be woken for ever.
                if !once.is_covered(covers_one, covers_two) {
                    self.held.extend(waker.as_ref().map(|_| *order));
                } else if let Some(waker) = waker.take() {
                    // Only once: nobody may be polling it, and whoever does leaves a waker again.
                    self.held.remove(order);
                    waker.wake();
                }
            }
        }
        for waker in self.deferred.drain(..) {
            waker.wake();
        }
    }

    /// Keeps steps from beginning while events are delivered: one of them may drop the step.
    pub fn go_still(&mut self) {
        self.live = false;
    }

    /// Whether a step's code is under way.
    pub fn has_running_step(&self) -> bool {
        !self.running.is_empty()
    }

    /// The steps whose code is under way, in the order in which they began to be.
    pub fn at_work(&self) -> impl Iterator<Item = StepAtWork> {
        self.running.values().filter_map(|op| match &self.slots.get(op)?.what {
            What::Step { stage: Stage::Running(_, since), failed_attempts, .. } => {
                Some(StepAtWork { op: op.clone(), attempt: failed_attempts + 1, since: *since })
            }
            What::Step { .. } | What::Sleep { .. } | What::Wait { .. } | What::Child(_) => None,
        })
    }

    /// Whether a step's code is under way that somebody polls. To be asked when the workflow is quiet: code that
    /// was woken and not polled since is kept by a workflow that awaits something else.
    pub fn has_polled_step(&self) -> bool {
        self.running.values().filter_map(|op| self.slots.get(op)).any(|slot| match &slot.what {
            What::Step { stage: Stage::Running(bell, _), .. } => !bell.wants_poll(),
            What::Step { .. } | What::Sleep { .. } | What::Wait { .. } | What::Child(_) => false,
        })
    }

    /// Whether a step that could run has to wait for another activation. Not while one is announced that must run in
    /// this one, and not if what is reported now makes room for it.
    pub fn holds_back(&self) -> bool {
        let announces = self.outbox.iter().any(|command| matches!(command, Command::StepBegun { .. }));
        let makes_room = self.has_reports() && self.covers(1);
        !self.held.is_empty() && !announces && !makes_room
    }

    pub(super) fn allowance(&mut self) -> &mut Allowance {
        &mut self.allowance
    }

    /// Whether a step may begin that needs so many calls, beside those that are under way.
    pub(super) fn covers(&self, needs: u32) -> bool {
        let held_back = self.running.len() + self.promised.len() + usize::from(!self.outbox.is_empty());
        self.allowance.covers(held_back, needs, self.clock)
    }

    /// Whether there is something to tell the engine.
    pub fn has_reports(&self) -> bool {
        !self.outbox.is_empty() || !self.asides.is_empty()
    }

    pub fn has_new_patches(&self) -> bool {
        self.asides.has_new_patches()
    }

    /// The only thing that there is to report, if that is a result which nothing else goes on beside.
    pub(super) fn sole_result(&self) -> Option<&Command> {
        match (&self.outbox[..], self.problem.is_none() && self.slots.len() <= 1) {
            ([result @ Command::StepSucceeded { .. }], true) => Some(result),
            (_, _) => None,
        }
    }

    pub fn take_outbox(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.outbox)
    }

    pub fn asides(&mut self) -> &mut Asides {
        &mut self.asides
    }

    pub fn is_patched(&mut self, name: &str) -> bool {
        self.asides.is_patched(name)
    }

    /// How long one attempt of a step may take, and how to wait for that; nothing, where code cannot wait.
    pub fn limit(&self, timeout_ms: Option<u64>) -> Option<(u64, Timer)> {
        match timeout_ms {
            Some(ms) => self.asides.timer.clone().map(|timer| (ms, timer)),
            None => self.asides.default_timer.clone().map(|timer| (self.allowance.step_timeout_ms(), timer)),
        }
    }

    /// What passes for the time where the code runs, in milliseconds.
    pub fn stopwatch(&self) -> Option<u64> {
        self.asides.clock.as_ref().map(|clock| clock())
    }

    pub fn hook(&self) -> Option<Hook> {
        self.asides.hook.clone()
    }

    /// The workflow cannot go on: a person has to look.
    pub fn stop(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
    }

    /// Where a step's code says that it makes a call which ends with its attempt.
    pub fn calls(&self) -> Rc<Cell<bool>> {
        self.calls.clone()
    }

    /// Whether somebody outside should hear at once when the run is cancelled.
    pub fn has_call_to_abort(&self) -> bool {
        self.calls.get() && self.has_running_step()
    }

    /// The run fails: the workflow has asked for something that cannot be, and would on every replay.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    pub fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// The workflow begins anew with this input: nothing that it does next counts.
    pub fn begin_anew(&mut self, input: Payload) {
        if let Some(outer) = &self.inside {
            let detail = format!(
                "The code of step '{}' continues the run as new. Only the workflow itself can: return from the step \
                 first.",
                outer.name
            );
            return self.stop(Problem::new(Code::NotDurable, detail));
        }
        self.anew.get_or_insert(input);
    }

    pub fn take_anew(&mut self) -> Option<Payload> {
        self.anew.take()
    }

    pub fn has_problem(&self) -> bool {
        self.problem.is_some()
    }

    pub fn problem(&self) -> Option<Problem> {
        self.problem.clone()
    }

    fn begin(&mut self, op: &Op, what: impl FnOnce() -> What) -> &mut Slot {
        if !self.slots.contains_key(op) {
            self.begun += 1;
            self.slots.insert(op.clone(), Slot { order: self.begun, what: what(), waker: None });
            self.change(op, |_| ());
        }
        self.slots.get_mut(op).expect("begun just above")
    }

    /// Changes a slot, and what follows from it.
    fn change<T>(&mut self, op: &Op, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let slot = self.slots.get_mut(op)?;
        let result = change(slot);
        for (index, belongs) in [(&mut self.waiting, slot.waits()), (&mut self.running, slot.runs())] {
            if belongs {
                index.entry(slot.order).or_insert_with(|| op.clone());
            } else {
                index.remove(&slot.order);
            }
        }
        Some(result)
    }

    fn deliver_to(&mut self, op: &Op, workflow_ended: bool, change: impl FnOnce(&mut What)) {
        let found = self.change(op, |slot| {
            change(&mut slot.what);
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
        });
        if found.is_some() {
            return;
        }
        // Named once, and consumed or dropped since: the event came too late to matter, then and now.
        let named = self.named.get(&(op.kind, op.name.clone())).copied().unwrap_or_default();
        if op.occurrence >= named {
            let problem = words::divergence(self.slots.keys(), op, workflow_ended);
            self.stop(problem);
        }
    }
}
