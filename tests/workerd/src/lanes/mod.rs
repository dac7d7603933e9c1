//! Kills workerd again and again while runs go through limits and jobs through queues, and checks from outside that no more
//! of them were ever at work than the limits say, that all of them end, and that no place is left behind.

mod jobs;
mod observer;

use std::{
    cmp::Reverse,
    fmt::{self, Write as _},
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

use crate::{
    engine::{Client, Engine, Form},
    kill::{Plan, Transport, report::Kills, target::Target},
};
use jobs::Jobs;
pub use observer::{Observer, Seen};

/// A third of the runs are `limited`, to so many of a customer and in all; a third are `limited_whole`, to one of a customer
/// from its beginning to its end; and the steps of a third, `limited_steps`, have the limits of the first.
const LIMITS: (u32, u32) = (2, 10);

/// The workflows of the runs, and where their lanes are.
const WORKFLOWS: [(&str, &str); 3] = [
    ("limited", "/api/workflows/limited/lane"),
    ("limited_whole", "/api/workflows/limited_whole/lane"),
    ("limited_steps", "/api/lanes/asks"),
];

/// Whose runs they are.
const CUSTOMERS: u32 = 50;

/// How long a step is at work.
const WORK: Duration = Duration::from_millis(15);

/// How long one of a run that keeps its place is: so long that kills meet some.
const WHOLE_WORK: Duration = Duration::from_millis(120);

/// How long workerd is left alone between two kills. A run that is hit again and again is called after pauses that grow to
/// half a minute, so a place that several kills in a row have met is back later than one of them explains.
const PAUSE_MS: Range<u64> = 1_000..4_000;

/// How long a slot may be missing after a kill.
const SLOTS_BACK_WITHIN: Duration = Duration::from_secs(40);

/// What came out of it.
#[derive(Debug)]
pub struct Report {
    form: &'static str,
    runs: u32,
    kills: Kills,
    /// What the observer of each workflow has seen.
    seen: [Seen; 3],
    healed_ms: u128,
    jobs: Option<jobs::Report>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, runs, kills, seen: [limited, whole, steps], healed_ms, jobs } = self;
        write!(
            f,
            "{form}: {runs} runs of {CUSTOMERS} customers completed through {} kills (engine {}, app {}, both {}); at most {} steps \
             of a customer at work at once (limit {}), {} in all (limit {}), {} of a customer that has one place (limit 1); of \
             steps with lanes of their own {} and {}; {} steps seen; {} holders of places were killed, and places were back at most {:.1} s later; all ended {healed_ms} ms after the last \
             kill, and no place was left behind",
            kills.engine + kills.app + kills.both,
            kills.engine,
            kills.app,
            kills.both,
            limited.most_of_one,
            LIMITS.0,
            limited.most,
            LIMITS.1,
            whole.most_of_one,
            steps.most_of_one,
            steps.most,
            limited.asked + whole.asked + steps.asked,
            whole.killed_steps,
            whole.slowest_return.as_secs_f64(),
        )?;
        jobs.as_ref().map_or(Ok(()), |jobs| write!(f, "\n{form}: {jobs}"))
    }
}

/// Starts runs under kills, then the verdict; with the end of workerd's log if it is a bad one.
pub async fn run(form: Form, kills: u32, runs: u32, jobs: u32, cells: u32, seed: u64) -> Result<Report> {
    let plan = Plan { kills, runs, live: 0, cells, transport: Transport::Direct, pause_ms: PAUSE_MS, seed };
    // Development may call this machine, where the endpoint of pushes is.
    let variables = [("STEPWELL_CELLS", &*cells.to_string()), ("STEPWELL_DEV", "1")];
    let engine = Mutex::new(Target::Workerd(Engine::start_with(form, &variables).await?));
    match judge(form, &plan, jobs, &engine).await {
        Ok(report) => Ok(report),
        Err(error) => {
            let log = engine.lock().await.log();
            let log = log.get(log.len().saturating_sub(4_000)..).unwrap_or(&log).to_owned();
            Err(error.context(format!("workerd's log ends with:\n{log}\n")))
        }
    }
}

async fn judge(form: Form, plan: &Plan, jobs: u32, engine: &Mutex<Target>) -> Result<Report> {
    let client = engine.lock().await.client();
    let observers =
        [Observer::start(WORK).await?, Observer::start(WHOLE_WORK).await?, Observer::start(WORK).await?];
    let mut tasks = JoinSet::new();
    let mut random = StdRng::seed_from_u64(plan.seed);
    let span_ms = u64::from(plan.kills) * (plan.pause_ms.start + plan.pause_ms.end) / 2;
    for number in 0..plan.runs {
        let customer = format!("c{}", random.random_range(0..CUSTOMERS));
        let steps = random.random_range(1..4);
        let which = number as usize % WORKFLOWS.len();
        let (workflow, address) = (WORKFLOWS[which].0, observers[which].url(&customer));
        let input = json!({ "address": address, "customer": customer, "steps": steps });
        let after = Duration::from_millis(random.random_range(0..=span_ms));
        let (client, patience) = (client.clone(), plan.patience());
        tasks.spawn(async move {
            sleep(after).await;
            start(&client, workflow, &format!("lane-{number}"), &input, patience).await
        });
    }
    let jobs = if jobs == 0 {
        None
    } else {
        let span = Duration::from_millis(span_ms);
        Some(Jobs::start(&client, jobs, span, plan.patience(), plan.seed).await?)
    };
    let kills = kill(engine, plan, &observers).await?;
    let last_kill = Instant::now();
    while let Some(started) = tasks.join_next().await {
        started??;
    }
    // At the most ten at once, and each step takes its time.
    let steps = plan.runs * 2 / LIMITS.1;
    let by = last_kill + SLOTS_BACK_WITHIN + Duration::from_millis(u64::from(steps) * 60) + plan.patience();
    for (index, workflow) in WORKFLOWS.into_iter().enumerate() {
        let runs = (plan.runs + 2 - u32::try_from(index)?) / 3;
        until_all_ended(&client, workflow, runs, by).await?;
    }
    let healed_ms = last_kill.elapsed().as_millis();
    for (_, lane) in WORKFLOWS {
        until_no_place_is_held(&client, lane).await?;
    }
    let jobs = match jobs {
        Some(jobs) => Some(jobs.verdict(SLOTS_BACK_WITHIN + plan.patience()).await?),
        None => None,
    };
    let seen = observers.each_ref().map(Observer::seen);
    let [limited, whole, steps] = &seen;
    for seen in [limited, steps] {
        ensure!(
            seen.most_of_one <= LIMITS.0,
            "{} steps of a customer were at work at once",
            seen.most_of_one
        );
        ensure!(seen.most <= LIMITS.1, "{} steps were at work at once", seen.most);
    }
    ensure!(
        whole.most_of_one <= 1,
        "{} runs of a customer with one place were at work at once",
        whole.most_of_one
    );
    ensure!(limited.most >= LIMITS.1.min(plan.runs) / 4, "only {} were ever at work at once", limited.most);
    let slowest = whole.slowest_return;
    if slowest > SLOTS_BACK_WITHIN {
        let longest = longest(&client, WORKFLOWS[1].0).await?;
        bail!(
            "the place of {} was back only {} s after a kill. The runs that took longest, and what they did:\n{longest}",
            whole.slowest_customer,
            slowest.as_secs()
        );
    }
    ensure!(engine.lock().await.is_running(), "workerd ended by itself");
    Ok(Report { form: form.name(), runs: plan.runs, kills, seen, healed_ms, jobs })
}

/// Starts a run, again and again until somebody says that it is started.
async fn start(
    client: &Client,
    workflow: &str,
    key: &str,
    input: &serde_json::Value,
    patience: Duration,
) -> Result<()> {
    let began = Instant::now();
    loop {
        if let Ok(answer) = client.start(workflow, input, Some(key), 0).await
            && (answer.status == 201 || answer.status == 200)
        {
            return Ok(());
        }
        ensure!(began.elapsed() < patience, "the run {key} could not be started");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn kill(engine: &Mutex<Target>, plan: &Plan, observers: &[Observer]) -> Result<Kills> {
    let mut random = StdRng::seed_from_u64(plan.seed ^ 1);
    let mut kills = Kills::default();
    for _ in 0..plan.kills {
        sleep(Duration::from_millis(random.random_range(plan.pause_ms.clone()))).await;
        let (whom, down) = (random.random_range(0..10), Duration::from_millis(random.random_range(0..150)));
        let mut engine = engine.lock().await;
        observers.iter().for_each(Observer::kill);
        engine.kill(whom, down, &mut kills).await?;
    }
    Ok(kills)
}

async fn until_all_ended(
    client: &Client,
    (workflow, lane): (&str, &str),
    runs: u32,
    by: Instant,
) -> Result<()> {
    let mut last = String::new();
    while Instant::now() < by {
        if let Ok(answer) = client.get("/api/metrics").await
            && let Ok(counts) = answer.json()
        {
            let of = &counts["workflows"][workflow];
            if of["completed"].as_u64() == Some(u64::from(runs)) && counts["complete"] == true {
                return Ok(());
            }
            last = of.to_string();
        }
        sleep(Duration::from_millis(200)).await;
    }
    let lane = client.get(lane).await?.body;
    bail!("some of {runs} runs of {workflow} do not end: {last}; the lane: {lane}")
}

/// The runs of a workflow that took longest, with their histories.
async fn longest(client: &Client, workflow: &str) -> Result<String> {
    let mut runs = client.list(&format!("workflow={workflow}"), 200).await?;
    let took = |run: &Value| {
        run["ended_at"]
            .as_u64()
            .unwrap_or_default()
            .saturating_sub(run["created_at"].as_u64().unwrap_or_default())
    };
    runs.sort_by_key(|run| Reverse(took(run)));
    let mut text = String::new();
    for run in runs.iter().take(5) {
        let id = run["id"].as_str().unwrap_or_default();
        let history = client.get(&format!("/api/executions/{id}/history")).await?.body;
        writeln!(text, "{} ms: {run}\n{history}", took(run))?;
    }
    Ok(text)
}

async fn until_no_place_is_held(client: &Client, lane: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let lane = client.get(lane).await?.json()?;
        if lane["runs"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        ensure!(began.elapsed() < SLOTS_BACK_WITHIN, "places are held after the end of all runs: {lane}");
        sleep(Duration::from_millis(200)).await;
    }
}
