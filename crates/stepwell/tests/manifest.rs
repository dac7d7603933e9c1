//! What an app declares.

#![expect(clippy::unused_async, reason = "a workflow is asynchronous, also one that waits for nothing")]

use serde_json::{Value, json};
use stepwell::prelude::*;

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    amount: u32,
    note: Option<String>,
}

#[workflow(timeout = "1h", retention = "7d", idempotency = "required", callback = "https://example.com/done")]
async fn order(_ctx: Ctx, order: Order) -> Result<String> {
    Ok(order.id)
}

#[workflow(input_schema = "one_or_two")]
async fn chosen(_ctx: Ctx, number: u32) -> Result<u32> {
    Ok(number)
}

fn one_or_two() -> Value {
    json!({ "enum": [1, 2] })
}

#[workflow]
async fn bare(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn app() -> App {
    App::new().workflow(order).workflow(chosen).workflow(bare)
}

#[test]
fn a_manifest_has_the_terms_and_the_input_schemas_of_all_workflows() {
    let manifest = serde_json::to_value(app().manifest()).expect("it can be written as JSON");
    let schema = json!({
        "type": "object", "required": ["amount", "id"],
        "properties": { "amount": { "type": "number" }, "id": { "type": "string" } }
    });
    let workflows = json!([
        { "name": "bare" },
        { "name": "chosen", "input_schema": { "enum": [1, 2] } },
        {
            "name": "order", "timeout_ms": 3_600_000, "retention_ms": 604_800_000, "key_required": true,
            "callback": "https://example.com/done", "input_schema": schema
        },
    ]);
    assert_eq!(manifest["workflows"], workflows);
    assert_eq!(manifest.get("version"), None, "only a Worker has one");
}

#[test]
fn two_apps_that_declare_the_same_have_the_same_hash() {
    let other = App::new().workflow(bare).workflow(chosen).workflow(order);
    assert_eq!(app().manifest().hash, other.manifest().hash);
    let less = App::new().workflow(bare).workflow(chosen);
    assert_ne!(app().manifest().hash, less.manifest().hash);
}
