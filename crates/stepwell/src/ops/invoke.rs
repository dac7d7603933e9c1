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

/// A child that was named but not awaited yet, or is under way: see [`Ctx::invoke`].
///
/// Awaited, it starts a run of the workflow and gives what that returns. While it waits, the run costs nothing. A child
/// that fails, is cancelled, or takes longer than [`Self::timeout`] is an error: [`Error::child`] has its id,
/// [`Error::code`] and [`Error::message`] say what happened.
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
/// A run has up to 1,000 children that have not ended, and stands below up to 16 others: one more fails at once with
/// `too_many_children`. A child is invoked once, however often its parent is replayed. It needs no idempotency key, even
/// if its workflow requires one.
///
/// Dropping the future does not end the child: what loses a `select` goes on until the run ends, and is then cancelled,
/// or left to itself with [`OnClose::Abandon`].
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
            })
        });
        Self { call: Call { ctx, op, invocation, on_close: None, timeout_ms: None }, output: PhantomData }
    }

    /// Gives up on the child after this long: `.timeout("10m")`. It fails with `child_timed_out`, and is then cancelled,
    /// or left to itself: see [`Self::on_close`].
    pub fn timeout(mut self, timeout: impl Into<Span>) -> Self {
        self.call.timeout_ms = self.call.ctx.millis_of(timeout.into());
        self
    }

    /// Says what becomes of the child when the run ends, continues as new, is taken back to before it, or has waited for
    /// long enough: it is cancelled, unless this says [`OnClose::Abandon`].
    pub fn on_close(mut self, on_close: OnClose) -> Self {
        self.call.on_close = Some(on_close);
        self
    }

    /// Names the invocation in the run's history, instead of by its workflow. As with steps, the name and how often it
    /// came before identify it on replay.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.call.rename(name.into());
        self
    }

    /// Goes on as soon as the child is started, with its id, and hears nothing of its end:
    /// `let audit: RunId = ctx.invoke(audit, event).detached().await?`.
    ///
    /// The child goes on by itself when the run ends, unless [`Detached::on_close`] says otherwise.
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

/// A child that is started and not waited for: see [`Invoke::detached`].
#[must_use = "a child is not invoked until it is awaited"]
pub struct Detached {
    call: Call,
}

impl Detached {
    /// Says what becomes of the child when the run ends: [`OnClose::Cancel`] cancels it.
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
