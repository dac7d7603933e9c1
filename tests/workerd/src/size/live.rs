//! Many runs at once, each with a slow step.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;

use super::{
    all_complete,
    endpoint::Endpoint,
    memory::{Baseline, Peak},
    one_run, seconds, start_many,
};
use crate::engine::{Engine, Form};

/// What was seen.
#[derive(Debug)]
pub struct Report {
    runs: u32,
    /// Runs that were accepted and had not ended, when the last one was accepted.
    pub live: u32,
    started_in: Duration,
    ended_in: Duration,
    memory: Peak,
}

/// Starts so many runs, of which each waits for a server for a second, and sees all of them end.
pub async fn run(runs: u32, cells: u32, window: u32) -> Result<Report> {
    let (cells, window) = (cells.to_string(), window.to_string());
    let variables = [("STEPWELL_CELLS", &*cells), ("STEPWELL_WINDOW", &*window)];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let client = engine.client();
    one_run(&client).await?;
    let idle = Baseline::of(&engine.engine)?;
    let endpoint = Endpoint::start(Some(Duration::from_secs(1))).await?;
    let began = Instant::now();
    let ids = start_many(&client, "ask", &json!(endpoint.address), runs).await?;
    let (started_in, live) = (began.elapsed(), runs - endpoint.answered());
    while endpoint.answered() < runs {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    all_complete(&client, &ids).await?;
    Ok(Report { runs, live, started_in, ended_in: began.elapsed(), memory: idle.peak(&engine.engine)? })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs with a step of one second: all accepted in {}, {} of them live then, all completed in {}; {}",
            self.runs,
            seconds(self.started_in),
            self.live,
            seconds(self.ended_in),
            self.memory
        )
    }
}
