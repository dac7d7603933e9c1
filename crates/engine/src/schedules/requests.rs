//! What a station of schedules does for its callers: the Workers that serve HTTP, and the cells of its namespace.

use std::rc::Rc;

use stepwell_core::object::{Message, Receipt};
use stepwell_protocol::{manifest::ScheduleDescription, schedule::ScheduleSpec};
use wasm_bindgen::JsValue;

use super::Host;
use crate::{
    calls::schedules::{Call, Request},
    object::{Answered, Fault},
    register::register,
};

impl Host {
    /// Answers a Worker or a cell.
    pub(super) async fn answer(self: &Rc<Self>, call: serde_json::Result<Call>) -> JsValue {
        let operated = match call {
            Ok(call) => self.operate(call).await,
            Err(error) => Err(Answered::foreign(&error)),
        };
        operated.unwrap_or_else(Answered::from).into_array(self.store.tables.metered())
    }

    async fn operate(self: &Rc<Self>, Call { by, request }: Call) -> Result<Answered, Fault> {
        self.repair().await?;
        match request {
            Request::List { after, limit } => {
                self.turn(|machine, store, _| Ok(Answered::new(200, &machine.list(store, &after, limit)?)))
            }
            Request::Get { id } => {
                self.turn(|machine, store, _| Ok(Answered::new(200, &machine.get(store, &id)?)))
            }
            Request::Put { id, spec } => self.put(&by, &id, *spec).await,
            Request::Delete { id } => self.turn(|machine, store, now| {
                machine.delete(store, now, &id)?;
                Ok(Answered::new(200, &()))
            }),
            Request::Pause { id } => {
                self.turn(|machine, store, now| Ok(Answered::new(200, &machine.pause(store, now, &by, &id)?)))
            }
            Request::Resume { id } => {
                self.turn(|machine, store, now| Ok(Answered::new(200, &machine.resume(store, now, &id)?)))
            }
            Request::Trigger { id, mark } => self
                .turn(|machine, store, now| Ok(Answered::new(202, &machine.trigger(store, now, &id, mark)?))),
            Request::Backfill { id, range } => self.turn(|machine, store, now| {
                Ok(Answered::new(202, &machine.backfill(store, now, &id, range)?))
            }),
            Request::Next { id } => {
                self.turn(|machine, store, now| Ok(Answered::new(200, &machine.next_ticks(store, now, &id)?)))
            }
            Request::Declare { revision, schedules } => self.declare(revision, &schedules).await,
            Request::Receive { message } => self.receive(&message),
        }
    }

    async fn put(self: &Rc<Self>, by: &str, id: &str, spec: ScheduleSpec) -> Result<Answered, Fault> {
        register(self, &self.address).await?;
        self.store.prepare()?;
        self.turn(|machine, store, now| {
            let (view, is_new) = machine.put(store, now, by, id, spec)?;
            Ok(Answered::new(if is_new { 201 } else { 200 }, &view))
        })
    }

    async fn declare(
        self: &Rc<Self>,
        revision: u64,
        schedules: &[ScheduleDescription],
    ) -> Result<Answered, Fault> {
        register(self, &self.address).await?;
        self.store.prepare()?;
        self.turn(|machine, store, now| Ok(machine.declare(store, now, revision, schedules)?))?;
        Ok(Answered::new(200, &()))
    }

    /// A cell has written.
    fn receive(self: &Rc<Self>, message: &Message) -> Result<Answered, Fault> {
        let receipt = match message {
            Message::TickEnded { ticked, run, how } => {
                self.turn(|machine, store, now| Ok(machine.run_ended(store, now, ticked, run, *how)?))?
            }
            Message::Start { .. }
            | Message::Ended { .. }
            | Message::Cancel { .. }
            | Message::Emitted { .. }
            | Message::Waits { .. }
            | Message::WaitOver { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. }
            | Message::Unbind { .. } => Receipt::Gone,
        };
        Ok(Answered::new(200, &receipt))
    }
}
