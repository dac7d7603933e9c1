//! Parameters, bodies and answers of the routes of webhooks.

use schemars::SchemaGenerator;
use serde_json::json;
use stepwell_protocol::{
    Payload,
    routes::Route,
    topic::Accepted,
    webhook::{Delivery, DeliveryList, WebhookList, WebhookSpec, WebhookView},
};

use super::{Parts, nothing, ok, parameters::topic, schema};

/// What the table does not say about them.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others are not of webhooks")]
pub fn parts(route: Route, schemas: &mut SchemaGenerator) -> Parts {
    match route {
        Route::ListWebhooks => {
            Parts::of(vec![ok::<WebhookList>(schemas, "The webhooks of the topic.")]).with(vec![topic()])
        }
        Route::ShowWebhook => Parts::of(vec![ok::<WebhookView>(schemas, "The webhook.")]),
        Route::PutWebhook => {
            let view = schema::<WebhookView>(schemas);
            Parts::of(vec![
                (200, "The webhook, changed.", "application/json", view.clone()),
                (201, "The new webhook.", "application/json", view),
            ])
            .taking(
                schema::<WebhookSpec>(schemas),
                "Who signs, and what a delivery becomes.",
                true,
            )
        }
        Route::DeleteWebhook => Parts::of(vec![nothing("The webhook is deleted.")]),
        Route::ListDeliveries => {
            Parts::of(vec![ok::<DeliveryList>(schemas, "The latest 60 deliveries, without their bodies.")])
        }
        Route::ShowDelivery => Parts::of(vec![ok::<Delivery>(schemas, "The delivery.")]),
        Route::RedeliverWebhook => Parts::of(vec![ok::<Accepted>(schemas, "The event that it became.")]),
        Route::ReceiveWebhook => {
            let accepted = schema::<Accepted>(schemas);
            Parts::of(vec![(
                200,
                "The event is stored, now or before; or the challenge of Slack.",
                "application/json",
                json!({ "anyOf": [accepted, { "type": "object", "required": ["challenge"] }] }),
            )])
            .taking(
                schema::<Payload>(schemas),
                "What has happened, as its sender signs it.",
                true,
            )
        }
        _ => Parts::of(Vec::new()),
    }
}
