//! What a child costs beyond a run of its own.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::engine::{Client, Engine, Form};

/// How many children are measured.
const CHILDREN: u32 = 10;

/// The rows that each child costs beyond a run of its own, alarms included: a parent with children, against the same
/// parent without any, and as many runs that nobody has invoked. In one cell that nothing else happens in.
pub async fn rows_for_each_child(form: Form) -> Result<f64> {
    let engine = Engine::start_metered(form, 1).await?;
    let client = engine.client();
    // The first run of a cell makes its tables, and the first letter.
    let (_, id) = family(&client, 1, None).await?;
    let (parent, mut id) = family(&client, 0, Some(&id)).await?;
    let mut alone = 0;
    for _ in 0..CHILDREN {
        let (rows, next) = family(&client, 0, Some(&id)).await?;
        (alone, id) = (alone + rows, next);
    }
    let (together, id) = family(&client, CHILDREN, Some(&id)).await?;
    let run: Value = client.show(&id, 0).await?.json()?;
    anyhow::ensure!(run["output"].as_array().map(Vec::len) == Some(1 + CHILDREN as usize), "{run}");
    let beyond = u32::try_from(together.saturating_sub(parent + alone))?;
    Ok(f64::from(beyond) / f64::from(CHILDREN))
}

/// Runs a family, and gives the rows that it took since another one.
async fn family(client: &Client, children: u32, after: Option<&str>) -> Result<(u64, String)> {
    let before = match after {
        Some(id) => rows(client, id).await?,
        None => 0,
    };
    let me = json!({ "ledger": null, "name": "m", "children": [children], "lives": 0, "child_lives": null });
    let id = client.start_id("family", me).await?;
    client.until(&id, "completed").await?;
    // The end of a child is acknowledged after its parent has heard of it.
    sleep(Duration::from_millis(500)).await;
    Ok((rows(client, &id).await? - before, id))
}

async fn rows(client: &Client, id: &str) -> Result<u64> {
    let answer = client.show(id, 0).await?;
    let header = answer.headers.get("stepwell-rows-written").context("it is metered")?;
    Ok(header.to_str()?.parse()?)
}
