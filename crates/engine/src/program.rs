//! Calls programs: the app's, and the engine's own.
//!
//! Owns: which Worker a workflow's program is in, and what the end of its call means. Cells call programs, and so do
//! consumers of the queue.

use stepwell_core::run::CallEnd;
use stepwell_protocol::{
    json,
    program::{CutShort, is_reserved},
};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Env;

use crate::{
    runtime::{self, Program},
    settings::APP_BINDING,
};

/// Calls the program of a workflow; nothing, if there is none. The engine's own workflows are this Worker's.
pub fn activate(
    env: &Env,
    own: JsValue,
    workflow: &str,
    activation: &str,
    session: &JsValue,
) -> Option<Result<JsValue, JsValue>> {
    if is_reserved(workflow) {
        let own: Program = (!own.is_undefined()).then(|| own.unchecked_into())?;
        return Some(own.activate_own(activation, session));
    }
    Some(app(env, own)?.activate(activation, session))
}

/// The app that this Worker is bound to, or else the Worker itself.
pub fn app(env: &Env, own: JsValue) -> Option<Program> {
    let bound = runtime::property(env, APP_BINDING);
    let program = if bound.is_undefined() { own } else { bound };
    (!program.is_undefined()).then(|| program.unchecked_into())
}

/// How a program's call ended, by what came of it.
pub fn end_of(answer: Result<JsValue, JsValue>) -> CallEnd {
    match answer {
        Ok(answer) => cut_short(&answer),
        Err(thrown) => {
            let message = runtime::message(&thrown);
            // The runtime marks what nobody's code has thrown: broken connections, resets, overload.
            let is_lost = ["retryable", "overloaded", "durableObjectReset"]
                .iter()
                .any(|mark| runtime::property(&thrown, mark).is_truthy());
            if is_lost { CallEnd::Lost(message) } else { CallEnd::Threw(message) }
        }
    }
}

/// How a call ended that gave an answer.
fn cut_short(answer: &JsValue) -> CallEnd {
    match answer.as_string().and_then(|text| json::from_str(&text).ok()) {
        None => CallEnd::Returned,
        Some(CutShort::Beside) => {
            CallEnd::Lost("another run's code stopped the instance that it shared".into())
        }
        Some(CutShort::Unknown) => CallEnd::Died("the instance that it ran in was stopped".into()),
        Some(CutShort::Refused(problem)) => CallEnd::Refused(problem.cut()),
    }
}

/// Why a call did not come to its end, for the log. What a program throws may have anything in it, and is for whoever may
/// see the run.
pub fn why(end: &CallEnd) -> Option<&str> {
    match end {
        CallEnd::Returned => None,
        CallEnd::Threw(_) => Some("it threw an error, which `stepwell why` shows"),
        CallEnd::Lost(message) | CallEnd::Died(message) => Some(message),
        CallEnd::Silent => Some("nothing was heard of it"),
        CallEnd::Unstored => Some("the storage did not take what it reported"),
        CallEnd::Refused(problem) => Some(&problem.detail),
    }
}
