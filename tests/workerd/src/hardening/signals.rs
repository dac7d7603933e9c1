//! Floods of signals: each costs the same however many came before, their number and their bytes are bounded, and a
//! program that comes back to many large ones has only a few of them in memory.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Size, bounded_cell, one_cell};
use crate::{Outside, engine::Client};

/// The most signals that a run keeps which nobody has taken.
const UNREAD_MAX: usize = 10_000;

/// How much slower the last signals may be than the first: with a look at all that came before, the last of 10,000 took
/// more than ten times as long.
const SLOWER_MAX: f64 = 3.0;

/// How often the run that takes them is looked at, for 20 seconds each time, until it has ended.
const LOOKS_MAX: usize = 9;

/// The bytes of a large signal.
const LARGE: usize = 1_900_000;

/// How much memory workerd may take for a flood of large signals, above what it takes for nothing. A program that kept
/// all of them would take more for its own memory alone.
const MEMORY_MAX_MIB: u64 = 280;

/// Sends many small signals to one run and many large ones to another.
pub async fn run(size: Size) -> Result<String> {
    let engine = one_cell().await?;
    let client = engine.client();
    let waiting = client.start_id("wait", json!(600_000)).await?;
    client.until(&waiting, "waiting").await?;
    let part = size.pick(500, 1_000);
    let count = size.pick(3_000, UNREAD_MAX);
    let mut times = Vec::new();
    for _ in 0..count / part {
        times.push(flood(&client, &waiting, part).await?);
    }
    let (first, last) = (times[0], times[times.len() - 1]);
    let slower = last.as_secs_f64() / first.as_secs_f64();
    ensure!(slower < SLOWER_MAX, "{part} signals take {first:?} at first and {last:?} at last");
    if count == UNREAD_MAX {
        let refused = client.signal(&waiting, "other", &json!(0), None).await?;
        ensure!(
            refused.problem()? == (429, "too_many_signals".into()),
            "{} {}",
            refused.status,
            refused.body
        );
    }
    // What it waits for still gets through.
    ensure!(client.signal(&waiting, "go", &json!("on"), None).await?.status == 202, "it is not let go on");
    let ended = client.show(&waiting, 20).await?.json()?;
    ensure!(ended["output"] == "on", "{ended}");

    drop((client, engine));
    let engine = bounded_cell().await?;
    let client = engine.client();
    let large = size.pick(20, 100);
    let idle_kib = engine.engine.memory()?.0;
    let outside = Outside::start().await?;
    let gathering = client.start_id("gather", json!([outside.url("late"), large])).await?;
    outside.until_asked(2).await?;
    let payload = Value::from("x".repeat(LARGE - 2));
    for _ in 0..large {
        let answer = client.signal(&gathering, "part", &payload, None).await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.body);
    }
    outside.let_go();
    let began = Instant::now();
    let mut gathered = Value::Null;
    for _ in 0..LOOKS_MAX {
        gathered = client.show(&gathering, 20).await?.json()?;
        if gathered["status"] == "completed" || gathered["status"] == "failed" {
            break;
        }
    }
    ensure!(gathered["output"] == json!(large * (LARGE - 2)), "{} {}", gathered["status"], gathered["error"]);
    let peak_mib = engine.engine.memory()?.1.saturating_sub(idle_kib) / 1_024;
    ensure!(peak_mib <= MEMORY_MAX_MIB, "{large} large signals take {peak_mib} MiB");
    Ok(format!(
        "{count} signals: the first {part} in {} ms, the last in {} ms; {large} of {LARGE} bytes taken {} ms after \
         their run comes back, with {peak_mib} MiB of memory",
        first.as_millis(),
        last.as_millis(),
        began.elapsed().as_millis()
    ))
}

/// Sends so many small signals that nobody waits for, one after the other.
async fn flood(client: &Client, run: &str, count: usize) -> Result<Duration> {
    let began = Instant::now();
    for n in 0..count {
        let answer = client.signal(run, "other", &json!(n), None).await?;
        ensure!(answer.status == 202, "signal {n}: {} {}", answer.status, answer.body);
    }
    Ok(began.elapsed())
}
