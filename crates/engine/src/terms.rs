//! How runs of a workflow are treated: what its app declares, and what the deployment says of all runs.

use std::{cell::RefCell, pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, join, select};
use stepwell_core::ordered::OrdSet;
use stepwell_protocol::{
    Code, Problem, json,
    lane::Flow,
    manifest::Manifest,
    program::{Dispatch, WorkflowDescription},
};
use wasm_bindgen::JsValue;
use worker::{Delay, Env, worker_sys::DurableObjectState};

use crate::{
    calls::catalog::{self, Request},
    program::app,
    runtime,
    settings::Deployment,
};

/// How long what the app and the catalog said is taken for what they would say.
const FRESH_MS: u64 = 10_000;

/// How long they may take to say it.
const ASKED_MS: u64 = 5_000;

/// How runs of a workflow are treated.
#[derive(Clone, Default)]
pub struct Terms {
    /// How their program is called.
    pub dispatch: Dispatch,
    /// How long they may take; without end, if that is not said.
    pub timeout_ms: Option<u64>,
    /// How long they are kept after their end; for ever, if that is not said.
    pub retention_ms: Option<u64>,
    /// Whether that is what the deployment says of all runs.
    pub retention_is_default: bool,
    /// Whether they are started only with an idempotency key.
    pub key_required: bool,
    /// The address that is called when one ends.
    pub callback: Option<String>,
    /// How many of them are at work at once, if that is limited.
    pub flow: Option<Box<Flow>>,
}

impl Terms {
    /// Those of a workflow that says nothing about it: the engine's own, say.
    pub fn unsaid(&Deployment { retention_ms, key_required, .. }: &Deployment) -> Self {
        let dispatch = Dispatch::default();
        Self {
            dispatch,
            timeout_ms: None,
            retention_ms,
            retention_is_default: true,
            key_required,
            callback: None,
            flow: None,
        }
    }

    /// Those that an app declares.
    pub fn of(workflow: &WorkflowDescription, deployment: &Deployment) -> Self {
        Self {
            dispatch: workflow.dispatch,
            timeout_ms: workflow.timeout_ms,
            retention_ms: match workflow.retention_ms {
                Some(0) => None,
                Some(ms) => Some(ms),
                None => deployment.retention_ms,
            },
            retention_is_default: workflow.retention_ms.is_none(),
            key_required: workflow.key_required || deployment.key_required,
            callback: workflow.callback.clone(),
            flow: workflow.flow.clone(),
        }
    }
}

/// What a station that starts runs remembers of the app and of the catalog.
#[derive(Default)]
pub struct KnownTerms(RefCell<Known>);

#[derive(Default)]
struct Known {
    read_at_ms: u64,
    manifest: Option<Rc<Manifest>>,
    paused: Rc<OrdSet<String>>,
}

impl KnownTerms {
    /// How the runs of a workflow are treated; or why none can be started for now.
    pub async fn terms(
        &self,
        env: &Env,
        state: &DurableObjectState,
        namespace: &str,
        workflow: &str,
    ) -> Result<Terms, Problem> {
        let deployment = Deployment::known(env).map_err(|wrong| Problem::new(Code::Misconfigured, wrong))?;
        self.refresh(env, state, namespace).await;
        let (manifest, paused) = {
            let known = self.0.borrow();
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

    /// The limits of a workflow, whether it is paused or not, as far as that is known.
    pub fn flow(&self, workflow: &str) -> Option<Box<Flow>> {
        let manifest = self.0.borrow().manifest.clone()?;
        manifest.workflows.iter().find(|known| known.name == workflow)?.flow.clone()
    }

    /// Asks the app and the catalog again, if that is due. Whoever does not answer has said nothing new.
    async fn refresh(&self, env: &Env, state: &DurableObjectState, namespace: &str) {
        let now_ms = runtime::clock().as_millis();
        {
            let mut known = self.0.borrow_mut();
            if known.manifest.is_some() && now_ms.saturating_sub(known.read_at_ms) < FRESH_MS {
                return;
            }
            known.read_at_ms = now_ms;
        }
        let asked = join(manifest(env, state), paused_workflows(env, namespace));
        let time = Delay::from(Duration::from_millis(ASKED_MS));
        // A run that cannot be started for now is no fault of its cell, which gets longer to answer.
        let Either::Left(((manifest, paused), _)) = select(pin!(asked), time).await else { return };
        let mut known = self.0.borrow_mut();
        if let Some(manifest) = manifest {
            known.manifest = Some(Rc::new(manifest));
        }
        if let Some(paused) = paused {
            known.paused = Rc::new(paused);
        }
    }
}

async fn manifest(env: &Env, state: &DurableObjectState) -> Option<Manifest> {
    let exports = runtime::property(&JsValue::from(state), "exports");
    let answer = app(env, runtime::property(&exports, "default"))?.describe().ok()?;
    let text = runtime::settle(answer).await.ok()?.as_string()?;
    json::from_str(&text).ok()
}

async fn paused_workflows(env: &Env, namespace: &str) -> Option<OrdSet<String>> {
    let call = catalog::Call::new(namespace, Request::PausedWorkflows);
    let (status, body) = catalog::ask(env, &call).await.ok()?;
    if status == 200 { json::from_str(&body).ok() } else { None }
}
