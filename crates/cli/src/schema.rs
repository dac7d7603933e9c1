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
    let Some(schema) = view.and_then(|view| view.value.declared.input_schema) else { return Ok(()) };
    let Ok(input) = serde_json::from_str(input.unwrap_or("null")) else { return Ok(()) };
    let mistakes = mistakes(&schema, &input);
    if mistakes.is_empty() {
        return Ok(());
    }
    let what = format!("the input does not fit the workflow '{workflow}': {}", mistakes.join("; "));
    Err(Failure::usage(words::plain(&what))
        .next("`stepwell workflows show NAME` has its schema. --no-check starts the run all the same."))
}

/// What is wrong with an input; nothing, if it fits or the schema makes no sense.
fn mistakes(schema: &Value, input: &Value) -> Vec<String> {
    let Ok(validator) = jsonschema::validator_for(schema) else { return Vec::new() };
    let mistake = |error: jsonschema::ValidationError<'_>| {
        let place = error.instance_path().to_string();
        if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
    };
    validator.iter_errors(input).take(MISTAKES_MAX).map(mistake).collect()
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
        assert!(
            named.contains("\"to\" is a required property") && named.contains("/id: 7 is not"),
            "{named}"
        );
    }

    #[test]
    fn a_schema_that_makes_no_sense_refuses_nothing() {
        assert_eq!(mistakes(&json!({ "type": 7 }), &json!(1)), Vec::<String>::new());
    }
}
