//! Events: what a run emits, and what it waits for.

use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Op, Payload, Timestamp,
    program::Command,
    topic::{EVENT_BYTES_MAX, EventWait, NewEvent, parts, topic_of},
};

use super::{Wait, outgoing::Outgoing};
use crate::{Ctx, Error, Result, Span};

/// An event that a run waited for: see [`Ctx::wait_for`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event<T> {
    /// Its id.
    pub id: String,
    /// Its name: `order/paid`.
    pub name: String,
    /// When it was accepted.
    pub at: Timestamp,
    /// What it says.
    pub data: T,
}

/// A wait for an event: see [`Ctx::wait_for`].
///
/// ```
/// # use stepwell::prelude::*;
/// use stepwell::testing::Test;
///
/// #[derive(Serialize, Deserialize)]
/// struct Order { id: u64 }
///
/// #[workflow]
/// async fn ship(ctx: Ctx, order: Order) -> Result<String> {
///     let paid = ctx.wait_for::<Order>("order/paid").matching("event.data.id == input.id").within("3 days");
///     match paid.or_none().await? {
///         Some(event) => Ok(format!("shipped order {}", event.data.id)),
///         None => Ok(format!("gave up on order {}", order.id)),
///     }
/// }
///
/// let test = Test::new(App::new().workflow(ship)).emit("order/paid", &Order { id: 7 });
/// assert_eq!(test.run("ship", &Order { id: 7 }).output::<String>(), "shipped order 7");
/// ```
#[must_use = "a wait does nothing until it is awaited"]
pub struct WaitFor<T> {
    ctx: Ctx,
    op: Op,
    wait: EventWait,
    timeout: Option<Span>,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> WaitFor<T> {
    pub(crate) fn new(ctx: Ctx, op: Op, on: String) -> Self {
        if topic_of(&on).is_none() {
            let text = format!("'{on}' names no events: write a name such as 'order/paid', or 'order/*'");
            ctx.state.borrow_mut().fail(Error::terminal(text));
        }
        let wait = EventWait { on, when: None, looking_back_ms: None, cancels: false };
        Self { ctx, op, wait, timeout: None, payload: PhantomData }
    }

    /// A condition on the event: an expression over `event`, and over `input`, what the run was started with:
    /// `.matching("event.data.id == input.id")`.
    ///
    /// With an `==` between a field of the event and a value or a field of the input, Stepwell finds the waits of an event
    /// by an index, however many there are.
    pub fn matching(mut self, condition: impl Into<String>) -> Self {
        self.wait.when = Some(condition.into());
        self
    }

    /// Gives up after this long: `.within("3 days")`.
    pub fn within(mut self, timeout: impl Into<Span>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Also takes an event that came up to this long before the wait began: `.looking_back("10 minutes")`. 10 seconds, if it
    /// is not set; at most 7 days, and the latest 5,000 events (32 MiB) of the topic.
    pub fn looking_back(mut self, span: impl Into<Span>) -> Self {
        self.wait.looking_back_ms = self.ctx.millis_of(span.into());
        self
    }

    /// Waits for the event, or until the time is over: [`WaitError::TimedOut`](crate::WaitError::TimedOut).
    pub fn wait(self) -> Wait<Event<T>> {
        let wait = Wait::for_event(self.ctx, self.op, self.wait);
        match self.timeout {
            Some(timeout) => wait.timeout(timeout),
            None => wait,
        }
    }

    /// Like [`Self::wait`], and returns `None` if the time is over first.
    pub async fn or_none(self) -> Result<Option<Event<T>>> {
        self.wait().or_none().await
    }
}

impl<T: DeserializeOwned> IntoFuture for WaitFor<T> {
    type Output = <Wait<Event<T>> as Future>::Output;
    type IntoFuture = Wait<Event<T>>;

    fn into_future(self) -> Wait<Event<T>> {
        self.wait()
    }
}

/// An event that a run emits, as a future: see [`Ctx::emit`].
#[must_use = "an event is not emitted until it is awaited"]
pub struct Emit(Outgoing);

impl Emit {
    pub(crate) fn new<T: Serialize + ?Sized>(ctx: Ctx, op: Op, name: String, data: &T) -> Self {
        let event = event(&ctx, &op, name, Payload::encode(data).map_err(Error::from));
        let command = event.map(|event| Command::Emitted { op: op.clone(), event: Box::new(event) });
        Self(Outgoing::new(ctx, op, command))
    }
}

fn event(ctx: &Ctx, op: &Op, name: String, data: Result<Payload>) -> Result<NewEvent> {
    if parts(&name).is_none() {
        let text = format!("'{name}' is no name of an event: it has two parts, as in 'order/paid'");
        return Err(Error::terminal(text));
    }
    let data =
        data.map_err(|error| Error::terminal(format!("the data cannot be written as JSON: {error}")))?;
    if data.size() > EVENT_BYTES_MAX {
        let text = format!("the data has {} bytes of JSON, the most is {EVENT_BYTES_MAX}", data.size());
        return Err(Error::terminal(text));
    }
    Ok(NewEvent::of_run(ctx.run_id(), ctx.life(), op, name, data))
}

impl Future for Emit {
    type Output = Result<String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(|id| id.decode().unwrap_or_default())
    }
}
