//! Handlers of jobs: what an app does with the jobs of a queue.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Payload, Timestamp,
    manifest::JobDescription,
    queue::{JSON, JobCall, JobId, Push, PushEnd, PushFailure},
};

use crate::{Error, Result, Trigger, ops::millis, panics};

/// A job, as its handler gets it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Job<T> {
    /// What it says. Text comes as a string, and bytes as a string in Base64.
    pub body: T,
    /// Its id. It stays the same for all attempts.
    pub id: String,
    /// Which attempt this is; the first is 1.
    pub attempt: u32,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Its group.
    pub group: Option<String>,
    /// The type of its body.
    pub content_type: String,
}

type Handling = Pin<Box<dyn Future<Output = Result<()>>>>;

/// What an app does with the jobs of a queue. `#[job]` makes one of an `async fn`.
pub struct JobHandler {
    queue: &'static str,
    push: Push,
    triggers: Vec<Trigger>,
    handle: Box<dyn Fn(JobCall) -> Result<Handling>>,
}

impl JobHandler {
    /// The handler of this queue.
    pub fn new<T, F, R>(queue: &'static str, code: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(Job<T>) -> R + 'static,
        R: Future<Output = Result<()>> + 'static,
    {
        let handle = move |call: JobCall| -> Result<Handling> {
            let JobCall { id, attempt, sent_at, group, content_type, body, text, base64, .. } = call;
            let body = match (body, text.or(base64)) {
                (Some(body), _) => body.decode(),
                (None, text) => Payload::encode(&text).and_then(|text| text.decode()),
            };
            let body = body.map_err(|error| {
                Error::terminal(format!("the body does not fit the handler of '{queue}': {error}"))
            })?;
            let id = id.to_string();
            Ok(Box::pin(code(Job { body, id, attempt, sent_at, group, content_type })))
        };
        Self { queue, push: Push::default(), triggers: Vec::new(), handle: Box::new(handle) }
    }

    /// How many jobs are handled at once: 6 unless this says otherwise. Each partition of the queue handles up to 6.
    #[must_use]
    pub fn concurrency(mut self, max: u32) -> Self {
        self.push.concurrency = max;
        self
    }

    /// How many jobs begin in a second at the most.
    #[must_use]
    pub fn per_second(mut self, max: u32) -> Self {
        self.push.per_second = Some(max);
        self
    }

    /// How long a job may take: 30 seconds unless this says otherwise, and at most five minutes.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.push.timeout_ms = millis(timeout);
        self
    }

    /// Makes a job of each event: `.trigger(Trigger::on("order/paid"))`.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.triggers.push(trigger);
        self
    }

    pub(crate) fn take_triggers(&mut self) -> Vec<Trigger> {
        std::mem::take(&mut self.triggers)
    }

    /// Its queue.
    pub fn queue(&self) -> &'static str {
        self.queue
    }

    pub(crate) fn describe(&self) -> JobDescription {
        JobDescription { queue: self.queue.to_owned(), push: self.push.clone() }
    }

    /// Handles a job, and says what became of it.
    #[cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "a Worker calls it"))]
    pub(crate) async fn handle(&self, call: JobCall) -> PushEnd {
        let handled = match (self.handle)(call) {
            Ok(mut handling) => {
                // A panic where it can be caught is an error like others.
                poll_fn(|cx| match panics::catch_job(|| handling.as_mut().poll(cx)) {
                    Ok(poll) => poll,
                    Err(error) => Poll::Ready(Err(error)),
                })
                .await
            }
            Err(error) => Err(error),
        };
        match handled {
            Ok(()) => PushEnd::Done,
            Err(error) => PushEnd::Failed(PushFailure {
                reason: error.to_string(),
                delay_ms: error.retry_after_ms(),
                dead: error.is_terminal(),
                is_down: false,
                gone: false,
            }),
        }
    }

    /// Calls it with a body, as the engine does, for tests: `send_mail().call(&mail).await?`.
    pub async fn call<T: Serialize>(&self, body: &T) -> Result<()> {
        let body = Payload::encode(body).map_err(|error| Error::msg(error.to_string()))?;
        let call = JobCall {
            queue: self.queue.to_owned(),
            id: JobId { made: Timestamp::default(), partition: 0, number: 1 },
            attempt: 1,
            sent_at: Timestamp::default(),
            group: None,
            content_type: JSON.to_owned(),
            body: Some(body),
            text: None,
            base64: None,
            timeout_ms: self.push.timeout_ms,
            signature: None,
        };
        (self.handle)(call)?.await
    }
}
