//! The sweep over many namespaces: each invocation makes a bounded number of calls, and a lost alarm in the last cell of
//! the last namespace is found all the same.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::time::sleep;

use super::{Size, within};
use crate::{
    engine::{Engine, Form},
    sqlite::lose_alarms,
};

/// The cells of each namespace.
const CELLS: usize = 4;

/// How long one invocation may take.
const STRIKE_WITHIN: Duration = Duration::from_secs(60);

/// How long the run sleeps whose alarm is lost.
const NAP_MS: u64 = 3_000;

/// Makes namespaces, loses all alarms, and lets the clock strike until the last one is found.
pub async fn run(size: Size) -> Result<String> {
    // On the free plan an invocation makes so few calls that a small deployment has several parts too.
    let (namespaces, profile, calls) = size.pick((30, "free", 40), (500, "paid", 1_000));
    let variables = [("STEPWELL_CELLS", "4"), ("STEPWELL_PROFILE", profile)];
    let mut engine = Engine::start_with_clock_and(Form::AllInOne, &variables).await?;
    let client = engine.client();
    let mut last = None;
    for n in 0..namespaces {
        let made = client.post_json("/api/namespaces", &json!({ "name": format!("n{n:03}") })).await?;
        last = Some(made["admin"]["key"].as_str().context("a namespace has a key")?.to_owned());
    }
    let admin = client.with_key(&last.context("there is a namespace")?);
    let mut naps = Vec::new();
    for _ in 0..2 * CELLS {
        naps.push(admin.start_id("nap", json!(NAP_MS)).await?);
    }
    for nap in &naps {
        admin.until(nap, "sleeping").await?;
    }
    engine.engine.kill();
    lose_alarms(&engine.engine)?;
    engine.engine.restart().await?;
    sleep(Duration::from_millis(NAP_MS)).await;
    let objects = (namespaces + 1) * (CELLS + 1);
    let (mut strikes, mut slowest) = (0, Duration::ZERO);
    for _ in 0..objects.div_ceil(calls) {
        let began = Instant::now();
        engine.strike().await?;
        slowest = slowest.max(began.elapsed());
        strikes += 1;
    }
    within("one sweep", slowest, STRIKE_WITHIN)?;
    // To ask for a run would wake its cell: time is all that it gets.
    sleep(Duration::from_secs(2)).await;
    for nap in &naps {
        let run = admin.show(nap, 0).await?.json()?;
        ensure!(run["status"] == "completed", "the sweep has not found it: {run}");
    }
    Ok(format!(
        "{namespaces} namespaces of {CELLS} cells, {objects} objects: all visited in {strikes} sweeps of at most {calls} \
         calls, the slowest in {} ms",
        slowest.as_millis()
    ))
}
