//! What other Workers call through a service binding: the entrypoint `WorkflowsRPC`.
//!
//! Each method is a route: it is answered by the same handler, after the same checks as a request over HTTP, but for
//! the key. Whoever may bind this Worker is trusted by whoever deploys it.
//!
//! What is not there gives `null`; any other refusal is thrown as an `Error` whose message begins with the problem's
//! code.

#![expect(missing_docs, reason = "the runtime calls the methods, and docs/api.md says what they do")]

use std::panic::{RefUnwindSafe, UnwindSafe};

use form_urlencoded::Serializer;
use js_sys::{JSON, Promise};
use stepwell_protocol::{Code, Problem, json, routes::Route};
use wasm_bindgen::prelude::*;
use worker::Env;

use crate::{
    guard,
    http::{self, Front},
    log, runtime,
};

/// The entrypoint. Only [`extend_worker_entrypoint`] makes one without bindings.
#[wasm_bindgen(js_name = WorkflowsRPC)]
pub struct WorkflowsRpc {
    env: Option<Env>,
}

/// When the module is loaded, before the runtime looks at its classes.
pub fn extend_worker_entrypoint() {
    runtime::extend_worker_entrypoint(WorkflowsRpc { env: None }.into());
}

// It keeps nothing but its bindings.
impl UnwindSafe for WorkflowsRpc {}
impl RefUnwindSafe for WorkflowsRpc {}

#[wasm_bindgen(js_class = WorkflowsRPC)]
impl WorkflowsRpc {
    #[wasm_bindgen(constructor)]
    pub fn new(_context: JsValue, env: Env) -> Self {
        log::begin(&env);
        Self { env: Some(env) }
    }

    #[wasm_bindgen(js_name = listWorkflows)]
    pub fn list_workflows(&self) -> Promise {
        self.ask(Route::ListWorkflows, &[], String::new(), String::new(), Answer::Field("workflows"))
    }

    #[wasm_bindgen(js_name = getWorkflow)]
    pub fn get_workflow(&self, id: &JsValue) -> Promise {
        self.ask(Route::ShowWorkflow, &[("workflow", id)], String::new(), String::new(), Answer::OrNull)
    }

    /// `options`: `idempotencyKey`, `tags`, `delay` as text, `callback`, `traceparent`, `wait` in seconds.
    #[wasm_bindgen(js_name = startWorkflow)]
    pub fn start_workflow(&self, id: &JsValue, input: &JsValue, options: &JsValue) -> Promise {
        let mut query = Serializer::new(String::new());
        if let Some(tags) = runtime::property(options, "tags").dyn_ref::<js_sys::Array>() {
            for tag in tags.iter().filter_map(|tag| tag.as_string()) {
                query.append_pair("tag", &tag);
            }
        }
        self.send(Route::StartRun, &[("workflow", id)], query.finish(), json(input), options, Answer::Whole)
    }

    /// `options`: `wait` in seconds.
    #[wasm_bindgen(js_name = getExecution)]
    pub fn get_execution(&self, id: &JsValue, options: &JsValue) -> Promise {
        self.send(Route::ShowRun, &[("id", id)], String::new(), String::new(), options, Answer::OrNull)
    }

    /// By the workflow and the `idempotencyKey` that it was started with. `options`: `wait` in seconds.
    #[wasm_bindgen(js_name = getExecutionByKey)]
    pub fn get_execution_by_key(&self, workflow: &JsValue, key: &JsValue, options: &JsValue) -> Promise {
        let names = [("workflow", workflow), ("key", key)];
        self.send(Route::ShowRunByKey, &names, String::new(), String::new(), options, Answer::OrNull)
    }

    /// `options`: the parameters of `GET /api/executions`; `attributes` is an object.
    #[wasm_bindgen(js_name = listExecutions)]
    pub fn list_executions(&self, options: &JsValue) -> Promise {
        self.ask(Route::ListRuns, &[], list_query(options), String::new(), Answer::Whole)
    }

    #[wasm_bindgen(js_name = pauseExecution)]
    pub fn pause_execution(&self, id: &JsValue) -> Promise {
        self.act(Route::PauseRun, id)
    }

    #[wasm_bindgen(js_name = resumeExecution)]
    pub fn resume_execution(&self, id: &JsValue) -> Promise {
        self.act(Route::ResumeRun, id)
    }

    #[wasm_bindgen(js_name = cancelExecution)]
    pub fn cancel_execution(&self, id: &JsValue) -> Promise {
        self.act(Route::CancelRun, id)
    }

    #[wasm_bindgen(js_name = cancelExecutionByKey)]
    pub fn cancel_execution_by_key(&self, workflow: &JsValue, key: &JsValue) -> Promise {
        let names = [("workflow", workflow), ("key", key)];
        self.ask(Route::CancelRunByKey, &names, String::new(), String::new(), Answer::Done)
    }

    #[wasm_bindgen(js_name = retryExecution)]
    pub fn retry_execution(&self, id: &JsValue) -> Promise {
        self.ask(Route::RetryRun, &[("id", id)], String::new(), String::new(), Answer::Whole)
    }

    /// `from`: `{step, occurrence}`; its beginning, if there is none.
    #[wasm_bindgen(js_name = restartExecution)]
    pub fn restart_execution(&self, id: &JsValue, from: &JsValue) -> Promise {
        let body = if from.is_undefined() { String::new() } else { format!(r#"{{"from":{}}}"#, json(from)) };
        self.ask(Route::RestartRun, &[("id", id)], String::new(), body, Answer::Whole)
    }

    /// `options`: `idempotencyKey`.
    #[wasm_bindgen(js_name = sendSignal)]
    pub fn send_signal(&self, id: &JsValue, name: &JsValue, payload: &JsValue, options: &JsValue) -> Promise {
        let names = [("id", id), ("name", name)];
        self.send(Route::SendSignal, &names, String::new(), json(payload), options, Answer::Whole)
    }

    /// A link that completes a wait of a run. `options`: `occurrence`, `expiresMs`.
    #[wasm_bindgen(js_name = createToken)]
    pub fn create_token(&self, id: &JsValue, name: &JsValue, options: &JsValue) -> Promise {
        let field = |name| Some(json(&runtime::property(options, name))).filter(|text| !text.is_empty());
        let or_null = |name| field(name).unwrap_or_else(|| "null".into());
        let (occurrence, expires) = (or_null("occurrence"), or_null("expiresMs"));
        let body = format!(r#"{{"name":{},"occurrence":{occurrence},"expires_ms":{expires}}}"#, json(name));
        self.ask(Route::CreateToken, &[("id", id)], String::new(), body, Answer::Whole)
    }

    /// `options`: `idempotencyKey`, the signal's own.
    #[wasm_bindgen(js_name = sendSignalByKey)]
    pub fn send_signal_by_key(
        &self,
        workflow: &JsValue,
        key: &JsValue,
        name: &JsValue,
        payload: &JsValue,
        options: &JsValue,
    ) -> Promise {
        let names = [("workflow", workflow), ("key", key), ("name", name)];
        self.send(Route::SendSignalByKey, &names, String::new(), json(payload), options, Answer::Whole)
    }

    /// One event, `{name, id, data}`, or several, `{events}`.
    #[wasm_bindgen(js_name = sendEvents)]
    pub fn send_events(&self, events: &JsValue) -> Promise {
        self.ask(Route::SendEvents, &[], String::new(), json(events), Answer::Whole)
    }

    /// All events, or those after a position.
    #[wasm_bindgen(js_name = getHistory)]
    pub fn get_history(&self, id: &JsValue, after: &JsValue) -> Promise {
        let query = after.as_f64().map_or_else(String::new, |after| format!("after={after}"));
        self.ask(Route::History, &[("id", id)], query, String::new(), Answer::OrNull)
    }

    #[wasm_bindgen(js_name = getMetrics)]
    pub fn get_metrics(&self, workflow: &JsValue) -> Promise {
        let mut query = Serializer::new(String::new());
        if let Some(workflow) = workflow.as_string() {
            query.append_pair("workflow", &workflow);
        }
        self.ask(Route::ShowMetrics, &[], query.finish(), String::new(), Answer::Whole)
    }

    /// `bulk`: `{action, filter}`; `options`: `idempotencyKey`, `wait` in seconds.
    #[wasm_bindgen(js_name = startBulk)]
    pub fn start_bulk(&self, bulk: &JsValue, options: &JsValue) -> Promise {
        self.send(Route::StartBulk, &[], String::new(), json(bulk), options, Answer::Whole)
    }
}

/// What a method gives of an answer.
#[derive(Clone, Copy)]
enum Answer {
    /// All of it.
    Whole,
    /// All of it, or null if there is no such thing.
    OrNull,
    /// One field of it.
    Field(&'static str),
    /// Whether it was done: not, if it had ended or is not there.
    Done,
}

impl WorkflowsRpc {
    fn act(&self, route: Route, id: &JsValue) -> Promise {
        self.ask(route, &[("id", id)], String::new(), String::new(), Answer::Done)
    }

    fn ask(
        &self,
        route: Route,
        names: &[(&'static str, &JsValue)],
        query: String,
        body: String,
        answer: Answer,
    ) -> Promise {
        self.send(route, names, query, body, &JsValue::UNDEFINED, answer)
    }

    fn send(
        &self,
        route: Route,
        names: &[(&'static str, &JsValue)],
        query: String,
        body: String,
        options: &JsValue,
        answer: Answer,
    ) -> Promise {
        let names =
            names.iter().map(|(name, value)| (*name, value.as_string().unwrap_or_default())).collect();
        let mut headers = Vec::new();
        if let Some(key) = runtime::property(options, "idempotencyKey").as_string() {
            headers.push(("idempotency-key", key));
        }
        if let Some(seconds) = runtime::property(options, "wait").as_f64() {
            headers.push(("prefer", format!("wait={seconds}")));
        }
        if let Some(delay) = runtime::property(options, "delay").as_string() {
            headers.push((http::DELAY, delay));
        }
        if let Some(url) = runtime::property(options, "callback").as_string() {
            headers.push((http::CALLBACK, url));
        }
        if let Some(parent) = runtime::property(options, "traceparent").as_string() {
            headers.push((http::TRACE, parent));
        }
        let env = self.env.clone();
        guard::promise(async move {
            let env = env.ok_or_else(|| JsError::new("this entrypoint has no bindings"))?;
            let front = Front::new(env).map_err(|refusal| thrown(&refusal.0))?;
            let (status, body) = http::call(&front, route, names, query, headers, body).await;
            given(status, &body, answer)
        })
    }
}

fn given(status: u16, body: &str, answer: Answer) -> Result<JsValue, JsValue> {
    let unreadable = |_| JsValue::from(JsError::new("the engine gave an answer that is no JSON"));
    if status < 400 {
        let body = JSON::parse(body).map_err(unreadable)?;
        return Ok(match answer {
            Answer::Whole | Answer::OrNull => body,
            Answer::Field(name) => runtime::property(&body, name),
            Answer::Done => JsValue::TRUE,
        });
    }
    let problem: Problem =
        json::from_str(body).map_err(|_| JsError::new("the engine gave an answer that is no problem"))?;
    match answer {
        Answer::OrNull if status == 404 => Ok(JsValue::NULL),
        Answer::Done if matches!(problem.code, Code::RunNotFound | Code::RunEnded) => Ok(JsValue::FALSE),
        Answer::Whole | Answer::OrNull | Answer::Field(_) | Answer::Done => Err(thrown(&problem)),
    }
}

/// An error whose message begins with the problem's code: nothing else of it crosses over for certain.
fn thrown(problem: &Problem) -> JsValue {
    JsError::new(&format!("{}: {}", problem.code.as_str(), problem.detail)).into()
}

/// A value as JSON; what JSON cannot say is `null`.
fn json(value: &JsValue) -> String {
    JSON::stringify(value).ok().and_then(|text| text.as_string()).unwrap_or_default()
}

/// The parameters of a list.
fn list_query(options: &JsValue) -> String {
    let mut query = Serializer::new(String::new());
    let names = [
        "id",
        "workflow",
        "status",
        "tag",
        "from",
        "until",
        "ended_from",
        "ended_until",
        "min_duration_ms",
        "retrying",
        "error",
        "limit",
        "cursor",
    ];
    for name in names {
        let value = runtime::property(options, name);
        let text = value.as_string().or_else(|| value.as_f64().map(|number| number.to_string()));
        let text = text.or_else(|| value.as_bool().map(|is_so| is_so.to_string()));
        // A list of statuses becomes one text.
        let text = text.or_else(|| value.dyn_ref::<js_sys::Array>().map(|list| String::from(list.join(","))));
        if let Some(text) = text {
            query.append_pair(name, &text);
        }
    }
    let attributes = runtime::property(options, "attributes");
    if let Some(attributes) = attributes.dyn_ref::<js_sys::Object>() {
        for pair in js_sys::Object::entries(attributes).iter() {
            let pair: js_sys::Array = pair.unchecked_into();
            let text = |index| pair.get(index).as_string().unwrap_or_default();
            query.append_pair("attribute", &format!("{}:{}", text(0), text(1)));
        }
    }
    query.finish()
}
