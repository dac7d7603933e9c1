//! The host of queues: what is around `stepwell_core::queue`.
//!
//! Owns: the rows in SQLite, the claims that wait, calls of consumers, and what the first partition of a queue tells the
//! others. Decides nothing.

mod deletion;
mod push;
mod requests;
mod store;
mod tell;
mod waiting;

use std::{cell::Cell as Slot, rc::Rc};

use stepwell_core::{
    object::Address,
    queue::{Order, Queue as Machine},
};
use stepwell_protocol::json;

use crate::{
    log,
    object::{self, Answered, Answering, Kind, Loaded},
    settings::is_metered,
};
use store::Store;
use waiting::Waiting;

/// A station that was just loaded.
pub fn load(loaded: Loaded, address: Address) -> Rc<Host> {
    let store = Store::new(loaded.storage.clone(), is_metered(&loaded.env));
    let partition = address.partition().map_or(0, |(partition, _)| partition);
    let kind = Queue { address, waiting: Waiting::default(), is_deleting: Slot::new(false) };
    Host::new(loaded, store, Machine::new(partition), kind)
}

/// What the files of this host share.
pub type Host = object::Host<Queue>;

/// What a partition has besides its machine and its rows.
pub struct Queue {
    /// Where it is.
    address: Address,
    /// The claims that wait.
    waiting: Waiting,
    /// Whether this instance goes on with the deletion of the queue right now.
    is_deleting: Slot<bool>,
}

impl Kind for Queue {
    type Store = Store;
    type Machine = Machine;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Wake(jobs) => host.waiting.wake(jobs),
                Order::Push(pushed) => host.push(*pushed),
                Order::Tell(telling) => host.tell_dead(*telling),
                Order::Delete => {
                    let deleting = host.clone();
                    host.go_on_with(async move {
                        if let Err(fault) = deleting.go_on_deleting().await {
                            log::warn!("a queue is not deleted yet: {fault}");
                        }
                    });
                }
            }
        }
    }

    fn answer(host: Rc<Host>, call: &str) -> Answering {
        let call = json::from_str(call);
        Box::pin(async move {
            let operated = match call {
                Ok(call) => host.operate(call).await,
                Err(error) => Err(Answered::foreign(&error)),
            };
            operated.unwrap_or_else(Answered::from).into_array(host.store.tables.metered())
        })
    }

    fn end(host: &Rc<Host>) {
        host.waiting.wake(usize::MAX);
    }

    fn count_rows(store: &Store, rows: u64) {
        store.tables.count_rows(rows);
    }
}
