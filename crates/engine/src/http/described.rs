//! What needs no key: the description of the routes, for programs and for people, and whether anybody answers.

use stepwell_protocol::{
    PROTOCOL,
    rest::{Health, HealthStatus},
};

use super::response::Response;

/// Made by `just api`, and by `build.rs` of what that has made.
const OPENAPI: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// It reads the description, and nothing from anywhere else.
const PAGE: &str = include_str!("docs.html");

/// `GET /api/openapi.json`
pub fn openapi() -> Response {
    Response::json(200, OPENAPI)
}

/// `GET /api/docs`
pub fn page() -> Response {
    let policy = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    Response::new(200, "text/html; charset=utf-8", PAGE).with("content-security-policy", policy)
}

/// `GET /api/health`. Touches no object: it says that the Worker answers, and nothing about its runs.
pub fn health() -> Response {
    Response::of(200, &Health { status: HealthStatus::Ok, protocol: PROTOCOL })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_the_description_without_its_blanks() {
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
        let committed = include_str!("../../openapi.json");
        assert_eq!(read(OPENAPI), read(committed));
        assert!(OPENAPI.len() * 2 < committed.len(), "{} bytes are served", OPENAPI.len());
    }
}
