//! What callers, operators, senders of webhooks and the catalog do, and what they are told. Each repeats it until it is
//! answered.

use stepwell_core::{
    cell::{Action, KeyRow, NewRun, TokenAnswer},
    object::Fault,
    run::Phase,
    topic::Delivered,
};
use stepwell_protocol::{
    Code, Payload, RunId, Timestamp,
    manifest::TriggerDescription,
    program::Dispatch,
    topic::{Accepted, NewEvent, TriggerSpec},
    wait_token::{NewToken, WaitToken},
    webhook::{Secret, WebhookKind, WebhookSpec, schemes::sign},
};

use super::{
    World,
    cells::place,
    events::{Event, Out},
    flows::Job,
    host::TheTopic,
};
use crate::host::{Cause, Refused};

/// The webhook of these worlds.
const HOOK: &str = "hook";

/// How long a secret that was replaced stays good.
pub const OVERLAP_MS: u64 = 20_000;

/// The secrets that deliveries are signed with, in the order in which they replace each other.
const SECRETS: [&str; 3] = ["the first secret", "the second secret", "the third secret"];

/// What somebody does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Sends events, in a request with this mark.
    Send(String, Vec<NewEvent>),
    /// Makes a trigger.
    Put(String, Box<TriggerSpec>),
    /// Pauses it.
    Pause(String),
    /// Resumes it.
    Resume(String),
    /// Deletes it.
    Delete(String),
    /// The code declares these, by this revision.
    Declare(u64, Vec<TriggerDescription>),
    /// Makes a webhook, or replaces its secret by this one.
    Hook(usize),
    /// Delivers something, signed with this secret.
    Deliver(Box<NewEvent>, usize),
    /// Makes an event of a delivery once more.
    Redeliver(String, Option<u64>),
    /// Starts a run.
    Start(usize, &'static str, Job, String),
    /// Does something to a run that there is by then.
    Manage(usize, Action, Option<RunId>),
    /// Completes the wait of a token, and does so again.
    Token(usize, u64, Option<Box<WaitToken>>),
}

/// What whoever has done it is told.
#[derive(Clone, Debug)]
pub enum Answered {
    /// It is done.
    Done,
    /// It is refused.
    Refused(Code),
    /// What became of events.
    Events(Vec<Accepted>),
    /// What became of a delivery at this time, or that it was refused.
    Delivered(Option<Accepted>, Timestamp),
    /// A token is taken.
    Completed,
}

type Turned = Result<Answered, Fault<Refused>>;

/// What the webhook is.
fn hook(secret: Option<usize>) -> WebhookSpec {
    WebhookSpec {
        kind: WebhookKind::Github,
        event: "order/paid".into(),
        id: None,
        data: None,
        tolerance_s: None,
        header: None,
        prefix: None,
        encoding: None,
        algorithm: None,
        id_header: None,
        secret: secret.map(|secret| Secret(SECRETS[secret].into())),
        overlap_ms: Some(OVERLAP_MS),
    }
}

impl World {
    pub(super) fn on_act(&mut self, index: usize) {
        if self.acked.contains(&index) {
            return;
        }
        let again_ms = self.rng.between(500, 3_000);
        self.put(again_ms, Event::Act(index));
        let act = self.acts[index].clone();
        self.model.begins(&act, self.now_ms);
        match act {
            Act::Start(cell, ..) | Act::Manage(cell, ..) | Act::Token(cell, ..) => {
                self.ask_cell(index, cell, act);
            }
            Act::Send(..)
            | Act::Put(..)
            | Act::Pause(_)
            | Act::Resume(_)
            | Act::Delete(_)
            | Act::Declare(..)
            | Act::Hook(_)
            | Act::Deliver(..)
            | Act::Redeliver(..) => self.ask_topic(index, act),
        }
    }

    fn ask_topic(&mut self, index: usize, act: Act) {
        let Some(id) = self.reach(TheTopic) else { return };
        let clock = self.topic.clock(self.now_ms);
        let turned: Turned = match act {
            Act::Send(mark, events) => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                machine.accept(rows, now, &mark, None, events).map(Answered::Events)
            }),
            Act::Put(name, spec) => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                machine.put_trigger(rows, now, "root", &name, *spec).map(|_| Answered::Done)
            }),
            Act::Pause(name) => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                machine.pause_trigger(rows, now, "root", &name).map(|_| Answered::Done)
            }),
            Act::Resume(name) => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                machine.resume_trigger(rows, now, &name).map(|_| Answered::Done)
            }),
            Act::Delete(name) => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                machine.delete_trigger(rows, now, &name).map(|()| Answered::Done)
            }),
            Act::Declare(revision, triggers) => {
                self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                    machine.declare(rows, now, revision, &triggers).map(|()| Answered::Done)
                })
            }
            Act::Hook(secret) => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                machine.put_webhook(rows, now, "root", HOOK, hook(Some(secret))).map(|_| Answered::Done)
            }),
            Act::Deliver(event, secret) => self.deliver(id, &event, secret, clock),
            Act::Redeliver(mark, number) => self.redeliver(index, id, &mark, number),
            Act::Start(..) | Act::Manage(..) | Act::Token(..) => return,
        };
        let is_stale = self.topic.host.is_stale(id);
        let Some(mut answered) = self.answer_of(index, turned, is_stale) else { return };
        if let Answered::Events(accepted) = &mut answered
            && self.is(super::Planted::BatchMixedUp)
        {
            accepted.reverse();
        }
        self.send(TheTopic, id, Out::Answer(index, answered));
    }

    /// What somebody is told; nothing if they have to try again.
    fn answer_of(&mut self, index: usize, turned: Turned, is_stale: bool) -> Option<Answered> {
        match turned {
            Ok(answered) => Some(answered),
            Err(Fault::Storage(Refused) | Fault::Moved(_)) => None,
            // Whoever has lost the name may not know of anything that came after.
            Err(Fault::Rejected(_)) if is_stale => None,
            Err(Fault::Rejected(problem)) => {
                // What it is about may still come.
                let comes = match &self.acts[index] {
                    Act::Pause(name) | Act::Resume(name) | Act::Delete(name) => !self.model.was_made(name),
                    Act::Deliver(..) => !self.model.has_hook(),
                    Act::Send(..) | Act::Put(..) | Act::Declare(..) | Act::Hook(_) => true,
                    Act::Redeliver(..) | Act::Start(..) | Act::Manage(..) | Act::Token(..) => false,
                };
                (!comes).then_some(Answered::Refused(problem.code))
            }
        }
    }

    fn deliver(&mut self, id: u64, event: &NewEvent, secret: usize, clock: Timestamp) -> Turned {
        let spec = hook(None);
        let body = event.data.text().to_owned();
        let given = event.id.as_deref().unwrap_or_default();
        let headers = sign(&spec, SECRETS[secret], given, clock, body.as_bytes());
        let delivered = self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
            // A refusal stores the delivery, too.
            match machine.deliver(rows, now, HOOK, headers, body) {
                Err(Fault::Rejected(problem)) if problem.code == Code::WebhookRefused => Ok(None),
                delivered => delivered.map(Some),
            }
        })?;
        let accepted = delivered.and_then(|delivered| match delivered {
            Delivered::Event(accepted) => Some(accepted),
            Delivered::Challenge(_) => None,
        });
        Ok(Answered::Delivered(accepted, clock))
    }

    fn redeliver(&mut self, index: usize, id: u64, mark: &str, number: Option<u64>) -> Turned {
        let number = match number {
            Some(number) => Some(number),
            None => self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                let list = machine.deliveries(rows, now, HOOK)?;
                Ok(list.deliveries.iter().find(|kept| kept.is_verified).map(|kept| kept.id))
            })?,
        };
        let Some(number) = number else { return Ok(Answered::Refused(Code::WebhookNotFound)) };
        self.acts[index] = Act::Redeliver(mark.to_owned(), Some(number));
        self.note("a delivery is made an event once more");
        self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
            machine.redeliver(rows, now, mark, HOOK, number).map(|accepted| Answered::Events(vec![accepted]))
        })
    }

    fn ask_cell(&mut self, index: usize, cell: usize, act: Act) {
        let Some(id) = self.reach(cell) else { return };
        let turned: Turned = match act {
            Act::Start(_, workflow, job, key) => {
                let new = self.new_run(cell, workflow, &job, key);
                self.turn(cell, id, Cause::Request, |machine, store, now| {
                    machine.start(store, now, new).map(|_| Answered::Done)
                })
            }
            Act::Manage(_, action, run) => {
                let Some(run) = run.or_else(|| self.some_run(cell, |_| true)) else { return };
                self.acts[index] = Act::Manage(cell, action.clone(), Some(run.clone()));
                self.note(if action == Action::Cancel {
                    "a run is cancelled"
                } else {
                    "a run is taken back"
                });
                self.turn(cell, id, Cause::Request, |machine, store, now| {
                    machine.act(store, now, &run, "root", action).map(|()| Answered::Done)
                })
            }
            Act::Token(_, says, token) => {
                let token = match token {
                    Some(token) => token,
                    None => match self.new_token(cell, id) {
                        Some(token) => Box::new(token),
                        None => return,
                    },
                };
                self.acts[index] = Act::Token(cell, says, Some(token.clone()));
                let answer = TokenAnswer::Payload(Payload::encode(&says).unwrap_or_default());
                self.turn(cell, id, Cause::Request, |machine, store, now| {
                    machine.complete_token(store, now, &token, answer).map(|_| Answered::Completed)
                })
            }
            Act::Send(..)
            | Act::Put(..)
            | Act::Pause(_)
            | Act::Resume(_)
            | Act::Delete(_)
            | Act::Declare(..)
            | Act::Hook(_)
            | Act::Deliver(..)
            | Act::Redeliver(..) => return,
        };
        let is_stale = self.cells[cell].host.is_stale(id);
        if let Some(answered) = self.answer_of(index, turned, is_stale) {
            self.send(cell, id, Out::Answer(index, answered));
        }
    }

    fn new_run(&mut self, cell: usize, workflow: &str, job: &Job, key: String) -> NewRun {
        let drawn = self.rng.bits();
        NewRun {
            place: place(cell),
            suffix: RunId::suffix_from(drawn),
            seed: drawn,
            workflow: workflow.to_owned(),
            input: Payload::encode(job).unwrap_or_default(),
            dispatch: Dispatch::default(),
            timeout_ms: None,
            retention_ms: None,
            tags: Vec::new(),
            key: Some(KeyRow { fingerprint: key.clone(), key }),
            by: None,
            parent: None,
            ticked: None,
            starts_at: None,
            triggered: None,
            trace: None,
            callback: None,
            flow: None,
            joins: None,
        }
    }

    /// Some run of a cell that has not ended.
    fn some_run(&mut self, cell: usize, is_wanted: impl Fn(&str) -> bool) -> Option<RunId> {
        let disk = &self.cells[cell].host.disk;
        let runs = disk.runs.iter().filter(|(_, row)| is_wanted(&row.workflow));
        let runs = runs.filter_map(|(number, _)| disk.run(&place(cell), *number));
        let live: Vec<_> =
            runs.filter(|run| !matches!(run.phase, Phase::Ended { .. })).map(|run| run.id.clone()).collect();
        if live.is_empty() { None } else { Some(self.rng.pick(&live).clone()) }
    }

    fn new_token(&mut self, cell: usize, id: u64) -> Option<WaitToken> {
        let run = self.some_run(cell, |workflow| workflow == "approval")?;
        let new = NewToken { name: "approval".into(), occurrence: Some(0), expires_ms: None };
        let made = self
            .turn(cell, id, Cause::Request, |machine, store, now| machine.new_token(store, now, &run, new));
        made.ok().map(|made| made.token)
    }

    /// Somebody hears what became of what they have done.
    pub(super) fn on_answer(&mut self, index: usize, answered: &Answered) {
        // Now and then the answer is lost.
        if self.breaks() && self.rng.percent(10) || !self.acked.insert(index) {
            return;
        }
        let act = self.acts[index].clone();
        self.tell(|| format!("{act:?} is answered: {answered:?}"));
        let latest = self.topic.latest;
        let checked = self.model.answered(&act, answered, latest);
        self.must(checked);
        if let (Act::Token(cell, _, Some(token)), Answered::Completed) = (&act, answered) {
            let (cell, token) = (*cell, token.clone());
            self.note("a token is completed");
            let has = self.cells[cell].host.disk.signals.contains(&(token.run.number, token.signal_id()));
            if !has {
                self.must(Err((
                    "1 what was acknowledged is on record",
                    format!("the token of {}", token.run),
                )));
            }
            // Whoever has the link tries it once more.
            if self.breaks() && self.rng.percent(60) {
                let says = self.rng.bits() >> 12;
                let later = self.now_ms + self.rng.between(1, 60_000);
                self.act(later, Act::Token(cell, says, Some(token)));
            }
        }
    }
}
