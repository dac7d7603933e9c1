//! A form for an input, from the JSON Schema that a workflow declares: plain fields for plain values, JSON for all else.
//!
//! Does not check anything: the workflow's code decides whether an input is good.

use serde_json::Value;
use stepwell_protocol::Payload;

use crate::{
    form::{Field, Kind},
    json,
    map::Map,
};

/// An object with more properties than this is filled in as JSON.
const FIELDS_MAX: usize = 30;

/// The longest list of choices.
const CHOICES_MAX: usize = 100;

/// What the whole input is called.
const INPUT: &str = "Input, as JSON";

/// The fields of an input with this schema. `given` is the JSON that they begin with.
pub fn fields(schema: Option<&Payload>, given: Option<&str>) -> Vec<Field> {
    let plain = || vec![Field::whole(INPUT).with_any(given.map(json::editable))];
    // One that is long is changed as a whole.
    if given.is_some_and(|text| json::pretty(text).is_cut) {
        return plain();
    }
    let Some(schema) = schema.and_then(|schema| serde_json::from_str::<Value>(schema.text()).ok()) else {
        return plain();
    };
    object(&schema, given).or_else(|| scalar(&schema, given)).unwrap_or_else(plain)
}

/// The fields of an object's properties, if all of what is given has one.
fn object(schema: &Value, given: Option<&str>) -> Option<Vec<Field>> {
    let own = resolved(schema, schema);
    let properties =
        own.get("properties")?.as_object().filter(|all| (1..=FIELDS_MAX).contains(&all.len()))?;
    let is_mixed =
        ["oneOf", "anyOf", "allOf", "patternProperties"].iter().any(|name| own.get(name).is_some());
    if is_mixed || own.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "object") {
        return None;
    }
    let given: Map<String, Payload> = match given {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Map::default(),
    };
    if given.iter().any(|(name, _)| !properties.contains_key(name)) {
        return None;
    }
    let required: Vec<&str> = own
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let field = |(name, property): (&String, &Value)| {
        let (kind, is_nullable) = kind_of(schema, property);
        let is_required = required.contains(&name.as_str()) && !is_nullable;
        let value = given.get(name).map(Payload::text).filter(|text| *text != "null");
        // What the field would change by showing it is shown as JSON.
        let kind = if value.is_none_or(|text| fits(&kind, text)) { kind } else { Kind::Json };
        let default = property.get("default").filter(|value| !value.is_null()).map(Value::to_string);
        let start = value.map(str::to_owned).or(default);
        let mut field = Field::of_body(name, name, kind);
        if is_required {
            field = field.required();
        } else if required.contains(&name.as_str()) {
            field = field.clearing();
        }
        if let Some(start) = start {
            field = begun(field, &start);
        }
        let description = property.get("description").and_then(Value::as_str).unwrap_or_default();
        field.hint(description)
    };
    Some(properties.iter().map(field).collect())
}

/// The one field of an input that is a plain value.
fn scalar(schema: &Value, given: Option<&str>) -> Option<Vec<Field>> {
    let (kind, is_nullable) = kind_of(schema, schema);
    if kind == Kind::Json || is_nullable {
        return None;
    }
    let field = Field::whole_of("Input", kind).required();
    Some(vec![match given {
        // Another kind of value than the schema says.
        Some(text) if !fits(&field.kind, text) => return None,
        Some(text) => begun(field, text),
        None => field,
    }])
}

/// How a value of this schema is filled in, and whether it can be `null`.
fn kind_of(root: &Value, schema: &Value) -> (Kind, bool) {
    let schema = resolved(root, schema);
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let is_plain = |value: &Value| !value.is_array() && !value.is_object();
        if choices.len() <= CHOICES_MAX && choices.iter().all(is_plain) {
            let label = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let values = choices.iter().filter(|value| !value.is_null());
            let options = values.map(|value| (value.to_string(), label(value))).collect();
            return (Kind::Choice(options), choices.iter().any(Value::is_null));
        }
        return (Kind::Json, false);
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    let is_nullable = types.contains(&"null");
    let mut named = types.iter().filter(|name| **name != "null");
    let kind = match (named.next(), named.next()) {
        (Some(&"string"), None) if is_nullable => Kind::Text,
        (Some(&"string"), None) => Kind::Free,
        (Some(&"integer" | &"number"), None) => Kind::Number,
        // Neither true nor false is a third value, which a switch does not have.
        (Some(&"boolean"), None) if !is_nullable => Kind::Switch,
        (_, _) => Kind::Json,
    };
    (kind, is_nullable)
}

/// The schema that a reference within the same document leads to.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    reference.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

/// A field that begins with this JSON.
fn begun(field: Field, text: &str) -> Field {
    let value = match &field.kind {
        Kind::Text | Kind::Free | Kind::Secret => serde_json::from_str::<String>(text).unwrap_or_default(),
        Kind::Json => json::editable(text),
        Kind::Number | Kind::Switch | Kind::Choice(_) | Kind::Lines | Kind::Span | Kind::Instant => {
            text.to_owned()
        }
    };
    field.with(value)
}

/// Whether a value comes out of its field as it went in. A field of one line loses line breaks, and one of text also blanks at
/// its ends.
fn fits(kind: &Kind, text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return false };
    let is_line = |text: &str| !text.contains(['\r', '\n']);
    match kind {
        Kind::Text => {
            value.as_str().is_some_and(|text| is_line(text) && !text.is_empty() && text.trim() == text)
        }
        Kind::Free | Kind::Secret => value.as_str().is_some_and(is_line),
        Kind::Number => value.is_number(),
        Kind::Switch => value.is_boolean(),
        Kind::Choice(choices) => {
            let wanted = value.to_string();
            choices.iter().any(|(json, _)| *json == wanted)
        }
        Kind::Json | Kind::Lines | Kind::Span | Kind::Instant => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Action;

    fn payload(text: &str) -> Payload {
        Payload::from_text(text.to_owned()).expect("it is JSON")
    }

    fn kinds(schema: &str, given: Option<&str>) -> Vec<(String, Kind, String)> {
        let fields = fields(Some(&payload(schema)), given);
        fields.into_iter().map(|field| (field.label, field.kind, field.value)).collect()
    }

    /// What is sent if nothing is changed.
    fn sent(schema: Option<&str>, given: &str) -> Option<String> {
        let schema = schema.map(payload);
        let fields = fields(schema.as_ref(), Some(given));
        let values: Vec<_> = fields.iter().map(|field| field.value.clone()).collect();
        let action = Action::new("POST", "/x".into(), "Start", "").fields(fields);
        action.request(&values, "once").ok()?.body
    }

    const ORDER: &str = r##"{"type":"object","required":["id","kind","note"],"properties":{
        "id":{"type":"integer"},"kind":{"$ref":"#/$defs/Kind"},"note":{"type":["string","null"]},
        "gift":{"type":"boolean","default":true},"lines":{"type":"array"},"email":{"type":"string","description":"Where to."}},
        "$defs":{"Kind":{"enum":["new","used"]}}}"##;

    #[test]
    fn plain_values_have_plain_fields_and_all_else_is_json() {
        let choice = Kind::Choice(vec![("\"new\"".into(), "new".into()), ("\"used\"".into(), "used".into())]);
        let by_name: std::collections::BTreeMap<_, _> =
            kinds(ORDER, None).into_iter().map(|(name, kind, value)| (name, (kind, value))).collect();
        assert_eq!(by_name["id"], (Kind::Number, String::new()));
        assert_eq!(by_name["kind"], (choice, String::new()));
        assert_eq!(by_name["note"], (Kind::Text, String::new()));
        assert_eq!(by_name["gift"], (Kind::Switch, "true".into()));
        assert_eq!(by_name["lines"], (Kind::Json, String::new()));
        assert_eq!(by_name["email"], (Kind::Free, String::new()));
        assert_eq!(kinds(r#"{"type":"string"}"#, None), [("Input".into(), Kind::Free, String::new())]);
        for odd in [r#"{"type":"object"}"#, "true", r#"{"anyOf":[]}"#, r#"{"type":["string","integer"]}"#] {
            assert_eq!(kinds(odd, None), [(INPUT.into(), Kind::Json, String::new())], "{odd}");
        }
    }

    #[test]
    fn an_input_that_is_not_changed_is_sent_as_it_was() {
        let order =
            r#"{"email":"a@b","gift":false,"id":9007199254740993,"kind":"used","lines":[1],"note":null}"#;
        let sent_order = sent(Some(ORDER), order).expect("it can be read");
        let values: (Value, Value) =
            (serde_json::from_str(&sent_order).expect("JSON"), serde_json::from_str(order).expect("JSON"));
        assert_eq!(values.0, values.1);
        assert!(sent_order.contains("9007199254740993"));
        assert_eq!(sent(Some(r#"{"type":"string"}"#), r#""a b""#).as_deref(), Some(r#""a b""#));
        // The schema has no such property, or says another type.
        for (schema, given) in
            [(ORDER, r#"{"other":1}"#), (r#"{"type":"string"}"#, "7"), (ORDER, "[1]"), ("{}", "null")]
        {
            let sent = sent(Some(schema), given).expect("it can be read");
            let sent: Value = serde_json::from_str(&sent).expect("JSON");
            assert_eq!(sent, serde_json::from_str::<Value>(given).expect("JSON"), "{schema}");
        }
        assert_eq!(sent(None, "[1]").as_deref(), Some("[\n  1\n]"));
    }

    #[test]
    fn what_a_field_would_change_is_shown_as_json() {
        for (property, value) in [
            ("email", r#""two\nlines""#),
            ("email", "7"),
            ("kind", r#""unknown""#),
            ("gift", r#""yes""#),
            ("note", r#"" blanks ""#),
        ] {
            let given = format!("{{\"{property}\":{value}}}");
            let fields = fields(Some(&payload(ORDER)), Some(&given));
            let kinds: Vec<_> = fields.iter().map(|field| field.kind.clone()).collect();
            let at = fields.iter().position(|field| field.label == property).expect("it has a field");
            assert_eq!(kinds[at], Kind::Json, "{property}: {value}");
        }
        let emoji = "[\"\u{1f468}\u{200d}\u{1f469}\"]";
        assert_eq!(
            sent(None, emoji).map(|text| text.replace(['\n', ' '], "")).as_deref(),
            Some(emoji),
            "a hidden character stays one"
        );
    }

    #[test]
    fn a_long_input_stays_whole() {
        let long = format!("[\"{}\"]", "x".repeat(100_000));
        assert_eq!(sent(None, &long).as_deref(), Some(long.as_str()));
    }
}
