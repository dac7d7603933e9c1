//! Refusals, as `application/problem+json`.

use stepwell_protocol::{Code, Problem};

use super::response::Response;

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
        Response::problem(self.0.status, body)
    }
}
