//! Doing something to many runs at once.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    engine::{Client, Engine, Form},
    size,
};

async fn bulk(client: &Client, body: &Value) -> Result<Value> {
    let run = client.post_json("/api/bulk", body).await?;
    client.until(run["id"].as_str().context("a run has an id")?, "completed").await
}

#[tokio::test]
async fn many_runs_are_cancelled_although_workerd_is_killed_half_way() -> Result<()> {
    for form in [Form::AllInOne, Form::Split] {
        size::bulk::run(form, 600, 4).await?;
    }
    Ok(())
}

#[tokio::test]
async fn failed_runs_are_retried_and_ended_ones_restarted() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    for _ in 0..5 {
        client.start("fail", &json!("terminal"), None, 10).await?.json()?;
        client.start("ten", &Value::Null, None, 10).await?.json()?;
    }
    let view = bulk(&client, &json!({"action": "retry", "filter": {"workflow": "fail"}})).await?;
    assert_eq!(view["output"], json!({"changed": 5, "unchanged": 0}));
    assert_eq!(view["progress"]["percent"], 100.0);
    // What has completed cannot be retried.
    let view = bulk(&client, &json!({"action": "retry", "filter": {"status": "completed"}})).await?;
    assert_eq!(view["output"], json!({"changed": 0, "unchanged": 5}), "and it leaves its like alone");
    let view = bulk(&client, &json!({"action": "restart", "filter": {"workflow": "ten", "from": 0}})).await?;
    assert_eq!(view["output"], json!({"changed": 5, "unchanged": 0}));
    let history = client.history(view["id"].as_str().context("an id")?).await?;
    assert_eq!(history.len(), 2, "a step for each cell: {history:?}");
    Ok(())
}

#[tokio::test]
async fn a_bulk_is_a_run_like_any_other() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    client.start_id("nap", json!(600_000)).await?;
    let path = "/api/executions?workflow=stepwell.bulk";
    assert_eq!(client.get(path).await?.json()?["executions"], json!([]));
    let run = bulk(&client, &json!({"action": "cancel", "filter": {"from": 0}})).await?;
    assert_eq!(run["output"], json!({"changed": 1, "unchanged": 0}), "not itself");
    assert_eq!(client.get(path).await?.json()?["executions"][0]["id"], run["id"]);
    Ok(())
}

#[tokio::test]
async fn a_bulk_that_makes_no_sense_is_refused() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    for body in [
        json!(null),
        json!({}),
        json!({"action": "cancel"}),
        json!({"action": "cancel", "filter": {}}),
        json!({"action": "delete", "filter": {"from": 0}}),
        json!({"action": "cancel", "filter": {"colour": "red"}}),
        json!({"action": "cancel", "filter": {"status": "gone"}}),
        json!({"action": "cancel", "filter": {"from": 0}, "also": 1}),
    ] {
        let answer = client.send_post("/api/bulk", &body.to_string()).await?;
        assert_eq!(answer.problem()?, (400, "invalid_request".into()), "{body}");
    }
    let list = client.get("/api/executions").await?.json()?;
    assert_eq!(list["executions"], json!([]), "nothing was started");
    Ok(())
}
