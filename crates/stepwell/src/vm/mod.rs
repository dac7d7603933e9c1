//! The replay VM: journal in, commits out.
//!
//! Sans-IO: whoever drives it brings events and takes commits; it never waits for anything itself but the
//! user's own futures. Events are delivered one at a time, in journal order, with a poll of the workflow
//! after each, so `select`, `join` and `FuturesUnordered` resolve on replay as they did at first. Steps run
//! only when the whole journal has been delivered. A suspended workflow is simply a pending future.
//!
//! Owns: replay, and what the program reports. Does not own: how messages travel ([`crate::drive`]), and
//! when a step is tried again (the engine decides that).

mod state;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll},
};

use stepwell_protocol::{
    Code, Epoch, Event, Outcome, Payload, Problem, Record, Seq,
    program::{Activation, Answer, Command, Commit, News, Open, Page, Then},
};

pub(crate) use state::{State, Turn};

use crate::{App, Ctx, Result, app::Running};

/// One activation of one run.
pub struct Vm {
    state: Rc<RefCell<State>>,
    workflow: Workflow,
    epoch: Epoch,
    /// The last position that was delivered or waits in the queue.
    known: Seq,
    queue: VecDeque<Record>,
    journal: Journal,
    /// The commands of the commit that has no answer yet.
    in_flight: Option<Vec<Command>>,
    /// What the engine was last told that the workflow waits for.
    told: Vec<Open>,
}

enum Workflow {
    Running(Running),
    Ended(Result<Payload>),
}

/// How much of the journal is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Journal {
    More,
    Asked,
    Complete,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq)]
pub enum Order {
    /// Fetch the journal after this position.
    Page(Seq),
    /// Send this, and bring the answer.
    Commit(Commit),
}

impl Vm {
    /// A VM for an activation.
    pub fn new(app: &App, activation: Activation) -> Self {
        let state = Rc::new(RefCell::new(State::new(activation.started_at, activation.now)));
        let ctx = Ctx::new(state.clone(), activation.run, activation.seed, activation.started_at);
        let workflow = match app.handler(&activation.workflow) {
            Some(start) => match start(ctx, &activation.input) {
                Ok(future) => Workflow::Running(future),
                Err(error) => Workflow::Ended(Err(error)),
            },
            None => {
                state.borrow_mut().stop(unknown_workflow(app, &activation.workflow));
                Workflow::Running(Box::pin(std::future::pending()))
            }
        };
        let mut vm = Self {
            state,
            workflow,
            epoch: activation.epoch,
            known: Seq(0),
            queue: VecDeque::new(),
            journal: Journal::More,
            in_flight: None,
            told: Vec::new(),
        };
        vm.page(activation.journal);
        vm
    }

    /// Takes a page of the journal.
    pub fn page(&mut self, page: Page) {
        self.journal = if page.more { Journal::More } else { Journal::Complete };
        for record in page.events {
            self.learn(record);
        }
    }

    /// Takes the answer to the commit that was sent. Says whether to go on.
    pub fn answered(&mut self, answer: Answer) -> bool {
        let commands = self.in_flight.take().unwrap_or_default();
        self.take_news(answer, commands)
    }

    /// Takes what came while listening. Says whether to go on.
    pub fn heard(&mut self, answer: Answer) -> bool {
        self.take_news(answer, Vec::new())
    }

    /// The last position that it knows of.
    pub fn known(&self) -> Seq {
        self.known
    }

    /// Whether something from outside could make it go on: then the driver should listen.
    pub fn wants_news(&self) -> bool {
        !self.told.is_empty()
    }

    /// Goes on as far as possible.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Order> {
        self.replay(cx);
        if let Some(order) = self.stop_at_problem() {
            return order;
        }
        if self.journal == Journal::More {
            self.journal = Journal::Asked;
            return Poll::Ready(Order::Page(self.known));
        }
        if self.journal == Journal::Asked {
            return Poll::Pending;
        }
        if let Workflow::Running(_) = self.workflow {
            self.state.borrow_mut().go_live();
            self.poll_workflow(cx);
        }
        if self.in_flight.is_some() {
            return Poll::Pending;
        }
        if let Some(order) = self.stop_at_problem() {
            return order;
        }
        let then = match &mut self.workflow {
            Workflow::Ended(result) => match std::mem::replace(result, Ok(Payload::null())) {
                Ok(output) => Then::Complete { output },
                Err(error) => Then::Fail { failure: error.into_failure() },
            },
            Workflow::Running(_) => match self.next_move() {
                Some(then) => then,
                None => return Poll::Pending,
            },
        };
        let commands = self.state.borrow_mut().take_outbox();
        self.send(commands, then)
    }

    /// Delivers what is known, one event at a time.
    fn replay(&mut self, cx: &mut Context<'_>) {
        self.state.borrow_mut().go_still();
        if self.known == Seq(0) || !self.queue.is_empty() {
            // The workflow has to reach its first await before anything can be delivered to it.
            self.poll_workflow(cx);
        }
        while let Some(record) = self.queue.pop_front() {
            if self.state.borrow().has_problem() {
                return;
            }
            let ended = matches!(self.workflow, Workflow::Ended(_));
            self.state.borrow_mut().deliver(record, ended);
            self.poll_workflow(cx);
        }
    }

    fn poll_workflow(&mut self, cx: &mut Context<'_>) {
        if let Workflow::Running(future) = &mut self.workflow
            && let Poll::Ready(result) = future.as_mut().poll(cx)
        {
            self.workflow = Workflow::Ended(result);
        }
    }

    /// What to say while the workflow is not over; nothing, if there is nothing new to say.
    fn next_move(&mut self) -> Option<Then> {
        let state = self.state.borrow();
        let open = state.open();
        if state.has_running_step() || state.has_reports() {
            if open == self.told {
                return state.has_reports().then_some(Then::Continue { open: None });
            }
            self.told.clone_from(&open);
            return Some(Then::Continue { open: Some(open) });
        }
        if open.is_empty() {
            let detail = "The workflow awaits something that is neither a step, a sleep nor a wait for a \
                          signal, so nothing can wake it. Move that code into a step.";
            return Some(Then::Pause { problem: Problem::new(Code::NotDurable, detail) });
        }
        self.told.clone_from(&open);
        Some(Then::Suspend { open })
    }

    fn stop_at_problem(&mut self) -> Option<Poll<Order>> {
        let problem = self.state.borrow().problem()?;
        Some(self.send(Vec::new(), Then::Pause { problem }))
    }

    fn send(&mut self, commands: Vec<Command>, then: Then) -> Poll<Order> {
        if self.in_flight.is_some() {
            return Poll::Pending;
        }
        self.in_flight = Some(commands.clone());
        Poll::Ready(Order::Commit(Commit { epoch: self.epoch, base: self.known, commands, then }))
    }

    fn take_news(&mut self, answer: Answer, commands: Vec<Command>) -> bool {
        match answer {
            Answer::Go { now, news } => {
                self.state.borrow_mut().set_clock(now);
                let mut commands: Vec<_> = commands.into_iter().map(Some).collect();
                for news in news {
                    match news {
                        News::Record(record) => self.learn(record),
                        News::Yours { seq, at, command } => {
                            if let Some(event) =
                                commands.get_mut(command).and_then(Option::take).and_then(recorded)
                            {
                                self.learn(Record { seq, at, event });
                            }
                        }
                    }
                }
                true
            }
            Answer::Stop | Answer::Refused { .. } => false,
        }
    }

    /// A listener and a commit may bring the same event: the first one counts.
    fn learn(&mut self, record: Record) {
        if record.seq > self.known {
            self.known = record.seq;
            self.queue.push_back(record);
        }
    }
}

/// What a command became in the journal, when the engine says that it was recorded as it was sent.
fn recorded(command: Command) -> Option<Event> {
    match command {
        Command::StepSucceeded { op, attempt, output } => {
            Some(Event::StepFinished { op, attempt, outcome: Outcome::Ok(output) })
        }
        // What becomes of a failed attempt is the engine's decision; it sends the event itself.
        Command::StepFailed { .. } => None,
    }
}

fn unknown_workflow(app: &App, name: &str) -> Problem {
    let known: Vec<_> = app.names().collect();
    let detail = format!(
        "The program has no workflow '{name}'; it has: {}. Deploy one that has it, then resume the run.",
        known.join(", ")
    );
    Problem::new(Code::WorkflowNotFound, detail)
}
