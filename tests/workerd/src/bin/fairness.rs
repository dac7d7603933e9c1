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

/// What is started: a workflow of one step.
const STARTED: &str = "many";

/// How many requests a second are measured.
const MEASURED: u64 = 20;

/// How many starts come before anything is measured: the runtime compiles code a second time that is called often, and
/// the machine is busy with that.
const WARM_UP: usize = 4_000;

/// In how many rounds each of the three is measured: what the machine does besides disturbs all of them.
const ROUNDS: u64 = 5;

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

/// Measures a namespace beside a quiet one, beside one that keeps to its limit, and beside one that offers ten times that.
async fn neighbours(seconds: u64, is_quick: bool) -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 16).await?;
    let root = engine.client();
    let (calm, wild) = (namespace(&root, "calm").await?, namespace(&root, "wild").await?);
    let limits = json!({ "requests_per_second": LIMIT }).to_string();
    let set = root.request("PUT", "/api/namespaces/wild/limits", &limits).await?;
    ensure!(set.status == 200, "{} {}", set.status, set.body);
    let (warm_up, rounds) = if is_quick { (WARM_UP / 8, 1) } else { (WARM_UP, ROUNDS) };
    warm(&calm, warm_up).await?;
    let (mut alone, mut within, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    let mut offered = Offered::default();
    for _ in 0..rounds {
        let seconds = seconds / rounds;
        alone.extend(latencies(&calm, seconds).await?);
        within.extend(beside(&calm, &wild, u64::from(LIMIT), seconds).await?.0);
        let (took, more) = beside(&calm, &wild, OFFERED, seconds).await?;
        beyond.extend(took);
        offered.add(&more);
    }
    let Offered { accepted, refused, at_door } = offered;
    println!(
        "a namespace limited to {LIMIT} starts a second offers {OFFERED}: {accepted} accepted and {refused} refused in \
         {seconds} s, {at_door} of them without asking a cell"
    );
    println!("the starts of another one meanwhile, p50 and p99 in ms:");
    for (name, took) in [
        ("alone", &mut alone),
        ("beside one that keeps to its limit", &mut within),
        ("beside one at ten times its limit", &mut beyond),
    ] {
        took.sort_unstable();
        let ms = |percent| Some(percentile(took, percent)?.as_secs_f64() * 1e3);
        let (p50, p99) = (ms(50).context("it was measured")?, ms(99).context("it was measured")?);
        println!("  {name:<36} {p50:>7.1} {p99:>7.1}");
    }
    let p99 = |took: &[Duration]| percentile(took, 99).context("it was measured");
    let moved_from = |took: &[Duration]| {
        anyhow::Ok((p99(&beyond)?.as_secs_f64() / p99(took)?.as_secs_f64() - 1.0) * 100.0)
    };
    let (from_alone, from_within) = (moved_from(&alone)?, moved_from(&within)?);
    println!(
        "ten times the limit moves the p99 by {from_within:+.0} % of that within the limit, and by {from_alone:+.0} % of that \
         alone (bound {MOVED_MAX} %)"
    );
    // Each of 16 cells has its part, rounded up, and two seconds of it at once.
    let most = u64::from(LIMIT.div_ceil(16) * 16) * (seconds + 2 * BURST_SECONDS * rounds);
    ensure!(accepted <= most, "the limit did not hold: {accepted} accepted, and {most} are the most");
    let least = u64::from(LIMIT) * seconds / 2;
    ensure!(accepted >= least, "the limit allows more: {accepted} accepted, and {least} are the least");
    ensure!(at_door > refused / 2, "{at_door} of {refused} were refused without asking a cell");
    ensure!(
        is_quick || from_alone <= MOVED_MAX,
        "the p99 has moved by {from_alone:.0} %, and {MOVED_MAX} % is the bound"
    );
    Ok(())
}

/// How long the starts of one namespace take while another one offers some.
async fn beside(
    calm: &Client,
    wild: &Client,
    per_second: u64,
    seconds: u64,
) -> Result<(Vec<Duration>, Offered)> {
    let offers = tokio::spawn(offer(wild.clone(), per_second, seconds + BURST_SECONDS));
    sleep(Duration::from_secs(BURST_SECONDS)).await;
    let took = latencies(calm, seconds).await?;
    Ok((took, offers.await??))
}

async fn latencies(client: &Client, seconds: u64) -> Result<Vec<Duration>> {
    let mut ticks = interval(Duration::from_millis(1_000 / MEASURED));
    let mut took = Vec::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        ticks.tick().await;
        let began = Instant::now();
        let answer = client.start(STARTED, &json!([1, 10]), None, 0).await?;
        ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
        took.push(began.elapsed());
    }
    Ok(took)
}

/// Starts many runs, and waits for all of them.
async fn warm(client: &Client, runs: usize) -> Result<()> {
    let start = || async {
        let answer = client.start(STARTED, &json!([1, 10]), None, 60).await?;
        ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
        anyhow::Ok(())
    };
    stream::iter((0..runs).map(|_| start())).buffer_unordered(AT_ONCE).try_collect().await
}

/// What became of starts that were offered.
#[derive(Default)]
struct Offered {
    accepted: u64,
    refused: u64,
    /// How many were refused without asking a cell.
    at_door: u64,
}

impl Offered {
    fn add(&mut self, more: &Self) {
        self.accepted += more.accepted;
        self.refused += more.refused;
        self.at_door += more.at_door;
    }
}

/// Offers starts at a rate, whether they are accepted or not.
async fn offer(client: Client, per_second: u64, seconds: u64) -> Result<Offered> {
    let ticks =
        stream::unfold(interval(Duration::from_micros(1_000_000 / per_second)), |mut ticks| async move {
            ticks.tick().await;
            Some(((), ticks))
        });
    let until = Instant::now() + Duration::from_secs(seconds);
    let in_time = ticks.take_while(|()| std::future::ready(Instant::now() < until));
    let input = json!([1, 10]);
    let asked = in_time.map(|()| client.start(STARTED, &input, None, 0));
    let mut offered = Offered::default();
    let mut asked = std::pin::pin!(asked.buffer_unordered(2 * AT_ONCE));
    while let Some(answer) = asked.next().await {
        let answer = answer?;
        match answer.status {
            201 => offered.accepted += 1,
            429 => {
                offered.refused += 1;
                offered.at_door += u64::from(answer.body.contains("Send them more slowly"));
            }
            status => anyhow::bail!("a start was answered with {status}"),
        }
    }
    Ok(offered)
}

/// A percentile of what is sorted.
fn percentile(took: &[Duration], percent: usize) -> Option<Duration> {
    took.get(took.len().saturating_sub(1) * percent / 100).copied()
}
