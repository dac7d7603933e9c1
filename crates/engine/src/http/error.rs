//! Refusals, as `application/problem+json`.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use stepwell_protocol::{Code, Problem};

/// A request that was refused.
#[derive(Debug)]
pub struct Refusal(pub Problem);

impl Refusal {
    /// A refusal with its own words.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Problem::new(code, detail))
    }

    /// The response.
    pub fn into_response(self) -> Response {
        let body = serde_json::to_string(&self.0).expect("a problem holds only what JSON can say");
        problem_response(self.0.status, body)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Refusal::into_response(self)
    }
}

/// A problem that is already JSON.
pub fn problem_response(status: u16, body: String) -> Response {
    let retry_after = match status {
        429 => serde_json::from_str::<Problem>(&body).ok().and_then(|problem| problem.retry_after),
        _ => None,
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == 429
        && let Some(seconds) = retry_after
    {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
