//! Virtual time: it passes only when nothing else is left to do, and then at once.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use crate::{
    ops::millis,
    vm::{Clock, Timer},
};

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(0) };
    static SLEEPERS: RefCell<BTreeMap<u64, Vec<Waker>>> = const { RefCell::new(BTreeMap::new()) };
    // Those who do not make time pass: they are woken when something else does.
    static BYSTANDERS: RefCell<BTreeMap<u64, Vec<Waker>>> = const { RefCell::new(BTreeMap::new()) };
}

type Waiting = std::thread::LocalKey<RefCell<BTreeMap<u64, Vec<Waker>>>>;

/// What a step's code takes in a test: virtual time, which is over at once when nothing else happens.
///
/// For the code of steps and for mocks. A workflow itself sleeps with [`crate::Ctx::sleep`].
pub async fn takes(duration: Duration) {
    wait_ms(&SLEEPERS, millis(duration)).await;
}

async fn wait_ms(among: &'static Waiting, ms: u64) {
    let end = NOW_MS.get().saturating_add(ms);
    poll_fn(|cx| {
        if NOW_MS.get() >= end {
            return Poll::Ready(());
        }
        among.with_borrow_mut(|sleepers| sleepers.entry(end).or_default().push(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// For steps with a time-out.
pub fn timer() -> Timer {
    Rc::new(|ms| Box::pin(wait_ms(&SLEEPERS, ms)))
}

/// For steps that say nothing about how long they may take. Their code may really wait for something, so that no virtual
/// time passes by itself.
pub fn default_timer() -> Timer {
    Rc::new(|ms| Box::pin(wait_ms(&BYSTANDERS, ms)))
}

/// The clock of the code.
pub fn clock() -> Clock {
    Rc::new(|| NOW_MS.get())
}

/// Another run goes on in time of its own, while this one's stands still.
pub(super) fn beside<T>(run: impl FnOnce() -> T) -> T {
    let kept = (NOW_MS.get(), SLEEPERS.take(), BYSTANDERS.take());
    let result = run();
    NOW_MS.set(kept.0);
    SLEEPERS.set(kept.1);
    BYSTANDERS.set(kept.2);
    result
}

/// A run begins at this time, or goes on after all that was under way was lost.
pub(super) fn reset(now_ms: u64) {
    NOW_MS.set(now_ms);
    SLEEPERS.take();
    BYSTANDERS.take();
}

/// When the next code has waited long enough.
pub(super) fn next() -> Option<u64> {
    let first = |waiting: &'static Waiting| waiting.with_borrow(|sleepers| sleepers.keys().next().copied());
    let next = first(&SLEEPERS)?;
    Some(first(&BYSTANDERS).map_or(next, |bystander| bystander.min(next)))
}

/// Time passes: whoever has waited long enough goes on.
pub(super) fn advance_to(now_ms: u64) {
    NOW_MS.set(now_ms);
    for waiting in [&SLEEPERS, &BYSTANDERS] {
        let due = waiting.with_borrow_mut(|sleepers| {
            let later = sleepers.split_off(&now_ms.saturating_add(1));
            std::mem::replace(sleepers, later)
        });
        due.into_values().flatten().for_each(Waker::wake);
    }
}
