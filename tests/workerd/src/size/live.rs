//! Many runs at once, each with a slow step.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    all_complete,
    endpoint::Endpoint,
    memory::{Baseline, Peak},
    one_run, seconds, start_many,
};
use crate::engine::{Engine, Form};

/// How long all of it may take once answers come.
const ENDED_WITHIN: Duration = Duration::from_secs(600);

/// What was seen.
#[derive(Debug)]
pub struct Report {
    runs: u32,
    /// Runs that were pending or running when the last one was accepted.
    pub live: u32,
    started_in: Duration,
    ended_in: Duration,
    memory: Peak,
}

/// Starts so many runs, of which each waits for a server: that answers none before all runs are there, and then each
/// after a second. Sees all of them end.
pub async fn run(runs: u32, cells: u32, window: u32) -> Result<Report> {
    let (cells, window) = (cells.to_string(), window.to_string());
    let variables = [("STEPWELL_CELLS", &*cells), ("STEPWELL_WINDOW", &*window)];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let client = engine.client();
    one_run(&client).await?;
    let idle = Baseline::of(&engine.engine)?;
    let endpoint = Endpoint::start(Duration::from_secs(1)).await?;
    let began = Instant::now();
    let ids = start_many(&client, "ask", &json!(endpoint.address), runs).await?;
    let started_in = began.elapsed();
    let counted = client.get("/api/metrics?workflow=ask").await?.json()?;
    let of = |status: &str| counted["statuses"][status].as_u64().unwrap_or_default();
    let live = u32::try_from(of("pending") + of("running"))?;
    ensure!(live == runs, "not all runs are live: {counted}");
    let opened = Instant::now();
    endpoint.open();
    while endpoint.answered() < runs {
        ensure!(
            opened.elapsed() < ENDED_WITHIN,
            "only {} of {runs} runs got their answer",
            endpoint.answered()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    all_complete(&client, &ids).await?;
    Ok(Report { runs, live, started_in, ended_in: opened.elapsed(), memory: idle.peak(&engine.engine)? })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs with a step of a second: all accepted in {}, {} of them live then, all completed {} later; {}",
            self.runs,
            seconds(self.started_in),
            self.live,
            seconds(self.ended_in),
            self.memory
        )
    }
}
