//! The host of alerts: what is around `stepwell_core::alert`.
//!
//! Owns: the rows in SQLite, the questions for figures, and the way to the queue of webhooks. Decides nothing.

mod look;
mod store;

use std::rc::Rc;

use stepwell_core::{
    alert::{Alerts as Machine, Notice, Order},
    object::{Address, Receipt},
};
use stepwell_protocol::{callback::CALLBACK_QUEUE, json};

use crate::{
    calls::{
        alerts::{Call, Request},
        queues,
    },
    log,
    object::{self, Answered, Answering, Fault, Kind, Loaded, in_time},
    register::register,
    runtime,
};
use store::Store;

/// A station that was just loaded.
pub fn load(loaded: Loaded, address: Address) -> Rc<Host> {
    let store = Store::new(loaded.storage.clone());
    Host::new(loaded, store, Machine::default(), Alerts { address })
}

/// What the files of this host share.
pub type Host = object::Host<Alerts>;

/// What the station has besides its machine and its rows.
pub struct Alerts {
    /// Where it is.
    address: Address,
}

impl Kind for Alerts {
    type Store = Store;
    type Machine = Machine;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Look { flight, wanted } => host.look(flight, *wanted),
                Order::Tell(notice) => host.tell(*notice),
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
            operated.unwrap_or_else(Answered::from).into_array(None)
        })
    }

    fn count_rows(_: &Store, _: u64) {}
}

impl Host {
    async fn operate(self: &Rc<Self>, Call { by, request }: Call) -> Result<Answered, Fault> {
        self.repair().await?;
        match request {
            Request::List => self.turn(|machine, store, _| Ok(Answered::new(200, &machine.list(store)?))),
            Request::Get { id } => {
                self.turn(|machine, store, _| Ok(Answered::new(200, &machine.get(store, &id)?)))
            }
            Request::Put { id, spec } => {
                register(self, &self.address).await?;
                self.store.prepare()?;
                self.turn(|machine, store, now| {
                    let (view, is_new) =
                        machine.put(store, now, (&self.address.namespace, &by), &id, *spec)?;
                    Ok(Answered::new(if is_new { 201 } else { 200 }, &view))
                })
            }
            Request::Delete { id } => self.turn(|machine, store, now| {
                machine.delete(store, now, &id)?;
                Ok(Answered::new(200, &()))
            }),
        }
    }

    /// Gives a notice to the queue of webhooks. The machine hears whether it has it.
    fn tell(self: &Rc<Self>, notice: Notice) {
        let host = self.clone();
        self.go_on_with(async move {
            let Notice { id, url, body, .. } = notice.clone();
            let request = queues::Request::Tell { id, url, body };
            let call = queues::Call { settings: None, request };
            let to = Address::queue(&host.address.namespace, CALLBACK_QUEUE, 0);
            let is_taken = match in_time(object::ask(&host.env, &to, &call)).await {
                Ok((200, body)) => json::from_str::<Receipt>(&body).is_ok_and(|it| it == Receipt::Taken),
                Ok(_) => false,
                Err(thrown) => {
                    let why = runtime::message(&thrown);
                    log::warn!("an alert was not told of: {why}");
                    false
                }
            };
            let heard = host.turn(|machine, store, now| Ok(machine.told(store, now, &notice, is_taken)?));
            if let Err(fault) = heard {
                log::error!("{fault}");
            }
        });
    }
}
