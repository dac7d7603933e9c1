//! Kills workerd again and again while runs go through it, and checks that nothing was lost.
//!
//! The judge is outside: a ledger in this process, to which every attempt of every step writes. A workflow
//! begins a step only after the one before was acknowledged; so a step that shows up in the ledger after
//! its successor has run again although it was acknowledged.

mod found;
pub mod ledger;
mod plan;
pub(crate) mod report;
pub(crate) mod target;
mod verify;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

use crate::engine::{Build, Client, Form};
use ledger::Ledger;
pub use plan::Plan;
pub use report::Report;
use target::Target;
pub use target::Transport;

/// How much of workerd's log is shown when something went wrong, in bytes.
const LOG_SHOWN: usize = 4_000;

/// How long runs may take to end after the last kill: so long, and longer for each, since nearly all of them may be live.
const HEALED_WITHIN: Duration = Duration::from_secs(60);
const HEALED_EACH: Duration = Duration::from_millis(60);

/// The pauses of a client that gets no answer: twice as long each time. Thousands that ask all the time would keep
/// what they wait for from coming back.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// Runs under kills, then the verdict; with the end of workerd's log if it is a bad one.
pub async fn run(form: Form, build: Build, plan: &Plan) -> Result<Report> {
    let engine = Arc::new(Mutex::new(Target::start(form, build, plan).await?));
    let verdict = judge(form, build, plan, &engine).await;
    match verdict {
        Ok(report) => Ok(report),
        Err(error) => {
            let log = engine.lock().await.log();
            let from = log.len().saturating_sub(LOG_SHOWN);
            let log = log.get(from..).unwrap_or(&log);
            Err(error.context(format!("workerd's log ends with:\n{log}\n")))
        }
    }
}

async fn judge(form: Form, build: Build, plan: &Plan, engine: &Mutex<Target>) -> Result<Report> {
    let ledger = Ledger::start().await?;
    let client = engine.lock().await.client();

    let mut clients = JoinSet::new();
    for (number, wish) in plan.wishes(&ledger.address()).into_iter().enumerate() {
        let workflow = plan.transport.workflow(number);
        clients.spawn(one_run(client.clone(), plan.patience(), workflow, number, wish));
    }
    let kills = kill_repeatedly(engine, plan).await?;
    let last_kill = Instant::now();

    let mut runs = Vec::new();
    while let Some(run) = clients.join_next().await {
        runs.push(run??);
    }
    let mut report = Report { form: form.name(), build: build.name(), kills, ..Report::default() };
    let mut lives = Vec::new();
    for run in &runs {
        lives.push(verify::ended(&client, run, last_kill + plan.healed_within()).await?);
    }
    report.live = verify::live_at_once(&lives);
    ensure!(report.live >= plan.live, "only {} runs were live at once", report.live);
    report.healed_ms = last_kill.elapsed().as_millis();
    let ledger = ledger.entries();
    for run in &runs {
        let history = client.history(&run.id).await?;
        verify::run(run, &history, &ledger, &mut report).with_context(|| format!("run {}", run.id))?;
    }
    verify::nothing_else_ran(&runs, &ledger)?;
    report.searches = found::check(&client, &runs, &lives).await?;
    report.starts_repeated = runs.iter().map(|run| run.starts - 1).sum();
    let mut engine = engine.lock().await;
    ensure!(engine.is_running(), "workerd ended by itself: {}", engine.log());
    Ok(report)
}

/// A run that was acknowledged, and what its client knows of it.
#[derive(Debug)]
pub struct Acknowledged {
    id: String,
    workflow: &'static str,
    tag: String,
    wish: plan::Wish,
    /// How often it took to get the 201.
    starts: u32,
    /// What was sent with the signal.
    signal: Option<u64>,
}

/// Starts one run under its key, again and again until it is acknowledged; sends its signal likewise.
async fn one_run(
    client: Client,
    patience: Duration,
    workflow: &'static str,
    number: usize,
    wish: plan::Wish,
) -> Result<Acknowledged> {
    sleep(wish.start_after).await;
    let (key, tag) = (format!("run-{number}"), found::tag(number));
    let path = format!("/api/workflows/{workflow}/start?tag={tag}");
    let input = wish.input.to_string();
    let headers = [("idempotency-key", key.as_str())];
    let start = || client.request_with(Method::POST, &path, &headers, &input);
    let (mut starts, mut id, mut last, mut pause) = (0, None::<String>, String::new(), PAUSE);
    let began = Instant::now();
    while id.is_none() {
        ensure!(began.elapsed() < patience, "start {number} was never acknowledged; the last answer: {last}");
        starts += 1;
        match start().await {
            Ok(answer) if answer.status < 300 => {
                let run: Value = serde_json::from_str(&answer.body)?;
                id = Some(run["id"].as_str().context("a run has an id")?.to_owned());
            }
            Ok(answer) => {
                last = format!("{} {}", answer.status, answer.body);
                ensure!(answer.status >= 500, "start {number}: {last}");
            }
            Err(error) => last = error.to_string(),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    let id = id.context("acknowledged")?;
    // The same key again must give the same run, in whatever state engine and run are by now.
    if number.is_multiple_of(5) {
        let again = repeat(patience, start).await?;
        ensure!(serde_json::from_str::<Value>(&again)?["id"] == id.as_str(), "key {key} gave two runs");
    }
    if let Some(after) = wish.pause_after {
        sleep(after).await;
        repeat(patience, || client.pause(&id)).await?;
        sleep(Duration::from_millis(300)).await;
        repeat(patience, || client.resume(&id)).await?;
    }
    let signal = if wish.waits {
        sleep(wish.signal_after).await;
        let payload = json!(number);
        repeat(patience, || client.signal(&id, "go", &payload, Some("go-1"))).await?;
        // A repeat under the same id has no effect: the history would show it.
        repeat(patience, || client.signal(&id, "go", &payload, Some("go-1"))).await?;
        Some(number as u64)
    } else {
        None
    };
    Ok(Acknowledged { id, workflow, tag, wish, starts, signal })
}

/// Asks until there is an answer other than 'not now'.
pub(crate) async fn repeat<F>(patience: Duration, ask: impl Fn() -> F) -> Result<String>
where
    F: Future<Output = Result<crate::Answer>>,
{
    let (began, mut pause) = (Instant::now(), PAUSE);
    loop {
        ensure!(began.elapsed() < patience, "no answer in {patience:?}");
        match ask().await {
            Ok(answer) if answer.status < 300 => return Ok(answer.body),
            // The run may be over before a repeat, or before it was paused.
            Ok(answer) if answer.status == 409 => return Ok(answer.body),
            Ok(answer) => ensure!(answer.status >= 500, "{} {}", answer.status, answer.body),
            Err(_) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Kills and restarts.
pub(crate) async fn kill_repeatedly(engine: &Mutex<Target>, plan: &Plan) -> Result<report::Kills> {
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut kills = report::Kills::default();
    for _ in 0..plan.kills {
        sleep(Duration::from_millis(random.random_range(plan.pause_ms.clone()))).await;
        let down = Duration::from_millis(random.random_range(0..150));
        let whom = random.random_range(0..10);
        engine.lock().await.kill(whom, down, &mut kills).await?;
    }
    Ok(kills)
}
