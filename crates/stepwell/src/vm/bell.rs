//! What workflows and steps' code are polled with: passes every wake on, and remembers that there was one.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

/// Rings when something in the workflow wants to be polled.
pub struct Bell {
    has_rung: AtomicBool,
    driver: Mutex<Waker>,
}

impl Default for Bell {
    fn default() -> Self {
        Self { has_rung: AtomicBool::new(false), driver: Mutex::new(Waker::noop().clone()) }
    }
}

impl Bell {
    /// Says who is to hear it.
    pub fn hang(&self, driver: &Waker) {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone_from(driver);
    }

    pub fn silence(&self) {
        self.has_rung.store(false, Ordering::Release);
    }

    pub fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        driver.wake();
    }
}

/// What a step's code is polled with.
pub struct CodeBell(Mutex<Code>);

struct Code {
    /// Whether it was woken since it was last polled.
    wants_poll: bool,
    outer: Waker,
}

impl CodeBell {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Code { wants_poll: false, outer: Waker::noop().clone() })))
    }

    /// The code is about to be polled; whoever polls it hears when it wants that again.
    pub fn hang(&self, outer: &Waker) {
        let mut code = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        code.wants_poll = false;
        code.outer.clone_from(outer);
    }

    pub fn wants_poll(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wants_poll
    }
}

impl Wake for CodeBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Both under the lock: who sees that the code wants to be polled also sees that the workflow does.
        let mut code = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        code.wants_poll = true;
        code.outer.wake_by_ref();
    }
}
