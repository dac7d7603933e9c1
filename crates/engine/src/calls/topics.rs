//! What Workers and cells ask of a topic.

use js_sys::Array;
use serde::{Deserialize, Serialize};
use stepwell_core::object::{Address, Message};
use stepwell_protocol::{
    manifest::TriggerDescription,
    topic::{NewEvent, TriggerSpec},
    webhook::WebhookSpec,
};
use wasm_bindgen::JsValue;
use worker::Env;

use crate::object;

/// A request to a topic.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Who asks. Whether they may was found out before.
    pub by: String,
    /// What to do.
    pub request: Request,
}

/// What is asked of a topic.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Accept events.
    Accept {
        /// What the request is known by.
        mark: String,
        /// Them.
        events: Vec<NewEvent>,
    },
    /// List events, newest first.
    List {
        /// Before this number.
        before: u64,
        /// So many.
        limit: usize,
    },
    /// Show an event.
    Get {
        /// Its id.
        id: String,
    },
    /// List triggers.
    ListTriggers,
    /// Show a trigger.
    GetTrigger {
        /// Its id.
        id: String,
    },
    /// Make a trigger, or let it do something else.
    PutTrigger {
        /// Its id.
        id: String,
        /// What it is to do.
        spec: Box<TriggerSpec>,
    },
    /// Delete a trigger.
    DeleteTrigger {
        /// Its id.
        id: String,
    },
    /// Let it start no more runs.
    PauseTrigger {
        /// Its id.
        id: String,
    },
    /// Let it start runs again.
    ResumeTrigger {
        /// Its id.
        id: String,
    },
    /// Take up the triggers that the code declares.
    Declare {
        /// By which revision.
        revision: u64,
        /// All of them.
        triggers: Vec<TriggerDescription>,
    },
    /// A cell has written.
    Receive {
        /// What.
        message: Message,
    },
    /// List webhooks.
    ListWebhooks,
    /// Something about one webhook.
    Webhook {
        /// Its id.
        id: String,
        /// What to do.
        ask: WebhookAsk,
    },
}

/// What is asked of a webhook.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookAsk {
    /// Show it.
    Get,
    /// Make it, or change it.
    Put(Box<WebhookSpec>),
    /// Delete it.
    Delete,
    /// List what was delivered.
    Deliveries,
    /// Show a delivery.
    Delivery(u64),
    /// Make an event of a delivery again.
    Redeliver {
        /// What the request is known by.
        mark: String,
        /// Its number.
        delivery: u64,
    },
    /// Take a delivery.
    Deliver {
        /// Its headers.
        headers: Vec<(String, String)>,
        /// Its body, as it came.
        body: String,
    },
}

/// Asks a topic of a namespace: a status and a body.
pub async fn ask(env: &Env, namespace: &str, topic: &str, call: &Call) -> Result<(u16, String), JsValue> {
    object::ask(env, &Address::topic(namespace, topic), call).await
}

/// The same, with all of its answer.
pub async fn ask_whole(env: &Env, namespace: &str, topic: &str, call: &Call) -> Result<Array, JsValue> {
    object::ask_whole(env, &Address::topic(namespace, topic), call).await
}
