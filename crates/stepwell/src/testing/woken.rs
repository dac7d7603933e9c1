//! How a run's thread is woken.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// How long code may wait for something that is not of this thread, in real time.
const REAL_WAIT: Duration = Duration::from_secs(10);

/// Wakes the thread that drives a run.
pub(super) struct Woken {
    set: AtomicBool,
    driver: Thread,
}

impl Woken {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { set: AtomicBool::new(false), driver: thread::current() })
    }

    pub(super) fn clear(&self) {
        self.set.store(false, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits in real time, for code that waits for another thread.
    pub(super) fn wait(&self) {
        let end = Instant::now() + REAL_WAIT;
        while !self.is_set() {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "a step's code has waited for {REAL_WAIT:?} for something that does not happen in this test: mock \
                 the step"
            );
            thread::park_timeout(left);
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.set.store(true, Ordering::Release);
        self.driver.unpark();
    }
}
