//! A wait for a signal.

use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use serde::de::DeserializeOwned;
use stepwell_protocol::{Op, Shape, topic::EventWait, wait_token::Asked};

use crate::{Ctx, Span, shape::shape_of, vm::Wanted};

/// A wait for a signal, as a future: see [`Ctx::wait`].
#[must_use = "a wait does nothing until it is awaited"]
pub struct Wait<T> {
    ctx: Ctx,
    op: Op,
    timeout_ms: Option<u64>,
    shape: Shape,
    asked: Option<Asked>,
    event: Option<EventWait>,
    payload: PhantomData<fn() -> T>,
}

/// Why a wait returned no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// No signal arrived in time.
    #[error("no signal '{signal}' came in time")]
    TimedOut {
        /// The signal that was waited for.
        signal: String,
    },
    /// The signal's payload does not fit the type of the wait.
    #[error("signal '{signal}' came with something else than expected: {reason}")]
    Unreadable {
        /// The signal that was waited for.
        signal: String,
        /// Why the payload does not fit.
        reason: String,
    },
}

impl<T: DeserializeOwned> Wait<T> {
    pub(crate) fn new(ctx: Ctx, op: Op) -> Self {
        let shape = shape_of::<T>();
        Self { ctx, op, timeout_ms: None, shape, asked: None, event: None, payload: PhantomData }
    }

    /// The wait for an event. One that does not fit the type is for the workflow to see.
    pub(crate) fn for_event(ctx: Ctx, op: Op, event: EventWait) -> Self {
        let mut wait = Self::new(ctx, op);
        (wait.shape, wait.event) = (Shape::Any, Some(event));
        wait
    }

    /// The wait of a token.
    pub(crate) fn asking(ctx: Ctx, op: Op, asked: Asked) -> Self {
        let mut wait = Self::new(ctx, op);
        wait.asked = Some(asked);
        wait
    }

    /// Gives up after this long: `.timeout("3 days")`.
    pub fn timeout(mut self, timeout: impl Into<Span>) -> Self {
        self.timeout_ms = self.ctx.millis_of(timeout.into());
        self
    }

    /// Returns `None` instead of [`WaitError::TimedOut`] when the wait times out.
    ///
    /// ```
    /// # use stepwell::prelude::*;
    /// # #[workflow]
    /// # async fn approval(ctx: Ctx) -> Result<&'static str> {
    /// match ctx.wait::<bool>("decision").timeout("3 days").or_none().await? {
    ///     Some(true) => Ok("approved"),
    ///     Some(false) => Ok("rejected"),
    ///     None => Ok("nobody decided"),
    /// }
    /// # }
    /// # let _ = approval;
    /// ```
    pub async fn or_none(self) -> crate::Result<Option<T>> {
        match self.await {
            Ok(value) => Ok(Some(value)),
            Err(WaitError::TimedOut { .. }) => Ok(None),
            Err(unreadable @ WaitError::Unreadable { .. }) => Err(unreadable.into()),
        }
    }
}

impl<T: DeserializeOwned> Future for Wait<T> {
    type Output = Result<T, WaitError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { ctx, op, timeout_ms, shape, asked, event, .. } = &*self;
        let wanted = Wanted { timeout_ms: *timeout_ms, shape, asked: asked.as_ref(), event: event.as_ref() };
        let polled = ctx.state.borrow_mut().poll_wait(op, &wanted, cx.waker());
        polled.map(|answer| {
            let signal = self.op.name.clone();
            match answer {
                None => Err(WaitError::TimedOut { signal }),
                Some(payload) => payload
                    .decode()
                    .map_err(|error| WaitError::Unreadable { signal, reason: error.to_string() }),
            }
        })
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        self.ctx.state.borrow_mut().forget_wait(&self.op, self.asked.is_some());
    }
}
