//! Takes jobs to their consumers: to an address, or to the app's handler.

use std::{pin::pin, rc::Rc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::{Either, select};
use js_sys::{Array, Uint8Array};
use stepwell_core::queue::Pushed;
use stepwell_protocol::{
    json,
    queue::{Claimed, JobCall, Push, PushEnd, PushFailure, SINK_BYTES_MAX},
    webhook::schemes::standard_signature,
};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Delay;

use super::Host;
use crate::{
    keyring::Keyring,
    log, outbound,
    program::app,
    runtime,
    settings::{APP_BINDING, Deployment},
};

/// How much longer than its handler the app may take to say that it has ended it.
const GRACE_MS: u64 = 2_000;

/// The status of an address that is gone for good.
const GONE: u64 = 410;

/// What the app says of a handler that has panicked.
const PANICKED: &str = "the code panicked";

impl Host {
    /// Takes a job to its consumer, and says to the machine what became of it. Whatever was written before is durable when
    /// the call goes out.
    pub(super) fn push(self: &Rc<Self>, Pushed { job, push }: Pushed) {
        let host = self.clone();
        self.go_on_with(async move {
            let lease = job.lease.clone();
            let end = host.consume(job, &push).await;
            let ended = host.turn(|machine, store, now| Ok(machine.pushed(store, now, &lease, end)?));
            if let Err(fault) = ended {
                // Its lease ends by itself.
                log::error!("the end of job {} was not recorded: {fault}", lease.job);
            }
        });
    }

    async fn consume(&self, job: Claimed, push: &Push) -> PushEnd {
        match (&push.url, &push.sink) {
            (Some(url), _) => self.post(url, job, push.timeout_ms).await,
            (None, Some(sink)) => self.send_on(sink, job, push.timeout_ms).await,
            (None, None) => self.call_app(job, push.timeout_ms).await,
        }
    }

    /// Sends a job's body to a Cloudflare Queue.
    async fn send_on(&self, sink: &str, job: Claimed, timeout_ms: u64) -> PushEnd {
        // It was checked when it was set; the Worker may have been deployed without it since.
        let Some(queue) = outbound::sink(&self.env, sink) else {
            return down(outbound::no_sink(sink));
        };
        let Claimed { body, text, base64, .. } = job;
        let bytes = base64.as_ref().and_then(|base64| STANDARD.decode(base64).ok());
        let (content_type, sent): (_, JsValue) = match (body, text, bytes) {
            (Some(body), ..) => ("json", body.text().into()),
            (None, Some(text), _) => ("text", text.as_str().into()),
            (None, None, bytes) => ("bytes", Uint8Array::from(bytes.unwrap_or_default().as_slice()).into()),
        };
        let sending = runtime::send_to_queue(&queue, &sent, content_type, SINK_BYTES_MAX);
        let answer = pin!(runtime::settle(sending.into()));
        match select(answer, Delay::from(Duration::from_millis(timeout_ms))).await {
            Either::Left((Ok(too_many), _)) => match too_many.as_f64() {
                None => PushEnd::Done,
                Some(bytes) => {
                    let reason =
                        format!("the body has {bytes} bytes, and a Cloudflare Queue takes {SINK_BYTES_MAX}");
                    PushEnd::Failed(PushFailure { reason, dead: true, ..PushFailure::default() })
                }
            },
            Either::Left((Err(thrown), _)) => down(runtime::message(&thrown)),
            Either::Right(_) => down(format!("no answer within {timeout_ms} ms")),
        }
    }

    /// Calls the app's handler, which acts on nothing that is not signed.
    async fn call_app(&self, job: Claimed, timeout_ms: u64) -> PushEnd {
        let mut call = JobCall::new(self.queue(), job, timeout_ms);
        call.signature = Keyring::of(&self.env).sign_job(&call, &self.address.namespace, runtime::clock());
        let text = serde_json::to_string(&call).expect("a call holds only what JSON can say");
        drop(call);
        let exports = runtime::property(&JsValue::from(self.state.as_raw()), "exports");
        let Some(app) = app(&self.env, runtime::property(&exports, "default")) else {
            return down(format!("there is no app: bind one as {APP_BINDING}"));
        };
        let answer = match app.job(&text) {
            Ok(answer) => pin!(runtime::settle(answer)),
            Err(thrown) => return down(runtime::message(&thrown)),
        };
        // The app ends its handler by itself. One that does not is not heard: the runtime cancels no call.
        match select(answer, Delay::from(Duration::from_millis(timeout_ms + GRACE_MS))).await {
            Either::Left((Ok(answer), _)) => {
                let end = answer.as_string().and_then(|text| json::from_str(&text).ok());
                end.unwrap_or_else(|| down("the instance that it ran in was stopped".into()))
            }
            // What is no panic of its own is not the job's fault: a key that is wrong, an app of another version.
            Either::Left((Err(thrown), _)) => match runtime::message(&thrown) {
                panic if panic.starts_with(PANICKED) => failed(panic),
                why => down(why),
            },
            Either::Right(_) => down(format!("no answer within {timeout_ms} ms")),
        }
    }

    /// Posts a job to an address, signed as Standard Webhooks are.
    async fn post(&self, url: &str, job: Claimed, timeout_ms: u64) -> PushEnd {
        let is_dev = Deployment::known(&self.env).is_ok_and(|deployment| deployment.is_dev);
        // It was checked when it was set; what may be called can have changed since.
        if let Err(problem) = outbound::check("url", url, is_dev) {
            return down(problem.detail);
        }
        let Claimed { id, attempt, group, content_type, body, text, base64, .. } = job;
        let bytes = base64.as_ref().and_then(|base64| STANDARD.decode(base64).ok());
        let text = body.map(stepwell_protocol::Payload::into_text).or(text);
        let sent = bytes.as_deref().or(text.as_deref().map(str::as_bytes)).unwrap_or_default();
        let (now, id) = (runtime::clock(), id.to_string());
        let life = match self.life() {
            Ok(life) => life.unwrap_or_default(),
            Err(fault) => return down(fault.to_string()),
        };
        let secrets = Keyring::of(&self.env).push_secrets(&self.address.namespace, life, self.queue());
        let signatures = secrets.iter().map(|secret| standard_signature(secret, &id, now, sent));
        let mut headers = vec![
            ("content-type", content_type),
            ("user-agent", "stepwell".to_owned()),
            ("webhook-id", id.clone()),
            ("webhook-timestamp", (now.as_millis() / 1_000).to_string()),
            ("webhook-signature", signatures.collect::<Vec<_>>().join(" ")),
            ("stepwell-queue", self.queue().to_owned()),
            ("stepwell-attempt", attempt.to_string()),
        ];
        // A header holds no more than ASCII.
        headers.extend(group.filter(|group| group.is_ascii()).map(|group| ("stepwell-group", group)));
        let (names, values) = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).unzip();
        let sent: JsValue = match (&bytes, &text) {
            (Some(bytes), _) => Uint8Array::from(bytes.as_slice()).into(),
            (None, text) => text.as_deref().unwrap_or_default().into(),
        };
        #[expect(clippy::cast_precision_loss, reason = "five minutes at the most")]
        let answer = runtime::push_job(url, names, values, &sent, timeout_ms as f64);
        match runtime::settle(answer.into()).await {
            Ok(answer) => read(&answer.unchecked_into()),
            Err(thrown)
                if runtime::property(&thrown, "name").as_string().as_deref() == Some("TimeoutError") =>
            {
                down(format!("no answer within {timeout_ms} ms"))
            }
            Err(thrown) => down(format!("no answer: {}", runtime::message(&thrown))),
        }
    }
}

/// What an answer says.
fn read(answer: &Array) -> PushEnd {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a status, and a time of at most a year"
    )]
    let number = |at: u32| answer.get(at).as_f64().map(|number| number.clamp(0.0, 4e10) as u64);
    let status = number(0).unwrap_or_default();
    if (200..300).contains(&status) {
        return PushEnd::Done;
    }
    let said = answer.get(1).as_string().unwrap_or_default();
    let said = said.trim();
    let mut reason = match status {
        300..400 => format!("HTTP {status}: redirects are not followed"),
        _ if said.is_empty() => format!("HTTP {status}"),
        _ => format!("HTTP {status}: {said}"),
    };
    let rejected = answer.get(3).as_string();
    if let Some(why) = rejected.as_ref().filter(|why| !why.is_empty()) {
        reason.clone_from(why);
    }
    let is_down = matches!(status, 429 | 500..);
    let (dead, gone) = (rejected.is_some(), status == GONE);
    PushEnd::Failed(PushFailure { reason, delay_ms: number(2), dead, is_down, gone })
}

fn failed(reason: String) -> PushEnd {
    PushEnd::Failed(PushFailure { reason, ..PushFailure::default() })
}

/// The consumer is not well.
fn down(reason: String) -> PushEnd {
    PushEnd::Failed(PushFailure { reason, is_down: true, ..PushFailure::default() })
}
