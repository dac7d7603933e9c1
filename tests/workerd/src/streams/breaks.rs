//! Streams through kills, and with clients that leave again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{PATIENCE, Plan, path, records};
use crate::{
    Http,
    engine::{Client, Engine, Form},
    following::{Follower, Seen, Way},
};

/// Runs that are followed, each by two clients.
const RUNS: usize = 12;

/// What each of them does: steps, chunks of each, milliseconds for each chunk.
const TALK: (u32, u32, u64) = (25, 8, 40);

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Breaks {
    runs: usize,
    streams: usize,
    left: u64,
    broken: u64,
    kills: u32,
    events: usize,
    told: usize,
    statuses: usize,
}

/// How often clients leave, and how often they were thrown out.
struct Counts {
    to_leave: AtomicI64,
    left: AtomicU64,
    broken: AtomicU64,
}

/// Follows runs while everything breaks, and compares with what a reader sees that comes afterwards.
pub async fn through_breaks(plan: &Plan) -> Result<Breaks> {
    let mut engine = Engine::start(Form::AllInOne, plan.cells).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let counts = Arc::new(Counts {
        to_leave: AtomicI64::new(i64::from(plan.reconnects)),
        left: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    });
    let all = tokio::spawn(follow_all(http.clone(), counts.clone(), RUNS));
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(client.start_id("chatty", json!([TALK.0, TALK.1, TALK.2])).await?);
    }
    let mut followers = JoinSet::new();
    for (number, run) in runs.iter().chain(&runs).enumerate() {
        let (http, run, counts) = (http.clone(), run.clone(), counts.clone());
        let seed = plan.seed.wrapping_add(number as u64);
        let way = Way::ALL[(number / RUNS + number) % 2];
        followers.spawn(async move {
            let events = timeout(PATIENCE, follow(&http, &run, way, &counts, seed)).await;
            anyhow::Ok((run, way, events.context("the run never ended")??))
        });
    }
    let mut random = StdRng::seed_from_u64(plan.seed);
    for _ in 0..plan.kills {
        sleep(Duration::from_millis(random.random_range(300..1_200))).await;
        engine.engine.kill();
        engine.engine.restart().await?;
    }
    let mut breaks = Breaks { runs: RUNS, kills: plan.kills, ..Breaks::default() };
    while let Some(followed) = followers.join_next().await {
        let (run, way, events) = followed??;
        judge(&client, &http, &run, &events, &mut breaks)
            .await
            .with_context(|| format!("{run} by {way:?}"))?;
    }
    breaks.statuses = timeout(PATIENCE, all).await.context("not all runs were seen to end")???;
    (breaks.left, breaks.broken) =
        (counts.left.load(Ordering::Relaxed), counts.broken.load(Ordering::Relaxed));
    ensure!(breaks.left >= u64::from(plan.reconnects), "clients left only {} times: {breaks}", breaks.left);
    Ok(breaks)
}

/// Compares what a client has seen with the run's history, and with what another one sees now.
async fn judge(client: &Client, http: &Http, run: &str, events: &[Seen], breaks: &mut Breaks) -> Result<()> {
    let history = client.history(run).await?;
    ensure!(records(events) == history, "it saw {} events of {}", records(events).len(), history.len());
    let late = Follower::open(http, &path(run), Way::Socket, None).await?.rest().await?;
    let (seen, wanted) = (told(events), told(&late));
    ensure!(seen == wanted, "it saw {} items of {}: {seen:?} {wanted:?}", seen.len(), wanted.len());
    let mut ids = BTreeSet::new();
    ensure!(events.iter().all(|event| ids.insert(&event.id)), "an event came twice");
    let last_status = events.iter().rev().find(|event| event.kind == "status");
    ensure!(last_status.is_some_and(|event| event.data["status"] == "completed"), "{last_status:?}");
    breaks.streams += 1;
    breaks.events += history.len();
    breaks.told += wanted.len();
    Ok(())
}

/// What the run has published, among events.
fn told(events: &[Seen]) -> Vec<(u64, Value)> {
    let told = events.iter().filter(|event| ["log", "chunk"].contains(&event.kind.as_str()));
    told.map(|event| (event.at, event.data.clone())).collect()
}

/// Follows a run to its end, leaving and coming back with the last cursor, also when it is thrown out.
async fn follow(http: &Http, run: &str, way: Way, counts: &Counts, seed: u64) -> Result<Vec<Seen>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut events: Vec<Seen> = Vec::new();
    loop {
        let cursor = events.last().map(|event| event.id.clone());
        let Ok(mut follower) = Follower::open(http, &path(run), way, cursor.as_deref()).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let leaves = counts.to_leave.load(Ordering::Relaxed) > 0;
        let leave_at = Instant::now() + Duration::from_millis(random.random_range(20..900));
        loop {
            let left = leave_at.saturating_duration_since(Instant::now());
            let next = if leaves { timeout(left, follower.next()).await } else { Ok(follower.next().await) };
            match next {
                Err(_) => {
                    counts.to_leave.fetch_sub(1, Ordering::Relaxed);
                    counts.left.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Ok(Ok(Some(event))) if event.kind == "end" => return Ok(events),
                Ok(Ok(Some(event))) => events.push(event),
                Ok(Ok(None) | Err(_)) => {
                    counts.broken.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
}

/// Follows all runs until so many have ended. Says how many statuses it saw: none of them twice, and none older than
/// one that came before.
async fn follow_all(http: Http, counts: Arc<Counts>, runs: usize) -> Result<usize> {
    let (mut cursor, mut last, mut statuses) = (None::<String>, BTreeMap::<String, (u64, String)>::new(), 0);
    loop {
        // From the beginning: the first runs may be there already.
        let from = cursor.as_deref().unwrap_or("start");
        let Ok(mut follower) = Follower::open(&http, "/api/stream", Way::Events, Some(from)).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Ok(Some(event)) = follower.next().await {
            cursor = Some(event.id.clone());
            if event.kind != "status" {
                continue;
            }
            statuses += 1;
            let word = |name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
            let now = (event.at, word("status"));
            if let Some(before) = last.insert(word("id"), now.clone()) {
                ensure!(before != now && before.0 <= now.0, "{before:?} and then {now:?}");
            }
            if last.len() == runs && last.values().all(|(_, status)| status == "completed") {
                return Ok(statuses);
            }
        }
        counts.broken.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Breaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} streams of {} runs through {} SIGKILLs: clients left {} times, were thrown out {} times; {} events and \
             {} logs and chunks seen, 0 missing, 0 twice; {} statuses in the stream of all runs",
            self.streams,
            self.runs,
            self.kills,
            self.left,
            self.broken,
            self.events,
            self.told,
            self.statuses
        )
    }
}
