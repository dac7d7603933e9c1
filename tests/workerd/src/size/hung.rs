//! Endpoints that never answer, and another workflow in the same cell.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{endpoint::Endpoint, one_run, seconds, start_many};
use crate::engine::{Engine, Form};

/// How many places the window has.
const WINDOW: u32 = 12;

/// How soon a run of another workflow is over.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// What was seen.
#[derive(Debug)]
pub struct Report {
    /// The workflows that hang, the calls that they hold, and how long a run of another workflow took.
    cases: Vec<(usize, u32, Duration)>,
}

/// Fills a cell with runs that hang, of one to three workflows, and runs another one in it.
pub async fn run() -> Result<Report> {
    let mut cases = Vec::new();
    for workflows in [&["ask"][..], &["ask", "ask_too"], &["ask", "ask_too", "ask_again"]] {
        let window = WINDOW.to_string();
        let variables = [("STEPWELL_CELLS", "1"), ("STEPWELL_WINDOW", &*window)];
        let engine = Engine::start_with(Form::AllInOne, &variables).await?;
        let client = engine.client();
        one_run(&client).await?;
        // It is never allowed to answer.
        let endpoint = Endpoint::start(Duration::ZERO).await?;
        for workflow in workflows {
            let asked = endpoint.asked();
            start_many(&client, workflow, &json!(endpoint.address), WINDOW).await?;
            let began = Instant::now();
            // As many as may, hang: the first of them at once, the others never.
            while endpoint.asked() == asked {
                ensure!(began.elapsed() < ENDS_WITHIN, "no run of {workflow} has begun");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let began = Instant::now();
        one_run(&client).await?;
        let took = began.elapsed();
        ensure!(took < ENDS_WITHIN, "beside {} workflows that hang it took {took:?}", workflows.len());
        cases.push((workflows.len(), endpoint.asked(), took));
    }
    Ok(Report { cases })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (workflows, calls, took) in &self.cases {
            writeln!(
                f,
                "{workflows} workflows hang with {calls} calls of {WINDOW}: a run of another one took {}",
                seconds(*took)
            )?;
        }
        Ok(())
    }
}
