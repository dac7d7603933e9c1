//! A journal from elsewhere on the code that is here: does it still do the same?

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use stepwell_protocol::{
    Code, Epoch, Event, Failure, Op, Outcome, PROTOCOL, Payload, Problem, Record, Seq,
    export::{Difference, Export, ReplayReport},
    program::{Activation, Command, Open, Page, Then},
    rest::Status,
};

use super::once_more::is_the_engines;
use crate::{
    App, Terminal,
    vm::{Hook, Order, Vm},
};

/// How often a workflow that wakes itself is polled.
const TURNS_MAX: usize = 100_000;

/// Replays an exported run: the journal is delivered event by event to the workflow as it is here, and no step's
/// code runs. Says where the code first does something else, and how the end compares.
pub fn replay(app: &App, export: &Export) -> ReplayReport {
    let events: Vec<Record> = export.counted().cloned().collect();
    let (count, last) = (events.len(), last_word(app, export, events));
    let difference = match &last.then {
        Then::Pause { problem } if problem.code == Code::Diverged => Some(divergence(export, &last)),
        Then::Pause { problem } => Some(at_end(describe_end(export), problem.detail.clone())),
        Then::Complete { .. }
        | Then::Fail { .. }
        | Then::Continue { .. }
        | Then::Suspend { .. }
        | Then::Anew { .. }
        | Then::Yield { .. } => compare_end(export, &last),
    };
    let next = if difference.is_some() || export.run.status.is_terminal() { Vec::new() } else { last.next() };
    ReplayReport { events: count, difference, next }
}

/// What the code says when it knows the whole journal.
struct LastWord {
    then: Then,
    /// The steps that it wants to run, and the children that it invokes.
    steps: BTreeSet<Op>,
    /// The last event that was delivered.
    at: Seq,
    /// What it waits for there; nothing, if the workflow has returned.
    waits_for: Option<Vec<Op>>,
}

impl LastWord {
    /// What it would do next.
    fn next(&self) -> Vec<String> {
        let steps = self.steps.iter().map(named);
        let waits = match &self.then {
            Then::Suspend { open }
            | Then::Continue { open: Some(open) }
            | Then::Yield { open: Some(open) } => open.as_slice(),
            Then::Continue { open: None }
            | Then::Yield { open: None }
            | Then::Anew { .. }
            | Then::Complete { .. }
            | Then::Fail { .. }
            | Then::Pause { .. } => &[],
        };
        let anew = matches!(self.then, Then::Anew { .. }).then(|| "a new life of the run".to_owned());
        steps.chain(waits.iter().map(Open::op).map(named)).chain(anew).collect()
    }

    fn describe(&self) -> String {
        match &self.then {
            Then::Complete { output } => format!("the workflow returns {}", output.text()),
            Then::Fail { failure } => format!("the workflow fails: {}", failure.message),
            Then::Pause { problem } => problem.detail.clone(),
            Then::Anew { input, .. } => format!("the workflow begins anew with {}", input.text()),
            Then::Continue { .. } | Then::Suspend { .. } | Then::Yield { .. } => {
                format!("the code goes on with {}", self.next().join(", "))
            }
        }
    }
}

fn last_word(app: &App, export: &Export, events: Vec<Record>) -> LastWord {
    let noted = Rc::new(RefCell::new(BTreeSet::new()));
    let steps = noted.clone();
    let hook: Hook = Rc::new(move |op, _| {
        steps.borrow_mut().insert(op.clone());
        Some(Err(Terminal::new("a replay runs no step").into()))
    });
    let mut vm = Vm::new(app, activation(export, events)).with_hook(hook);
    for _ in 0..TURNS_MAX {
        // The journal is whole, so there is no page to bring; and whoever is pending has woken itself.
        if let Poll::Ready(Order::Commit(commit)) = vm.poll(&mut Context::from_waker(Waker::noop())) {
            let (at, waits_for) = vm.place();
            let mut steps = noted.take();
            // One that must run at most once is announced before it runs, and so is a child.
            steps.extend(commit.commands.iter().filter_map(begun));
            return LastWord { then: commit.then, steps, at, waits_for };
        }
    }
    let detail = "The workflow turns in circles.";
    let then = Then::Pause { problem: Problem::new(Code::NotDurable, detail) };
    LastWord { then, steps: noted.take(), at: vm.place().0, waits_for: None }
}

fn begun(command: &Command) -> Option<Op> {
    match command {
        Command::StepBegun { op } | Command::ChildInvoked { op, .. } => Some(op.clone()),
        Command::StepSucceeded { .. }
        | Command::StepFailed { .. }
        | Command::Emitted { .. }
        | Command::JobSent { .. } => None,
    }
}

fn activation(export: &Export, events: Vec<Record>) -> Activation {
    let facts = export.replay.clone().unwrap_or_default();
    let run = &export.run;
    let began_at = facts.life.map_or(run.created_at, |life| life.began_at);
    let latest = events.last().map_or(began_at, |record| record.at.max(began_at));
    Activation {
        protocol: PROTOCOL,
        run: run.id.clone(),
        workflow: run.workflow.clone(),
        // The first activation of a life takes nothing for a replay.
        epoch: Epoch(run.activations.saturating_add(2)),
        seed: if facts.seed.is_empty() { "0".into() } else { facts.seed },
        now: run.ended_at.unwrap_or(latest).max(latest),
        started_at: run.created_at,
        life: facts.life,
        input: export.input.clone(),
        patches: facts.patches,
        attributes: [].into(),
        tokens: Some(Box::new(super::script::issuer(&run.id))),
        budget: None,
        let_in: None,
        trace: None,
        followed: false,
        journal: Page { events, more: false },
        signature: None,
    }
}

/// The event that the code does not wait for.
fn divergence(export: &Export, last: &LastWord) -> Difference {
    let event = export.counted().find(|record| record.seq == last.at).map(|record| describe(&record.event));
    let actual = match &last.waits_for {
        None => "the workflow has returned".to_owned(),
        Some(waits_for) if waits_for.is_empty() => "the code waits for nothing".to_owned(),
        Some(waits_for) => {
            let names: Vec<_> = waits_for.iter().map(named).collect();
            format!("the code waits for {}", names.join(", "))
        }
    };
    Difference { seq: Some(last.at), expected: event.unwrap_or_default(), actual }
}

fn compare_end(export: &Export, last: &LastWord) -> Option<Difference> {
    let is_same = match (export.run.status, &last.then) {
        // Nothing and `null` are the same in a file.
        (Status::Completed, Then::Complete { output }) => {
            export.run.output.as_ref().map_or("null", Payload::text) == output.text()
        }
        (Status::Failed, then) => match (&export.run.error, then) {
            // The engine's own decision, which no replay repeats.
            (Some(Failure { code: Some(code), .. }), _) if is_the_engines(*code) => true,
            (Some(expected), Then::Fail { failure }) => expected.message == failure.message,
            _ => false,
        },
        (Status::Completed, _) => false,
        // It may have been cancelled anywhere; and one that is under way goes on in any way that fits so far.
        (
            Status::Cancelled
            | Status::Pending
            | Status::Running
            | Status::Sleeping
            | Status::Waiting
            | Status::Paused,
            _,
        ) => true,
    };
    (!is_same).then(|| at_end(describe_end(export), last.describe()))
}

fn at_end(expected: String, actual: String) -> Difference {
    Difference { seq: None, expected, actual }
}

fn describe_end(export: &Export) -> String {
    let run = &export.run;
    match (&run.output, &run.error) {
        (Some(output), _) => format!("the workflow returned {}", output.text()),
        (None, Some(error)) => format!("the workflow failed: {}", error.message),
        (None, None) if run.status == Status::Completed => "the workflow returned null".to_owned(),
        (None, None) => format!("the run was {}", run.status.as_str()),
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::StepFinished { op, .. } | Event::ChildFinished { op, outcome: Outcome::Ok(_), .. } => {
            format!("{} ended", named(op))
        }
        Event::StepRetrying { op, attempt, .. } => format!("{} failed at attempt {attempt}", named(op)),
        Event::StepBegun { op } => format!("{} began", named(op)),
        Event::StepLetIn { op, lane, .. } => format!("{} was let in by the lane '{lane}'", named(op)),
        Event::TimerFired { op, .. } => format!("{} was over", named(op)),
        Event::SignalReceived { name, .. } => format!("signal '{name}' came"),
        Event::ChildInvoked { op, workflow, .. } => {
            format!("{} was invoked, of workflow '{workflow}'", named(op))
        }
        Event::ChildStarted { op, run, .. } => format!("{} was started as {run}", named(op)),
        Event::ChildFinished { op, outcome: Outcome::Err(failure), .. } => {
            format!("{} failed: {}", named(op), failure.message)
        }
    }
}

fn named(op: &Op) -> String {
    let occurrence =
        if op.occurrence == 0 { String::new() } else { format!(" #{}", u64::from(op.occurrence) + 1) };
    format!("{} '{}'{occurrence}", op.kind.as_str(), op.name)
}
