//! Messages: what was read from JSON can be written, and reads back as the same.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use stepwell_protocol::json;

use crate::text;

/// Whatever the text is: our reader takes what `serde_json` takes, and reads the same.
pub fn json_text(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match (json::from_str::<Value>(text), serde_json::from_str::<Value>(text)) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{ours:?}, and by serde_json {theirs:?}: {text}"),
    }
}

/// Reads a message. What was read is written and read again, and must be the same; and what our reader takes, `serde_json`
/// takes too. (It also takes arrays for objects.)
pub fn read_back<T: Serialize + DeserializeOwned>(text: &str) -> Option<T> {
    let ours: Option<T> = json::from_str(text).ok();
    let theirs: Result<T, _> = serde_json::from_str(text);
    if let Some(ours) = &ours {
        let theirs =
            theirs.as_ref().unwrap_or_else(|error| panic!("only our reader takes it: {error}: {text}"));
        assert_same(&write(ours), &write(theirs));
    }
    let first: T = theirs.ok()?;
    let written = write(&first);
    let second: T = serde_json::from_str(&written)
        .unwrap_or_else(|error| panic!("what was written cannot be read: {error}: {written}"));
    assert_same(&written, &write(&second));
    Some(first)
}

/// The same for a message of which nothing else is to be known.
pub fn check<T: Serialize + DeserializeOwned>(text: &str) {
    let _ = read_back::<T>(text);
}

/// A message as JSON.
pub fn write<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).expect("what was read can be written")
}

/// Two texts are the same, but for the last digits of fractions: JSON is read quickly rather than to the last bit.
pub fn assert_same(a: &str, b: &str) {
    assert!(a == b || is_same(a, b), "it was\n{a}\nand is\n{b}");
}

fn is_same(mut a: &str, mut b: &str) -> bool {
    while let (Some(first), Some(second)) = (a.chars().next(), b.chars().next()) {
        let (left, right) = (number(a), number(b));
        if left.is_empty() || right.is_empty() {
            if first != second {
                return false;
            }
            (a, b) = (&a[first.len_utf8()..], &b[second.len_utf8()..]);
        } else {
            if left != right && !is_near(left, right) {
                return false;
            }
            (a, b) = (&a[left.len()..], &b[right.len()..]);
        }
    }
    a.is_empty() && b.is_empty()
}

/// The number at the beginning of a text, if there is one.
fn number(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E'));
    let found = &text[..end.unwrap_or(text.len())];
    if found.starts_with(|c: char| c.is_ascii_digit() || c == '-') { found } else { "" }
}

fn is_near(a: &str, b: &str) -> bool {
    let is_fraction = |text: &str| text.contains(['.', 'e', 'E']);
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(left), Ok(right)) if is_fraction(a) || is_fraction(b) => {
            (left - right).abs() <= left.abs().max(right.abs()) * 1e-14
        }
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_digits_of_fractions_may_differ() {
        for (a, b) in [("", ""), ("{\"a\":1}", "{\"a\":1}"), ("[0.30000000000000004]", "[0.3]")] {
            assert!(is_same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("1", ""),
            ("[1]", "[2]"),
            ("[0.3]", "[0.4]"),
            ("\"a\"", "\"b\""),
            ("9007199254740993", "9007199254740992"),
        ] {
            assert!(!is_same(a, b), "{a} {b}");
        }
    }

    #[test]
    #[should_panic(expected = "it was")]
    fn a_message_that_loses_something_is_noticed() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Loses {
            #[serde(skip_serializing_if = "is_one", default)]
            a: u32,
            b: u32,
        }
        #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
        fn is_one(a: &u32) -> bool {
            *a == 1
        }
        assert!(read_back::<Loses>("{\"a\":2,\"b\":3}").is_some());
        // One is written as nothing, which reads as zero, which is written.
        read_back::<Loses>("{\"a\":1,\"b\":3}");
    }
}
