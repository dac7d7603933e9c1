//! The cell's object: what is around `stepwell_core::cell`.
//!
//! Owns: the rows in SQLite, the calls of programs, and whoever waits for an answer.
//! Decides nothing: every request, commit and alarm is one [`object::Host::turn`] of the machine.

#![expect(missing_docs, reason = "the object has methods that only the runtime calls")]

mod access;
mod lanes;
mod lines;
mod listeners;
mod mail;
mod measures;
mod pool;
mod programs;
mod published;
mod queued;
mod requests;
mod session;
mod store;
mod streams;
mod tokens;
mod traces;

use std::{
    cell::{OnceCell, RefCell},
    panic::{RefUnwindSafe, UnwindSafe},
    rc::Rc,
};

use futures::channel::oneshot;
use js_sys::Promise;
use stepwell_core::{
    cell::{Cell as Machine, Order},
    object::Sending,
    ordered::{OrdMap, OrdSet},
};
use stepwell_protocol::{Epoch, json};
use wasm_bindgen::prelude::*;
use worker::{Env, worker_sys::DurableObjectState};

use crate::{
    collector::Collector,
    log,
    object::{self, Answering, Kind, Loaded},
    runtime,
    settings::{Deployment, QUEUE_BINDING, Settings},
};
use listeners::Listeners;
use store::Store;
use streams::Readers;

/// A Durable Object that holds many runs. Its methods are not made by the `worker` crate: what those promise is
/// lost with the instance that has promised it.
#[wasm_bindgen]
pub struct Cell {
    /// Only [`extend_durable_object`] makes a cell without one.
    host: Option<Rc<Host>>,
}

/// When the module is loaded, before the runtime looks at its classes.
pub fn extend_durable_object() {
    runtime::extend_durable_object(Cell { host: None }.into());
}

// Whatever a panic leaves in memory is only a cache of rows.
impl UnwindSafe for Cell {}
impl RefUnwindSafe for Cell {}

/// What the cell's files share.
type Host = object::Host<Runs>;

/// What a cell has besides its machine and its rows.
struct Runs {
    settings: Settings,
    listeners: RefCell<Listeners>,
    readers: Readers,
    /// The calls of programs that are under way: each one ends when it is told to.
    calls: RefCell<OrdMap<(u64, Epoch), oneshot::Sender<()>>>,
    /// Calls whose journal could not be read: whatever becomes of them is not their program's fault. What the machine
    /// could not store, it knows itself.
    blameless: RefCell<OrdSet<(u64, Epoch)>>,
    /// Whether the number of cells is the one that this cell began with, once that was looked at.
    cells_are_right: std::cell::Cell<bool>,
    /// Commits since the runtime has last looked at its sockets, and what takes as long as some of them.
    since_breath: std::cell::Cell<u32>,
    /// The function that all sessions call.
    session_call: OnceCell<JsValue>,
    /// The cell's namespace, once it was read: each activation is signed with it.
    namespace: OnceCell<String>,
    /// The life of the namespace in which this cell is about to store its first row, once the catalog has said it.
    begins_in: std::cell::Cell<Option<u64>>,
    /// Who gets the spans of its runs, if anybody does.
    collector: Option<Rc<Collector>>,
    /// Whether it is being sent some.
    is_sending: std::cell::Cell<bool>,
    /// Ends the pause before the next spans are sent.
    send_spans: RefCell<Option<oneshot::Sender<()>>>,
}

#[wasm_bindgen]
impl Cell {
    #[wasm_bindgen(constructor)]
    pub fn new(state: DurableObjectState, env: Env) -> Self {
        let loaded = Loaded::new(state, env);
        let settings = Settings::of(&loaded.env);
        let has_queue = !runtime::property(&loaded.env, QUEUE_BINDING).is_undefined();
        let store = Store::new(loaded.storage.clone(), settings.meter);
        let mut machine = Machine::new(settings.window)
            .with_storage(settings.cell_bytes)
            .with_budget(settings.budget())
            .with_signal_limits(settings.signals)
            .with_queue(has_queue);
        // A setting that cannot be read is refused before anything gets here.
        if let Ok(deployment) = Deployment::of(&loaded.env) {
            machine = machine.with_pool(deployment.pool.clone(), deployment.retention_ms);
        }
        machine.log(log::begin(&loaded.env));
        let collector = Collector::of(&loaded.env).ok().flatten().map(Rc::new);
        if let Some(collector) = &collector {
            machine.trace(collector.sampling);
        }
        let runs = Runs {
            settings,
            listeners: RefCell::default(),
            readers: Readers::default(),
            calls: RefCell::default(),
            blameless: RefCell::default(),
            cells_are_right: std::cell::Cell::new(false),
            since_breath: std::cell::Cell::new(0),
            session_call: OnceCell::new(),
            namespace: OnceCell::new(),
            begins_in: std::cell::Cell::new(None),
            collector,
            is_sending: std::cell::Cell::new(false),
            send_spans: RefCell::default(),
        };
        let host = Host::new(loaded, store, machine, runs);
        host.remember_readers();
        host.inherit_counts();
        Self { host: Some(host) }
    }

    /// What the Workers call: one [`Call`](crate::calls::cell::Call) as JSON in, an array of status, body and headers out. The call is a text;
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
            log::warn!("a reader was not heard: {fault}");
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

    /// Something is due.
    pub fn alarm(&self) -> Promise {
        self.host().alarm()
    }
}

impl Kind for Runs {
    type Store = Store;
    type Machine = Machine;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        let mut nudges = Vec::new();
        for order in orders {
            match order {
                Order::Call { number, epoch } => host.call_program(number, epoch),
                Order::GiveUp { number, epoch } => host.give_up(number, epoch),
                Order::Nudge { number } => nudges.push(number),
                Order::AskLane(question) => host.ask_lane(*question),
                Order::TellProgram(number) => host.listeners.borrow_mut().tell_program(number),
                Order::TellEnd(view) => host.listeners.borrow_mut().tell_end(&view),
                Order::TellAt(at) => host.tell_at(at),
                Order::TellReaders(number) => host.mark_run(number),
                Order::TellCellReaders => host.mark_cell(),
                Order::SendSpansAt(at) => host.send_spans_at(at),
                Order::Log(lines) => host.write_lines(&lines),
            }
        }
        if !nudges.is_empty() {
            host.send_nudges(nudges);
        }
    }

    fn send(host: &Rc<Host>, sends: Vec<Sending>) {
        host.send(sends);
    }

    fn answer(host: Rc<Host>, call: &str) -> Answering {
        host.answering(json::from_str(call))
    }

    fn end(host: &Rc<Host>) {
        host.close_keyed_streams(None);
    }

    fn count_rows(store: &Store, rows: u64) {
        store.count_rows(rows);
    }
}

impl Cell {
    fn host(&self) -> &Rc<Host> {
        self.host.as_ref().expect("the runtime makes cells with `new`")
    }
}
