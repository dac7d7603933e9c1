//! Runs futures on the runtime's promises: the activations of programs, and what the engine's objects do.
//!
//! The executor that comes with wasm-bindgen wakes a future by asking the runtime for a microtask, and makes two
//! functions for each promise that it awaits, with finalizers. Here a promise polls its future in the very turn
//! that brings its value, and the functions are JavaScript's own. Each commit of a step is one such promise, and each
//! start of a run a few.
//!
//! Owns: which futures there are, which of them want to be polled, and which promises they wait for. Everything is
//! polled from a promise's reaction, never from within a call: whatever stops the instance is then an error that
//! the runtime reports to those who listen for it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use js_sys::{Error, Function, Promise};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(inline_js = r#"
const now = Promise.resolve();
// Thrown in a reaction it would only reject a promise that nobody looks at; and whoever cleans up after an instance
// that was stopped has to hear of it before anything else runs.
function act(call, slot, isGood, value) {
  try { call(slot, isGood, value); } catch (thrown) { reportError(thrown); }
}
export function soon(call) { now.then(() => act(call)); }
export function watch(promise, call, slot) {
  promise.then((value) => act(call, slot, true, value), (thrown) => act(call, slot, false, thrown));
}
"#)]
extern "C" {
    /// Calls a function when the present turn is over.
    fn soon(call: &JsValue);

    /// Calls a function with this number when a promise is settled.
    fn watch(promise: &JsValue, call: &JsValue, slot: u32);
}

thread_local! {
    static EXECUTOR: Executor = Executor::new();
}

/// A promise of what a future gives.
pub fn promise(future: impl Future<Output = Result<JsValue, JsValue>> + 'static) -> Promise {
    let mut settle = None;
    // Nothing in it can panic.
    let mut take = AssertUnwindSafe(|resolve, reject| settle = Some((resolve, reject)));
    let promise = Promise::new(&mut move |resolve, reject| {
        let AssertUnwindSafe(take) = &mut take;
        take(resolve, reject);
    });
    let (resolve, reject) = settle.expect("the constructor of promises calls its argument at once");
    EXECUTOR.with(|executor| executor.begin(Box::pin(future), resolve, reject));
    promise
}

/// What a promise gives, or anything that has its method `then`.
pub fn settled(promise: &JsValue) -> Settled {
    Settled(EXECUTOR.with(|executor| executor.watch(promise)))
}

/// See [`settled`].
pub struct Settled(u32);

impl Future for Settled {
    type Output = Result<JsValue, JsValue>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        EXECUTOR.with(|executor| executor.poll_settled(self.0, cx.waker()))
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        EXECUTOR.with(|executor| executor.awaited.borrow_mut().remove(&self.0));
    }
}

type Running = Pin<Box<dyn Future<Output = Result<JsValue, JsValue>>>>;

struct Task {
    future: Running,
    bell: Arc<Bell>,
    resolve: Function,
    reject: Function,
}

/// What a task is polled with.
struct Bell {
    task: u32,
    has_rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            EXECUTOR.with(|executor| executor.wake(self.task));
        }
    }
}

/// A promise that somebody waits for.
#[derive(Default)]
struct Awaited {
    result: Option<Result<JsValue, JsValue>>,
    waker: Option<Waker>,
}

struct Executor {
    tasks: RefCell<BTreeMap<u32, Task>>,
    awaited: RefCell<BTreeMap<u32, Awaited>>,
    ready: RefCell<VecDeque<u32>>,
    /// Numbers for tasks and promises.
    count: Cell<u32>,
    /// Whether `ready` is being looked at, or will be in this turn.
    busy: Cell<bool>,
    /// Whether it will be looked at in a later turn.
    scheduled: Cell<bool>,
    /// The functions that JavaScript calls; they live as long as the instance.
    on_turn: JsValue,
    on_settled: JsValue,
}

impl Executor {
    fn new() -> Self {
        let on_turn = Closure::<dyn Fn()>::new(|| EXECUTOR.with(Self::turn));
        let on_settled = Closure::<dyn Fn(u32, bool, JsValue)>::new(|slot, is_good, value| {
            EXECUTOR.with(|executor| executor.settle(slot, if is_good { Ok(value) } else { Err(value) }));
        });
        Self {
            tasks: RefCell::default(),
            awaited: RefCell::default(),
            ready: RefCell::default(),
            count: Cell::default(),
            busy: Cell::default(),
            scheduled: Cell::default(),
            on_turn: on_turn.into_js_value(),
            on_settled: on_settled.into_js_value(),
        }
    }

    fn next_number(&self) -> u32 {
        let number = self.count.get();
        self.count.set(number.wrapping_add(1));
        number
    }

    fn begin(&self, future: Running, resolve: Function, reject: Function) {
        let task = self.next_number();
        let bell = Arc::new(Bell { task, has_rung: AtomicBool::new(true) });
        self.tasks.borrow_mut().insert(task, Task { future, bell, resolve, reject });
        self.wake(task);
    }

    fn wake(&self, task: u32) {
        self.ready.borrow_mut().push_back(task);
        if !self.busy.get() {
            self.schedule();
        }
    }

    fn schedule(&self) {
        if !self.scheduled.replace(true) {
            soon(&self.on_turn);
        }
    }

    fn turn(&self) {
        self.scheduled.set(false);
        self.busy.set(true);
        self.poll_ready();
    }

    fn watch(&self, promise: &JsValue) -> u32 {
        let slot = self.next_number();
        self.awaited.borrow_mut().insert(slot, Awaited::default());
        watch(promise, &self.on_settled, slot);
        slot
    }

    fn poll_settled(&self, slot: u32, waker: &Waker) -> Poll<Result<JsValue, JsValue>> {
        let mut awaited = self.awaited.borrow_mut();
        let awaited = awaited.entry(slot).or_default();
        match awaited.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                awaited.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    fn settle(&self, slot: u32, result: Result<JsValue, JsValue>) {
        let waker = {
            let mut awaited = self.awaited.borrow_mut();
            // Nobody waits for it any more.
            let Some(awaited) = awaited.get_mut(&slot) else { return };
            awaited.result = Some(result);
            awaited.waker.take()
        };
        let Some(waker) = waker else { return };
        self.busy.set(true);
        waker.wake();
        self.poll_ready();
    }

    /// Polls those who want it now. Whoever wants it again, or is woken by them, has his turn later.
    fn poll_ready(&self) {
        let count = self.ready.borrow().len();
        for _ in 0..count {
            let Some(number) = self.ready.borrow_mut().pop_front() else { break };
            // Taken out while it is polled: it may begin others.
            let Some(task) = self.tasks.borrow_mut().remove(&number) else { continue };
            if let Some(task) = task.poll() {
                self.tasks.borrow_mut().insert(number, task);
            }
        }
        self.busy.set(false);
        if !self.ready.borrow().is_empty() {
            self.schedule();
        }
    }
}

impl Task {
    /// Gives itself back, unless it is over.
    fn poll(mut self) -> Option<Self> {
        self.bell.has_rung.store(false, Ordering::Release);
        let waker = Waker::from(self.bell.clone());
        let future = self.future.as_mut();
        // Where panics unwind: a promise that is never settled would keep its caller waiting.
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker))));
        let (settle, value) = match polled {
            Ok(Poll::Pending) => return Some(self),
            Ok(Poll::Ready(Ok(value))) => (&self.resolve, value),
            Ok(Poll::Ready(Err(thrown))) => (&self.reject, thrown),
            Err(_) => (&self.reject, Error::new("the code panicked").into()),
        };
        // The functions that settle a promise throw nothing.
        let _ = settle.call1(&JsValue::UNDEFINED, &value);
        None
    }
}
