//! What to type first: the command that starts a run of a project that was just served.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};
use stepwell_protocol::{
    manifest::{WorkflowStatus, WorkflowView},
    rest::WorkflowList,
};

use crate::{
    client::{Answer, Ask, Client},
    words,
};

/// How deep an example of an input goes: a schema may hold itself.
const DEPTH_MAX: usize = 4;

/// The command that starts a run of the first workflow in the code, with an input that the workflow can read. Nothing,
/// if the app has none.
pub fn command(client: &Client, project: &Path) -> Option<String> {
    let list: Answer<WorkflowList> = client.get(&["workflows"], &Ask::default()).ok()?;
    let code = fs::read_to_string(project.join("src/lib.rs")).unwrap_or_default();
    let active = list.value.workflows.into_iter().filter(|view| view.status == WorkflowStatus::Active);
    let place = |view: &WorkflowView| code.find(&format!("fn {}(", view.declared.name)).unwrap_or(usize::MAX);
    active.min_by_key(place).map(|view| {
        let schema = view.declared.input_schema.and_then(|schema| schema.decode().ok());
        start(&view.declared.name, schema.as_ref())
    })
}

fn start(name: &str, schema: Option<&Value>) -> String {
    let input = match schema.map(|schema| example(schema, DEPTH_MAX)) {
        None | Some(Value::Null) => String::new(),
        Some(input) => format!(" '{}'", input.to_string().replace('\'', r"'\''")),
    };
    format!("{} start {}{input} --watch", words::own_name(), words::plain(name))
}

/// Something that a schema describes.
fn example(schema: &Value, depth: usize) -> Value {
    if let Some(value) = schema["enum"].as_array().and_then(|values| values.first()) {
        return value.clone();
    }
    let of = schema["type"].as_str().or_else(|| schema["type"].get(0).and_then(Value::as_str));
    match of {
        Some("string") if depth == DEPTH_MAX => json!("Ada"),
        Some("string") => json!("text"),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") if depth > 0 => {
            let required: Vec<_> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let fields = required
                .into_iter()
                .map(|name| (name.to_owned(), example(&schema["properties"][name], depth - 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Some("object") => json!({}),
        Some(_) | None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_an_input_that_fits() {
        let order = json!({
            "type": "object",
            "required": ["id", "cents"],
            "properties": { "id": { "type": "string" }, "cents": { "type": "integer" }, "note": { "type": "string" } }
        });
        for (schema, expected) in [
            (Some(json!({ "type": "string" })), "stepwell start w '\"Ada\"' --watch"),
            (Some(json!({ "type": "null" })), "stepwell start w --watch"),
            (None, "stepwell start w --watch"),
            (Some(json!({ "enum": ["it's"] })), r#"stepwell start w '"it'\''s"' --watch"#),
            (Some(order), r#"stepwell start w '{"cents":1,"id":"text"}' --watch"#),
        ] {
            let said = start("w", schema.as_ref());
            assert_eq!(said.strip_prefix("npx ").unwrap_or(&said), expected);
        }
    }
}
