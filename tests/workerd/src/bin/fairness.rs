//! Shows what fairness gives on the real workerd: how soon a customer begins behind another one's backlog, and how much a
//! namespace far beyond its limit slows another one down.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use stepwell_workerd_tests::{
    access::namespace,
    engine::{Client, Engine, Form},
    lanes::Observer,
};
use tokio::time::{Instant, interval, sleep};

/// How long a run is at work.
const WORK: Duration = Duration::from_millis(40);

/// How many starts are under way at once.
const AT_ONCE: usize = 32;

/// How many slots a fair lane may give to others before somebody who has none.
const SLOTS_MAX: usize = 2;

/// How many requests a second the neighbour may make, and how many it makes.
const LIMIT: u32 = 50;
const OFFERED: u64 = 500;

/// How long the neighbour goes on before anything is measured: it may begin with a burst.
const BURST_SECONDS: u64 = 3;

/// How many requests a second are measured.
const MEASURED: u64 = 20;

/// How much the neighbour may move the 99th percentile, in percent.
const MOVED_MAX: f64 = 20.0;

/// How long fairness takes effect: behind a backlog of one customer, and beside a namespace beyond its limit.
#[derive(Parser)]
struct Arguments {
    /// Smaller sizes, for CI.
    #[arg(long)]
    quick: bool,
    /// How many runs of the first customer wait; 10,000, or 300 with `--quick`.
    #[arg(long)]
    backlog: Option<u32>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let backlog = arguments.backlog.unwrap_or(if arguments.quick { 300 } else { 10_000 });
    let seconds = if arguments.quick { 5 } else { 30 };
    match run(backlog, seconds, arguments.quick).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairness: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(backlog: u32, seconds: u64, is_quick: bool) -> Result<()> {
    let fair = slots_before_b("in_turn", backlog).await?;
    println!("with fair_by: behind {backlog} runs of A, the run of B begins after {fair} slots for A");
    ensure!(fair <= SLOTS_MAX, "B waited for {fair} slots, and {SLOTS_MAX} is the most");
    // Without fairness B waits for all of them: a shorter backlog shows it as well.
    let few = backlog.min(300) / 3;
    let unfair = slots_before_b("in_line", few).await?;
    println!("without: behind {few} runs of A, after {unfair} slots for A");
    ensure!(unfair > 10 * SLOTS_MAX, "without fairness B has waited for {unfair} slots only");
    neighbours(seconds, is_quick).await
}

/// How many slots A gets between the start of B's run and its beginning.
async fn slots_before_b(workflow: &str, backlog: u32) -> Result<usize> {
    let engine = Engine::start(Form::AllInOne, 16).await?;
    let client = engine.client();
    let observer = Observer::start(WORK).await?;
    let began = Instant::now();
    let start = |customer: &'static str| {
        let input = json!({ "address": observer.url(customer), "customer": customer, "steps": 1 });
        let client = client.clone();
        async move {
            let answer = client.start(workflow, &input, None, 0).await?;
            ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
            anyhow::Ok(())
        }
    };
    stream::iter((0..backlog).map(|_| start("a"))).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    // All are in line, but for those that have begun.
    sleep(Duration::from_secs(2)).await;
    let before = observer.seen().order.len();
    println!(
        "  {backlog} runs of A started in {:.1} s, {before} of them begun",
        began.elapsed().as_secs_f64()
    );
    ensure!(before < backlog as usize, "no run of A waits any more");
    start("b").await?;
    let sent = Instant::now();
    let patience = WORK * backlog * 4 + Duration::from_secs(30);
    loop {
        let order = observer.seen().order;
        if let Some(place) = order.iter().position(|customer| customer == "b") {
            println!("  {workflow}: B begins {} ms after its start", sent.elapsed().as_millis());
            return Ok(place - before.min(place));
        }
        ensure!(sent.elapsed() < patience, "the run of B does not begin");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Measures a namespace beside a quiet one, and beside one that offers ten times its limit.
async fn neighbours(seconds: u64, is_quick: bool) -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 16).await?;
    let root = engine.client();
    let (calm, wild) = (namespace(&root, "calm").await?, namespace(&root, "wild").await?);
    let limits = json!({ "requests_per_second": LIMIT }).to_string();
    let set = root.request("PUT", "/api/namespaces/wild/limits", &limits).await?;
    ensure!(set.status == 200, "{} {}", set.status, set.body);
    latencies(&calm, seconds.min(5)).await?;
    let alone = latencies(&calm, seconds).await?;
    let offers = tokio::spawn(offer(wild, seconds + BURST_SECONDS));
    sleep(Duration::from_secs(BURST_SECONDS)).await;
    let beside = latencies(&calm, seconds).await?;
    let (accepted, refused) = offers.await??;
    let (before, after) = (p99(alone).context("it was measured")?, p99(beside).context("it was measured")?);
    let moved = (after.as_secs_f64() / before.as_secs_f64() - 1.0) * 100.0;
    println!(
        "a namespace limited to {LIMIT} requests a second offers {OFFERED} ({accepted} accepted, {refused} refused in {seconds} s): \
         the p99 of another one's starts is {:.1} ms, and {:.1} ms without it ({moved:+.0} %, bound {MOVED_MAX} %)",
        after.as_secs_f64() * 1e3,
        before.as_secs_f64() * 1e3
    );
    // Each of 16 cells has its part, rounded up, and two seconds of it at once.
    let most = u64::from(LIMIT.div_ceil(16) * 16) * (seconds + 2 * BURST_SECONDS);
    ensure!(accepted <= most, "the limit did not hold: {accepted} accepted, and {most} are the most");
    ensure!(
        is_quick || moved <= MOVED_MAX,
        "the p99 has moved by {moved:.0} %, and {MOVED_MAX} % is the bound"
    );
    Ok(())
}

async fn latencies(client: &Client, seconds: u64) -> Result<Vec<Duration>> {
    let mut ticks = interval(Duration::from_millis(1_000 / MEASURED));
    let mut took = Vec::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        ticks.tick().await;
        let began = Instant::now();
        let answer = client.start("ten", &json!(null), None, 0).await?;
        ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
        took.push(began.elapsed());
    }
    Ok(took)
}

/// Offers starts at a rate, whether they are accepted or not.
async fn offer(client: Client, seconds: u64) -> Result<(u64, u64)> {
    let ticks =
        stream::unfold(interval(Duration::from_micros(1_000_000 / OFFERED)), |mut ticks| async move {
            ticks.tick().await;
            Some(((), ticks))
        });
    let until = Instant::now() + Duration::from_secs(seconds);
    let in_time = ticks.take_while(|()| std::future::ready(Instant::now() < until));
    let asked = in_time.map(|()| client.start("ten", &serde_json::Value::Null, None, 0));
    let (mut accepted, mut refused) = (0, 0);
    let mut asked = std::pin::pin!(asked.buffer_unordered(2 * AT_ONCE));
    while let Some(answer) = asked.next().await {
        match answer?.status {
            201 => accepted += 1,
            429 => refused += 1,
            status => anyhow::bail!("a start was answered with {status}"),
        }
    }
    Ok((accepted, refused))
}

fn p99(mut took: Vec<Duration>) -> Option<Duration> {
    took.sort_unstable();
    took.get(took.len().saturating_sub(1) * 99 / 100).copied()
}
