//! Runs that invoke runs, on the real workerd, in both forms.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

const FORMS: [Form; 2] = [Form::AllInOne, Form::Split];

/// The only run of a workflow, once it is there.
async fn only(client: &Client, workflow: &str) -> anyhow::Result<Value> {
    let began = Instant::now();
    loop {
        let mut runs = client.list(&format!("workflow={workflow}"), 10).await?;
        ensure!(runs.len() <= 1, "{runs:?}");
        if let Some(run) = runs.pop() {
            return Ok(run);
        }
        ensure!(began.elapsed() < Duration::from_secs(20), "there is no run of {workflow}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn id(run: &Value) -> anyhow::Result<&str> {
    run["id"].as_str().context("a run has an id")
}

/// Everything that runs have written to each other has arrived.
async fn has_arrived(client: &Client) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let outbox = client.get("/api/outbox").await?.json()?;
        if outbox == json!({ "messages": [], "complete": true }) {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_secs(20), "{outbox}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_parent_waits_through_a_restart_and_gets_what_its_child_gives() -> TestResult {
    for form in FORMS {
        let mut engine = Engine::start(form, 4).await?;
        let client = engine.client();
        let parent = client.start_id("guardian", json!({ "workflow": "ward", "input": 1 })).await?;
        let child = only(&client, "ward").await?;
        assert_eq!(child["parent"], parent.as_str(), "{child}");
        assert_eq!(child["started_by"], format!("run:{parent}"));
        let view = client.until(&parent, "waiting").await?;
        assert_eq!(view["children"], 1, "{view}");
        let why = client.get(&format!("/api/executions/{parent}/why")).await?.json()?;
        assert_eq!(why["because"], "It waits for child 'charge'.");
        engine.engine.restart().await?;
        client.signal(id(&child)?, "go", &json!({ "paid": true }), None).await?;
        let view = client.until(&parent, "completed").await?;
        assert_eq!(view["output"], json!({ "output": { "paid": true } }), "{}", form.name());
        has_arrived(&client).await?;
        only(&client, "ward").await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_becomes_of_a_child_reaches_its_parent() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    // It fails.
    let parent = client.start_id("guardian", json!({ "workflow": "fail", "input": null })).await?;
    let output = &client.until(&parent, "completed").await?["output"];
    let failed = only(&client, "fail").await?;
    assert_eq!((&output["child"], &failed["status"]), (&failed["id"], &json!("failed")), "{output}");
    // It is cancelled.
    let parent = client.start_id("guardian", json!({ "workflow": "ward", "input": 1 })).await?;
    let child = only(&client, "ward").await?;
    client.cancel(id(&child)?).await?;
    let output = &client.until(&parent, "completed").await?["output"];
    assert_eq!(output["code"], "child_cancelled", "{output}");
    // It takes too long, and is cancelled.
    let waits = json!({ "workflow": "ward", "input": 2, "timeout_ms": 300 });
    let parent = client.start_id("guardian", waits).await?;
    let output = &client.until(&parent, "completed").await?["output"];
    assert_eq!(output["code"], "child_timed_out", "{output}");
    let began = Instant::now();
    loop {
        let counts = client.get("/api/metrics?workflow=ward").await?.json()?;
        if counts["statuses"] == json!({ "cancelled": 2 }) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{counts}");
        sleep(Duration::from_millis(50)).await;
    }
    has_arrived(&client).await?;
    Ok(())
}

#[tokio::test]
async fn a_cancelled_parent_takes_its_children_along_and_a_detached_one_goes_on() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 4).await?;
        let client = engine.client();
        let grandparent = json!({ "workflow": "guardian", "input": { "workflow": "ward", "input": 1 } });
        let parent = client.start_id("guardian", grandparent).await?;
        let child = only(&client, "ward").await?;
        client.cancel(&parent).await?;
        let view = client.until(id(&child)?, "cancelled").await?;
        assert_eq!(view["acts"][0]["what"], "cancel", "{view}");
        has_arrived(&client).await?;

        let input = json!({ "workflow": "ward", "input": 2, "detached": true });
        let parent = client.start_id("guardian", input).await?;
        let view = client.until(&parent, "completed").await?;
        let child = view["output"]["started"].as_str().context("it has the id of its child")?;
        client.until(child, "waiting").await?;
        client.signal(child, "go", &json!(5), None).await?;
        assert_eq!(client.until(child, "completed").await?["output"], 5);
        has_arrived(&client).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_child_obeys_the_limits_and_settings_of_its_namespace() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 1).await?;
        let root = engine.client();
        let made = root.post_json("/api/namespaces", &json!({ "name": "acme" })).await?;
        let client = root.with_key(made["admin"]["key"].as_str().context("it has a first key")?);
        let limits = async |live_runs: u32| {
            let limits = json!({ "live_runs": live_runs }).to_string();
            let set = root.request("PUT", "/api/namespaces/acme/limits", &limits).await?;
            ensure!(set.status == 200, "{}", set.body);
            Ok(())
        };
        limits(1).await?;
        let settings = json!({ "timeout_ms": 600 }).to_string();
        let set = client.request("PUT", "/api/settings/workflows/ward", &settings).await?;
        assert_eq!(set.status, 200, "{}", set.body);
        let parent = client.start_id("guardian", json!({ "workflow": "ward", "input": 1 })).await?;
        client.until(&parent, "waiting").await?;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(client.list("workflow=ward", 10).await?.len(), 0, "the parent is the only live run");
        let counts = client.get("/api/metrics").await?.json()?;
        assert_eq!(counts["letters"], json!({ "waiting": 1, "dead": 0 }), "{}", form.name());
        limits(2).await?;
        let output = &client.until(&parent, "completed").await?["output"];
        assert_eq!(output["code"], "run_timed_out", "{}: {output}", form.name());
        let child = only(&client, "ward").await?;
        assert_eq!(child["status"], "failed", "{child}");
        has_arrived(&client).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_letter_that_is_not_there_cannot_be_sent_again() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    for letter in ["default-1-0-1", "default-1-9-1", "default-1-0-", "x", "default-1-0-99999999999999999999"]
    {
        let answer = client.send_post(&format!("/api/outbox/{letter}/redeliver"), "").await?;
        let problem: Value = serde_json::from_str(&answer.body)?;
        assert_eq!((answer.status, &problem["code"]), (404, &json!("letter_not_found")), "{letter}");
        let answer = client.request("DELETE", &format!("/api/outbox/{letter}"), "").await?;
        let problem: Value = serde_json::from_str(&answer.body)?;
        assert_eq!((answer.status, &problem["code"]), (404, &json!("letter_not_found")), "{letter}");
    }
    for query in ["dead=perhaps", "limit=0", "limit=201", "cursor=x", "cursor=eyIxLTAiOjV9", "other=1"] {
        let answer = client.get(&format!("/api/outbox?{query}")).await?;
        assert_eq!(answer.status, 400, "{query}");
    }
    Ok(())
}
