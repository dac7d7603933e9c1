//! Asks topics and lanes of the namespace, and passes their answers on.

use stepwell_core::{
    access::ROOT,
    catalog::Station,
    object::Address,
    topic::{no_event, no_trigger, no_webhook},
};
use stepwell_protocol::{
    Code,
    topic::{EventList, NewEvent, TriggerList},
    webhook::WebhookList,
};

use wasm_bindgen::JsValue;

use super::{Front, cells::passed_on};
use crate::{
    calls::{
        catalog, lanes,
        topics::{self, Call, Request, WebhookAsk},
    },
    http::{error::Refusal, response::Response},
    log, object, runtime,
};

impl Front {
    /// Who asks, as a topic names them. The catalog says whether they may.
    pub async fn asker(&self) -> Result<String, Refusal> {
        self.check_somebody()?;
        if self.is_limited() {
            self.ask_catalog::<String>(catalog::Request::Actor).await
        } else {
            Ok(ROOT.to_owned())
        }
    }

    /// The same for whoever sends events: each counts as a request, and what they say as payloads.
    pub async fn sender(&self, events: &[NewEvent]) -> Result<String, Refusal> {
        if !self.is_limited() {
            return self.asker().await;
        }
        let sizes = || events.iter().map(|event| event.data.size());
        let (bytes, largest) = (sizes().sum(), sizes().max().unwrap_or_default());
        self.ask_catalog(catalog::Request::SendEvents { events: events.len(), bytes, largest }).await
    }

    /// The same for whoever sends jobs, which count like events.
    pub async fn sender_of(&self, jobs: usize, bytes: usize, largest: usize) -> Result<(), Refusal> {
        if self.is_limited() {
            let request = catalog::Request::SendEvents { events: jobs, bytes, largest };
            self.ask_catalog::<String>(request).await?;
        }
        self.check_somebody()
    }

    /// Asks a topic: a status and a body.
    pub async fn call_topic(&self, topic: &str, call: &Call) -> Result<(u16, String), Refusal> {
        let asked = topics::ask(&self.env, &self.namespace, topic, call).await;
        asked.map_err(|thrown| topic_is_silent(&thrown))
    }

    /// Asks a lane: a status and a body.
    pub async fn call_lane(&self, lane: &Address, call: &lanes::Call) -> Result<(u16, String), Refusal> {
        object::ask(&self.env, lane, call).await.map_err(|thrown| {
            log::error!("a lane did not answer: {}", runtime::message(&thrown));
            Refusal::new(Code::Internal, "The lane of the workflow did not answer. Try again.")
        })
    }

    /// Asks a topic on the caller's behalf. One that has stored nothing is not asked: that would make it.
    pub async fn ask_topic(&self, topic: &str, request: Request) -> Result<Response, Refusal> {
        let by = self.asker().await?;
        let makes =
            matches!(request, Request::PutTrigger { .. } | Request::Webhook { ask: WebhookAsk::Put(_), .. });
        if !makes {
            let station = Station::at(&Address::topic(&self.namespace, topic)).to_string();
            if !self.ask_catalog::<bool>(catalog::Request::HasStation { station }).await? {
                return nothing_there(&request);
            }
        }
        let asked = topics::ask_whole(&self.env, &self.namespace, topic, &Call { by, request }).await;
        asked.map(|answer| passed_on(&answer)).map_err(|thrown| topic_is_silent(&thrown))
    }
}

fn topic_is_silent(thrown: &JsValue) -> Refusal {
    log::error!("a topic did not answer: {}", runtime::message(thrown));
    Refusal::new(Code::Internal, "The topic did not answer. Try again.")
}

/// What a topic says that has stored nothing.
fn nothing_there(request: &Request) -> Result<Response, Refusal> {
    match request {
        Request::List { .. } => Ok(Response::of(200, &EventList::default())),
        Request::ListTriggers => Ok(Response::of(200, &TriggerList::default())),
        Request::ListWebhooks => Ok(Response::of(200, &WebhookList::default())),
        Request::Webhook { .. } => Err(Refusal(no_webhook())),
        Request::Get { .. } => Err(Refusal(no_event())),
        Request::Accept { .. }
        | Request::GetTrigger { .. }
        | Request::PutTrigger { .. }
        | Request::DeleteTrigger { .. }
        | Request::PauseTrigger { .. }
        | Request::ResumeTrigger { .. }
        | Request::Declare { .. }
        | Request::Receive { .. } => Err(Refusal(no_trigger())),
    }
}
