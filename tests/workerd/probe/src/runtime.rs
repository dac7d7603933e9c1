//! What the `worker` crate does not bind, or binds without `catch`, in one place.
//!
//! Every call that can throw returns the thrown value: an exception that passes through Rust frames
//! leaves the caller without an answer.

use js_sys::{Array, Object, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    /// `ctx.storage` of an object, with the calls the probe makes.
    #[wasm_bindgen(extends = Object)]
    #[derive(Clone)]
    pub type RawStorage;

    #[wasm_bindgen(method, getter)]
    pub fn sql(this: &RawStorage) -> RawSql;

    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    pub fn transaction_sync(
        this: &RawStorage,
        body: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch, js_name = setAlarm)]
    pub fn set_alarm(this: &RawStorage, at_ms: f64) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = getAlarm)]
    pub fn get_alarm(this: &RawStorage) -> Result<Promise, JsValue>;

    #[wasm_bindgen(extends = Object)]
    pub type RawSql;

    #[wasm_bindgen(method, catch, variadic)]
    pub fn exec(this: &RawSql, query: &str, bindings: &Array) -> Result<RawCursor, JsValue>;

    #[wasm_bindgen(extends = Object)]
    pub type RawCursor;

    #[wasm_bindgen(method, catch)]
    pub fn raw(this: &RawCursor) -> Result<RawRows, JsValue>;

    #[wasm_bindgen(method, catch, getter, js_name = rowsWritten)]
    pub fn rows_written(this: &RawCursor) -> Result<f64, JsValue>;

    #[wasm_bindgen(method, catch, getter, js_name = rowsRead)]
    pub fn rows_read(this: &RawCursor) -> Result<f64, JsValue>;

    #[wasm_bindgen(extends = Object)]
    pub type RawRows;

    #[wasm_bindgen(method, catch, js_name = toArray)]
    pub fn to_array(this: &RawRows) -> Result<Array, JsValue>;

    /// A Worker's default entrypoint, reached by a binding or through `ctx.exports`.
    #[wasm_bindgen(extends = Object)]
    pub type Entrypoint;

    #[wasm_bindgen(method, catch)]
    pub fn activate(this: &Entrypoint, order: &str, session: &JsValue) -> Result<JsValue, JsValue>;

    /// The session as the program sees it: a stub whose calls cross to the object.
    #[wasm_bindgen(extends = Object)]
    #[derive(Clone)]
    pub type SessionStub;

    #[wasm_bindgen(method, catch)]
    pub fn commit(this: &SessionStub, text: &str) -> Result<JsValue, JsValue>;
}

// Only an `RpcTarget` travels by reference, and `extends` needs JavaScript.
#[wasm_bindgen(inline_js = r#"
import { RpcTarget } from "cloudflare:workers";
export class Session extends RpcTarget {
  #commit;
  constructor(commit) { super(); this.#commit = commit; }
  commit(text) { return this.#commit(text); }
}
"#)]
extern "C" {
    /// The session as the object makes it: forwards `commit` to a Rust closure.
    #[wasm_bindgen(extends = Object)]
    pub type Session;

    #[wasm_bindgen(constructor)]
    pub fn new(commit: &JsValue) -> Session;
}

/// Awaits whatever an RPC method returned: its promises are thenables of their own class.
pub async fn settle(value: JsValue) -> Result<JsValue, JsValue> {
    JsFuture::from(Promise::resolve(&value)).await
}

/// A named property of any object.
pub fn property(object: &JsValue, name: &str) -> Result<JsValue, JsValue> {
    Reflect::get(object, &JsValue::from_str(name))
}

/// What a thrown value says: `Name: message`, with the marks workerd puts on errors from elsewhere.
pub fn describe(thrown: &JsValue) -> String {
    let text = match thrown.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.to_string()),
        None => thrown.as_string().unwrap_or_else(|| String::from(js_sys::JsString::from(thrown.clone()))),
    };
    let marks: Vec<&str> = ["remote", "retryable", "overloaded", "durableObjectReset"]
        .into_iter()
        .filter(|mark| property(thrown, mark).is_ok_and(|value| value.is_truthy()))
        .collect();
    if marks.is_empty() { text } else { format!("{text} [{}]", marks.join(", ")) }
}
