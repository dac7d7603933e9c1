//! Idempotency keys: missing where they are required, in flight, and used for something else.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    access::{key, namespace},
    engine::{Client, Engine, Form},
};

#[tokio::test]
async fn a_key_is_needed_where_the_workflow_or_the_deployment_says_so() -> Result<()> {
    let engine = Engine::start(Form::Split, 2).await?;
    let client = engine.client();
    let missing = client.start("keyed", &json!(1), None, 0).await?;
    assert_eq!(missing.problem()?, (400, "idempotency_key_missing".into()));
    assert!(missing.body.contains("/docs/errors/idempotency_key_missing.md"), "{}", missing.body);
    let first = client.start("keyed", &json!(1), Some("k"), 0).await?;
    let again = client.start("keyed", &json!(1), Some("k"), 0).await?;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json()?["id"], again.json()?["id"]);
    let other = client.start("keyed", &json!(2), Some("k"), 0).await?;
    assert_eq!(other.problem()?, (422, "idempotency_key_reused".into()));
    assert_eq!(client.start("ten", &Value::Null, None, 0).await?.status, 201, "others need none");

    let engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_IDEMPOTENCY", "required")]).await?;
    let client = engine.client();
    let missing = client.start("ten", &Value::Null, None, 0).await?;
    assert_eq!(missing.problem()?, (400, "idempotency_key_missing".into()));
    let bulk = client.send_post("/api/bulk", r#"{"action":"cancel","filter":{"from":0}}"#).await?;
    assert_eq!(bulk.problem()?, (400, "idempotency_key_missing".into()));
    assert_eq!(client.get("/api/metrics").await?.json()?["total"], 0, "nothing was started");
    Ok(())
}

/// Starts a run with the key `k` and waits for its end, until it is under way.
async fn first_start(
    client: &Client,
    workflow: &'static str,
) -> Result<tokio::task::JoinHandle<Result<Value>>> {
    let waiting = client.clone();
    let first =
        tokio::spawn(async move { waiting.start(workflow, &json!(60_000), Some("k"), 20).await?.json() });
    loop {
        let list =
            client.get(&format!("/api/executions?workflow={workflow}&status=waiting")).await?.json()?;
        if list["executions"].as_array().is_some_and(|runs| !runs.is_empty()) {
            return Ok(first);
        }
        anyhow::ensure!(!first.is_finished(), "it has ended");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_repeat_is_refused_while_the_first_request_waits_where_keys_are_required() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let first = first_start(&client, "keyed").await?;
    let repeat = client.start("keyed", &json!(60_000), Some("k"), 20).await?;
    assert_eq!(repeat.problem()?, (409, "idempotency_key_in_flight".into()));
    // Whoever does not wait is answered at once.
    let now = client.start("keyed", &json!(60_000), Some("k"), 0).await?;
    assert_eq!(now.status, 200);
    let id = now.json()?["id"].as_str().context("an id")?.to_owned();
    assert!(repeat.body.contains(&id), "{}", repeat.body);
    client.signal(&id, "go", &json!("gone"), None).await?;
    assert_eq!(first.await??["output"], "gone");
    let later = client.start("keyed", &json!(60_000), Some("k"), 20).await?;
    assert_eq!((later.status, later.json()?["output"].clone()), (200, json!("gone")));
    Ok(())
}

#[tokio::test]
async fn a_repeat_waits_for_the_same_run_where_keys_are_optional() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let first = first_start(&client, "wait").await?;
    let repeating = client.clone();
    let repeat =
        tokio::spawn(async move { repeating.start("wait", &json!(60_000), Some("k"), 20).await?.json() });
    let id = client.start("wait", &json!(60_000), Some("k"), 0).await?.json()?["id"].clone();
    client.signal(id.as_str().context("an id")?, "go", &json!("gone"), None).await?;
    let (first, repeat) = (first.await??, repeat.await??);
    assert_eq!((&first["id"], &first["output"]), (&repeat["id"], &repeat["output"]));
    Ok(())
}

#[tokio::test]
async fn a_key_belongs_to_its_workflow() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    let (_, only_nap) = key(&admin, &["write:nap"]).await?;
    for number in 0..6 {
        let order = format!("order-{number}");
        let squatted = only_nap.start("nap", &json!(60_000), Some(&order), 0).await?;
        let first = admin.start("ten", &Value::Null, Some(&order), 0).await?;
        let again = admin.start("ten", &Value::Null, Some(&order), 0).await?;
        assert_eq!((squatted.status, first.status, again.status), (201, 201, 200), "{}", first.body);
        let id = |answer: &stepwell_workerd_tests::Answer| anyhow::Ok(answer.json()?["id"].clone());
        assert_eq!(id(&first)?, id(&again)?);
        assert_ne!(id(&first)?, id(&squatted)?);
        let other = admin.start("ten", &json!(1), Some(&order), 0).await?;
        assert_eq!(other.problem()?, (422, "idempotency_key_reused".into()));
    }
    Ok(())
}
