//! HTTP calls of steps, which end with the attempt that made them.
//!
//! Owns: what an answer's status means for the step. Does not own: the call itself, which is the runtime's.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Result, Secret, StepInfo};

/// An HTTP request to this address. It ends with the step's attempt: an attempt that times out or is cancelled aborts
/// it.
///
/// ```
/// use stepwell::{fetch, prelude::*, testing::Test};
///
/// #[workflow]
/// async fn charge(ctx: Ctx, cents: u32) -> Result<String> {
///     ctx.step_with("charge", async |info| {
///         let key = ctx.env().secret("BANK_KEY")?;
///         let answer = fetch(&info, "https://bank.example.com/charges")
///             .bearer(&key)
///             .header("idempotency-key", &info.idempotency_key)
///             .json(&cents)
///             .send()
///             .await?;
///         answer.ok()?.text().await
///     })
///     .await
/// }
///
/// // There is no network in `cargo test`: mock the step.
/// let outcome = Test::new(App::new().workflow(charge)).mock("charge", |_| Ok("ch_1")).run("charge", &100);
/// assert_eq!(outcome.output::<String>(), "ch_1");
/// ```
pub fn fetch(info: &StepInfo, url: impl Into<String>) -> Fetch {
    Fetch {
        info: info.clone(),
        url: url.into(),
        method: "GET".to_owned(),
        headers: Vec::new(),
        body: Ok(None),
    }
}

/// A request that was not sent yet: see [`fetch`].
#[must_use = "a request does nothing until it is sent"]
#[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "only a Worker sends requests"))]
pub struct Fetch {
    info: StepInfo,
    url: String,
    method: String,
    headers: Vec<(String, String)>,
    body: Result<Option<String>, serde_json::Error>,
}

impl Fetch {
    /// Sets the method. The default is `GET`, or `POST` with a body.
    pub fn method(self, method: &str) -> Self {
        Self { method: method.to_ascii_uppercase(), ..self }
    }

    /// Sets a header.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the header `authorization` to `Bearer` and this secret.
    pub fn bearer(self, secret: &Secret) -> Self {
        let value = format!("Bearer {}", secret.expose());
        self.header("authorization", value)
    }

    /// Sends this as JSON.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Self {
        let body = serde_json::to_string(body).map(Some);
        Self { body, ..self.header("content-type", "application/json").posting() }
    }

    /// Sends this text.
    pub fn body(self, body: impl Into<String>) -> Self {
        Self { body: Ok(Some(body.into())), ..self.posting() }
    }

    fn posting(self) -> Self {
        if self.method == "GET" { self.method("POST") } else { self }
    }

    /// Sends the request, and waits for the answer's headers.
    #[cfg(target_arch = "wasm32")]
    pub async fn send(self) -> Result<Answer> {
        use worker::{Headers, Method, Request, RequestInit};

        let Self { info, url, method, headers, body } = self;
        let body =
            body.map_err(|error| Error::terminal(format!("the body cannot be written as JSON: {error}")))?;
        let all = Headers::new();
        for (name, value) in &headers {
            all.append(name, value)?;
        }
        let mut init = RequestInit::new();
        init.with_method(Method::from(method.clone())).with_headers(all).with_body(body.map(Into::into));
        let request = Request::new_with_init(&url, &init)?;
        let response = worker::Fetch::Request(request).send_with_signal(&info.signal()?).await?;
        Ok(Answer { what: format!("{method} {}", without_query(&url)), response })
    }

    /// Sends the request, and waits for the answer's headers.
    #[cfg(not(target_arch = "wasm32"))]
    #[expect(clippy::unused_async, reason = "in a Worker it waits for the answer")]
    pub async fn send(self) -> Result<Answer> {
        Err(crate::EnvError::not_in_tests("call of", without_query(&self.url)).into())
    }
}

/// What came back for a [`Fetch`].
pub struct Answer {
    /// The request's method and address, for people.
    what: String,
    response: worker::Response,
}

impl Answer {
    /// The status.
    pub fn status(&self) -> u16 {
        self.response.status_code()
    }

    /// A header, if there is one of this name.
    pub fn header(&self, name: &str) -> Option<String> {
        self.response.headers().get(name).ok().flatten()
    }

    /// Fails unless the status is 2xx. The step is retried after 408, 425, 429 and 5xx, when the header `Retry-After`
    /// says so if it gives seconds; any other status is terminal.
    pub fn ok(self) -> Result<Self> {
        judge(&self.what, self.status(), self.header("retry-after").as_deref())?;
        Ok(self)
    }

    /// The body as text.
    pub async fn text(mut self) -> Result<String> {
        Ok(self.response.text().await?)
    }

    /// The body, read as JSON.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let what = self.what.clone();
        let text = self.text().await?;
        serde_json::from_str(&text)
            .map_err(|error| Error::msg(format!("{what} answered something else than expected: {error}")))
    }

    /// The `worker` crate's own response, for all else.
    pub fn into_response(self) -> worker::Response {
        self.response
    }
}

/// An address may carry a key in its query.
fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// What a status means for the step.
fn judge(what: &str, status: u16, retry_after: Option<&str>) -> Result<()> {
    let message = format!("{what} answered {status}");
    match status {
        200..=299 => Ok(()),
        408 | 425 | 429 | 500..=599 => {
            let seconds = retry_after.and_then(|text| text.trim().parse().ok());
            let error = Error::msg(message);
            Err(match seconds {
                Some(seconds) => error.retry_after(Duration::from_secs(seconds)),
                None => error,
            })
        }
        _ => Err(Error::terminal(message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, retry_after: Option<&str>) -> (bool, Option<u64>) {
        let error = judge("GET https://a/b", status, retry_after).expect_err("it is no success");
        assert_eq!(error.to_string(), format!("GET https://a/b answered {status}"));
        (error.is_terminal(), error.retry_after_ms())
    }

    #[test]
    fn a_status_says_whether_and_when_to_retry() {
        assert!(judge("x", 204, None).is_ok());
        for status in [408, 425, 429, 500, 503, 599] {
            assert_eq!(verdict(status, None), (false, None), "{status}");
        }
        for status in [301, 400, 401, 404, 409, 422] {
            assert_eq!(verdict(status, Some("5")), (true, None), "{status}");
        }
        assert_eq!(verdict(429, Some(" 30 ")), (false, Some(30_000)));
        assert_eq!(verdict(503, Some("Wed, 21 Oct 2026 07:28:00 GMT")), (false, None));
        assert_eq!(verdict(503, Some("99999999999999999999")), (false, None));
    }

    #[test]
    fn an_address_is_told_without_its_query() {
        assert_eq!(without_query("https://a/b?key=secret#c"), "https://a/b");
    }
}
