//! The process is stopped, ended or killed at bad moments.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
    kill::ledger::Ledger,
};
use tokio::time::sleep;

const FORMS: [Form; 2] = [Form::AllInOne, Form::Split];

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

fn mixed(ledger: &Ledger) -> Value {
    json!({ "ledger": ledger.address(), "failures": 1, "sleep_ms": 300, "waits": false, "items": 3 })
}

/// A run has completed, and each of its steps was recorded once and in the ledger at least once.
async fn completed(client: &Client, run: &str, ledger: &Ledger) -> Result<()> {
    let view = client.show(run, 25).await?.json()?;
    anyhow::ensure!(view["status"] == "completed", "{view}");
    let mut ops = Vec::new();
    for record in client.history(run).await? {
        if let Some(finished) = record["event"].get("step_finished") {
            ops.push(finished["op"].to_string());
        }
    }
    let recorded = ops.len();
    ops.sort();
    ops.dedup();
    anyhow::ensure!(ops.len() == recorded, "a step was recorded twice: {ops:?}");
    let written = ledger.entries().iter().filter(|entry| entry.run == run).count();
    anyhow::ensure!(written >= recorded, "{written} of {recorded} steps in the ledger");
    Ok(())
}

#[tokio::test]
async fn a_process_that_stands_still_loses_nothing_and_wakes_nobody_early() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 2).await?;
        let client = engine.client();
        let ledger = Ledger::start().await?;
        let mut naps = Vec::new();
        for ms in [200, 1_000, 4_500] {
            naps.push(client.start_id("nap", json!(ms)).await?);
        }
        let busy = [
            client.start_id("mixed", mixed(&ledger)).await?,
            client.start_id("mixed", mixed(&ledger)).await?,
        ];
        let waiting = client.start_id("wait", json!(60_000)).await?;
        client.until(&waiting, "waiting").await?;
        for victim in [Some(&engine.engine), engine.app.as_ref()].into_iter().flatten() {
            victim.pause()?;
        }
        sleep(Duration::from_secs(3)).await;
        for victim in [Some(&engine.engine), engine.app.as_ref()].into_iter().flatten() {
            victim.resume()?;
        }
        client.signal(&waiting, "go", &json!("hello"), None).await?.json()?;
        for (run, ms) in naps.iter().zip([200, 1_000, 4_500]) {
            let view = client.show(run, 20).await?.json()?;
            assert_eq!(view["status"], "completed", "{}: {view}", form.name());
            let took = view["ended_at"].as_u64().unwrap_or_default()
                - view["created_at"].as_u64().unwrap_or_default();
            assert!(took >= ms, "{}: a sleep of {ms} ms was over after {took}", form.name());
            let fired = client.history(run).await?.len();
            assert_eq!(fired, 1, "{}: a sleep ends once", form.name());
        }
        assert_eq!(client.show(&waiting, 10).await?.json()?["output"], "hello");
        for run in &busy {
            completed(&client, run, &ledger).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_app_that_stands_still_holds_up_its_runs_and_fails_none() -> TestResult {
    let engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    let app = engine.app.as_ref().expect("the split form has an app");
    let runs = [client.start_id("steady", json!(200)).await?, client.start_id("steady", json!(200)).await?];
    app.pause()?;
    sleep(Duration::from_secs(2)).await;
    // The engine answers all the while.
    assert_eq!(client.show(&runs[0], 0).await?.json()?["status"], "running");
    let later = client.start("steady", &json!(10), None, 0).await?;
    assert_eq!(later.status, 201);
    app.resume()?;
    for run in &runs {
        let view = client.show(run, 20).await?.json()?;
        assert_eq!((&view["status"], &view["activations"]), (&json!("completed"), &json!(1)), "{view}");
    }
    Ok(())
}

#[tokio::test]
async fn a_process_that_is_asked_to_end_goes_on_where_it_was() -> TestResult {
    for form in FORMS {
        let mut engine = Engine::start(form, 2).await?;
        let client = engine.client();
        let ledger = Ledger::start().await?;
        let mut runs = Vec::new();
        for _ in 0..4 {
            runs.push(client.start_id("mixed", mixed(&ledger)).await?);
        }
        let nap = client.start_id("nap", json!(1_000)).await?;
        sleep(Duration::from_millis(150)).await;
        let began = Instant::now();
        engine.engine.terminate()?;
        println!("{}: it took {:?} to end", form.name(), began.elapsed());
        engine.engine.restart().await?;
        for run in &runs {
            completed(&client, run, &ledger).await?;
        }
        assert_eq!(client.show(&nap, 10).await?.json()?["output"], "awake");
    }
    Ok(())
}

/// Runs that are asleep or at work over kills: none is lost, none wakes early, all end.
async fn survives(form: Form, kills: &[u64]) -> TestResult {
    let mut engine = Engine::start(form, 2).await?;
    let client = engine.client();
    let ledger = Ledger::start().await?;
    let started = now_ms();
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(client.start_id("mixed", mixed(&ledger)).await?);
    }
    let nap = client.start_id("nap", json!(1_500)).await?;
    for after_ms in kills {
        engine.engine.begin()?;
        sleep(Duration::from_millis(*after_ms)).await;
    }
    engine.engine.restart().await?;
    for run in &runs {
        completed(&client, run, &ledger).await?;
    }
    let view = client.show(&nap, 20).await?.json()?;
    assert_eq!(view["status"], "completed", "{view}");
    assert!(view["ended_at"].as_u64().unwrap_or_default() >= started + 1_500, "{view}");
    Ok(())
}

#[tokio::test]
async fn kills_while_it_starts_lose_nothing() -> TestResult {
    for form in FORMS {
        survives(form, &[5, 20, 40, 60, 80, 100, 120, 150, 180, 220, 260, 300]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn two_kills_within_a_moment_lose_nothing() -> TestResult {
    for form in FORMS {
        survives(form, &[100, 100]).await?;
        survives(form, &[180, 10]).await?;
    }
    Ok(())
}
