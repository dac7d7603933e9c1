//! Parameters that routes share.

use schemars::SchemaGenerator;
use serde_json::{Value, json};
use stepwell_protocol::{filter::Filter, program::Attributes, rest::Status};

use super::schema;

#[expect(clippy::needless_pass_by_value, reason = "it is made where it is given")]
pub fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

pub fn topic() -> Value {
    json!({
        "name": "topic",
        "in": "query",
        "required": true,
        "description": "The topic: the first part of the events' names.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 40 }
    })
}

pub fn cursor() -> Value {
    query("cursor", "The `id` of the last event that you have seen.", json!({ "type": "string" }))
}

pub fn last_event_id() -> Value {
    json!({
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The same, as browsers send it.",
        "schema": { "type": "string" }
    })
}

pub fn kinds() -> Value {
    query(
        "types",
        "The types of events to show, separated by commas. The default is all.",
        json!({ "type": "string" }),
    )
}

pub fn follow() -> Value {
    query(
        "follow",
        "`false` ends the stream when everything stored has been shown.",
        json!({ "type": "boolean", "default": true }),
    )
}

pub fn tags() -> Value {
    query(
        "tag",
        "A tag to find the run by.",
        json!({ "type": "array", "items": { "type": "string" }, "maxItems": 8 }),
    )
}

pub fn key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Repeating a request with the same key has no further effect.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 256 }
    })
}

pub fn prefer() -> Value {
    json!({
        "name": "Prefer",
        "in": "header",
        "description": "`wait=N`: waits up to N seconds for the end of the run, at most 300.",
        "schema": { "type": "string" }
    })
}

pub fn delay() -> Value {
    json!({
        "name": "Stepwell-Delay",
        "in": "header",
        "description": "When the run starts: after a length of time such as `2h`, or at an instant such as \
                        `2026-12-01T09:00:00Z`. At most a year from now.",
        "schema": { "type": "string" }
    })
}

pub fn callback() -> Value {
    json!({
        "name": "Stepwell-Callback",
        "in": "header",
        "description": "An https address that is called with a signed POST when the run ends, in place of the workflow's \
                        own. At most 2,048 bytes.",
        "schema": { "type": "string" }
    })
}

pub fn traceparent() -> Value {
    json!({
        "name": "traceparent",
        "in": "header",
        "description": "The span that the run happens within, by W3C Trace Context. One that cannot be read is ignored.",
        "schema": { "type": "string" }
    })
}

pub fn filters(schemas: &mut SchemaGenerator) -> Vec<Value> {
    let time = || json!({ "type": "integer", "minimum": 0 });
    let attributes = json!({ "type": "array", "items": { "type": "string" }, "maxItems": Attributes::MAX });
    let statuses = json!({ "type": "array", "items": schema::<Status>(schemas) });
    let mut status = query("status", "In one of these statuses, separated by commas.", statuses);
    status["explode"] = false.into();
    let ids = json!({ "type": "array", "items": { "type": "string" }, "maxItems": Filter::IDS_MAX });
    let mut id = query("id", "One of these, separated by commas.", ids);
    id["explode"] = false.into();
    vec![
        id,
        query("workflow", "Of this workflow.", json!({ "type": "string" })),
        status,
        query("tag", "With this tag.", json!({ "type": "string" })),
        query("attribute", "With this attribute: `name:value`.", attributes),
        query("from", "Accepted at this time or later, in milliseconds since 1970.", time()),
        query("until", "Accepted before this time.", time()),
        query("ended_from", "Ended at this time or later.", time()),
        query("ended_until", "Ended before this time.", time()),
        query(
            "min_duration_ms",
            "Took at least so many milliseconds, or have not ended for so long.",
            time(),
        ),
        query(
            "retrying",
            "`true`: a step has failed and waits for its next attempt.",
            json!({ "type": "boolean" }),
        ),
        query(
            "error",
            "With this text in the message of an error.",
            json!({ "type": "string", "minLength": 1, "maxLength": Filter::ERROR_LENGTH_MAX }),
        ),
        page_limit("How many runs."),
        page_cursor(),
    ]
}

pub fn failures() -> Vec<Value> {
    vec![
        query("workflow", "Of this workflow.", json!({ "type": "string" })),
        query(
            "since",
            "Groups with a failure at this time or later, in milliseconds since 1970.",
            json!({ "type": "integer", "minimum": 0 }),
        ),
        page_limit("How many groups."),
        query("cursor", "The `next` of the previous page.", json!({ "type": "string" })),
    ]
}

pub fn page_limit(what: &str) -> Value {
    query("limit", what, json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 }))
}

pub fn page_cursor() -> Value {
    query("cursor", "The `cursor` of the previous page.", json!({ "type": "string" }))
}
