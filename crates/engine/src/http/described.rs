//! What needs no key: the description of the routes, for programs and for people, and whether anybody answers.

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode, header};
use stepwell_protocol::{
    PROTOCOL,
    rest::{Health, HealthStatus},
};

use super::json;

/// Made by `just api`, and by `build.rs` of what that has made.
const OPENAPI: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// It reads the description, and nothing from anywhere else.
const PAGE: &str = include_str!("docs.html");

/// `GET /api/openapi.json`
pub async fn openapi() -> Response {
    json(StatusCode::OK, OPENAPI.to_owned())
}

/// `GET /api/docs`
pub async fn page() -> Response {
    let mut response = Response::new(Body::from(PAGE));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    let policy = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}

/// `GET /api/health`. Touches no object: it says that the Worker answers, and nothing about its runs.
pub async fn health() -> Response {
    let health = Health { status: HealthStatus::Ok, protocol: PROTOCOL };
    json(StatusCode::OK, serde_json::to_string(&health).expect("a word and a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_the_description_without_its_blanks() {
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
        let committed = include_str!("../../../../docs/openapi.json");
        assert_eq!(read(OPENAPI), read(committed));
        assert!(OPENAPI.len() * 2 < committed.len(), "{} bytes are served", OPENAPI.len());
    }
}
