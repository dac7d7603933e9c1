//! A wait for a signal.

use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use serde::de::DeserializeOwned;
use stepwell_protocol::Op;

use super::millis;
use crate::Ctx;

/// A wait that was named but not awaited yet, or is under way.
#[must_use = "a wait does nothing until it is awaited"]
pub struct Wait<T> {
    ctx: Ctx,
    op: Op,
    timeout_ms: Option<u64>,
    payload: PhantomData<fn() -> T>,
}

/// Why a wait gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// Nothing came in time.
    #[error("no signal '{signal}' came in time")]
    TimedOut {
        /// The signal that was waited for.
        signal: String,
    },
    /// Something came that is not of the type that was waited for.
    #[error("signal '{signal}' came with something else than expected: {reason}")]
    Unreadable {
        /// The signal that was waited for.
        signal: String,
        /// What is wrong with what came.
        reason: String,
    },
}

impl<T: DeserializeOwned> Wait<T> {
    pub(crate) fn new(ctx: Ctx, op: Op) -> Self {
        Self { ctx, op, timeout_ms: None, payload: PhantomData }
    }

    /// Gives up after this long.
    pub fn timeout(mut self, duration: Duration) -> Self {
        self.timeout_ms = Some(millis(duration));
        self
    }
}

impl<T: DeserializeOwned> Future for Wait<T> {
    type Output = Result<T, WaitError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.ctx.state.borrow_mut().poll_wait(&self.op, self.timeout_ms, cx.waker());
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
        self.ctx.state.borrow_mut().forget(&self.op);
    }
}
