//! The routes of runs.

use axum::{
    Extension,
    extract::{Path, RawQuery},
    response::Response,
};
use http::HeaderMap;
use stepwell_protocol::{Code, Payload, Seq, program::PAYLOAD_BYTES_MAX};

use super::{error::Refusal, forward::Front};
use crate::cell::Operation;

/// The headers that the routes look at.
pub const HEADERS: [&str; 2] = ["idempotency-key", "prefer"];

/// The longest that a caller may wait for the end of a run.
const WAIT_SECONDS_MAX: u64 = 300;

/// The longest idempotency key or signal id.
const KEY_LENGTH_MAX: usize = 256;

/// The longest name of a workflow or signal.
const NAME_LENGTH_MAX: usize = 128;

/// `POST /api/workflows/{workflow}/start`
#[worker::send]
pub async fn start(
    Extension(front): Extension<Front>,
    Path(workflow): Path<String>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refusal> {
    check_name("workflow", &workflow)?;
    let input = payload(body)?;
    let key = idempotency_key(&headers)?;
    front.check_workflow(&workflow).await?;
    let place = front.choose_cell(key.as_deref());
    let wait_ms = wait_ms(&headers)?;
    front.ask(&place, Operation::Start { workflow, input, key, wait_ms }).await
}

/// `GET /api/executions/{id}`
#[worker::send]
pub async fn show(
    Extension(front): Extension<Front>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let id = front.locate(&id)?;
    let wait_ms = wait_ms(&headers)?;
    front.ask(&id.place, Operation::Get { number: id.number, suffix: id.suffix, wait_ms }).await
}

/// `GET /api/executions/{id}/history`
#[worker::send]
pub async fn history(
    Extension(front): Extension<Front>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let id = front.locate(&id)?;
    let after = after(query.as_deref().unwrap_or_default())?;
    front.ask(&id.place, Operation::History { number: id.number, suffix: id.suffix, after }).await
}

/// `POST /api/executions/{id}/signals/{name}`
#[worker::send]
pub async fn signal(
    Extension(front): Extension<Front>,
    Path((id, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refusal> {
    let run = front.locate(&id)?;
    check_name("signal", &name)?;
    let payload = payload(body)?;
    let id = idempotency_key(&headers)?;
    let (number, suffix) = (run.number, run.suffix);
    front.ask(&run.place, Operation::Signal { number, suffix, name, id, payload }).await
}

/// `POST /api/executions/{id}/cancel`
#[worker::send]
pub async fn cancel(Extension(front): Extension<Front>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = front.locate(&id)?;
    front.ask(&id.place, Operation::Cancel { number: id.number, suffix: id.suffix }).await
}

/// A body that is one JSON value; no body at all is `null`.
fn payload(body: String) -> Result<Payload, Refusal> {
    if body.trim().is_empty() {
        return Ok(Payload::null());
    }
    if body.len() > PAYLOAD_BYTES_MAX {
        let detail = format!("The payload has {} bytes; the most is {PAYLOAD_BYTES_MAX}.", body.len());
        return Err(Refusal::new(Code::PayloadTooLarge, detail));
    }
    Payload::from_text(body)
        .map_err(|error| Refusal::new(Code::InvalidRequest, format!("The body is not JSON: {error}.")))
}

fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_LENGTH_MAX || name.chars().any(char::is_control) {
        let detail =
            format!("The name of a {what} has 1 to {NAME_LENGTH_MAX} bytes and no control characters.");
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
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
fn wait_ms(headers: &HeaderMap) -> Result<u64, Refusal> {
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

/// The position of `?after=N`.
fn after(query: &str) -> Result<Seq, Refusal> {
    let Some(after) = query.split('&').find_map(|part| part.strip_prefix("after=")) else {
        return Ok(Seq(0));
    };
    after
        .parse()
        .map(Seq)
        .map_err(|_| Refusal::new(Code::InvalidRequest, "`after` takes the `next` of the page before."))
}
