//! The routes of schedules.

use stepwell_core::schedule::LIST_MAX;
use stepwell_protocol::{
    Code,
    program::{RESERVED_PREFIX, is_reserved},
    schedule::{Backfill, ScheduleSpec},
};

use super::{
    body::{read, shown},
    error::Refusal,
    front::Front,
    request::{Headers, check_name, check_tags, idempotency_key, pairs},
    response::Response,
    starts::nonce,
    workflows,
};
use crate::calls::schedules::Request;

/// How many schedules a page has, unless the request says it.
const PAGE: usize = 50;

/// `GET /api/schedules`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (mut after, mut limit) = (String::new(), PAGE);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "after" => after = value,
            "limit" => {
                limit =
                    value.parse().ok().filter(|limit| (1..=LIST_MAX).contains(limit)).ok_or_else(|| {
                        let detail = format!("`limit` is a number from 1 to {LIST_MAX}.");
                        Refusal::new(Code::InvalidRequest, detail)
                    })?;
            }
            other => {
                let detail = format!("There is no parameter `{}`: use `after` and `limit`.", shown(other));
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    front.ask_schedules(Request::List { after, limit }).await
}

/// `GET /api/schedules/{schedule}`
pub async fn show(front: &Front, id: String) -> Result<Response, Refusal> {
    front.ask_schedules(Request::Get { id }).await
}

/// `PUT /api/schedules/{schedule}`
pub async fn put(front: &Front, id: String, body: &str) -> Result<Response, Refusal> {
    check_name("schedule", &id)?;
    let spec: ScheduleSpec = read(body)?;
    check_name("workflow", &spec.workflow)?;
    if is_reserved(&spec.workflow) {
        let detail = format!("Workflows that begin with '{RESERVED_PREFIX}' are started by Stepwell itself.");
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    check_tags(&spec.tags)?;
    workflows::terms(front, &spec.workflow).await?;
    front.ask_schedules(Request::Put { id, spec: Box::new(spec) }).await
}

/// `DELETE /api/schedules/{schedule}`
pub async fn delete(front: &Front, id: String) -> Result<Response, Refusal> {
    front.ask_schedules(Request::Delete { id }).await
}

/// `POST /api/schedules/{schedule}/pause`
pub async fn pause(front: &Front, id: String) -> Result<Response, Refusal> {
    front.ask_schedules(Request::Pause { id }).await
}

/// `POST /api/schedules/{schedule}/resume`
pub async fn resume(front: &Front, id: String) -> Result<Response, Refusal> {
    front.ask_schedules(Request::Resume { id }).await
}

/// `POST /api/schedules/{schedule}/trigger`. With an `Idempotency-Key`, the same request starts one run.
pub async fn trigger(front: &Front, id: String, headers: &Headers) -> Result<Response, Refusal> {
    let mark = match idempotency_key(headers)? {
        Some(key) => format!("key-{key}"),
        None => nonce(),
    };
    front.ask_schedules(Request::Trigger { id, mark }).await
}

/// `POST /api/schedules/{schedule}/backfill`
pub async fn backfill(front: &Front, id: String, body: &str) -> Result<Response, Refusal> {
    let range: Backfill = read(body)?;
    front.ask_schedules(Request::Backfill { id, range }).await
}

/// `GET /api/schedules/{schedule}/next`
pub async fn next(front: &Front, id: String) -> Result<Response, Refusal> {
    front.ask_schedules(Request::Next { id }).await
}
