//! The Workers transport: the cell calls `activate` over RPC and passes a session that is a capability.
//!
//! Any Worker with a service binding can call `activate` too. So an app acts on nothing that a cell of its deployment
//! has not signed: it verifies the activation before anything else, and refuses it otherwise.
//!
//! All activations of an isolate share one wasm instance. When code stops that instance (a panic where panics
//! abort, an overflow of the stack), their futures are gone and their promises would stay open for ever. What
//! survives is JavaScript: it knows which activations there are and whose code was being polled, and ends them.

use std::{
    pin::{Pin, pin},
    rc::Rc,
    sync::{Mutex, Once},
    task::{Context, Poll},
};

use futures::future::{Either, select};
use js_sys::{Error, Promise};
use serde::{Serialize, de::DeserializeOwned};
use stepwell_promises as promises;
use stepwell_protocol::{
    Seq, Timestamp, json,
    manifest::VERSION_BINDING,
    program::{Activation, Answer, Beat, Commit, CutShort, Page},
    queue::{JobCall, PushEnd, PushFailure},
    signature::{self, Key},
    stream::Published,
};
use wasm_bindgen::prelude::*;
// The bundle's shim calls what this crate exports, used or not: without it, an app that names only the SDK
// does not load.
use worker as _;

use crate::{
    App, drive,
    panics::{self, LastWords},
    vm::{Clock, Timer},
};

#[wasm_bindgen]
extern "C" {
    /// The stub of the cell's session object.
    type Stub;

    #[wasm_bindgen(method, catch)]
    fn commit(this: &Stub, commit: &str, short: bool) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn page(this: &Stub, after: u32) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn listen(this: &Stub, after: u32) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn publish(this: &Stub, published: &str) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn beat(this: &Stub, beat: &str) -> Result<Promise, JsValue>;

    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &js_sys::Function, ms: f64) -> JsValue;

    #[wasm_bindgen(catch, js_name = clearTimeout)]
    fn clear_timeout(id: &JsValue) -> Result<(), JsValue>;
}

thread_local! {
    // Secrets stay as they are for as long as this isolate lives.
    static KEYS: Vec<Key> = signature::app_keys(own_secret);
}

#[wasm_bindgen(inline_js = r#"
import { env } from "cloudflare:workers";

export function ownSecret(name) {
  const value = env[name];
  return typeof value === "string" ? value : undefined;
}

export function ownVersion(name) {
  const { id, timestamp } = env[name] ?? {};
  const at = Date.parse(timestamp);
  return id && at >= 0 ? JSON.stringify({ id: String(id), at }) : undefined;
}

const LAST_WORDS_MAX = 1000;
const live = new Map();
const lastWords = new Map();
let count = 0;
let entered;

addEventListener("error", ({ error }) => {
  // Whoever was entered and never left has stopped the instance, whatever was thrown.
  if (entered === undefined && !(error instanceof WebAssembly.RuntimeError)) return;
  const guilty = entered;
  entered = undefined;
  const ended = [...live];
  live.clear();
  for (const [number, { run, end, fail }] of ended) {
    const words = lastWords.get(run);
    if (number === guilty) fail(words ? new Error(`the code panicked: ${JSON.parse(words).message}`) : error);
    else end(guilty === undefined ? '"unknown"' : '"beside"');
  }
});

export function begin(run) {
  const number = count++;
  const activation = { run };
  activation.over = new Promise((end, fail) => Object.assign(activation, { end, fail }));
  live.set(number, activation);
  return number;
}
export function guarded(number, promise) {
  const { over } = live.get(number);
  return Promise.race([promise, over]).finally(() => live.delete(number));
}
export function enter(number) { entered = number; }
export function leave() { entered = undefined; }
export function leaveWords(words) {
  const run = live.get(entered)?.run;
  if (run === undefined) return;
  if (lastWords.size >= LAST_WORDS_MAX) lastWords.delete(lastWords.keys().next().value);
  lastWords.set(run, words);
}
export function takeWords(run) {
  const words = lastWords.get(run);
  lastWords.delete(run);
  return words;
}
"#)]
extern "C" {
    /// A secret or a variable of this Worker.
    #[wasm_bindgen(js_name = ownSecret)]
    fn own_secret(name: &str) -> Option<String>;

    /// The version of this Worker, as JSON, if it is bound to it.
    #[wasm_bindgen(js_name = ownVersion)]
    fn own_version(name: &str) -> Option<String>;

    /// An activation of this run begins; gives it a number.
    fn begin(run: &str) -> u32;

    /// The promise of an activation, that is settled even if its instance is stopped: with an error if it was
    /// by this run's own code, with a text that says whose fault it was if not.
    fn guarded(number: u32, promise: &Promise) -> Promise;

    /// Code of this activation is about to run.
    fn enter(number: u32);

    /// It has run.
    fn leave();

    /// Keeps what the code that runs has to say before its instance is gone.
    #[wasm_bindgen(js_name = leaveWords)]
    fn leave_words(words: &str);

    /// What an earlier activation of this run has left behind.
    #[wasm_bindgen(js_name = takeWords)]
    fn take_words(run: &str) -> Option<String>;
}

/// The longest time that `setTimeout` takes: one that is longer would be over at once. It is 24 days.
const TIMEOUT_MS_MAX: u64 = (1 << 31) - 1;

/// A timer of the runtime. Nobody waits for one that is dropped: each step has one, and an invocation only so many.
struct Timeout(JsValue);

impl Drop for Timeout {
    fn drop(&mut self) {
        // The runtime refuses to stop the timer of an invocation that is over, which is what is wanted.
        let _ = clear_timeout(&self.0);
    }
}

struct RpcSession {
    stub: Stub,
    last_words: Option<LastWords>,
}

impl drive::Session for RpcSession {
    type Lost = JsValue;

    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Answer, JsValue>> + 'static {
        let (base, commands) = (commit.base, commit.told());
        let promise = encode(commit).and_then(|text| self.stub.commit(&text, true));
        async move {
            let promise = promise?;
            let answer = promises::settled(&promise).await?;
            // The usual one comes as a time; a cell of before that, or one with more to say, sends a text.
            match answer.as_f64() {
                Some(now) => Ok(Answer::from_short(time(now), base, commands)),
                None => read(&answer),
            }
        }
    }

    fn page(&self, after: Seq) -> impl Future<Output = Result<Page, JsValue>> + 'static {
        receive(self.stub.page(after.0))
    }

    fn listen(&self, after: Seq) -> impl Future<Output = Result<Answer, JsValue>> + 'static {
        receive(self.stub.listen(after.0))
    }

    fn publish(&self, published: &Published) -> impl Future<Output = Option<Answer>> + 'static {
        let answer = receive(encode(published).and_then(|text| self.stub.publish(&text)));
        async { answer.await.ok() }
    }

    fn beat(&self, beat: &Beat) -> impl Future<Output = Option<Answer>> + 'static {
        let answer = receive(encode(beat).and_then(|text| self.stub.beat(&text)));
        async { answer.await.ok() }
    }

    fn last_words(&self) -> Option<LastWords> {
        self.last_words.clone()
    }

    fn clock(&self) -> Option<Clock> {
        Some(Rc::new(|| now().as_millis()))
    }

    fn timer(&self) -> Option<Timer> {
        Some(Rc::new(wait))
    }
}

/// Waits for so many milliseconds.
fn wait(ms: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    #[expect(clippy::cast_precision_loss, reason = "it is below 2^31")]
    let ms = ms.min(TIMEOUT_MS_MAX) as f64;
    // Where panics unwind, a closure that JavaScript calls may change nothing but what a lock guards.
    let timeout = Mutex::new(Timeout(JsValue::UNDEFINED));
    let promise = Promise::new(&mut |resolve, _| {
        if let Ok(mut timeout) = timeout.lock() {
            timeout.0 = set_timeout(&resolve, ms);
        }
    });
    Box::pin(async move {
        let _ = promises::settled(&promise).await;
        drop(timeout);
    })
}

/// What the exported `describe` does: what the app declares, as JSON.
pub fn describe(app: &App) -> String {
    let version = own_version(VERSION_BINDING).and_then(|text| json::from_str(&text).ok());
    serde_json::to_string(&app.manifest_of(version)).expect("a manifest holds only what JSON can say")
}

/// What the exported `activate` does. The activation is a text; but a text would be copied into the instance before
/// anybody sees that this one was stopped, and has to be replaced.
pub fn activate(app: Rc<App>, activation: &JsValue, session: JsValue) -> Promise {
    install_hook();
    let activation: Activation = match decode(&activation.as_string().unwrap_or_default()) {
        Ok(activation) => activation,
        Err(error) => return Promise::reject(&error),
    };
    if let Err(unverified) = KEYS.with(|keys| signature::verify(keys, &activation, now())) {
        return match encode(&CutShort::Refused(unverified.into())) {
            Ok(refused) => Promise::resolve(&JsValue::from(refused)),
            Err(error) => Promise::reject(&error),
        };
    }
    let run = activation.run.to_string();
    let last_words = take_words(&run).and_then(|text| json::from_str(&text).ok());
    let session = RpcSession { stub: session.unchecked_into(), last_words };
    let future = Box::pin(async move {
        drive::drive(&app, activation, &session).await?;
        Ok(JsValue::UNDEFINED)
    });
    let number = begin(&run);
    guarded(number, &promises::promise(Watched { number, future }))
}

/// What the exported `job` does: handles a job, and says what became of it, as JSON.
pub fn job(app: Rc<App>, call: &JsValue) -> Promise {
    install_hook();
    let call: JobCall = match decode(&call.as_string().unwrap_or_default()) {
        Ok(call) => call,
        Err(error) => return Promise::reject(&error),
    };
    if let Err(unverified) = KEYS.with(|keys| signature::verify_job(keys, &call, now())) {
        // Not the job's fault: the keys of engine and app differ, or their clocks.
        return Promise::reject(&Error::new(&unverified.to_string()).into());
    }
    let number = begin(&format!("job {}", call.id));
    let future = Box::pin(async move {
        let end = match app.handler(&call.queue) {
            Some(handler) => {
                let ms = call.timeout_ms;
                let (handling, time) = (pin!(handler.handle(call)), wait(ms));
                // Whatever it has under way is dropped with it: it must not go on beside the next attempt.
                match select(handling, time).await {
                    Either::Left((end, _)) => end,
                    Either::Right(_) => PushEnd::Failed(PushFailure {
                        reason: format!("no answer within {ms} ms"),
                        is_down: true,
                        ..PushFailure::default()
                    }),
                }
            }
            // Another version of the app has declared it.
            None => PushEnd::Failed(PushFailure {
                reason: format!("the app has no handler for the queue '{}'", call.queue),
                is_down: true,
                ..PushFailure::default()
            }),
        };
        encode(&end).map(JsValue::from)
    });
    guarded(number, &promises::promise(Watched { number, future }))
}

/// An activation whose code JavaScript knows to be running while it is.
struct Watched {
    number: u32,
    future: Pin<Box<dyn Future<Output = Result<JsValue, JsValue>>>>,
}

impl Future for Watched {
    type Output = Result<JsValue, JsValue>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // On the way out of a panic too, where panics unwind.
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                leave();
            }
        }
        enter(self.number);
        let _leave = Leave;
        self.future.as_mut().poll(cx)
    }
}

/// Keeps what a panic says; and where panics abort, leaves it for the next activation.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(words) = panics::last_words(info)
                && cfg!(not(panic = "unwind"))
                && let Ok(text) = serde_json::to_string(&words)
            {
                leave_words(&text);
            }
            before(info);
        }));
    });
}

async fn receive<T: DeserializeOwned>(promise: Result<Promise, JsValue>) -> Result<T, JsValue> {
    let promise = promise?;
    read(&promises::settled(&promise).await?)
}

fn read<T: DeserializeOwned>(answer: &JsValue) -> Result<T, JsValue> {
    decode(&answer.as_string().ok_or_else(|| Error::new("the cell answered with something else than text"))?)
}

fn now() -> Timestamp {
    time(js_sys::Date::now())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "milliseconds since 1970 are positive and below 2^53"
)]
fn time(millis: f64) -> Timestamp {
    Timestamp::from_millis(millis as u64)
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, JsValue> {
    json::from_str(text).map_err(|error| {
        let text = format!("engine and app do not speak the same protocol: {error}");
        Error::new(&text).into()
    })
}

fn encode<T: Serialize>(message: &T) -> Result<String, JsValue> {
    serde_json::to_string(message).map_err(|error| Error::new(&error.to_string()).into())
}
