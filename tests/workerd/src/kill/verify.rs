//! The verdict: what the ledger, the histories and the results say must fit together.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Acknowledged, ledger::Entry, report::Report};
use crate::engine::Client;

/// The step that must not run twice.
const ONCE: &str = "step:0:once";

/// A run has completed by then; gives when it was accepted and when it ended.
pub async fn ended(client: &Client, run: &Acknowledged, by: Instant) -> Result<(u64, u64)> {
    loop {
        let wait = by.saturating_duration_since(Instant::now()).as_secs().clamp(1, 10);
        let view = client.show(&run.id, u32::try_from(wait)?).await?.json()?;
        match view["status"].as_str() {
            Some("completed") => {
                let at = |name: &str| view[name].as_u64().context("a run that has ended has its times");
                return Ok((at("created_at")?, at("ended_at")?));
            }
            Some("failed" | "cancelled" | "paused") => bail!("run {} ended badly: {view}", run.id),
            _ if Instant::now() >= by => bail!("run {} did not end in time: {view}", run.id),
            _ => {}
        }
    }
}

/// How many of these were live at once, at the most.
pub fn live_at_once(lives: &[(u64, u64)]) -> u32 {
    let mut changes: Vec<_> = lives.iter().flat_map(|(from, to)| [(*from, 1), (*to, -1)]).collect();
    changes.sort_unstable();
    let (mut live, mut most) = (0_i64, 0);
    for (_, change) in changes {
        live += change;
        most = most.max(live);
    }
    u32::try_from(most).unwrap_or_default()
}

/// One run against its history and the ledger.
pub fn run(run: &Acknowledged, history: &[Value], ledger: &[Entry], report: &mut Report) -> Result<()> {
    let mine: Vec<_> = ledger.iter().enumerate().filter(|(_, entry)| entry.run == run.id).collect();
    let recorded = recorded(history)?;
    let stages = run.wish.stages();
    let expected: BTreeSet<_> = stages.iter().flatten().cloned().collect();
    ensure!(recorded.keys().cloned().collect::<BTreeSet<_>>() == expected, "recorded: {recorded:?}");

    let mut after = 0;
    for stage in &stages {
        let mut last = after;
        for op in stage {
            let key = format!("{}/{op}", run.id);
            let attempts: Vec<_> = mine.iter().filter(|(_, entry)| entry.key == key).collect();
            let numbers: Vec<_> = attempts.iter().map(|(number, _)| *number).collect();
            if op == ONCE {
                ensure!(numbers.len() <= 1, "{op} must not run twice: {numbers:?}");
            }
            // One that was interrupted may not have reached the ledger at all.
            let Some(&first) = numbers.first() else {
                ensure!(op == ONCE && recorded[op].is_none(), "{op} is not in the ledger");
                report.interrupted += 1;
                continue;
            };
            ensure!(first >= after, "{op} began before the steps that it follows were acknowledged");
            match recorded[op] {
                Some(outcome) => ensure!(
                    numbers.contains(&usize::try_from(outcome)?),
                    "{op}: {outcome} was recorded, which none of its attempts {numbers:?} gave"
                ),
                None => report.interrupted += 1,
            }
            last = last.max(*numbers.last().unwrap_or(&first) + 1);
            count(op, &attempts, run.wish.failures, report)?;
        }
        // Everything of the next stage must come after the last attempt of this one: had a step run again
        // after it was acknowledged, its attempt would stand behind its successor's.
        after = last;
    }
    let signals = history.iter().filter(|record| record["event"].get("signal_received").is_some()).count();
    ensure!(signals == usize::from(run.signal.is_some()), "{signals} signals in the history");
    report.signals += u32::try_from(signals)?;
    report.runs += 1;
    Ok(())
}

/// The recorded result of each step: at most one; none for the one that was interrupted.
fn recorded(history: &[Value]) -> Result<BTreeMap<String, Option<u64>>> {
    let mut recorded = BTreeMap::new();
    for (record, expected) in history.iter().zip(1..) {
        ensure!(record["seq"] == expected, "the history has a hole at {expected}");
        let Some(finished) = record["event"].get("step_finished") else { continue };
        let op = finished["op"].as_str().context("a step has a name")?.to_owned();
        let value = finished["outcome"]["ok"].as_u64();
        let was_interrupted = finished["outcome"]["err"]["code"] == "step_interrupted";
        ensure!(value.is_some() || op == ONCE && was_interrupted, "{op}: {finished}");
        ensure!(recorded.insert(op.clone(), value).is_none(), "{op} was recorded twice");
    }
    Ok(recorded)
}

fn count(op: &str, attempts: &[&(usize, &Entry)], failures: u32, report: &mut Report) -> Result<()> {
    let failures = if op == "step:0:flaky" { failures } else { 0 };
    let numbers: Vec<_> = attempts.iter().map(|(_, entry)| entry.attempt).collect();
    ensure!(numbers.is_sorted(), "{op}: the attempts went back: {numbers:?}");
    let distinct: BTreeSet<_> = numbers.iter().copied().collect();
    ensure!(distinct == (1..=failures + 1).collect(), "{op}: attempts {numbers:?}, failures {failures}");
    report.steps += 1;
    report.attempts += u32::try_from(numbers.len())?;
    report.retries += failures;
    report.cut_short += u32::try_from(numbers.len() - distinct.len())?;
    Ok(())
}

/// Every attempt belongs to a run that was acknowledged: no key has started a second run.
pub fn nothing_else_ran(runs: &[Acknowledged], ledger: &[Entry]) -> Result<()> {
    let known: BTreeSet<_> = runs.iter().map(|run| run.id.as_str()).collect();
    ensure!(known.len() == runs.len(), "two keys gave the same run");
    for entry in ledger {
        ensure!(known.contains(entry.run.as_str()), "run {} was started by nobody", entry.run);
    }
    Ok(())
}
