//! Bodies that are JSON, that are none, and those of which parsers think differently.
//!
//! What is accepted must be the input of its run and come back as the same bytes: Stepwell carries JSON, and does not
//! read it.

use serde::Deserialize;
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_success},
    case::{Case, Kind, comes_back},
    wire::Request,
};

/// All of them.
pub fn make(_: &Bench) -> Vec<Case> {
    let bodies = Bodies::read();
    let mut cases = Vec::new();
    for (number, text) in bodies.accepted.iter().enumerate() {
        cases.push(Case::payload(format!("accepted-{number}"), text.as_bytes()));
    }
    for (number, bytes) in bodies.all_refused().into_iter().enumerate() {
        let request = Request::post("/api/workflows/echo/start", bytes);
        cases.push(Case::refused(format!("refused-{number}"), &[Code::InvalidRequest], request));
    }
    for (number, bytes) in EITHER.iter().enumerate() {
        cases.push(either(number, bytes));
    }
    cases
}

/// What is accepted comes back here, too.
fn either(number: usize, bytes: &'static [u8]) -> Case {
    Case::new(Kind::Either, format!("either-{number}"), move |bench| async move {
        let answer = bench.ask(&Request::post("/api/workflows/echo/start", bytes)).await?;
        if expect_success(&answer).is_ok() { comes_back(&bench, bytes).await } else { Ok(()) }
    })
}

/// Bodies that are text.
#[derive(Deserialize)]
struct Bodies {
    /// Those that are JSON; and nothing at all, which stands for null.
    accepted: Vec<String>,
    /// Those that are none.
    refused: Vec<String>,
}

/// What is not even text, or not in the encoding that JSON has.
const BYTES: &[&[u8]] = &[
    b"\xff",
    b"\xfe\xff",
    b"\xff\xfe",
    b"\"\xff\"",
    b"\"\x80\"",
    b"\"\xc3\"",
    b"\"\xc3\x28\"",
    b"\"\xa0\xa1\"",
    b"\"\xe2\x28\xa1\"",
    b"\"\xe2\x82\"",
    b"\"\xf0\x28\x8c\xbc\"",
    b"\"\xf0\x90\x28\xbc\"",
    b"\"\xf0\x9f\x98\"",
    b"\"\xc0\xaf\"",
    b"\"\xc0\x80\"",
    b"\"\xe0\x80\xaf\"",
    b"\"\xf0\x80\x80\xaf\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xed\xbf\xbf\"",
    b"\"\xed\xa0\xbd\xed\xb8\x80\"",
    b"\"\xf4\x90\x80\x80\"",
    b"\"\xf8\x88\x80\x80\x80\"",
    b"\"\xfc\x84\x80\x80\x80\x80\"",
    b"[\xff]",
    b"{\"\xff\":1}",
    b"{}\xff",
    b"\"caf\xe9\"",
    b"1\x80",
    // UTF-16 and UTF-32, with and without a mark.
    b"\xff\xfe\"\x00a\x00\"\x00",
    b"\xfe\xff\x00\"\x00a\x00\"",
    b"\"\x00a\x00\"\x00",
    b"\x00\"\x00a\x00\"",
    b"\xff\xfe\x00\x001\x00\x00\x00",
    b"\x00\x00\xfe\xff\x00\x00\x001",
    b"[\x00]\x00",
    b"1\x00",
    // Compressed, and in other forms.
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00",
    b"PK\x03\x04",
    b"\x80",
    b"\xa1\x61\x61\x01",
    b"\x89PNG\r\n\x1a\n",
    b"+ACIAYQAi-",
];

/// Parsers think differently of these: half a pair of surrogates is no character, but may be written.
const EITHER: &[&[u8]] = &[
    br#""\ud800""#,
    br#""\udfff""#,
    br#""\ud800\ud800""#,
    br#""\udc00\ud800""#,
    br#""\ud800abc""#,
    br#""\ud800\n""#,
    br#""\ud83d\u0041""#,
    br#""\uD800\uDBFF\uDFFF""#,
    br#"{"\ud800":1}"#,
    br#"["\udead"]"#,
    br#"{"a":"\ud800","a":"\udfff"}"#,
    br#""\ud888\u1234""#,
];

impl Bodies {
    fn read() -> Self {
        serde_json::from_str(include_str!("../../fixtures/bad_input/bodies.json"))
            .expect("it is kept as JSON")
    }

    fn all_refused(&self) -> Vec<Vec<u8>> {
        let mut refused: Vec<Vec<u8>> = self.refused.iter().map(|text| text.as_bytes().to_vec()).collect();
        refused.extend(BYTES.iter().map(|bytes| bytes.to_vec()));
        // No control character stands in a string as it is.
        refused.extend((0..0x20).map(|control| vec![b'"', b'a', control, b'b', b'"']));
        // No beginning of a document is one.
        let whole = br#"{"a":[1,true,"x\u00e9"],"b":null}"#;
        refused.extend((1..whole.len()).map(|end| whole[..end].to_vec()));
        refused
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_text_is_there_once() {
        let bodies = Bodies::read();
        let accepted = bodies.accepted.iter().map(|text| text.as_bytes().to_vec());
        let either = EITHER.iter().map(|bytes| bytes.to_vec());
        let all: Vec<_> = accepted.chain(bodies.all_refused()).chain(either).collect();
        let mut seen = BTreeSet::new();
        for text in &all {
            assert!(seen.insert(text), "{:?} is there twice", String::from_utf8_lossy(text));
        }
        assert!(all.len() >= 318, "{} texts", all.len());
    }
}
