//! What Workers and cells ask of a topic.

use std::rc::Rc;

use stepwell_core::{
    access::ROOT,
    object::{Message, Receipt},
    topic::wait_id,
};
use stepwell_protocol::{
    manifest::TriggerDescription,
    topic::{AcceptedList, NewEvent, TriggerSpec},
};
use wasm_bindgen::JsValue;

use super::Host;
use crate::{
    calls::topics::{Call, Request},
    object::{Answered, Fault},
    register::register,
};

impl Host {
    /// Answers a Worker.
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
            Request::Accept { mark, events } => {
                let source = Some(by.as_str()).filter(|by| *by != ROOT);
                self.accept(&mark, source, events).await
            }
            Request::Receive { message } => self.receive(message).await,
            Request::List { before, limit } => {
                self.turn(|machine, store, _| Ok(Answered::new(200, &machine.list(store, before, limit)?)))
            }
            Request::Get { id } => {
                self.turn(|machine, store, _| Ok(Answered::new(200, &machine.get(store, &id)?)))
            }
            Request::ListTriggers => {
                self.turn(|machine, store, now| Ok(Answered::new(200, &machine.list_triggers(store, now)?)))
            }
            Request::GetTrigger { id } => self
                .turn(|machine, store, now| Ok(Answered::new(200, &machine.get_trigger(store, now, &id)?))),
            Request::PutTrigger { id, spec } => self.put_trigger(&by, &id, *spec).await,
            Request::Declare { revision, triggers } => self.declare(revision, &triggers).await,
            Request::DeleteTrigger { id } => self.turn(|machine, store, now| {
                machine.delete_trigger(store, now, &id)?;
                Ok(Answered::new(200, &()))
            }),
            Request::PauseTrigger { id } => self.turn(|machine, store, now| {
                Ok(Answered::new(200, &machine.pause_trigger(store, now, &by, &id)?))
            }),
            Request::ResumeTrigger { id } => self.turn(|machine, store, now| {
                Ok(Answered::new(200, &machine.resume_trigger(store, now, &id)?))
            }),
            Request::ListWebhooks => {
                self.turn(|machine, store, now| Ok(Answered::new(200, &machine.list_webhooks(store, now)?)))
            }
            Request::Webhook { id, ask } => self.webhook(&by, &id, ask).await,
        }
    }

    /// A cell has written.
    async fn receive(self: &Rc<Self>, message: Message) -> Result<Answered, Fault> {
        let receipt = match message {
            Message::Emitted { run, event } => {
                self.accept("", Some(&format!("run:{run}")), vec![*event]).await?;
                Receipt::Taken
            }
            Message::Waits { waiter } => {
                register(self, &self.address).await?;
                self.store.prepare()?;
                self.turn(|machine, store, now| Ok(machine.wait(store, now, *waiter)?))?
            }
            Message::WaitOver { run, life, op, epoch } => {
                self.store.prepare()?;
                self.turn(|machine, store, now| {
                    Ok(machine.wait_over(store, now, &wait_id(&run, life, &op), epoch)?)
                })?
            }
            Message::Start { .. }
            | Message::Ended { .. }
            | Message::TickEnded { .. }
            | Message::Cancel { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. }
            | Message::Unbind { .. } => Receipt::Gone,
        };
        Ok(Answered::new(200, &receipt))
    }

    async fn accept(
        self: &Rc<Self>,
        mark: &str,
        source: Option<&str>,
        events: Vec<NewEvent>,
    ) -> Result<Answered, Fault> {
        register(self, &self.address).await?;
        self.store.prepare()?;
        self.turn(|machine, store, now| {
            let results = machine.accept(store, now, mark, source, events)?;
            Ok(Answered::new(200, &AcceptedList { results }))
        })
    }

    /// The catalog says what the code declares.
    async fn declare(
        self: &Rc<Self>,
        revision: u64,
        triggers: &[TriggerDescription],
    ) -> Result<Answered, Fault> {
        register(self, &self.address).await?;
        self.store.prepare()?;
        self.turn(|machine, store, now| {
            machine.declare(store, now, revision, triggers)?;
            Ok(Answered::new(200, &()))
        })
    }

    async fn put_trigger(self: &Rc<Self>, by: &str, id: &str, spec: TriggerSpec) -> Result<Answered, Fault> {
        register(self, &self.address).await?;
        self.store.prepare()?;
        self.turn(|machine, store, now| {
            let (view, is_new) = machine.put_trigger(store, now, by, id, spec)?;
            Ok(Answered::new(if is_new { 201 } else { 200 }, &view))
        })
    }
}
