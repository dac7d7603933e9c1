//! Jobs that a run sends.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use serde::Serialize;
use stepwell_protocol::{Op, Payload, Problem, program::Command, queue::SentJob};

use super::outgoing::Outgoing;
use crate::{Ctx, Error, Result, Span};

/// A job that a run sends to a queue, as a future: see [`Ctx::send`].
///
/// ```
/// # use stepwell::prelude::*;
/// use stepwell::testing::Test;
///
/// #[workflow]
/// async fn sign_up(ctx: Ctx, address: String) -> Result<()> {
///     ctx.send("emails", &address).await?;
///     ctx.send("reminders", &address).delay("3 days").dedupe_id(&address).await
/// }
///
/// let outcome = Test::new(App::new().workflow(sign_up)).run("sign_up", "ada@example.com");
/// assert_eq!(outcome.sent::<String>("reminders"), ["ada@example.com"]);
/// ```
#[must_use = "a job is not sent until it is awaited"]
pub struct SendJob {
    ctx: Ctx,
    op: Op,
    job: Result<SentJob>,
    outgoing: Option<Outgoing>,
}

impl SendJob {
    pub(crate) fn new<T: Serialize + ?Sized>(ctx: Ctx, op: Op, queue: String, body: &T) -> Self {
        let body = Payload::encode(body)
            .map_err(|error| Error::terminal(format!("the body cannot be written as JSON: {error}")));
        let job = body.map(|body| SentJob::new(queue, body));
        Self { ctx, op, job, outgoing: None }
    }

    fn with(mut self, set: impl FnOnce(&mut SentJob)) -> Self {
        if let Ok(job) = &mut self.job {
            set(job);
        }
        self
    }

    /// No consumer gets it before this time is over: `.delay("3 days")`, at most a year.
    pub fn delay(self, span: impl Into<Span>) -> Self {
        let delay_ms = self.ctx.millis_of(span.into()).unwrap_or_default();
        self.with(|job| job.delay_ms = delay_ms)
    }

    /// Jobs with a higher priority come first: 0, which is the default, to 9.
    pub fn priority(self, priority: u8) -> Self {
        self.with(|job| job.priority = priority)
    }

    /// Jobs of one group are handed out in the order in which the queue has stored them, one at a time. If a queue does not
    /// answer for a moment, a run's later job may be stored first.
    pub fn group(self, group: impl Into<String>) -> Self {
        self.with(|job| job.group = Some(group.into()))
    }

    /// A job with an id that the queue knows is not stored again, whoever has sent it.
    pub fn dedupe_id(self, id: impl Into<String>) -> Self {
        self.with(|job| job.dedupe_id = Some(id.into()))
    }
}

fn of_problem(problem: Problem) -> Error {
    Error::terminal(problem.detail)
}

impl Future for SendJob {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let outgoing = this.outgoing.get_or_insert_with(|| {
            let job = std::mem::replace(&mut this.job, Err(Error::terminal("the job is on its way")));
            let job = job.and_then(|job| job.check().map(|()| job).map_err(of_problem));
            let command = job.map(|job| Command::JobSent { op: this.op.clone(), job: Box::new(job) });
            Outgoing::new(this.ctx.clone(), this.op.clone(), command)
        });
        Pin::new(outgoing).poll(cx).map_ok(drop)
    }
}
