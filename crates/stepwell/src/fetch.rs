//! HTTP calls of steps, which end with the attempt that made them.
//!
//! Owns: what an answer's status means for the step. Does not own: the call itself, which is the runtime's.

use std::time::{Duration, SystemTime};

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

    /// Sets a header, in place of one of the same name.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the header `authorization` to `Bearer` and this secret.
    pub fn bearer(self, secret: &Secret) -> Self {
        let value = format!("Bearer {}", secret.expose());
        self.header("authorization", value)
    }

    /// Sends this as JSON, with the header `content-type` unless you have set one.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Self {
        let body = serde_json::to_string(body).map(Some);
        let has_type = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let typed = if has_type { self } else { self.header("content-type", "application/json") };
        Self { body, ..typed.posting() }
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
        let what = format!("{method} {}", shown(&url));
        let all = Headers::new();
        for (name, value) in &headers {
            // What the runtime says of it may hold the value.
            all.append(name, value).map_err(|_| {
                Error::terminal(format!(
                    "{what} cannot be sent: check the name and the value of header '{name}'"
                ))
            })?;
        }
        let mut init = RequestInit::new();
        init.with_method(Method::from(method)).with_headers(all).with_body(body.map(Into::into));
        let request = Request::new_with_init(&url, &init).map_err(|_| {
            Error::terminal(format!("{what} cannot be sent: check the address, the method and the body"))
        })?;
        let sent = worker::Fetch::Request(request).send_with_signal(&info.signal()?).await;
        let response = sent.map_err(|error| Error::msg(format!("{what} got no answer: {error}")))?;
        Ok(Answer { what, response })
    }

    /// Sends the request, and waits for the answer's headers.
    #[cfg(not(target_arch = "wasm32"))]
    #[expect(clippy::unused_async, reason = "in a Worker it waits for the answer")]
    pub async fn send(self) -> Result<Answer> {
        Err(crate::EnvError::not_in_tests("call of", &shown(&self.url)).into())
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

    /// A header, if it exists.
    pub fn header(&self, name: &str) -> Option<String> {
        self.response.headers().get(name).ok().flatten()
    }

    /// Fails unless the status is 2xx. The step is retried after 408, 425, 429 and 5xx, at the time that the header
    /// `Retry-After` gives if there is one; any other status is terminal.
    pub fn ok(self) -> Result<Self> {
        judge(&self.what, self.status(), self.header("retry-after").as_deref(), now())?;
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
        serde_json::from_str(&text).map_err(|error| {
            Error::msg(format!("{what} answered something else than expected: {error}: {}", beginning(&text)))
        })
    }

    /// The `worker` crate's own response, for all else.
    pub fn into_response(self) -> worker::Response {
        self.response
    }
}

/// As much of a body as fits into an error.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 120;
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if text.chars().count() > SHOWN {
        shown.push('…');
    }
    if shown.is_empty() { "the body is empty".into() } else { shown }
}

/// What people may see of an address, which may carry a password before its host, and a key in its query.
fn shown(url: &str) -> String {
    let address = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (host, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    let colon = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{colon}{host}{path}")
}

fn now() -> SystemTime {
    #[cfg(target_arch = "wasm32")]
    return SystemTime::UNIX_EPOCH + Duration::from_millis(worker::Date::now().as_millis());
    #[cfg(not(target_arch = "wasm32"))]
    SystemTime::now()
}

/// How long to wait by the header `Retry-After`, which has seconds or a date.
fn wait_of(retry_after: &str, now: SystemTime) -> Option<Duration> {
    let text = retry_after.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // One that is over says nothing: the clocks may differ.
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

/// What a status means for the step.
fn judge(what: &str, status: u16, retry_after: Option<&str>, now: SystemTime) -> Result<()> {
    let message = format!("{what} answered {status}");
    match status {
        200..=299 => Ok(()),
        408 | 425 | 429 | 500..=599 => {
            let error = Error::msg(message);
            Err(match retry_after.and_then(|text| wait_of(text, now)) {
                Some(wait) => error.retry_after(wait),
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
        // A minute before the date below.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_792_567_620);
        let error = judge("GET https://a/b", status, retry_after, now).expect_err("it is no success");
        assert_eq!(error.to_string(), format!("GET https://a/b answered {status}"));
        (error.is_terminal(), error.retry_after_ms())
    }

    #[test]
    fn a_status_says_whether_and_when_to_retry() {
        assert!(judge("x", 204, None, now()).is_ok());
        for status in [408, 425, 429, 500, 503, 599] {
            assert_eq!(verdict(status, None), (false, None), "{status}");
        }
        for status in [301, 400, 401, 404, 409, 422] {
            assert_eq!(verdict(status, Some("5")), (true, None), "{status}");
        }
        assert_eq!(verdict(429, Some(" 30 ")), (false, Some(30_000)));
        assert_eq!(verdict(503, Some("Wed, 21 Oct 2026 07:28:00 GMT")), (false, Some(60_000)));
        assert_eq!(verdict(503, Some("Wed, 21 Oct 2015 07:28:00 GMT")), (false, None));
        assert_eq!(verdict(503, Some("soon")), (false, None));
        assert_eq!(verdict(503, Some("99999999999999999999")), (false, None));
    }

    #[test]
    fn an_address_is_told_without_its_query_and_password() {
        assert_eq!(shown("https://a/b?key=secret#c"), "https://a/b");
        assert_eq!(shown("https://ada:secret@a:8080/b@c"), "https://a:8080/b@c");
        assert_eq!(shown("https://ada:se@cret@a"), "https://a");
        assert_eq!(shown("a/b"), "a/b");
    }

    #[test]
    fn a_header_is_set_once() {
        let info = StepInfo::for_tests();
        let values = |fetch: Fetch| fetch.headers.into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        let own = fetch(&info, "https://a").header("Content-Type", "application/vnd.a+json").json(&1);
        assert_eq!(values(own), ["application/vnd.a+json"]);
        let later = fetch(&info, "https://a").json(&1).header("Content-Type", "text/x");
        assert_eq!(values(later), ["text/x"]);
        assert_eq!(values(fetch(&info, "https://a").json(&1)), ["application/json"]);
    }
}
