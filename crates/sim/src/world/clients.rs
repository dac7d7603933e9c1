//! Clients: what they ask, what they are told, and what they make of silence.

use std::collections::BTreeMap;

use stepwell_core::{
    access::ROOT,
    cell::{self, KeyRow, NewRun, Rows as _, StoredKey, scoped_key},
    object::Fault,
    run::{PauseWhy, Phase, Signal},
};
use stepwell_protocol::{Code, Payload, RunId, Timestamp, program::Dispatch, rest::Status};

use super::{
    World,
    catalog::CatalogAsk,
    events::{Event, Outgoing, Response},
    host::Any,
    site::FIRST_MS,
};
use crate::{
    host::{Cause, Refused},
    rng::hash64,
    sabotage::Sabotage,
    script::{Action, Manage},
};

/// How long a client waits for an answer.
const PATIENCE_MS: u64 = 3_000;

/// How often it asks again.
const TRIES_MAX: u32 = 6;

/// What clients know.
#[derive(Default)]
pub(super) struct Clients {
    last: u32,
    open: BTreeMap<u32, Request>,
    /// Which run a start has made, once its client was told.
    runs: BTreeMap<usize, (usize, RunId)>,
    /// Which key an action has made, once its client was told.
    keys: BTreeMap<usize, String>,
}

#[derive(Clone)]
struct Request {
    /// The action, and how often it was tried.
    action: Option<(usize, u32)>,
    cell: usize,
    ask: Ask,
    answered: bool,
}

#[derive(Clone)]
enum Ask {
    Manage(RunId, Manage),
    Start {
        key: Option<String>,
        nonce: String,
        workflow: &'static str,
        input: Payload,
        timeout_ms: Option<u64>,
        retention_ms: Option<u64>,
        dispatch: Dispatch,
        starts_at: Option<Timestamp>,
    },
    Signal {
        run: RunId,
        name: &'static str,
        id: Option<String>,
        nonce: String,
        payload: u64,
    },
    Cancel(RunId),
    Show {
        run: RunId,
        wait_ms: u64,
    },
    /// Shows a key to a cell.
    UseKey(String),
    /// Goes to the catalog.
    Catalog(CatalogAsk),
    /// Anything at all: it wakes the cell.
    Touch,
}

impl World {
    /// A client does what the script says.
    pub(super) fn act(&mut self, index: usize, times: u32) {
        let action = self.script.actions[index].1.clone();
        if let Action::Follow { start } = action {
            match self.clients.runs.get(&start).cloned() {
                Some((cell, run)) => self.follow(cell, run),
                None if times < TRIES_MAX => self.put(400, Event::Act(index, times + 1)),
                None => {}
            }
            return;
        }
        let run_of = |start: usize| self.clients.runs.get(&start).cloned();
        let key_of = |create: usize| self.clients.keys.get(&create).cloned();
        // The front draws one for each request of a client.
        let nonce = RunId::suffix_from(hash64(&format!("{index} {times}")));
        let (cell, ask) = match action {
            Action::Start { cell, key, workflow, job, timeout_ms, retention_ms, dispatch, delay_ms } => {
                let input = Payload::encode(&job).expect("a job is JSON");
                let key = key.map(|key| scoped_key(workflow, &key));
                let starts_at =
                    delay_ms.map(|ms| Timestamp::from_millis(FIRST_MS + self.now_ms).plus_millis(ms));
                if let Some(at) = starts_at {
                    self.check.put_off(&nonce, at);
                }
                let ask =
                    Ask::Start { key, nonce, workflow, input, timeout_ms, retention_ms, dispatch, starts_at };
                (cell, Some(ask))
            }
            Action::Manage { start, how } => match run_of(start) {
                Some((cell, run)) => (cell, Some(Ask::Manage(run, how))),
                None => (0, None),
            },
            Action::Signal { start, name, id, payload } => match run_of(start) {
                Some((cell, run)) => (cell, Some(Ask::Signal { run, name, id, nonce, payload })),
                None => (0, None),
            },
            Action::Cancel { start } => match run_of(start) {
                Some((cell, run)) => (cell, Some(Ask::Cancel(run))),
                None => (0, None),
            },
            Action::CreateKey => (0, Some(Ask::Catalog(CatalogAsk::Create(format!("key{index}.{times}"))))),
            Action::RevokeKey { create } => {
                (0, key_of(create).map(|key| Ask::Catalog(CatalogAsk::Revoke(key))))
            }
            Action::UseKey { create, cell: None } => {
                (0, key_of(create).map(|key| Ask::Catalog(CatalogAsk::Show(key))))
            }
            Action::UseKey { create, cell: Some(cell) } => (cell, key_of(create).map(Ask::UseKey)),
            Action::Show { start, wait_ms } => match run_of(start) {
                Some((cell, run)) => (cell, Some(Ask::Show { run, wait_ms })),
                None => (0, None),
            },
            Action::Follow { .. } => return,
            Action::Sync { version, is_explicit } => {
                (0, Some(Ask::Catalog(CatalogAsk::Sync(version, is_explicit))))
            }
            Action::PauseWorkflow(workflow) => (0, Some(Ask::Catalog(CatalogAsk::Pause(workflow)))),
            Action::ResumeWorkflow(workflow) => (0, Some(Ask::Catalog(CatalogAsk::Resume(workflow)))),
        };
        match ask {
            Some(ask) => self.ask(cell, Some((index, times)), ask),
            // The run's id is not known yet.
            None if times < TRIES_MAX => self.put(400, Event::Act(index, times + 1)),
            None => {}
        }
    }

    /// Wakes an object.
    pub(super) fn touch(&mut self, any: Any) {
        match any {
            Any::Cell(cell) => self.ask(cell, None, Ask::Touch),
            Any::Catalog => self.ask(0, None, Ask::Catalog(CatalogAsk::Touch)),
        }
    }

    /// Lets everything go on that somebody has paused: a step without end that is paused would keep its place
    /// in the window, and its neighbours waiting.
    pub(super) fn resume_all(&mut self, cell: usize) {
        let site = &self.sites[cell];
        let paused = site.disk.runs.iter().filter(|(_, row)| row.status == Status::Paused.as_str());
        let paused: Vec<_> = paused.filter_map(|(number, _)| site.disk.run(&site.place, *number)).collect();
        for run in paused {
            if matches!(run.phase, Phase::Paused { why: PauseWhy::Request }) {
                self.ask(cell, None, Ask::Manage(run.id.clone(), Manage::Resume));
            }
        }
    }

    /// Cancel, signal and whatever is due come at once.
    pub(super) fn all_at_once(&mut self, index: usize) {
        // A smaller world has fewer of them.
        let Some((_, action)) = self.script.actions.get(index) else { return };
        let start = match action {
            Action::Start { .. } => index,
            Action::Signal { start, .. }
            | Action::Cancel { start }
            | Action::Manage { start, .. }
            | Action::Show { start, .. }
            | Action::Follow { start } => *start,
            Action::CreateKey
            | Action::RevokeKey { .. }
            | Action::UseKey { .. }
            | Action::Sync { .. }
            | Action::PauseWorkflow(_)
            | Action::ResumeWorkflow(_) => return,
        };
        let Some((cell, run)) = self.clients.runs.get(&start).cloned() else { return };
        let site = &mut self.sites[cell];
        // At the very millisecond at which the run is due, if it is.
        let due = site.disk.runs.get(&run.number).and_then(|row| row.wake_at);
        let at_ms =
            due.map_or(self.now_ms, |due| site.world_time(due)).clamp(self.now_ms, self.now_ms + 5_000);
        let (id, nonce) = (Some(format!("tick{index}")), String::new());
        let signal = Ask::Signal { run: run.clone(), name: "go", id, nonce, payload: 7 };
        let asks = if self.rng.percent(50) { vec![signal, Ask::Cancel(run)] } else { vec![signal] };
        for ask in asks {
            let request = self.open_request(cell, None, ask);
            self.put_at(at_ms, Event::Request(request));
        }
    }

    fn open_request(&mut self, cell: usize, action: Option<(usize, u32)>, ask: Ask) -> u32 {
        self.clients.last += 1;
        let request = self.clients.last;
        self.clients.open.insert(request, Request { action, cell, ask, answered: false });
        request
    }

    fn ask(&mut self, cell: usize, action: Option<(usize, u32)>, ask: Ask) {
        let patience_ms = match &ask {
            Ask::Show { wait_ms, .. } => PATIENCE_MS + wait_ms,
            Ask::Start { .. }
            | Ask::Signal { .. }
            | Ask::Cancel(_)
            | Ask::Manage(..)
            | Ask::UseKey(_)
            | Ask::Catalog(_)
            | Ask::Touch => PATIENCE_MS,
        };
        let request = self.open_request(cell, action, ask);
        self.put(patience_ms, Event::GiveUp(request));
        let copies = self.network();
        for delay_ms in copies {
            self.put(delay_ms, Event::Request(request));
        }
    }

    /// What becomes of a message: the delays of its copies.
    pub(super) fn network(&mut self) -> Vec<u64> {
        let noise = if self.healed { crate::script::Noise::default() } else { self.script.noise };
        if self.rng.percent(noise.lose) {
            self.count("message lost");
            return Vec::new();
        }
        let mut copies = vec![self.rng.between(1, 4)];
        if self.rng.percent(noise.delay) {
            self.count("message delayed, so that others overtake it");
            copies[0] += self.rng.between(20, 2_500);
        }
        if self.rng.percent(noise.duplicate) {
            self.count("message twice");
            copies.push(self.rng.between(1, 800));
        }
        copies
    }

    /// A request arrives at its cell.
    pub(super) fn on_request(&mut self, request: u32) {
        let Some(Request { cell, ask, .. }) = self.clients.open.get(&request).cloned() else { return };
        if let Ask::Catalog(ask) = &ask {
            return self.on_catalog_request(request, ask);
        }
        let stale = self.sites[cell].stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            // Whoever still has the old address asks the instance that has lost the name.
            Some(stale) if self.rng.percent(30) => stale,
            Some(_) | None => self.load(cell),
        };
        let answered = self.repair(cell, id).and_then(|()| self.answer(cell, id, request, ask));
        let response = match answered {
            Ok(Some(response)) => response,
            Ok(None) => return,
            // Whoever has lost the name may not know of anything that came after: its word proves nothing.
            Err(Fault::Rejected(_)) if self.sites[cell].is_stale(id) => Response::Problem(Code::Internal),
            Err(Fault::Rejected(problem)) => Response::Problem(problem.code),
            Err(Fault::Storage(Refused) | Fault::Moved(_)) => Response::Problem(Code::Internal),
        };
        self.send(cell, id, Outgoing::Response(request, response));
    }

    fn answer(
        &mut self,
        cell: usize,
        id: u64,
        request: u32,
        ask: Ask,
    ) -> Result<Option<Response>, Fault<Refused>> {
        if self.sites[cell].instance(id).is_none() {
            // It was reset while it repaired its alarm: nobody answers.
            return Ok(None);
        }
        match ask {
            Ask::Manage(run, how) => {
                self.manage(cell, id, &run, how)?;
                Ok(Some(Response::Managed))
            }
            Ask::Start { key, nonce, workflow, input, timeout_ms, retention_ms, dispatch, starts_at } => {
                let fingerprint = fingerprint(workflow, &input);
                if let Some(key) = &key
                    && let Some(instance) = self.sites[cell].instance(id)
                    && let Ok(Some(StoredKey::Run(stored))) = instance.store.key(key)
                {
                    self.addressed.insert(stored.number);
                }
                let new = NewRun {
                    place: self.sites[cell].place.clone(),
                    suffix: nonce,
                    seed: self.rng.bits(),
                    workflow: workflow.to_owned(),
                    input,
                    dispatch,
                    timeout_ms,
                    retention_ms,
                    tags: Vec::new(),
                    key: key.map(|key| KeyRow { key, fingerprint }),
                    by: None,
                    parent: None,
                    ticked: None,
                    starts_at: starts_at.filter(|_| !self.is(Sabotage::DelayForgotten)),
                    triggered: None,
                    trace: None,
                    callback: None,
                    flow: None,
                    joins: None,
                };
                let started = self
                    .turn(cell, id, Cause::Request, |machine, store, now| machine.start(store, now, new))?;
                Ok(Some(Response::Started(started.run.id)))
            }
            Ask::Signal { run, name, id: signal_id, nonce, payload } => {
                if self.is(Sabotage::EarlySignalDropped) && !self.waits_for(cell, id, &run, name) {
                    return Ok(Some(Response::Signalled));
                }
                self.cover(cell, id, run.number, "signal");
                let payload = Payload::encode(&payload).expect("a number is JSON");
                self.turn(cell, id, Cause::Request, |machine, store, now| {
                    let (name, nonce) = (name.to_owned(), Some(nonce));
                    let signal = Signal { name, id: signal_id, nonce, payload, by: None, to: None };
                    machine.signal(store, now, &run, signal)
                })?;
                Ok(Some(Response::Signalled))
            }
            Ask::Cancel(run) => {
                self.cover(cell, id, run.number, "cancel");
                self.turn(cell, id, Cause::Request, |machine, store, now| {
                    machine.act(store, now, &run, ROOT, cell::Action::Cancel)
                })?;
                Ok(Some(Response::Cancelled))
            }
            Ask::Show { run, wait_ms } => {
                let Some(instance) = self.sites[cell].instance_mut(id) else { return Ok(None) };
                let found = instance.machine.find(&instance.store, &run)?;
                if wait_ms > 0 && !found.status().is_terminal() {
                    instance.own.waiters.entry(run.number).or_default().push(request);
                    self.put(wait_ms, Event::WaitOver(cell, id, run.number, request));
                    return Ok(None);
                }
                Ok(Some(Response::Shown(found.status())))
            }
            Ask::UseKey(key) => self.use_key((cell, id), request, &key, 0),
            Ask::Catalog(_) | Ask::Touch => Ok(Some(Response::Problem(Code::RunNotFound))),
        }
    }

    fn manage(&mut self, cell: usize, id: u64, run: &RunId, how: Manage) -> Result<(), Fault<Refused>> {
        let input = match how {
            Manage::Pause => "hold",
            Manage::Resume => "resume",
            Manage::Retry | Manage::Restart => "restart",
        };
        self.cover(cell, id, run.number, input);
        let action = match how {
            Manage::Pause => cell::Action::Pause,
            Manage::Resume => cell::Action::Resume,
            Manage::Retry => cell::Action::Retry,
            Manage::Restart => cell::Action::Restart { from: None },
        };
        self.turn(cell, id, Cause::Request, |machine, store, now| machine.act(store, now, run, ROOT, action))
    }

    fn waits_for(&mut self, cell: usize, id: u64, run: &RunId, name: &str) -> bool {
        let run = self.sites[cell].instance(id).and_then(|instance| instance.store.peek(run.number));
        run.is_some_and(|run| run.open.iter().any(|open| open.signal.as_deref() == Some(name)))
    }

    /// A response arrives at its client.
    pub(super) fn on_response(&mut self, request: u32, response: &Response) {
        let Some(open) = self.clients.open.get_mut(&request) else { return };
        if std::mem::replace(&mut open.answered, true) {
            return;
        }
        let Request { action, cell, ask, .. } = open.clone();
        self.note(|| format!("request {request} to cell {cell}: {response:?}"));
        let disk = &self.sites[cell].disk;
        let checked = match (&ask, response) {
            (Ask::Start { key, workflow, input, .. }, Response::Started(run)) => {
                if let Some((index, _)) = action {
                    self.clients.runs.insert(index, (cell, run.clone()));
                }
                let fingerprint = fingerprint(workflow, input);
                self.check.started(disk, cell, key.as_deref(), &fingerprint, run)
            }
            (Ask::Start { key, workflow, input, .. }, Response::Problem(Code::IdempotencyKeyReused)) => {
                self.check.key_refused(disk, key.as_deref(), &fingerprint(workflow, input))
            }
            (Ask::Signal { run, id, payload, .. }, Response::Signalled) => {
                self.check.signalled(disk, cell, run, id.as_deref(), *payload)
            }
            (Ask::Cancel(run), Response::Cancelled) => {
                self.check.cancelled(disk, cell, &self.sites[cell].place, run)
            }
            (Ask::Show { run, .. }, Response::Shown(status)) => self.check.shown(disk, cell, run, *status),
            (
                Ask::Show { run, .. } | Ask::Signal { run, .. } | Ask::Cancel(run),
                Response::Problem(Code::RunNotFound),
            ) if !self.check.is_deleted(cell, run) => Err((
                "1 no run is lost",
                format!("request {request}: a run that was acknowledged is unknown"),
            )),
            (Ask::Catalog(CatalogAsk::Create(_)), Response::KeyCreated(key)) => {
                if let Some((index, _)) = action {
                    self.clients.keys.insert(index, key.clone());
                }
                self.check.key_created(&self.catalog.disk.catalog(), key)
            }
            (_, Response::Synced(version, served)) => {
                self.check.synced(&self.catalog.disk.catalog(), *version, *served)
            }
            (_, Response::WorkflowPaused(workflow, served)) => {
                self.check.workflow_paused(&self.catalog.disk.catalog(), workflow, *served)
            }
            (Ask::Catalog(CatalogAsk::Revoke(key)), Response::KeyRevoked) => {
                self.check.key_revoked(&self.catalog.disk.catalog(), key)
            }
            (Ask::Catalog(CatalogAsk::Revoke(key)), Response::Problem(Code::KeyNotFound)) => {
                Err(("1 no key is lost", format!("{key} was acknowledged and is unknown")))
            }
            (_, Response::Problem(Code::Internal)) => {
                self.try_again(action, cell, ask);
                Ok(())
            }
            (_, _) => Ok(()),
        };
        self.must(checked);
    }

    /// A client has waited long enough.
    pub(super) fn give_up(&mut self, request: u32) {
        let Some(open) = self.clients.open.remove(&request) else { return };
        if !open.answered {
            self.try_again(open.action, open.cell, open.ask);
        }
    }

    fn try_again(&mut self, action: Option<(usize, u32)>, cell: usize, ask: Ask) {
        match action {
            Some((index, times)) if times < TRIES_MAX => self.put(200, Event::Act(index, times + 1)),
            // What wakes a cell must get there.
            None if matches!(ask, Ask::Touch | Ask::Catalog(CatalogAsk::Touch)) => self.ask(cell, None, ask),
            Some(_) | None => {}
        }
    }
}

/// What a key stands for.
fn fingerprint(workflow: &str, input: &Payload) -> String {
    format!("{workflow} {}", input.text())
}
