//! The cell's object: a thin host around `stepwell_core::cell`.
//!
//! Owns: the rows in SQLite, the platform's alarm, the calls of programs, and whoever waits for an answer.
//! Decides nothing: every request, commit and alarm is one [`Host::turn`] of the machine.

#![expect(missing_docs, reason = "`durable_object` writes methods that only the runtime calls")]

mod call;
mod fault;
mod listeners;
mod programs;
mod requests;
mod session;
mod store;
mod tables;

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeSet,
    rc::Rc,
};

use stepwell_core::cell::{Cell as Machine, Order};
use stepwell_protocol::{Epoch, Timestamp};
use wasm_bindgen::prelude::*;
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};

use crate::{runtime, settings::Settings};
pub use call::{Action, Call, Filter, Listed, Operation, Reached};
use fault::Fault;
use listeners::Listeners;
use store::Store;

/// A Durable Object that holds many runs.
#[durable_object(alarm)]
pub struct Cell {
    /// Only [`extend_durable_object`] makes a cell without one.
    host: Option<Rc<Host>>,
}

/// When the module is loaded, before the runtime looks at its classes.
#[wasm_bindgen(start)]
fn extend_durable_object() {
    runtime::extend_durable_object(Cell { host: None }.into());
}

#[wasm_bindgen]
impl Cell {
    /// What the Workers call: one [`Call`] as JSON in, an array of status, body and headers out.
    pub fn ask(&self, call: &str) -> JsValue {
        self.host().ask(call)
    }
}

/// What the cell's files share.
struct Host {
    state: State,
    env: Env,
    settings: Settings,
    storage: runtime::Storage,
    store: Store,
    machine: RefCell<Machine>,
    listeners: RefCell<Listeners>,
    /// Calls in which the storage has failed: whatever becomes of them is not their program's fault.
    blameless: RefCell<BTreeSet<(u64, Epoch)>>,
    /// The function that all sessions call.
    session_call: OnceCell<JsValue>,
}

impl DurableObject for Cell {
    fn new(state: State, env: Env) -> Self {
        // Nothing is written here: an alarm armed while the object is loaded for an alarm would cancel the
        // very call that loads it.
        let settings = Settings::of(&env);
        let storage: runtime::Storage = JsValue::from(state.storage().as_raw()).unchecked_into();
        let host = Host {
            state,
            env,
            settings,
            store: Store::new(storage.clone()),
            storage,
            machine: RefCell::new(Machine::new(settings.window)),
            listeners: RefCell::default(),
            blameless: RefCell::default(),
            session_call: OnceCell::new(),
        };
        Self { host: Some(Rc::new(host)) }
    }

    /// Nobody fetches from a cell: its Workers call [`Cell::ask`].
    async fn fetch(&self, _: Request) -> Result<Response> {
        Response::error("A cell answers no HTTP.", 404)
    }

    /// Commits, arms, orders, returns: it never awaits a program, or every timer of the cell would wait with
    /// it. An error makes the platform try again, which is the last resort when nothing could be written.
    async fn alarm(&self) -> Result<Response> {
        self.host()
            .turn(|machine, store, now| Ok(machine.alarm(store, now)?))
            .map_err(|fault| fault.to_string())?;
        Response::empty()
    }
}

impl Cell {
    fn host(&self) -> &Rc<Host> {
        self.host.as_ref().expect("the runtime makes cells with `new`")
    }
}

impl Host {
    /// Lets the machine do something, and performs what it orders. No await in here: rows and alarm are one
    /// commit, and calls go out only when that is durable.
    fn turn<T>(
        self: &Rc<Self>,
        act: impl FnOnce(&mut Machine, &Store, Timestamp) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<T, Fault> {
        let mut result = act(&mut self.machine.borrow_mut(), &self.store, runtime::clock());
        let orders = self.machine.borrow_mut().take_orders();
        for order in orders {
            match order {
                Order::Arm(at) => {
                    if let Err(fault) = self.arm(at) {
                        self.machine.borrow_mut().not_armed();
                        result = Err(fault);
                    }
                }
                Order::Call { number, epoch } => self.call_program(number, epoch),
                Order::TellProgram(number) => self.listeners.borrow_mut().tell_program(number),
                Order::TellEnd(view) => self.listeners.borrow_mut().tell_end(&view),
            }
        }
        result
    }

    fn arm(&self, at: Timestamp) -> std::result::Result<(), Fault> {
        // Part of the commit before it: whoever is answered waits for both.
        #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
        let _written = self.storage.set_alarm(at.as_millis() as f64)?;
        self.store.count_rows(1);
        Ok(())
    }
}
