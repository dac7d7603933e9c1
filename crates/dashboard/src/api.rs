//! Requests to the API of the page's own origin. The browser adds the session's cookie; the page never sees it.

use js_sys::Uint8Array;
use leptos::prelude::window;
use serde::{Serialize, de::DeserializeOwned};
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
    read(&text("GET", path, None, None).await?)
}

/// Changes something.
pub async fn post<T: DeserializeOwned>(path: &str, body: Option<String>) -> Result<T, Trouble> {
    read(&text("POST", path, body, None).await?)
}

/// Changes something once, however often it is sent with the same idempotency key.
pub async fn post_once<T: DeserializeOwned>(
    path: &str,
    body: Option<String>,
    key: &str,
) -> Result<T, Trouble> {
    read(&text("POST", path, body, Some(("idempotency-key", key))).await?)
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
    text("POST", "/api/session", None, Some(("authorization", &format!("Bearer {key}")))).await.map(|_| ())
}

/// Signs out.
pub async fn sign_out() -> Result<(), Trouble> {
    text("DELETE", "/api/session", None, None).await.map(|_| ())
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Trouble> {
    json::from_str(text)
        .map_err(|error| Trouble::Unreachable(format!("its answer is not understood: {error}")))
}

async fn text(
    method: &str,
    path: &str,
    body: Option<String>,
    header: Option<(&str, &str)>,
) -> Result<String, Trouble> {
    let unreachable = |error: JsValue| {
        let said = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
        Trouble::Unreachable(said.unwrap_or_else(|| "no answer".into()))
    };
    let init = RequestInit::new();
    init.set_method(method);
    if let Some(body) = body {
        // As bytes: a lone surrogate would otherwise be replaced without a word.
        init.set_body(&Uint8Array::from(body.as_bytes()));
    }
    if let Some((name, value)) = header {
        let headers = Headers::new().map_err(unreachable)?;
        // Only a key that somebody has typed can be no header.
        headers.set(name, value).map_err(|_| Trouble::SignedOut)?;
        init.set_headers(&headers);
    }
    let response =
        JsFuture::from(window().fetch_with_str_and_init(path, &init)).await.map_err(unreachable)?;
    let response: Response = response.dyn_into().map_err(unreachable)?;
    let text = JsFuture::from(response.text().map_err(unreachable)?).await.map_err(unreachable)?;
    let text = text.as_string().unwrap_or_default();
    match response.status() {
        200..300 => Ok(text),
        401 => Err(Trouble::SignedOut),
        status => Err(json::from_str(&text)
            .map_or_else(|_| Trouble::Unreachable(format!("status {status}")), Trouble::Refused)),
    }
}
