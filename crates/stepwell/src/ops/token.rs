//! A wait that is completed by a link.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use stepwell_protocol::{
    Op, Timestamp,
    wait_token::{Asked, EXPIRES_MS_DEFAULT},
};

use super::Wait;
use crate::{Ctx, Result, Span};

/// A wait that a person or a system completes by a link, once, without a key: see [`Ctx::token`].
///
/// Opened in a browser, the link shows a page with the title, the detail, and buttons to accept or reject. A system sends
/// JSON to it with `POST`. The answer goes to this wait and no other. Whoever has the link can answer, so send it only to
/// those who may: it is a credential.
///
/// ```
/// # use stepwell::prelude::*;
/// use stepwell::{Decision, testing::Test};
///
/// #[workflow]
/// async fn refund(ctx: Ctx, order: u32) -> Result<bool> {
///     let approval = ctx.token("approval").title(format!("Refund order {order}?")).expires("3 days");
///     ctx.step("mail", async || mail(&approval.url()).await).await?;
///     let answer: Option<Decision> = approval.or_none().await?;
///     Ok(answer.is_some_and(|answer| answer.is_accepted()))
/// }
/// # async fn mail(link: &str) -> Result<()> { ensure!(link.starts_with("https://"), "no link"); Ok(()) }
///
/// let test = Test::new(App::new().workflow(refund)).complete_token("approval", &Decision::accept());
/// assert!(test.run("refund", &42).output::<bool>());
/// ```
#[must_use = "a token does nothing until its wait is awaited"]
pub struct Token<T> {
    ctx: Ctx,
    op: Op,
    made_at: Timestamp,
    asked: Asked,
    /// Whether it has become a wait.
    is_awaited: bool,
    payload: PhantomData<fn() -> T>,
}

impl<T> Drop for Token<T> {
    fn drop(&mut self) {
        if !self.is_awaited {
            self.ctx.state.borrow_mut().forget_wait(&self.op, true);
        }
    }
}

impl<T: DeserializeOwned> Token<T> {
    pub(crate) fn new(ctx: Ctx, op: Op, made_at: Timestamp) -> Self {
        let expires_at = made_at.plus_millis(EXPIRES_MS_DEFAULT);
        let asked = Asked { title: String::new(), detail: String::new(), expires_at };
        Self { ctx, op, made_at, asked, is_awaited: false, payload: PhantomData }
    }

    /// What the page asks, in a line of up to 200 bytes: `.title("Refund order 42?")`. The name, if it is not set.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.asked.title = title.into();
        self
    }

    /// What one has to know to decide, in up to 4096 bytes of plain text. Line breaks are kept.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.asked.detail = detail.into();
        self
    }

    /// How long the link works, and the wait takes: `.expires("3 days")`. 7 days, if it is not set.
    pub fn expires(mut self, after: impl Into<Span>) -> Self {
        if let Some(ms) = self.ctx.millis_of(after.into()) {
            self.asked.expires_at = self.made_at.plus_millis(ms);
        }
        self
    }

    /// The link. It is the same on every replay, and making it costs nothing. Set the expiry first.
    pub fn url(&self) -> String {
        self.ctx.link(&self.op, self.asked.expires_at)
    }

    /// When the link expires.
    pub fn expires_at(&self) -> Timestamp {
        self.asked.expires_at
    }

    /// Waits for the answer, or until the link expires: [`WaitError::TimedOut`](crate::WaitError::TimedOut).
    pub fn wait(mut self) -> Wait<T> {
        self.is_awaited = true;
        Wait::asking(self.ctx.clone(), self.op.clone(), self.asked.clone().bounded())
    }

    /// Like [`Self::wait`], and returns `None` if the link expires first.
    pub async fn or_none(self) -> Result<Option<T>> {
        self.wait().or_none().await
    }
}

impl<T: DeserializeOwned> IntoFuture for Token<T> {
    type Output = <Wait<T> as Future>::Output;
    type IntoFuture = Wait<T>;

    fn into_future(self) -> Wait<T> {
        self.wait()
    }
}
