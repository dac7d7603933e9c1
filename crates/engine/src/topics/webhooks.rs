//! What Workers ask of a webhook.

use std::rc::Rc;

use serde_json::json;
use stepwell_core::topic::Delivered;

use super::Host;
use crate::{
    calls::topics::WebhookAsk,
    object::{Answered, Fault},
    register::register,
};

impl Host {
    /// Answers what is asked of a webhook.
    pub(super) async fn webhook(
        self: &Rc<Self>,
        by: &str,
        id: &str,
        ask: WebhookAsk,
    ) -> Result<Answered, Fault> {
        if matches!(ask, WebhookAsk::Put(_)) {
            register(self, &self.address).await?;
            self.store.prepare()?;
            self.store.prepare_webhooks()?;
        }
        self.turn(|machine, store, now| {
            Ok(match ask {
                WebhookAsk::Get => Answered::new(200, &machine.get_webhook(store, now, id)?),
                WebhookAsk::Put(spec) => {
                    let (view, is_new) = machine.put_webhook(store, now, by, id, *spec)?;
                    Answered::new(if is_new { 201 } else { 200 }, &view)
                }
                WebhookAsk::Delete => {
                    machine.delete_webhook(store, now, id)?;
                    Answered::new(200, &())
                }
                WebhookAsk::Deliveries => Answered::new(200, &machine.deliveries(store, now, id)?),
                WebhookAsk::Delivery(number) => {
                    Answered::new(200, &machine.delivery(store, now, id, number)?)
                }
                WebhookAsk::Redeliver { mark, delivery } => {
                    Answered::new(200, &machine.redeliver(store, now, &mark, id, delivery)?)
                }
                WebhookAsk::Deliver { headers, body } => match machine
                    .deliver(store, now, id, headers, body)?
                {
                    Delivered::Event(accepted) => Answered::new(200, &accepted),
                    Delivered::Challenge(challenge) => Answered::new(200, &json!({ "challenge": challenge })),
                },
            })
        })
    }
}
