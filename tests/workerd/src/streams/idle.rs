//! Streams on which nothing happens: their cell sleeps.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::time::sleep;

use super::path;
use crate::{
    engine::{Client, Engine, Form},
    following::{Follower, Way},
};

/// workerd puts an object to sleep that has had nothing to do for ten seconds, and the alarm that watches over calls
/// fires once more after five.
const ASLEEP_AFTER: Duration = Duration::from_secs(17);

/// What was seen.
#[derive(Clone, Debug)]
pub struct Idle {
    rows_before: u64,
    rows_after: u64,
    events: usize,
}

/// Leaves streams alone for a while, and looks whether the cell was loaded anew: it counts the rows that an instance
/// has written.
pub async fn asleep() -> Result<Idle> {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("wait", json!(60_000)).await?;
    client.until(&run, "waiting").await?;
    let mut followers = Vec::new();
    for way in Way::ALL {
        let mut follower = Follower::open(&http, &path(&run), way, None).await?;
        follower.next().await?.context("its status")?;
        followers.push(follower);
    }
    let rows_before = written(&client, &run).await?;
    // To ask would wake it.
    sleep(ASLEEP_AFTER).await;
    let rows_after = written(&client, &run).await?;
    ensure!(rows_before > 1, "the run was not written by this instance");
    ensure!(rows_after <= 1, "the cell did not sleep: {rows_after} rows after {rows_before}");
    client.signal(&run, "go", &json!("on"), None).await?;
    let mut events = 0;
    for mut follower in followers {
        let rest = follower.rest().await?;
        ensure!(rest.iter().filter(|event| event.kind == "signal").count() == 1, "{rest:#?}");
        ensure!(rest.last().is_some_and(|event| event.kind == "end"), "{rest:#?}");
        events += rest.len();
    }
    Ok(Idle { rows_before, rows_after, events })
}

/// The rows that the cell's instance has written since it was loaded.
async fn written(client: &Client, run: &str) -> Result<u64> {
    let answer = client.show(run, 0).await?;
    let header = answer.headers.get("stepwell-rows-written").context("it is metered")?;
    Ok(header.to_str()?.parse()?)
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "2 idle streams, one of each kind: after {} s their cell was another instance ({} rows written by the one \
             before, {} by this one), and both streams went on ({} events to the end)",
            ASLEEP_AFTER.as_secs(),
            self.rows_before,
            self.rows_after,
            self.events
        )
    }
}
