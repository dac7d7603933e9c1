//! A sleep.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use stepwell_protocol::Op;

use crate::{Ctx, vm::Length};

/// A sleep, as a future: see [`Ctx::sleep`].
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    ctx: Ctx,
    op: Op,
    length: Length,
}

impl Sleep {
    pub(crate) fn new(ctx: Ctx, op: Op, length: Length) -> Self {
        Self { ctx, op, length }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.ctx.state.borrow_mut().poll_sleep(&self.op, self.length, cx.waker())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.ctx.state.borrow_mut().forget(&self.op);
    }
}
