//! Schedules on the real workerd: they tick, once for each instant, also through kills; and the runtime's time zones are
//! those of the world.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// 28 years, until 2100.
const YEARS_28_MS: u64 = 10_227 * 86_400_000;

async fn put(client: &Client, id: &str, spec: &Value) -> Result<Value> {
    let answer = client.request("PUT", &format!("/api/schedules/{id}"), &spec.to_string()).await?;
    anyhow::ensure!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
    answer.json()
}

async fn show(client: &Client, id: &str) -> Result<Value> {
    client.get(&format!("/api/schedules/{id}")).await?.json()
}

/// Waits until a schedule has started so many runs.
async fn until_started(client: &Client, id: &str, count: u64) -> Result<Value> {
    let began = Instant::now();
    loop {
        let view = show(client, id).await?;
        if view["counts"]["started"].as_u64().context("it is counted")? >= count {
            return Ok(view);
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "it does not tick: {view}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_schedule_ticks_once_for_each_second_through_a_kill() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 4).await?;
        let client = engine.client();
        let spec = json!({ "workflow": "ten", "when": "* * * * * *", "tags": ["tick"], "catch_up": "all" });
        put(&client, "quick", &spec).await?;
        until_started(&client, "quick", 3).await?;
        engine.engine.kill();
        engine.engine.restart().await?;
        let client = engine.client();
        until_started(&client, "quick", 8).await?;
        client.send_post("/api/schedules/quick/pause", "").await?;
        // A start may be under way.
        sleep(Duration::from_millis(500)).await;
        let view = show(&client, "quick").await?;
        let started = view["counts"]["started"].as_u64().context("it is counted")?;
        let runs = client.list("tag=tick", 100).await?.len() as u64;
        assert_eq!(runs, started, "each tick has one run");
    }
    Ok(())
}

#[tokio::test]
async fn the_runtime_knows_when_clocks_change() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    // 29 March 2026, 1:00 UTC: 2:00 becomes 3:00. The calendar repeats itself after 28 years, and nothing is due by then.
    let starts_at = 1_774_656_000_000 + YEARS_28_MS;
    let spec =
        json!({ "workflow": "ten", "when": "30 2 * * *", "zone": "Europe/Berlin", "starts_at": starts_at });
    put(&client, "zoned", &spec).await?;
    let next = client.get("/api/schedules/zoned/next").await?.json()?;
    let found: Vec<_> = next["ticks"].as_array().context("ticks")?.iter().take(3).cloned().collect();
    let ticks =
        [1_774_661_400_000, 1_774_746_000_000, 1_774_830_600_000].map(|tick| json!(tick + YEARS_28_MS));
    assert_eq!(found, ticks);
    let unknown = json!({ "workflow": "ten", "when": "every day", "zone": "Mars/Olympus" });
    let refused = client.request("PUT", "/api/schedules/zoned", &unknown.to_string()).await?;
    assert_eq!(refused.problem()?, (400, "invalid_request".into()));
    Ok(())
}
