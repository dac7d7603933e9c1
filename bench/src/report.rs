//! The figures: a table and ratios for people, `summary.json` for programs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::Serialize;
use stepwell_workerd_tests::repository_root;

use crate::{
    chart,
    count::Cost,
    load::Sample,
    system::{System, Workload},
};

/// The concurrency at which systems are compared.
pub const COMPARED: u32 = 64;

/// One line of the table. Its fields without the spread are one element of `summary.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The system's name.
    pub system: &'static str,
    /// The workload's name.
    pub workload: &'static str,
    /// Runs at once.
    pub concurrency: u32,
    /// Runs that ended, in a second.
    pub runs_per_s: f64,
    /// Their steps.
    pub steps_per_s: f64,
    /// Half of the runs took at most this long, from the client's side.
    pub p50_ms: f64,
    /// 99 of 100 did.
    pub p99_ms: f64,
    /// Rows written.
    pub rows_per_run: f64,
    /// Requests and alarms that reached objects.
    pub object_requests_per_run: f64,
    /// Runs per second of the slowest and of the fastest round.
    #[serde(skip)]
    pub spread: (f64, f64),
}

impl Figure {
    /// Takes the round in the middle.
    pub fn new(system: System, workload: Workload, concurrency: u32, rounds: &[Sample], cost: Cost) -> Self {
        let by_speed = |a: &&Sample, b: &&Sample| a.runs_per_s().total_cmp(&b.runs_per_s());
        let mut sorted: Vec<&Sample> = rounds.iter().collect();
        sorted.sort_by(by_speed);
        let none = Sample::default();
        // Of an even number of rounds, the slower of the two in the middle.
        let middle = sorted.get(rounds.len().saturating_sub(1) / 2).copied().unwrap_or(&none);
        let speed = |sample: Option<&&Sample>| sample.map_or(0.0, |sample| sample.runs_per_s());
        Self {
            system: system.name(),
            workload: workload.name(),
            concurrency,
            runs_per_s: rounded(middle.runs_per_s()),
            steps_per_s: rounded(middle.runs_per_s() * f64::from(workload.steps())),
            p50_ms: rounded(middle.percentile_ms(0.5)),
            p99_ms: rounded(middle.percentile_ms(0.99)),
            rows_per_run: rounded(cost.rows),
            object_requests_per_run: rounded(cost.requests),
            spread: (speed(sorted.first()), speed(sorted.last())),
        }
    }

    /// What its workload is measured by: ten steps by steps per second, one step by runs per second.
    pub fn speed(&self) -> f64 {
        if self.workload == Workload::TenSteps.name() { self.steps_per_s } else { self.runs_per_s }
    }
}

/// Finds a figure.
pub fn find(figures: &[Figure], system: System, workload: Workload, concurrency: u32) -> Option<&Figure> {
    figures.iter().find(|figure| {
        figure.system == system.name()
            && figure.workload == workload.name()
            && figure.concurrency == concurrency
    })
}

/// Prints the table, and under it what it comes to.
pub fn print(figures: &[Figure]) {
    println!(
        "{:<9}{:>8}  {:<15}{:>10}{:>18}{:>11}{:>10}{:>10}{:>10}{:>10}",
        "workload",
        "at once",
        "system",
        "runs/s",
        "(all rounds)",
        "steps/s",
        "p50 ms",
        "p99 ms",
        "rows",
        "requests"
    );
    let mut last = None;
    for figure in figures {
        let load = (figure.workload, figure.concurrency);
        if last.is_some_and(|last| last != load) {
            println!();
        }
        last = Some(load);
        let spread = format!("({:.0} to {:.0})", figure.spread.0, figure.spread.1);
        println!(
            "{:<9}{:>8}  {:<15}{:>10.1}{spread:>18}{:>11.1}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
            figure.workload,
            figure.concurrency,
            figure.system,
            figure.runs_per_s,
            figure.steps_per_s,
            figure.p50_ms,
            figure.p99_ms,
            figure.rows_per_run,
            figure.object_requests_per_run,
        );
    }
    println!();
    for line in ratios(figures) {
        println!("{line}");
    }
}

/// Writes `summary.json` and `chart.svg`.
pub fn write(figures: &[Figure]) -> Result<()> {
    let folder = folder()?;
    let (summary, chart) = (folder.join("summary.json"), folder.join("chart.svg"));
    write_json(&summary, &figures)?;
    fs::write(&chart, chart::draw(figures))?;
    println!("\nwritten: target/bench/summary.json, target/bench/chart.svg\n");
    Ok(())
}

/// Writes a value as JSON that people can read too.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    fs::write(path, serde_json::to_string_pretty(value)? + "\n")?;
    Ok(())
}

/// Where files are written.
pub fn folder() -> Result<PathBuf> {
    let folder = repository_root().join("target/bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Three digits behind the point are more than any of this is worth.
pub fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Stepwell against the hand-written objects and what it was before, for whatever was measured of it.
fn ratios(figures: &[Figure]) -> Vec<String> {
    let mut lines = Vec::new();
    for (workload, unit) in [(Workload::TenSteps, "steps/s"), (Workload::OneStep, "runs/s")] {
        for (system, others) in [
            (System::Stepwell, [System::Bare, System::BareSplit, System::StepwellBefore].as_slice()),
            (System::StepwellSplit, &[System::Bare, System::BareSplit, System::StepwellSplitBefore]),
            (System::StepwellObserved, &[System::Stepwell]),
        ] {
            for against in others.iter().copied() {
                let (Some(ours), Some(theirs)) =
                    (find(figures, system, workload, COMPARED), find(figures, against, workload, COMPARED))
                else {
                    continue;
                };
                if theirs.speed() > 0.0 {
                    lines.push(format!(
                        "{} {unit} at {COMPARED} at once: {} has {:.2} of {}",
                        workload.name(),
                        system.name(),
                        ours.speed() / theirs.speed(),
                        against.name()
                    ));
                }
            }
        }
    }
    if let Some(bare) = find(figures, System::Bare, Workload::TenSteps, 1) {
        for system in [System::Stepwell, System::StepwellSplit] {
            if let Some(ours) = find(figures, system, Workload::TenSteps, 1)
                && bare.p50_ms > 0.0
            {
                lines.push(format!(
                    "10-step p50 alone: {} {:.2} ms, bare {:.2} ms: {:.2} times",
                    system.name(),
                    ours.p50_ms,
                    bare.p50_ms,
                    ours.p50_ms / bare.p50_ms
                ));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const COST: Cost = Cost { rows: 13.0, requests: 1.0 };

    fn round(runs: usize) -> Sample {
        Sample {
            latencies: vec![Duration::from_millis(runs as u64); runs],
            runs: 0,
            measured: Duration::from_secs(1),
        }
    }

    #[test]
    fn the_figure_is_the_round_in_the_middle() {
        let rounds = [round(30), round(10), round(20)];
        let figure = Figure::new(System::Stepwell, Workload::TenSteps, 64, &rounds, COST);
        assert_eq!((figure.runs_per_s, figure.steps_per_s, figure.p50_ms), (20.0, 200.0, 20.0));
        assert_eq!(figure.spread, (10.0, 30.0));
    }

    #[test]
    fn the_summary_has_these_names_and_no_others() {
        let figure = Figure::new(System::Bare, Workload::OneStep, 1, &[round(5)], COST);
        let value = serde_json::to_value(figure).expect("a figure is plain data");
        let names: Vec<_> = value.as_object().expect("a figure is an object").keys().cloned().collect();
        let mut expected = [
            "system",
            "workload",
            "concurrency",
            "runs_per_s",
            "steps_per_s",
            "p50_ms",
            "p99_ms",
            "rows_per_run",
            "object_requests_per_run",
        ];
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn ratios_are_of_what_was_measured() {
        let figure = |system, runs| Figure::new(system, Workload::TenSteps, 64, &[round(runs)], COST);
        assert_eq!(
            ratios(&[figure(System::Bare, 40), figure(System::Stepwell, 20)]),
            ["10-step steps/s at 64 at once: stepwell has 0.50 of bare"]
        );
        assert!(ratios(&[figure(System::Stepwell, 20)]).is_empty());
    }
}
