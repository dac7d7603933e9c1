//! Workflows that hang for every place of the window, and a healthy one beside them. Without a second window for slow
//! calls, four of them held every place, and the healthy one waited for ever.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Size, one_cell, within};
use crate::size::endpoint::Endpoint;

/// The places of a window, and so the workflows that hang.
const WORKFLOWS: u32 = 12;

/// How many runs of each hang.
const RUNS_OF_EACH: u32 = 12;

/// How long the first healthy run may wait: until the calls that hang have moved to the slow window, twice.
const FIRST_WITHIN: Duration = Duration::from_secs(66);

/// How long 99 of 100 healthy runs may take after that.
const P99_WITHIN: Duration = Duration::from_secs(2);

/// Fills the cell, and starts healthy runs one after the other.
pub async fn run(size: Size) -> Result<String> {
    let (settled, lasts) = (Duration::from_secs(size.pick(65, 65)), Duration::from_secs(size.pick(75, 400)));
    let engine = one_cell().await?;
    let client = engine.client();
    // It is never allowed to answer.
    let endpoint = Endpoint::start(Duration::ZERO).await?;
    for _ in 0..RUNS_OF_EACH {
        for n in 1..=WORKFLOWS {
            let started = client.start(&format!("hang_{n}"), &json!(endpoint.address), None, 0).await?;
            ensure!(started.status == 201, "{} {}", started.status, started.body);
        }
    }
    let began = Instant::now();
    let (mut first, mut later) = (Duration::ZERO, Vec::new());
    while began.elapsed() < lasts {
        let asked = Instant::now();
        let run = client.start_id("ten", json!(null)).await?;
        while client.show(&run, 10).await?.json()?["status"] != "completed" {
            ensure!(asked.elapsed() < FIRST_WITHIN, "a healthy run waits for {FIRST_WITHIN:?}");
        }
        let took = asked.elapsed();
        if began.elapsed() > settled && asked.duration_since(began) > settled {
            later.push(took);
        } else {
            first = first.max(took);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    later.sort_unstable();
    let p99 = *later.get(later.len() * 99 / 100).context("healthy runs were started")?;
    within("99 of 100 healthy runs", p99, P99_WITHIN)?;
    Ok(format!(
        "{WORKFLOWS} workflows hang with {} calls; a healthy run waited {} ms at the most at first; then {} of them, \
         p99 {} ms",
        endpoint.asked(),
        first.as_millis(),
        later.len(),
        p99.as_millis()
    ))
}
