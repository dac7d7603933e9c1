//! The runtime's own calls: what the `worker` crate does not bind, or binds without `catch`.
//!
//! Every call that can throw returns what was thrown: an exception that passes through Rust frames leaves
//! its caller without an answer.

use js_sys::{Array, Promise, Reflect};
use stepwell_promises as promises;
use stepwell_protocol::Timestamp;
use wasm_bindgen::prelude::*;
use worker::{Env, worker_sys::web_sys};

/// The methods of a session, as its function is told: a number crosses over more cheaply than a name.
pub const COMMIT: u32 = 0;
/// See [`COMMIT`].
pub const PAGE: u32 = 1;
/// See [`COMMIT`].
pub const LISTEN: u32 = 2;
/// A commit by a program that understands a time as an answer: see `Answer::in_short`.
pub const COMMIT_SHORT: u32 = 3;
/// See [`COMMIT`].
pub const PUBLISH: u32 = 4;
/// The program is at work.
pub const BEAT: u32 = 5;

#[wasm_bindgen]
extern "C" {
    /// `ctx.storage` of an object.
    #[derive(Clone)]
    pub type Storage;

    #[wasm_bindgen(method, getter)]
    pub fn sql(this: &Storage) -> Sql;

    /// Runs a closure as one transaction: rolled back when it fails.
    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    pub fn transaction_sync(
        this: &Storage,
        body: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch, js_name = setAlarm)]
    pub fn set_alarm(this: &Storage, at_ms: f64) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = getAlarm)]
    pub fn get_alarm(this: &Storage) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = deleteAlarm)]
    pub fn delete_alarm(this: &Storage) -> Result<Promise, JsValue>;

    /// Deletes all rows, tables and values at once.
    #[wasm_bindgen(method, catch, js_name = deleteAll)]
    pub fn delete_all(this: &Storage) -> Result<Promise, JsValue>;

    /// Settled when all that was written is durable.
    #[wasm_bindgen(method, catch)]
    pub fn sync(this: &Storage) -> Result<Promise, JsValue>;

    /// `ctx.storage.sql`.
    #[derive(Clone)]
    pub type Sql;

    /// The bytes of the database, without what is free in it.
    #[wasm_bindgen(method, catch, getter, js_name = databaseSize)]
    pub fn database_size(this: &Sql) -> Result<f64, JsValue>;

    #[wasm_bindgen(method, catch, variadic)]
    pub fn exec(this: &Sql, query: &JsValue, bindings: &Array) -> Result<Cursor, JsValue>;

    pub type Cursor;

    #[wasm_bindgen(method, catch)]
    pub fn raw(this: &Cursor) -> Result<RawRows, JsValue>;

    #[wasm_bindgen(method, getter, js_name = rowsWritten)]
    pub fn rows_written(this: &Cursor) -> f64;

    #[wasm_bindgen(method, getter, js_name = rowsRead)]
    pub fn rows_read(this: &Cursor) -> f64;

    pub type RawRows;

    #[wasm_bindgen(method, catch, js_name = toArray)]
    pub fn to_array(this: &RawRows) -> Result<Array, JsValue>;

    /// The binding of a class of objects.
    pub type Objects;

    #[wasm_bindgen(method, catch, js_name = getByName)]
    pub fn get_by_name(this: &Objects, name: &str) -> Result<ObjectStub, JsValue>;

    /// An object, seen from outside.
    pub type ObjectStub;

    #[wasm_bindgen(method, catch)]
    pub fn ask(this: &ObjectStub, call: &str) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch, js_name = ask)]
    pub fn ask_station(this: &ObjectStub, to: &str, call: &str) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    pub fn fetch(this: &ObjectStub, url: &str, init: &JsValue) -> Result<Promise, JsValue>;

    /// A program: the default entrypoint of a Worker that has the SDK.
    pub type Program;

    #[wasm_bindgen(method, catch)]
    pub fn activate(this: &Program, activation: &str, session: &JsValue) -> Result<JsValue, JsValue>;

    /// The app's handler of a queue's jobs.
    #[wasm_bindgen(method, catch)]
    pub fn job(this: &Program, call: &str) -> Result<JsValue, JsValue>;

    /// The engine's own program, which its Worker has besides: see `bulk_program.rs`.
    #[wasm_bindgen(method, catch, js_name = stepwellActivate)]
    pub fn activate_own(this: &Program, activation: &str, session: &JsValue) -> Result<JsValue, JsValue>;

    /// The session of an activation, seen from a program.
    pub type SessionStub;

    #[wasm_bindgen(method, catch)]
    pub fn commit(this: &SessionStub, commit: &str) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    pub fn page(this: &SessionStub, after: u32) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    pub fn describe(this: &Program) -> Result<JsValue, JsValue>;

    /// A queue that messages can be sent to.
    pub type Queue;

    #[wasm_bindgen(method, catch, js_name = sendBatch)]
    pub fn send_batch(this: &Queue, messages: &Array) -> Result<JsValue, JsValue>;
}

// Only an `RpcTarget` travels by reference, and to extend it takes JavaScript. All sessions of a cell share
// one function, so that an activation leaves nothing behind on the Rust side.
#[wasm_bindgen(inline_js = r#"
import { DurableObject, RpcTarget, WorkerEntrypoint, env, exports } from "cloudflare:workers";
function extend(instance, base) {
  const made = instance.constructor;
  Object.setPrototypeOf(made, base);
  Object.setPrototypeOf(made.prototype, base.prototype);
  instance.free();
}
export function extendDurableObject(instance) { extend(instance, DurableObject); }
export function extendWorkerEntrypoint(instance) { extend(instance, WorkerEntrypoint); }
export function ownEntrypoint() { return exports?.default; }
export function ownEnv() { return env; }
export function isOfClass(value, name) {
  return typeof value === "object" && value !== null && !!Object.getPrototypeOf(value)?.constructor?.name?.includes(name);
}
class Session extends RpcTarget {
  #call; #number; #epoch;
  constructor(call, number, epoch) { super(); this.#call = call; this.#number = number; this.#epoch = epoch; }
  commit(text, short) { return this.#call(short === true ? 3 : 0, this.#number, this.#epoch, text); }
  page(after) { return this.#call(1, this.#number, this.#epoch, String(after)); }
  listen(after) { return this.#call(2, this.#number, this.#epoch, String(after)); }
  publish(text) { return this.#call(4, this.#number, this.#epoch, text); }
  beat(text) { return this.#call(5, this.#number, this.#epoch, text); }
}
// Not from within the instance: execution ends in the middle of whoever calls it.
export function abortSoon(context, reason) { setTimeout(() => context.abort(reason), 10); }
export function newSession(call, number, epoch) { return new Session(call, number, epoch); }
export function insertRecord(sql, query, counts, run, seq, at, event, mark) {
  const cursor = sql.exec(query, run, seq, at, event, mark ?? null);
  return counts ? cursor.rowsWritten : 0;
}
"#)]
extern "C" {
    /// Lets the class of an instance extend `DurableObject`: the runtime passes method calls on to no other.
    /// The instance is used up.
    #[wasm_bindgen(js_name = extendDurableObject)]
    pub fn extend_durable_object(instance: JsValue);

    /// The same for `WorkerEntrypoint`.
    #[wasm_bindgen(js_name = extendWorkerEntrypoint)]
    pub fn extend_worker_entrypoint(instance: JsValue);

    /// This Worker's own default entrypoint; undefined where the runtime does not offer it.
    #[wasm_bindgen(js_name = ownEntrypoint)]
    pub fn own_entrypoint() -> JsValue;

    /// This Worker's bindings, for what is called without them.
    #[wasm_bindgen(js_name = ownEnv)]
    pub fn own_env() -> JsValue;

    /// Whether the class of an object has this in its name. What another Worker sends has none but the language's own.
    #[wasm_bindgen(js_name = isOfClass)]
    pub fn is_of_class(value: &JsValue, name: &str) -> bool;

    /// Ends this instance of an object after a moment, with all that it has in memory or under way.
    #[wasm_bindgen(js_name = abortSoon)]
    pub fn abort_soon(context: &JsValue, reason: &str);

    /// A session for one activation of one run.
    #[wasm_bindgen(js_name = newSession)]
    pub fn new_session(call: &JsValue, number: f64, epoch: u32) -> JsValue;

    /// Inserts a record of a journal, and gives the rows written if they are counted. `Sql::exec` would do, but this is
    /// what each step costs: in one crossing, and with nothing that has to be handed over to JavaScript and forgotten
    /// again.
    #[wasm_bindgen(catch, js_name = insertRecord)]
    pub fn insert_record(
        sql: &Sql,
        query: &JsValue,
        counts: bool,
        run: f64,
        seq: u32,
        at: f64,
        event: &str,
        mark: Option<&str>,
    ) -> Result<f64, JsValue>;
}

#[wasm_bindgen(inline_js = r#"
import { waitUntil } from "cloudflare:workers";
export function goOn(promise) { waitUntil(promise); }
"#)]
extern "C" {
    /// Lets the present invocation of a Worker go on after its answer, until this is settled.
    #[wasm_bindgen(catch, js_name = goOn)]
    pub fn wait_until(promise: &Promise) -> Result<(), JsValue>;
}

// The runtime knows every time zone: nothing of their rules has to be in the bundle.
#[wasm_bindgen(inline_js = r#"
const FORMATS = new Map();
const FIELDS = ["year", "month", "day", "hour", "minute", "second"];
export function zoneOffset(timeZone, at) {
  timeZone = timeZone.toLowerCase();
  let format = FORMATS.get(timeZone);
  if (!format) {
    const numeric = Object.fromEntries(FIELDS.map((field) => [field, "numeric"]));
    try { format = new Intl.DateTimeFormat("en-US", { timeZone, hourCycle: "h23", ...numeric }); } catch { return undefined; }
    if (FORMATS.size >= 64) FORMATS.delete(FORMATS.keys().next().value);
    FORMATS.set(timeZone, format);
  }
  const shown = {};
  for (const { type, value } of format.formatToParts(at * 1_000)) shown[type] = Number(value);
  return Date.UTC(shown.year, shown.month - 1, shown.day, shown.hour, shown.minute, shown.second) / 1_000 - at;
}
"#)]
extern "C" {
    /// By how many seconds the clocks of a zone are ahead of UTC at a time in seconds; nothing, if there is no such zone.
    #[wasm_bindgen(js_name = zoneOffset)]
    pub fn zone_offset(zone: &str, at_s: f64) -> Option<f64>;
}

// Of all that a signature takes, the runtime has it: nothing of it has to be in the bundle.
#[wasm_bindgen(inline_js = r#"
const ALGORITHMS = {
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ES256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  EdDSA: { name: "Ed25519" },
};
export async function verifySignature(key, algorithm, signed, signature) {
  const how = ALGORITHMS[algorithm];
  const { kty, crv, n, e, x, y } = JSON.parse(key);
  const imported = await crypto.subtle.importKey("jwk", { kty, crv, n, e, x, y }, how, false, ["verify"]);
  return crypto.subtle.verify(how, imported, signature, new TextEncoder().encode(signed));
}
export async function fetchText(url) {
  const signal = AbortSignal.timeout(5_000);
  const response = await fetch(url, { redirect: "manual", signal, headers: { accept: "application/json" } });
  if (response.status !== 200) throw new Error(`the answer is ${response.status}`);
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  for await (const chunk of response.body) {
    bytes += chunk.byteLength;
    if (bytes > 65_536) throw new Error("the answer is too large");
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
"#)]
extern "C" {
    /// Whether a public key, a JSON Web Key, has signed a text.
    #[wasm_bindgen(js_name = verifySignature)]
    pub fn verify_signature(key: &str, algorithm: &str, signed: &str, signature: &[u8]) -> Promise;

    /// A small text at an address: no redirects, five seconds, 64 KiB.
    #[wasm_bindgen(js_name = fetchText)]
    pub fn fetch_text(url: &str) -> Promise;
}

// Of what an endpoint answers, its first words are enough. What it says after its time is over is not heard.
#[wasm_bindgen(inline_js = r#"
export async function pushJob(url, names, values, body, ms) {
  const headers = new Headers(names.map((name, at) => [name, values[at]]));
  const signal = AbortSignal.timeout(ms);
  const response = await fetch(url, { method: "POST", redirect: "manual", signal, headers, body });
  let said = "";
  if (!response.ok) {
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      said += decoder.decode(chunk.subarray(0, 500), { stream: true });
      if (said.length >= 500) break;
    }
  } else {
    // It has said what counts, whatever becomes of the rest.
    response.body?.cancel().catch(() => {});
  }
  const after = response.headers.get("retry-after");
  const seconds = Number(after);
  const wait = Number.isFinite(seconds) ? seconds * 1_000 : Date.parse(after) - Date.now();
  const delay = after !== null && wait >= 0 ? wait : undefined;
  return [response.status, said.slice(0, 500), delay, response.headers.get("stepwell-reject") ?? undefined];
}
"#)]
extern "C" {
    /// Posts a body, a text or bytes, to an address: no redirects, and so many milliseconds. Gives a status, the first words
    /// of an answer that is no success, after how many milliseconds to try again, and why to reject the job.
    #[wasm_bindgen(js_name = pushJob)]
    pub fn push_job(url: &str, names: Vec<String>, values: Vec<String>, body: &JsValue, ms: f64) -> Promise;
}

// Chunk by chunk, so that a body takes no more memory than what is kept of it, and to its end, whatever length was announced:
// a Worker with a service binding may announce any. Bytes are copied, because a chunk of one byte may be a view of 4,096.
// In JavaScript, because each chunk would be two crossings.
#[wasm_bindgen(inline_js = r#"
export async function readBody(request, keptMax, readMax) {
  let [kept, bytes] = [new Uint8Array(0), 0];
  const reader = request.body?.getReader();
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    const end = bytes + value.byteLength;
    if (end > keptMax) {
      kept = new Uint8Array(0);
    } else if (end > kept.byteLength) {
      const larger = new Uint8Array(Math.min(keptMax, Math.max(end, 2 * kept.byteLength)));
      larger.set(kept.subarray(0, bytes));
      kept = larger;
    }
    if (end <= keptMax) kept.set(value, bytes);
    bytes = end;
    if (bytes > readMax) {
      await reader.cancel();
      break;
    }
  }
  return bytes > keptMax ? bytes : kept.subarray(0, bytes);
}
"#)]
extern "C" {
    /// The body of a request as bytes, if it has at most `kept_max` of them; otherwise how many were seen before it
    /// stopped reading, which is soon after `read_max`.
    #[wasm_bindgen(js_name = readBody)]
    pub fn read_body(request: &web_sys::Request, kept_max: usize, read_max: usize) -> Promise;
}

/// The runtime's clock.
pub fn clock() -> Timestamp {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds since 1970 are positive and below 2^53"
    )]
    Timestamp::from_millis(js_sys::Date::now() as u64)
}

/// Awaits whatever an RPC method returned: its promises are thenables of their own class.
pub async fn settle(value: JsValue) -> Result<JsValue, JsValue> {
    promises::settled(&value).await
}

#[wasm_bindgen(inline_js = r#"
export function ackMessage(message) { message.ack(); }
export function retryMessage(message, delaySeconds) { message.retry({ delaySeconds }); }
// What a queue stores of a number may be longer than what was sent.
export async function sendToQueue(queue, body, contentType, bytesMax) {
  const value = contentType === "json" ? JSON.parse(body) : body;
  const text = contentType === "json" ? JSON.stringify(value) : body;
  const bytes = typeof text === "string" ? new TextEncoder().encode(text).byteLength : text.byteLength;
  if (bytes > bytesMax) return bytes;
  await queue.send(value, { contentType });
}
export function bytesOf(body) {
  return ArrayBuffer.isView(body) ? new Uint8Array(body.buffer, body.byteOffset, body.byteLength) : new Uint8Array(body);
}
// A value may hold the same part many times, and say far more than its bytes.
export function jsonWithin(value, lengthMax) {
  let length = 0;
  const count = (key, part) => {
    length += key.length + (typeof part === "string" ? part.length : 1);
    if (Array.isArray(part)) length += part.length;
    if (length > lengthMax) throw new Error("it is too large");
    return part;
  };
  return JSON.stringify(value, count);
}
"#)]
extern "C" {
    /// Says to a Cloudflare Queue that its message is done.
    #[wasm_bindgen(catch, js_name = ackMessage)]
    pub fn ack_message(message: &JsValue) -> Result<(), JsValue>;

    /// Says to a Cloudflare Queue that its message is to come again, after so many seconds.
    #[wasm_bindgen(catch, js_name = retryMessage)]
    pub fn retry_message(message: &JsValue, delay_seconds: u32) -> Result<(), JsValue>;

    /// Sends a body to a Cloudflare Queue: a text that is `json`, a `text`, or `bytes`. Gives how many bytes it has, if these
    /// are too many.
    #[wasm_bindgen(js_name = sendToQueue)]
    pub fn send_to_queue(queue: &JsValue, body: &JsValue, content_type: &str, bytes_max: u32) -> Promise;

    /// The bytes of a buffer, or of a view of one.
    #[wasm_bindgen(js_name = bytesOf)]
    pub fn bytes_of(body: &JsValue) -> js_sys::Uint8Array;

    /// A value as JSON, unless that has more characters than about these.
    #[wasm_bindgen(catch, js_name = jsonWithin)]
    pub fn json_within(value: &JsValue, length_max: u32) -> Result<JsValue, JsValue>;
}

/// A named property of any object; undefined when there is none.
pub fn property(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED)
}

/// A variable or secret of the deployment, if there is one.
pub fn variable(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string())
}

/// Texts as messages for a queue. As text: what a queue does to objects depends on how they are sent.
pub fn messages(texts: impl Iterator<Item = String>) -> Array {
    texts
        .map(|text| {
            let message = js_sys::Object::new();
            for (name, value) in [("body", text.as_str()), ("contentType", "text")] {
                // A fresh object takes any property.
                let _ = Reflect::set(&message, &name.into(), &value.into());
            }
            message
        })
        .collect()
}

/// What a thrown value says.
pub fn message(thrown: &JsValue) -> String {
    match property(thrown, "message").as_string() {
        Some(message) => message,
        None => thrown.as_string().unwrap_or_else(|| "something without a message was thrown".into()),
    }
}

/// 64 random bits.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Random bytes that nobody can guess.
pub fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the runtime has a random source");
}
