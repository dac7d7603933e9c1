//! What steps do in these tests: they take virtual time, and leave a trace.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    task::{Poll, Waker},
};

use stepwell::StepInfo;

thread_local! {
    static TICK: Cell<u64> = const { Cell::new(0) };
    static SLEEPERS: RefCell<BTreeMap<u64, Vec<Waker>>> = const { RefCell::new(BTreeMap::new()) };
    static TRACE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How much virtual time a tick is.
pub const TICK_MS: u64 = 10;

/// A test begins.
pub fn reset() {
    TICK.set(0);
    SLEEPERS.take();
    TRACE.take();
    NOTES.take();
}

/// One tick passes: whoever has waited long enough goes on.
pub fn tick() {
    TICK.set(TICK.get() + 1);
    for waker in SLEEPERS.with_borrow_mut(|sleepers| sleepers.remove(&TICK.get())).unwrap_or_default() {
        waker.wake();
    }
}

/// What a step's code takes: virtual time that is not durable.
pub async fn takes(ticks: u64) {
    let end = TICK.get() + ticks;
    poll_fn(|cx| {
        if TICK.get() >= end {
            return Poll::Ready(());
        }
        SLEEPERS.with_borrow_mut(|sleepers| sleepers.entry(end).or_default().push(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// Gives way this often, each time asking to be called again.
pub async fn yields(times: u32) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A step's code begins.
pub fn trace(info: &StepInfo) {
    TRACE.with_borrow_mut(|trace| trace.push(info.idempotency_key.clone()));
}

/// The steps whose code has begun since this was last asked, each by its operation.
pub fn take_trace() -> Vec<String> {
    let operation = |key: &String| key.split_once('/').map_or_else(String::new, |(_, op)| op.to_owned());
    TRACE.take().iter().map(operation).collect()
}

/// Something that a test wants to know afterwards, from outside of steps.
pub fn note(text: impl Into<String>) {
    NOTES.with_borrow_mut(|notes| notes.push(text.into()));
}

/// All that was noted since this was last asked.
pub fn take_notes() -> Vec<String> {
    NOTES.take()
}
