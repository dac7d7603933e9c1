//! Kills workerd again and again while runs go through limits, and checks from outside that no more of them were ever at work
//! than the limits say, that all of them end, and that no place is left behind.

mod observer;

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

use crate::{
    engine::{Build, Client, Form},
    kill::{Plan, Transport, report::Kills, target::Target},
};
pub use observer::{Observer, Seen};

/// The limits of `limited`: of a customer, and in all.
const LIMITS: (u32, u32) = (2, 6);

/// Whose runs they are.
const CUSTOMERS: u32 = 50;

/// How long a step is at work.
const WORK: Duration = Duration::from_millis(15);

/// How long a slot may be missing after a kill.
const SLOTS_BACK_WITHIN: Duration = Duration::from_secs(40);

/// What came out of it.
#[derive(Debug)]
pub struct Report {
    form: &'static str,
    runs: u32,
    kills: Kills,
    seen: Seen,
    healed_ms: u128,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, runs, kills, seen, healed_ms } = self;
        write!(
            f,
            "{form}: {runs} runs of {CUSTOMERS} customers completed through {} kills (engine {}, app {}, both {}); at most {} steps of a customer at work \
             at once (limit {}), {} in all (limit {}); {} steps seen; all ended {healed_ms} ms after the last kill, and no \
             place was left behind",
            kills.engine + kills.app + kills.both,
            kills.engine,
            kills.app,
            kills.both,
            seen.most_of_one,
            LIMITS.0,
            seen.most,
            LIMITS.1,
            seen.asked
        )
    }
}

/// Starts runs under kills, then the verdict; with the end of workerd's log if it is a bad one.
pub async fn run(form: Form, kills: u32, runs: u32, cells: u32, seed: u64) -> Result<Report> {
    let plan = Plan { kills, runs, live: 0, cells, transport: Transport::Direct, pause_ms: 500..2_000, seed };
    let engine = Mutex::new(Target::start(form, Build::Abort, &plan).await?);
    match judge(form, &plan, &engine).await {
        Ok(report) => Ok(report),
        Err(error) => {
            let log = engine.lock().await.log();
            let log = log.get(log.len().saturating_sub(4_000)..).unwrap_or(&log).to_owned();
            Err(error.context(format!("workerd's log ends with:\n{log}\n")))
        }
    }
}

async fn judge(form: Form, plan: &Plan, engine: &Mutex<Target>) -> Result<Report> {
    let client = engine.lock().await.client();
    let observer = Observer::start(WORK).await?;
    let mut tasks = JoinSet::new();
    let mut random = StdRng::seed_from_u64(plan.seed);
    let span_ms = u64::from(plan.kills) * (plan.pause_ms.start + plan.pause_ms.end) / 2;
    for number in 0..plan.runs {
        let customer = format!("c{}", random.random_range(0..CUSTOMERS));
        let steps = random.random_range(1..4);
        let input = json!({ "address": observer.url(&customer), "customer": customer, "steps": steps });
        let after = Duration::from_millis(random.random_range(0..=span_ms));
        let (client, patience) = (client.clone(), plan.patience());
        tasks.spawn(async move {
            sleep(after).await;
            start(&client, &format!("lane-{number}"), &input, patience).await
        });
    }
    let kills = kill(engine, plan).await?;
    let last_kill = Instant::now();
    while let Some(started) = tasks.join_next().await {
        started??;
    }
    // At the most six at once, and each step takes its time.
    let steps = plan.runs * 2 / LIMITS.1;
    let by = last_kill + SLOTS_BACK_WITHIN + Duration::from_millis(u64::from(steps) * 60) + plan.patience();
    until_all_ended(&client, plan.runs, by).await?;
    let healed_ms = last_kill.elapsed().as_millis();
    until_no_place_is_held(&client).await?;
    let seen = observer.seen();
    ensure!(seen.most_of_one <= LIMITS.0, "{} steps of a customer were at work at once", seen.most_of_one);
    ensure!(seen.most <= LIMITS.1, "{} steps were at work at once", seen.most);
    ensure!(seen.most >= LIMITS.1.min(plan.runs) / 2, "only {} were ever at work at once", seen.most);
    ensure!(engine.lock().await.is_running(), "workerd ended by itself");
    Ok(Report { form: form.name(), runs: plan.runs, kills, seen, healed_ms })
}

/// Starts a run, again and again until somebody says that it is started.
async fn start(client: &Client, key: &str, input: &serde_json::Value, patience: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        if let Ok(answer) = client.start("limited", input, Some(key), 0).await
            && (answer.status == 201 || answer.status == 200)
        {
            return Ok(());
        }
        ensure!(began.elapsed() < patience, "the run {key} could not be started");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn kill(engine: &Mutex<Target>, plan: &Plan) -> Result<Kills> {
    let mut random = StdRng::seed_from_u64(plan.seed ^ 1);
    let mut kills = Kills::default();
    for _ in 0..plan.kills {
        sleep(Duration::from_millis(random.random_range(plan.pause_ms.clone()))).await;
        let (whom, down) = (random.random_range(0..10), Duration::from_millis(random.random_range(0..150)));
        engine.lock().await.kill(whom, down, &mut kills).await?;
    }
    Ok(kills)
}

async fn until_all_ended(client: &Client, runs: u32, by: Instant) -> Result<()> {
    let mut last = String::new();
    while Instant::now() < by {
        if let Ok(answer) = client.get("/api/metrics").await
            && let Ok(counts) = answer.json()
        {
            let of = &counts["workflows"]["limited"];
            if of["completed"].as_u64() == Some(u64::from(runs)) && counts["complete"] == true {
                return Ok(());
            }
            last = of.to_string();
        }
        sleep(Duration::from_millis(200)).await;
    }
    let lane = client.get("/api/workflows/limited/lane").await?.body;
    bail!("some of {runs} runs do not end: {last}; the lane: {lane}")
}

async fn until_no_place_is_held(client: &Client) -> Result<()> {
    let began = Instant::now();
    loop {
        let lane = client.get("/api/workflows/limited/lane").await?.json()?;
        if lane["runs"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        ensure!(began.elapsed() < SLOTS_BACK_WITHIN, "places are held after the end of all runs: {lane}");
        sleep(Duration::from_millis(200)).await;
    }
}
