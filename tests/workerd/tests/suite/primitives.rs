//! What people can do to a run, and what a workflow can say about itself, on the real workerd.

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Engine, Form},
    kill::ledger::Ledger,
};
use tokio::time::{Duration, Instant, sleep};

#[tokio::test]
async fn everything_at_once_completes_in_both_forms() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let engine = Engine::start(form, 1).await?;
        let ledger = Ledger::start().await?;
        let plan = json!({
            "ledger": ledger.address(), "failures": 2, "sleep_ms": 30, "waits": false, "items": 3,
        });
        let run = engine.client().start("mixed", &plan, None, 15).await?.json()?;
        assert_eq!(
            (&run["status"], &run["progress"]["percent"]),
            (&json!("completed"), &json!(90.0)),
            "{run}"
        );
        assert_eq!(run["output"].as_array().map(Vec::len), Some(12), "{run}");
    }
    Ok(())
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_tried_again() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let began = Instant::now();
    let run = engine.client().start("slow", &Value::Null, None, 15).await?.json()?;
    assert_eq!(run["output"], 3, "{run}");
    assert!(began.elapsed() < Duration::from_secs(10));
    let history = engine.client().history(run["id"].as_str().unwrap_or_default()).await?;
    assert_eq!(history[0]["event"]["step_retrying"]["failure"]["code"], "step_timed_out", "{history:?}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_failed_and_says_so() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let began = Instant::now();
    let run = engine.client().start("late", &Value::Null, None, 15).await?.json()?;
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("run_timed_out")), "{run}");
    let progress = &run["progress"];
    assert_eq!((&progress["percent"], &progress["message"]), (&json!(50.0), &json!("half way")));
    assert!(progress["at"].as_u64() >= run["created_at"].as_u64(), "{run}");
    assert!(began.elapsed() >= Duration::from_millis(300));
    Ok(())
}

#[tokio::test]
async fn a_paused_run_does_nothing_until_it_is_resumed() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("nap", json!(300)).await?;
    client.until(&run, "sleeping").await?;
    assert_eq!(client.pause(&run).await?.json()?["status"], "paused");
    sleep(Duration::from_millis(500)).await;
    engine.engine.kill();
    engine.engine.restart().await?;
    assert_eq!(client.show(&run, 0).await?.json()?["status"], "paused");
    let why = client.get(&format!("/api/executions/{run}/why")).await?.json()?;
    assert_eq!(why["because"], "Someone paused it. Resume it to continue.");
    client.resume(&run).await?.json()?;
    assert_eq!(client.show(&run, 10).await?.json()?["output"], "awake");
    assert_eq!(client.pause(&run).await?.status, 409);
    Ok(())
}

#[tokio::test]
async fn a_failed_run_is_retried_from_its_failed_step() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let ledger = Ledger::start().await?;
    let run = client.start_id("mend", json!(ledger.address())).await?;
    client.until(&run, "failed").await?;
    assert_eq!(client.resume(&run).await?.status, 409);
    // It fails once more before the ledger has enough entries.
    client.act(&run, "retry", "").await?.json()?;
    client.until(&run, "failed").await?;
    client.act(&run, "retry", "").await?.json()?;
    let view = client.show(&run, 10).await?.json()?;
    assert_eq!(view["output"], json!([0, 3, 4]), "{view}");
    let steps: Vec<_> =
        ledger.entries().into_iter().map(|entry| entry.key.rsplit(':').next().map(str::to_owned)).collect();
    let steps: Vec<_> = steps.iter().flatten().map(String::as_str).collect();
    assert_eq!(steps, ["first", "second", "second", "second", "third"]);
    assert_eq!(client.act(&run, "retry", "").await?.status, 409);

    // Back to before the second step: the first is not run again.
    client.act(&run, "restart", r#"{"from":{"step":"second"}}"#).await?.json()?;
    assert_eq!(client.show(&run, 10).await?.json()?["output"], json!([0, 5, 6]));
    client.act(&run, "restart", "").await?.json()?;
    assert_eq!(client.show(&run, 10).await?.json()?["output"], json!([7, 8, 9]));
    assert_eq!(client.act(&run, "restart", r#"{"from":{"step":"none"}}"#).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn runs_are_found_by_workflow_status_and_tag_in_a_stable_order() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 8).await?;
    let client = engine.client();
    let mut started = Vec::new();
    for n in 0..30 {
        let workflow = if n % 3 == 0 { "nap" } else { "ten" };
        let path = if n % 5 == 0 {
            format!("{workflow}/start?tag=five&tag=n{n}")
        } else {
            format!("{workflow}/start")
        };
        let run = client.post_json(&format!("/api/workflows/{path}"), &json!(600_000)).await?;
        started.push(run["id"].as_str().unwrap_or_default().to_owned());
        // Two runs of one millisecond are ordered by their ids, not by who came first.
        sleep(Duration::from_millis(2)).await;
    }
    started.reverse();
    let list = async |query: &str| -> anyhow::Result<Vec<String>> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..50 {
            let page = client.get(&format!("/api/executions?{query}{cursor}")).await?.json()?;
            let ids = page["executions"].as_array().into_iter().flatten();
            found.extend(ids.filter_map(|run| run["id"].as_str().map(str::to_owned)));
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(found),
            }
        }
        anyhow::bail!("the list has no end")
    };
    assert_eq!(list("").await?, started);
    assert_eq!(list("limit=1").await?, started);
    assert_eq!(list("limit=7").await?, started);
    assert_eq!(list("workflow=nap&limit=3").await?.len(), 10);
    assert_eq!(list("status=sleeping").await?.len(), 10);
    assert_eq!(list("tag=five&limit=2").await?.len(), 6);
    assert_eq!(list("tag=n5").await?.len(), 1);
    assert_eq!(list("tag=none").await?.len(), 0);
    for bad in ["status=asleep", "limit=0", "limit=201", "cursor=x", "from=monday", "what=ever"] {
        assert_eq!(client.get(&format!("/api/executions?{bad}")).await?.status, 400, "{bad}");
    }
    Ok(())
}

#[tokio::test]
async fn the_meter_of_a_run_counts_what_the_platform_counts() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    // The first run also writes the tables, and arms the alarm.
    client.start("ten", &Value::Null, None, 10).await?.json()?;
    let counted = async |workflow: &str, key: Option<&str>| -> anyhow::Result<(u64, u64)> {
        let before = rows(&client.get("/api/executions/default-1-0-1-000000000000").await?);
        let answer = client.start(workflow, &Value::Null, key, 10).await?;
        let run = answer.json()?;
        Ok((run["meter"]["rows_written"].as_u64().unwrap_or_default(), rows(&answer) - before))
    };
    for (workflow, key) in [("ten", None), ("ten", Some("a-key")), ("labelled", None)] {
        let (metered, written) = counted(workflow, key).await?;
        assert_eq!(metered, written, "{workflow}");
    }
    Ok(())
}

fn rows(answer: &stepwell_workerd_tests::Answer) -> u64 {
    answer.headers["stepwell-rows-written"].to_str().unwrap_or_default().parse().unwrap_or_default()
}
