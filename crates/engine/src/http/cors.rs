//! Which pages of other origins may call the API: those that `STEPWELL_CORS` lists, with a key in `Authorization`.
//!
//! Cookies are never part of it: no answer has `Access-Control-Allow-Credentials`, and a session or an Access token that
//! another origin's page sends is refused whatever the list says.

use stepwell_protocol::routes::{self, Route};
use worker::Request;

use super::response::Response;
use crate::settings::Deployment;

/// The headers that a page may send, besides those that need no leave.
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id, prefer, stepwell-callback, stepwell-delay, stepwell-request-id, traceparent";

/// The headers of an answer that a page may read, besides those that need no leave.
const EXPOSED_HEADERS: &str = "content-location, location, retry-after, stepwell-request-id";

/// How long a browser may remember what it was allowed, in seconds.
const REMEMBERED_S: &str = "600";

/// What an answer tells a browser about other origins.
#[derive(Debug, Default)]
pub struct Cors {
    /// Whether any origin is listed. Only then does an answer depend on who asks.
    is_on: bool,
    /// The origin of the page that asks, if it is listed.
    origin: Option<String>,
}

impl Cors {
    /// What to tell about this request.
    pub fn of(request: &Request, deployment: &Deployment) -> Self {
        // Each look at a header is a crossing: most deployments list nobody.
        if deployment.origins.is_empty() {
            return Self::default();
        }
        let origin = request.headers().get("origin").ok().flatten();
        Self { is_on: true, origin: origin.filter(|origin| deployment.origins.contains(origin)) }
    }

    /// The answer to a browser that asks first whether it may send a request; none, if that is not what it asks.
    pub fn preflight(&self, request: &Request, method: &str, path: &str) -> Option<Response> {
        let asks = || request.headers().has("access-control-request-method").unwrap_or_default();
        if method != "OPTIONS" || self.origin.is_none() || !asks() {
            return None;
        }
        let methods: Vec<_> = Route::methods(path).into_iter().map(routes::Method::as_str).collect();
        let response = Response::empty()
            .with("access-control-allow-methods", methods.join(", "))
            .with("access-control-allow-headers", ALLOWED_HEADERS)
            .with("access-control-max-age", REMEMBERED_S);
        Some(response)
    }

    /// The headers of every answer.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let vary = self.is_on.then_some(("vary", "origin"));
        let allow = self.origin.as_deref().map(|origin| ("access-control-allow-origin", origin));
        let expose = allow.map(|_| ("access-control-expose-headers", EXPOSED_HEADERS));
        [vary, allow, expose].into_iter().flatten()
    }
}
