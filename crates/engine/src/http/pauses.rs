//! Workflows that people have paused, as this isolate remembers them, and the routes that pause and resume.
//!
//! Starts are served from memory, like the terms of a workflow: what is older than [`FRESH_MS`] is served as it is and
//! read again behind the answer. Only the first start of a namespace in an isolate asks the catalog at once, beside the
//! question to the app that it asks anyway.

use std::cell::RefCell;

use stepwell_core::ordered::{OrdMap, OrdSet};
use stepwell_promises as promises;
use stepwell_protocol::Code;
use wasm_bindgen::JsValue;

use super::{error::Refusal, front::Front, request::check_name, response::Response, workflows};
use crate::{calls::catalog::Request, log, runtime};

/// How long what the catalog said is taken for what it would say.
const FRESH_MS: u64 = 10_000;

/// The most namespaces that an isolate remembers.
const NAMESPACES_MAX: usize = 1_000;

#[derive(Default)]
struct Known {
    workflows: OrdSet<String>,
    /// When the catalog was last asked, whether it has answered or not: one question at a time.
    asked_at_ms: u64,
}

thread_local! {
    // By namespace.
    static KNOWN: RefCell<OrdMap<String, Known>> = const { RefCell::new(OrdMap::new()) };
}

/// `POST /api/workflows/{workflow}/pause`
pub async fn pause(front: &Front, workflow: String) -> Result<Response, Refusal> {
    check_name("workflow", &workflow)?;
    workflows::terms(front, &workflow).await?;
    let response = front.pass_on(Request::PauseWorkflow { workflow }).await;
    forget(front.namespace());
    response
}

/// `POST /api/workflows/{workflow}/resume`. Of any workflow: one that has left the code may be paused, too.
pub async fn resume(front: &Front, workflow: String) -> Result<Response, Refusal> {
    check_name("workflow", &workflow)?;
    let response = front.pass_on(Request::ResumeWorkflow { workflow }).await;
    forget(front.namespace());
    response
}

/// Refuses the start of a workflow that is paused, as far as this isolate knows.
pub async fn check(front: &Front, workflow: &str) -> Result<(), Refusal> {
    let is_paused = match find(front.namespace(), workflow) {
        Some((is_paused, is_stale)) => {
            if is_stale {
                read_again(front);
            }
            is_paused
        }
        None if front.has_catalog() => {
            // A catalog that does not answer refuses nobody.
            read(front).await;
            find(front.namespace(), workflow).is_some_and(|(is_paused, _)| is_paused)
        }
        None => false,
    };
    if is_paused {
        let detail = format!(
            "The workflow '{workflow}' is paused. Nothing was started. Start the run again once somebody has resumed the \
             workflow with `POST /api/workflows/{{workflow}}/resume`."
        );
        return Err(Refusal::new(Code::WorkflowPaused, detail));
    }
    Ok(())
}

/// Whether a workflow is paused, if that is known; and whether the catalog should be asked again behind the answer.
fn find(namespace: &str, workflow: &str) -> Option<(bool, bool)> {
    let now_ms = runtime::clock().as_millis();
    KNOWN.with_borrow_mut(|known| {
        let known = known.get_mut(namespace)?;
        let is_stale = now_ms.saturating_sub(known.asked_at_ms) >= FRESH_MS;
        if is_stale {
            known.asked_at_ms = now_ms;
        }
        Some((known.workflows.contains(workflow), is_stale))
    })
}

/// Whoever comes next asks the catalog.
fn forget(namespace: &str) {
    KNOWN.with_borrow_mut(|known| known.remove(namespace));
}

/// Asks the catalog behind the answer to the present request.
fn read_again(front: &Front) {
    let front = front.clone();
    let reading = promises::promise(async move {
        read(&front).await;
        Ok(JsValue::UNDEFINED)
    });
    if let Err(thrown) = runtime::wait_until(&reading) {
        log::warn!("the pauses are not read again: {}", runtime::message(&thrown));
    }
}

/// Asks the catalog. What it does not answer stays as it was.
async fn read(front: &Front) {
    let asked_at_ms = runtime::clock().as_millis();
    match front.itself().ask_catalog(Request::PausedWorkflows).await {
        Ok(workflows) => KNOWN.with_borrow_mut(|known| {
            if known.len() >= NAMESPACES_MAX {
                known.clear();
            }
            known.insert(front.namespace().to_owned(), Known { workflows, asked_at_ms });
        }),
        Err(refusal) => log::warn!("the pauses are not known: {}", refusal.0),
    }
}
