//! Jobs: Stepwell's queues beside a hand-written Durable Object that writes the same rows, and beside two libraries on
//! Postgres with their defaults.
//!
//! Each system is measured alone, by one client with 16 requests at once: how many jobs a second are sent, how many are
//! sent, claimed and acknowledged, and how long a job takes from send to claim at a rate that all of them keep.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::future::try_join_all;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Config, Worker, Workerd,
    engine::{Client, KEY},
};
use tokio::time::{interval, sleep};

use crate::{
    postgres::{self, Measured},
    system::release,
};

const BARE: &str = include_str!("../workers/bare_jobs.js");

/// Requests at once, for sending and for claiming.
const AT_ONCE: usize = 16;

/// How many jobs a claim takes at the most.
const CLAIM: usize = 10;

/// Jobs a second when the time from send to claim is measured.
const RATE: u32 = 50;

/// What Stepwell has to reach of the hand-written object.
const OF_BARE: f64 = 0.5;

/// What is measured.
#[derive(Args)]
pub struct Options {
    /// Smaller sizes: two minutes instead of twenty.
    #[arg(long)]
    quick: bool,
    /// For how many seconds each figure is measured; 60, or 4 with `--quick`.
    #[arg(long)]
    seconds: Option<u32>,
    /// The bundle of engine and app that is measured.
    #[arg(long, default_value = "bench-all-in-one")]
    bundle: String,
    /// Leaves out the libraries on Postgres.
    #[arg(long)]
    no_peers: bool,
}

/// What takes jobs on workerd.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    /// Stepwell, with so many partitions.
    Stepwell(u32),
    /// The hand-written object, so many of them.
    Bare(u32),
}

impl System {
    fn name(self) -> String {
        match self {
            Self::Stepwell(partitions) => format!("stepwell, {partitions} partition(s)"),
            Self::Bare(objects) => format!("bare objects, {objects}"),
        }
    }

    fn path(self, what: &str) -> String {
        match (self, what) {
            (Self::Stepwell(_), "send") => "/api/queues/bench/jobs".into(),
            (Self::Stepwell(_), what) => format!("/api/queues/bench/{what}"),
            (Self::Bare(_), what) => format!("/{what}"),
        }
    }

    async fn start(self, bundle: &str, is_metered: bool) -> Result<(Workerd, Client)> {
        let config = match self {
            Self::Stepwell(_) => Config::serving("engine").worker(
                release("engine", bundle)?
                    .durable_object("CELL", "Cell")
                    .durable_object("STATION", "Station")
                    .text("STEPWELL_KEY", KEY)
                    .text("STEPWELL_CELLS", "1")
                    .text("STEPWELL_METER", if is_metered { "1" } else { "0" }),
            ),
            Self::Bare(objects) => Config::serving("bare").worker(
                Worker::inline("bare", [("bare.js", BARE)])
                    .durable_object("JOBS", "Jobs")
                    .text("OBJECTS", &objects.to_string()),
            ),
        };
        let workerd = Workerd::start(&config).await?;
        let client = Client::new(workerd.http());
        if let Self::Stepwell(partitions) = self {
            let patch = json!({ "partitions": partitions }).to_string();
            let answer = client.request("PATCH", "/api/queues/bench", &patch).await?;
            ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        }
        Ok((workerd, client))
    }
}

/// Measures all of them, and prints a table.
pub async fn run(options: &Options) -> Result<()> {
    let seconds = options.seconds.unwrap_or(if options.quick { 4 } else { 60 });
    println!(
        "{seconds} s for each figure, {AT_ONCE} requests at once, claims of up to {CLAIM}, send to claim at {RATE} jobs a second"
    );
    println!("{:<28} {:>10} {:>12} {:>9} {:>9}", "system", "sent/s", "end to end/s", "p50 ms", "p99 ms");
    let mut measured = BTreeMap::new();
    for system in [System::Stepwell(1), System::Bare(1), System::Stepwell(16), System::Bare(16)] {
        let figures = measure(system, &options.bundle, seconds).await.with_context(|| system.name())?;
        line(&system.name(), figures);
        measured.insert(system.name(), figures);
    }
    if !options.no_peers {
        let server = postgres::Server::start().await?;
        for peer in ["graphile-worker", "pg-boss"] {
            let figures = server.measure(peer, seconds, RATE).await.with_context(|| peer.to_owned())?;
            line(peer, figures);
            measured.insert(peer.to_owned(), figures);
        }
    }
    verdict(&measured);
    rows(&options.bundle).await
}

fn line(name: &str, Measured { sent, finished, p50_ms, p99_ms }: Measured) {
    let ms = |time: Option<f64>| time.map_or("too slow".to_owned(), |time| format!("{time:.1}"));
    println!("{name:<28} {sent:>10.0} {finished:>12.1} {:>9} {:>9}", ms(p50_ms), ms(p99_ms));
}

/// Says which targets are missed.
fn verdict(measured: &BTreeMap<String, Measured>) {
    let of = |name: &str| measured.get(name).copied();
    for count in [1, 16] {
        let names = (System::Stepwell(count).name(), System::Bare(count).name());
        let (Some(own), Some(bare)) = (of(&names.0), of(&names.1)) else { continue };
        for (what, own, bare) in [("sent", own.sent, bare.sent), ("end to end", own.finished, bare.finished)]
        {
            let part = own / bare;
            let word = if part >= OF_BARE { "reached" } else { "MISSED" };
            println!("{count}: {part:.2} of bare, {what}: {word} (target {OF_BARE})");
        }
    }
    for (peer, count) in ["graphile-worker", "pg-boss"].into_iter().flat_map(|peer| [(peer, 1), (peer, 16)]) {
        let (Some(peers), Some(own)) = (of(peer), of(&System::Stepwell(count).name())) else { continue };
        for (what, own, peers) in
            [("sent", own.sent, peers.sent), ("end to end", own.finished, peers.finished)]
        {
            let word = if own > peers { "ahead" } else { "BEHIND" };
            println!("{count}: {word} of {peer}, {what}: {own:.0} and {peers:.0} a second");
        }
    }
    println!(
        "every request is HTTP through one workerd process with one thread: at {AT_ONCE} requests at once, that thread is what limits"
    );
}

/// How far the clients have come.
#[derive(Default)]
struct Progress {
    sent: Cell<u64>,
    done: Cell<u64>,
    latencies: RefCell<Vec<f64>>,
}

async fn measure(system: System, bundle: &str, seconds: u32) -> Result<Measured> {
    let (_workerd, client) = system.start(bundle, false).await?;
    let span = Duration::from_secs(seconds.into());
    // What is compiled when it proves busy is.
    let warm = Progress::default();
    both(system, &client, &warm, Duration::from_secs(u64::from(seconds).div_ceil(4))).await?;
    let progress = Progress::default();
    let began = Instant::now();
    try_join_all((0..AT_ONCE).map(|_| produce(system, &client, &progress, began + span))).await?;
    let sent = per_second(progress.sent.get(), began.elapsed());
    // The backlog goes before the next measurement.
    drain(system, &client, &progress, warm.sent.get() - warm.done.get() + progress.sent.get()).await?;
    let progress = Progress::default();
    let began = Instant::now();
    both(system, &client, &progress, span).await?;
    let finished = per_second(progress.done.get(), began.elapsed());
    drain(system, &client, &progress, progress.sent.get()).await?;
    let (p50_ms, p99_ms) = latency(system, &client, seconds).await?;
    Ok(Measured { sent, finished, p50_ms, p99_ms })
}

async fn both(system: System, client: &Client, progress: &Progress, span: Duration) -> Result<()> {
    let until = Instant::now() + span;
    let producers = (0..AT_ONCE / 2).map(|_| produce(system, client, progress, until));
    let consumers = (0..AT_ONCE / 2).map(|_| consume(system, client, progress, until));
    tokio::try_join!(try_join_all(producers), try_join_all(consumers))?;
    Ok(())
}

async fn produce(system: System, client: &Client, progress: &Progress, until: Instant) -> Result<()> {
    while Instant::now() < until {
        send(system, client).await?;
        progress.sent.set(progress.sent.get() + 1);
    }
    Ok(())
}

async fn send(system: System, client: &Client) -> Result<()> {
    let body =
        json!({ "body": { "at": now_ms()?, "to": "ada@example.com", "template": "welcome" } }).to_string();
    let answer = client.send_post(&system.path("send"), &body).await?;
    ensure!(answer.status < 300, "{} {}", answer.status, answer.body);
    Ok(())
}

async fn consume(system: System, client: &Client, progress: &Progress, until: Instant) -> Result<()> {
    while Instant::now() < until {
        take(system, client, progress, 200).await?;
    }
    Ok(())
}

/// Claims, and acknowledges what it got.
async fn take(system: System, client: &Client, progress: &Progress, wait_ms: u32) -> Result<usize> {
    let wanted = match system {
        System::Stepwell(_) => json!({ "limit": CLAIM, "wait_ms": wait_ms }),
        System::Bare(_) => json!({ "limit": CLAIM }),
    };
    let claimed = client.post_json(&system.path("claim"), &wanted).await?;
    let now = now_ms()?;
    let jobs = claimed["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let took = jobs.iter().filter_map(|job| Some(now - job["body"]["at"].as_f64()?));
    progress.latencies.borrow_mut().extend(took);
    let leases: Vec<&Value> = jobs.iter().map(|job| &job["lease"]).collect();
    if leases.is_empty() {
        if matches!(system, System::Bare(_)) {
            sleep(Duration::from_millis(2)).await;
        }
        return Ok(0);
    }
    let ended = client.post_json(&system.path("ack"), &json!({ "leases": leases })).await?;
    let ended = ended["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(ended.iter().all(|result| result["status"] == "done"), "an ack was not taken: {ended:?}");
    progress.done.set(progress.done.get() + leases.len() as u64);
    Ok(leases.len())
}

/// Takes what is left of so many.
async fn drain(system: System, client: &Client, progress: &Progress, sent: u64) -> Result<()> {
    let began = Instant::now();
    while progress.done.get() < sent {
        try_join_all((0..AT_ONCE).map(|_| take(system, client, progress, 100))).await?;
        ensure!(
            began.elapsed() < Duration::from_secs(300),
            "{} of {sent} jobs are done",
            progress.done.get()
        );
    }
    Ok(())
}

/// From send to claim, at a rate.
async fn latency(system: System, client: &Client, seconds: u32) -> Result<(Option<f64>, Option<f64>)> {
    let progress = Progress::default();
    let until = Instant::now() + Duration::from_secs(seconds.into());
    let producer = async {
        let mut ticks = interval(Duration::from_secs(1) / RATE);
        while Instant::now() < until {
            ticks.tick().await;
            send(system, client).await?;
            progress.sent.set(progress.sent.get() + 1);
        }
        anyhow::Ok(())
    };
    let consumers = try_join_all((0..2).map(|_| consume(system, client, &progress, until)));
    tokio::try_join!(producer, consumers)?;
    let mut latencies = progress.latencies.into_inner();
    latencies.sort_by(f64::total_cmp);
    let at = |percent: usize| latencies.get(latencies.len().saturating_sub(1) * percent / 100).copied();
    Ok((at(50), at(99)))
}

/// The rows of a job by the meter, beside the budget, and beside a run of one step.
async fn rows(bundle: &str) -> Result<()> {
    let (_workerd, client) = System::Stepwell(1).start(bundle, true).await?;
    let of = async |path: &str| -> Result<Option<u64>> {
        let answer = client.get(path).await?;
        let header = answer.headers.get("stepwell-rows-written");
        Ok(header.and_then(|header| header.to_str().ok()).and_then(|text| text.parse().ok()))
    };
    // What sets the alarms: a job that nobody acknowledges.
    send(System::Stepwell(1), &client).await?;
    client.post_json("/api/queues/bench/claim", &json!({ "limit": 1, "visibility_ms": 25_000 })).await?;
    let Some(mut before) = of("/api/queues/bench").await? else {
        println!("rows: the answers of queues are not metered");
        return Ok(());
    };
    let progress = Progress::default();
    for (batch, has_id) in [(1, false), (10, false), (100, false), (1, true)] {
        let jobs = (0..batch).map(|number| {
            if has_id {
                json!({ "body": number, "dedupe_id": format!("id{number}") })
            } else {
                json!({ "body": number })
            }
        });
        let body = json!({ "jobs": jobs.collect::<Vec<_>>() });
        client.post_json("/api/queues/bench/jobs", &body).await?;
        let mut left = batch;
        while left > 0 {
            left -= take(System::Stepwell(1), &client, &progress, 1_000).await?;
        }
        let after = of("/api/queues/bench").await?.context("it is metered")?;
        let each = per(after - before, batch);
        let claims = batch.div_ceil(CLAIM);
        let budget = 2.0 + per(2 * claims as u64, batch) + if has_id { 2.0 } else { 0.0 };
        println!(
            "rows for each job, sent in a batch of {batch}{} and claimed by up to {CLAIM}: {each:.2}: {} (budget {budget:.2}; alarms are not counted)",
            if has_id { " with a dedupe id" } else { "" },
            if each <= budget { "reached" } else { "MISSED" },
        );
        before = after;
    }
    let began = Instant::now();
    let run = client.start("steps", &json!(1), None, 10).await?;
    ensure!(run.status < 300, "{} {}", run.status, run.body);
    let rows = run.headers.get("stepwell-rows-written").and_then(|rows| rows.to_str().ok()).unwrap_or("?");
    println!(
        "a run of one step: {:.1} ms, {rows} rows of its cell so far",
        began.elapsed().as_secs_f64() * 1e3
    );
    let began = Instant::now();
    send(System::Stepwell(1), &client).await?;
    take(System::Stepwell(1), &client, &progress, 1_000).await?;
    println!("a job, sent, claimed and acknowledged: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn per(count: u64, each: usize) -> f64 {
    count as f64 / each as f64
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn now_ms() -> Result<f64> {
    Ok(std::time::UNIX_EPOCH.elapsed()?.as_secs_f64() * 1e3)
}
