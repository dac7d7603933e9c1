//! Another Worker calls the engine through a service binding.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::engine::{Engine, Form};

/// Calls a method that must not throw.
async fn call(engine: &Engine, method: &str, arguments: Value) -> Result<Value> {
    let given = engine.call(method, &arguments).await?;
    given.map_err(|thrown| anyhow::anyhow!("{method} {arguments}: {thrown}"))
}

#[tokio::test]
async fn another_worker_starts_watches_and_ends_runs() -> Result<()> {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start_with_caller(form, 2).await?;
        let ten = call(&engine, "startWorkflow", json!(["ten", null, {"wait": 10, "tags": ["a b"]}])).await?;
        assert_eq!((&ten["output"], &ten["tags"]), (&json!(45), &json!(["a b"])));
        let keyed = json!(["keyed", 60_000, {"idempotencyKey": "k"}]);
        let first = call(&engine, "startWorkflow", keyed.clone()).await?;
        engine.engine.restart().await?;
        assert_eq!(call(&engine, "startWorkflow", keyed).await?["id"], first["id"]);
        let id = first["id"].as_str().context("an id")?;
        // The run may not wait for it yet, and then the receipt warns of that.
        let receipt = call(&engine, "sendSignal", json!([id, "go", "gone"])).await?;
        assert_eq!(receipt["duplicate"], false);
        let ended = call(&engine, "getExecution", json!([id, {"wait": 10}])).await?;
        assert_eq!(ended["output"], "gone");
        let history = call(&engine, "getHistory", json!([id])).await?;
        assert_eq!(history["events"][0]["event"]["signal_received"]["payload"], "gone");

        let nap = call(&engine, "startWorkflow", json!(["nap", 600_000])).await?["id"].clone();
        for (method, done) in [
            ("pauseExecution", true),
            ("resumeExecution", true),
            ("cancelExecution", true),
            ("pauseExecution", false),
        ] {
            assert_eq!(call(&engine, method, json!([nap])).await?, json!(done), "{method}");
        }
        let again = call(&engine, "restartExecution", json!([nap])).await?;
        assert_ne!(again["status"], "cancelled");
        let bulk = json!([{"action": "cancel", "filter": {"workflow": "nap"}}, {"wait": 10}]);
        assert_eq!(call(&engine, "startBulk", bulk).await?["output"], json!({"changed": 1, "unchanged": 0}));
    }
    Ok(())
}

#[tokio::test]
async fn another_worker_finds_and_counts_runs() -> Result<()> {
    let engine = Engine::start_with_caller(Form::Split, 2).await?;
    let told = json!(["found", [["customer", "acme"]]]);
    let run = call(&engine, "startWorkflow", told).await?;
    call(&engine, "getExecution", json!([run["id"], {"wait": 1}])).await?;
    let list =
        call(&engine, "listExecutions", json!([{"attributes": {"customer": "acme"}, "limit": 5}])).await?;
    assert_eq!(list["executions"][0]["id"], run["id"]);
    assert_eq!(
        call(&engine, "listExecutions", json!([])).await?["executions"].as_array().map(Vec::len),
        Some(1)
    );
    let metrics = call(&engine, "getMetrics", json!(["found"])).await?;
    assert_eq!(metrics["workflows"], json!({"found": {"waiting": 1}}));
    let workflows = call(&engine, "listWorkflows", json!([])).await?;
    assert!(workflows.as_array().is_some_and(|all| all.len() > 20), "{workflows}");
    assert_eq!(call(&engine, "getWorkflow", json!(["mixed"])).await?["timeout_ms"], 600_000);
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_is_null_and_what_is_refused_is_thrown_with_its_code() -> Result<()> {
    let engine = Engine::start_with_caller(Form::AllInOne, 1).await?;
    for (method, arguments) in [
        ("getExecution", json!(["default-1-0-9-000000000000"])),
        ("getExecution", json!([7])),
        ("getHistory", json!(["../metrics"])),
        ("getWorkflow", json!(["nothing"])),
    ] {
        assert_eq!(call(&engine, method, arguments.clone()).await?, Value::Null, "{method} {arguments}");
    }
    assert_eq!(call(&engine, "cancelExecution", json!(["nobody"])).await?, json!(false));
    for (method, arguments, code) in [
        ("startWorkflow", json!(["nothing"]), "workflow_not_found: "),
        ("startWorkflow", json!(["keyed", 1]), "idempotency_key_missing: "),
        ("startWorkflow", json!(["ten", null, {"idempotencyKey": "\n"}]), "invalid_request: "),
        ("retryExecution", json!(["nobody"]), "run_not_found: "),
        ("listExecutions", json!([{"limit": 0}]), "invalid_request: "),
        ("startBulk", json!([{}]), "invalid_request: "),
    ] {
        let thrown = engine.call(method, &arguments).await?.expect_err("it is refused");
        assert!(thrown.starts_with(code), "{method} {arguments}: {thrown}");
    }
    let unknown = engine.call("ask", &json!([])).await?.expect_err("there is no such method");
    assert!(unknown.contains("does not implement"), "{unknown}");
    Ok(())
}
