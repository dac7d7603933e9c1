//! One row that cannot be read, among many that are due. It stopped every timer behind it, and every page of a list that
//! it was on.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Size, one_cell, seed, within};
use crate::following::now_ms;

/// When the seeded runs are due, from when they are seeded.
const DUE_IN_MS: u64 = 3_000;

/// How long after that all of them must have ended.
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// Seeds sleeping runs, breaks one, and wakes them all.
pub async fn run(size: Size) -> Result<String> {
    let runs = size.pick(1_000, 10_000);
    let mut engine = one_cell().await?;
    let client = engine.client();
    let template = client.start_id("nap", json!(24 * 60 * 60 * 1_000)).await?;
    client.until(&template, "sleeping").await?;
    let due = now_ms() + DUE_IN_MS;
    let wake_at = due.to_string();
    let state = format!("json_set(state, '$.open[0].until', {due})");
    let copies = seed::copies(1, runs, &[("state", &state), ("wake_at", &wake_at)]);
    // The first of them to be looked at. Its state is kept where a sleeping run has no result.
    let damage = "UPDATE runs SET result = state, state = '{damaged' WHERE number = 2;";
    seed::seed(&mut engine, &format!("{copies}{damage}")).await?;
    let began = Instant::now();
    let damaged = template.replace("default-1-0-1-", "default-1-0-2-");
    let completed = loop {
        let metrics = client.get("/api/metrics").await?.json()?;
        let completed = metrics["statuses"]["completed"].as_u64().unwrap_or_default();
        if completed == runs - 1 {
            break began.elapsed();
        }
        ensure!(began.elapsed() < DONE_WITHIN, "{completed} of {} have ended: {metrics}", runs - 1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    within("waking them", completed, DONE_WITHIN)?;
    let listed = client.list("", 100).await?;
    ensure!(listed.len() as u64 == runs + 1, "{} runs are listed", listed.len());
    let paused = client.list("status=paused", 100).await?;
    ensure!(paused.len() == 1 && paused[0]["problem"]["code"] == "run_unreadable", "{paused:?}");
    let shown = client.show(&damaged, 0).await?.json()?;
    ensure!(shown["problem"]["code"] == "run_unreadable", "{shown}");
    let why = client.get(&format!("/api/executions/{damaged}/why")).await?.json()?;
    ensure!(why["because"].as_str().is_some_and(|because| because.contains("Restore it")), "{why}");
    let resumed = client.resume(&damaged).await?;
    ensure!(resumed.problem()? == (409, "run_unreadable".into()), "{}", resumed.body);
    // A bulk passes over it.
    let bulk = json!({ "action": "cancel", "filter": { "workflow": "nap" } });
    let bulk = client.post_json("/api/bulk", &bulk).await?;
    let done = client.show(bulk["id"].as_str().unwrap_or_default(), 20).await?.json()?;
    ensure!(done["status"] == "completed" && done["output"]["changed"] == 1, "{done}");
    // Restored and resumed, it goes on where it was.
    seed::seed(&mut engine, "UPDATE runs SET state = result, result = NULL WHERE number = 2;").await?;
    ensure!(client.resume(&damaged).await?.status == 200, "it cannot be resumed");
    let ended = client.show(&damaged, 20).await?.json()?;
    ensure!(ended["output"] == "awake", "{ended}");
    Ok(format!(
        "{} of {runs} due runs woke within {} ms; the damaged one is listed with its code, and goes on once it is \
         restored",
        runs - 1,
        completed.as_millis()
    ))
}
