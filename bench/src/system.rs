//! What is measured: the systems, each a workerd of its own, and the workloads, which are the same for all.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use stepwell_workerd_tests::{
    Config, Worker, bundle,
    engine::{APP_KEY, KEY},
};

use crate::machine;

const BARE: &str = include_str!("../workers/bare.js");
const PROGRAM: &str = include_str!("../workers/program.js");

/// Objects of each system that does not take a new one for each run. `bare.js` has the same number.
const OBJECTS: &str = "16";

/// Something that runs steps durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum System {
    /// Hand-written objects, with the program inside.
    Bare,
    /// Hand-written objects, with the program in another Worker of the same process.
    BareSplit,
    /// Hand-written objects, a new one for each run, with the program inside.
    BareFresh,
    /// Stepwell, engine and app in one Worker.
    Stepwell,
    /// Stepwell, engine and app as two Workers of the same process.
    StepwellSplit,
    /// Stepwell in one Worker, with all that operators can switch on: each transition logged, each run traced, its metrics
    /// scraped.
    StepwellObserved,
    /// Stepwell in one Worker as it was: see `just bench-before`.
    StepwellBefore,
    /// Stepwell as two Workers as it was.
    StepwellSplitBefore,
}

/// What one run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Workload {
    /// One step that does nothing.
    #[value(name = "1-step")]
    OneStep,
    /// Ten steps that do nothing, one after the other.
    #[value(name = "10-step")]
    TenSteps,
}

impl System {
    /// All that are there without a commit to compare with, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Bare, Self::BareSplit, Self::BareFresh, Self::Stepwell, Self::StepwellSplit];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::BareSplit => "bare-split",
            Self::BareFresh => "bare-fresh",
            Self::Stepwell => "stepwell",
            Self::StepwellSplit => "stepwell-split",
            Self::StepwellObserved => "stepwell-observed",
            Self::StepwellBefore => "stepwell-before",
            Self::StepwellSplitBefore => "stepwell-split-before",
        }
    }

    /// Whether somebody observes it.
    pub fn is_observed(self) -> bool {
        self == Self::StepwellObserved
    }

    /// Whether it is Stepwell, which also has alarms and the rest of its API.
    pub fn is_stepwell(self) -> bool {
        !matches!(self, Self::Bare | Self::BareSplit | Self::BareFresh)
    }

    /// How many runs one process can take. Each new object keeps three files open for a while.
    pub fn runs_max(self) -> u64 {
        if self == Self::BareFresh { machine::open_files_max() / 4 } else { u64::MAX }
    }

    /// Where a run is started. The body is the number of its steps.
    pub fn path(self) -> &'static str {
        if self.is_stepwell() { "/api/workflows/steps/start" } else { "/" }
    }

    /// Its workerd. One that counts tells what it has written in each answer, and is not to be timed. Only one that is
    /// observed has a collector of spans, at this address.
    pub fn config(self, counts: bool, collector: &str) -> Result<Config> {
        let counts = if counts { "1" } else { "0" };
        let bare = |class| {
            let worker = Worker::inline("bare", [("bare.js", BARE)]);
            worker.durable_object("RUNS", class).text("COUNT", counts)
        };
        let engine = |name: &str| -> Result<Worker> {
            Ok(release("engine", name)?
                .durable_object("CELL", "Cell")
                .text("STEPWELL_KEY", KEY)
                .text("STEPWELL_CELLS", OBJECTS)
                .text("STEPWELL_METER", counts))
        };
        let split = |folder: &str| -> Result<Config> {
            Ok(Config::serving("engine")
                .worker(
                    engine(&format!("{folder}bench-engine"))?
                        .text("STEPWELL_APP_KEY", APP_KEY)
                        .service("APP", "app"),
                )
                .worker(release("app", &format!("{folder}bench-app"))?.text("STEPWELL_APP_KEY", APP_KEY)))
        };
        Ok(match self {
            Self::Bare => Config::serving("bare").worker(bare("Inline")),
            Self::BareSplit => Config::serving("bare")
                .worker(bare("Split").service("PROGRAM", "program"))
                .worker(Worker::inline("program", [("program.js", PROGRAM)])),
            Self::BareFresh => Config::serving("bare").worker(bare("Inline").text("FRESH", "1")),
            Self::Stepwell => Config::serving("engine").worker(engine("bench-all-in-one")?),
            Self::StepwellSplit => split("")?,
            Self::StepwellObserved => Config::serving("engine").worker(
                engine("bench-all-in-one")?
                    .text("STEPWELL_LOG", "debug")
                    .text("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
            ),
            Self::StepwellBefore => Config::serving("engine").worker(engine("before/bench-all-in-one")?),
            Self::StepwellSplitBefore => split("before/")?,
        })
    }
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::OneStep, Self::TenSteps];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneStep => "1-step",
            Self::TenSteps => "10-step",
        }
    }

    /// The steps of one run.
    pub fn steps(self) -> u32 {
        match self {
            Self::OneStep => 1,
            Self::TenSteps => 10,
        }
    }
}

/// A Worker of a release bundle.
pub fn release(worker: &str, name: &str) -> Result<Worker> {
    let folder = bundle(name).context("the bench's bundles are built by `just bench-bundles`")?;
    Ok(Worker::bundle(worker, &folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_reports_are_those_of_the_command_line() {
        for system in System::value_variants().iter().copied() {
            assert_eq!(System::from_str(system.name(), false), Ok(system));
        }
        for workload in Workload::ALL {
            assert_eq!(Workload::from_str(workload.name(), false), Ok(workload));
        }
    }

    #[test]
    fn all_have_the_same_number_of_objects() {
        assert!(BARE.contains(&format!("const OBJECTS = {OBJECTS};")));
    }
}
