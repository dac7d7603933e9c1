//! Cloudflare Queues as a source: what they deliver becomes events.
//!
//! Owns: which event a message becomes, and what its queue is told of it. A message is acknowledged when its event is
//! stored, and known by its id: one that is delivered again is no second event.
//! Does not own: what happens about the events. That is for triggers and waits, as with any other event.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use js_sys::Array;
use serde_json::json;
use stepwell_protocol::{
    Code, Payload, Problem,
    topic::{AcceptedStatus, BATCH_MAX, EVENT_BYTES_MAX, NewEvent, QUEUE_PREFIX},
};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Env;

use crate::{
    http::{Front, accept_events},
    log, runtime,
    settings::Source,
};

/// The event that tells of a message which cannot become one. In a topic of its own, so that no trigger takes it for the
/// message.
const REFUSED: &str = "queues/refused";

/// How many bytes go to a topic at once, or one event more.
const CALL_BYTES_MAX: usize = 1 << 20;

/// How many characters a body has as JSON at the most, about: what is larger is no event.
const BODY_LENGTH_MAX: u32 = 1_000_000;

/// How many bytes of a refused message its event shows.
const SHOWN_BYTES_MAX: usize = 1_000;

/// The pause before a message comes again because its topic did not take it; after each further time it is twice as long.
const PAUSE_SECONDS: u32 = 10;

/// The pause before one comes again that can never become an event.
const POISON_SECONDS: u32 = 30;

/// The longest such pause.
const PAUSE_SECONDS_MAX: u32 = 3_600;

/// A message as it was delivered.
struct Message {
    raw: JsValue,
    id: String,
    attempts: u32,
}

/// What becomes of a message.
enum Fate {
    /// Its event is stored.
    Stored,
    /// It comes again later.
    Later,
    /// It can never become an event: its queue has it as a dead letter when it has come often enough.
    Poison,
}

/// Takes what a queue delivers. Never an error: each message has its own fate.
pub async fn take(batch: &JsValue, source: &Source, env: Env) {
    let messages: Array = runtime::property(batch, "messages").unchecked_into();
    let messages: Vec<_> = messages.iter().map(Message::of).collect();
    let mut fates: Vec<_> = messages.iter().map(|_| Fate::Later).collect();
    match Front::new(env) {
        Ok(front) => store(&front, source, &messages, &mut fates).await,
        Err(refusal) => {
            log::error!("nothing is taken from {}: {}", source.queue, refusal.0);
        }
    }
    for (message, fate) in messages.iter().zip(fates) {
        message.settle(&fate);
    }
}

async fn store(front: &Front, source: &Source, messages: &[Message], fates: &mut [Fate]) {
    let by = format!("{QUEUE_PREFIX}{}", source.queue);
    let (mut gathered, mut bytes) = (Vec::new(), 0);
    // Without an id, all of them would be the same.
    let known = messages.iter().enumerate().filter(|(_, message)| !message.id.is_empty());
    for (index, message) in known {
        let said = message.data().and_then(|data| check(&data).map(|()| data));
        let (event, fate) = match said {
            Ok(data) => (message.event(source, data), Fate::Stored),
            Err(problem) => (message.refused(source, &problem), Fate::Poison),
        };
        bytes += event.data.size();
        gathered.push((index, event, fate));
        if bytes >= CALL_BYTES_MAX || gathered.len() >= BATCH_MAX {
            send(front, &by, std::mem::take(&mut gathered), fates).await;
            bytes = 0;
        }
    }
    send(front, &by, gathered, fates).await;
}

/// Gives events to their topic, and notes the fates of those that it has taken.
async fn send(front: &Front, by: &str, gathered: Vec<(usize, NewEvent, Fate)>, fates: &mut [Fate]) {
    if gathered.is_empty() {
        return;
    }
    let (mut events, mut about) = (Vec::new(), Vec::new());
    for (index, event, fate) in gathered {
        events.push(event);
        about.push((index, fate));
    }
    let accepted = match accept_events(front, by, events).await {
        Ok(accepted) => accepted,
        Err(refusal) => {
            log::error!("messages of {by} were not taken: {}", refusal.0);
            return;
        }
    };
    for ((index, fate), accepted) in about.into_iter().zip(accepted) {
        match (accepted.status, fates.get_mut(index)) {
            (AcceptedStatus::Accepted | AcceptedStatus::Duplicate, Some(known)) => *known = fate,
            (AcceptedStatus::Refused, _) => {
                let why = accepted.problem.map(|problem| problem.detail).unwrap_or_default();
                log::error!("a message of {by} was not taken: {why}");
            }
            (AcceptedStatus::Accepted | AcceptedStatus::Duplicate, None) => {}
        }
    }
}

/// Refuses what no topic takes.
fn check(data: &Payload) -> Result<(), Problem> {
    if data.size() <= EVENT_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("The body has {} bytes as JSON, and {EVENT_BYTES_MAX} are the most.", data.size());
    Err(Problem::new(Code::PayloadTooLarge, detail))
}

impl Message {
    fn of(raw: JsValue) -> Self {
        let id = runtime::property(&raw, "id").as_string().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
        let attempts = runtime::property(&raw, "attempts").as_f64().unwrap_or(1.0).clamp(1.0, 1e6) as u32;
        Self { raw, id, attempts }
    }

    /// What it says, as JSON. Bytes become `{"base64": …}`.
    fn data(&self) -> Result<Payload, Problem> {
        let body = runtime::property(&self.raw, "body");
        let text = if body.is_instance_of::<js_sys::ArrayBuffer>() || js_sys::ArrayBuffer::is_view(&body) {
            let bytes = runtime::bytes_of(&body).to_vec();
            Some(json!({ "base64": STANDARD.encode(bytes) }).to_string())
        } else {
            runtime::json_within(&body, BODY_LENGTH_MAX).ok().and_then(|text| text.as_string())
        };
        text.and_then(|text| Payload::from_text(text).ok()).ok_or_else(|| {
            Problem::new(Code::InvalidRequest, "The body cannot be written as JSON of up to a megabyte.")
        })
    }

    fn event(&self, Source { queue, event }: &Source, data: Payload) -> NewEvent {
        NewEvent { name: event.clone(), id: Some(format!("{QUEUE_PREFIX}{queue}:{}", self.id)), data }
    }

    /// An event that tells of a message which cannot become one.
    fn refused(&self, Source { queue, .. }: &Source, problem: &Problem) -> NewEvent {
        let mut shown = runtime::property(&self.raw, "body").as_string().unwrap_or_default();
        let mut end = SHOWN_BYTES_MAX.min(shown.len());
        while !shown.is_char_boundary(end) {
            end -= 1;
        }
        shown.truncate(end);
        let data = json!({
            "queue": queue, "message": self.id, "code": problem.code.as_str(), "detail": problem.detail, "body": shown,
        });
        let data = Payload::encode(&data).unwrap_or_default();
        NewEvent { name: REFUSED.to_owned(), id: Some(format!("{QUEUE_PREFIX}{queue}:{}", self.id)), data }
    }

    /// Says to its queue what became of it.
    fn settle(&self, fate: &Fate) {
        let pause = PAUSE_SECONDS.saturating_mul(1 << (self.attempts - 1).min(16)).min(PAUSE_SECONDS_MAX);
        let said = match fate {
            Fate::Stored => runtime::ack_message(&self.raw),
            Fate::Later => runtime::retry_message(&self.raw, pause),
            Fate::Poison => runtime::retry_message(&self.raw, POISON_SECONDS),
        };
        if let Err(thrown) = said {
            // It comes again, and is known.
            log::error!("a queue was not told of a message: {}", runtime::message(&thrown));
        }
    }
}
