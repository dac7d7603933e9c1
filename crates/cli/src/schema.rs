//! Checks an input by the schema that a workflow declares, before anything is sent.

use serde_json::Value;
use stepwell_protocol::manifest::WorkflowView;

use crate::{
    client::{Answer, Ask, Client},
    failure::{Failure, Result},
    words,
};

/// How many mistakes are named.
const MISTAKES_MAX: usize = 5;

/// Refuses an input that the workflow cannot read, if the workflow says what it reads. Whatever keeps this from being
/// found out keeps nobody from starting a run: the deployment knows better.
pub fn check(client: &Client, workflow: &str, input: Option<&str>) -> Result {
    let view: Option<Answer<WorkflowView>> = client.get(&["workflows", workflow], &Ask::default()).ok();
    let schema = view.and_then(|view| view.value.declared.input_schema);
    let Some(schema) = schema.and_then(|schema| schema.decode().ok()) else { return Ok(()) };
    let Ok(input) = serde_json::from_str(input.unwrap_or("null")) else { return Ok(()) };
    let mistakes = mistakes(&schema, &input);
    if mistakes.is_empty() {
        return Ok(());
    }
    let what = format!("the input does not fit the workflow '{workflow}': {}", mistakes.join("; "));
    Err(Failure::usage(words::plain(&what))
        .next("`stepwell workflows show NAME` shows its schema. --no-check starts the run anyway."))
}

/// What is wrong with an input, as far as `type`, `enum`, `required`, `properties` and `items` tell. Other keywords are
/// passed over: the workflow itself reads its input in the end.
fn mistakes(schema: &Value, input: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(schema, input, "", &mut found);
    found.truncate(MISTAKES_MAX);
    found
}

fn look(schema: &Value, input: &Value, place: &str, found: &mut Vec<String>) {
    let mut note = |what: String| {
        found.push(if place.is_empty() { what } else { format!("{place}: {what}") });
    };
    let types: Vec<_> = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|of| is_of(input, of)) {
        return note(format!("{input} is not of type {}", types.join(" or ")));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(input)
    {
        return note(format!("{input} is not one of {}", schema["enum"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if input.is_object() && input.get(name).is_none() {
            note(format!("\"{name}\" is missing"));
        }
    }
    for (name, value) in input.as_object().into_iter().flatten() {
        look(&schema["properties"][name], value, &format!("{place}/{name}"), found);
    }
    for (index, value) in input.as_array().into_iter().flatten().enumerate() {
        look(&schema["items"], value, &format!("{place}/{index}"), found);
    }
}

fn is_of(input: &Value, name: &str) -> bool {
    match name {
        "null" => input.is_null(),
        "boolean" => input.is_boolean(),
        "integer" => {
            input.is_i64() || input.is_u64() || input.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => input.is_number(),
        "string" => input.is_string(),
        "array" => input.is_array(),
        "object" => input.is_object(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let schema = json!({
            "type": "object", "required": ["id", "to"], "properties": { "id": { "type": "string" } }
        });
        assert_eq!(mistakes(&schema, &json!({ "id": "a", "to": 1 })), Vec::<String>::new());
        let named = mistakes(&schema, &json!({ "id": 7 })).join("; ");
        assert!(named.contains("\"to\" is missing") && named.contains("/id: 7 is not"), "{named}");
    }

    #[test]
    fn a_schema_that_makes_no_sense_refuses_nothing() {
        assert_eq!(mistakes(&json!({ "type": 7 }), &json!(1)), Vec::<String>::new());
    }
}
