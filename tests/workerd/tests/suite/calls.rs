//! Calls of programs: long ones, and what the engine remembers of an app.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
    evil,
};

/// How long the engine takes what an app said for what it would say, and some.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// How long a cell waits to hear of a program.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Starts runs until one is answered as expected.
async fn until_answered(client: &Client, workflow: &str, expected: u16) -> Result<serde_json::Value> {
    let began = Instant::now();
    loop {
        let answer = client.start(workflow, &json!(null), None, 0).await?;
        if answer.status == expected {
            return Ok(serde_json::from_str(&answer.body)?);
        }
        ensure!(began.elapsed() < NOTICED_WITHIN, "{workflow}: {} {}", answer.status, answer.body);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn a_deployment_of_the_app_changes_the_terms_of_its_workflows() -> TestResult {
    let mut engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    let before = client.start("termed", &json!(null), None, 0).await?.json()?;
    let lasts = |run: &serde_json::Value| {
        run["deadline"].as_u64().unwrap_or_default() - run["created_at"].as_u64().unwrap_or_default()
    };
    assert_eq!(lasts(&before), 3_600_000);
    assert_eq!(client.start("withdrawn", &json!(null), None, 0).await?.status, 201);
    engine.deploy_app("test-app-changed").await?;
    // The engine was not touched: its isolate still remembers what the app said before.
    let refused = until_answered(&client, "termed", 400).await?;
    assert_eq!(refused["code"], "idempotency_key_missing");
    let after = client.start("termed", &json!(null), Some("a"), 0).await?.json()?;
    assert_eq!(lasts(&after), 7_200_000);
    let gone = until_answered(&client, "withdrawn", 404).await?;
    assert_eq!(gone["code"], "workflow_not_found");
    Ok(())
}

#[tokio::test]
async fn a_long_step_is_shown_while_it_is_under_way() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let run = client.start_id("race", json!(27_000)).await?;
        let began = Instant::now();
        let step = loop {
            let view = client.show(&run, 0).await?.json()?;
            assert_eq!(view["status"], "running");
            if view["current_step"].is_object() {
                break view["current_step"].clone();
            }
            assert!(began.elapsed() < Duration::from_secs(26), "no step is shown");
            tokio::time::sleep(Duration::from_millis(250)).await;
        };
        assert!(began.elapsed() > Duration::from_secs(19), "it is shown after {:?}", began.elapsed());
        assert_eq!((&step["name"], &step["attempt"]), (&json!("slow"), &json!(1)));
        let why = client.get(&format!("/api/executions/{run}/why")).await?.json()?;
        let because = why["because"].as_str().unwrap_or_default();
        assert!(because.starts_with("Step 'slow' (attempt 1) has been running for 2"), "{because}");
        let ended = client.until(&run, "completed").await?;
        assert_eq!((&ended["output"], &ended["activations"]), (&json!("step"), &json!(1)));
        assert!(ended["current_step"].is_null());
    }
    Ok(())
}

#[tokio::test]
async fn a_step_times_out_after_what_the_deployment_says() -> TestResult {
    let variables = [("STEPWELL_CELLS", "1"), ("STEPWELL_STEP_TIMEOUT", "300ms")];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let client = engine.client();
    let run = client.start("race", &json!(60_000), None, 12).await?.json()?;
    assert_eq!(run["status"], "completed", "{run}");
    let history =
        client.get(&format!("/api/executions/{}/history", run["id"].as_str().unwrap_or(""))).await?;
    assert!(history.body.contains("step_timed_out"), "{}", history.body);
    let engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_STEP_TIMEOUT", "soon")]).await?;
    let refused = engine.client().start("ten", &json!(null), None, 0).await?;
    assert!(refused.body.contains("STEPWELL_STEP_TIMEOUT is 'soon'"), "{}", refused.body);
    Ok(())
}

/// The first call of the program hangs, and says nothing.
#[tokio::test]
async fn a_program_that_says_nothing_is_given_up_and_called_again() -> TestResult {
    let engine = Engine::start_with_tap().await?;
    evil::silence(&engine, 1).await?;
    let (client, began) = (engine.client(), Instant::now());
    let run = client.start_id("ten", json!(null)).await?;
    let ended = loop {
        let view = client.show(&run, 20).await?.json()?;
        if view["status"] == "completed" {
            break view;
        }
        assert!(began.elapsed() < SILENT_FOR + Duration::from_secs(20), "it is not called again: {view}");
    };
    assert!(began.elapsed() >= SILENT_FOR, "it is called again after {:?}", began.elapsed());
    assert_eq!(ended["activations"], 2);
    // The host has let the call go, and does not only call the program anew.
    let log = engine.engine.log();
    assert!(log.contains("nothing was heard of run 1 for 60 s"), "{log}");
    Ok(())
}
