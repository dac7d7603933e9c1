//! The log on the real workerd: lines of JSON with the id of their request, none with what a run holds.

use anyhow::{Context as _, Result};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Engine, Form, KEY},
};
use tokio::time::{Duration, sleep};

/// What a caller puts into a run, in each way that there is.
const CANARY: &str = "canary-4711";

/// The engine's lines, and whatever else was written.
fn lines(engine: &Engine) -> (Vec<Value>, Vec<String>) {
    let log = engine.engine.log();
    let (mut lines, mut others) = (Vec::new(), Vec::new());
    for text in log.lines() {
        // workerd writes the kind of each line before it where that is no terminal.
        let json = text.find("{\"at\":").and_then(|at| serde_json::from_str::<Value>(&text[at..]).ok());
        match json {
            Some(line) => lines.push(line),
            None => others.push(text.to_owned()),
        }
    }
    (lines, others)
}

fn of_run<'a>(lines: &'a [Value], run: &str) -> Vec<&'a str> {
    lines.iter().filter(|line| line["run"] == run).filter_map(|line| line["event"].as_str()).collect()
}

/// Waits until the log has an event of a run.
async fn until(engine: &Engine, run: &str, event: &str) -> Result<Vec<Value>> {
    for _ in 0..100 {
        let (lines, _) = lines(engine);
        if of_run(&lines, run).contains(&event) {
            return Ok(lines);
        }
        sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("no {event} of {run} in: {}", engine.engine.log())
}

#[tokio::test]
async fn everything_that_happens_to_a_run_is_a_line_of_json_without_what_the_run_holds() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let engine = Engine::start_with(form, &[("STEPWELL_LOG", "debug")]).await?;
        let client = engine.client();
        let headers = [("stepwell-request-id", "order-4711:a"), ("idempotency-key", CANARY)];
        let input = json!([[CANARY, CANARY]]).to_string();
        let started =
            client.request_with(Method::POST, "/api/workflows/found/start", &headers, &input).await?;
        let run = started.json()?["id"].as_str().context("an id")?.to_owned();
        client.until(&run, "waiting").await?;
        let waiting = client.start_id("wait", json!(60_000)).await?;
        client.until(&waiting, "waiting").await?;
        client.signal(&waiting, "go", &json!(CANARY), Some(CANARY)).await?;
        client.until(&waiting, "completed").await?;
        let failing = client.start_id("fail", json!(CANARY)).await?;
        client.until(&failing, "failed").await?;
        client.cancel(&run).await?;
        let all = until(&engine, &failing, "run_failed").await?;
        let (_, others) = lines(&engine);
        assert_eq!(others, Vec::<String>::new(), "all that is written is JSON");
        let started = all.iter().find(|line| line["event"] == "run_started" && line["run"] == run.as_str());
        let started = started.context("the start of a run")?;
        assert_eq!((&started["request"], &started["level"]), (&json!("order-4711:a"), &json!("info")));
        assert_eq!((&started["workflow"], &started["namespace"]), (&json!("found"), &json!("default")));
        let activated = all.iter().find(|line| line["event"] == "run_activated").context("an activation")?;
        assert_eq!(activated["epoch"], 1);
        let events = of_run(&all, &run);
        assert_eq!(
            events,
            ["run_started", "run_activated", "step_finished", "run_suspended", "run_cancelled"]
        );
        assert!(of_run(&all, &waiting).contains(&"signal_received"), "{all:?}");
        let request = all.iter().find(|line| line["request"] == "order-4711:a" && line["route"].is_string());
        let request = request.context("the request itself")?;
        assert_eq!(
            (&request["route"], &request["status"]),
            (&json!("/api/workflows/{workflow}/start"), &json!(201))
        );
        let log = engine.engine.log();
        for secret in [CANARY, KEY, "failed on purpose"] {
            assert!(!log.contains(secret), "{secret} is in: {log}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_log_has_what_went_wrong_unless_it_is_off_and_answers_name_their_request() -> TestResult {
    for (level, wanted) in [(None, true), (Some("error"), true), (Some("off"), false)] {
        let variables: Vec<_> = level.into_iter().map(|level| ("STEPWELL_LOG", level)).collect();
        let engine = Engine::start_with(Form::AllInOne, &variables).await?;
        let client = engine.client();
        let good = client.start_id("ten", Value::Null).await?;
        client.until(&good, "completed").await?;
        let failing = client.start_id("fail", json!("workflow")).await?;
        client.until(&failing, "failed").await?;
        sleep(Duration::from_millis(200)).await;
        let (all, others) = lines(&engine);
        assert_eq!(others, Vec::<String>::new());
        assert_eq!(of_run(&all, &good), Vec::<&str>::new(), "a run that goes well is in no log: {level:?}");
        assert_eq!(of_run(&all, &failing).contains(&"run_failed"), wanted, "{level:?}");
        if level == Some("off") {
            assert_eq!(engine.engine.log(), "");
        }
        let refused = client.get("/api/executions/nothing").await?;
        let problem: Value = serde_json::from_str(&refused.body)?;
        let id = problem["request_id"].as_str().context("a problem names its request")?;
        assert_eq!(id.len(), 16, "{problem}");
        let headers = [("stepwell-request-id", "with a blank")];
        let refused = client.request_with(Method::GET, "/api/executions/nothing", &headers, "").await?;
        let refused: Value = serde_json::from_str(&refused.body)?;
        assert_ne!(refused["request_id"], "with a blank", "{refused}");
        let headers = [("stepwell-request-id", "mine")];
        let refused = client.request_with(Method::GET, "/api/executions/nothing", &headers, "").await?;
        let refused: Value = serde_json::from_str(&refused.body)?;
        assert_eq!(refused["request_id"], "mine");
    }
    Ok(())
}

#[tokio::test]
async fn a_level_that_means_nothing_is_refused() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_LOG", "verbose")]).await?;
    let answer = engine.client().send_post("/api/workflows/ten/start", "null").await?;
    assert_eq!(answer.problem()?, (500, "misconfigured".into()));
    assert!(answer.body.contains("STEPWELL_LOG"), "{}", answer.body);
    Ok(())
}
