//! Carries what this cell has written to others, and takes what they write.

use std::{pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    access::ROOT,
    cell::{Chance, TickRun, TriggeredRun},
    object::{ANSWER_MS, Delivery, Kind, Message, Receipt, Sending},
};
use stepwell_protocol::{
    Place, Problem, RunId, json,
    outbox::{DiscardedLetter, Redelivery},
};
use wasm_bindgen::JsValue;
use worker::Delay;

use super::{Host, session::BREATH_EVERY};
use crate::{
    calls::{
        cell::{Call, Operation},
        lanes, queues, schedules, topics,
    },
    log,
    object::{self, Answered, Fault},
    runtime,
};

/// How many commits take as long as a message. Up to [`IN_FLIGHT_MAX`](stepwell_core::object::IN_FLIGHT_MAX) go on beside
/// each other, and the runtime looks at its sockets when all of them wait for that.
const COMMITS_OF_MESSAGE: u32 = BREATH_EVERY / 4;

impl Host {
    /// Sends messages, once the commit before them is durable. The machine hears what became of each.
    pub(super) fn send(self: &Rc<Self>, sends: Vec<Sending>) {
        for sending in sends {
            let host = self.clone();
            self.go_on_with(async move {
                // Where the cells are all at hand, each answer lets the next message go out, and a large family would keep
                // all requests waiting until it has come to rest.
                if host.needs_breath(COMMITS_OF_MESSAGE) {
                    Delay::from(Duration::ZERO).await;
                }
                let delivery = host.deliver(&sending).await;
                let heard =
                    host.turn(|machine, store, now| Ok(machine.delivered(store, now, &sending, delivery)?));
                if let Err(fault) = heard {
                    log::error!("a message to {} has to be sent again: {fault}", sending.to);
                }
            });
        }
    }

    async fn deliver(&self, sending: &Sending) -> Delivery {
        let time = Delay::from(Duration::from_millis(ANSWER_MS));
        let answer = match select(pin!(self.hand_over(sending)), time).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(JsValue::from_str("no answer")),
        };
        match answer {
            Ok((200, body)) => match json::from_str::<Receipt>(&body) {
                Ok(receipt) => Delivery::Arrived(receipt),
                Err(_) => Delivery::Failed,
            },
            Ok((_, body)) => match json::from_str::<Problem>(&body) {
                Ok(problem) => {
                    log::warn!("{} refuses a message: {}", sending.to, problem.detail);
                    Delivery::refused(problem)
                }
                Err(_) => Delivery::Failed,
            },
            Err(thrown) => {
                let why = runtime::message(&thrown);
                log::warn!("{} did not take a message yet: {why}", sending.to);
                Delivery::Failed
            }
        }
    }

    async fn hand_over(&self, sending: &Sending) -> Result<(u16, String), JsValue> {
        let (to, message) = (&sending.to, sending.message.clone());
        match to.kind {
            Kind::Cell => {
                let place: Place =
                    to.name.parse().map_err(|_| JsValue::from_str("this is no place of a cell"))?;
                let life =
                    self.own_life(&to.namespace).map_err(|fault| JsValue::from_str(&fault.to_string()))?;
                let call =
                    Call::new(&to.namespace, &place, None, Operation::Receive { message }).in_life(life);
                object::ask(&self.env, to, &call).await
            }
            Kind::Schedules => {
                let call =
                    schedules::Call { by: ROOT.into(), request: schedules::Request::Receive { message } };
                object::ask(&self.env, to, &call).await
            }
            Kind::Topic => {
                let call = topics::Call { by: ROOT.into(), request: topics::Request::Receive { message } };
                object::ask(&self.env, to, &call).await
            }
            Kind::Lane => object::ask(&self.env, to, &lanes::Call::Receive { message }).await,
            Kind::Queue => {
                let call = queues::Call { settings: None, request: queues::Request::Receive { message } };
                object::ask(&self.env, to, &call).await
            }
            Kind::Catalog | Kind::Alerts => Err(JsValue::from_str("nobody writes to this object")),
        }
    }

    /// A person wants a letter to be sent again.
    pub(super) fn redeliver(self: &Rc<Self>, place: &Place, letter: u64) -> Result<Answered, Fault> {
        let was_dead = self.turn(|machine, store, now| Ok(machine.redeliver(store, now, letter)?))?;
        Ok(Answered::new(200, &Redelivery { letter: format!("{place}-{letter}"), was_dead }))
    }

    /// A person gives up on a dead letter.
    pub(super) fn discard(self: &Rc<Self>, place: &Place, letter: u64) -> Result<Answered, Fault> {
        let messages = self.turn(|machine, store, _| Ok(machine.discard(store, letter)?))?;
        Ok(Answered::new(200, &DiscardedLetter { letter: format!("{place}-{letter}"), messages }))
    }

    /// A schedule has ticked.
    pub(super) async fn start_tick(
        self: &Rc<Self>,
        namespace: &str,
        place: Place,
        run: TickRun,
    ) -> Result<Answered, Fault> {
        self.learn_rules(namespace, &place).await?;
        self.prepare(namespace, &place)?;
        let receipt =
            self.turn(|machine, store, now| Ok(machine.start_tick(store, now, place, chance(), run)?))?;
        Ok(Answered::new(200, &receipt))
    }

    /// An event has met a trigger.
    pub(super) async fn start_triggered(
        self: &Rc<Self>,
        namespace: &str,
        place: Place,
        run: TriggeredRun,
    ) -> Result<Answered, Fault> {
        self.learn_rules(namespace, &place).await?;
        self.prepare(namespace, &place)?;
        let receipt = self
            .turn(|machine, store, now| Ok(machine.start_triggered(store, now, place, chance(), run)?))?;
        Ok(Answered::new(200, &receipt))
    }

    /// Another cell has written.
    pub(super) async fn receive(
        self: &Rc<Self>,
        namespace: &str,
        place: Place,
        message: Message,
    ) -> Result<Answered, Fault> {
        if matches!(message, Message::Start { .. }) {
            self.learn_rules(namespace, &place).await?;
        }
        // A cancel that comes before its start is stored, too.
        if matches!(message, Message::Start { .. } | Message::Cancel { .. }) {
            self.prepare(namespace, &place)?;
        }
        let receipt =
            self.turn(|machine, store, now| Ok(machine.receive(store, now, place, chance(), message)?))?;
        Ok(Answered::new(200, &receipt))
    }
}

fn chance() -> Chance {
    Chance { suffix: RunId::suffix_from(runtime::random()), seed: runtime::random() }
}
