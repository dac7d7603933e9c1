//! What has happened to runs, in numbers.

use serde::{Deserialize, Serialize};

/// The upper bounds of how long runs take, in milliseconds.
pub const RUN_BOUNDS_MS: [u64; 9] =
    [100, 1_000, 10_000, 60_000, 300_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000];

/// The same for attempts of steps.
pub const STEP_BOUNDS_MS: [u64; 8] = [10, 50, 250, 1_000, 5_000, 15_000, 60_000, 300_000];

/// The same for how much later than due a sleep ends, or a schedule starts a run.
pub const LATE_BOUNDS_MS: [u64; 7] = [100, 1_000, 5_000, 15_000, 60_000, 300_000, 3_600_000];

/// What has happened to the runs of a workflow, or in the cell, within a time or ever.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Runs that were started.
    #[serde(skip_serializing_if = "is_zero")]
    pub started: u64,
    /// Runs that completed.
    #[serde(skip_serializing_if = "is_zero")]
    pub completed: u64,
    /// Runs that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Runs that were cancelled.
    #[serde(skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// Times that a run was paused, by a person or because of a problem.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused: u64,
    /// Those of them whose code no longer matched their history.
    #[serde(skip_serializing_if = "is_zero")]
    pub diverged: u64,
    /// Those of them that had another problem.
    #[serde(skip_serializing_if = "is_zero")]
    pub stopped: u64,
    /// Calls of the workflow's code.
    #[serde(skip_serializing_if = "is_zero")]
    pub activations: u64,
    /// Those of them in which the code, or what it ran in, died or was not heard of for too long.
    #[serde(skip_serializing_if = "is_zero")]
    pub deaths: u64,
    /// Those of them that did not reach the app, lost it, or were refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub losses: u64,
    /// Rows that were written for runs.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// Steps that succeeded.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps: u64,
    /// Steps that failed for good.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps_failed: u64,
    /// Attempts of steps that failed and are retried.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u64,
    /// Signals that were received.
    #[serde(skip_serializing_if = "is_zero")]
    pub signals: u64,
    /// Requests that were refused by a limit of the namespace.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: u64,
    /// Spans that did not reach the collector.
    #[serde(skip_serializing_if = "is_zero")]
    pub spans_lost: u64,
    /// How long runs took from their start to their end.
    #[serde(skip_serializing_if = "Durations::is_empty")]
    pub run_ms: Durations,
    /// How long attempts of steps took.
    #[serde(skip_serializing_if = "Durations::is_empty")]
    pub step_ms: Durations,
    /// How much later than due sleeps and timeouts of waits ended.
    #[serde(skip_serializing_if = "Durations::is_empty")]
    pub timer_late_ms: Durations,
    /// How much later than due schedules started runs.
    #[serde(skip_serializing_if = "Durations::is_empty")]
    pub tick_late_ms: Durations,
}

/// How long things took.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// How many took up to each bound, and no less than the one before. The last number is those above all bounds.
    pub counts: Vec<u64>,
    /// All together, in milliseconds.
    pub sum_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Totals {
    /// Adds what has happened besides.
    pub fn add(&mut self, more: &Self) {
        let Self {
            started,
            completed,
            failed,
            cancelled,
            paused,
            diverged,
            stopped,
            activations,
            deaths,
            losses,
            rows,
            steps,
            steps_failed,
            retries,
            signals,
            refused,
            spans_lost,
            run_ms,
            step_ms,
            timer_late_ms,
            tick_late_ms,
        } = self;
        for (count, more) in [
            (started, more.started),
            (completed, more.completed),
            (failed, more.failed),
            (cancelled, more.cancelled),
            (paused, more.paused),
            (diverged, more.diverged),
            (stopped, more.stopped),
            (activations, more.activations),
            (deaths, more.deaths),
            (losses, more.losses),
            (rows, more.rows),
            (steps, more.steps),
            (steps_failed, more.steps_failed),
            (retries, more.retries),
            (signals, more.signals),
            (refused, more.refused),
            (spans_lost, more.spans_lost),
        ] {
            *count = count.saturating_add(more);
        }
        run_ms.add(&more.run_ms);
        step_ms.add(&more.step_ms);
        timer_late_ms.add(&more.timer_late_ms);
        tick_late_ms.add(&more.tick_late_ms);
    }

    /// What it costs by the list prices, in US dollars: each start and signal asks the cell, and so does a call of code.
    pub fn dollars(&self) -> f64 {
        let asked = self.started.saturating_add(self.signals);
        let million = dollars_per_million(self.rows, asked, self.activations.saturating_add(asked));
        (million * 100.0).round() / 1e8
    }
}

/// What a million times so many rows, requests to objects, and calls of Workers cost, in US dollars: $1.00 for a million
/// rows, $0.15 for a million requests, $0.30 for a million calls.
#[expect(clippy::cast_precision_loss, reason = "no bill has so many cents")]
pub fn dollars_per_million(rows: u64, requests: u64, calls: u64) -> f64 {
    rows as f64 * 1.00 + requests as f64 * 0.15 + calls as f64 * 0.30
}

impl Durations {
    /// Notes that something took so long.
    pub fn note(&mut self, bounds: &[u64], ms: u64) {
        self.counts.resize(bounds.len() + 1, 0);
        let at = bounds.iter().position(|bound| ms <= *bound).unwrap_or(bounds.len());
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// How long so many per cent of them took at the most: as if those between two bounds were spread evenly, but never
    /// longer than their sum allows. What is above all bounds counts as the last of them.
    pub fn quantile_ms(&self, bounds: &[u64], percent: u64) -> Option<u64> {
        let all = self.counts.iter().map(|count| u128::from(*count)).sum::<u128>();
        let wanted = (all * u128::from(percent)).div_ceil(100).max(1);
        // How many are below the present bounds, and how long those took at the least.
        let (mut below, mut least, mut before) = (0_u128, 0_u128, 0_u64);
        for (count, bound) in self.counts.iter().zip(bounds.iter().chain(bounds.last())) {
            let (count, from) = (u128::from(*count), u128::from(before));
            if count > 0 && below + count >= wanted {
                let spread = from + u128::from(bound - before) * (wanted - below) / count;
                // The wanted one and all after it took at least as long, and all together no longer than the rest.
                let rest = u128::from(self.sum_ms).saturating_sub(least + (wanted - below - 1) * from);
                return u64::try_from(spread.min(rest / (all - wanted + 1))).ok();
            }
            (below, least, before) = (below + count, least + count * from, *bound);
        }
        None
    }

    /// The longest of them, rounded down to a bound.
    pub fn longest_ms(&self, bounds: &[u64]) -> u64 {
        let last = self.counts.iter().rposition(|count| *count > 0).unwrap_or_default();
        last.checked_sub(1).and_then(|before| bounds.get(before)).copied().unwrap_or_default()
    }

    /// Adds others of the same bounds.
    pub fn add(&mut self, more: &Self) {
        self.counts.resize(self.counts.len().max(more.counts.len()), 0);
        for (count, more) in self.counts.iter_mut().zip(&more.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum_ms = self.sum_ms.saturating_add(more.sum_ms);
    }
}

/// What has happened to the runs of each workflow, and what that costs: `GET /api/metrics/workflows`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTotalsList {
    /// By name.
    pub workflows: Vec<WorkflowTotals>,
    /// Whether every cell has answered.
    pub complete: bool,
}

/// What has happened to the runs of a workflow.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTotals {
    /// The workflow. Beyond 200 in a cell, the others are counted together as `stepwell.others`.
    pub workflow: String,
    /// What.
    pub totals: Totals,
    /// Half of its runs took at most so many milliseconds: an estimate within the bounds of the histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The same for 95 % of its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// What the rows and requests of all this cost by the list prices, in US dollars, without what is included in a plan.
    pub dollars: f64,
}

impl WorkflowTotals {
    /// What has happened to the runs of this workflow, with what follows from it.
    pub fn of(workflow: String, totals: Totals) -> Self {
        let quantile = |percent| totals.run_ms.quantile_ms(&RUN_BOUNDS_MS, percent);
        let (p50_ms, p95_ms, dollars) = (quantile(50), quantile(95), totals.dollars());
        Self { workflow, totals, p50_ms, p95_ms, dollars }
    }
}

/// What has happened in each minute: `GET /api/metrics/minutes`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinuteList {
    /// Minutes in which something has happened, oldest first. The last ones may still grow.
    pub minutes: Vec<Minute>,
    /// Whether every cell has answered.
    pub complete: bool,
}

/// What has happened in a minute.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// When it began.
    pub at: crate::Timestamp,
    /// What.
    #[serde(flatten)]
    pub totals: Totals,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_long_is_above_all_bounds() {
        let mut durations = Durations::default();
        assert!(durations.is_empty());
        for ms in [0, 10, 11, 300_000, 300_001] {
            durations.note(&STEP_BOUNDS_MS, ms);
        }
        assert_eq!(durations.counts, [2, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(durations.sum_ms, 600_022);
        assert_eq!(durations.longest_ms(&STEP_BOUNDS_MS), 300_000);
        let mut short = Durations::default();
        assert_eq!(short.longest_ms(&STEP_BOUNDS_MS), 0);
        short.note(&STEP_BOUNDS_MS, 10);
        assert_eq!(short.longest_ms(&STEP_BOUNDS_MS), 0);
        short.note(&STEP_BOUNDS_MS, 200);
        assert_eq!(short.longest_ms(&STEP_BOUNDS_MS), 50);
    }

    #[test]
    fn quantiles_are_within_the_bounds_of_what_was_noted() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile_ms(&STEP_BOUNDS_MS, 50), None);
        for ms in [20; 90] {
            durations.note(&STEP_BOUNDS_MS, ms);
        }
        for ms in [400_000; 10] {
            durations.note(&STEP_BOUNDS_MS, ms);
        }
        // 50 of the 90 between 10 and 50 ms; and those above all bounds.
        assert_eq!(durations.quantile_ms(&STEP_BOUNDS_MS, 50), Some(32));
        assert_eq!(durations.quantile_ms(&STEP_BOUNDS_MS, 90), Some(50));
        assert_eq!(durations.quantile_ms(&STEP_BOUNDS_MS, 95), Some(300_000));
    }

    #[test]
    fn no_quantile_is_longer_than_what_was_noted_allows() {
        let mut durations = Durations::default();
        durations.note(&RUN_BOUNDS_MS, 20_000);
        assert_eq!(durations.quantile_ms(&RUN_BOUNDS_MS, 50), Some(20_000), "of one, it is that one");
        for ms in [2_000; 9] {
            durations.note(&RUN_BOUNDS_MS, ms);
        }
        // Nine of at least a second leave 29 seconds for the tenth.
        assert_eq!(durations.quantile_ms(&RUN_BOUNDS_MS, 95), Some(29_000));
        assert!(durations.quantile_ms(&RUN_BOUNDS_MS, 50).is_some_and(|ms| ms >= 2_000));
    }

    #[test]
    fn a_workflow_costs_what_its_rows_and_requests_cost() {
        let totals =
            Totals { started: 1_000_000, rows: 12_000_000, activations: 2_000_000, ..Totals::default() };
        let of = WorkflowTotals::of("pay".into(), totals);
        assert!((of.dollars - (12.0 + 0.15 + 0.90)).abs() < 1e-9, "{}", of.dollars);
    }

    #[test]
    fn totals_add_up_and_say_only_what_has_happened() {
        let mut one = Totals { started: 2, ..Totals::default() };
        one.run_ms.note(&RUN_BOUNDS_MS, 5);
        let mut all = Totals::default();
        all.add(&one);
        all.add(&one);
        assert_eq!((all.started, all.run_ms.counts.first()), (4, Some(&2)));
        let text = serde_json::to_string(&Totals { failed: 1, ..Totals::default() });
        assert_eq!(text.ok().as_deref(), Some(r#"{"failed":1}"#));
        assert_eq!(serde_json::from_str::<Totals>("{}").ok(), Some(Totals::default()));
    }
}
