//! A cell with a very large table: pages, counts, the stream from its start and the limit of live runs must not look at
//! all of it for each request.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Size, one_cell, seed, within};
use crate::{
    engine::Client,
    following::{Follower, Way},
};

/// How often each thing is asked for.
const ASKED: usize = 40;

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// How long the stream of all runs may take for each thousand of them.
const THOUSAND_WITHIN: Duration = Duration::from_millis(500);

/// Seeds a large table, and asks for everything that could look at all of it.
pub async fn run(size: Size) -> Result<String> {
    let runs: u64 = size.pick(40_000, 600_000);
    let mut engine = one_cell().await?;
    let client = engine.client();
    let template = client.start_id("nap", json!(30 * 24 * 60 * 60 * 1_000_u64)).await?;
    client.until(&template, "sleeping").await?;
    // A share of them has ended, as in a cell that has been there for long.
    let changes = [("suffix", "printf('%012d', i)")];
    seed::seed(&mut engine, &seed::copies(1, runs, &changes)).await?;
    let total = runs + 1;

    let keyed = limited(&client, runs / 2).await?;
    let (mut refused, mut slowest_start) = (0, Duration::ZERO);
    // While it counts, a slice of the rows for each request, some are accepted.
    for _ in 0..total / 10_000 + 20 {
        let asked = Instant::now();
        let answer = keyed.start("nap", &json!(1), None, 0).await?;
        slowest_start = slowest_start.max(asked.elapsed());
        refused += u64::from(answer.status == 429);
    }
    ensure!(refused >= 20, "the limit of live runs holds for {refused} starts only");
    within("a start at the limit of live runs", slowest_start, ANSWER_WITHIN)?;

    let began = Instant::now();
    let mut slowest_count = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let metrics = client.get("/api/metrics").await?.json()?;
        slowest_count = slowest_count.max(asked.elapsed());
        if metrics["complete"] == true {
            ensure!(metrics["total"].as_u64().is_some_and(|counted| counted >= total), "{metrics}");
            break;
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "the count does not end: {metrics}");
    }
    let page = slowest(&client, "/api/executions?limit=50").await?;
    let filtered = slowest(&client, "/api/executions?limit=50&status=failed").await?;
    within("a page", page, ANSWER_WITHIN)?;
    within("a page that finds nothing", filtered, ANSWER_WITHIN)?;

    let began = Instant::now();
    let mut follower = Follower::open_as(&client, "/api/stream?cursor=start", Way::Socket, None).await?;
    let mut seen = 0;
    while seen < total {
        let event = follower.next().await?.context("the stream of all runs has no end")?;
        seen += u64::from(event.kind == "status");
    }
    let streamed = began.elapsed();
    within("the stream of all runs", streamed, THOUSAND_WITHIN * u32::try_from(total / 1_000)?)?;
    Ok(format!(
        "{total} runs in one cell: a page in at most {} ms, one that finds nothing {} ms, a count {} ms, a start at \
         the limit {} ms; the stream from its start shows all in {} ms",
        page.as_millis(),
        filtered.as_millis(),
        slowest_count.as_millis(),
        slowest_start.as_millis(),
        streamed.as_millis()
    ))
}

/// A key of the namespace, which may have so many live runs.
async fn limited(client: &Client, live_runs: u64) -> Result<Client> {
    let limits = json!({ "live_runs": live_runs }).to_string();
    let set = client.request("PUT", "/api/namespaces/default/limits", &limits).await?;
    ensure!(set.status == 200, "{} {}", set.status, set.body);
    let made = client.post_json("/api/keys", &json!({ "name": "limited", "scopes": ["write"] })).await?;
    Ok(client.with_key(made["key"].as_str().context("a new key is shown once")?))
}

/// The slowest of many answers, page after page.
async fn slowest(client: &Client, path: &str) -> Result<Duration> {
    let (mut slowest, mut next) = (Duration::ZERO, path.to_owned());
    for _ in 0..ASKED {
        let asked = Instant::now();
        let page = client.get(&next).await?;
        slowest = slowest.max(asked.elapsed());
        ensure!(page.status == 200, "{} {}", page.status, page.body);
        next = match page.json()?["cursor"].as_str() {
            Some(cursor) => format!("{path}&cursor={cursor}"),
            None => path.to_owned(),
        };
    }
    Ok(slowest)
}
