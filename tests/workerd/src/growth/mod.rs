//! A pool that grows while runs are started by their keys: two Workers over the same cells, of which one knows
//! the growth and the other does not, as it is for minutes whenever a deployment changes.
//!
//! Every key is started many times, half of the times through each Worker, in a random order. workerd is killed
//! in the middle; clients repeat what was not answered. Whatever they were told must be one run for each key,
//! and there must be no other run in any cell.

mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

use crate::{
    Config, Worker, Workerd, bundle,
    engine::{Client, KEY},
};
pub use report::Report;

/// The settings of before the growth and of after it.
const BEFORE: &str = "16";
const AFTER: &str = "16,64";

/// How long a client goes on trying.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many of what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Starts in all.
    pub starts: u32,
    /// Starts of each key.
    pub duplicates: u32,
    /// How many are under way at once.
    pub at_once: usize,
    /// SIGKILLs in the middle.
    pub kills: u32,
    /// Where chance comes from.
    pub seed: u64,
}

/// One start that a client wants.
#[derive(Clone, Copy, Debug)]
struct Wish {
    key: u32,
    /// Through which of the two Workers.
    front: usize,
}

/// Starts everything, then the verdict.
pub async fn run(plan: &Plan) -> Result<Report> {
    ensure!(plan.duplicates > 0 && plan.starts >= plan.duplicates, "there is nothing to start twice");
    let workerd = Arc::new(Mutex::new(Workerd::start(&config()?).await?));
    let fronts = {
        let workerd = workerd.lock().await;
        [0, 1].map(|socket| Client::new(workerd.http_at(socket)))
    };
    let began = Instant::now();
    let (answered, repeats) = start_all(plan, &fronts, &workerd).await?;
    let took = began.elapsed();

    let mut report = Report { starts: plan.starts, kills: plan.kills, repeats, took, ..Report::default() };
    let told = one_run_each(&answered)?;
    report.keys = told.len();
    let listed = all_runs(&fronts[1]).await?;
    report.runs = listed.len();
    report.grown = listed.iter().filter(|id| id.starts_with("default-2-")).count();
    let known: BTreeSet<_> = told.into_values().collect();
    let unknown: Vec<_> = listed.difference(&known).take(5).collect();
    ensure!(
        unknown.is_empty(),
        "{} keys have {} runs; nobody was told of {unknown:?}",
        known.len(),
        listed.len()
    );
    let lost: Vec<_> = known.difference(&listed).take(5).collect();
    ensure!(lost.is_empty(), "the list over all cells does not have {lost:?}");
    // Whoever does not know of the growth yet finds its runs all the same.
    for id in listed.iter().filter(|id| id.starts_with("default-2-")).take(10) {
        let answer = fronts[0].show(id, 0).await?;
        ensure!(answer.status == 200, "{id}: {} {}", answer.status, answer.body);
    }
    ensure!(workerd.lock().await.is_running(), "workerd ended by itself");
    Ok(report)
}

/// Two Workers of one deployment, of before and after the growth, over the cells of the first.
fn config() -> Result<Config> {
    let worker = |name: &str, cells| -> Result<Worker> {
        let worker = Worker::bundle(name, &bundle("test-all-in-one")?);
        Ok(worker.text("STEPWELL_KEY", KEY).text("STEPWELL_CELLS", cells))
    };
    Ok(Config::serving("before")
        .also_serving("after")
        .worker(worker("before", BEFORE)?.durable_object("CELL", "Cell").durable_object("STATION", "Station"))
        .worker(
            worker("after", AFTER)?
                .durable_object_of("CELL", "Cell", "before")
                .durable_object_of("STATION", "Station", "before"),
        ))
}

/// Every wish with the run that its client was told of, and how many starts had to be sent again.
async fn start_all(
    plan: &Plan,
    fronts: &[Client; 2],
    workerd: &Mutex<Workerd>,
) -> Result<(Vec<(Wish, String)>, u32)> {
    let mut wishes: Vec<_> = (0..plan.starts)
        .map(|number| Wish { key: number / plan.duplicates, front: (number % 2) as usize })
        .collect();
    wishes.shuffle(&mut StdRng::seed_from_u64(plan.seed));
    let repeats = Arc::new(AtomicU32::new(0));
    let kill_after = wishes.len() / (plan.kills as usize + 1);
    let (mut answered, mut under_way, mut kills) = (Vec::new(), JoinSet::new(), 0);
    for wish in wishes {
        if under_way.len() == plan.at_once
            && let Some(done) = under_way.join_next().await
        {
            answered.push(done??);
        }
        if kills < plan.kills && answered.len() >= kill_after * (kills as usize + 1) {
            kills += 1;
            workerd.lock().await.restart().await?;
        }
        under_way.spawn(start(fronts[wish.front].clone(), wish, repeats.clone()));
    }
    while let Some(done) = under_way.join_next().await {
        answered.push(done??);
    }
    Ok((answered, repeats.load(Ordering::Relaxed)))
}

/// Starts one, again and again until it is answered.
async fn start(client: Client, wish: Wish, repeats: Arc<AtomicU32>) -> Result<(Wish, String)> {
    let (began, key) = (Instant::now(), format!("order-{}", wish.key));
    loop {
        let failed = match client.start("nap", &json!(1), Some(&key), 0).await {
            Ok(answer) if answer.status < 300 => {
                let run: Value = serde_json::from_str(&answer.body)?;
                return Ok((wish, run["id"].as_str().context("a run has an id")?.to_owned()));
            }
            Ok(answer) => {
                ensure!(answer.status >= 500, "{key}: {} {}", answer.status, answer.body);
                answer.body
            }
            Err(error) => error.to_string(),
        };
        ensure!(began.elapsed() < PATIENCE, "{key} was never started: {failed}");
        repeats.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(20)).await;
    }
}

/// The one run that everybody was told of, for each key.
fn one_run_each(answered: &[(Wish, String)]) -> Result<BTreeMap<u32, String>> {
    let mut told: BTreeMap<u32, String> = BTreeMap::new();
    for (wish, id) in answered {
        let first = told.entry(wish.key).or_insert_with(|| id.clone());
        ensure!(first == id, "key {} gave {first} and {id}", wish.key);
    }
    Ok(told)
}

/// The ids of all runs, page by page.
async fn all_runs(client: &Client) -> Result<BTreeSet<String>> {
    let (mut ids, mut cursor) = (BTreeSet::new(), None::<String>);
    loop {
        let next = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
        let page = client.get(&format!("/api/executions?limit=200{next}")).await?.json()?;
        for run in page["executions"].as_array().context("a list has executions")? {
            let id = run["id"].as_str().context("a run has an id")?;
            ensure!(ids.insert(id.to_owned()), "{id} is in two pages");
        }
        match page["cursor"].as_str() {
            Some(text) => cursor = Some(text.to_owned()),
            None => return Ok(ids),
        }
    }
}
