//! Stepwell's engine on Durable Objects: the host around the machines of `stepwell-core`.
//!
//! A request goes through [`http`] to the [`cell`] that holds the run; there one loop
//! (`crates/core/src/cell/drive.rs`) asks the machine, commits what it decided, arms the alarm and performs the effects. Everything here is
//! thin: decisions are the machines', durability is the platform's.

mod access;
mod alerts;
mod bulk_program;
mod calls;
mod catalog;
mod cell;
mod collector;
mod consumer;
mod guard;
mod http;
mod joining;
mod keyring;
mod lanes;
mod log;
mod object;
mod outbound;
mod program;
mod queues;
mod register;
mod remains;
mod rpc;
mod runtime;
mod schedules;
mod settings;
mod sockets;
mod sources;
mod station;
mod sweep;
mod terms;
mod topics;
mod zones;

use js_sys::Promise;
use wasm_bindgen::prelude::*;
use worker::{
    Env, Request, Response,
    worker_sys::{
        MessageBatch as RawMessageBatch,
        web_sys::{Request as RawRequest, Response as RawResponse},
    },
};

pub use cell::Cell;
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
pub use http::reading;
pub use rpc::WorkflowsRpc;
pub use station::Station;

/// When the module is loaded, before the runtime looks at its classes.
// Private: what is exported, any Worker with a service binding can call.
#[wasm_bindgen(start, private)]
fn extend_classes() {
    rpc::extend_worker_entrypoint();
    cell::extend_durable_object();
    station::extend_durable_object();
}

/// Everything that comes from outside. Not by the `worker` crate's attribute: what that promises is lost with the
/// instance that has promised it.
#[wasm_bindgen]
pub fn fetch(request: RawRequest, env: Env, _context: JsValue) -> Promise {
    log::begin(&env);
    guard::response(async move {
        let response = match http::serve(Request::from(request), env).await {
            Ok(response) => response,
            Err(error) => {
                log::error!("{error}");
                Response::error("Internal error", 500)?
            }
        };
        Ok(RawResponse::from(response).into())
    })
}

/// The clock strikes: the cron trigger of the deployment.
#[wasm_bindgen]
pub fn scheduled(event: JsValue, env: Env, _context: JsValue) -> Promise {
    guard::promise(async move {
        check_event(&event, "ScheduledController")?;
        log::begin(&env);
        sweep::sweep(env).await;
        Ok(JsValue::UNDEFINED)
    })
}

/// What comes through queues: calls of programs, and messages that become events. Never an error: each message has its own fate.
#[wasm_bindgen]
pub fn queue(batch: JsValue, env: Env, _context: JsValue) -> Promise {
    guard::promise(async move {
        check_event(&batch, "QueueController")?;
        log::begin(&env);
        let name = runtime::property(&batch, "queue").as_string().unwrap_or_default();
        match settings::Deployment::known(&env).ok().and_then(|deployment| deployment.source(&name).cloned())
        {
            Some(source) => sources::take(&batch, &source, env).await,
            None => consumer::consume(&batch.unchecked_into::<RawMessageBatch>().into(), env).await,
        }
        Ok(JsValue::UNDEFINED)
    })
}

/// Refuses what does not come from the platform. A Worker with a service binding can call these methods like any other,
/// but no call between Workers carries the platform's own objects.
fn check_event(event: &JsValue, class: &str) -> std::result::Result<(), JsValue> {
    if runtime::is_of_class(event, class) {
        return Ok(());
    }
    Err(JsError::new("Only the platform calls this.").into())
}
