//! Runs per second and waiting times, side by side.
//!
//! In each round, every system gets its turn under each workload and concurrency, one right after the other and
//! each on a fresh workerd with an empty disk: what disturbs the machine for a while disturbs them all. The
//! figure is the round in the middle.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use stepwell_workerd_tests::Workerd;

use crate::{
    count,
    load::{Load, Sample},
    observers::Observers,
    report::{self, Figure},
    size,
    system::{System, Workload},
};

/// How many runs at once, unless the command line says otherwise.
pub const CONCURRENCIES: [u32; 3] = [1, 16, 64];

/// As long as a cell's alarm takes to come round: a shorter look may see none or too many of them.
const COUNTED: Duration = Duration::from_secs(5);

/// Until all clients are at work.
const WARM_UP: Duration = Duration::from_millis(500);

/// Nothing of the hand-written objects comes in waves.
const COUNTED_BARE: Duration = Duration::from_millis(500);

/// What to measure, and for how long. Files are written only if everything was measured.
#[derive(Args, Debug)]
pub struct Options {
    /// Only these; may be given several times.
    #[arg(long = "system", value_enum)]
    systems: Vec<System>,
    /// Only these; may be given several times.
    #[arg(long = "workload", value_enum)]
    workloads: Vec<Workload>,
    /// Runs at once; may be given several times.
    #[arg(long = "concurrency", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    concurrencies: Vec<u32>,
    /// Measured seconds for each figure and round [default: 4, with --quick 1].
    #[arg(long)]
    seconds: Option<f64>,
    /// How often all is measured [default: 3, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// One short round, to see that everything works.
    #[arg(long)]
    quick: bool,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    system: System,
    workload: Workload,
    concurrency: u32,
}

/// Measures, prints and writes.
pub async fn run(options: &Options) -> Result<()> {
    let seconds = options.seconds.unwrap_or(if options.quick { 1.0 } else { 4.0 });
    ensure!((0.1..=600.0).contains(&seconds), "--seconds is from 0.1 to 600");
    let measured = Duration::from_secs_f64(seconds);
    // The runtime compiles wasm a second time only after thousands of calls.
    let warm_up_runs = if options.quick { 200 } else { 4_000 };
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let cases = options.cases();

    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); cases.len()];
    for round in 1..=rounds {
        for (case, samples) in cases.iter().zip(&mut samples) {
            let sample = case.measure(warm_up_runs, measured, &format!("round {round} of {rounds}")).await?;
            samples.push(sample);
        }
    }
    let costs = options.costs(&cases).await?;
    let figures: Vec<Figure> = cases
        .iter()
        .zip(&samples)
        .zip(costs)
        .map(|((case, samples), cost)| {
            Figure::new(case.system, case.workload, case.concurrency, samples, cost)
        })
        .collect();
    report::print(&figures);
    if options.is_complete() {
        report::write(&figures)?;
        size::print().await?;
    }
    Ok(())
}

impl Options {
    fn systems(&self) -> Vec<System> {
        chosen(&self.systems, &System::ALL)
    }

    fn workloads(&self) -> Vec<Workload> {
        chosen(&self.workloads, &Workload::ALL)
    }

    fn concurrencies(&self) -> Vec<u32> {
        chosen(&self.concurrencies, &CONCURRENCIES)
    }

    fn is_complete(&self) -> bool {
        let systems = self.systems();
        System::ALL.iter().all(|system| systems.contains(system))
            && self.workloads().len() == Workload::ALL.len()
            && CONCURRENCIES.iter().all(|concurrency| self.concurrencies().contains(concurrency))
    }

    /// Systems come one right after the other, so that they share what happens on the machine.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for workload in self.workloads() {
            for concurrency in self.concurrencies() {
                let systems = self.systems().into_iter();
                cases.extend(systems.map(|system| Case { system, workload, concurrency }));
            }
        }
        cases
    }

    async fn costs(&self, cases: &[Case]) -> Result<Vec<count::Cost>> {
        let mut costs = vec![count::Cost { rows: 0.0, requests: 0.0 }; cases.len()];
        for system in self.systems() {
            eprintln!("counting rows and requests: {}", system.name());
            let own: Vec<_> = (0..cases.len()).filter(|index| cases[*index].system == system).collect();
            let loads: Vec<_> =
                own.iter().map(|index| (cases[*index].workload, cases[*index].concurrency)).collect();
            let counted = if system.is_stepwell() && !self.quick { COUNTED } else { COUNTED_BARE };
            for (index, cost) in own.into_iter().zip(count::count(system, &loads, counted).await?) {
                costs[index] = cost;
            }
        }
        Ok(costs)
    }
}

impl Case {
    async fn measure(self, warm_up_runs: u64, measured: Duration, when: &str) -> Result<Sample> {
        let Self { system, workload, concurrency } = self;
        let mut observers = Observers::of(system).await?;
        let workerd = Workerd::start(&system.config(false, &observers.collector())?).await?;
        observers.watch(workerd.http());
        // The process's number is for those who want to look into it while it works.
        eprint!(
            "{when}: {}, {concurrency} at once, {} (process {}) ... ",
            workload.name(),
            system.name(),
            workerd.pid().unwrap_or_default()
        );
        let address = workerd.address();
        let load = Load {
            system,
            address: &address,
            steps: workload.steps(),
            concurrency,
            warm_up: WARM_UP,
            measured,
            runs_max: system.runs_max() / 4 * 3,
        };
        let sample = match load.warm_process(warm_up_runs.min(system.runs_max() / 4)).await {
            Ok(()) => load.run(|_, _| Ok(())).await,
            Err(error) => Err(error),
        };
        if sample.is_err() {
            eprintln!("\n{}", workerd.log());
        }
        let sample = sample?;
        eprintln!("{:.0} runs/s{}", sample.runs_per_s(), observers.saw());
        Ok(sample)
    }
}

fn chosen<T: Copy + Ord>(wanted: &[T], all: &[T]) -> Vec<T> {
    let mut chosen = if wanted.is_empty() { all.to_vec() } else { wanted.to_vec() };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(systems: &[System]) -> Options {
        Options {
            systems: systems.to_vec(),
            workloads: Vec::new(),
            concurrencies: Vec::new(),
            seconds: None,
            rounds: None,
            quick: false,
        }
    }

    #[test]
    fn systems_are_measured_one_right_after_the_other() {
        let cases = options(&[]).cases();
        assert_eq!(cases.len(), 30);
        for of_one_load in cases.chunks(5) {
            let systems: Vec<_> = of_one_load.iter().map(|case| case.system).collect();
            assert_eq!(systems, System::ALL);
            let first = of_one_load[0];
            assert!(of_one_load.iter().all(|case| case.workload == first.workload));
            assert!(of_one_load.iter().all(|case| case.concurrency == first.concurrency));
        }
    }

    #[test]
    fn a_selection_is_not_complete() {
        assert!(options(&[]).is_complete());
        assert!(!options(&[System::Bare, System::Stepwell]).is_complete());
    }
}
