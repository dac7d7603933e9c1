//! Answers, until the runtime gets them: a status, a few headers and one text, or a response of the runtime's own.
//!
//! One text crosses over at once, where a stream would be a crossing for each piece.

use std::borrow::Cow;

use serde::Serialize;
use stepwell_protocol::{Problem, json};
use worker::{Headers, worker_sys::web_sys};

/// What every answer says: it may hold secrets, and is what its type says. Nobody keeps or reinterprets it.
const ALWAYS: [(&str, &str); 2] = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")];

/// How many rows the object has written that has answered, where that is metered.
pub const ROWS_WRITTEN: &str = "stepwell-rows-written";

/// How many it has read.
pub const ROWS_READ: &str = "stepwell-rows-read";

/// The status whose answers have no body.
const NO_CONTENT: u16 = 204;

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// Its status of HTTP.
    pub status: u16,
    headers: Vec<(&'static str, String)>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Text(Cow<'static, str>),
    /// What cannot be turned into text: a socket, or a body that has no end yet.
    Raw(web_sys::Response),
}

impl Response {
    /// A text of some type.
    pub fn new(status: u16, content_type: &str, body: impl Into<Cow<'static, str>>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { status, headers, body: Body::Text(body.into()) }
    }

    /// Nothing but its status.
    pub fn empty() -> Self {
        Self { status: NO_CONTENT, headers: Vec::new(), body: Body::Text("".into()) }
    }

    /// A JSON text.
    pub fn json(status: u16, body: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status, "application/json", body)
    }

    /// A value, as JSON.
    pub fn of<T: Serialize>(status: u16, body: &T) -> Self {
        Self::json(status, serde_json::to_string(body).expect("answers hold only what JSON can say"))
    }

    /// What an object has answered.
    pub fn of_object(status: u16, body: String) -> Self {
        match status {
            200..400 => Self::json(status, body),
            400..600 => Self::problem(status, body),
            // No status that an object gives.
            _ => Self::json(500, body),
        }
    }

    /// A problem that is already JSON.
    pub fn problem(status: u16, body: String) -> Self {
        let retry_after = match status {
            429 => json::from_str::<Problem>(&body).ok().and_then(|problem| problem.retry_after),
            _ => None,
        };
        let mut response = Self::new(status, "application/problem+json", body);
        if let Some(seconds) = retry_after {
            response = response.with("retry-after", seconds.to_string());
        }
        if status == 401 {
            response = response.with("www-authenticate", "Bearer");
        }
        response
    }

    /// A response of the runtime's own.
    pub fn raw(response: web_sys::Response) -> Self {
        Self { status: response.status(), headers: Vec::new(), body: Body::Raw(response) }
    }

    /// The same with what an object has written and read, where that is metered.
    #[must_use]
    pub fn metered(self, rows: Option<(u64, u64)>) -> Self {
        match rows {
            Some((written, read)) => {
                self.with(ROWS_WRITTEN, written.to_string()).with(ROWS_READ, read.to_string())
            }
            None => self,
        }
    }

    /// The same with another header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same with a header, if it is there, under another name.
    #[must_use]
    pub fn renamed(mut self, from: &str, to: &'static str) -> Self {
        for (name, _) in &mut self.headers {
            if *name == from {
                *name = to;
            }
        }
        self
    }

    /// The answer to whoever asks for the head alone. How long the body would be is a part of that.
    #[must_use]
    pub fn head(self) -> Self {
        match &self.body {
            Body::Text(text) => {
                let length = text.len().to_string();
                Self { body: Body::Text("".into()), ..self.with("content-length", length) }
            }
            Body::Raw(_) => self,
        }
    }

    /// The same with the id of its request: as a header, and in what a problem says.
    #[must_use]
    pub fn of_request(mut self, header: &'static str, id: &str) -> Self {
        let is_problem =
            |(name, value): &(&str, String)| *name == "content-type" && value.contains("problem+json");
        if let Body::Text(text) = &mut self.body
            && self.headers.iter().any(is_problem)
            && text.ends_with('}')
        {
            let text = text.to_mut();
            text.pop();
            text.extend([r#","request_id":""#, id, "\"}"]);
        }
        self.with(header, id)
    }

    /// Whether it is what was asked for.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The problem that it is, if it is one.
    pub fn problem_read(&self) -> Option<Problem> {
        match &self.body {
            Body::Text(text) => json::from_str(text).ok(),
            Body::Raw(_) => None,
        }
    }

    /// Its body, as far as that is a text.
    pub fn into_text(self) -> String {
        match self.body {
            Body::Text(text) => text.into_owned(),
            Body::Raw(_) => String::new(),
        }
    }

    /// What the runtime is given, with headers that do not depend on the answer.
    pub fn finish<'a>(
        self,
        general: impl Iterator<Item = (&'static str, &'a str)>,
    ) -> worker::Result<worker::Response> {
        let general = ALWAYS.into_iter().chain(general);
        let text = match self.body {
            Body::Text(text) => text,
            Body::Raw(raw) => {
                // A socket is handed over as it came, and has no headers to set.
                if raw.status() != 101 {
                    for (name, value) in general {
                        let _ = raw.headers().set(name, value);
                    }
                    for (name, value) in &self.headers {
                        let _ = raw.headers().set(name, value);
                    }
                }
                return Ok(raw.into());
            }
        };
        let headers = Headers::new();
        for (name, value) in general {
            headers.set(name, value)?;
        }
        // An answer that says something of its own about one of these has the last word.
        for (name, value) in &self.headers {
            headers.set(name, value)?;
        }
        // The runtime takes no body with this status, not even an empty one.
        let response = if self.status == NO_CONTENT {
            worker::Response::empty()?
        } else {
            worker::Response::from_bytes(text.into_owned().into_bytes())?
        };
        Ok(response.with_status(self.status).with_headers(headers))
    }
}
