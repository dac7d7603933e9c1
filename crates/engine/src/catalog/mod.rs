//! The catalog's object: a thin host around `stepwell_core::catalog`, one for each namespace.
//!
//! Owns: the rows in SQLite, the platform's alarm, and the words to the cells that remember keys.
//! Decides nothing. It is on no hot path: a cell asks it about a key once, and is told when that changes.

#![expect(missing_docs, reason = "the object has methods that only the runtime calls")]

mod call;
mod requests;
mod store;

use std::{
    cell::{Cell as Slot, RefCell},
    panic::{RefUnwindSafe, UnwindSafe},
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::{
    future::{Either, select},
    stream::{self, StreamExt as _},
};
use js_sys::{Array, Promise};
use stepwell_core::catalog::{Desk, Fault as MachineFault, Input, Order, Relation, Word};
use stepwell_protocol::{Place, Timestamp};
use wasm_bindgen::prelude::*;
use worker::{Delay, Env, State, worker_sys::DurableObjectState};

pub use call::{Call, Request};

use crate::{
    cell::{Call as CellCall, Fault, Operation, StoreError},
    guard,
    keyring::Keyring,
    runtime::{self, Objects},
    settings::{CATALOG_BINDING, CELL_BINDING, DEFAULT_NAMESPACE},
};
use store::Store;

/// How many cells are told at once: what one invocation may have under way.
const TOLD_AT_ONCE: usize = 5;

/// How long whoever has changed something waits until the cells have heard of it. Those that have not are told again.
const TELL_WAIT_MS: u64 = 800;

/// How long one of them may take to answer. The alarm tells it again.
const ANSWER_MS_MAX: u64 = 5_000;

/// What somebody answers, unless it takes too long.
async fn in_time<T>(answer: impl Future<Output = Result<T, JsValue>>) -> Result<T, JsValue> {
    let time = Delay::from(Duration::from_millis(ANSWER_MS_MAX));
    match select(pin!(answer), time).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(JsValue::from_str("no answer in time")),
    }
}

/// Asks a catalog: a status and a body.
pub async fn ask(env: &Env, call: &Call) -> Result<(u16, String), JsValue> {
    let text = serde_json::to_string(call).expect("a call holds only what JSON can say");
    let catalogs = runtime::property(env, CATALOG_BINDING);
    if catalogs.is_undefined() {
        return Err(JsValue::from_str(&format!(
            "there is no catalog: bind the class Catalog as {CATALOG_BINDING}"
        )));
    }
    let stub = catalogs.unchecked_into::<Objects>().get_by_name(&call.namespace)?;
    let answer: Array = runtime::settle(stub.ask(&text)?).await?.unchecked_into();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a status of HTTP")]
    let status = answer.get(0).as_f64().unwrap_or_default() as u16;
    Ok((status, answer.get(1).as_string().unwrap_or_default()))
}

/// A Durable Object that knows the keys and settings of a namespace.
#[wasm_bindgen]
pub struct Catalog {
    /// Only [`extend_durable_object`] makes one without.
    host: Option<Rc<Host>>,
}

/// See `cell::extend_durable_object`.
pub fn extend_durable_object() {
    runtime::extend_durable_object(Catalog { host: None }.into());
}

// Whatever a panic leaves in memory is only a cache of rows.
impl UnwindSafe for Catalog {}
impl RefUnwindSafe for Catalog {}

struct Host {
    state: State,
    env: Env,
    storage: runtime::Storage,
    store: Store,
    desk: RefCell<Desk>,
    /// How often this instance was told that an issuer's word counts no more.
    distrusts: Slot<u64>,
}

/// Whom to tell of a change.
#[derive(Default)]
struct Telling {
    cells: Vec<Word>,
    namespaces: Vec<Relation>,
}

#[wasm_bindgen]
impl Catalog {
    #[wasm_bindgen(constructor)]
    pub fn new(state: DurableObjectState, env: Env) -> Self {
        let state = State::from(state);
        let storage: runtime::Storage = JsValue::from(state.storage().as_raw()).unchecked_into();
        let store = Store::new(storage.clone());
        // A secret never changes under a running instance: a deploy starts a fresh one.
        let desk = RefCell::new(Desk::new(Keyring::of(&env).sessions().to_vec()));
        Self { host: Some(Rc::new(Host { state, env, storage, store, desk, distrusts: Slot::new(0) })) }
    }

    /// What Workers and cells call: one [`Call`] as JSON in, an array of status and body out.
    pub fn ask(&self, call: &JsValue) -> Promise {
        let (host, call) = (self.host().clone(), call.as_string().unwrap_or_default());
        guard::promise(async move { Ok(host.answer(&call).await) })
    }

    /// Tells the cells that are behind, and forgets what is over.
    pub fn alarm(&self) -> Promise {
        let host = self.host().clone();
        guard::promise(async move {
            let told = host.turn(Desk::alarm);
            match told {
                Ok(((), telling)) => host.clone().tell(telling).await,
                // The platform tries again.
                Err(fault) => return Err(JsError::new(&fault.to_string()).into()),
            }
            Ok(JsValue::UNDEFINED)
        })
    }
}

impl Catalog {
    fn host(&self) -> &Rc<Host> {
        self.host.as_ref().expect("the runtime makes catalogs with `new`")
    }
}

impl Host {
    /// Lets the machine do something, and performs what it orders; whom to tell is left to the caller. No await in
    /// here: rows and alarm are one commit. If the alarm cannot be set, the cells are told all the same: the next turn
    /// sets another alarm, but nobody knows when that is.
    fn turn<T>(
        self: &Rc<Self>,
        act: impl FnOnce(&mut Desk, &Store, Timestamp) -> Result<T, MachineFault<StoreError>>,
    ) -> Result<(T, Telling), Fault> {
        let result = act(&mut self.desk.borrow_mut(), &self.store, runtime::clock());
        let (orders, mut telling) = (self.desk.borrow_mut().take_orders(), Telling::default());
        let mut not_armed = None;
        for order in orders {
            match order {
                Order::Arm(at) => {
                    #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
                    let at_ms = at.as_millis() as f64;
                    if let Err(thrown) = self.storage.set_alarm(at_ms) {
                        self.desk.borrow_mut().not_armed();
                        not_armed = Some(thrown);
                    }
                }
                Order::Tell(words) => telling.cells = words,
                Order::Report(corrupt) => worker::console_error!("stepwell: {corrupt}; it is left out"),
                Order::Distrust(relations) => telling.namespaces = relations,
            }
        }
        if let Some(thrown) = not_armed {
            self.state.wait_until(self.clone().tell(telling));
            return Err(thrown.into());
        }
        match result {
            Ok(value) => Ok((value, telling)),
            Err(MachineFault::Rejected(problem)) => Err(Fault::Rejected(problem)),
            Err(MachineFault::Storage(error)) => Err(Fault::Store(error)),
            Err(MachineFault::Corrupt(corrupt)) => {
                Err(Fault::Store(StoreError::Refused(corrupt.to_string())))
            }
        }
    }

    /// Tells cells of a change, and waits for a while until they have heard of it. It goes on after that.
    async fn tell_for_a_while(self: &Rc<Self>, telling: Telling) {
        if telling.cells.is_empty() && telling.namespaces.is_empty() {
            return;
        }
        let (done, heard) = futures::channel::oneshot::channel();
        let host = self.clone();
        self.state.wait_until(async move {
            host.tell(telling).await;
            // Whoever has waited may be gone.
            let _ = done.send(());
        });
        let time = Delay::from(Duration::from_millis(TELL_WAIT_MS));
        let (Either::Left(_) | Either::Right(_)) = select(heard, time).await;
    }

    /// Tells everybody at once: nobody waits for one that does not answer.
    async fn tell(self: Rc<Self>, Telling { cells, namespaces }: Telling) {
        let told = stream::iter(namespaces).map(|relation| self.clone().distrust(relation));
        let distrusted = told.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>();
        futures::join!(self.clone().tell_cells(cells), distrusted);
    }

    /// Tells the catalog of a namespace that an issuer's word counts no more.
    async fn distrust(self: Rc<Self>, relation: Relation) {
        let request = Request::Distrust { issuer: relation.issuer.clone() };
        let call = Call { namespace: relation.namespace.clone(), access: None, request };
        match in_time(ask(&self.env, &call)).await {
            Ok((200, _)) => self.record(Input::NamespaceDistrusts(relation)),
            // The alarm tries again.
            Ok((status, _)) => {
                worker::console_error!(
                    "stepwell: {} was not told of an issuer's end: {status}",
                    relation.namespace
                );
            }
            Err(thrown) => {
                let why = runtime::message(&thrown);
                worker::console_error!(
                    "stepwell: {} was not told of an issuer's end: {why}",
                    relation.namespace
                );
            }
        }
    }

    async fn tell_cells(self: Rc<Self>, words: Vec<Word>) {
        let namespace = match self.store.namespace() {
            Ok(namespace) => namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
            Err(error) => return worker::console_error!("stepwell: nobody was told of a change: {error}"),
        };
        let told = stream::iter(words).map(|word| {
            let (host, namespace) = (self.clone(), namespace.clone());
            let Word { cell, version, ids } = word;
            async move {
                match in_time(host.tell_one(&namespace, &cell, version, ids)).await {
                    Ok(()) => host.record(Input::Heard { cell, version }),
                    // The alarm tries again.
                    Err(thrown) => {
                        let why = runtime::message(&thrown);
                        worker::console_error!("stepwell: cell {cell} was not told of a change: {why}");
                    }
                }
            }
        });
        told.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>().await;
    }

    async fn tell_one(
        &self,
        namespace: &str,
        cell: &str,
        version: u64,
        ids: Option<Vec<String>>,
    ) -> Result<(), JsValue> {
        let place: Place = cell.parse().map_err(|_| JsValue::from_str("this is no place of a cell"))?;
        let word = CellCall::new(namespace, &place, None, Operation::ForgetKeys { version, ids });
        let word = serde_json::to_string(&word).expect("a call holds only what JSON can say");
        let cells: Objects = runtime::property(&self.env, CELL_BINDING).unchecked_into();
        let stub = cells.get_by_name(&place.object_name(namespace))?;
        let answer: Array = runtime::settle(stub.ask(&word)?).await?.unchecked_into();
        if answer.get(0).as_f64() == Some(200.0) {
            Ok(())
        } else {
            Err(JsValue::from_str(&answer.get(1).as_string().unwrap_or_default()))
        }
    }

    /// Records that somebody has heard of a change.
    fn record(self: &Rc<Self>, heard: Input) {
        let recorded = self.turn(|desk, store, now| desk.drive(store, now, "", heard));
        if let Err(fault) = recorded {
            worker::console_error!("stepwell: {fault}");
        }
    }
}
