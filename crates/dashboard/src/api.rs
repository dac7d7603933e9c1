//! Requests to the API of the page's own origin. The browser adds the session's cookie; the page never sees it.

use js_sys::Uint8Array;
use leptos::prelude::window;
use serde::{Serialize, de::DeserializeOwned};
use stepwell_dashboard_model::form;
use stepwell_protocol::{Problem, json};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Headers, RequestInit, Response};

/// Why there is no answer that can be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Nobody is signed in, or not any more.
    SignedOut,
    /// The engine has refused it.
    Refused(Problem),
    /// The engine did not answer, or said something that is not understood.
    Unreachable(String),
}

impl Trouble {
    /// What people are told: what happened, and what to do.
    pub fn words(&self) -> String {
        match self {
            Self::SignedOut => "Your session has ended. Sign in again.".into(),
            Self::Refused(problem) => format!("{}: {}", problem.title, problem.detail),
            Self::Unreachable(why) => format!("The engine does not answer ({why}). Is it running?"),
        }
    }

    /// The status of the answer, if there was one.
    pub fn status(&self) -> u16 {
        match self {
            Self::SignedOut => 401,
            Self::Refused(problem) => problem.status,
            Self::Unreachable(_) => 0,
        }
    }
}

/// Asks for something.
pub async fn get<T: DeserializeOwned>(path: &str) -> Result<T, Trouble> {
    read(&text("GET", path, None, &[]).await?)
}

/// Asks for something, as the text that it comes as.
pub async fn get_text(path: &str) -> Result<String, Trouble> {
    text("GET", path, None, &[]).await
}

/// Asks for several things at once, with this key or the session, and gives the answers in their order.
pub async fn get_all(paths: Vec<String>, key: Option<&str>) -> Vec<(String, Result<String, Trouble>)> {
    let authorization = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = authorization.iter().map(|text| ("authorization", text.as_str())).collect();
    // Each is sent before the first answer is waited for.
    let asked: Vec<_> = paths.into_iter().map(|path| (begin("GET", &path, None, &headers), path)).collect();
    let mut answers = Vec::new();
    for (asked, path) in asked {
        let answer = match asked {
            Ok(asked) => answered(asked).await,
            Err(trouble) => Err(trouble),
        };
        answers.push((path, answer));
    }
    answers
}

/// Sends what a form has made, with this key or the session.
pub async fn send(request: &form::Request, key: Option<&str>) -> Result<String, Trouble> {
    let form::Request { method, path, headers, body } = request;
    let authorization = key.map(|key| format!("Bearer {key}"));
    let mut headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    headers.extend(authorization.iter().map(|text| ("authorization", text.as_str())));
    text(method, path, body.clone(), &headers).await
}

/// Changes something.
pub async fn post<T: DeserializeOwned>(path: &str, body: Option<String>) -> Result<T, Trouble> {
    read(&text("POST", path, body, &[]).await?)
}

/// Changes something once, however often it is sent with the same idempotency key.
pub async fn post_once<T: DeserializeOwned>(
    path: &str,
    body: Option<String>,
    key: &str,
) -> Result<T, Trouble> {
    read(&text("POST", path, body, &[("idempotency-key", key)]).await?)
}

/// An idempotency key that nobody else has.
pub fn random_key() -> String {
    let mut bytes = [0; 16];
    // Unlike `randomUUID`, this also works without https.
    let made = window().crypto().and_then(|crypto| crypto.get_random_values_with_u8_array(&mut bytes));
    if made.is_err() {
        return format!("{}-{}", js_sys::Date::now(), js_sys::Math::random());
    }
    bytes.iter().fold("dash-".to_owned(), |key, byte| format!("{key}{byte:02x}"))
}

/// Changes something, with a value as its body.
pub async fn post_value<T: DeserializeOwned>(path: &str, body: &impl Serialize) -> Result<T, Trouble> {
    let body = serde_json::to_string(body).map_err(|error| Trouble::Unreachable(error.to_string()))?;
    post(path, Some(body)).await
}

/// Signs in. The key is in this one request, and nowhere afterwards.
pub async fn sign_in(key: &str) -> Result<(), Trouble> {
    text("POST", "/api/session", None, &[("authorization", &format!("Bearer {key}"))]).await.map(|_| ())
}

/// Signs out.
pub async fn sign_out() -> Result<(), Trouble> {
    text("DELETE", "/api/session", None, &[]).await.map(|_| ())
}

/// Reads an answer.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Trouble> {
    json::from_str(text)
        .map_err(|error| Trouble::Unreachable(format!("its answer is not understood: {error}")))
}

async fn text(
    method: &str,
    path: &str,
    body: Option<String>,
    headers: &[(&str, &str)],
) -> Result<String, Trouble> {
    answered(begin(method, path, body, headers)?).await
}

/// Sends a request. Its answer is waited for later.
fn begin(
    method: &str,
    path: &str,
    body: Option<String>,
    headers: &[(&str, &str)],
) -> Result<JsFuture, Trouble> {
    let init = RequestInit::new();
    init.set_method(method);
    if let Some(body) = body {
        // As bytes: a lone surrogate would otherwise be replaced without a word.
        init.set_body(&Uint8Array::from(body.as_bytes()));
    }
    let all = Headers::new().map_err(unreachable)?;
    for (name, value) in headers {
        // Only what somebody has typed can be no header: a key, at first.
        all.set(name, value).map_err(|_| match *name {
            "authorization" => Trouble::SignedOut,
            name => Trouble::Unreachable(format!("the header {name} cannot be sent")),
        })?;
    }
    init.set_headers(&all);
    Ok(JsFuture::from(window().fetch_with_str_and_init(path, &init)))
}

fn unreachable(error: JsValue) -> Trouble {
    let said = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
    Trouble::Unreachable(said.unwrap_or_else(|| "no answer".into()))
}

async fn answered(asked: JsFuture) -> Result<String, Trouble> {
    let response: Response = asked.await.map_err(unreachable)?.dyn_into().map_err(unreachable)?;
    let text = JsFuture::from(response.text().map_err(unreachable)?).await.map_err(unreachable)?;
    let text = text.as_string().unwrap_or_default();
    match response.status() {
        200..300 => Ok(text),
        401 => Err(Trouble::SignedOut),
        status => Err(json::from_str(&text)
            .map_or_else(|_| Trouble::Unreachable(format!("status {status}")), Trouble::Refused)),
    }
}
