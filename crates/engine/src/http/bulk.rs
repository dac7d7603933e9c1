//! `POST /api/bulk`: starts the run of the engine's own workflow that does something to many others.

use axum::{Extension, response::Response};
use http::HeaderMap;
use stepwell_protocol::{
    Code, Payload,
    program::BULK_WORKFLOW,
    rest::{Bulk, Filter},
};

use super::{
    body,
    error::Refusal,
    forward::Front,
    runs::{idempotency_key, wait_ms},
    starts::{self, Wanted},
};

/// `POST /api/bulk`
#[worker::send]
pub async fn start(
    Extension(front): Extension<Front>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refusal> {
    let bulk: Bulk = body::read(&body)?;
    if bulk.filter == Filter::default() {
        let detail = "The filter is empty, so this would be about every run there is. Name what it is about; \
                      `\"from\": 0` is all of them.";
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let wanted = Wanted {
        workflow: BULK_WORKFLOW.into(),
        input: Payload::encode(&bulk).expect("what was read from JSON can be written as JSON"),
        key: idempotency_key(&headers)?,
        nonce: starts::nonce(),
        terms: front.own_terms(),
        tags: Vec::new(),
        wait_ms: wait_ms(&headers)?,
    };
    starts::start(&front, &wanted).await
}
