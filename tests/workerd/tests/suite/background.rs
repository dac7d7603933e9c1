//! Whether work that an object starts and does not wait for goes on, and for how long.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use stepwell_workerd_tests::{Listener, Object, TestResult, Workerd, probe_with_app};
use tokio::time::{sleep, timeout};

async fn outcome(object: &Object) -> Result<Option<Value>> {
    let rows = object.rows("SELECT outcome FROM outcomes").await?;
    Ok(match rows.first() {
        Some(row) => Some(serde_json::from_str(row[0].as_str().unwrap_or_default())?),
        None => None,
    })
}

fn order(commits: u32, delay_ms: u64) -> String {
    json!({ "commits": commits, "delay_ms": delay_ms }).to_string()
}

#[tokio::test]
async fn an_activation_spawned_in_a_request_outlives_it() -> TestResult {
    let workerd = Workerd::start(&probe_with_app()?).await?;
    let object = Object::new(&workerd, "a");
    let asked = Instant::now();
    object.ask("spawn", &order(3, 300)).await?;
    assert!(asked.elapsed() < Duration::from_millis(300), "the request did not wait");
    sleep(Duration::from_millis(1500)).await;
    let outcome = outcome(&object).await?.unwrap_or_default();
    assert_eq!(outcome["ok"], "committed 3", "{outcome}");
    Ok(())
}

#[tokio::test]
async fn an_activation_spawned_in_an_alarm_outlives_it() -> TestResult {
    let workerd = Workerd::start(&probe_with_app()?).await?;
    let object = Object::new(&workerd, "a");
    let order = order(3, 300);
    object.rows(&format!("INSERT INTO settings VALUES('order', '{order}')")).await?;
    object.rows("UPDATE settings SET value = 'spawn' WHERE key = 'on_alarm'").await?;
    object.ask("arm?in_ms=0", "").await?;
    sleep(Duration::from_secs(2)).await;
    let rows = object.rows("SELECT ended - began FROM fired").await?;
    assert!(rows[0][0].as_i64() < Some(300), "the alarm did not wait: {rows:?}");
    let outcome = outcome(&object).await?.unwrap_or_default();
    assert_eq!(outcome["ok"], "committed 3", "{outcome}");
    Ok(())
}

#[tokio::test]
async fn an_activation_outlives_the_caller_who_hangs_up() -> TestResult {
    let workerd = Workerd::start(&probe_with_app()?).await?;
    let object = Object::new(&workerd, "a");
    let mut reports = Listener::start().await?;
    let activation = {
        let (object, url) = (object.clone(), reports.url().to_owned());
        tokio::spawn(async move { object.activate("APP", 3, 200, Some(&url)).await })
    };
    let first = reports.next().await;
    activation.abort();
    sleep(Duration::from_millis(300)).await;
    first.answer();
    // Two more reports come, although nobody waits for the answer any more.
    for number in ["2", "3"] {
        let call = timeout(Duration::from_secs(3), reports.next()).await?;
        assert_eq!(call.query["acknowledged"], number);
        call.answer();
    }
    assert_eq!(object.rows("SELECT text FROM numbers").await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn an_idle_object_loses_its_memory_and_a_pending_activation_keeps_it() -> TestResult {
    let workerd = Workerd::start(&probe_with_app()?).await?;
    let (idle, busy) = (Object::new(&workerd, "idle"), Object::new(&workerd, "busy"));
    for object in [&idle, &busy] {
        assert_eq!(object.ask("raise-epoch", "").await?, 1);
    }
    busy.ask("spawn", &order(1, 13_000)).await?;
    sleep(Duration::from_millis(14_500)).await;
    assert_eq!(idle.ask("raise-epoch", "").await?, 1, "the epoch began anew");
    assert_eq!(busy.ask("raise-epoch", "").await?, 2, "the epoch went on");
    let outcome = outcome(&busy).await?.unwrap_or_default();
    assert_eq!(outcome["ok"], "committed 1", "{outcome}");
    Ok(())
}
