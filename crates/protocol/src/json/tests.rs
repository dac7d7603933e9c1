//! That the reader reads what `serde_json` reads, and says what `serde_json` says about mistakes.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::*;

#[derive(Debug, Default, PartialEq, serde::Deserialize)]
struct Inner {
    count: u32,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Unit,
    Newtype(Inner),
    Tuple(u8, Inner),
    Struct { inner: Inner },
}

#[derive(Debug, serde::Deserialize)]
struct Outer {
    kinds: Vec<Kind>,
    by_name: BTreeMap<String, Inner>,
    maybe: Option<Inner>,
    pair: (u8, String),
    raw: Box<RawValue>,
    any: serde_json::Value,
    #[serde(flatten)]
    flat: Inner,
}

#[test]
fn everything_that_serde_json_reads_is_read() {
    let text = r#"{"kinds":["unit",{"newtype":{"count":1}},{"tuple":[2,{"count":3,"note":"n"}]},
        {"struct":{"inner":{"count":4}}}],"by_name":{"a":{"count":5}},"maybe":{"count":6,"other":[1]},
        "pair":[7,"x\n"],"raw":{"as": [it, is]},"any":[null,{"b":1.5}],"count":8,"note":null}"#;
    let text = text.replace("[it, is]", "[1,  2]");
    let read: Outer = from_str(&text).expect("it is read");
    let count = |count| Inner { count, note: None };
    assert_eq!(
        read.kinds,
        [
            Kind::Unit,
            Kind::Newtype(count(1)),
            Kind::Tuple(2, Inner { count: 3, note: Some("n".into()) }),
            Kind::Struct { inner: count(4) }
        ]
    );
    assert_eq!((&read.by_name["a"], read.maybe, read.flat), (&count(5), Some(count(6)), count(8)));
    assert_eq!((read.pair, read.raw.get()), ((7, "x\n".to_owned()), r#"{"as": [1,  2]}"#));
    assert_eq!(read.any, serde_json::json!([null, { "b": 1.5 }]));
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
enum Name {
    A,
    B,
}

#[test]
fn keys_are_numbers_and_names_as_well() {
    let read: BTreeMap<u64, bool> =
        from_str(r#"{"7":true,"18446744073709551615":false}"#).expect("it is read");
    assert_eq!(read, BTreeMap::from([(7, true), (u64::MAX, false)]));
    let read: BTreeMap<i8, Option<u8>> = from_str(r#"{"-3":null}"#).expect("it is read");
    assert_eq!(read, BTreeMap::from([(-3, None)]));
    let read: BTreeMap<Name, f64> = from_str(r#"{"A":-0.5,"B":1e3}"#).expect("it is read");
    assert_eq!(read, BTreeMap::from([(Name::A, -0.5), (Name::B, 1000.0)]));
    assert!(from_str::<BTreeMap<u64, bool>>(r#"{"x":true}"#).is_err());
}

#[test]
fn texts_are_borrowed_unless_they_have_escapes() {
    let read: Vec<std::borrow::Cow<'_, str>> =
        from_str(r#"["plain ü","a\"\\\u00e9\ud83d\ude00"]"#).expect("it is read");
    assert_eq!(read, ["plain ü", "a\"\\é😀"]);
    let borrowed: Vec<&str> = from_str(r#"["plain ü", ""]"#).expect("they need no memory of their own");
    assert_eq!(borrowed, ["plain ü", ""]);
}

/// What is no JSON is refused, and what is JSON is taken, as `serde_json` does it.
#[test]
fn both_readers_agree_about_what_is_json() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let texts = [
        "",
        " ",
        "nul",
        "null",
        "nullx",
        "null null",
        "tru",
        "truer",
        "-",
        "-0",
        "0",
        "00",
        "01",
        "1.",
        "1.5",
        ".5",
        "+1",
        "1e",
        "1e5",
        "1e400",
        "-1",
        "-01",
        "18446744073709551616",
        "-9223372036854775809",
        "\"",
        "\"a",
        "\"a\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\t\"",
        "[",
        "]",
        "[]",
        "[,]",
        "[1",
        "[1,",
        "[1,]",
        "[1 2]",
        "[1,2]",
        "[1}",
        "{",
        "}",
        "{}",
        "{,}",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,\"b\":[{}]}",
        "{\"a\":1}}",
        " { \"a\"\n:\r[\t] } ",
        "\u{feff}1",
    ];
    for text in texts.iter().map(|text| (*text).to_owned()).chain([deep(127), deep(128), deep(129)]) {
        let (ours, theirs) =
            (from_str::<serde_json::Value>(&text), serde_json::from_str::<serde_json::Value>(&text));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
            (Err(_), Err(_)) => {}
            (ours, theirs) => panic!("{text}: {ours:?}, {theirs:?}"),
        }
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, wanted) in [
        ("[1]", "invalid type: sequence, expected struct Inner at line 1 column 0"),
        ("{\"count\":\"x\"}", "invalid type: string \"x\", expected u32 at line 1 column 12"),
        ("{}", "missing field `count` at line 1 column 2"),
        ("{\"count\":1} 2", "trailing characters at line 1 column 13"),
        ("{\"count\":1,}", "key must be a string at line 1 column 12"),
        ("{\n \"count\":-1}", "invalid value: integer `-1`, expected u32 at line 2 column 11"),
    ] {
        assert_eq!(from_str::<Inner>(text).expect_err(text).to_string(), wanted);
    }
    assert!(from_str::<Kind>(r#"{"struct":[{"count":4}]}"#).is_err(), "a struct is an object");
}
