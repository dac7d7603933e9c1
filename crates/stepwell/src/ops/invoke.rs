//! A child: a run of another workflow that this one invokes.

use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Code, Invocation, OnClose, Op, OpKind, Outcome, Payload, Problem, RunId, program::PAYLOAD_BYTES_MAX,
};

use crate::{Ctx, Error, Result, Span, app::Terms, vm::Concluded};

/// An invocation of a child, as a future: see [`Ctx::invoke`].
///
/// Awaiting it starts a run of the workflow and returns its output. A waiting run uses no compute. If the child
/// fails, is cancelled, or takes longer than [`Self::timeout`], it returns an error: [`Error::child`] is the child's
/// id, [`Error::code`] and [`Error::message`] describe what happened.
///
/// ```
/// use stepwell::{prelude::*, testing::Test};
///
/// #[workflow]
/// async fn ship(ctx: Ctx, item: String) -> Result<String> {
///     ctx.step("ship", async || Ok(format!("{item} shipped"))).await
/// }
///
/// #[workflow]
/// async fn order(ctx: Ctx, items: Vec<String>) -> Result<Vec<String>> {
///     let children = items.into_iter().map(|item| ctx.invoke(ship, item));
///     futures::future::join_all(children).await.into_iter().collect()
/// }
///
/// let app = App::new().workflow(ship).workflow(order);
/// let outcome = Test::new(app).run("order", &["tea", "cups"]);
/// assert_eq!(outcome.output::<Vec<String>>(), ["tea shipped", "cups shipped"]);
/// ```
///
/// A run can have 1,000 open children, and can be nested 16 levels deep; beyond that, an invocation fails with
/// `too_many_children`. A child is invoked once, however often its parent is replayed. It needs no idempotency key,
/// even if its workflow requires one.
///
/// Dropping the future does not end the child: the loser of a `select` continues until the run ends, and is then
/// cancelled, unless it has [`OnClose::Abandon`].
#[must_use = "a child is not invoked until it is awaited"]
pub struct Invoke<T> {
    call: Call,
    output: PhantomData<fn() -> T>,
}

impl<T> Invoke<T> {
    pub(crate) fn new<I: Serialize>(ctx: Ctx, op: Op, workflow: String, input: &I, terms: &Terms) -> Self {
        let input = encode(input).map_err(|error| ctx.state.borrow_mut().fail(error));
        let invocation = input.ok().map(|input| {
            Box::new(Invocation {
                workflow,
                input,
                detached: false,
                on_close: OnClose::default(),
                timeout_ms: terms.timeout_ms,
                retention_ms: terms.retention_ms,
                dispatch: terms.dispatch,
                callback: terms.callback.clone(),
                flow: terms.flow.clone(),
            })
        });
        Self { call: Call { ctx, op, invocation, on_close: None, timeout_ms: None }, output: PhantomData }
    }

    /// Stops waiting for the child after this time: `.timeout("10m")`. The invocation fails with `child_timed_out`,
    /// and the child is cancelled unless [`Self::on_close`] changes that.
    pub fn timeout(mut self, timeout: impl Into<Span>) -> Self {
        self.call.timeout_ms = self.call.ctx.millis_of(timeout.into());
        self
    }

    /// Sets what happens to the child when the run ends, continues as new, is restarted from before the invocation,
    /// or stops waiting. By default it is cancelled; with [`OnClose::Abandon`] it continues.
    pub fn on_close(mut self, on_close: OnClose) -> Self {
        self.call.on_close = Some(on_close);
        self
    }

    /// Names the invocation in the run's history; the default is the workflow's name. Like a step, an invocation is
    /// identified by its name and its occurrence.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.call.rename(name.into());
        self
    }

    /// Returns the child's id as soon as the child has started, and does not wait for its end: `let audit: RunId =
    /// ctx.invoke(audit, event).detached().await?`.
    ///
    /// The child continues when the run ends, unless [`Detached::on_close`] changes that.
    pub fn detached(self) -> Detached {
        Detached { call: self.call }
    }
}

impl<T: DeserializeOwned> Future for Invoke<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.call.poll(cx.waker(), false) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Concluded { run, outcome: Outcome::Err(failure) }) => {
                Poll::Ready(Err(Error::of_child(&self.call.op.name, run, failure)))
            }
            Poll::Ready(Concluded { outcome: Outcome::Ok(output), .. }) => match output.decode() {
                Ok(output) => Poll::Ready(Ok(output)),
                Err(error) => {
                    self.call.stop(&format!(
                        "returned something that the code cannot read as the type that it expects: {error}. Deploy code \
                         that reads it, then resume the run."
                    ));
                    Poll::Pending
                }
            },
        }
    }
}

/// A child that is started but not awaited: see [`Invoke::detached`].
#[must_use = "a child is not invoked until it is awaited"]
pub struct Detached {
    call: Call,
}

impl Detached {
    /// Sets what happens to the child when the run ends: [`OnClose::Cancel`] cancels it.
    pub fn on_close(mut self, on_close: OnClose) -> Self {
        self.call.on_close = Some(on_close);
        self
    }
}

impl Future for Detached {
    type Output = Result<RunId>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.poll(cx.waker(), true).map(|Concluded { run, outcome }| match (outcome, run) {
            (Outcome::Ok(_), Some(run)) => Ok(run),
            (Outcome::Ok(_), None) => Err(Error::msg("the child was started, and nobody knows its id")),
            (Outcome::Err(failure), run) => Err(Error::of_child(&self.call.op.name, run, failure)),
        })
    }
}

/// What both have.
struct Call {
    ctx: Ctx,
    op: Op,
    /// Until it is first polled.
    invocation: Option<Box<Invocation>>,
    on_close: Option<OnClose>,
    timeout_ms: Option<u64>,
}

impl Call {
    fn poll(&mut self, waker: &Waker, detached: bool) -> Poll<Concluded> {
        if let Some(invocation) = &mut self.invocation {
            invocation.detached = detached;
            // Who does not wait for a child would hardly have it end with the run.
            let usual = if detached { OnClose::Abandon } else { OnClose::Cancel };
            invocation.on_close = self.on_close.unwrap_or(usual);
        }
        self.ctx.state.borrow_mut().poll_child(&self.op, &mut self.invocation, self.timeout_ms, waker)
    }

    fn rename(&mut self, name: String) {
        let mut state = self.ctx.state.borrow_mut();
        state.unname_op(&self.op);
        self.op = state.name_op(OpKind::Child, name);
    }

    /// A person has to look.
    fn stop(&self, what: &str) {
        let detail = format!("Child '{}' {what}", self.op.name);
        self.ctx.state.borrow_mut().stop(Problem::new(Code::Diverged, detail));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ctx.state.borrow_mut().forget(&self.op);
    }
}

fn encode<I: Serialize>(input: &I) -> Result<Payload> {
    let input = Payload::encode(input).map_err(|error| {
        Error::terminal(format!("the input of a child cannot be written as JSON: {error}"))
    })?;
    if input.size() > PAYLOAD_BYTES_MAX {
        let text = format!(
            "the input of a child has {} bytes of JSON, the most is {PAYLOAD_BYTES_MAX}: store it elsewhere and pass its \
             name",
            input.size()
        );
        return Err(Error::terminal(text).coded(Code::PayloadTooLarge));
    }
    Ok(input)
}
