//! A step for each item, several at once.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use futures::{StreamExt, stream};
use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{Op, program::Retry};

use super::{LaneKey, Policy, Step, StepInfo};
use crate::{Ctx, Result, Span, vm::Line};

/// How many steps of one [`Each`] run at once, unless it says otherwise. A Worker has six connections.
const AT_ONCE: usize = 6;

/// How many steps of one [`Each`] have begun and not ended, at the most. All but [`AT_ONCE`] of them wait for a place or
/// for their next attempt; each of the latter is in every message that says what the run waits for.
const BEGUN_MAX: usize = 1_000;

/// A step for each item of a list, as a future: see [`Ctx::each`].
///
/// Awaiting it returns all results in the order of the items, or the error of the first item that failed. Use
/// [`Each::results`] to get all of them.
///
/// ```
/// use stepwell::{prelude::*, testing::Test};
///
/// #[workflow]
/// async fn notify(ctx: Ctx, addresses: Vec<String>) -> Result<Vec<usize>> {
///     ctx.each("notify", &addresses, async |address, _| Ok(address.len())).await
/// }
///
/// let outcome = Test::new(App::new().workflow(notify)).run("notify", &["ada", "grace"]);
/// assert_eq!(outcome.output::<Vec<usize>>(), [3, 5]);
/// ```
#[must_use = "steps do nothing until they are awaited"]
pub struct Each<'a, T> {
    ctx: Ctx,
    settings: Rc<RefCell<Settings>>,
    future: Pin<Box<dyn Future<Output = Vec<Result<T>>> + 'a>>,
}

struct Settings {
    policy: Policy,
    at_once: usize,
}

impl<'a, T: Serialize + DeserializeOwned + 'a> Each<'a, T> {
    pub(crate) fn new<I, F>(ctx: Ctx, items: Vec<(Op, I)>, code: F) -> Self
    where
        I: Clone + 'a,
        F: AsyncFn(I, StepInfo) -> Result<T> + 'a,
    {
        let settings = Rc::new(RefCell::new(Settings { policy: Policy::default(), at_once: AT_ONCE }));
        let future = Box::pin(run(ctx.clone(), items, settings.clone(), code));
        Self { ctx, settings, future }
    }
}

impl<T> Each<'_, T> {
    /// Sets the maximum number of steps that run at the same time. The default is 6. A step that waits for its next
    /// attempt does not count.
    pub fn at_once(self, steps: usize) -> Self {
        self.settings.borrow_mut().at_once = steps.max(1);
        self
    }

    /// Sets the retry policy of each step.
    pub fn retry(self, retry: Retry) -> Self {
        self.settings.borrow_mut().policy.retry = retry;
        self
    }

    /// Sets the maximum number of attempts of each step.
    pub fn attempts(self, attempts: u32) -> Self {
        self.settings.borrow_mut().policy.retry.attempts = attempts.max(1);
        self
    }

    /// Limits each attempt of each step.
    pub fn timeout(self, timeout: impl Into<Span>) -> Self {
        self.settings.borrow_mut().policy.timeout_ms = self.ctx.millis_of(timeout.into());
        self
    }

    /// Never runs the code for an item twice: see [`Step::at_most_once`].
    pub fn at_most_once(self) -> Self {
        self.settings.borrow_mut().policy.at_most_once = true;
        self
    }

    /// Runs each step only when a lane lets it in: see [`Step::lane`]. A step in line counts for [`Self::at_once`].
    pub fn lane(self, name: impl Into<String>, key: impl LaneKey) -> Self {
        self.settings.borrow_mut().policy.enter(&self.ctx, name.into(), key.into_key());
        self
    }

    /// Sets the number of the lane's limit: see [`Step::limit`].
    pub fn limit(self, max: u32) -> Self {
        self.settings.borrow_mut().policy.limit(&self.ctx, |limit| limit.max = max);
        self
    }

    /// Makes the lane's limit a rate: see [`Step::per`].
    pub fn per(self, time: impl Into<Span>) -> Self {
        let per_ms = self.ctx.millis_of(time.into());
        self.settings.borrow_mut().policy.limit(&self.ctx, |limit| limit.per_ms = per_ms);
        self
    }

    /// The result for each item, in the order of the items.
    pub async fn results(self) -> Vec<Result<T>> {
        self.future.await
    }
}

async fn run<I, T, F>(
    ctx: Ctx,
    items: Vec<(Op, I)>,
    settings: Rc<RefCell<Settings>>,
    code: F,
) -> Vec<Result<T>>
where
    I: Clone,
    T: Serialize + DeserializeOwned,
    F: AsyncFn(I, StepInfo) -> Result<T>,
{
    let (policy, at_once) = {
        let settings = settings.borrow();
        let line = Some(Line::new(settings.at_once));
        (Policy { line, ..settings.policy.clone() }, settings.at_once)
    };
    let code = &code;
    let steps = items.into_iter().enumerate().map(|(index, (op, item))| {
        let step =
            Step::new(ctx.clone(), op, policy.clone(), async move |info| code(item.clone(), info).await);
        async move { (index, step.await) }
    });
    let mut results: Vec<_> = stream::iter(steps).buffer_unordered(BEGUN_MAX.max(at_once)).collect().await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

impl<T> Future for Each<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx).map(|results| results.into_iter().collect())
    }
}
