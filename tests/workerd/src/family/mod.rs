//! Kills workerd again and again while families of runs go through it, and checks that no child was lost, none was
//! started twice, and each parent has heard of each of its children once.
//!
//! The judge is outside: a ledger in this process, to which each run writes its name. A name that two runs have written
//! is a child that was started twice.

mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

pub use rows::rows_for_each_child;

use crate::{
    engine::{Build, Client, Form},
    kill::{Plan, Transport, kill_repeatedly, ledger::Ledger, repeat, report::Kills, target::Target},
};

/// How many children a root has, and each of those.
const CHILDREN: [u32; 2] = [10, 10];

/// How many parents such a family has.
pub const PARENTS: u32 = 1 + CHILDREN[0];

/// How many children.
const CHILDREN_IN_ALL: u32 = CHILDREN[0] + CHILDREN[0] * CHILDREN[1];

/// Every so many families are cancelled while they are under way.
const CANCELLED_EVERY: u32 = 10;

/// Every so many children of a root continue as new so often.
const LIVES: (u32, usize) = (20, 7);

/// How long families may take to end after the last kill, for each thousand children.
const HEALED_WITHIN_EACH: Duration = Duration::from_secs(60);

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How engine and app were put together.
    pub form: &'static str,
    /// Who was killed how often.
    pub kills: Kills,
    /// Families that were acknowledged.
    pub families: u32,
    /// Families that were cancelled while they were under way.
    pub cancelled: u32,
    /// Runs that have invoked others.
    pub parents: u32,
    /// Runs that were invoked, of families that were not cancelled.
    pub children: u32,
    /// Runs that have ended as cancelled.
    pub runs_cancelled: u64,
    /// Runs that continued as new.
    pub continued: u32,
    /// Names that were written more than once by the same run: its step was cut short.
    pub cut_short: u32,
    /// How long after the last kill everything had ended.
    pub healed_ms: u128,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, kills, families, cancelled, parents, children, .. } = self;
        let Self { runs_cancelled, continued, cut_short, healed_ms, .. } = self;
        writeln!(f, "{form}: {} engine, {} app, {} both killed", kills.engine, kills.app, kills.both)?;
        writeln!(
            f,
            "  {families} families, {cancelled} of them cancelled, {continued} runs continued as new"
        )?;
        writeln!(f, "  {parents} parents have heard of each of their children once")?;
        writeln!(
            f,
            "  {children} children, 0 lost, 0 started twice, {cut_short} steps cut short and run again"
        )?;
        write!(f, "  {runs_cancelled} runs ended as cancelled; at rest {healed_ms} ms after the last kill")
    }
}

/// Runs families under kills, then the verdict; with the end of workerd's log if it is a bad one.
pub async fn run(form: Form, kills: u32, families: u32, cells: u32, seed: u64) -> Result<Report> {
    let pause_ms = 300..1_200;
    let plan = Plan { kills, runs: families, live: 0, cells, transport: Transport::Direct, pause_ms, seed };
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
    let ledger = Ledger::start().await?;
    let client = engine.lock().await.client();
    let span_ms = u64::from(plan.kills) * (plan.pause_ms.start + plan.pause_ms.end) / 2;
    let mut clients = JoinSet::new();
    for number in 0..plan.runs {
        // All are under way when the last third of the kills comes.
        let after = Duration::from_millis(span_ms * 2 / 3 * u64::from(number) / u64::from(plan.runs.max(1)));
        clients.spawn(one_family(client.clone(), plan.patience(), number, ledger.address(), after));
    }
    let kills = kill_repeatedly(engine, plan).await?;
    let last_kill = Instant::now();
    let mut families = Vec::new();
    while let Some(family) = clients.join_next().await {
        families.push(family??);
    }
    let within = HEALED_WITHIN_EACH * (1 + plan.runs * CHILDREN_IN_ALL / 1_000);
    until_at_rest(&client, last_kill + within).await?;
    let healed_ms = last_kill.elapsed().as_millis();

    let mut report = Report { form: form.name(), kills, healed_ms, ..Report::default() };
    report.families = plan.runs;
    for (number, id, is_cancelled) in &families {
        let root: Value = client.show(id, 0).await?.json()?;
        if *is_cancelled {
            report.cancelled += 1;
            ensure!(root["status"] == "cancelled", "family {number} is {}", root["status"]);
            continue;
        }
        ensure!(root["status"] == "completed", "family {number}: {root}");
        let wanted = names(&format!("f{number}"), &CHILDREN);
        let given: Vec<String> = serde_json::from_value(root["output"].clone())?;
        ensure!(given == wanted, "family {number} has heard of {} of {}", given.len(), wanted.len());
        report.children += CHILDREN_IN_ALL;
    }
    let cancelled: BTreeSet<_> =
        families.iter().filter(|family| family.2).map(|family| format!("f{}", family.0)).collect();
    check_ledger(&ledger, &families, &cancelled, &mut report)?;
    check_histories(&client, &mut report).await?;
    let counts: Value = client.get("/api/metrics?workflow=family").await?.json()?;
    report.runs_cancelled = counts["statuses"]["cancelled"].as_u64().unwrap_or_default();
    ensure!(engine.lock().await.is_running(), "workerd ended by itself");
    Ok(report)
}

/// Starts one family under its key until it is acknowledged, and cancels some while they are under way.
async fn one_family(
    client: Client,
    patience: Duration,
    number: u32,
    ledger: String,
    after: Duration,
) -> Result<(u32, String, bool)> {
    sleep(after).await;
    let me = json!({
        "ledger": ledger, "name": format!("f{number}"), "children": CHILDREN, "lives": 0, "child_lives": LIVES,
    });
    let key = format!("family-{number}");
    let started = repeat(patience, || client.start("family", &me, Some(&key), 0)).await?;
    let run: Value = serde_json::from_str(&started)?;
    let id = run["id"].as_str().context("a run has an id")?.to_owned();
    let mut is_cancelled = false;
    if number % CANCELLED_EVERY == CANCELLED_EVERY - 1 {
        // Some of its children are under way by then.
        sleep(Duration::from_secs(1)).await;
        let answer = repeat(patience, || client.cancel(&id)).await?;
        // It may have been quicker.
        let view: Value = serde_json::from_str(&answer)?;
        is_cancelled = view["status"] == "cancelled";
    }
    Ok((number, id, is_cancelled))
}

/// Waits until no run is under way and no message.
async fn until_at_rest(client: &Client, by: Instant) -> Result<()> {
    let mut last = String::new();
    while Instant::now() < by {
        if let (Ok(counts), Ok(outbox)) =
            (client.get("/api/metrics?workflow=family").await, client.get("/api/outbox").await)
        {
            let (counts, outbox) = (counts.json()?, outbox.json()?);
            let live: u64 = ["pending", "running", "sleeping", "waiting", "paused"]
                .iter()
                .filter_map(|status| counts["statuses"][status].as_u64())
                .sum();
            let messages = outbox["messages"].as_array().map_or(0, Vec::len);
            if live == 0 && messages == 0 && counts["complete"] == true {
                return Ok(());
            }
            last = format!("{}; {messages} messages", counts["statuses"]);
        }
        sleep(Duration::from_millis(250)).await;
    }
    bail!("it does not come to rest: {last}")
}

/// All names that come out of a family, in order.
fn names(name: &str, children: &[u32]) -> Vec<String> {
    let (count, below) = children.split_first().map_or((0, &[][..]), |(count, below)| (*count, below));
    let mut names: Vec<_> =
        (0..count).flat_map(|number| self::names(&format!("{name}.{number}"), below)).collect();
    names.push(name.to_owned());
    names
}

/// Each name was written by one run, and each of a family that was not cancelled was.
fn check_ledger(
    ledger: &Ledger,
    families: &[(u32, String, bool)],
    cancelled: &BTreeSet<String>,
    report: &mut Report,
) -> Result<()> {
    let mut by_name: BTreeMap<String, (String, u32)> = BTreeMap::new();
    for entry in ledger.entries() {
        let (run, count) = by_name.entry(entry.step.clone()).or_insert((entry.run.clone(), 0));
        ensure!(*run == entry.run, "{} was started twice: {run} and {}", entry.step, entry.run);
        *count += 1;
    }
    for (number, ..) in families {
        let root = format!("f{number}");
        if !cancelled.contains(&root) {
            let missing = names(&root, &CHILDREN).into_iter().find(|name| !by_name.contains_key(name));
            ensure!(missing.is_none(), "{} has never run", missing.unwrap_or_default());
        }
    }
    report.cut_short = by_name.values().map(|(_, count)| count - 1).sum();
    Ok(())
}

/// Each invocation of a parent that has returned has one end.
async fn check_histories(client: &Client, report: &mut Report) -> Result<()> {
    for run in client.list("workflow=family", 200).await? {
        let id = run["id"].as_str().context("a run has an id")?;
        report.continued += u32::from(run["life"].is_object());
        let has_children = run["head"].as_u64().unwrap_or_default() > 1;
        if !has_children || run["status"] != "completed" {
            continue;
        }
        let history = client.history(id).await?;
        let (mut invoked, mut finished) = (BTreeSet::new(), BTreeSet::new());
        for event in &history {
            if event["event"]["child_invoked"].is_object() {
                invoked.insert(event["seq"].as_u64());
            } else if let Some(of) = event["event"]["child_finished"]["invoked"].as_u64() {
                ensure!(finished.insert(Some(of)), "run {id} has heard twice of the child at {of}");
            }
        }
        ensure!(
            invoked == finished,
            "run {id} has invoked {} and heard of {}",
            invoked.len(),
            finished.len()
        );
        report.parents += u32::from(!invoked.is_empty());
    }
    Ok(())
}
