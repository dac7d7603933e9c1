//! Many runs that are due at once in one cell, as after a long outage: what memory they take, and how soon they are
//! called. With all of them in memory and a scan for each, the cell grew with its backlog and slowed down with its square.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Size, bounded_cell, seed, within};
use crate::engine::{Client, Engine};

/// How much more memory workerd may take than with an empty cell, in MiB.
const GROWTH_MIB_MAX: u64 = 160;

/// How long a run of another workflow may take beside the backlog.
const OTHER_WITHIN: Duration = Duration::from_secs(5);

/// An engine with so many due runs of `echo` in its one cell.
async fn with_due_runs(runs: u64) -> Result<(Engine, Client)> {
    let mut engine = bounded_cell().await?;
    let client = engine.client();
    let template = client.start_id("echo", json!(1)).await?;
    client.until(&template, "completed").await?;
    let pending =
        r#"json_set(json_remove(state, '$.mark'), '$.phase', json('{"pending":{"not_before":1}}'))"#;
    let changes = [
        ("status", "'pending'"),
        ("ended_at", "NULL"),
        ("result", "NULL"),
        ("wake_at", "1"),
        ("state", pending),
    ];
    seed::seed(&mut engine, &seed::copies(1, runs, &changes)).await?;
    Ok((engine, client))
}

fn counted(metrics: &Value, status: &str) -> u64 {
    metrics["statuses"][status].as_u64().unwrap_or_default()
}

/// Waits until so many runs have completed, and gives how long that took.
async fn until_completed(client: &Client, runs: u64, limit: Duration) -> Result<Duration> {
    let began = Instant::now();
    loop {
        let metrics = client.get("/api/metrics").await?.json()?;
        let completed = counted(&metrics, "completed");
        if completed >= runs {
            return Ok(began.elapsed());
        }
        ensure!(
            began.elapsed() < limit,
            "{completed} of {runs} runs have completed after {limit:?}: {metrics}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What memory a backlog takes.
pub async fn memory(size: Size) -> Result<String> {
    let runs = size.pick(5_000, 200_000);
    let idle = bounded_cell().await?;
    one_run(&idle.client()).await?;
    let idle_kib = idle.engine.memory()?.0;
    let (engine, client) = with_due_runs(runs).await?;
    let asked = Instant::now();
    one_run(&client).await?;
    let other = asked.elapsed();
    // Half of it, or for some time: the peak comes early.
    let limit = Duration::from_secs(size.pick(15, 60));
    let began = Instant::now();
    while began.elapsed() < limit {
        let metrics = client.get("/api/metrics").await?.json()?;
        if counted(&metrics, "completed") > runs / 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let peak_kib = engine.engine.memory()?.1;
    let growth_mib = peak_kib.saturating_sub(idle_kib) / 1_024;
    ensure!(growth_mib <= GROWTH_MIB_MAX, "{growth_mib} MiB above idle; the limit is {GROWTH_MIB_MAX} MiB");
    within("a run of another workflow", other, OTHER_WITHIN)?;
    Ok(format!(
        "{runs} due runs: workerd takes {} MiB at the most, {growth_mib} MiB above idle; a run of another workflow took \
         {} ms",
        peak_kib / 1_024,
        other.as_millis()
    ))
}

/// How soon a backlog is called.
pub async fn dispatch(size: Size) -> Result<String> {
    let runs = size.pick(1_000, 50_000);
    let (_engine, client) = with_due_runs(runs).await?;
    let took = until_completed(&client, runs + 1, Duration::from_secs(size.pick(60, 600))).await?;
    let rate = u128::from(runs) * 1_000 / took.as_millis().max(1);
    Ok(format!("{runs} due runs have completed after {} ms, {rate} a second", took.as_millis()))
}

async fn one_run(client: &Client) -> Result<()> {
    let run = client.start("ten", &json!(null), None, 10).await?.json()?;
    ensure!(run["status"].as_str().context("a run has a status")? == "completed", "{run}");
    Ok(())
}
