//! What ends with an attempt.

#[cfg(target_arch = "wasm32")]
use std::cell::RefCell;
use std::{cell::Cell, rc::Rc};

/// Ends what an attempt has begun elsewhere, when the attempt is dropped before its code has ended.
pub(super) struct Abort {
    aborted: Cell<bool>,
    /// Where the program sees that it has to listen for the run's end.
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "native code makes no calls"))]
    calls: Rc<Cell<bool>>,
    /// Made when somebody asks for its signal.
    #[cfg(target_arch = "wasm32")]
    controller: RefCell<Option<worker::AbortController>>,
}

impl Abort {
    pub fn new(calls: Rc<Cell<bool>>) -> Self {
        Self {
            aborted: Cell::new(false),
            calls,
            #[cfg(target_arch = "wasm32")]
            controller: RefCell::default(),
        }
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.get()
    }

    #[cfg(target_arch = "wasm32")]
    pub fn signal(&self) -> worker::AbortSignal {
        if self.is_aborted() {
            return worker::AbortSignal::abort();
        }
        self.calls.set(true);
        self.controller.borrow_mut().get_or_insert_default().signal()
    }

    fn abort(&self) {
        self.aborted.set(true);
        #[cfg(target_arch = "wasm32")]
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }
}

/// An attempt under way: aborts unless its code has ended.
pub(super) struct Attempt {
    abort: Rc<Abort>,
    is_over: Cell<bool>,
}

impl Attempt {
    pub fn of(abort: Rc<Abort>) -> Self {
        Self { abort, is_over: Cell::new(false) }
    }

    /// Its code has ended by itself.
    pub fn ended(&self) {
        self.is_over.set(true);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.abort.abort();
        }
    }
}
