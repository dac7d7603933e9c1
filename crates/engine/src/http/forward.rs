//! Passes a call on to a cell, and the cell's answer back.

use std::{cell::RefCell, collections::BTreeMap};

use axum::{body::to_bytes, response::Response};
use http::{HeaderName, HeaderValue, StatusCode};
use js_sys::Array;
use serde::de::DeserializeOwned;
use stepwell_protocol::{Code, Place, RunId, program::Description};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Env, send::SendWrapper};

use super::{
    error::{Refusal, problem_response},
    json,
};
use crate::{
    cell::{Call, Operation},
    runtime::{self, Objects, Program},
    settings::{APP_BINDING, CELL_BINDING, DEFAULT_NAMESPACE, DEFAULT_POOL, Settings},
};

/// The headers in a cell's answer.
const HEADERS: [&str; 2] = ["location", "stepwell-rows-written"];

thread_local! {
    // The workflows of the app, for as long as this isolate lives.
    static KNOWN: RefCell<Workflows> = RefCell::default();
}

/// The app's workflows by name, and how long a run of each may take.
type Workflows = BTreeMap<String, Option<u64>>;

/// What the handlers know of the deployment.
#[derive(Clone)]
pub struct Front {
    // The runtime has one thread for each isolate; axum does not know that.
    env: std::sync::Arc<SendWrapper<Env>>,
    settings: Settings,
}

impl Front {
    /// What this deployment says.
    pub fn new(env: Env) -> Self {
        let settings = Settings::of(&env);
        Self { env: std::sync::Arc::new(SendWrapper::new(env)), settings }
    }

    /// Any cell: an unkeyed run goes anywhere, a keyed one always to the same.
    pub fn choose_cell(&self, key: Option<&str>) -> Place {
        let number = key.map_or_else(runtime::random, spread);
        let cell = u32::try_from(number % u64::from(self.settings.cells)).expect("below the number of cells");
        Place { pool: DEFAULT_POOL.into(), generation: 1, cell }
    }

    /// A run's id, if a cell of this deployment could hold it. No object is touched for any other.
    pub fn locate(&self, id: &str) -> Result<RunId, Refusal> {
        match id.parse::<RunId>() {
            Ok(id) if self.settings.has(&id.place) => Ok(id),
            Ok(_) | Err(_) => Err(Refusal::new(
                Code::RunNotFound,
                "There is no run of this id. Check that it is whole and of this deployment.",
            )),
        }
    }

    /// Refuses a workflow that the app does not have. What the app said once is remembered, so that a start
    /// costs no call; a name that is new is asked for again, so that a new deployment is noticed.
    /// Gives how long a run of it may take.
    pub async fn check_workflow(&self, name: &str) -> Result<Option<u64>, Refusal> {
        if let Some(timeout_ms) = KNOWN.with_borrow(|known| known.get(name).copied()) {
            return Ok(timeout_ms);
        }
        // An app that does not answer may be on its way: that refuses nobody.
        let Some(workflows) = self.workflows().await else { return Ok(None) };
        if let Some(timeout_ms) = workflows.get(name).copied() {
            KNOWN.set(workflows);
            return Ok(timeout_ms);
        }
        let names: Vec<_> = workflows.keys().map(String::as_str).collect();
        let detail = format!("The app has no workflow '{name}'. It has: {}.", names.join(", "));
        Err(Refusal::new(Code::WorkflowNotFound, detail))
    }

    async fn workflows(&self) -> Option<Workflows> {
        let app = runtime::property(&self.env, APP_BINDING);
        let app = if app.is_undefined() { runtime::own_entrypoint() } else { app };
        if app.is_undefined() {
            return None;
        }
        let answer = app.unchecked_into::<Program>().describe().ok()?;
        let text = runtime::settle(answer).await.ok()?.as_string()?;
        let description: Description = serde_json::from_str(&text).ok()?;
        Some(description.workflows.into_iter().map(|workflow| (workflow.name, workflow.timeout_ms)).collect())
    }

    /// All cells.
    pub fn cells(&self) -> impl Iterator<Item = Place> + use<> {
        (0..self.settings.cells).map(|cell| Place { pool: DEFAULT_POOL.into(), generation: 1, cell })
    }

    /// Asks a cell for something that is not simply passed on.
    pub async fn ask_json<T: DeserializeOwned>(
        &self,
        place: &Place,
        operation: Operation,
    ) -> Result<T, Refusal> {
        let response = self.ask(place, operation).await?;
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        serde_json::from_slice(&body).map_err(|_| {
            Refusal::new(Code::Internal, "A cell gave an answer that could not be read. Try again.")
        })
    }

    /// Asks a cell.
    pub async fn ask(&self, place: &Place, operation: Operation) -> Result<Response, Refusal> {
        let call =
            serde_json::to_string(&Call::new(place, operation)).expect("a call holds only what JSON can say");
        match self.send(place, &call).await {
            Ok(response) => Ok(response),
            Err(thrown) => {
                let why = runtime::message(&thrown);
                worker::console_error!("stepwell: cell {place} did not answer: {why}");
                let detail = "The cell that holds the run did not answer. Try again; with the same \
                              Idempotency-Key that is always safe.";
                Err(Refusal::new(Code::Internal, detail))
            }
        }
    }

    async fn send(&self, place: &Place, call: &str) -> Result<Response, JsValue> {
        let cells: Objects = runtime::property(&self.env, CELL_BINDING).unchecked_into();
        let stub = cells.get_by_name(&place.object_name(DEFAULT_NAMESPACE))?;
        let answer: Array = runtime::settle(stub.ask(call)?).await?.unchecked_into();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a status of HTTP")]
        let status = answer.get(0).as_f64().unwrap_or_default() as u16;
        let body = answer.get(1).as_string().unwrap_or_default();
        let mut response = if status < 400 {
            json(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        } else {
            problem_response(status, body)
        };
        for (name, value) in HEADERS.into_iter().zip([answer.get(2), answer.get(3)]) {
            if let Some(value) = value.as_string()
                && let Ok(value) = HeaderValue::from_str(&value)
            {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        Ok(response)
    }
}

/// Spreads keys evenly and for ever in the same way.
fn spread(key: &str) -> u64 {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(key.as_bytes());
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}
