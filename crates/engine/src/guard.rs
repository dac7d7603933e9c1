//! Promises that are settled even if the wasm instance that owes them is stopped.
//!
//! All requests and objects of an isolate share one wasm instance. When something stops it (a panic where panics
//! abort, an overflow of the stack), the next call gets a fresh one, but whatever the old one had promised would
//! stay open: a client would wait until it gives up, and an `alarm()` that never returns keeps every later alarm
//! of its object from firing. JavaScript outlives the instance, so it keeps the list.

use js_sys::Promise;
use stepwell_promises as promises;
use stepwell_protocol::{Code, Problem};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(inline_js = r#"
const owed = new Set();

addEventListener("error", ({ error }) => {
  // What wasm throws when it is stopped; an overflow of the stack is the engine's own error.
  if (!(error instanceof WebAssembly.RuntimeError || error instanceof RangeError)) return;
  const broken = [...owed];
  owed.clear();
  for (const release of broken) release(error);
});

// What was stopped goes on in the request that it belongs to: nothing may be made here, in the one that stopped it.
function guarded(promise, otherwise) {
  const stopped = {};
  return new Promise((resolve, reject) => {
    const release = (error) => resolve(Object.assign(stopped, { error }));
    owed.add(release);
    promise.then(
      (value) => { owed.delete(release); resolve(value); },
      (thrown) => { owed.delete(release); reject(thrown); },
    );
  }).then((value) => value === stopped ? otherwise(stopped.error) : value);
}
export function orReject(promise) {
  return guarded(promise, (error) => { throw error; });
}
export function orRespond(promise, status, body) {
  const headers = { "content-type": "application/problem+json" };
  return guarded(promise, () => new Response(body, { status, headers }));
}
"#)]
extern "C" {
    #[wasm_bindgen(js_name = orReject)]
    fn or_reject(promise: &Promise) -> Promise;

    #[wasm_bindgen(js_name = orRespond)]
    fn or_respond(promise: &Promise, status: u16, body: &str) -> Promise;
}

/// A promise that is rejected if its instance is stopped.
pub fn promise(future: impl Future<Output = Result<JsValue, JsValue>> + 'static) -> Promise {
    or_reject(&promises::promise(future))
}

/// The promise of an HTTP response, which becomes a problem if its instance is stopped.
pub fn response(future: impl Future<Output = Result<JsValue, JsValue>> + 'static) -> Promise {
    let detail = "The Worker was stopped while it was at work on this. Try again; with the same Idempotency-Key \
                  that is always safe.";
    let problem = Problem::new(Code::Internal, detail);
    let body = serde_json::to_string(&problem).expect("a problem holds only what JSON can say");
    or_respond(&promises::promise(future), problem.status, &body)
}
