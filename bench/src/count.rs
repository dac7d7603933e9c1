//! What a run costs in what Cloudflare bills for an object: rows written and requests, counted and not timed.
//!
//! Rows are counted by the platform: each cursor's `rowsWritten`, summed up by the object since it was loaded,
//! and one for each alarm that is set. An object tells its sum in its answers; what the sums have grown by,
//! divided by the runs, is the cost of a run. Tables of objects that are used again are created before, in the
//! warm-up; a fresh object creates its own, and pays for them.
//!
//! Requests are the calls that reach an object from outside of it, and alarms. What a program sends on the
//! session that the object gave it is part of the call that gave it, and is not billed again. The hand-written
//! objects count the calls of their one method. Stepwell's runs count theirs in their own meter; the alarms are
//! the rows that the cells have written beyond those that the meters of the runs know. Each of them is an alarm
//! that was set, and fires once at most.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use http::HeaderMap;
use serde::Deserialize;
use stepwell_workerd_tests::Workerd;

use crate::{
    load::{Load, as_f64},
    observers::Observers,
    system::{System, Workload},
};

/// Enough for each of 16 objects to be found by chance.
const WARM_UP: Duration = Duration::from_secs(1);

/// What one run costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Rows written.
    pub rows: f64,
    /// Requests and alarms that reached objects.
    pub requests: f64,
}

/// What an object has told of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    rows: u64,
    requests: u64,
}

/// The sums of all objects that have answered, and of the meters of all runs.
#[derive(Debug, Default)]
struct Ledger {
    objects: BTreeMap<String, Totals>,
    runs: u64,
    metered_rows: u64,
}

#[derive(Deserialize)]
struct BareAnswer {
    totals: BareTotals,
}

#[derive(Deserialize)]
struct BareTotals {
    object: String,
    rows_written: u64,
    requests: u64,
}

#[derive(Deserialize)]
struct StepwellAnswer {
    id: String,
    meter: StepwellMeter,
}

#[derive(Deserialize)]
struct StepwellMeter {
    rows_written: u64,
    requests: u64,
}

/// Counts one system under each workload and concurrency, in the order of `cases`.
pub async fn count(system: System, cases: &[(Workload, u32)], seconds: Duration) -> Result<Vec<Cost>> {
    let mut observers = Observers::of(system).await?;
    let workerd = Workerd::start(&system.config(true, &observers.collector())?).await?;
    observers.watch(workerd.http());
    let address = workerd.address();
    let ledger = RefCell::new(Ledger::default());
    let observe = |headers: &HeaderMap, body: &[u8]| ledger.borrow_mut().note(system, headers, body);
    let mut costs = Vec::new();
    for &(workload, concurrency) in cases {
        let steps = workload.steps();
        let warm_up = Load {
            system,
            address: &address,
            steps,
            concurrency,
            warm_up: Duration::ZERO,
            measured: WARM_UP,
            // All cases share the process.
            runs_max: system.runs_max() / (2 * cases.len() as u64),
        };
        warm_up.run(observe).await?;
        let before = ledger.borrow().sums();
        Load { measured: seconds, ..warm_up }.run(observe).await?;
        costs.push(ledger.borrow().sums().cost_since(before));
    }
    Ok(costs)
}

impl Ledger {
    fn note(&mut self, system: System, headers: &HeaderMap, body: &[u8]) -> Result<()> {
        self.runs += 1;
        if system.is_stepwell() {
            let answer: StepwellAnswer = serde_json::from_slice(body)?;
            let rows = headers.get("stepwell-rows-written").context("the engine does not count its rows")?;
            // pool-generation-cell-number-suffix: the first three say which object it is.
            let object = answer.id.splitn(4, '-').take(3).collect::<Vec<_>>().join("-");
            self.metered_rows += answer.meter.rows_written;
            let totals = self.objects.entry(object).or_default();
            totals.rows = totals.rows.max(rows.to_str()?.parse()?);
            totals.requests += answer.meter.requests;
        } else {
            let BareTotals { object, rows_written, requests } =
                serde_json::from_slice::<BareAnswer>(body)?.totals;
            // Answers of one object may come in another order than they were given.
            let totals = self.objects.entry(object).or_default();
            *totals = Totals { rows: totals.rows.max(rows_written), requests: totals.requests.max(requests) };
        }
        Ok(())
    }

    fn sums(&self) -> Sums {
        let rows: u64 = self.objects.values().map(|totals| totals.rows).sum();
        let called: u64 = self.objects.values().map(|totals| totals.requests).sum();
        // Only Stepwell's runs have meters.
        let alarms = if self.metered_rows == 0 { 0 } else { rows.saturating_sub(self.metered_rows) };
        Sums { runs: self.runs, rows, requests: called + alarms }
    }
}

/// All that was counted until some moment.
#[derive(Clone, Copy, Debug)]
struct Sums {
    runs: u64,
    rows: u64,
    requests: u64,
}

impl Sums {
    fn cost_since(self, before: Self) -> Cost {
        let grown = |now: u64, then: u64| as_f64(usize::try_from(now - then).unwrap_or(usize::MAX));
        let runs = grown(self.runs, before.runs).max(1.0);
        Cost {
            rows: grown(self.rows, before.rows) / runs,
            requests: grown(self.requests, before.requests) / runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stepwell(ledger: &mut Ledger, cell: u32, run: u32, total: u64, meter: u64) {
        let mut headers = HeaderMap::new();
        headers.insert("stepwell-rows-written", total.into());
        let body = format!(
            r#"{{"id":"default-1-{cell}-{run}-abc","meter":{{"rows_written":{meter},"requests":1}}}}"#
        );
        ledger
            .note(System::Stepwell, &headers, body.as_bytes())
            .expect("the answer is as the engine gives it");
    }

    #[test]
    fn rows_that_no_run_knows_of_are_alarms() {
        let mut ledger = Ledger::default();
        // The tables, and an alarm.
        stepwell(&mut ledger, 0, 1, 26, 13);
        let before = ledger.sums();
        stepwell(&mut ledger, 0, 2, 39, 13);
        stepwell(&mut ledger, 0, 3, 53, 13);
        assert_eq!(ledger.sums().cost_since(before), Cost { rows: 13.5, requests: 1.5 });
    }

    #[test]
    fn a_fresh_object_pays_for_its_tables_and_one_that_is_used_again_does_not() {
        let mut ledger = Ledger::default();
        let note = |ledger: &mut Ledger, object: &str, rows: u64, requests: u64| {
            let body = format!(
                r#"{{"totals":{{"object":"{object}","rows_written":{rows},"requests":{requests}}}}}"#
            );
            ledger
                .note(System::Bare, &HeaderMap::new(), body.as_bytes())
                .expect("the answer is as bare.js gives it");
        };
        note(&mut ledger, "a", 15, 1);
        let before = ledger.sums();
        // Out of order.
        note(&mut ledger, "a", 39, 3);
        note(&mut ledger, "a", 27, 2);
        assert_eq!(ledger.sums().cost_since(before), Cost { rows: 12.0, requests: 1.0 });
        let before = ledger.sums();
        note(&mut ledger, "b", 15, 1);
        assert_eq!(ledger.sums().cost_since(before), Cost { rows: 15.0, requests: 1.0 });
    }
}
