//! Many runs over many cells: how long a page, a search and a count take.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{seconds, start_many};
use crate::engine::{Client, Engine, Form};

/// How often each is asked for.
const ASKED: usize = 200;

/// What was seen.
#[derive(Debug)]
pub struct Report {
    runs: u32,
    cells: u32,
    started_in: Duration,
    first_count: Duration,
    /// What was asked for, and the times of the answers, in order.
    times: Vec<(&'static str, Vec<Duration>)>,
}

/// Starts so many runs, kills workerd, and asks for pages and counts.
pub async fn run(runs: u32, cells: u32) -> Result<Report> {
    let mut engine = Engine::start(Form::AllInOne, cells).await?;
    let client = engine.client();
    let began = Instant::now();
    start_many(&client, "nap", &json!(24 * 60 * 60 * 1_000), runs).await?;
    let started_in = began.elapsed();
    engine.engine.restart().await?;
    let began = Instant::now();
    let counted = client.get("/api/metrics").await?.json()?;
    let first_count = began.elapsed();
    ensure!(counted["total"] == runs && counted["complete"] == true, "{counted}");
    let mut times = Vec::new();
    for (what, path) in [
        ("a page of 50", "/api/executions?limit=50"),
        ("a page of 50 by workflow and status", "/api/executions?limit=50&workflow=nap&status=sleeping"),
        ("a count", "/api/metrics"),
    ] {
        times.push((what, asked(&client, path).await?));
    }
    Ok(Report { runs, cells, started_in, first_count, times })
}

/// The times of many requests, page after page where there are pages; shortest first.
async fn asked(client: &Client, path: &str) -> Result<Vec<Duration>> {
    let (mut times, mut next) = (Vec::new(), path.to_owned());
    for _ in 0..ASKED {
        let began = Instant::now();
        let answer = client.get(&next).await?;
        times.push(began.elapsed());
        let answer = answer.json()?;
        next = match answer["cursor"].as_str() {
            Some(cursor) => format!("{path}&cursor={cursor}"),
            None => path.to_owned(),
        };
    }
    times.sort_unstable();
    times.first().context("something was asked for")?;
    Ok(times)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, cells, started_in, first_count, times } = self;
        write!(f, "{runs} runs over {cells} cells, started in {}; ", seconds(*started_in))?;
        write!(f, "after a restart, the first count in {} ms", first_count.as_millis())?;
        for (what, times) in times {
            let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1_000.0;
            write!(f, "; {what}: p50 {:.1} ms, p99 {:.1} ms", at(50), at(99))?;
        }
        Ok(())
    }
}
