//! Passes a call on to a cell, and the cell's answer back.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{body::to_bytes, response::Response};
use http::{HeaderName, HeaderValue, StatusCode};
use js_sys::Array;
use serde::{Deserialize, de::DeserializeOwned};
use stepwell_core::{access::not_good, pools::Pool};
use stepwell_promises as promises;
use stepwell_protocol::{
    Code, Payload, Place, RunId,
    program::{Description, Dispatch, WorkflowDescription, is_reserved},
};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Env, send::SendWrapper};

use super::{
    auth::Caller,
    error::{Refusal, problem_response},
    generations, json,
    known::{self, Workflows},
    namespaces, verdicts,
};
use crate::{
    access::Access,
    catalog::{self, Request},
    cell::{Call, Operation, activate, app},
    runtime::{self, CellStub, Objects, Program},
    settings::{CATALOG_BINDING, CELL_BINDING, DEFAULT_NAMESPACE, Deployment},
};

/// The headers in a cell's answer.
const HEADERS: [&str; 3] = ["location", "stepwell-rows-written", "stepwell-rows-read"];

thread_local! {
    // What the variables say, which stay as they are for as long.
    static DEPLOYMENT: RefCell<Option<Arc<Deployment>>> = const { RefCell::new(None) };
}

/// How runs of a workflow are treated.
#[derive(Clone, Copy)]
pub struct Terms {
    /// How their program is called.
    pub dispatch: Dispatch,
    /// How long they may take; without end, if that is not said.
    pub timeout_ms: Option<u64>,
    /// How long they are kept after their end; for ever, if that is not said.
    pub retention_ms: Option<u64>,
    /// Whether they are started only with an idempotency key.
    pub key_required: bool,
    /// Whether that is what the deployment says of all runs.
    pub retention_is_default: bool,
}

/// What the handlers know of the deployment.
#[derive(Clone)]
pub struct Front {
    // The runtime has one thread for each isolate; axum does not know that.
    env: Arc<SendWrapper<Env>>,
    deployment: Arc<Deployment>,
    namespace: Arc<str>,
    /// On whose behalf it asks; nobody's in particular for the deployment's key and for Stepwell itself.
    access: Option<Arc<Access>>,
    /// Whether a cell or the catalog has found the caller's key good, or nobody has to.
    is_vouched: Arc<AtomicBool>,
    /// Whether it may ask the objects at all.
    is_nobody: bool,
    /// Whether the caller's connection is encrypted.
    is_https: bool,
}

impl Front {
    /// For Stepwell itself: what this deployment says, unless that makes no sense.
    pub fn new(env: Env) -> Result<Self, Refusal> {
        Self::of(env, &Caller::Root, None)
    }

    /// For somebody who asks for something.
    pub fn of(env: Env, caller: &Caller, access: Option<Access>) -> Result<Self, Refusal> {
        let deployment = deployment(&env).map_err(|wrong| Refusal::new(Code::Misconfigured, wrong))?;
        let namespace = match caller {
            Caller::Root | Caller::Nobody => DEFAULT_NAMESPACE,
            Caller::Bearer { namespace, .. } => namespace,
        };
        Ok(Self {
            env: Arc::new(SendWrapper::new(env)),
            deployment,
            namespace: namespace.into(),
            is_vouched: Arc::new(AtomicBool::new(access.is_none())),
            access: access.map(Arc::new),
            is_nobody: matches!(caller, Caller::Nobody),
            is_https: true,
        })
    }

    /// The same for a request that came by this scheme.
    #[must_use]
    pub fn over(self, scheme: &str) -> Self {
        Self { is_https: scheme == "https", ..self }
    }

    /// Whether the caller's connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Whether this is a development server.
    pub fn is_dev(&self) -> bool {
        self.deployment.is_dev
    }

    /// The same in another namespace, if nobody in particular asks.
    pub fn within(&self, namespace: &str) -> Self {
        match self.access {
            None => Self { namespace: namespace.into(), ..self.clone() },
            // Whoever has a key stays in its namespace.
            Some(_) => self.clone(),
        }
    }

    /// Stepwell itself, in the namespace whose catalog knows what belongs to the deployment.
    pub fn registry(&self) -> Self {
        // What it is told says nothing about the caller's key.
        let is_vouched = Arc::new(AtomicBool::new(true));
        Self { namespace: DEFAULT_NAMESPACE.into(), access: None, is_vouched, ..self.clone() }
    }

    /// Whether there are keys other than the deployment's own.
    pub fn has_catalog(&self) -> bool {
        !runtime::property(&self.env, CATALOG_BINDING).is_undefined()
    }

    /// How many objects one sweep visits.
    pub fn sweep_calls(&self) -> usize {
        self.deployment.sweep_calls
    }

    /// The caller's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Lets an answer out only if a cell or the catalog has found the caller's key good. What the Worker can tell
    /// by itself is for those alone who have one.
    pub async fn vouched(&self, response: Response) -> Response {
        if self.is_vouched.load(Ordering::Relaxed) {
            return response;
        }
        match self.pass_on(Request::Check).await {
            Ok(answer) if answer.status().is_success() => response,
            Ok(refused) => refused,
            Err(refusal) => refusal.into_response(),
        }
    }

    /// Asks the namespace's catalog, and passes its answer on.
    pub async fn pass_on(&self, request: Request) -> Result<Response, Refusal> {
        let (status, body) = self.send_to_catalog(request).await?;
        Ok(if status < 400 {
            json(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        } else {
            problem_response(status, body)
        })
    }

    /// Asks the namespace's catalog for something that is not simply passed on.
    pub async fn ask_catalog<T: DeserializeOwned>(&self, request: Request) -> Result<T, Refusal> {
        let (status, body) = self.send_to_catalog(request).await?;
        if status < 400 {
            serde_json::from_str(&body).map_err(|_| unreadable())
        } else {
            Err(serde_json::from_str(&body).map_or_else(|_| unreadable(), Refusal))
        }
    }

    async fn send_to_catalog(&self, request: Request) -> Result<(u16, String), Refusal> {
        self.check_somebody()?;
        let access = self.access.as_deref().cloned();
        let call = catalog::Call { namespace: self.namespace.to_string(), access, request };
        let answer = catalog::ask(&self.env, &call).await.map_err(|thrown| {
            worker::console_error!("stepwell: the catalog did not answer: {}", runtime::message(&thrown));
            Refusal::new(Code::Internal, "The catalog of the namespace did not answer. Try again.")
        })?;
        self.hear(answer.0);
        Ok(answer)
    }

    /// Refuses a key that is not good, before the rest of the request is read and before any cell is asked: what an
    /// invented key costs is one call of the catalog, and nothing if it was refused a moment ago.
    pub async fn vouch(&self) -> Result<(), Refusal> {
        let Some(access) = &self.access else { return Ok(()) };
        let hash = &access.credential.hash;
        if verdicts::is_good(&self.namespace, hash) {
            return Ok(());
        }
        if verdicts::is_bad(&self.namespace, hash) {
            return Err(Refusal(not_good()));
        }
        let checked = self.ask_catalog::<()>(Request::Check).await;
        checked.inspect_err(|refusal| {
            if refusal.0.code == Code::Unauthorized {
                verdicts::refused(&self.namespace, hash);
            }
        })
    }

    /// An object has answered. Unless it refuses the caller or has failed, it has found the key good.
    pub fn hear(&self, status: u16) {
        let Some(access) = &self.access else { return };
        let hash = &access.credential.hash;
        match status {
            401 => verdicts::doubted(&self.namespace, hash),
            403 | 429 | 500.. => {}
            _ => {
                self.is_vouched.store(true, Ordering::Relaxed);
                verdicts::accepted(&self.namespace, hash);
            }
        }
    }

    fn check_somebody(&self) -> Result<(), Refusal> {
        if self.is_nobody {
            let detail = "This takes a key: send one as `Authorization: Bearer <key>`.";
            return Err(Refusal::new(Code::Unauthorized, detail));
        }
        Ok(())
    }

    /// Any cell for a new run without a key.
    pub fn any_cell(&self) -> Place {
        self.pool().any(runtime::random())
    }

    /// The cells that there are.
    pub fn pool(&self) -> &Pool {
        &self.deployment.pool
    }

    /// For how many days a key is looked for where it was before the pool grew.
    pub fn key_days(&self) -> u64 {
        self.deployment.key_days
    }

    /// Whether this deployment has the namespace, and a cell at a place. Makes neither.
    pub async fn has_cell(&self, place: &Place) -> Result<bool, Refusal> {
        Ok(namespaces::has(&self.env, &self.namespace).await? && generations::has(self, place).await?)
    }

    /// A run's id, if a cell of this deployment could hold it. No cell is made for any other.
    pub async fn locate(&self, id: &str) -> Result<RunId, Refusal> {
        if let Ok(id) = id.parse::<RunId>()
            && generations::has(self, &id.place).await?
        {
            return Ok(id);
        }
        let detail = "There is no run of this id. Check that it is whole and of this deployment.";
        Err(Refusal::new(Code::RunNotFound, detail))
    }

    /// Refuses a workflow that the app does not have. What the app said once is remembered, so that a start
    /// costs no call; it is read again behind the answer now and then, and at once for a name that is new.
    /// Gives how its runs are treated.
    pub async fn check_workflow(&self, name: &str) -> Result<Terms, Refusal> {
        if let Some((terms, is_stale)) = known::find(name) {
            if is_stale {
                self.read_workflows_again();
            }
            return Ok(terms);
        }
        // An app that does not answer may be on its way: that refuses nobody.
        let Some(workflows) = self.workflows().await else {
            return Ok(self.own_terms());
        };
        if let Some(terms) = workflows.get(name).copied() {
            known::replace(workflows);
            return Ok(terms);
        }
        let seen: Option<BTreeSet<String>> = match self.access {
            Some(_) => self.ask_catalog(Request::SeenWorkflows).await?,
            None => None,
        };
        let is_seen = |name: &&String| seen.as_ref().is_none_or(|seen| seen.contains(*name));
        let names: Vec<_> = workflows.keys().filter(is_seen).map(String::as_str).collect();
        let mut detail = format!("The app has no workflow '{name}'.");
        if !names.is_empty() {
            detail = format!("{detail} It has: {}.", names.join(", "));
        }
        Err(Refusal::new(Code::WorkflowNotFound, detail))
    }

    /// What the app says about its workflows, by name.
    pub async fn described(&self) -> Result<Vec<WorkflowDescription>, Refusal> {
        let mut workflows =
            self.describe().await.map(|description| description.workflows).ok_or_else(|| {
                Refusal::new(Code::AppUnreachable, "The app did not say which workflows it has. Try again.")
            })?;
        workflows.retain(|workflow| !is_reserved(&workflow.name));
        workflows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(workflows)
    }

    /// Asks the app what it has, behind the answer to the present request.
    fn read_workflows_again(&self) {
        let front = self.clone();
        let reading = promises::promise(async move {
            // An app that does not answer may be on its way: what is known stays.
            if let Some(workflows) = front.workflows().await {
                known::replace(workflows);
            }
            Ok(JsValue::UNDEFINED)
        });
        if let Err(thrown) = runtime::wait_until(&reading) {
            worker::console_warn!(
                "stepwell: the workflows are not read again: {}",
                runtime::message(&thrown)
            );
        }
    }

    async fn describe(&self) -> Option<Description> {
        let answer = self.app()?.describe().ok()?;
        let text = runtime::settle(answer).await.ok()?.as_string()?;
        serde_json::from_str(&text).ok()
    }

    async fn workflows(&self) -> Option<Workflows> {
        let description = self.describe().await?;
        let terms = |workflow: &WorkflowDescription| Terms {
            dispatch: workflow.dispatch,
            timeout_ms: workflow.timeout_ms,
            retention_is_default: workflow.retention_ms.is_none(),
            retention_ms: match workflow.retention_ms {
                Some(0) => None,
                Some(ms) => Some(ms),
                None => self.deployment.retention_ms,
            },
            key_required: workflow.key_required || self.deployment.key_required,
        };
        let workflows = description.workflows.into_iter();
        Some(workflows.map(|workflow| (workflow.name.clone(), terms(&workflow))).collect())
    }

    /// The app, if there is one.
    fn app(&self) -> Option<Program> {
        app(&self.env, runtime::own_entrypoint())
    }

    /// Calls the program that an activation is for; nothing, if there is none.
    pub fn activate(&self, activation: &Payload, session: &JsValue) -> Option<Result<JsValue, JsValue>> {
        #[derive(Deserialize)]
        struct Named {
            workflow: String,
        }
        let Named { workflow } = activation.decode().ok()?;
        activate(&self.env, runtime::own_entrypoint(), &workflow, activation.text(), session)
    }

    /// How runs are treated whose workflow says nothing about it: the engine's own, say.
    pub fn own_terms(&self) -> Terms {
        let Deployment { retention_ms, key_required, .. } = *self.deployment;
        let dispatch = Dispatch::default();
        Terms { dispatch, timeout_ms: None, retention_ms, retention_is_default: true, key_required }
    }

    /// All cells, of all generations.
    pub fn cells(&self) -> impl Iterator<Item = Place> + use<> {
        self.pool().places()
    }

    /// Asks a cell for something that is not simply passed on.
    pub async fn ask_json<T: DeserializeOwned>(
        &self,
        place: &Place,
        operation: Operation,
    ) -> Result<T, Refusal> {
        let text = self.ask_text(place, operation).await?;
        serde_json::from_str(&text).map_err(|_| unreadable())
    }

    /// Asks a cell for a text; what it refuses is a refusal here too.
    pub async fn ask_text(&self, place: &Place, operation: Operation) -> Result<String, Refusal> {
        let response = self.ask(place, operation).await?;
        let is_good = response.status().is_success();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        if is_good {
            String::from_utf8(body.into()).map_err(|_| unreadable())
        } else {
            Err(serde_json::from_slice(&body).map_or_else(|_| unreadable(), Refusal))
        }
    }

    /// Asks a cell.
    pub async fn ask(&self, place: &Place, operation: Operation) -> Result<Response, Refusal> {
        let call = self.call(place, operation)?;
        match self.send(place, &call).await {
            Ok(response) => {
                self.hear(response.status().as_u16());
                Ok(response)
            }
            Err(thrown) => {
                let why = runtime::message(&thrown);
                worker::console_error!("stepwell: cell {place} did not answer: {why}");
                let detail = "The cell that holds the run did not answer. Try again; with the same \
                              Idempotency-Key that is always safe.";
                Err(Refusal::new(Code::Internal, detail))
            }
        }
    }

    /// What a cell is asked, as a text, with whoever asks for it.
    pub fn call(&self, place: &Place, operation: Operation) -> Result<String, Refusal> {
        self.check_somebody()?;
        let call = Call::new(&self.namespace, place, self.access.as_deref().cloned(), operation);
        Ok(serde_json::to_string(&call).expect("a call holds only what JSON can say"))
    }

    /// A cell, as an object to be called.
    pub fn cell(&self, place: &Place) -> Result<CellStub, JsValue> {
        let cells: Objects = runtime::property(&self.env, CELL_BINDING).unchecked_into();
        cells.get_by_name(&place.object_name(&self.namespace))
    }

    async fn send(&self, place: &Place, call: &str) -> Result<Response, JsValue> {
        let stub = self.cell(place)?;
        let answer: Array = runtime::settle(stub.ask(call)?).await?.unchecked_into();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a status of HTTP")]
        let status = answer.get(0).as_f64().unwrap_or_default() as u16;
        let body = answer.get(1).as_string().unwrap_or_default();
        let mut response = if status < 400 {
            json(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        } else {
            problem_response(status, body)
        };
        for (name, index) in HEADERS.into_iter().zip(2..answer.length()) {
            if let Some(value) = answer.get(index).as_string()
                && let Ok(value) = HeaderValue::from_str(&value)
            {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        Ok(response)
    }
}

/// What the deployment says, unless that makes no sense.
pub fn deployment(env: &Env) -> Result<Arc<Deployment>, String> {
    match DEPLOYMENT.with_borrow(Clone::clone) {
        Some(deployment) => Ok(deployment),
        None => {
            let read = Deployment::of(env)?;
            Ok(DEPLOYMENT.with_borrow_mut(|known| known.insert(Arc::new(read)).clone()))
        }
    }
}

fn unreadable() -> Refusal {
    Refusal::new(Code::Internal, "A cell gave an answer that could not be read. Try again.")
}
