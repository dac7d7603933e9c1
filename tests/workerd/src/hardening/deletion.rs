//! Retention deletes a bounded number of rows in each alarm, and requests come in between. With a count of rows that
//! only the meter fills, one alarm deleted every run that it had found.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Size, one_cell, seed, within};

/// The events of each run.
const EVENTS: u64 = 60;

/// How many different totals somebody must see who keeps asking. A cell that deletes all that one alarm finds, 256
/// runs, shows three of them for 400 runs.
const TOTALS_MIN: usize = 10;

/// How long an answer may take meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long all of it may take.
const GONE_WITHIN: Duration = Duration::from_secs(120);

/// Seeds expired runs and watches them go.
pub async fn run(size: Size) -> Result<String> {
    let runs = size.pick(400, 10_000);
    let mut engine = one_cell().await?;
    let client = engine.client();
    let template = client.start_id("many", json!([EVENTS, 10])).await?;
    client.until(&template, "completed").await?;
    // Over for as long as there is a clock.
    let state = ("state", "json_set(state, '$.retention_ms', 0)");
    seed::seed(&mut engine, &seed::copies(1, runs, &[state, ("wake_at", "i")])).await?;
    let began = Instant::now();
    let (mut totals, mut before, mut largest) = (BTreeSet::new(), None::<u64>, 0);
    let mut slowest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let metrics = client.get("/api/metrics").await?.json()?;
        slowest = slowest.max(asked.elapsed());
        let total = metrics["total"].as_u64().context("metrics have a total")?;
        largest = largest.max(before.map_or(0, |before| before.saturating_sub(total)));
        before = Some(total);
        totals.insert(total);
        if total == 1 {
            break;
        }
        ensure!(began.elapsed() < GONE_WITHIN, "{total} runs are left after {GONE_WITHIN:?}");
    }
    let figure = format!(
        "{runs} runs of {EVENTS} events gone in {} ms; {} totals seen, at most {largest} runs between two; the slowest \
         answer meanwhile {} ms",
        began.elapsed().as_millis(),
        totals.len(),
        slowest.as_millis()
    );
    ensure!(totals.len() >= TOTALS_MIN, "too much is deleted at once: {figure}");
    within("an answer during the deletion", slowest, ANSWER_WITHIN)?;
    Ok(figure)
}
