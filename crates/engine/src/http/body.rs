//! Bodies that Stepwell reads itself, and how much of what somebody sent an answer says again.

use serde::de::DeserializeOwned;
use stepwell_protocol::{Code, text::is_hidden};

use super::error::Refusal;

/// How much of a parameter or a word an answer has.
const WORD_LENGTH_MAX: usize = 40;

/// How much an answer says about what is wrong with a body, which may name a part of it.
const MISTAKE_LENGTH_MAX: usize = 240;

/// What JSON has between values. What Unicode calls space besides is none.
const SPACE: &[u8] = b" \t\r\n";

/// Whether there is no value in a body.
pub fn is_empty(body: &str) -> bool {
    body.bytes().all(|byte| SPACE.contains(&byte))
}

/// Reads a body that is an object. A list would be read as one, too, by the order of its fields: it is refused.
pub fn read<T: DeserializeOwned>(body: &str) -> Result<T, Refusal> {
    if body.bytes().find(|byte| !SPACE.contains(byte)) != Some(b'{') {
        return Err(Refusal::new(Code::InvalidRequest, "The body cannot be read: it is not a JSON object."));
    }
    serde_json::from_str(body).map_err(|error| {
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
