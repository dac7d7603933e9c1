//! The findings of hostile reviews, each as a scenario on the real workerd with default settings. A scenario returns the
//! figure that it measured and fails when a bound is broken.
//!
//! To add one: a file in this folder with `pub async fn run(size: Size) -> Result<String>`, and a line in [`SCENARIOS`].

mod backlog;
mod deletion;
mod hung;
mod seed;
mod signals;
mod sweep;
mod tables;
mod unreadable;

use std::{pin::Pin, time::Duration};

use anyhow::{Result, ensure};

use crate::engine::{Engine, Form};

/// How large a scenario is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For CI: all scenarios together take less than three minutes.
    Small,
    /// The sizes that the findings name: less than 25 minutes.
    Full,
}

impl Size {
    /// The size for CI, or the full one.
    fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

/// A scenario that runs.
type Running = Pin<Box<dyn Future<Output = Result<String>>>>;

/// A scenario: its name on the command line, what it shows, and how to run it.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What must hold.
    pub shows: &'static str,
    /// Runs it and returns its figure.
    pub run: fn(Size) -> Running,
}

/// All scenarios, in the order in which they run.
pub const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "deletion",
        shows: "expired runs are deleted in bounded slices while the meter is off",
        run: |size| Box::pin(deletion::run(size)),
    },
    Scenario {
        name: "dispatch",
        shows: "a backlog of due runs is called in a time that grows with its length",
        run: |size| Box::pin(backlog::dispatch(size)),
    },
    Scenario {
        name: "backlog-memory",
        shows: "memory holds a bounded part of the runs that are due",
        run: |size| Box::pin(backlog::memory(size)),
    },
    Scenario {
        name: "hung",
        shows: "workflows that hang in every place of the window keep no healthy one waiting",
        run: |size| Box::pin(hung::run(size)),
    },
    Scenario {
        name: "unreadable",
        shows: "a row that cannot be read delays no other run",
        run: |size| Box::pin(unreadable::run(size)),
    },
    Scenario {
        name: "tables",
        shows: "pages, counts and streams do not look at a whole table for each request",
        run: |size| Box::pin(tables::run(size)),
    },
    Scenario {
        name: "signals",
        shows: "a signal costs the same however many came before, and memory holds a bounded part of the large ones",
        run: |size| Box::pin(signals::run(size)),
    },
    Scenario {
        name: "sweep",
        shows: "lost alarms are found in any number of namespaces, by sweeps with a bounded number of calls",
        run: |size| Box::pin(sweep::run(size)),
    },
];

/// An engine with one cell, as users have it.
async fn one_cell() -> Result<Engine> {
    Engine::start(Form::AllInOne, 1).await
}

/// The heap of an isolate whose memory is measured, a little less than the platform gives one. Without a bound, workerd
/// lets garbage lie for as long as the machine has memory.
const HEAP_MIB: u32 = 100;

/// The same whose isolates may take only so much memory.
async fn bounded_cell() -> Result<Engine> {
    Engine::start_bounded(Form::AllInOne, &[("STEPWELL_CELLS", "1")], Some(HEAP_MIB)).await
}

/// Fails if something took longer than it may.
fn within(what: &str, took: Duration, limit: Duration) -> Result<()> {
    ensure!(took <= limit, "{what} took {} ms; the limit is {} ms", took.as_millis(), limit.as_millis());
    Ok(())
}
