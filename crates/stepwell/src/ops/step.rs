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
    lane::{Limit, StepLane},
    program::{PAYLOAD_BYTES_MAX, Retry},
};

use super::abort::{Abort, Attempt};
use crate::{
    Ctx, EnvError, Error, Result, Span, Terminal, panics,
    vm::{Line, Turn},
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
    traceparent: Option<String>,
    abort: Rc<Abort>,
}

impl StepInfo {
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let abort = Rc::new(Abort::new(Rc::default()));
        Self { idempotency_key: "key".into(), attempt: 1, traceparent: None, abort }
    }

    /// A signal that fires when the attempt times out or its run is cancelled, for calls that take one.
    /// [`crate::fetch`] uses it. Fails in `cargo test`, where there is no runtime.
    pub fn signal(&self) -> Result<worker::AbortSignal, EnvError> {
        #[cfg(target_arch = "wasm32")]
        return Ok(self.abort.signal());
        #[cfg(not(target_arch = "wasm32"))]
        Err(EnvError::not_in_tests("signal of", "abort"))
    }

    /// The header `traceparent` for the services that this attempt calls, so that their spans appear below it. Absent if
    /// the run is not traced.
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
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

    /// Runs the code only when a lane lets it in, across all runs and workflows that use the lane:
    /// `.lane("openai", &customer).limit(5)`.
    ///
    /// Each key has its own limit. With the key `()`, the limit counts all steps that declare it. Without
    /// [`Self::limit`] it is 1. A step can have one limit with a key and one without, and further rates if their times
    /// differ: write `.lane` with the same name again.
    ///
    /// A step that has to wait does not keep its run awake. It gives its place back when its attempt is recorded, so a step
    /// that waits for its next attempt holds none. Time in line does not count for the step's timeout.
    ///
    /// ```
    /// use stepwell::{prelude::*, testing::Test};
    ///
    /// #[workflow]
    /// async fn summarize(ctx: Ctx, customer: String) -> Result<String> {
    ///     ctx.step("ask", async || Ok("a summary".to_owned())).lane("openai", &customer).limit(5).await
    /// }
    ///
    /// let outcome = Test::new(App::new().workflow(summarize)).run("summarize", &"acme");
    /// assert_eq!(outcome.output::<String>(), "a summary");
    /// ```
    pub fn lane(self, name: impl Into<String>, key: impl LaneKey) -> Self {
        self.policy.borrow_mut().enter(&self.ctx, name.into(), key.into_key());
        self
    }

    /// How many steps the limit of the last [`Self::lane`] lets in at a time.
    pub fn limit(self, max: u32) -> Self {
        self.policy.borrow_mut().limit(&self.ctx, |limit| limit.max = max);
        self
    }

    /// Makes the limit of the last [`Self::lane`] a rate: `.lane("openai", ()).limit(60).per("1 minute")` lets in at most
    /// 60 attempts in any minute.
    pub fn per(self, time: impl Into<Span>) -> Self {
        let per_ms = self.ctx.millis_of(time.into());
        self.policy.borrow_mut().limit(&self.ctx, |limit| limit.per_ms = per_ms);
        self
    }

    /// Returns `None` instead of an error when the step fails.
    pub async fn or_none(self) -> Option<T> {
        self.await.ok()
    }
}

/// What a limit of a lane counts by: text or a number, or `()` for all steps that declare the limit.
pub trait LaneKey {
    /// The key; nothing for all steps.
    fn into_key(self) -> Option<String>;
}

impl LaneKey for () {
    fn into_key(self) -> Option<String> {
        None
    }
}

macro_rules! lane_keys {
    ($($key:ty)*) => {$(
        impl LaneKey for $key {
            fn into_key(self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

lane_keys!(&str String &String u32 &u32 u64 &u64 i32 &i32 i64 &i64 usize &usize);

/// How a step is run.
#[derive(Clone, Default)]
pub(crate) struct Policy {
    pub retry: Retry,
    pub timeout_ms: Option<u64>,
    pub at_most_once: bool,
    /// The other steps of an `Each` that it shares places with, if it is one of them.
    pub line: Option<Line>,
    /// The lane that lets it in, if one does.
    pub lane: Option<StepLane>,
}

impl Policy {
    /// Adds a limit of a lane.
    pub fn enter(&mut self, ctx: &Ctx, name: String, key: Option<String>) {
        let limit = match key {
            // The number is this key's own: customers may have different ones.
            Some(key) => Limit { by: StepLane::BY.to_owned(), key, max: 1, per_ms: None, is_own: true },
            None => Limit { by: String::new(), key: String::new(), max: 1, per_ms: None, is_own: false },
        };
        match &mut self.lane {
            None => self.lane = Some(StepLane { lane: name, limits: vec![limit] }),
            Some(lane) if lane.lane == name => lane.limits.push(limit),
            Some(StepLane { lane, .. }) => {
                let text =
                    format!("a step can be in only one lane, and this one is in '{lane}' and '{name}'");
                ctx.state.borrow_mut().fail(Terminal::new(text).into());
            }
        }
    }

    /// Changes the limit that was added last.
    pub fn limit(&mut self, ctx: &Ctx, change: impl FnOnce(&mut Limit)) {
        match self.lane.as_mut().and_then(|lane| lane.limits.last_mut()) {
            Some(limit) => change(limit),
            None => {
                let text = "a step's limit needs a lane: write `.lane(name, key)` before `.limit` and `.per`";
                ctx.state.borrow_mut().fail(Terminal::new(text).into());
            }
        }
    }
}

async fn run<T, F>(ctx: Ctx, op: Op, policy: Rc<RefCell<Policy>>, code: F) -> Result<T>
where
    T: Serialize + DeserializeOwned,
    F: AsyncFn(StepInfo) -> Result<T>,
{
    let Policy { mut retry, timeout_ms, at_most_once, line, lane } = policy.borrow().clone();
    if at_most_once {
        retry.attempts = 1;
    }
    ctx.state.borrow_mut().begin_step(&op, at_most_once, line, lane);
    loop {
        let turn = poll_fn(|cx| ctx.state.borrow_mut().poll_step(&op, cx.waker())).await;
        match turn {
            Turn::Finished(outcome) => return decode(&ctx, &op, outcome).await,
            Turn::Attempt(attempt) => {
                let idempotency_key = ctx.idempotency_key(&op);
                let abort = Rc::new(Abort::new(ctx.state.borrow().calls()));
                let traceparent = ctx.traceparent(&op, attempt);
                let info = StepInfo { idempotency_key, attempt, traceparent, abort: abort.clone() };
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
