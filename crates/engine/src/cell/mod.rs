//! The cell: a Durable Object that holds many runs.
//!
//! Owns: their rows, its alarm, the calls of their programs. All that it keeps in memory is a cache of rows
//! and the calls under way; whoever loads the object next can do without.

mod alarm;
mod call;
mod dispatch;
mod drive;
mod fault;
mod listeners;
mod requests;
mod session;
mod store;

use std::{
    cell::{Cell as Slot, OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use stepwell_core::{run::Run, window::Window};
use stepwell_protocol::Timestamp;
use wasm_bindgen::{JsCast, JsValue};
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};

use crate::{runtime, settings::Settings};
pub use call::{Call, Operation};
use listeners::Listeners;
use store::Store;

/// A Durable Object that holds many runs.
#[durable_object(alarm)]
pub struct Cell {
    host: Rc<Host>,
}

/// What the cell's files share.
struct Host {
    state: State,
    env: Env,
    settings: Settings,
    storage: runtime::Storage,
    store: Store,
    /// The runs that are pending or running, and no others.
    runs: RefCell<BTreeMap<u64, Run>>,
    window: RefCell<Window>,
    listeners: RefCell<Listeners>,
    /// When the alarm is set for, as far as this instance knows.
    armed: Slot<Option<Timestamp>>,
    /// Up to where due rows were looked at: wake time and run number.
    scanned: Slot<(Timestamp, u64)>,
    /// The latest time that was given out: the clock may be set back, a run's time never is.
    latest: Slot<Timestamp>,
    /// Whether this instance has compared the alarm with the rows.
    repaired: Slot<bool>,
    /// The function that all sessions call.
    session_call: OnceCell<JsValue>,
}

impl DurableObject for Cell {
    fn new(state: State, env: Env) -> Self {
        let settings = Settings::of(&env);
        let storage: runtime::Storage = JsValue::from(state.storage().as_raw()).unchecked_into();
        let store = Store::new(storage.clone());
        // Nothing is written here: an alarm armed while the object is loaded for an alarm would cancel the
        // very call that loads it.
        let host = Host {
            state,
            env,
            settings,
            storage,
            store,
            runs: RefCell::default(),
            window: RefCell::new(Window::new(settings.window)),
            listeners: RefCell::default(),
            armed: Slot::new(None),
            scanned: Slot::default(),
            latest: Slot::default(),
            session_call: OnceCell::new(),
            repaired: Slot::new(false),
        };
        Self { host: Rc::new(host) }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        self.host.repair_alarm();
        self.host.answer(request).await
    }

    async fn alarm(&self) -> Result<Response> {
        self.host.on_alarm().map_err(|fault| fault.to_string())?;
        Response::empty()
    }
}

impl Host {
    /// The time, which never goes back while this instance lives.
    fn now(&self) -> Timestamp {
        let now = self.latest.get().max(runtime::clock());
        self.latest.set(now);
        now
    }
}
