//! Deliveries in a test: the events that a webhook makes of them.

use serde::Serialize;
use serde_json::{Value as Json, json};
use stepwell_core::topic::event_of;
use stepwell_protocol::{topic::NewEvent, webhook::WebhookSpec};

use super::encode;

/// A webhook in a test. See [`Webhook::new`].
pub struct Webhook {
    spec: WebhookSpec,
    headers: Vec<(String, String)>,
}

/// The event of a delivery: for [`super::Test::triggered_by`] and [`super::Test::emit`].
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    /// The event's name.
    pub name: String,
    /// By what a repeated delivery is known.
    pub id: String,
    /// The event's data.
    pub data: Json,
}

impl Webhook {
    /// The webhook that `PUT /api/webhooks/{topic}/{webhook}` makes of this body. It needs no secret here, because
    /// nothing is signed.
    ///
    /// ```
    /// use serde_json::json;
    /// use stepwell::testing::Webhook;
    ///
    /// let webhook = Webhook::new(&json!({ "kind": "github", "event": "github/{headers[\"x-github-event\"]}" }));
    /// let event = webhook.header("X-GitHub-Event", "push").deliver(&json!({ "ref": "refs/heads/main" }));
    /// assert_eq!(event.name, "github/push");
    /// assert_eq!(event.data["ref"], "refs/heads/main");
    /// ```
    ///
    /// # Panics
    /// If this is not what the engine takes.
    #[track_caller]
    pub fn new(body: &Json) -> Self {
        let spec = serde_json::from_value(body.clone()).unwrap_or_else(|error| panic!("no webhook: {error}"));
        Self { spec, headers: Vec::new() }
    }

    /// Adds a header to the deliveries.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Delivers a body as JSON.
    ///
    /// # Panics
    /// If the engine would refuse the delivery, or answer it without an event.
    #[track_caller]
    pub fn deliver<T: Serialize + ?Sized>(&self, body: &T) -> Delivered {
        self.deliver_text(encode(body).text())
    }

    /// Delivers a body of any kind, such as a form.
    ///
    /// # Panics
    /// As [`Self::deliver`].
    #[track_caller]
    pub fn deliver_text(&self, body: &str) -> Delivered {
        match event_of(&self.spec, self.headers.clone(), body) {
            Ok(Some(NewEvent { name, id, data })) => {
                Delivered { name, id: id.unwrap_or_default(), data: data.decode().unwrap_or(json!(null)) }
            }
            Ok(None) => panic!("the sender only tries the address: no event comes of it"),
            Err(problem) => panic!("the delivery is refused: {}", problem.detail),
        }
    }
}
