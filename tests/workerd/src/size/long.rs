//! One run with very many steps, whose results have 1,000 bytes each.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    memory::{Baseline, Peak},
    one_run, seconds,
};
use crate::engine::{Client, Engine, Form};

/// How large a step's result is.
const BYTES: usize = 1_000;

/// What the heap of the isolate may take. The platform gives an isolate 128 MiB with all that is outside of its heap;
/// V8 lets garbage lie until it comes near its bound, so a wide one shows the bound, and not what the run needs.
pub const HEAP_MIB: u32 = 16;

/// How soon after a kill the next step is on record.
const GOES_ON_WITHIN: Duration = Duration::from_secs(10);

/// How long the run may take for each thousand of its steps, on a slow machine.
const THOUSAND_WITHIN: Duration = Duration::from_secs(20);

/// What was seen.
#[derive(Debug)]
pub struct Report {
    steps: u32,
    took: Duration,
    activations: u64,
    /// The longest that somebody waited who asked about it meanwhile.
    slowest_answer: Duration,
    /// From when workerd was up again to the next step on record.
    went_on_in: Option<Duration>,
    memory: Vec<Peak>,
}

/// Runs it, with this budget for each activation if one is given; kills workerd half way, if asked to.
pub async fn run(form: Form, steps: u32, commits: Option<u32>, heap_mib: u32, kills: bool) -> Result<Report> {
    let commits = commits.map(|commits| commits.to_string());
    let mut variables = vec![("STEPWELL_CELLS", "1")];
    variables.extend(commits.as_deref().map(|commits| ("STEPWELL_COMMITS", commits)));
    let mut engine = Engine::start_bounded(form, &variables, Some(heap_mib)).await?;
    let client = engine.client();
    one_run(&client).await?;
    let idle = Baseline::of(&engine.engine)?;
    let (began, mut memory, mut went_on_in) = (Instant::now(), Vec::new(), None);
    let id = client.start_id("many", json!([steps, BYTES])).await?;
    let mut slowest_answer = began.elapsed();
    if kills {
        until(&client, &id, steps, &mut slowest_answer, |run| head(run) >= u64::from(steps / 2)).await?;
        memory.push(idle.peak(&engine.engine)?);
        engine.engine.restart().await?;
        let up = Instant::now();
        // What is on record by now may be from before the kill.
        let at_first = head(&client.show(&id, 0).await?.json()?);
        until(&client, &id, steps, &mut slowest_answer, |run| head(run) > at_first).await?;
        let took = up.elapsed();
        ensure!(took < GOES_ON_WITHIN, "the next step was on record only after {took:?}");
        went_on_in = Some(took);
    }
    let run = until(&client, &id, steps, &mut slowest_answer, |run| run["status"] == "completed").await?;
    ensure!(run["output"] == json!(steps as usize * BYTES), "{run}");
    let took = began.elapsed();
    for workerd in [Some(&engine.engine), engine.app.as_ref()].into_iter().flatten() {
        memory.push(idle.peak(workerd)?);
    }
    let activations = run["activations"].as_u64().context("a run has activations")?;
    Ok(Report { steps, took, activations, slowest_answer, went_on_in, memory })
}

/// Waits until a run is as it should be.
async fn until(
    client: &Client,
    id: &str,
    steps: u32,
    slowest: &mut Duration,
    is_right: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let (began, within) = (Instant::now(), THOUSAND_WITHIN * steps.div_ceil(1_000));
    loop {
        let asked = Instant::now();
        let run = client.show(id, 0).await?.json()?;
        *slowest = asked.elapsed().max(*slowest);
        if is_right(&run) {
            return Ok(run);
        }
        ensure!(run["status"] != "failed" && run["status"] != "paused", "{run}");
        ensure!(began.elapsed() < within, "it takes too long: {run}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn head(run: &Value) -> u64 {
    run["head"].as_u64().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.took.as_micros() / u128::from(self.steps.max(1));
        write!(
            f,
            "{} steps in {}: {each} µs each, {} activations",
            self.steps,
            seconds(self.took),
            self.activations
        )?;
        write!(f, "; slowest answer meanwhile {}", seconds(self.slowest_answer))?;
        if let Some(took) = self.went_on_in {
            write!(f, "; went on {} after a kill", seconds(took))?;
        }
        self.memory.iter().try_for_each(|peak| write!(f, "; {peak}"))
    }
}
