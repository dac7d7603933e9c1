//! What all objects of Stepwell have in common on Durable Objects: one host around `stepwell_core::object`.
//!
//! Owns: the platform's alarm, the turn in which a machine is asked and its orders are performed, and how Workers and
//! objects ask each other. What a kind of object has besides is its [`Kind`].

mod ask;
mod fault;
mod kernel;
mod tables;

use std::{
    cell::{Cell as Slot, RefCell},
    future::poll_fn,
    ops::Deref,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use js_sys::Promise;
use stepwell_core::{
    catalog::namespace_deleting,
    object::{Address, Hosted, Machine, Sending},
};
use stepwell_promises as promises;
use stepwell_protocol::Timestamp;
use wasm_bindgen::prelude::*;
use worker::{Env, State, worker_sys::DurableObjectState};

use crate::{guard, log, runtime};
pub use ask::{Answered, ask, ask_whole, body, cell_stub, in_time, rows, status};
pub use fault::{Fault, StoreError};
pub use kernel::{Word, tell};
pub use tables::{Row, Tables, number, time};

/// A call that is being answered.
pub type Answering = Pin<Box<dyn Future<Output = JsValue>>>;

/// What one kind of object has that others do not.
pub trait Kind: Sized + 'static {
    /// Its rows.
    type Store;
    /// What decides.
    type Machine: Machine<Self::Store, Error = StoreError>;

    /// Does what only this kind has to have done.
    fn perform(host: &Rc<Host<Self>>, orders: Vec<<Self::Machine as Hosted>::Order>);

    /// Sends messages to other objects, and tells the machine what became of each.
    fn send(_host: &Rc<Host<Self>>, _sends: Vec<Sending>) {}

    /// Answers a call: a text, for whoever has made it.
    fn answer(host: Rc<Host<Self>>, call: &str) -> Answering;

    /// All that was stored is about to be deleted: lets go of whoever is connected.
    fn end(_host: &Rc<Host<Self>>) {}

    /// Counts rows that the host has written.
    fn count_rows(store: &Self::Store, rows: u64);
}

/// An object, as long as it is loaded.
pub struct Host<K: Kind> {
    pub state: State,
    pub env: Env,
    storage: runtime::Storage,
    pub store: K::Store,
    pub machine: RefCell<K::Machine>,
    kind: K,
    /// The life of its namespace that this object was begun in, once that is known.
    life: Slot<Option<u64>>,
    /// Whether all that was stored here is deleted: this instance only waits for its end.
    is_over: Slot<bool>,
}

/// What an object gets from the platform when it is loaded.
pub struct Loaded {
    pub state: State,
    pub env: Env,
    pub storage: runtime::Storage,
}

impl Clone for Loaded {
    fn clone(&self) -> Self {
        let raw: &JsValue = self.state.as_raw().as_ref();
        let state = State::from(raw.clone().unchecked_into::<DurableObjectState>());
        Self { state, env: self.env.clone(), storage: self.storage.clone() }
    }
}

impl Loaded {
    pub fn new(state: DurableObjectState, env: Env) -> Self {
        let state = State::from(state);
        let storage: runtime::Storage = JsValue::from(state.storage().as_raw()).unchecked_into();
        Self { state, env, storage }
    }
}

impl<K: Kind> Deref for Host<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.kind
    }
}

impl<K: Kind> Host<K> {
    /// Nothing is written here: an alarm armed while the object is loaded for an alarm would cancel the very call that
    /// loads it.
    pub fn new(loaded: Loaded, store: K::Store, machine: K::Machine, kind: K) -> Rc<Self> {
        let Loaded { state, env, storage } = loaded;
        let (life, is_over) = (Slot::new(None), Slot::new(false));
        Rc::new(Self { state, env, storage, store, machine: RefCell::new(machine), kind, life, is_over })
    }

    /// Lets the machine do something, and performs what it orders. No await in here: rows and alarm are one commit, and
    /// calls go out only when that is durable. If the alarm cannot be set, the rest is done all the same: the next turn
    /// sets another one, but nobody knows when that is.
    pub fn turn<T>(
        self: &Rc<Self>,
        act: impl FnOnce(&mut K::Machine, &K::Store, Timestamp) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.check_open()?;
        let mut result = act(&mut self.machine.borrow_mut(), &self.store, runtime::clock());
        let orders = self.machine.borrow_mut().take_orders();
        if let Some(at) = orders.arm
            && let Err(fault) = self.arm(at)
        {
            self.machine.borrow_mut().not_armed();
            result = Err(fault);
        }
        K::perform(self, orders.own);
        if !orders.send.is_empty() {
            K::send(self, orders.send);
        }
        result
    }

    /// Answers a call: at once if nothing has to be waited for, which spares the runtime a promise.
    pub fn ask(self: &Rc<Self>, call: &str) -> JsValue {
        let mut answering = self.heard(call).unwrap_or_else(|| K::answer(self.clone(), call));
        let later = Arc::new(Later::default());
        let waker = Waker::from(later.clone());
        match answering.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                let promised = poll_fn(move |cx| {
                    later.is_for(cx.waker());
                    answering.as_mut().poll(&mut Context::from_waker(&waker)).map(Ok)
                });
                guard::promise(promised).into()
            }
        }
    }

    /// Commits, arms, orders, returns: it never awaits what it has ordered, or everything else that is due would wait
    /// with it. An error makes the platform try again, which is the last resort when the alarm could not be set: it
    /// drops an alarm that has failed about seven times, and whatever else went wrong, the machine comes back to.
    pub fn alarm(self: &Rc<Self>) -> Promise {
        let host = self.clone();
        guard::promise(async move {
            if host.is_over.get() {
                return Ok(JsValue::UNDEFINED);
            }
            host.turn(|machine, store, now| {
                if let Err(fault) = machine.alarm(store, now) {
                    log::error!("an alarm could not read the rows: {}", Fault::from(fault));
                }
                Ok(())
            })
            .map_err(|fault| JsError::new(&fault.to_string()))?;
            Ok(JsValue::UNDEFINED)
        })
    }

    /// To be called before anything that is asked for: a fresh instance looks after its alarm.
    pub async fn repair(self: &Rc<Self>) -> Result<(), Fault> {
        if self.machine.borrow_mut().wants_repair() {
            let alarm = self.armed().await;
            self.machine.borrow_mut().found_alarm(alarm);
        }
        self.turn(|machine, store, now| Ok(machine.repair(store, now)?))?;
        if self.machine.borrow_mut().alarm_was_missing() {
            let id = self.state.id().to_string();
            log::warn!("the alarm of object {id} was missing, and is set again");
        }
        Ok(())
    }

    /// Refuses whatever comes after all was deleted. To be asked after each await, before anything is stored.
    pub fn check_open(&self) -> Result<(), Fault> {
        if self.is_over.get() { Err(namespace_deleting().into()) } else { Ok(()) }
    }

    /// The life of its namespace that this object was begun in; nothing before its first row.
    pub fn life(&self) -> Result<Option<u64>, Fault> {
        if self.life.get().is_none() {
            self.life.set(Tables::new(self.storage.clone(), false).life()?);
        }
        Ok(self.life.get())
    }

    /// Begins the rows of this object: who it is, and in which life of its namespace.
    pub fn begin(&self, address: &Address, life: u64) -> Result<(), Fault> {
        self.check_open()?;
        Tables::new(self.storage.clone(), false).begin(address, life)?;
        self.life.set(Some(life));
        Ok(())
    }

    /// Does something beyond the present call. The object stays awake for it.
    pub fn go_on_with(&self, future: impl Future<Output = ()> + 'static) {
        let promise = promises::promise(async move {
            future.await;
            Ok(JsValue::UNDEFINED)
        });
        if let Err(thrown) = self.state.as_raw().wait_until(&promise) {
            // It goes on all the same, for as long as anybody keeps the object awake.
            log::warn!("the runtime does not wait: {}", runtime::message(&thrown));
        }
    }

    fn arm(&self, at: Timestamp) -> Result<(), Fault> {
        // Part of the commit before it: whoever is answered waits for both.
        #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
        let _written = self.storage.set_alarm(at.as_millis() as f64)?;
        K::count_rows(&self.store, 1);
        Ok(())
    }

    /// What the platform believes the alarm to be set for.
    async fn armed(&self) -> Option<Timestamp> {
        let alarm = runtime::settle(self.storage.get_alarm().ok()?.into()).await.ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds since 1970 are positive and below 2^53"
        )]
        alarm.as_f64().map(|ms| Timestamp::from_millis(ms as u64))
    }
}

/// Passes a wake on to whoever polls in the end: some futures know only who has polled them first.
#[derive(Default)]
struct Later(Mutex<Option<Waker>>);

impl Later {
    fn is_for(&self, waker: &Waker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }
}

impl Wake for Later {
    fn wake(self: Arc<Self>) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
