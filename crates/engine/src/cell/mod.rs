//! The cell's object: a thin host around `stepwell_core::cell`.
//!
//! Owns: the rows in SQLite, the platform's alarm, the calls of programs, and whoever waits for an answer.
//! Decides nothing: every request, commit and alarm is one [`Host::turn`] of the machine.

#![expect(missing_docs, reason = "the object has methods that only the runtime calls")]

mod access;
mod call;
mod fault;
mod listeners;
mod pool;
mod programs;
mod queued;
mod requests;
mod session;
mod store;
mod streams;
mod tables;
mod told;

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    panic::{RefUnwindSafe, UnwindSafe},
    rc::Rc,
};

use futures::channel::oneshot;
use js_sys::Promise;
use stepwell_core::cell::{Cell as Machine, Order};
use stepwell_promises as promises;
use stepwell_protocol::{Epoch, Timestamp};
use wasm_bindgen::prelude::*;
use worker::{Env, State, worker_sys::DurableObjectState};

use crate::{
    guard, runtime,
    settings::{QUEUE_BINDING, Settings},
};
pub use call::{Call, CountedRuns, Listed, Moved, Operation, Reached};
pub use fault::{Fault, StoreError};
use listeners::Listeners;
pub use programs::{activate, app, end_of, why};
pub use queued::{Ask, Claimed, End, LISTEN_MS, Nudge};
pub use requests::fingerprint;
use store::Store;
pub use streams::Follow;
use streams::Readers;
pub use tables::{Row as SqlRow, Tables, number};

/// A Durable Object that holds many runs. Its methods are not made by the `worker` crate: what those promise is
/// lost with the instance that has promised it.
#[wasm_bindgen]
pub struct Cell {
    /// Only [`extend_durable_object`] makes a cell without one.
    host: Option<Rc<Host>>,
}

/// When the module is loaded, before the runtime looks at its classes.
// Private: what is exported, any Worker with a service binding can call.
#[wasm_bindgen(start, private)]
fn extend_durable_object() {
    crate::rpc::extend_worker_entrypoint();
    runtime::extend_durable_object(Cell { host: None }.into());
    crate::catalog::extend_durable_object();
}

// Whatever a panic leaves in memory is only a cache of rows.
impl UnwindSafe for Cell {}
impl RefUnwindSafe for Cell {}

/// What the cell's files share.
struct Host {
    state: State,
    env: Env,
    settings: Settings,
    storage: runtime::Storage,
    store: Store,
    machine: RefCell<Machine>,
    listeners: RefCell<Listeners>,
    readers: Readers,
    /// The calls of programs that are under way: each one ends when it is told to.
    calls: RefCell<BTreeMap<(u64, Epoch), oneshot::Sender<()>>>,
    /// Calls whose journal could not be read: whatever becomes of them is not their program's fault. What the machine
    /// could not store, it knows itself.
    blameless: RefCell<BTreeSet<(u64, Epoch)>>,
    /// Whether the number of cells is the one that this cell began with, once that was looked at.
    cells_are_right: std::cell::Cell<bool>,
    /// Commits since the runtime has last looked at its sockets.
    session_calls: std::cell::Cell<u32>,
    /// The function that all sessions call.
    session_call: OnceCell<JsValue>,
    /// The cell's namespace, once it was read: each activation is signed with it.
    namespace: OnceCell<String>,
}

#[wasm_bindgen]
impl Cell {
    #[wasm_bindgen(constructor)]
    pub fn new(state: DurableObjectState, env: Env) -> Self {
        // Nothing is written here: an alarm armed while the object is loaded for an alarm would cancel the
        // very call that loads it.
        let state = State::from(state);
        let settings = Settings::of(&env);
        let has_queue = !runtime::property(&env, QUEUE_BINDING).is_undefined();
        let storage: runtime::Storage = JsValue::from(state.storage().as_raw()).unchecked_into();
        let host = Host {
            state,
            env,
            settings,
            store: Store::new(storage.clone(), settings.meter),
            storage,
            machine: RefCell::new(
                Machine::new(settings.window)
                    .with_storage(settings.cell_bytes)
                    .with_budget(settings.budget())
                    .with_signal_limits(settings.signals)
                    .with_queue(has_queue),
            ),
            listeners: RefCell::default(),
            readers: Readers::default(),
            calls: RefCell::default(),
            blameless: RefCell::default(),
            cells_are_right: std::cell::Cell::new(false),
            session_calls: std::cell::Cell::new(0),
            session_call: OnceCell::new(),
            namespace: OnceCell::new(),
        };
        let host = Rc::new(host);
        host.remember_readers();
        Self { host: Some(host) }
    }

    /// What the Workers call: one [`Call`] as JSON in, an array of status, body and headers out. The call is a text;
    /// but a text would be copied into the instance before anybody sees that this one was stopped.
    pub fn ask(&self, call: &JsValue) -> JsValue {
        self.host().ask(&call.as_string().unwrap_or_default())
    }

    /// What the Workers open streams with. The request is not looked into here: see [`Self::ask`].
    pub fn fetch(&self, request: &JsValue) -> Promise {
        self.host().open_stream(request)
    }

    /// A reader of a stream has said something.
    #[wasm_bindgen(js_name = webSocketMessage)]
    pub fn web_socket_message(&self, socket: &JsValue, _message: &JsValue) {
        if let Err(fault) = self.host().hear_reader(socket) {
            worker::console_warn!("stepwell: a reader was not heard: {fault}");
        }
    }

    /// A reader of a stream has gone.
    #[wasm_bindgen(js_name = webSocketClose)]
    pub fn web_socket_close(&self, socket: &JsValue) {
        streams::close(socket.unchecked_ref(), 1000, "");
    }

    /// The connection to a reader broke: it is closed already.
    #[wasm_bindgen(js_name = webSocketError)]
    pub fn web_socket_error(&self, _socket: &JsValue) {}

    /// Commits, arms, orders, returns: it never awaits a program, or every timer of the cell would wait with
    /// it. An error makes the platform try again, which is the last resort when the alarm could not be set: it drops an
    /// alarm that has failed about seven times, and whatever else went wrong, the machine comes back to.
    pub fn alarm(&self) -> Promise {
        let host = self.host().clone();
        guard::promise(async move {
            host.turn(|machine, store, now| {
                if let Err(fault) = machine.alarm(store, now) {
                    worker::console_error!(
                        "stepwell: an alarm could not read the rows: {}",
                        Fault::from(fault)
                    );
                }
                Ok(())
            })
            .map_err(|fault| JsError::new(&fault.to_string()))?;
            Ok(JsValue::UNDEFINED)
        })
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
        let mut nudges = Vec::new();
        for order in orders {
            match order {
                Order::Arm(at) => {
                    if let Err(fault) = self.arm(at) {
                        self.machine.borrow_mut().not_armed();
                        result = Err(fault);
                    }
                }
                Order::Call { number, epoch } => self.call_program(number, epoch),
                Order::GiveUp { number, epoch } => self.give_up(number, epoch),
                Order::Nudge { number } => nudges.push(number),
                Order::TellProgram(number) => self.listeners.borrow_mut().tell_program(number),
                Order::TellEnd(view) => self.listeners.borrow_mut().tell_end(&view),
                Order::TellAt(at) => self.tell_at(at),
                Order::TellReaders(number) => self.mark_run(number),
                Order::TellCellReaders => self.mark_cell(),
            }
        }
        if !nudges.is_empty() {
            self.send_nudges(nudges);
        }
        result
    }

    /// Does something beyond the present call. The object stays awake for it.
    fn go_on_with(&self, future: impl Future<Output = ()> + 'static) {
        let promise = promises::promise(async move {
            future.await;
            Ok(JsValue::UNDEFINED)
        });
        if let Err(thrown) = self.state.as_raw().wait_until(&promise) {
            // It goes on all the same, for as long as anybody keeps the object awake.
            worker::console_warn!("stepwell: the runtime does not wait: {}", runtime::message(&thrown));
        }
    }

    fn arm(&self, at: Timestamp) -> std::result::Result<(), Fault> {
        // Part of the commit before it: whoever is answered waits for both.
        #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
        let _written = self.storage.set_alarm(at.as_millis() as f64)?;
        self.store.count_rows(1);
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
