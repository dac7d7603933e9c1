//! What a run sends to others with its next commit: once, however often the run is replayed. On record it is a step.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use stepwell_protocol::{
    Op, Outcome, Payload,
    program::{Command, Retry},
};

use crate::{Ctx, Error, Result, vm::Turn};

/// Something on its way out, as a future that gives what is on record of it.
pub(super) struct Outgoing {
    ctx: Ctx,
    op: Op,
    future: Pin<Box<dyn Future<Output = Result<Payload>>>>,
}

impl Outgoing {
    /// This command, or an error that ends the step.
    pub fn new(ctx: Ctx, op: Op, command: Result<Command>) -> Self {
        let future = Box::pin(send(ctx.clone(), op.clone(), command));
        Self { ctx, op, future }
    }
}

async fn send(ctx: Ctx, op: Op, command: Result<Command>) -> Result<Payload> {
    let mut command = Some(command);
    ctx.state.borrow_mut().begin_step(&op, false, None, None);
    loop {
        match poll_fn(|cx| ctx.state.borrow_mut().poll_step(&op, cx.waker())).await {
            Turn::Finished(Outcome::Ok(recorded)) => return Ok(recorded),
            Turn::Finished(Outcome::Err(failure)) => return Err(Error::of_step(&op.name, failure)),
            Turn::Attempt(attempt) => match command.take() {
                Some(Ok(command)) => ctx.state.borrow_mut().report_outgoing(&op, command),
                Some(Err(error)) => {
                    ctx.state.borrow_mut().report_step(&op, attempt, Err(error), Retry::default(), None);
                }
                // There is only one attempt.
                None => std::future::pending().await,
            },
        }
    }
}

impl Future for Outgoing {
    type Output = Result<Payload>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.ctx.state.borrow_mut().forget(&self.op);
    }
}
