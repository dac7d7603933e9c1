//! Very many runs that wait in one lane, each with a key of its own, while ten are at work.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    CLIENTS,
    memory::{Baseline, Peak},
    seconds,
};
use crate::{
    engine::{Client, Engine, Form},
    lanes::Observer,
};

/// How long each step is at work while all of them are to end.
const WORK: Duration = Duration::from_millis(5);

/// How many are at work at once, by the workflow's limit.
const AT_ONCE: u32 = 10;

/// How long the lane may take to hear of all.
const IN_LINE_WITHIN: Duration = Duration::from_secs(120);

/// How long one run may take on its way through the lane, on average, while all of them want to.
const EACH_MAX: Duration = Duration::from_millis(40);

/// What was seen.
#[derive(Debug)]
pub struct Report {
    runs: u32,
    started_in: Duration,
    in_line_after: Duration,
    first_page: Duration,
    ended_in: Option<Duration>,
    most: u32,
    memory: Peak,
}

/// Starts so many runs that all want into one lane, kills workerd, and lets them end unless they are to stay.
pub async fn run(runs: u32, stay: bool) -> Result<Report> {
    let observer = Observer::start(if stay { Duration::from_secs(3_600) } else { WORK }).await?;
    let mut engine = Engine::start(Form::AllInOne, 16).await?;
    let client = engine.client();
    // They all wait.
    set_limit(&client, 0).await?;
    let began = Instant::now();
    start(&client, &observer, runs).await?;
    let started_in = began.elapsed();
    let line = in_line(&client, runs).await?;
    let in_line_after = began.elapsed();
    ensure!(line == runs, "{line} of {runs} runs are in line after {in_line_after:?}");
    engine.engine.restart().await?;
    let client = engine.client();
    let idle = Baseline::of(&engine.engine)?;
    let began = Instant::now();
    client.get("/api/workflows/limited/lane?limit=100").await?.json()?;
    let first_page = began.elapsed();
    let began = Instant::now();
    set_limit(&client, AT_ONCE).await?;
    let ended_in = if stay {
        until(|| observer.seen().most >= AT_ONCE, Duration::from_secs(60)).await?;
        None
    } else {
        let within = EACH_MAX * runs + Duration::from_secs(30);
        until_completed(&client, runs, within).await?;
        Some(began.elapsed())
    };
    let most = observer.seen().most;
    let memory = idle.peak(&engine.engine)?;
    let report = Report { runs, started_in, in_line_after, first_page, ended_in, most, memory };
    ensure!(most <= AT_ONCE, "more were at work than may be: {report}");
    Ok(report)
}

async fn set_limit(client: &Client, max: u32) -> Result<()> {
    let body = json!({ "max": max }).to_string();
    let answer = client.request("PUT", "/api/workflows/limited/lane/limit", &body).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    Ok(())
}

async fn start(client: &Client, observer: &Observer, runs: u32) -> Result<()> {
    let mut clients = JoinSet::new();
    for first in 0..CLIENTS {
        let (client, url) = (client.clone(), observer.url("step"));
        clients.spawn(async move {
            for number in (first..runs).step_by(CLIENTS as usize) {
                let input = json!({ "customer": format!("c{number}"), "address": url, "steps": 1 });
                client.start_id("limited", input).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

/// How many the lane knows, once there are no more, or after a while.
async fn in_line(client: &Client, runs: u32) -> Result<u32> {
    let began = Instant::now();
    loop {
        let (mut known, mut path) = (0, "/api/workflows/limited/lane?limit=100".to_owned());
        loop {
            let page = client.get(&path).await?.json()?;
            known += u32::try_from(page["runs"].as_array().map_or(0, Vec::len))?;
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/api/workflows/limited/lane?limit=100&cursor={next}");
        }
        if known >= runs || began.elapsed() > IN_LINE_WITHIN {
            return Ok(known);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn until(is_so: impl Fn() -> bool, within: Duration) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        ensure!(began.elapsed() < within, "it is not so after {within:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn until_completed(client: &Client, runs: u32, within: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let counts: Value = client.get("/api/metrics?workflow=limited").await?.json()?;
        let completed = counts["statuses"]["completed"].as_u64().unwrap_or(0);
        if completed == u64::from(runs) {
            return Ok(());
        }
        ensure!(began.elapsed() < within, "after {within:?}: {counts}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, started_in, in_line_after, first_page, ended_in, most, memory } = self;
        let per_second = |time: &Duration| f64::from(*runs) / time.as_secs_f64();
        write!(
            f,
            "{runs} runs with a key each in one lane, started in {} ({:.0}/s), all in line after {}; after a kill, the first \
             page in {} ms; ",
            seconds(*started_in),
            per_second(started_in),
            seconds(*in_line_after),
            first_page.as_millis()
        )?;
        if let Some(ended_in) = ended_in {
            write!(f, "all ended in {} ({:.0}/s); ", seconds(*ended_in), per_second(ended_in))?;
        }
        write!(f, "at most {most} at work; {memory}")
    }
}
