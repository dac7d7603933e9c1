//! Takes jobs to their consumers: to an address.

use std::rc::Rc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use js_sys::{Array, Uint8Array};
use stepwell_core::queue::Pushed;
use stepwell_protocol::{
    queue::{Claimed, Push, PushEnd, PushFailure},
    webhook::schemes::standard_signature,
};
use wasm_bindgen::{JsCast as _, JsValue};

use super::Host;
use crate::{keyring::Keyring, outbound, runtime, settings::Deployment};

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
                worker::console_error!("stepwell: the end of job {} was not recorded: {fault}", lease.job);
            }
        });
    }

    async fn consume(&self, job: Claimed, push: &Push) -> PushEnd {
        match &push.url {
            Some(url) => self.post(url, job, push.timeout_ms).await,
            None => down("the app has no handler for the queue".into()),
        }
    }

    /// Posts a job to an address, signed as Standard Webhooks are.
    async fn post(&self, url: &str, job: Claimed, timeout_ms: u64) -> PushEnd {
        let is_dev = Deployment::known(&self.env).is_ok_and(|deployment| deployment.is_dev);
        // It was checked when it was set; what may be called can have changed since.
        if let Err(problem) = outbound::check("url", url, is_dev) {
            return failed(problem.detail);
        }
        let Claimed { id, attempt, group, content_type, body, text, base64, .. } = job;
        let bytes = base64.as_ref().and_then(|base64| STANDARD.decode(base64).ok());
        let text = body.map(stepwell_protocol::Payload::into_text).or(text);
        let sent = bytes.as_deref().or(text.as_deref().map(str::as_bytes)).unwrap_or_default();
        let (now, id) = (runtime::clock(), id.to_string());
        let secrets = Keyring::of(&self.env).push_secrets(&self.address.namespace, self.queue());
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
    PushEnd::Failed(PushFailure { reason, delay_ms: number(2), dead: rejected.is_some(), is_down })
}

fn failed(reason: String) -> PushEnd {
    PushEnd::Failed(PushFailure { reason, ..PushFailure::default() })
}

/// The consumer is not well.
fn down(reason: String) -> PushEnd {
    PushEnd::Failed(PushFailure { reason, is_down: true, ..PushFailure::default() })
}
