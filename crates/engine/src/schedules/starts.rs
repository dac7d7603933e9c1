//! Asks cells to start the runs of ticks, and to cancel those that are in the way of one.

use std::{collections::BTreeSet, pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    cell::{Action, TickRun},
    object::{Address, Delivery},
    schedule::{ANSWER_MS, StartEnd, TickStart},
};
use stepwell_protocol::{Code, Place, Problem, RunId, manifest::Manifest};
use wasm_bindgen::JsValue;
use worker::Delay;

use super::Host;
use crate::{
    calls::{
        catalog::{self, Request},
        cell::{Call, Operation},
    },
    object,
    program::app,
    runtime,
    settings::Deployment,
    terms::Terms,
};

/// How long what the app and the catalog said is taken for what they would say.
const FRESH_MS: u64 = 10_000;

/// What a station remembers of others.
#[derive(Default)]
pub(super) struct Known {
    read_at_ms: u64,
    manifest: Option<Rc<Manifest>>,
    paused: Rc<BTreeSet<String>>,
}

impl Host {
    /// Lets a cell start the run of a tick. The machine hears what became of it.
    pub(super) fn start(self: &Rc<Self>, start: TickStart) {
        let host = self.clone();
        self.go_on_with(async move {
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let end = match select(pin!(host.ask_to_start(&start)), time).await {
                Either::Left((end, _)) => end,
                Either::Right(_) => StartEnd::Failed,
            };
            let heard = host.turn(|machine, store, now| Ok(machine.answered(store, now, &start, end)?));
            if let Err(fault) = heard {
                let id = &start.ticked.schedule;
                worker::console_error!("stepwell: a tick of the schedule '{id}' is asked for again: {fault}");
            }
        });
    }

    async fn ask_to_start(&self, start: &TickStart) -> StartEnd {
        let terms = match self.terms(&start.workflow).await {
            Ok(terms) => terms,
            Err(problem) => return StartEnd::Declined(problem),
        };
        let run = TickRun {
            ticked: start.ticked.clone(),
            workflow: start.workflow.clone(),
            input: start.input.clone(),
            tags: start.tags.clone(),
            dispatch: terms.dispatch,
            timeout_ms: terms.timeout_ms,
            retention_ms: terms.retention_ms,
        };
        match self.ask_cell(&start.to, Operation::Tick { run: Box::new(run) }).await {
            Ok((200, body)) => serde_json::from_str(&body).map_or(StartEnd::Failed, StartEnd::Started),
            Ok((_, body)) => match serde_json::from_str::<Problem>(&body).map(Delivery::refused) {
                Ok(Delivery::Refused(problem)) => StartEnd::Refused(problem),
                Ok(Delivery::Arrived(_) | Delivery::Declined | Delivery::Failed) => {
                    StartEnd::Declined(serde_json::from_str(&body).unwrap_or_else(|_| no_answer()))
                }
                Err(_) => StartEnd::Failed,
            },
            Err(thrown) => {
                let (why, to) = (runtime::message(&thrown), &start.to);
                worker::console_warn!("stepwell: cell {to} did not start the run of a tick yet: {why}");
                StartEnd::Failed
            }
        }
    }

    /// Lets a cell cancel a run, and tells the machine if there is nothing to cancel. Otherwise the cell writes when it has
    /// ended.
    pub(super) fn cancel(self: &Rc<Self>, schedule: String, run: RunId) {
        let host = self.clone();
        self.go_on_with(async move {
            let RunId { place, number, suffix } = run.clone();
            let operation = Operation::Act { number, suffix, action: Action::Cancel };
            let is_over = match host.ask_cell(&place, operation).await {
                Ok((404 | 409, _)) => true,
                Ok(_) => false,
                Err(thrown) => {
                    worker::console_warn!(
                        "stepwell: {run} is not cancelled yet: {}",
                        runtime::message(&thrown)
                    );
                    false
                }
            };
            if is_over
                && let Err(fault) =
                    host.turn(|machine, store, now| Ok(machine.run_gone(store, now, &schedule, &run)?))
            {
                worker::console_error!("stepwell: {fault}");
            }
        });
    }

    async fn ask_cell(&self, to: &Place, operation: Operation) -> Result<(u16, String), JsValue> {
        let namespace = &self.address.namespace;
        let call = Call::new(namespace, to, None, operation);
        object::ask(&self.env, &Address::cell(namespace, to), &call).await
    }

    /// How the runs of a workflow are treated; or why none can be started for now.
    async fn terms(&self, workflow: &str) -> Result<Terms, Problem> {
        let deployment =
            Deployment::known(&self.env).map_err(|wrong| Problem::new(Code::Misconfigured, wrong))?;
        self.refresh().await;
        let (manifest, paused) = {
            let known = self.known.borrow();
            (known.manifest.clone(), known.paused.clone())
        };
        if paused.contains(workflow) {
            return Err(Problem::new(Code::WorkflowPaused, format!("The workflow '{workflow}' is paused.")));
        }
        let Some(manifest) = manifest else {
            let detail = "The app did not say which workflows it has. It is asked again.";
            return Err(Problem::new(Code::AppUnreachable, detail));
        };
        let found = manifest.workflows.iter().find(|known| known.name == workflow);
        found.map(|found| Terms::of(found, &deployment)).ok_or_else(|| {
            Problem::new(Code::WorkflowNotFound, format!("The app has no workflow '{workflow}'."))
        })
    }

    /// Asks the app and the catalog again, if that is due. Whoever does not answer has said nothing new.
    async fn refresh(&self) {
        let now_ms = runtime::clock().as_millis();
        {
            let mut known = self.known.borrow_mut();
            if known.manifest.is_some() && now_ms.saturating_sub(known.read_at_ms) < FRESH_MS {
                return;
            }
            known.read_at_ms = now_ms;
        }
        let (manifest, paused) = futures::join!(self.manifest(), self.paused_workflows());
        let mut known = self.known.borrow_mut();
        if let Some(manifest) = manifest {
            known.manifest = Some(Rc::new(manifest));
        }
        if let Some(paused) = paused {
            known.paused = Rc::new(paused);
        }
    }

    async fn manifest(&self) -> Option<Manifest> {
        let exports = runtime::property(&JsValue::from(self.state.as_raw()), "exports");
        let answer = app(&self.env, runtime::property(&exports, "default"))?.describe().ok()?;
        let text = runtime::settle(answer).await.ok()?.as_string()?;
        serde_json::from_str(&text).ok()
    }

    async fn paused_workflows(&self) -> Option<BTreeSet<String>> {
        let namespace = self.address.namespace.clone();
        let call = catalog::Call { namespace, access: None, request: Request::PausedWorkflows };
        let (status, body) = catalog::ask(&self.env, &call).await.ok()?;
        if status == 200 { serde_json::from_str(&body).ok() } else { None }
    }
}

fn no_answer() -> Problem {
    Problem::new(Code::Internal, "The cell gave an answer that could not be read.")
}
