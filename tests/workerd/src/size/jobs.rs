//! Very many jobs in one queue: whoever sends or claims one of them does not wait for the others.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    memory::{Baseline, Peak},
    seconds,
};
use crate::engine::{Client, Engine, Form};

/// How many jobs one request sends.
const BATCH: u32 = 1_000;

/// How many requests send at once.
const SENDERS: u32 = 16;

/// How often each of the other things is done.
const ASKED: usize = 200;

/// How many jobs a claim takes.
const CLAIM: u32 = 100;

/// How long one of them may take while the others wait: 99 of 100.
const P99_MAX: Duration = Duration::from_millis(250);

/// How much memory more than before they may take, in MiB: they are rows.
const ABOVE_IDLE_MIB_MAX: u64 = 256;

/// What was seen.
#[derive(Debug)]
pub struct Report {
    jobs: u32,
    partitions: u32,
    sent_in: Duration,
    first_count: Duration,
    /// What was done, and the times of the answers, in order.
    times: Vec<(&'static str, Vec<Duration>)>,
    claimed: u32,
    memory: Peak,
}

/// Sends so many jobs, kills workerd, and sends, claims and counts some.
pub async fn run(jobs: u32, partitions: u32) -> Result<Report> {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let set = json!({ "partitions": partitions }).to_string();
    let answer = client.request("PATCH", "/api/queues/many", &set).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    let began = Instant::now();
    send_many(&client, jobs).await?;
    let sent_in = began.elapsed();
    engine.engine.restart().await?;
    let client = engine.client();
    let idle = Baseline::of(&engine.engine)?;
    let began = Instant::now();
    let depth = count(&client).await?;
    let first_count = began.elapsed();
    ensure!(depth == jobs, "there are {depth} of {jobs} jobs");
    let (mut claims, mut acks, mut sends, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut claimed = 0;
    for _ in 0..ASKED {
        let (got, took) = timed(&client, "claim", &json!({ "limit": CLAIM })).await?;
        claims.push(took);
        let leases: Vec<&Value> =
            got["jobs"].as_array().into_iter().flatten().map(|job| &job["lease"]).collect();
        claimed += u32::try_from(leases.len())?;
        let (ended, took) = timed(&client, "ack", &json!({ "leases": leases })).await?;
        acks.push(took);
        let mut results = ended["results"].as_array().into_iter().flatten();
        ensure!(results.all(|result| result["status"] == "done"), "{ended}");
        sends.push(timed(&client, "jobs", &json!({ "body": "one more" })).await?.1);
        let began = Instant::now();
        count(&client).await?;
        counts.push(began.elapsed());
    }
    let depth = count(&client).await?;
    let wanted = jobs + u32::try_from(ASKED)? - claimed;
    ensure!(depth == wanted, "there are {depth} jobs, and not {wanted}");
    let mut times = vec![
        ("a claim of up to 100", claims),
        ("an ack of them", acks),
        ("sending one", sends),
        ("counting", counts),
    ];
    for (_, times) in &mut times {
        times.sort_unstable();
    }
    let memory = idle.peak(&engine.engine)?;
    let report = Report { jobs, partitions, sent_in, first_count, times, claimed, memory };
    ensure!(claimed > 0, "nothing was claimed: {report}");
    ensure!(report.times.iter().all(|(_, times)| at(times, 99) <= P99_MAX), "too slow: {report}");
    ensure!(memory.above_idle_mib() <= ABOVE_IDLE_MIB_MAX, "too much memory: {report}");
    Ok(report)
}

async fn send_many(client: &Client, jobs: u32) -> Result<()> {
    let sent = Arc::new(AtomicU32::new(0));
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let (client, sent) = (client.clone(), Arc::clone(&sent));
        senders.spawn(async move {
            loop {
                let first = sent.fetch_add(BATCH, Ordering::Relaxed);
                if first >= jobs {
                    return anyhow::Ok(());
                }
                let batch =
                    (first..jobs.min(first + BATCH)).map(|number| json!({ "body": { "number": number } }));
                let body = json!({ "jobs": batch.collect::<Vec<_>>() });
                client.post_json("/api/queues/many/jobs", &body).await?;
            }
        });
    }
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    Ok(())
}

async fn timed(client: &Client, what: &str, body: &Value) -> Result<(Value, Duration)> {
    let began = Instant::now();
    let answer = client.post_json(&format!("/api/queues/many/{what}"), body).await?;
    Ok((answer, began.elapsed()))
}

/// How many jobs wait.
async fn count(client: &Client) -> Result<u32> {
    let view = client.get("/api/queues/many").await?.json()?;
    let depth = view["depth"].as_u64().with_context(|| view.to_string())?;
    Ok(u32::try_from(depth)?)
}

fn at(times: &[Duration], percent: usize) -> Duration {
    times.get(times.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, partitions, sent_in, first_count, times, claimed, memory } = self;
        let each_second = f64::from(*jobs) / sent_in.as_secs_f64();
        write!(
            f,
            "{jobs} jobs in {partitions} partitions, sent in {} ({each_second:.0}/s); ",
            seconds(*sent_in)
        )?;
        write!(f, "after a kill, the first count in {} ms", first_count.as_millis())?;
        for (what, times) in times {
            let ms = |percent| at(times, percent).as_secs_f64() * 1_000.0;
            write!(f, "; {what}: p50 {:.1} ms, p99 {:.1} ms", ms(50), ms(99))?;
        }
        write!(f, "; {claimed} claimed and done; {memory}")
    }
}
