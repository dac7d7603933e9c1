//! What a cell does for its callers: the Workers that serve HTTP.

use std::{rc::Rc, time::Duration};

use futures::future::{Either, select};
use serde::Serialize;
use sha2::{Digest, Sha256};
use stepwell_core::run::{Input, Start};
use stepwell_protocol::{
    Code, Payload, Place, Problem, RunId, Seq,
    rest::{History, RunView, SignalReceipt},
};
use worker::{Delay, Headers, Request, Response, Result as WorkerResult};

use super::{
    Host,
    call::{Call, Operation},
    fault::Fault,
    store::Key,
};
use crate::runtime;

/// What is sent back: a status and a JSON text.
struct Answered {
    status: u16,
    body: String,
}

impl Answered {
    fn new<T: Serialize>(status: u16, body: &T) -> Self {
        Self { status, body: serde_json::to_string(body).expect("answers hold only what JSON can say") }
    }
}

impl Host {
    /// Answers a Worker.
    pub(super) async fn answer(self: &Rc<Self>, mut request: Request) -> WorkerResult<Response> {
        let call: Call = serde_json::from_str(&request.text().await?)?;
        let place = call.place();
        let answered = match self.operate(&place, call.operation).await {
            Ok(answered) => answered,
            Err(fault) => {
                let problem = fault.into_problem();
                Answered::new(problem.status, &problem)
            }
        };
        let headers = Headers::new();
        if self.settings.meter {
            headers.set("stepwell-rows-written", &self.store.rows_written().to_string())?;
        }
        Ok(Response::ok(answered.body)?.with_status(answered.status).with_headers(headers))
    }

    async fn operate(self: &Rc<Self>, place: &Place, operation: Operation) -> Result<Answered, Fault> {
        match operation {
            Operation::Start { workflow, input, key, wait_ms } => {
                self.start_run(place, workflow, input, key, wait_ms).await
            }
            Operation::Get { number, suffix, wait_ms } => {
                self.store.check_suffix(number, &suffix)?;
                self.wait_for_end(number, wait_ms).await?;
                Ok(Answered::new(200, &self.store.view(number, &suffix)?))
            }
            Operation::History { number, suffix, after } => self.history(number, &suffix, after),
            Operation::Signal { number, suffix, name, id, payload } => {
                self.store.check_suffix(number, &suffix)?;
                self.signal(number, name, id, payload)
            }
            Operation::Cancel { number, suffix } => {
                self.store.check_suffix(number, &suffix)?;
                self.drive(number, |_| Input::Cancel)?;
                Ok(Answered::new(200, &self.store.view(number, &suffix)?))
            }
        }
    }

    async fn start_run(
        self: &Rc<Self>,
        place: &Place,
        workflow: String,
        input: Payload,
        key: Option<String>,
        wait_ms: u64,
    ) -> Result<Answered, Fault> {
        self.store.prepare(place)?;
        let key = key.map(|key| Key { key, fingerprint: fingerprint(&workflow, &input) });
        if let Some(key) = &key
            && let Some((number, before)) = self.store.key(&key.key)?
        {
            if before != key.fingerprint {
                let detail = "This Idempotency-Key has started a run with another workflow or input. Use a new \
                              key for a new request.";
                return Err(Problem::new(Code::IdempotencyKeyReused, detail).into());
            }
            self.wait_for_end(number, wait_ms).await?;
            return Ok(Answered::new(200, &self.view(number)?));
        }
        let number = self.store.next_number()?;
        let suffix = RunId::suffix_from(runtime::random());
        let start = Start {
            id: RunId { place: place.clone(), number, suffix },
            slot: self.slot(&workflow),
            workflow,
            seed: runtime::random(),
        };
        let run = self.start(start, &input, key.as_ref())?;
        if wait_ms == 0 {
            return Ok(Answered::new(201, &fresh(&run)));
        }
        self.wait_for_end(number, wait_ms).await?;
        Ok(Answered::new(201, &self.view(number)?))
    }

    fn signal(
        self: &Rc<Self>,
        number: u64,
        name: String,
        id: Option<String>,
        payload: Payload,
    ) -> Result<Answered, Fault> {
        if let Some(id) = &id
            && self.store.has_signal(number, id)?
        {
            return Ok(Answered::new(200, &SignalReceipt { duplicate: true }));
        }
        self.drive(number, |slot| Input::Signal { name, id, payload, slot })?;
        Ok(Answered::new(202, &SignalReceipt { duplicate: false }))
    }

    fn history(&self, number: u64, suffix: &str, after: Seq) -> Result<Answered, Fault> {
        self.store.check_suffix(number, suffix)?;
        let page = self.store.page(number, after)?;
        let next = page.more.then(|| page.events.last().map(|record| record.seq)).flatten();
        Ok(Answered::new(200, &History { events: page.events, next }))
    }

    fn view(&self, number: u64) -> Result<RunView, Fault> {
        let suffix = self.run(number)?.id.suffix;
        self.store.view(number, &suffix)
    }

    /// Waits until the run has ended, or the time is over.
    async fn wait_for_end(&self, number: u64, wait_ms: u64) -> Result<(), Fault> {
        if wait_ms == 0 || self.run(number)?.status().is_terminal() {
            return Ok(());
        }
        let ended = self.listeners.borrow_mut().end(number);
        let over = Delay::from(Duration::from_millis(wait_ms));
        match select(ended, over).await {
            Either::Left(_) | Either::Right(_) => Ok(()),
        }
    }
}

/// A run that was accepted this very moment.
fn fresh(run: &stepwell_core::run::Run) -> RunView {
    RunView {
        id: run.id.clone(),
        workflow: run.workflow.clone(),
        status: run.status(),
        created_at: run.created_at,
        ended_at: None,
        wakes_at: None,
        waits_for: Vec::new(),
        output: None,
        error: None,
        problem: None,
        head: run.head,
        activations: run.epoch.0,
    }
}

/// What a key stands for: the same key with another workflow or input is a mistake.
fn fingerprint(workflow: &str, input: &Payload) -> String {
    let mut hash = Sha256::new();
    hash.update((workflow.len() as u64).to_be_bytes());
    hash.update(workflow.as_bytes());
    hash.update(input.text().as_bytes());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
