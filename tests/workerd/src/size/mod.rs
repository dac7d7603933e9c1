//! How large it gets: many runs at once, many asleep, one that is very long, endpoints that hang, many cancelled, many in
//! a queue or a lane. Each prints what it has counted, and fails if something that must hold does not.

pub mod bulk;
pub(crate) mod endpoint;
pub mod hung;
pub mod jobs;
pub mod lane;
pub mod listed;
pub mod live;
pub mod long;
mod memory;
pub mod sleeping;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Answer, engine::Client};

/// How many requests are sent at once.
const CLIENTS: u32 = 32;

/// How long a run may take from when it is asked for.
const END_WITHIN_S: u32 = 20;

/// Starts so many runs, from several clients at once; gives their ids.
async fn start_many(client: &Client, workflow: &str, input: &Value, runs: u32) -> Result<Vec<String>> {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, workflow, input) = (client.clone(), workflow.to_owned(), input.clone());
        let share = runs / CLIENTS + u32::from(number < runs % CLIENTS);
        clients.spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..share {
                ids.push(client.start_id(&workflow, input.clone()).await?);
            }
            anyhow::Ok(ids)
        });
    }
    let mut ids = Vec::new();
    while let Some(started) = clients.join_next().await {
        ids.extend(started??);
    }
    Ok(ids)
}

/// Asserts that every one of these runs has completed, or does so soon.
async fn all_complete(client: &Client, ids: &[String]) -> Result<()> {
    let mut clients = JoinSet::new();
    for share in ids.chunks(ids.len().div_ceil(CLIENTS as usize).max(1)) {
        let (client, share) = (client.clone(), share.to_vec());
        clients.spawn(async move {
            for id in share {
                let run = client.show(&id, END_WITHIN_S).await?.json()?;
                ensure!(run["status"] == "completed", "{run}");
            }
            Ok(())
        });
    }
    while let Some(checked) = clients.join_next().await {
        checked??;
    }
    Ok(())
}

/// One short run from start to end.
async fn one_run(client: &Client) -> Result<Answer> {
    let answer = client.start("ten", &json!(null), None, END_WITHIN_S).await?;
    let run = answer.json()?;
    ensure!(run["status"] == "completed", "{run}");
    Ok(answer)
}

/// The rows that a cell has read since it was loaded.
fn rows_read(answer: &Answer) -> Result<u64> {
    let header = answer.headers.get("stepwell-rows-read").context("the meter is on")?;
    Ok(header.to_str()?.parse()?)
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
