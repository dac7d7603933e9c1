//! How long after its commit a step is shown.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use super::{PATIENCE, Plan, path, percentile, records};
use crate::{
    engine::{Engine, Form},
    following::{Follower, Seen, Way, now_ms},
};

/// Steps of each run, and the pause before each of them. Long enough for all runs to be live at once, even if it
/// takes a while to start them.
const STEPS: u32 = 20;
const PAUSE_MS: u64 = 1_000;

/// How many are started at the same time.
const STARTS_AT_ONCE: usize = 16;

/// How soon a step has to be shown, for 99 of 100.
const SOON_MS: u64 = 1_000;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Latency {
    runs: u32,
    live: usize,
    streams: u32,
    steps: usize,
    p50_ms: u64,
    p99_ms: u64,
    worst_ms: u64,
    statuses: usize,
}

/// Starts runs, follows some of them, and looks at the clock.
pub async fn soon(plan: &Plan) -> Result<Latency> {
    let engine = Engine::start(Form::AllInOne, plan.cells).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let mut all = Follower::open(&http, "/api/stream", Way::Events, None).await?;
    let start = |_| client.start_id("paced", json!([STEPS, PAUSE_MS]));
    let runs: Vec<_> =
        stream::iter(0..plan.runs).map(start).buffer_unordered(STARTS_AT_ONCE).try_collect().await?;
    let mut followers = JoinSet::new();
    for number in 0..plan.streams as usize {
        let (http, run, way) = (http.clone(), runs[number % runs.len()].clone(), Way::ALL[number % 2]);
        followers.spawn(async move {
            let mut follower = Follower::open(&http, &path(&run), way, None).await?;
            let opened_at = now_ms();
            let events = timeout(PATIENCE, follower.rest()).await.context("the run never ended")??;
            anyhow::Ok((run, opened_at, events))
        });
    }
    let mut late_by = Vec::new();
    while let Some(followed) = followers.join_next().await {
        let (run, opened_at, events) = followed??;
        ensure!(records(&events) == client.history(&run).await?, "the stream of {run} is not its history");
        // What happened before it was opened is history.
        let is_live = |event: &&Seen| event.kind == "step" && event.at > opened_at;
        late_by.extend(events.iter().filter(is_live).map(|event| event.came_at.saturating_sub(event.at)));
    }
    let (mut ended, mut statuses) = (0, 0);
    while ended < runs.len() {
        let event = all.next().await?.context("the stream of all runs goes on")?;
        statuses += usize::from(event.kind == "status");
        ended += usize::from(event.data["status"] == "completed");
    }
    let mut lives = Vec::new();
    for run in &runs {
        let view = client.show(run, 0).await?.json()?;
        lives.push((
            view["created_at"].as_u64().unwrap_or_default(),
            view["ended_at"].as_u64().unwrap_or_default(),
        ));
    }
    let live_at = |at: u64| lives.iter().filter(|(created, ended)| *created <= at && at < *ended).count();
    let live = lives.iter().map(|(created, _)| live_at(*created)).max().unwrap_or_default();
    late_by.sort_unstable();
    let latency = Latency {
        runs: plan.runs,
        live,
        streams: plan.streams,
        steps: late_by.len(),
        p50_ms: percentile(&late_by, 50),
        p99_ms: percentile(&late_by, 99),
        worst_ms: late_by.last().copied().unwrap_or_default(),
        statuses,
    };
    ensure!(live >= plan.runs as usize, "only {live} runs were live at once");
    ensure!(latency.p99_ms < SOON_MS, "{latency}");
    Ok(latency)
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} runs live at once, {} streams: {} steps shown live, p50 {} ms, p99 {} ms, at most {} ms after \
             their commit; {} statuses in the stream of all runs",
            self.live,
            self.runs,
            self.streams,
            self.steps,
            self.p50_ms,
            self.p99_ms,
            self.worst_ms,
            self.statuses
        )
    }
}
