//! A small HTTP client: a base address, a bounded wait, and answers that say what came when they are not
//! what was expected.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Longer than anything a test waits for on purpose.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long nothing comes before an answer without an end is taken for all that there is.
const QUIET: Duration = Duration::from_millis(500);

/// Talks to one address.
#[derive(Clone, Debug)]
pub struct Http {
    base: String,
    client: reqwest::Client,
}

/// A status and a body.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
    /// The whole body as text.
    pub body: String,
}

impl Http {
    /// A client for `base`, such as `http://127.0.0.1:8080`.
    pub fn new(base: &str) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(TIMEOUT)
            // A connection that was open when the server was killed would fail the next request.
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client without TLS has nothing to load");
        Self { base: base.into(), client }
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(self.client.get(self.url(path)), path).await
    }

    /// Sends a POST with a text body.
    pub async fn post(&self, path: &str, body: impl Into<String>) -> Result<Answer> {
        self.send(self.client.post(self.url(path)).body(body.into()), path).await
    }

    /// The full address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The client itself, for requests of another kind.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Sends a request of any kind.
    pub async fn send(&self, request: reqwest::RequestBuilder, path: &str) -> Result<Answer> {
        let response = request.send().await.with_context(|| path.to_owned())?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.text().await.with_context(|| path.to_owned())?,
        })
    }
}

impl Http {
    /// Sends a request whose answer may have no end: gives what has come when nothing more comes for a moment.
    pub async fn send_for_a_while(&self, request: reqwest::RequestBuilder, path: &str) -> Result<Answer> {
        let mut response = request.send().await.with_context(|| path.to_owned())?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        while let Ok(more) = tokio::time::timeout(QUIET, response.chunk()).await {
            let Some(chunk) = more.with_context(|| path.to_owned())? else { break };
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body: String::from_utf8(body)? })
    }
}

/// A text without the id of its request, which no other answer has.
pub fn without_request(text: &str) -> String {
    let Some((before, rest)) = text.split_once("\"request_id\":\"") else { return text.to_owned() };
    let after = rest.split_once('"').map_or("", |(_, after)| after);
    format!("{before}{after}")
}

impl Answer {
    /// The status and the code of a problem; anything else is an error that shows the body.
    pub fn problem(&self) -> Result<(u16, String)> {
        let problem: Value = serde_json::from_str(&self.body).with_context(|| self.body.clone())?;
        let code = problem["code"].as_str().with_context(|| self.body.clone())?;
        ensure!(problem["status"] == self.status, "status {}: {}", self.status, self.body);
        Ok((self.status, code.to_owned()))
    }

    /// The body as JSON; anything but success is an error that shows the body.
    pub fn json(&self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "status {}: {}", self.status, self.body);
        serde_json::from_str(&self.body).with_context(|| self.body.clone())
    }
}
