//! A cell with many runs asleep: whoever wakes it does not read them all.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{
    memory::{Baseline, Peak},
    one_run, rows_read, seconds, start_many,
};
use crate::engine::{Client, Engine, Form};

/// The most rows that may be read for a page of 50 runs and one run of ten steps.
const ROWS_READ_MAX: u64 = 2_000;

/// How long all of them may take to fall asleep.
const ASLEEP_WITHIN: Duration = Duration::from_secs(300);

/// What was seen.
#[derive(Debug)]
pub struct Report {
    runs: u32,
    asleep_in: Duration,
    listed_in: Duration,
    ran_in: Duration,
    rows_read: u64,
    memory: Peak,
}

/// Puts so many runs to sleep in one cell, kills workerd, and asks it for something.
pub async fn run(runs: u32) -> Result<Report> {
    let mut engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    let began = Instant::now();
    start_many(&client, "nap", &json!(24 * 60 * 60 * 1_000), runs).await?;
    while !all_sleep(&client).await? {
        ensure!(began.elapsed() < ASLEEP_WITHIN, "they are not asleep after {ASLEEP_WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asleep_in = began.elapsed();
    engine.engine.restart().await?;
    let client = engine.client();
    let idle = Baseline::of(&engine.engine)?;
    let began = Instant::now();
    let list = client.get("/api/executions?limit=50").await?.json()?;
    let listed_in = began.elapsed();
    ensure!(list["executions"].as_array().is_some_and(|page| page.len() == 50), "{list}");
    let began = Instant::now();
    let rows_read = rows_read(&one_run(&client).await?)?;
    let report = Report {
        runs,
        asleep_in,
        listed_in,
        ran_in: began.elapsed(),
        rows_read,
        memory: idle.peak(&engine.engine)?,
    };
    ensure!(rows_read < ROWS_READ_MAX, "it read {rows_read} rows: {report}");
    Ok(report)
}

/// Whether nobody is on their way.
async fn all_sleep(client: &Client) -> Result<bool> {
    for status in ["pending", "running"] {
        let mut path = format!("/api/executions?limit=1&status={status}");
        loop {
            let list = client.get(&path).await?.json()?;
            if !list["executions"].as_array().context("a list has runs")?.is_empty() {
                return Ok(false);
            }
            match list["cursor"].as_str() {
                Some(next) => path = format!("/api/executions?limit=1&status={status}&cursor={next}"),
                None => break,
            }
        }
    }
    Ok(true)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs asleep in one cell after {}; after a restart, a page of 50 in {} and a run of ten steps in {}, with \
             {} rows read; {}",
            self.runs,
            seconds(self.asleep_in),
            seconds(self.listed_in),
            seconds(self.ran_in),
            self.rows_read,
            self.memory
        )
    }
}
