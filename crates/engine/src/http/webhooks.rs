//! The routes of webhooks: those of operators, and the one where others deliver.
//!
//! An address is verified before anything else is read or asked ([`check`]), like a wait token: what it names is made
//! with a key of the deployment, so an invented one touches no object. Whether a delivery is signed is for the topic to
//! say, which has the secret.

use stepwell_core::topic::{check_webhook, no_webhook};
use stepwell_protocol::{
    Code,
    topic::{EVENT_BYTES_MAX, is_part, is_topic},
    webhook::{Address, PATH, WebhookSpec},
};
use worker::{Env, Request, Url};

use super::{
    body::{self, read},
    error::Refusal,
    events::{topic_of_query, wanted},
    front::Front,
    guessing, known_namespaces,
    response::Response,
    starts::nonce,
};
use crate::{
    calls::topics::{Call, Request as Ask, WebhookAsk},
    keyring::Keyring,
};

/// The most bytes of a header that is looked at.
const HEADER_BYTES_MAX: usize = 4_096;

/// The most bytes of all headers that are looked at.
const HEADERS_BYTES_MAX: usize = 16_384;

/// By whom deliveries are, where a topic names who asks.
const BY: &str = "webhook";

/// Refuses an address that nobody was given, and whoever has delivered too much that was not signed, before anything else
/// is read.
pub fn check(request: &Request, url: &Url, env: &Env) -> Result<(), Refusal> {
    if Keyring::of(env).read_hook(url.path()).is_some() {
        return guessing::check_sender(request, url.path());
    }
    guessing::bad_token(request)?;
    Err(no_address())
}

/// Counts a delivery that was refused for what its sender knows: the secret, or the address. One that was signed and could
/// not become an event is not a guess.
pub fn count(sender: Option<&str>, response: &Response) {
    if let (Some(sender), 403 | 404) = (sender, response.status) {
        guessing::refused(sender);
    }
}

/// The headers of a delivery, as far as they are of a sensible size.
pub fn headers(request: &Request) -> Vec<(String, String)> {
    let mut room = HEADERS_BYTES_MAX;
    let fits = |(name, value): &(String, String)| {
        let size = name.len() + value.len();
        let fits = size <= HEADER_BYTES_MAX && size <= room;
        room -= if fits { size } else { 0 };
        fits
    };
    request.headers().entries().filter(fits).collect()
}

/// `POST /api/hooks/{namespace}/{topic}/{hook}`
pub async fn receive(
    front: &Front,
    namespace: &str,
    topic: &str,
    hook: &str,
    headers: Vec<(String, String)>,
    body: String,
) -> Result<Response, Refusal> {
    let keyring = Keyring::of(front.env());
    let address = keyring.read_hook(&format!("{PATH}{namespace}/{topic}/{hook}"));
    let Address { namespace, topic, webhook } = address.ok_or_else(no_address)?;
    body::check_length(body.len(), EVENT_BYTES_MAX)?;
    // The address of a webhook outlives its namespace, and the platform would make an object for it.
    if !known_namespaces::has(front.env(), &namespace).await? {
        return Err(no_address());
    }
    let request = Ask::Webhook { id: webhook, ask: WebhookAsk::Deliver { headers, body } };
    let call = Call { by: BY.to_owned(), request };
    let (status, body) = front.holding(&namespace).call_topic(&topic, &call).await?;
    Ok(Response::of_object(status, body))
}

/// `GET /api/webhooks`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    front.ask_topic(&topic_of_query(query)?, Ask::ListWebhooks).await
}

/// `PUT /api/webhooks/{topic}/{webhook}`
pub async fn put(front: &Front, topic: &str, id: String, body: &str) -> Result<Response, Refusal> {
    if !is_part(&id) {
        let detail = "The id of a webhook has 1 to 64 letters, digits, '-', '_' or '.', and begins with a letter or digit.";
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let topic = wanted(Some(topic.to_owned()))?;
    let spec: WebhookSpec = read(body)?;
    check_webhook(&topic, &spec).map_err(Refusal)?;
    ask(front, &topic, id, WebhookAsk::Put(Box::new(spec))).await
}

/// `GET /api/webhooks/{topic}/{webhook}/deliveries/{delivery}`
pub async fn show(front: &Front, topic: &str, id: String, delivery: &str) -> Result<Response, Refusal> {
    ask(front, topic, id, WebhookAsk::Delivery(number(delivery)?)).await
}

/// `POST /api/webhooks/{topic}/{webhook}/deliveries/{delivery}/redeliver`
pub async fn redeliver(front: &Front, topic: &str, id: String, delivery: &str) -> Result<Response, Refusal> {
    ask(front, topic, id, WebhookAsk::Redeliver { mark: nonce(), delivery: number(delivery)? }).await
}

/// Something about one webhook.
pub async fn ask(front: &Front, topic: &str, id: String, ask: WebhookAsk) -> Result<Response, Refusal> {
    if !is_topic(topic) || !is_part(&id) {
        return Err(Refusal(no_webhook()));
    }
    front.ask_topic(topic, Ask::Webhook { id, ask }).await
}

fn number(delivery: &str) -> Result<u64, Refusal> {
    // Beyond that, numbers are not exact in every client.
    delivery.parse().ok().filter(|number| *number < 1 << 53).ok_or_else(|| {
        let detail = "The webhook has no delivery with this number. The latest 60 are kept.";
        Refusal::new(Code::WebhookNotFound, detail)
    })
}

fn no_address() -> Refusal {
    let detail = "There is no such webhook. Check that the sender has its whole address: `GET /api/webhooks?topic=…` \
                  shows it.";
    Refusal::new(Code::WebhookNotFound, detail)
}
