//! Schedules on the real workerd: they tick, once for each instant, also through kills; and the runtime's time zones are
//! those of the world.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult, Worker,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// 28 years, until 2100.
const YEARS_28_MS: u64 = 10_227 * 86_400_000;

async fn put(client: &Client, id: &str, spec: &Value) -> Result<Value> {
    let answer = client.request("PUT", &format!("/api/schedules/{id}"), &spec.to_string()).await?;
    assert!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
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
        assert!(began.elapsed() < Duration::from_secs(30), "it does not tick: {view}");
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

#[tokio::test]
async fn a_delayed_run_starts_at_its_time_through_a_kill_and_can_be_cancelled_before() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let start = |delay: &'static str| {
        let client = client.clone();
        async move {
            let headers = [("stepwell-delay", delay)];
            client.request_with(reqwest::Method::POST, "/api/workflows/ten/start", &headers, "").await
        }
    };
    let soon = start("2s").await?;
    assert_eq!(soon.status, 201, "{}", soon.body);
    let soon = soon.json()?;
    assert_eq!(soon["status"], "pending");
    let starts_at = soon["starts_at"].as_u64().context("it says when")?;
    let never = start("1h").await?.json()?;
    let (soon, never) = (soon["id"].as_str().context("an id")?, never["id"].as_str().context("an id")?);
    let why = client.get(&format!("/api/executions/{never}/why")).await?.json()?;
    assert!(why["because"].as_str().is_some_and(|because| because.starts_with("It starts at 20")), "{why}");
    let cancelled = client.request("POST", &format!("/api/executions/{never}/cancel"), "").await?;
    assert_eq!(cancelled.status / 100, 2, "{}", cancelled.body);
    for bad in ["2", "2 years", "-1s", "2026-12-01 09:00"] {
        assert_eq!(start(bad).await?.problem()?, (400, "invalid_request".into()), "{bad}");
    }
    engine.engine.kill();
    engine.engine.restart().await?;
    let client = engine.client();
    let ended = client.until(soon, "completed").await?;
    assert!(ended["ended_at"].as_u64() >= Some(starts_at), "it began early: {ended}");
    assert_eq!(client.get(&format!("/api/executions/{never}")).await?.json()?["status"], "cancelled");
    Ok(())
}

/// An app that declares two schedules, and later only one of them; its runs never end.
fn declaring_app(until_ms: u64) -> Worker {
    let app = r#"
        import { WorkerEntrypoint } from "cloudflare:workers";
        export default class extends WorkerEntrypoint {
          describe() {
            const every = (name) => ({ name, spec: { workflow: "w", when: "every second" } });
            const isFirst = Date.now() < Number(this.env.UNTIL);
            return JSON.stringify({
              protocol: 1,
              version: { id: isFirst ? "one" : "two", at: isFirst ? 1 : 2 },
              workflows: [{ name: "w" }],
              schedules: isFirst ? [every("gone"), every("kept")] : [every("kept")],
            });
          }
          activate() { return new Promise(() => {}); }
        }"#;
    Worker::inline("app", [("main.js", app)]).text("UNTIL", &until_ms.to_string())
}

#[tokio::test]
async fn what_the_code_declares_ticks_through_a_kill_and_what_leaves_it_is_retired() -> TestResult {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let until = u64::try_from(now.as_millis())? + 12_000;
    let mut engine = Engine::beside(declaring_app(until)).await?;
    let client = engine.client();
    let plan = client.send_post("/api/sync", "").await?.json()?;
    assert_eq!(plan["added"][2], json!({ "kind": "schedule", "name": "kept" }), "{plan}");
    // The station may not have heard of it yet.
    engine.engine.kill();
    engine.engine.restart().await?;
    let client = engine.client();
    client.send_post("/api/sync", "").await?;
    for id in ["gone", "kept"] {
        let began = Instant::now();
        while client.get(&format!("/api/schedules/{id}")).await?.status != 200 {
            assert!(began.elapsed() < Duration::from_secs(10), "{id} is not there");
            sleep(Duration::from_millis(100)).await;
        }
        until_started(&client, id, 2).await?;
    }
    client.send_post("/api/schedules/kept/pause", "").await?;
    let refused = client.request("DELETE", "/api/schedules/kept", "").await?;
    assert_eq!(refused.problem()?, (409, "wrong_status".into()));
    let began = Instant::now();
    let plan = loop {
        let plan = client.send_post("/api/sync", "").await?.json()?;
        if plan["version"]["id"] == "two" {
            break plan;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it is never deployed: {plan}");
        sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(plan["retired"], json!([{ "kind": "schedule", "name": "gone" }]), "{plan}");
    let began = Instant::now();
    while show(&client, "gone").await?["declared"]["retired_at"].is_null() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is not retired");
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_millis(500)).await;
    let before = show(&client, "gone").await?["counts"]["started"].clone();
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(show(&client, "gone").await?["counts"]["started"], before, "it ticks on");
    assert_eq!(show(&client, "kept").await?["paused"]["by"], "root", "a deploy has resumed it");
    Ok(())
}
