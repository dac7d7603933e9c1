//! Expressions mean what another implementation of CEL says that they mean.

use cel::{Context, Program, Value, objects::Key};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_core::expression::Expression;

fn data() -> (Json, Json) {
    let event = json!({
        "id": 7, "amount": 120.5, "country": "DE", "zero": 0, "empty": "", "yes": true, "no": false,
        "list": [1, "DE", 7.0, [true]], "map": {"id": 7, "DE": "map", "list": [1]}, "text": "Zürich",
    });
    (event, json!({"id": 7.0, "at": 1, "country": "AT", "list": [1, "DE", 7, [true]], "map": {"x": "y"}}))
}

fn foreign(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| Value::Float(number.as_f64().expect("a number")), Value::Int)
        }
        Json::String(text) => Value::String(text.clone().into()),
        Json::Array(items) => Value::List(items.iter().map(foreign).collect::<Vec<_>>().into()),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (Key::from(name.clone()), foreign(value)));
            Value::Map(fields.collect::<std::collections::HashMap<_, _>>().into())
        }
    }
}

/// What the other implementation says: nothing, if it fails or the value is no bool.
fn said(text: &str) -> Option<bool> {
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let (event, input) = data();
    let mut context = Context::default();
    context.add_variable_from_value("event", foreign(&event));
    context.add_variable_from_value("input", foreign(&input));
    match program.execute(&context) {
        Ok(Value::Bool(bool)) => Some(bool),
        Ok(_) | Err(_) => None,
    }
}

fn own(text: &str) -> Option<bool> {
    let expression =
        Expression::parse(text, &["event", "input"]).unwrap_or_else(|bad| panic!("{text}: {bad}"));
    let (event, input) = data();
    expression.holds(&[("event", &event), ("input", &input)]).ok()
}

fn path() -> impl Strategy<Value = String> {
    let link = prop::sample::select(vec![
        ".id", ".amount", ".country", ".zero", ".empty", ".yes", ".no", ".list", ".map", ".text", ".missing",
        ".at", "[0]", "[1]", "[9]", "[\"id\"]", ".map.id", ".list[3]",
    ]);
    (prop::sample::select(vec!["event", "input"]), prop::collection::vec(link, 1..3))
        .prop_map(|(root, links)| format!("{root}{}", links.concat()))
}

fn value() -> impl Strategy<Value = String> {
    let literal = prop::sample::select(vec![
        "0",
        "1",
        "7",
        "7.0",
        "-1",
        "120.5",
        "1e3",
        "'DE'",
        "\"\"",
        "'Z'",
        "true",
        "false",
        "[]",
        "['DE', 7]",
        "'id'",
    ]);
    let leaf = prop_oneof![path(), literal.prop_map(str::to_owned)];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            inner.clone().prop_map(|text| format!("size({text})")),
            inner.clone().prop_map(|text| format!("({text}).size()")),
            (path(), inner).prop_map(|(path, place)| format!("{path}[{place}]")),
        ]
    })
}

fn condition() -> impl Strategy<Value = String> {
    let relation = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">=", "in"]);
    let function = prop::sample::select(vec!["startsWith", "endsWith", "contains"]);
    let leaf = prop_oneof![
        4 => (value(), relation, value()).prop_map(|(left, sign, right)| format!("{left} {sign} {right}")),
        1 => (path(), function, value()).prop_map(|(path, name, part)| format!("{path}.{name}({part})")),
        1 => path().prop_filter("a field", |path| !path.ends_with(']')).prop_map(|path| format!("has({path})")),
        1 => value(),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.join(" && ")),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.join(" || ")),
            inner.clone().prop_map(|text| format!("!({text})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(condition, then, otherwise)| format!("({condition}) ? ({then}) : ({otherwise})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_means_what_cel_means(text in condition().prop_filter("short enough", |text| text.len() <= 1_024)) {
        prop_assert_eq!(own(&text), said(&text), "{}", text);
    }
}
