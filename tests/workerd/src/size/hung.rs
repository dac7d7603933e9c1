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

/// How soon a run of another workflow is over, if there is a place for it.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The same when every place hangs: calls move to the slow window after 30 seconds, those of the other workflows that
/// hang after 30 more.
const ENDS_WITHIN_FULL: Duration = Duration::from_secs(66);

/// With this many workflows that hang, every place does: they hold 6, 3, 2 and 1 of them.
const WORKFLOWS_FULL: u32 = 4;

/// What was seen.
#[derive(Debug)]
pub struct Report {
    /// The workflows that hang, the calls that they hold, and how long a run of another workflow took.
    cases: Vec<(u32, u32, Duration)>,
}

/// Fills a cell with runs that hang, of one workflow up to as many as there are places, and runs another one in it.
pub async fn run() -> Result<Report> {
    let mut cases = Vec::new();
    for workflows in [1, 2, 3, WINDOW] {
        let window = WINDOW.to_string();
        let variables = [("STEPWELL_CELLS", "1"), ("STEPWELL_WINDOW", &*window)];
        let engine = Engine::start_with(Form::AllInOne, &variables).await?;
        let client = engine.client();
        one_run(&client).await?;
        // It is never allowed to answer.
        let endpoint = Endpoint::start(Duration::ZERO).await?;
        for workflow in 1..=workflows {
            let asked = endpoint.asked();
            start_many(&client, &format!("hang_{workflow}"), &json!(endpoint.address), WINDOW).await?;
            let began = Instant::now();
            // As many as may, hang: the first of them at once, the others later or never.
            while workflow <= WORKFLOWS_FULL && endpoint.asked() == asked {
                ensure!(began.elapsed() < ENDS_WITHIN, "no run of hang_{workflow} has begun");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let began = Instant::now();
        let limit = if workflows < WORKFLOWS_FULL { ENDS_WITHIN } else { ENDS_WITHIN_FULL };
        let run = client.start_id("ten", json!(null)).await?;
        while client.show(&run, 5).await?.json()?["status"] != "completed" {
            ensure!(began.elapsed() < limit, "beside {workflows} workflows that hang it took {limit:?}");
        }
        cases.push((workflows, endpoint.asked(), began.elapsed()));
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
