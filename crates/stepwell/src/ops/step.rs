//! A step: the user's code, whose result is recorded once.

use std::{
    cell::RefCell,
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Code, Op, Outcome, Payload, Problem,
    program::{PAYLOAD_BYTES_MAX, Retry},
};

use super::abort::{Abort, Attempt};
use crate::{
    Ctx, EnvError, Error, Result, Span, Terminal, panics,
    vm::{Lane, Turn},
};

/// A step, as a future: see [`Ctx::step`].
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<'a, T> {
    ctx: Ctx,
    op: Op,
    policy: Rc<RefCell<Policy>>,
    future: Pin<Box<dyn Future<Output = Result<T>> + 'a>>,
}

/// Information for a step's code.
#[derive(Clone)]
pub struct StepInfo {
    /// The same for every attempt of this step, and unique to it. Pass it to the services you call.
    pub idempotency_key: String,
    /// The number of this attempt, from 1. An attempt that a crash interrupted does not count.
    pub attempt: u32,
    abort: Rc<Abort>,
}

impl StepInfo {
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self { idempotency_key: "key".into(), attempt: 1, abort: Rc::new(Abort::new(Rc::default())) }
    }

    /// A signal that fires when the attempt times out or its run is cancelled, for calls that take one.
    /// [`crate::fetch`] uses it. Fails in `cargo test`, where there is no runtime.
    pub fn signal(&self) -> Result<worker::AbortSignal, EnvError> {
        #[cfg(target_arch = "wasm32")]
        return Ok(self.abort.signal());
        #[cfg(not(target_arch = "wasm32"))]
        Err(EnvError::not_in_tests("signal of", "abort"))
    }

    /// Whether the attempt timed out or its run was cancelled, for code that continues in the background.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_aborted()
    }
}

impl fmt::Debug for StepInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepInfo")
            .field("idempotency_key", &self.idempotency_key)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

impl<'a, T: Serialize + DeserializeOwned + 'a> Step<'a, T> {
    pub(crate) fn new<F>(ctx: Ctx, op: Op, policy: Policy, code: F) -> Self
    where
        F: AsyncFn(StepInfo) -> Result<T> + 'a,
    {
        let policy = Rc::new(RefCell::new(policy));
        let future = Box::pin(run(ctx.clone(), op.clone(), policy.clone(), code));
        Self { ctx, op, policy, future }
    }
}

impl<T> Step<'_, T> {
    /// Sets the retry policy. The default is three attempts, with jittered delays of 1 s and 2 s.
    pub fn retry(self, retry: Retry) -> Self {
        self.policy.borrow_mut().retry = retry;
        self
    }

    /// Sets the maximum number of attempts.
    pub fn attempts(self, attempts: u32) -> Self {
        self.policy.borrow_mut().retry.attempts = attempts.max(1);
        self
    }

    /// Limits each attempt: `.timeout("30 seconds")`. The default is five minutes, or the deployment's setting. An
    /// attempt that takes longer is dropped and counts as failed. Its HTTP calls are aborted; work that it started
    /// elsewhere may continue.
    pub fn timeout(self, timeout: impl Into<Span>) -> Self {
        self.policy.borrow_mut().timeout_ms = self.ctx.millis_of(timeout.into());
        self
    }

    /// Never runs the code twice. A step that is interrupted fails with `step_interrupted`, because it is unknown
    /// whether it took effect. Costs one more row.
    pub fn at_most_once(self) -> Self {
        self.policy.borrow_mut().at_most_once = true;
        self
    }

    /// Returns `None` instead of an error when the step fails.
    pub async fn or_none(self) -> Option<T> {
        self.await.ok()
    }
}

/// How a step is run.
#[derive(Clone, Default)]
pub(crate) struct Policy {
    pub retry: Retry,
    pub timeout_ms: Option<u64>,
    pub at_most_once: bool,
    /// Whom it shares places with, if it does.
    pub lane: Option<Lane>,
}

async fn run<T, F>(ctx: Ctx, op: Op, policy: Rc<RefCell<Policy>>, code: F) -> Result<T>
where
    T: Serialize + DeserializeOwned,
    F: AsyncFn(StepInfo) -> Result<T>,
{
    let Policy { mut retry, timeout_ms, at_most_once, lane } = policy.borrow().clone();
    if at_most_once {
        retry.attempts = 1;
    }
    ctx.state.borrow_mut().begin_step(&op, at_most_once, lane);
    loop {
        let turn = poll_fn(|cx| ctx.state.borrow_mut().poll_step(&op, cx.waker())).await;
        match turn {
            Turn::Finished(outcome) => return decode(&ctx, &op, outcome).await,
            Turn::Attempt(attempt) => {
                let idempotency_key = ctx.idempotency_key(&op);
                let abort = Rc::new(Abort::new(ctx.state.borrow().calls()));
                let info = StepInfo { idempotency_key, attempt, abort: abort.clone() };
                let hook = ctx.state.borrow().hook();
                if let Some(result) = hook.and_then(|hook| hook(&op, &info)) {
                    ctx.state.borrow_mut().report_step(&op, attempt, result, retry.clone(), None);
                    continue;
                }
                let began_ms = ctx.state.borrow().stopwatch();
                let mut code = pin!(code(info));
                // After the code, so that it is dropped first: the calls end before what waits for them does.
                let under_way = Attempt::of(abort);
                let limit = ctx.state.borrow().limit(timeout_ms);
                let mut over = None;
                let ended = poll_fn(|cx| {
                    let Some(waker) = ctx.state.borrow_mut().enter_code(&op, cx.waker()) else {
                        return Poll::Pending;
                    };
                    let mut cx = Context::from_waker(&waker);
                    // A panic is a failed attempt like any other error.
                    let polled = panics::catch(|| code.as_mut().poll(&mut cx));
                    let polled = polled.unwrap_or_else(|error| Poll::Ready(Err(error)));
                    ctx.state.borrow_mut().leave_code();
                    if polled.is_ready() {
                        under_way.ended();
                    }
                    match &limit {
                        // Code that is done at once needs no timer.
                        Some((ms, timer)) if polled.is_pending() => {
                            let over = over.get_or_insert_with(|| timer(*ms));
                            over.as_mut().poll(&mut cx).map(|()| Err(timed_out(*ms)))
                        }
                        Some(_) | None => polled,
                    }
                });
                let result = ended.await.and_then(|value| encode(&value));
                let ended_ms = ctx.state.borrow().stopwatch();
                let took_ms = ended_ms.zip(began_ms).map(|(ended, began)| ended.saturating_sub(began));
                ctx.state.borrow_mut().report_step(&op, attempt, result, retry.clone(), took_ms);
            }
        }
    }
}

fn timed_out(timeout_ms: u64) -> Error {
    let error = Error::msg(format!("it took longer than {timeout_ms} ms"));
    error.coded(Code::StepTimedOut)
}

fn encode<T: Serialize>(value: &T) -> Result<Payload> {
    // Running the code again would give a value of the same kind: neither is worth another attempt.
    let output = Payload::encode(value)
        .map_err(|error| Terminal::new(format!("the result cannot be written as JSON: {error}")))?;
    if output.size() > PAYLOAD_BYTES_MAX {
        let text = format!(
            "the result has {} bytes of JSON, the most is {PAYLOAD_BYTES_MAX}: store it elsewhere and \
             return its name",
            output.size()
        );
        return Err(Error::from(Terminal::new(text)));
    }
    Ok(output)
}

async fn decode<T: DeserializeOwned>(ctx: &Ctx, op: &Op, outcome: Outcome) -> Result<T> {
    match outcome {
        Outcome::Err(failure) => Err(Error::of_step(&op.name, failure)),
        Outcome::Ok(output) => match output.decode() {
            Ok(value) => Ok(value),
            Err(error) => {
                let detail = format!(
                    "The recorded result of step '{}' cannot be read as the type that the code has now: \
                     {error}. Deploy code that reads it, then resume the run.",
                    op.name
                );
                ctx.state.borrow_mut().stop(Problem::new(Code::Diverged, detail));
                std::future::pending().await
            }
        },
    }
}

impl<T> Future for Step<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<T> Drop for Step<'_, T> {
    fn drop(&mut self) {
        self.ctx.state.borrow_mut().forget(&self.op);
    }
}
