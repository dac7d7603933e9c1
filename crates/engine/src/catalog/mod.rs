//! The catalog's host: what is around `stepwell_core::catalog`, one for each namespace.
//!
//! Owns: the rows in SQLite, and the words to the cells that remember keys.
//! Decides nothing. It is on no hot path: a cell asks it about a key once, and is told when that changes.

mod deletion;
mod requests;
mod store;

use std::{
    cell::{Cell as Slot, RefCell},
    rc::Rc,
    time::Duration,
};

use futures::{
    channel::oneshot,
    future::{Either, select},
    stream::{self, StreamExt as _},
};
use stepwell_core::{
    access::APP,
    catalog::{Change, Desk, Input, Order, QueueWord, Relation, Station, TopicWord, Word},
    object::Address,
};
use stepwell_protocol::{Place, json, manifest::ScheduleDescription};
use wasm_bindgen::prelude::*;
use worker::Delay;

use crate::{
    calls::{
        catalog::{Call, Request, ask},
        cell::{Call as CellCall, Operation},
        queues, schedules, topics,
    },
    keyring::Keyring,
    log,
    object::{self, Answering, Kind, Loaded, in_time},
    runtime,
    settings::DEFAULT_NAMESPACE,
};
use store::Store;

/// How many cells are told at once: what one invocation may have under way.
const TOLD_AT_ONCE: usize = 5;

/// How long whoever has changed something waits until the cells have heard of it. Those that have not are told again.
const TELL_WAIT_MS: u64 = 800;

/// A catalog that was just loaded.
pub fn load(loaded: Loaded) -> Rc<Host> {
    let store = Store::new(loaded.storage.clone());
    // A secret never changes under a running instance: a deploy starts a fresh one.
    let desk = Desk::new(Keyring::of(&loaded.env).sessions().to_vec());
    Host::new(loaded, store, desk, Catalog::default())
}

/// What a catalog's files share.
pub type Host = object::Host<Catalog>;

/// What a catalog has besides its machine and its rows.
#[derive(Default)]
pub struct Catalog {
    /// How often this instance was told that an issuer's word counts no more.
    distrusts: Slot<u64>,
    /// How often this instance was told to delete its namespace.
    ends: Slot<u64>,
    /// Comes when all whom the last turn has to tell have heard of it, or do not answer.
    heard: RefCell<Option<oneshot::Receiver<()>>>,
}

/// Whom to tell of a change.
#[derive(Default)]
struct Audience {
    cells: Vec<Word>,
    namespaces: Vec<Relation>,
    /// Namespaces that are to be deleted.
    deleted: Vec<(String, u64)>,
    /// The schedules that the code declares, and their revision.
    schedules: Option<(u64, Vec<ScheduleDescription>)>,
    /// Topics, and the triggers that the code declares for them.
    topics: Vec<TopicWord>,
    /// Queues, and the handlers that the code declares for them.
    queues: Vec<QueueWord>,
}

impl Audience {
    fn is_empty(&self) -> bool {
        let Self { cells, namespaces, deleted, schedules, topics, queues } = self;
        let is_declared = schedules.is_some() || !topics.is_empty() || !queues.is_empty();
        cells.is_empty() && namespaces.is_empty() && deleted.is_empty() && !is_declared
    }
}

impl Kind for Catalog {
    type Store = Store;
    type Machine = Desk;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        let mut audience = Audience::default();
        for order in orders {
            match order {
                Order::Tell(words) => audience.cells = words,
                Order::Report(corrupt) => log::error!("{corrupt}; it is left out"),
                Order::Distrust(relations) => audience.namespaces = relations,
                Order::Touch(stations) => host.touch(stations),
                Order::Delete(names) => audience.deleted = names,
                Order::DeclareSchedules { revision, schedules } => {
                    audience.schedules = Some((revision, schedules));
                }
                Order::DeclareTriggers(topics) => audience.topics = topics,
                Order::DeclareHandlers(queues) => audience.queues = queues,
                Order::Empty(batch) => host.empty_batch(batch),
                Order::Clear { life } => host.clear(life),
            }
        }
        if audience.is_empty() {
            return;
        }
        let (done, heard) = oneshot::channel();
        let teller = host.clone();
        host.go_on_with(async move {
            teller.tell(audience).await;
            // Whoever has waited may be gone.
            let _ = done.send(());
        });
        host.heard.replace(Some(heard));
    }

    fn answer(host: Rc<Host>, call: &str) -> Answering {
        let call = json::from_str(call);
        Box::pin(async move { host.answer(call).await })
    }

    fn count_rows(_: &Store, _: u64) {}
}

impl Host {
    /// Waits for a while until those have heard of a change whom the turn before had to tell. They are told all the same
    /// if that takes longer.
    async fn wait_until_heard(&self) {
        let heard = self.heard.take();
        if let Some(heard) = heard {
            let time = Delay::from(Duration::from_millis(TELL_WAIT_MS));
            let (Either::Left(_) | Either::Right(_)) = select(heard, time).await;
        }
    }

    /// Tells everybody at once: nobody waits for one that does not answer.
    async fn tell(self: Rc<Self>, audience: Audience) {
        let Audience { cells, namespaces, deleted, schedules, topics, queues } = audience;
        let told = stream::iter(namespaces).map(|relation| self.clone().distrust(relation));
        let distrusted = told.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>();
        let deleting = self.clone().delete_namespaces(deleted);
        let declaring = self.clone().declare_schedules(schedules);
        let topics = stream::iter(topics).map(|word| self.clone().declare_triggers(word));
        let topics = topics.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>();
        let queues = stream::iter(queues).map(|word| self.clone().declare_handler(word));
        let queues = queues.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>();
        futures::join!(self.clone().tell_cells(cells), distrusted, deleting, declaring, topics, queues);
    }

    /// Tells the station of schedules what the code declares.
    async fn declare_schedules(self: Rc<Self>, declared: Option<(u64, Vec<ScheduleDescription>)>) {
        let Some((revision, schedules)) = declared else { return };
        let call =
            schedules::Call { by: APP.into(), request: schedules::Request::Declare { revision, schedules } };
        let answer = in_time(schedules::ask(&self.env, DEFAULT_NAMESPACE, &call)).await;
        self.declared("schedules", answer, Change::Heard { revision });
    }

    /// Tells a topic which triggers the code declares for it.
    async fn declare_triggers(self: Rc<Self>, TopicWord { topic, revision, triggers }: TopicWord) {
        let call = topics::Call { by: APP.into(), request: topics::Request::Declare { revision, triggers } };
        let answer = in_time(topics::ask(&self.env, DEFAULT_NAMESPACE, &topic, &call)).await;
        let what = format!("triggers of the topic '{topic}'");
        self.declared(&what, answer, Change::TopicHeard { topic, revision });
    }

    /// Tells a queue which handler the code declares for it.
    async fn declare_handler(self: Rc<Self>, QueueWord { queue, revision, handler }: QueueWord) {
        let call = queues::Call { settings: None, request: queues::Request::Declare { revision, handler } };
        let answer = in_time(queues::ask(&self.env, DEFAULT_NAMESPACE, &queue, 0, &call)).await;
        let what = format!("handler of the queue '{queue}'");
        self.declared(&what, answer, Change::QueueHeard { queue, revision });
    }

    /// Records that a station has heard of what the code declares. If it has not, the alarm tries again.
    fn declared(self: &Rc<Self>, what: &str, answer: Result<(u16, String), JsValue>, change: Change) {
        let why = match answer {
            Ok((200, _)) => return self.record(Input::Declared(change)),
            Ok((status, body)) => format!("{status} {body}"),
            Err(thrown) => runtime::message(&thrown),
        };
        log::error!("the declared {what} are not in effect yet: {why}");
    }

    /// Tells the catalog of a namespace that an issuer's word counts no more.
    async fn distrust(self: Rc<Self>, relation: Relation) {
        let request = Request::Distrust { issuer: relation.issuer.clone() };
        let call = Call::new(&relation.namespace, request);
        match in_time(ask(&self.env, &call)).await {
            Ok((200, _)) => self.record(Input::NamespaceDistrusts(relation)),
            // The alarm tries again.
            Ok((status, _)) => {
                log::error!("{} was not told of an issuer's end: {status}", relation.namespace);
            }
            Err(thrown) => {
                let why = runtime::message(&thrown);
                log::error!("{} was not told of an issuer's end: {why}", relation.namespace);
            }
        }
    }

    async fn tell_cells(self: Rc<Self>, words: Vec<Word>) {
        let namespace = match self.store.namespace() {
            Ok(namespace) => namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
            Err(error) => return log::error!("nobody was told of a change: {error}"),
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
                        log::error!("cell {cell} was not told of a change: {why}");
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
        match object::ask(&self.env, &Address::cell(namespace, &place), &word).await? {
            (200, _) => Ok(()),
            (_, body) => Err(JsValue::from_str(&body)),
        }
    }

    /// Lets stations look after their alarms.
    fn touch(self: &Rc<Self>, stations: Vec<Station>) {
        let host = self.clone();
        self.go_on_with(async move {
            let namespace = match host.store.namespace() {
                Ok(namespace) => namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
                Err(error) => return log::error!("no station was touched: {error}"),
            };
            // One of a kind that this release does not know belongs to a newer one, which touches it.
            let addresses = stations.iter().filter_map(|station| station.address(&namespace));
            let touched = stream::iter(addresses).map(|address| {
                let host = host.clone();
                async move {
                    match in_time(object::tell(&host.env, &address, object::Word::Touch)).await {
                        Ok((200, _)) => {}
                        Ok((status, _)) => {
                            log::error!("{address} could not be touched: {status}");
                        }
                        Err(thrown) => {
                            let why = runtime::message(&thrown);
                            log::error!("{address} could not be touched: {why}");
                        }
                    }
                }
            });
            touched.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>().await;
        });
    }

    /// Records that somebody has heard of a change.
    fn record(self: &Rc<Self>, heard: Input) {
        let recorded = self.turn(|desk, store, now| Ok(desk.drive(store, now, "", heard)?));
        if let Err(fault) = recorded {
            log::error!("{fault}");
        }
    }
}
