//! Runs that continue as new, on the real workerd.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

const LIVES: u64 = 20;

fn rounds() -> Value {
    json!({ "left": LIVES - 1, "taken": [], "keys": [] })
}

/// Sends a signal, again if workerd was killed meanwhile.
async fn send(client: &Client, run: &str, item: u32) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let sent = client.signal(run, "item", &json!(item), Some(&format!("item-{item}"))).await;
        match sent {
            Ok(answer) if answer.status == 200 || answer.status == 202 => return Ok(()),
            outcome => anyhow::ensure!(began.elapsed() < Duration::from_secs(20), "{outcome:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a run is in this life, or beyond it.
async fn until_life(client: &Client, run: &str, life: u64) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let view = client.show(run, 0).await?.json()?;
        if view["life"]["number"].as_u64() >= Some(life) || view["status"] == "completed" {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "it is not in life {life}: {view}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn twenty_lives_survive_kills_and_lose_no_signal() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let run = client.start_id("lives", rounds()).await?;
        // More than a life takes: most of them pass through several.
        for (life, items) in [(2, 0..6), (6, 6..9), (10, 9..12)] {
            until_life(&client, &run, life).await?;
            for item in items {
                send(&client, &run, item).await?;
            }
            engine.engine.restart().await?;
        }
        let view = client.show(&run, 60).await?.json()?;
        assert_eq!(view["status"], "completed", "{}: {view}", form.name());
        assert_eq!(view["life"]["number"], LIVES, "{}: {view}", form.name());
        assert_eq!(view["output"]["taken"], json!((0..12).collect::<Vec<_>>()), "{}: {view}", form.name());
        let keys: BTreeSet<_> =
            view["output"]["keys"].as_array().into_iter().flatten().map(Value::to_string).collect();
        assert_eq!(keys.len() as u64, 3 * LIVES, "each step of each life has a key of its own");
        let history = client.get(&format!("/api/executions/{run}/history")).await?.json()?;
        assert_eq!((&history["life"]["number"], &history["input"]["left"]), (&json!(LIVES), &json!(0)));
    }
    Ok(())
}

#[tokio::test]
async fn what_earlier_lives_leave_behind_is_deleted() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let view = client.start("lives", &rounds(), None, 30).await?.json()?;
    assert_eq!(view["status"], "completed", "{view}");
    let run = view["id"].as_str().unwrap_or_default();
    println!("{LIVES} lives: {}", view["meter"]);
    let history = until_deleted(&client, run).await?;
    assert_eq!(history.len(), 5, "three steps, a sleep and a wait: {history:?}");
    Ok(())
}

/// Waits until nothing of earlier lives is left in a run's history.
async fn until_deleted(client: &Client, run: &str) -> anyhow::Result<Vec<Value>> {
    let began = Instant::now();
    loop {
        let history = client.history(run).await?;
        let old = history.iter().filter(|event| event["cut"] == true).count();
        if old == 0 {
            return Ok(history);
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(20), "{old} events are left: {history:?}");
        sleep(Duration::from_millis(100)).await;
    }
}
