//! What steps do in these tests: they take virtual time, and leave notes.

use std::{cell::RefCell, future::poll_fn, task::Poll, time::Duration};

use stepwell::testing::{
    self,
    engine::{Death, Ended, Engine},
};

thread_local! {
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How much virtual time a tick is.
pub const TICK_MS: u64 = 10;

/// What a step's code takes: virtual time that is not durable.
pub async fn takes(ticks: u64) {
    testing::takes(Duration::from_millis(ticks * TICK_MS)).await;
}

/// One tick passes.
pub fn tick(engine: &mut Engine) {
    engine.pass(engine.now.plus_millis(TICK_MS));
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

/// Something that a test wants to know afterwards.
pub fn note(text: impl Into<String>) {
    NOTES.with_borrow_mut(|notes| notes.push(text.into()));
}

/// All that was noted since this was last asked.
pub fn take_notes() -> Vec<String> {
    NOTES.take()
}

/// Runs the same run with a death before and after each of its commits, and asserts the same end.
pub fn dies_everywhere(make: impl Fn() -> Engine) -> Ended {
    let mut calm = make();
    let expected = calm.finish();
    for number in 1..=calm.commits.len() {
        for death in [Death::After(number), Death::Before(number)] {
            assert_eq!(make().dies(death).finish(), expected, "{death:?}");
        }
    }
    assert_eq!(make().dies(Death::AfterEachRecord).finish(), expected, "after each record");
    assert_eq!(make().dies(Death::AfterEachRecord).pages_of(1).finish(), expected, "in pages of one");
    expected
}
