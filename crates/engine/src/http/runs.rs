//! The routes of runs.

use std::collections::BTreeSet;

use axum::{
    Extension,
    extract::{Path, RawQuery},
    response::Response,
};
use http::HeaderMap;
use stepwell_core::cell::Action;
use stepwell_protocol::{
    Code, Op, Payload, RunId, Seq,
    program::{PAYLOAD_BYTES_MAX, RESERVED_PREFIX, is_reserved},
    rest::Restart,
    text::is_visible,
};

use super::{
    body,
    error::Refusal,
    forward::Front,
    starts::{self, Wanted},
};
use crate::cell::Operation;

/// The headers that the routes look at.
pub const HEADERS: [&str; 2] = ["idempotency-key", "prefer"];

/// The longest that a caller may wait for the end of a run.
const WAIT_SECONDS_MAX: u64 = 300;

/// The longest idempotency key or signal id.
const KEY_LENGTH_MAX: usize = 256;

/// The longest tag.
const TAG_LENGTH_MAX: usize = 64;

/// The most tags of a run: each is a row.
const TAGS_MAX: usize = 8;

/// The longest name of a workflow or signal.
const NAME_LENGTH_MAX: usize = 128;

/// `POST /api/workflows/{workflow}/start`
#[worker::send]
pub async fn start(
    Extension(front): Extension<Front>,
    Path(workflow): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refusal> {
    check_name("workflow", &workflow)?;
    if is_reserved(&workflow) {
        let detail = format!("Workflows that begin with '{RESERVED_PREFIX}' are started by Stepwell itself.");
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let tags = tags(query.as_deref().unwrap_or_default())?;
    let input = payload(body)?;
    let key = idempotency_key(&headers)?;
    let terms = front.check_workflow(&workflow).await?;
    let wait_ms = wait_ms(&headers)?;
    starts::start(&front, &Wanted { workflow, input, key, nonce: starts::nonce(), terms, tags, wait_ms })
        .await
}

/// `GET /api/executions/{id}`
#[worker::send]
pub async fn show(
    Extension(front): Extension<Front>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let id = front.locate(&id).await?;
    let wait_ms = wait_ms(&headers)?;
    front.ask(&id.place, Operation::Get { number: id.number, suffix: id.suffix, wait_ms }).await
}

/// `GET /api/executions/{id}/why`
#[worker::send]
pub async fn why(Extension(front): Extension<Front>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = front.locate(&id).await?;
    front.ask(&id.place, Operation::Why { number: id.number, suffix: id.suffix }).await
}

/// `GET /api/executions/{id}/history`
#[worker::send]
pub async fn history(
    Extension(front): Extension<Front>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let id = front.locate(&id).await?;
    let query = query.unwrap_or_default();
    let after = after(&query)?;
    let replay = pairs(&query).any(|(name, value)| name == "replay" && value == "true");
    front.ask(&id.place, Operation::History { number: id.number, suffix: id.suffix, after, replay }).await
}

/// `POST /api/executions/{id}/signals/{name}`
#[worker::send]
pub async fn signal(
    Extension(front): Extension<Front>,
    Path((id, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refusal> {
    let run = front.locate(&id).await?;
    check_name("signal", &name)?;
    let payload = payload(body)?;
    let id = idempotency_key(&headers)?;
    let (number, suffix, nonce) = (run.number, run.suffix, Some(starts::nonce()));
    front.ask(&run.place, Operation::Signal { number, suffix, name, id, nonce, payload }).await
}

/// `POST /api/executions/{id}/cancel`
#[worker::send]
pub async fn cancel(Extension(front): Extension<Front>, Path(id): Path<String>) -> Result<Response, Refusal> {
    act(&front, &id, Action::Cancel).await
}

/// `POST /api/executions/{id}/pause`
#[worker::send]
pub async fn pause(Extension(front): Extension<Front>, Path(id): Path<String>) -> Result<Response, Refusal> {
    act(&front, &id, Action::Pause).await
}

/// `POST /api/executions/{id}/resume`
#[worker::send]
pub async fn resume(Extension(front): Extension<Front>, Path(id): Path<String>) -> Result<Response, Refusal> {
    act(&front, &id, Action::Resume).await
}

/// `POST /api/executions/{id}/retry`
#[worker::send]
pub async fn retry(Extension(front): Extension<Front>, Path(id): Path<String>) -> Result<Response, Refusal> {
    act(&front, &id, Action::Retry).await
}

/// `POST /api/executions/{id}/restart`
#[worker::send]
pub async fn restart(
    Extension(front): Extension<Front>,
    Path(id): Path<String>,
    body: String,
) -> Result<Response, Refusal> {
    let Restart { from, without_signal } =
        if body::is_empty(&body) { Restart::default() } else { body::read(&body)? };
    if from.as_ref().is_some_and(|from| from.step.len() > Op::NAME_LENGTH_MAX) {
        let detail = format!("The name of a step has up to {} bytes.", Op::NAME_LENGTH_MAX);
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let action = match (from, without_signal) {
        (from, None) => Action::Restart { from },
        (None, Some(seq)) => Action::DropSignal { seq },
        (Some(_), Some(_)) => {
            let detail =
                "A run goes back to before a step or to before a signal: send `from` or `without_signal`.";
            return Err(Refusal::new(Code::InvalidRequest, detail));
        }
    };
    act(&front, &id, action).await
}

async fn act(front: &Front, id: &str, action: Action) -> Result<Response, Refusal> {
    let RunId { place, number, suffix } = front.locate(id).await?;
    front.ask(&place, Operation::Act { number, suffix, action }).await
}

/// A body that is one JSON value; no body at all is `null`.
pub(super) fn payload(body: String) -> Result<Payload, Refusal> {
    if body::is_empty(&body) {
        return Ok(Payload::null());
    }
    if body.len() > PAYLOAD_BYTES_MAX {
        let detail = format!("The payload has {} bytes; the most is {PAYLOAD_BYTES_MAX}.", body.len());
        return Err(Refusal::new(Code::PayloadTooLarge, detail));
    }
    Payload::from_text(body)
        .map_err(|error| Refusal::new(Code::InvalidRequest, format!("The body is not JSON: {error}.")))
}

pub(super) fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_LENGTH_MAX || !is_visible(name) {
        let detail = format!(
            "Use 1 to {NAME_LENGTH_MAX} bytes for the name of a {what}, without control or invisible characters."
        );
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= KEY_LENGTH_MAX => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => {
            let detail = format!("An Idempotency-Key has 1 to {KEY_LENGTH_MAX} visible ASCII characters.");
            Err(Refusal::new(Code::InvalidRequest, detail))
        }
    }
}

/// The seconds of `Prefer: wait=N`, in milliseconds; 0 when the caller does not wait.
pub(super) fn wait_ms(headers: &HeaderMap) -> Result<u64, Refusal> {
    let Some(prefer) = headers.get("prefer").and_then(|value| value.to_str().ok()) else { return Ok(0) };
    let Some(wait) = prefer.split(',').find_map(|part| part.trim().strip_prefix("wait=")) else {
        return Ok(0);
    };
    let seconds: u64 = wait.trim().parse().map_err(|_| {
        let detail = format!("`Prefer: wait=N` takes whole seconds, up to {WAIT_SECONDS_MAX}.");
        Refusal::new(Code::InvalidRequest, detail)
    })?;
    Ok(seconds.min(WAIT_SECONDS_MAX) * 1_000)
}

/// The tags of `?tag=a&tag=b`.
pub(super) fn tags(query: &str) -> Result<Vec<String>, Refusal> {
    let tags: BTreeSet<_> = pairs(query).filter(|(name, _)| name == "tag").map(|(_, value)| value).collect();
    let is_good = |tag: &String| !tag.is_empty() && tag.len() <= TAG_LENGTH_MAX && is_visible(tag);
    if tags.len() > TAGS_MAX || !tags.iter().all(is_good) {
        let detail = format!(
            "A run has up to {TAGS_MAX} tags of 1 to {TAG_LENGTH_MAX} bytes, without control or invisible \
             characters."
        );
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    Ok(tags.into_iter().collect())
}

/// The names and values of a query, decoded.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(query.as_bytes()).into_owned()
}

/// The position of `?after=N`.
pub(super) fn after(query: &str) -> Result<Seq, Refusal> {
    let Some(after) = query.split('&').find_map(|part| part.strip_prefix("after=")) else {
        return Ok(Seq(0));
    };
    after
        .parse()
        .map(Seq)
        .map_err(|_| Refusal::new(Code::InvalidRequest, "`after` takes the `next` of the page before."))
}
