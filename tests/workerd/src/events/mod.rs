//! Kills workerd again and again while events go through it, and checks that each accepted event is there once, has started
//! one run for each trigger that it meets, and has reached the runs that wait for it or that it cancels.
//!
//! The judge is outside: it knows which events were accepted, and asks for them, for the runs and for their histories when
//! all is at rest. What it makes of the answers is in [`verdict`].

mod clients;
mod report;
mod seen;
pub mod verdict;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

use crate::{
    engine::{Build, Client, Form},
    kill::{Plan, Transport, report::Kills, target::Target},
};
use clients::{Done, Wish};
pub use report::Report;

/// The topic of all events.
const TOPIC: &str = "order";

/// A trigger starts a run for each event, and another for those that meet its condition.
const TRIGGERS: [(&str, &str); 2] = [("all", "echo"), ("large", "ten")];

/// What the events of the second trigger are above.
const LARGE: u64 = 100;

/// Who is killed, in turn, as [`Target::kill`] has it: the engine, the app, the engine, both. Chance could spare the engine,
/// which holds the topic, if there are few kills.
const WHOM: [u32; 4] = [9, 0, 9, 4];

/// How many events are sent in a second: each is one to four runs, and everything begins again after each kill.
const EVENTS_PER_SECOND: u64 = 10;

/// How long all may take to come to rest after the last kill, for each thousand events; beside the minute that a wait takes
/// to time out.
const HEALED_WITHIN_EACH: Duration = Duration::from_secs(60);

/// How long after that a run that was started twice may take to show up.
const QUIET: Duration = Duration::from_secs(2);

/// Sends events under kills, then the verdict; with the end of workerd's log if it is a bad one.
pub async fn run(form: Form, kills: u32, events: u32, cells: u32, seed: u64) -> Result<Report> {
    // Long enough for runs to begin to wait: an event that is ten seconds old by then is not theirs. And for what is sent to
    // be done within the minute that a wait lasts.
    let mean_ms = u64::from(events / kills.max(1)) * 1_000 / EVENTS_PER_SECOND;
    let pause_ms = mean_ms.max(2_000) / 2..mean_ms.max(2_000) * 3 / 2;
    let plan = Plan { kills, runs: events, live: 0, cells, transport: Transport::Direct, pause_ms, seed };
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
    put_triggers(&client).await?;
    let span_ms = u64::from(plan.kills) * (plan.pause_ms.start + plan.pause_ms.end) / 2;
    let mut tasks = JoinSet::new();
    for wish in Wish::all(plan.runs, plan.seed, span_ms) {
        tasks.spawn(wish.fulfil(client.clone(), plan.patience()));
    }
    let kills = kill_in_turn(engine, plan).await?;
    let last_kill = Instant::now();
    let mut done = Vec::new();
    while let Some(one) = tasks.join_next().await {
        done.push(one??);
    }
    let patience = HEALED_WITHIN_EACH * (1 + plan.runs / 1_000);
    let rest = until_at_rest(&client, &done, last_kill + patience).await;
    let mut report = Report { form: form.name(), kills, ..Report::default() };
    // What is wrong says more than that something is still under way.
    seen::check(&client, &done, &mut report).await?;
    let Report { met, met_early, missed, .. } = report;
    ensure!(3 * (met + met_early) >= missed, "{missed} waits missed their events: too few met them to tell");
    report.healed_ms = rest?.saturating_duration_since(last_kill).as_millis();
    ensure!(engine.lock().await.is_running(), "workerd ended by itself");
    Ok(report)
}

async fn put_triggers(client: &Client) -> Result<()> {
    let when = format!("event.data.amount > {LARGE}");
    let specs = [
        json!({ "on": "order/*", "workflow": TRIGGERS[0].1, "tags": [TRIGGERS[0].0] }),
        json!({ "on": "order/placed", "when": when, "workflow": TRIGGERS[1].1, "tags": [TRIGGERS[1].0] }),
    ];
    for ((id, _), spec) in TRIGGERS.iter().zip(&specs) {
        let answer = client.request("PUT", &format!("/api/triggers/{TOPIC}/{id}"), &spec.to_string()).await?;
        ensure!(answer.status < 300, "{} {}", answer.status, answer.body);
    }
    Ok(())
}

/// Kills and restarts.
async fn kill_in_turn(engine: &Mutex<Target>, plan: &Plan) -> Result<Kills> {
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut kills = Kills::default();
    for (_, &whom) in (0..plan.kills).zip(WHOM.iter().cycle()) {
        sleep(Duration::from_millis(random.random_range(plan.pause_ms.clone()))).await;
        let down = Duration::from_millis(random.random_range(0..150));
        engine.lock().await.kill(whom, down, &mut kills).await?;
    }
    Ok(kills)
}

/// Waits until each event has had its effects, which has to be by then, and until the waits without an event have timed out.
/// Gives when the former was.
async fn until_at_rest(client: &Client, done: &[Done], by: Instant) -> Result<Instant> {
    let wanted = Wanted::of(done);
    let (mut healed, mut last) = (None, String::new());
    let wait = Duration::from_millis(verdict::WAIT_MS);
    while Instant::now() < by + wait {
        if let Ok(answer) = client.get("/api/metrics").await
            && let Ok(counts) = answer.json()
        {
            let waiting = count(&counts, "ship", &["pending", "running", "waiting", "sleeping"]);
            if healed.is_none() && wanted.is_there(&counts) {
                healed = Some(Instant::now());
            }
            if let Some(healed) = healed
                && waiting == 0
            {
                sleep(QUIET).await;
                return Ok(healed);
            }
            last = counts["workflows"].to_string();
        }
        sleep(Duration::from_millis(250)).await;
    }
    bail!("it does not come to rest: {last}")
}

/// How many runs of a workflow have one of these statuses.
fn count(counts: &Value, workflow: &str, statuses: &[&str]) -> u64 {
    statuses.iter().filter_map(|status| counts["workflows"][workflow][status].as_u64()).sum()
}

/// How many runs the events lead to.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    events: u64,
    large: u64,
    met: u64,
    waits: u64,
    cancelled: u64,
}

impl Wanted {
    fn of(done: &[Done]) -> Self {
        let mut wanted = Self::default();
        for Done { wish, .. } in done {
            wanted.events += wish.events().len() as u64;
            wanted.large += wish.events().iter().filter(|event| event.amount > LARGE).count() as u64;
            wanted.met += u64::from(wish.waits() && !wish.events().is_empty());
            wanted.waits += u64::from(wish.waits());
            wanted.cancelled += u64::from(wish.travels() && !wish.events().is_empty());
        }
        wanted
    }

    /// Whether they are there. A wait whose event came too late is over when all are.
    fn is_there(&self, counts: &Value) -> bool {
        count(counts, TRIGGERS[0].1, &["completed"]) >= self.events
            && count(counts, TRIGGERS[1].1, &["completed"]) >= self.large
            && count(counts, "on_the_road", &["cancelled"]) >= self.cancelled
            && (count(counts, "ship", &["completed"]) >= self.met
                || count(counts, "ship", &["completed", "failed"]) >= self.waits)
            && counts["complete"] == true
    }
}
