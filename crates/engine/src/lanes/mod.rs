//! The host of lanes: what is around `stepwell_core::lane`.
//!
//! Owns: the rows in SQLite, and the questions to cells. Decides nothing.

mod store;

use std::{pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    lane::{Lane as Machine, Order, Telling},
    object::{ANSWER_MS, Address, Message, Receipt},
};
use stepwell_protocol::json;
use wasm_bindgen::JsValue;
use worker::Delay;

use crate::{
    calls::{
        cell::{self, Operation},
        lanes::Call,
    },
    log,
    object::{self, Answered, Answering, Fault, Kind, Loaded},
    register::register,
    runtime,
};
use store::Store;

/// A station that was just loaded.
pub fn load(loaded: Loaded, address: Address) -> Rc<Host> {
    let store = Store::new(loaded.storage.clone());
    Host::new(loaded, store, Machine::default(), Lane { address })
}

/// What the files of this host share.
pub type Host = object::Host<Lane>;

/// What a lane has besides its machine and its rows.
pub struct Lane {
    /// Where it is.
    address: Address,
}

impl Kind for Lane {
    type Store = Store;
    type Machine = Machine;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        for Order::Tell(telling) in orders {
            host.tell(*telling);
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
    async fn operate(self: &Rc<Self>, call: Call) -> Result<Answered, Fault> {
        self.repair().await?;
        match call {
            Call::Ask { asks, over } => {
                register(self, &self.address).await?;
                self.store.prepare()?;
                self.turn(|machine, store, now| {
                    Ok(Answered::new(200, &machine.ask(store, now, asks, &over)?))
                })
            }
            Call::Admit { start, limits } => {
                register(self, &self.address).await?;
                self.store.prepare()?;
                self.turn(|machine, store, now| {
                    let dropped = machine.admit(store, now, start, limits)?;
                    let wait_ms = dropped.map(|at| at.as_millis().saturating_sub(now.as_millis()));
                    Ok(Answered::new(200, &wait_ms))
                })
            }
            Call::Receive { message } => {
                let Message::TicketOver { ticket } = message else {
                    return Ok(Answered::new(200, &Receipt::Gone));
                };
                self.turn(|machine, store, now| Ok(machine.ask(store, now, Vec::new(), &[ticket])?))?;
                Ok(Answered::new(200, &Receipt::Taken))
            }
            Call::SetLimit { change, who } => {
                register(self, &self.address).await?;
                self.store.prepare()?;
                self.turn(|machine, store, now| {
                    let set = machine.set_limit(store, now, change, who)?;
                    Ok(Answered::new(200, &set))
                })
            }
            Call::Why { run } => self.turn(|machine, store, now| {
                Ok(Answered::new(200, &machine.why(store, now, &run, &self.address.name)?))
            }),
            Call::Page { after, limit } => self
                .turn(|machine, store, now| Ok(Answered::new(200, &machine.page(store, now, after, limit)?))),
        }
    }

    /// Tells a cell who was let in. The machine hears who still goes.
    fn tell(self: &Rc<Self>, telling: Telling) {
        let host = self.clone();
        self.go_on_with(async move {
            let flight = telling.flight;
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let answer = match select(pin!(host.ask_cell(telling)), time).await {
                Either::Left((Ok((200, body)), _)) => json::from_str::<Vec<bool>>(&body).ok(),
                Either::Left((Ok(_), _)) | Either::Right(_) => None,
                Either::Left((Err(thrown), _)) => {
                    let why = runtime::message(&thrown);
                    log::warn!("a cell was not told who may go to work: {why}");
                    None
                }
            };
            let heard =
                host.turn(|machine, store, now| Ok(machine.told(store, now, flight, answer.as_deref())?));
            if let Err(fault) = heard {
                log::error!("{fault}");
            }
        });
    }

    async fn ask_cell(&self, Telling { to, tickets, .. }: Telling) -> Result<(u16, String), JsValue> {
        let namespace = &self.address.namespace;
        let life = self.life().map_err(|fault| JsValue::from_str(&fault.to_string()))?;
        let call = cell::Call::new(namespace, &to, None, Operation::LetIn { tickets }).in_life(life);
        object::ask(&self.env, &Address::cell(namespace, &to), &call).await
    }
}
