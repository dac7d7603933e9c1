//! Cancelling many runs at once, with a kill half way.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{seconds, start_many};
use crate::engine::{Client, Engine, Form};

/// How long the cancelling may take.
const DONE_WITHIN: Duration = Duration::from_secs(120);

/// What was seen.
#[derive(Debug)]
pub struct Report {
    runs: u32,
    /// What its progress was when workerd was killed.
    killed_at_percent: f64,
    /// The percents that were seen, in order.
    percents: Vec<f64>,
    took: Duration,
    output: Value,
}

/// Starts so many runs and as many of another workflow beside them as are a tenth of that, cancels the first by a
/// filter, and kills workerd on the way.
pub async fn run(form: Form, runs: u32, cells: u32) -> Result<Report> {
    let mut engine = Engine::start(form, cells).await?;
    let client = engine.client();
    start_many(&client, "nap", &json!(24 * 60 * 60 * 1_000), runs).await?;
    let others = start_many(&client, "wait", &json!(24 * 60 * 60 * 1_000), runs.div_ceil(10)).await?;
    let began = Instant::now();
    let body = json!({"action": "cancel", "filter": {"workflow": "nap"}});
    let bulk = client.post_json("/api/bulk", &body).await?;
    let id = bulk["id"].as_str().context("a run has an id")?.to_owned();
    let (mut percents, mut killed_at_percent) = (Vec::new(), None);
    let output = loop {
        ensure!(began.elapsed() < DONE_WITHIN, "it is not done after {DONE_WITHIN:?}");
        let view = client.show(&id, 0).await?.json()?;
        if let Some(percent) = view["progress"]["percent"].as_f64() {
            if percents.last() != Some(&percent) {
                percents.push(percent);
            }
            if killed_at_percent.is_none() && percent >= 30.0 {
                killed_at_percent = Some(percent);
                engine.engine.restart().await?;
            }
        }
        match view["status"].as_str() {
            Some("completed") => break view["output"].clone(),
            Some("failed" | "paused" | "cancelled") => anyhow::bail!("{view}"),
            Some(_) | None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let report = Report {
        runs,
        killed_at_percent: killed_at_percent.context("it was done before it could be killed")?,
        percents,
        took: began.elapsed(),
        output,
    };
    check(&client, &report, &others).await?;
    Ok(report)
}

/// All of them are cancelled, and nobody else is.
async fn check(client: &Client, report: &Report, others: &[String]) -> Result<()> {
    ensure!(report.killed_at_percent < 100.0, "it was killed when all was done: {report}");
    ensure!(report.percents.is_sorted(), "its progress went back: {report}");
    let counts = client.get("/api/metrics").await?.json()?;
    ensure!(counts["workflows"]["nap"] == json!({"cancelled": report.runs}), "{counts}");
    ensure!(counts["workflows"]["wait"].get("cancelled").is_none(), "{counts}");
    ensure!(counts["workflows"]["stepwell.bulk"] == json!({"completed": 1}), "{counts}");
    // A slice whose result was not recorded when workerd was killed is done twice, and then finds nothing to do.
    let count = |name: &str| report.output[name].as_u64().context("a report has counts");
    ensure!(count("changed")? + count("unchanged")? == u64::from(report.runs), "{report}");
    // Whoever was killed with the bulk may still be on the way back.
    client.until(&others[0], "waiting").await?;
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs cancelled by a filter in {}, killed at {:.0} %; {} steps of progress were seen; it says {}",
            self.runs,
            seconds(self.took),
            self.killed_at_percent,
            self.percents.len(),
            self.output
        )
    }
}
