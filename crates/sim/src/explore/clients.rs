//! Clients: what they ask, and what they are told. One that gets no answer asks the same again.

use stepwell_core::{
    cell::{KeyRow, NewRun, scoped_key},
    object::Fault,
    run::Signal,
};
use stepwell_protocol::{Code, Payload, RunId, program::Dispatch};

use super::state::{Ask, Message, Response, Stands, Task, World};
use crate::{
    host::{Cause, Refused},
    sabotage::Sabotage,
};

impl World {
    /// Whether a client may send what it wants, for the first time or again: nothing of it is under way.
    pub(super) fn may_send(&self, index: usize) -> bool {
        let task = &self.tasks[index];
        let may_begin = task.after.is_none_or(|before| self.tasks[before].stands == Stands::Answered);
        let is_of = |message: &Message| matches!(message, Message::Request(of) | Message::Response(of, _) if *of == index);
        let site = &self.sites[task.cell];
        let held = [&site.live, &site.stale].into_iter().flatten().flat_map(|instance| &instance.held);
        let held = held.map(|(_, message)| message);
        task.stands != Stands::Answered && may_begin && !self.wire.iter().chain(held).any(is_of)
    }

    pub(super) fn client_sends(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        let again = if task.stands == Stands::Sent { " again" } else { "" };
        task.stands = Stands::Sent;
        let ask = task.ask.clone();
        self.note(|| match ask.as_ref() {
            Ask::Start { .. } => format!("the client starts a run{again}"),
            Ask::Signal { name, .. } => format!("the client sends signal '{name}'{again}"),
        });
        self.wire.push(Message::Request(index));
    }

    /// A request arrives at an instance.
    pub(super) fn on_request(&mut self, index: usize, id: u64) {
        let Task { cell, ask, .. } = self.tasks[index].clone();
        let answered = self.repair(cell, id).and_then(|()| self.answer(cell, id, &ask));
        let response = match answered {
            Ok(response) => response,
            // Whoever has lost the name may not know of anything that came after: its word proves nothing.
            Err(Fault::Rejected(_)) if self.sites[cell].is_stale(id) => Response::Problem(Code::Internal),
            Err(Fault::Rejected(problem)) => Response::Problem(problem.code),
            Err(Fault::Storage(Refused) | Fault::Moved(_)) => Response::Problem(Code::Internal),
        };
        self.send(cell, id, Message::Response(index, response));
    }

    fn answer(&mut self, cell: usize, id: u64, ask: &Ask) -> Result<Response, Fault<Refused>> {
        match ask {
            Ask::Start { key, nonce, workflow, input, seed } => {
                let fingerprint = input.text().to_owned();
                let key = key.as_ref().map(|key| KeyRow { key: scoped_key(workflow, key), fingerprint });
                let new = NewRun {
                    place: self.sites[cell].place.clone(),
                    suffix: nonce.clone(),
                    seed: *seed,
                    workflow: (*workflow).to_owned(),
                    input: input.clone(),
                    dispatch: Dispatch::Direct,
                    timeout_ms: None,
                    retention_ms: None,
                    tags: Vec::new(),
                    key,
                    by: None,
                    parent: None,
                    ticked: None,
                    starts_at: None,
                    triggered: None,
                    trace: None,
                    callback: None,
                    flow: None,
                    joins: None,
                };
                let started = self
                    .turn(cell, id, Cause::Request, |machine, store, now| machine.start(store, now, new))?;
                Ok(Response::Started(started.run.id))
            }
            Ask::Signal { to, name, id: signal_id, nonce, payload } => {
                let run = self.run_of(*to);
                if self.is(Sabotage::EarlySignalDropped) && !self.waits_for(cell, id, &run, name) {
                    return Ok(Response::Signalled);
                }
                let payload = Payload::encode(payload).expect("a number is JSON");
                let (name, nonce) = ((*name).to_owned(), Some(nonce.clone()));
                let signal = Signal { name, id: signal_id.clone(), nonce, payload, by: None, to: None };
                self.turn(cell, id, Cause::Request, |machine, store, now| {
                    machine.signal(store, now, &run, signal)
                })?;
                Ok(Response::Signalled)
            }
        }
    }

    fn run_of(&self, task: usize) -> RunId {
        self.tasks[task].run.clone().expect("it was started before")
    }

    fn waits_for(&self, cell: usize, id: u64, run: &RunId, name: &str) -> bool {
        let run = self.sites[cell].instance(id).and_then(|instance| instance.store.peek(run.number));
        run.is_some_and(|run| run.open.iter().any(|open| open.signal.as_deref() == Some(name)))
    }

    /// A client is told something.
    pub(super) fn on_response(&mut self, index: usize, response: &Response) {
        let Task { cell, ask, stands, .. } = self.tasks[index].clone();
        self.note(|| format!("the client is told: {}", told(response)));
        if stands == Stands::Answered {
            return;
        }
        let disk = self.sites[cell].disk.clone();
        let checked = match (ask.as_ref(), response) {
            (Ask::Start { key, input, workflow, .. }, Response::Started(run)) => {
                self.tasks[index].run = Some(run.clone());
                let key = key.as_ref().map(|key| scoped_key(workflow, key));
                self.check().started(&disk, cell, key.as_deref(), input.text(), run)
            }
            (Ask::Signal { to, id, payload, .. }, Response::Signalled) => {
                let run = self.run_of(*to);
                self.check().signalled(&disk, cell, &run, id.as_deref(), *payload)
            }
            // It came too late.
            (Ask::Signal { .. }, Response::Problem(Code::RunEnded)) => Ok(()),
            // It will ask again.
            (_, Response::Problem(Code::Internal)) => return,
            (_, response) => Err(("1 no run is lost", format!("a client was told: {}", told(response)))),
        };
        self.tasks[index].stands = Stands::Answered;
        self.must(checked);
    }
}

fn told(response: &Response) -> String {
    match response {
        Response::Started(run) => format!("run {} is started", run.number),
        Response::Signalled => "the signal is received".to_owned(),
        Response::Problem(code) => format!("{code:?}"),
    }
}
