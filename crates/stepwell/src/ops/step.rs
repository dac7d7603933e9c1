//! A step: the user's code, whose result is recorded once.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Code, Op, Outcome, Payload, Problem,
    program::{PAYLOAD_BYTES_MAX, Retry},
};

use super::millis;
use crate::{Ctx, Error, Result, Terminal, panics, vm::Turn};

/// A step that was named but not awaited yet, or is under way.
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<'a, T> {
    ctx: Ctx,
    op: Op,
    policy: Rc<RefCell<Policy>>,
    future: Pin<Box<dyn Future<Output = Result<T, StepError>> + 'a>>,
}

/// What a step's code may want to know.
#[derive(Clone, Debug)]
pub struct StepInfo {
    /// The same for every attempt of this step, and for no other step: pass it to whatever you call.
    pub idempotency_key: String,
    /// Which attempt this is, from 1. An attempt that a crash cut short does not count.
    pub attempt: u32,
}

/// Why a step failed for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step '{step}' failed: {message}")]
pub struct StepError {
    /// The step's name.
    pub step: String,
    /// What its last attempt said.
    pub message: String,
    /// Which of Stepwell's own problems it is, if it is one: a time-out, an interruption.
    pub code: Option<Code>,
}

impl<'a, T: Serialize + DeserializeOwned + 'a> Step<'a, T> {
    pub(crate) fn new<F>(ctx: Ctx, op: Op, code: F) -> Self
    where
        F: AsyncFnMut(StepInfo) -> Result<T> + 'a,
    {
        let policy = Rc::new(RefCell::new(Policy::default()));
        let future = Box::pin(run(ctx.clone(), op.clone(), policy.clone(), code));
        Self { ctx, op, policy, future }
    }
}

impl<T> Step<'_, T> {
    /// How often it is tried, and how long apart.
    pub fn retry(self, retry: Retry) -> Self {
        self.policy.borrow_mut().retry = retry;
        self
    }

    /// How often it is tried, at the most.
    pub fn attempts(self, attempts: u32) -> Self {
        self.policy.borrow_mut().retry.attempts = attempts.max(1);
        self
    }

    /// How long one attempt may take, instead of five minutes or what the deployment says. One that takes longer is
    /// dropped and counts as failed; what it has begun outside may go on there.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.policy.borrow_mut().timeout_ms = Some(millis(timeout));
        self
    }

    /// Never runs its code twice, whatever happens. If it is cut short, it fails and says that it was
    /// interrupted: whether it has done its work, nobody knows. Costs one more row.
    pub fn at_most_once(self) -> Self {
        self.policy.borrow_mut().at_most_once = true;
        self
    }

    /// Goes on without it when it fails: gives nothing instead of an error.
    pub async fn or_none(self) -> Option<T> {
        self.await.ok()
    }
}

/// How a step is run.
#[derive(Clone, Debug, Default)]
struct Policy {
    retry: Retry,
    timeout_ms: Option<u64>,
    at_most_once: bool,
}

async fn run<T, F>(ctx: Ctx, op: Op, policy: Rc<RefCell<Policy>>, mut code: F) -> Result<T, StepError>
where
    T: Serialize + DeserializeOwned,
    F: AsyncFnMut(StepInfo) -> Result<T>,
{
    let Policy { mut retry, timeout_ms, at_most_once } = policy.borrow().clone();
    if at_most_once {
        retry.attempts = 1;
    }
    ctx.state.borrow_mut().begin_step(&op, at_most_once);
    loop {
        let turn = poll_fn(|cx| ctx.state.borrow_mut().poll_step(&op, cx.waker())).await;
        match turn {
            Turn::Finished(outcome) => return decode(&ctx, &op, outcome).await,
            Turn::Attempt(attempt) => {
                let idempotency_key = format!("{}/{op}", ctx.run_id());
                let info = StepInfo { idempotency_key, attempt };
                let hook = ctx.state.borrow().hook();
                if let Some(result) = hook.and_then(|hook| hook(&op, &info)) {
                    ctx.state.borrow_mut().report_step(&op, attempt, result, retry.clone());
                    continue;
                }
                let mut code = pin!(code(info));
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
                ctx.state.borrow_mut().report_step(&op, attempt, result, retry.clone());
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

async fn decode<T: DeserializeOwned>(ctx: &Ctx, op: &Op, outcome: Outcome) -> Result<T, StepError> {
    match outcome {
        Outcome::Err(failure) => {
            Err(StepError { step: op.name.clone(), message: failure.message, code: failure.code })
        }
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
    type Output = Result<T, StepError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<T> Drop for Step<'_, T> {
    fn drop(&mut self) {
        self.ctx.state.borrow_mut().forget(&self.op);
    }
}
