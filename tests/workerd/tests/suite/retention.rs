//! Runs that are deleted when they have been kept for long enough.

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// Rows that the cell has written so far.
async fn rows(client: &Client, id: &str) -> anyhow::Result<u32> {
    Ok(client.show(id, 0).await?.headers["stepwell-rows-written"].to_str()?.parse()?)
}

/// Waits until a run is gone.
async fn until_gone(client: &Client, id: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let answer = client.show(id, 0).await?;
        if answer.status == 404 {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(20), "{id} is still there: {}", answer.body);
        sleep(Duration::from_millis(20)).await;
    }
}

async fn listed(client: &Client) -> anyhow::Result<usize> {
    Ok(client.get("/api/executions").await?.json()?["executions"].as_array().map_or(0, Vec::len))
}

async fn ended(client: &Client, workflow: &str, input: &Value, key: Option<&str>) -> anyhow::Result<String> {
    let run = client.start(workflow, input, key, 20).await?.json()?;
    anyhow::ensure!(run["status"] == "completed", "{run}");
    Ok(run["id"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_ten_step_run_is_deleted_with_one_row_for_each_of_its_own() -> TestResult {
    const RUNS: u32 = 20;
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    // The first one makes the tables.
    until_gone(&client, &ended(&client, "soon_gone", &Value::Null, None).await?).await?;
    let kept = ended(&client, "ten", &Value::Null, None).await?;
    let before = rows(&client, &kept).await?;
    let mut ids = vec![ended(&client, "soon_gone", &Value::Null, None).await?];
    let run = rows(&client, &kept).await? - before;
    for _ in 1..RUNS {
        ids.push(ended(&client, "soon_gone", &Value::Null, None).await?);
    }
    for id in &ids {
        until_gone(&client, id).await?;
    }
    let total = f64::from(rows(&client, &kept).await? - before) / f64::from(RUNS);
    println!("a ten-step run: {run} rows until its end, {total:.1} with its deletion and all alarms");
    assert!(run <= 16, "{run} rows until its end");
    // Ten events and the run's own row, and its part of the alarms.
    assert!(total <= 27.0, "{total} rows in all");
    assert_eq!(listed(&client).await?, 1, "what is kept for longer is there");
    Ok(())
}

#[tokio::test]
async fn a_long_run_is_deleted_in_slices_while_others_go_on() -> TestResult {
    const STEPS: u32 = 2_300;
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    let long = ended(&client, "soon_gone_long", &json!(STEPS), Some("long")).await?;
    let expires_at = client.show(&long, 0).await?.json()?["expires_at"].as_u64();
    assert!(expires_at.is_some(), "it says when it will be deleted");
    until_gone(&client, &long).await?;
    assert_eq!(listed(&client).await?, 0, "it is in no list from the first slice on");
    let other = ended(&client, "ten", &Value::Null, Some("long")).await?;
    assert_ne!(other, long, "its key is free again");
    // Five slices, and nothing more is written.
    let began = Instant::now();
    let mut last = 0;
    loop {
        let now = rows(&client, &other).await?;
        if now == last {
            break;
        }
        last = now;
        assert!(began.elapsed() < Duration::from_secs(20), "it never ends");
        sleep(Duration::from_millis(200)).await;
    }
    println!("{last} rows in all for a run of {STEPS} steps and one of ten");
    assert!(last >= 2 * STEPS, "only {last} rows were written: the journal is not gone");
    Ok(())
}

#[tokio::test]
async fn a_run_survives_if_it_is_restarted_in_time_and_a_kill_changes_nothing() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let (one, two) = (
        ended(&client, "soon_gone", &Value::Null, None).await?,
        ended(&client, "soon_gone", &Value::Null, None).await?,
    );
    engine.engine.restart().await?;
    assert_eq!(client.act(&one, "restart", "").await?.status, 200);
    until_gone(&client, &two).await?;
    // It has ended once more by now, and is kept for its time from then on.
    until_gone(&client, &one).await?;
    let next = ended(&client, "soon_gone", &Value::Null, None).await?;
    assert!(next.starts_with("default-1-0-3-"), "numbers go on: {next}");
    Ok(())
}
