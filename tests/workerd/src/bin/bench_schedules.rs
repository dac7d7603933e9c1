//! How schedules do at a size, on the real workerd: how late their runs start, whether each tick has one, and how long
//! an object with many of them takes. Prints a line for each figure, and fails if a tick has no run or two.

use std::{
    collections::BTreeSet,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use stepwell_workerd_tests::engine::{Client, Engine, Form};
use tokio::time::{Duration, Instant, sleep};

/// How many requests are under way at once.
const AT_ONCE: usize = 16;

/// What is measured.
#[derive(Parser)]
struct Arguments {
    /// At small sizes, in less than 40 seconds.
    #[arg(long)]
    small: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { small } = Arguments::parse();
    let (seconds, at_once, many) = if small { (10, 200, 1_000) } else { (60, 1_000, 10_000) };
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    each_second(&client, "alone", seconds).await?;
    in_one_second(&client, at_once).await?;
    // The one that ticks among them is the last.
    in_one_object(&client, many - 1).await?;
    each_second(&client, "among-many", seconds).await
}

fn now_ms() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// The value that so many of a hundred are not above.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied().unwrap_or_default()
}

async fn put(client: &Client, id: &str, spec: &Value) -> Result<()> {
    let answer = client.request("PUT", &format!("/api/schedules/{id}"), &spec.to_string()).await?;
    ensure!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
    Ok(())
}

/// The times at which the runs with a tag were accepted, and how many of them there are by whom.
async fn starts(client: &Client, tag: &str) -> Result<Vec<(String, u64)>> {
    let runs = client.list(&format!("tag={tag}"), 200).await?;
    let start = |run: &Value| {
        let by = run["started_by"].as_str().unwrap_or_default().to_owned();
        Some((by, run["created_at"].as_u64()?))
    };
    runs.iter().map(|run| start(run).context("a run has a time")).collect()
}

/// One schedule that ticks each second.
async fn each_second(client: &Client, id: &str, seconds: u64) -> Result<()> {
    put(client, id, &json!({ "workflow": "ten", "when": "every second", "tags": [id] })).await?;
    sleep(Duration::from_millis(seconds * 1_000 + 500)).await;
    client.send_post(&format!("/api/schedules/{id}/pause"), "").await?;
    sleep(Duration::from_millis(500)).await;
    let view = client.get(&format!("/api/schedules/{id}")).await?.json()?;
    let starts = starts(client, id).await?;
    let started = view["counts"]["started"].as_u64().context("it is counted")?;
    ensure!(starts.len() as u64 == started, "{started} ticks have {} runs", starts.len());
    let distinct: BTreeSet<_> = starts.iter().map(|(_, at)| at / 1_000).collect();
    let mut late: Vec<_> = starts.iter().map(|(_, at)| at % 1_000).collect();
    late.sort_unstable();
    println!(
        "{id}: one schedule each second for {seconds} s: {} runs in {} seconds, {} missed; late by p50 {} ms, p99 {} ms",
        starts.len(),
        distinct.len(),
        view["counts"]["missed"],
        percentile(&late, 50),
        percentile(&late, 99)
    );
    ensure!(starts.len() as u64 + 2 >= seconds, "it did not tick each second");
    delete(client.clone(), id.to_owned()).await
}

/// An object has 10,000 schedules at the most: each part takes its own away.
async fn delete(client: Client, id: String) -> Result<()> {
    let answer = client.request("DELETE", &format!("/api/schedules/{id}"), "").await?;
    ensure!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
    Ok(())
}

/// Many schedules that are due at the same instant.
async fn in_one_second(client: &Client, count: usize) -> Result<()> {
    let began = Instant::now();
    let due = now_ms()? / 1_000 * 1_000 + 5_000 + count as u64 * 20;
    let spec = json!({ "workflow": "ten", "when": "every 365 days", "starts_at": due, "tags": ["together"] });
    let puts = (0..count).map(|n| put_owned(client.clone(), format!("t{n:05}"), spec.clone()));
    stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let took = began.elapsed();
    ensure!(now_ms()? < due, "the schedules were stored too late: it took {took:?}");
    sleep(Duration::from_millis(due - now_ms()?)).await;
    let until = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let found = starts(client, "together").await?;
        if found.len() >= count || Instant::now() > until {
            break found;
        }
        sleep(Duration::from_millis(300)).await;
    };
    // A second run of one of them would come a little later.
    sleep(Duration::from_secs(1)).await;
    let found = if found.len() == count { starts(client, "together").await? } else { found };
    let by: BTreeSet<_> = found.iter().map(|(by, _)| by).collect();
    ensure!(
        found.len() == count && by.len() == count,
        "{count} schedules have {} runs of {}",
        found.len(),
        by.len()
    );
    let mut late: Vec<_> = found.iter().map(|(_, at)| at.saturating_sub(due)).collect();
    late.sort_unstable();
    println!(
        "together: {count} schedules due at once: {count} runs, none twice; late by p50 {} ms, the last by {} ms; stored in {} ms",
        percentile(&late, 50),
        percentile(&late, 100),
        took.as_millis()
    );
    let deletes = (0..count).map(|n| delete(client.clone(), format!("t{n:05}")));
    stream::iter(deletes).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

async fn put_owned(client: Client, id: String, spec: Value) -> Result<()> {
    put(&client, &id, &spec).await
}

/// Many schedules in one object: how long it takes to change one, and to list a page.
async fn in_one_object(client: &Client, count: usize) -> Result<()> {
    let began = Instant::now();
    let spec = json!({ "workflow": "ten", "when": "0 9 1 1 *" });
    let puts = (0..count).map(|n| put_owned(client.clone(), format!("m{n:05}"), spec.clone()));
    stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let stored = began.elapsed();
    let (mut edits, mut pages) = (Vec::new(), Vec::new());
    for n in 0..100 {
        let (id, spec) =
            (format!("m{:05}", n * count / 100), json!({ "workflow": "ten", "when": "0 9 2 1 *" }));
        let began = Instant::now();
        put(client, &id, &spec).await?;
        edits.push(u64::try_from(began.elapsed().as_millis())?);
        let began = Instant::now();
        let page = client.get(&format!("/api/schedules?after={id}&limit=100")).await?;
        ensure!(page.status == 200, "{}", page.body);
        pages.push(u64::try_from(began.elapsed().as_millis())?);
    }
    edits.sort_unstable();
    pages.sort_unstable();
    println!(
        "many: {count} schedules in one object, stored in {} ms; an edit p50 {} ms, p99 {} ms; a page of 100 p50 {} ms, p99 {} ms",
        stored.as_millis(),
        percentile(&edits, 50),
        percentile(&edits, 99),
        percentile(&pages, 50),
        percentile(&pages, 99)
    );
    Ok(())
}
