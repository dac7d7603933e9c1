//! Bodies: how much of one is read, what Stepwell itself makes of it, and how much of what somebody sent an answer says
//! again.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use js_sys::Uint8Array;
use serde::de::DeserializeOwned;
use stepwell_protocol::{Code, json, queue::JSON, text::is_hidden};
use wasm_bindgen::JsCast as _;
use worker::Request;

use super::error::Refusal;
use crate::runtime;

/// How much of a body that is too large is read and thrown away. A client that is still sending when the connection
/// closes sees that, and not the answer.
const WASTED_BYTES_MAX: usize = 5_000_000;

/// How much of a parameter or a word an answer has.
const WORD_LENGTH_MAX: usize = 40;

/// How much an answer says about what is wrong with a body, which may name a part of it.
const MISTAKE_LENGTH_MAX: usize = 240;

/// What JSON has between values. What Unicode calls space besides is none.
const SPACE: &[u8] = b" \t\r\n";

/// The types of bodies that Stepwell reads itself: JSON, and what curl says if it is not told.
const READ: [&str; 2] = [JSON, "application/x-www-form-urlencoded"];

/// The body of a request, if it is a text of at most so many bytes. No more than that is ever held.
pub async fn receive(request: &mut Request, bytes_max: usize) -> Result<String, Refusal> {
    String::from_utf8(receive_bytes(request, bytes_max).await?)
        .map_err(|_| Refusal::new(Code::InvalidRequest, "The body is not UTF-8 text."))
}

/// The same for a body that may be anything but JSON: a text or, if it is none, base64. Says its type and which it is, if
/// it is not JSON.
pub async fn receive_any(
    request: &mut Request,
    bytes_max: usize,
    content_type: Option<String>,
) -> Result<(String, Option<(String, String)>), Refusal> {
    let essence = content_type.as_deref().map(|it| it.split(';').next().unwrap_or_default().trim());
    match (content_type.as_ref(), essence) {
        (Some(content_type), Some(essence)) if !READ.iter().any(|it| essence.eq_ignore_ascii_case(it)) => {
            let (form, text) = match String::from_utf8(receive_bytes(request, bytes_max).await?) {
                Ok(text) => ("text", text),
                Err(error) => ("base64", STANDARD.encode(error.into_bytes())),
            };
            Ok((text, Some((form.to_owned(), content_type.clone()))))
        }
        (Some(_) | None, _) => Ok((receive(request, bytes_max).await?, None)),
    }
}

async fn receive_bytes(request: &mut Request, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let header = |name| request.headers().get(name).ok().flatten();
    // Only to refuse what is too large before it has come: a Worker with a service binding may announce any length.
    let announced = header("content-length").and_then(|length| length.parse::<usize>().ok());
    if let Some(length) = announced.filter(|length| *length > WASTED_BYTES_MAX.max(bytes_max)) {
        return Err(too_large(length, bytes_max));
    }
    read_by_chunks(request, bytes_max).await
}

async fn read_by_chunks(request: &Request, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let reading = runtime::read_body(request.inner(), bytes_max, WASTED_BYTES_MAX.max(bytes_max));
    let read = runtime::settle(reading.into()).await.map_err(|_| broken_off())?;
    match read.dyn_ref::<Uint8Array>() {
        Some(bytes) => Ok(bytes.to_vec()),
        None => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
            let length = read.as_f64().unwrap_or_default() as usize;
            Err(too_large(length, bytes_max))
        }
    }
}

/// Refuses a body that is longer than its route reads.
pub fn check_length(length: usize, bytes_max: usize) -> Result<(), Refusal> {
    if length > bytes_max { Err(too_large(length, bytes_max)) } else { Ok(()) }
}

fn broken_off() -> Refusal {
    Refusal::new(Code::InvalidRequest, "The body is incomplete.")
}

fn too_large(length: usize, bytes_max: usize) -> Refusal {
    let detail = format!(
        "The body has {length} bytes or more; this route reads at most {bytes_max}. Store large values elsewhere, for \
         example in R2, and pass their name."
    );
    Refusal::new(Code::PayloadTooLarge, detail)
}

/// Whether there is no value in a body.
pub fn is_empty(body: &str) -> bool {
    body.bytes().all(|byte| SPACE.contains(&byte))
}

/// Reads a body that is an object. A list would be read as one, too, by the order of its fields: it is refused.
pub fn read<T: DeserializeOwned>(body: &str) -> Result<T, Refusal> {
    if body.bytes().find(|byte| !SPACE.contains(byte)) != Some(b'{') {
        return Err(Refusal::new(Code::InvalidRequest, "The body cannot be read: it is not a JSON object."));
    }
    json::from_str(body).map_err(|error| {
        let mistake = cut(&error.to_string(), MISTAKE_LENGTH_MAX);
        Refusal::new(Code::InvalidRequest, format!("The body cannot be read: {mistake}."))
    })
}

/// As much of a word that somebody sent as fits into an answer.
pub fn shown(text: &str) -> String {
    cut(text, WORD_LENGTH_MAX)
}

fn cut(text: &str, length_max: usize) -> String {
    text.chars().filter(|c| !is_hidden(*c)).take(length_max).collect()
}
