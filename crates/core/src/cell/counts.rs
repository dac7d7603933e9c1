//! How many runs a cell has, by workflow and status.
//!
//! A row for each count would be one more row for every change of a run. So the counts live in memory: the first
//! who asks lets the cell go through its rows, a slice for each request, and from then on every change of a run
//! that was counted changes its count. An instance that nobody asks counts nothing.
//!
//! The newest rows come first: most of those that have not ended are among them, and a limit of them holds soonest.
//!
//! Invariant: the counts are those of all runs from [`Counted::from`] on, as the rows have them.

use stepwell_protocol::rest::{Counts, Status};

use super::{Cell, Rows};
use crate::{object::Fault, ordered::OrdMap, run::Run};

/// No run has a larger number: JavaScript could not tell it from others.
const NUMBER_MAX: u64 = 1 << 53;

/// How many rows one request counts at the most.
pub const COUNT_SLICE: usize = 10_000;

/// Runs that were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The smallest number of those that were looked at. Each new run has a larger one, and is counted as it comes.
    from: u64,
    /// Whether there are none before it.
    is_all: bool,
    workflows: OrdMap<String, Counts>,
}

impl Default for Counted {
    fn default() -> Self {
        Self { from: NUMBER_MAX, is_all: false, workflows: OrdMap::new() }
    }
}

/// A part of the rows, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many runs of a workflow are in a status. Those that are being deleted are gone.
    pub counts: Vec<(String, Status, u64)>,
    /// The smallest number that was looked at; none, if there are no more rows before these.
    pub more_before: Option<u64>,
}

impl Counted {
    /// The counts of each workflow.
    pub fn workflows(&self) -> &OrdMap<String, Counts> {
        &self.workflows
    }

    /// How many of them have not ended.
    pub fn live(&self) -> u64 {
        let counts = self.workflows.values().flatten();
        counts.filter(|(status, _)| !status.is_terminal()).map(|(_, count)| count).sum()
    }

    /// Whether all runs were counted.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    fn add(&mut self, workflow: &str, status: Status, count: u64) {
        // Most of the time it is known, and needs no copy of its name.
        match self.workflows.get_mut(workflow) {
            Some(counts) => *counts.entry(status).or_default() += count,
            None => {
                self.workflows.get_or_default(workflow.to_owned()).insert(status, count);
            }
        }
    }

    fn take(&mut self, workflow: &str, status: Status) {
        let Some(counts) = self.workflows.get_mut(workflow) else { return };
        if let Some(count) = counts.get_mut(&status) {
            *count = count.saturating_sub(1);
        }
        counts.retain(|_, count| *count > 0);
        if counts.is_empty() {
            self.workflows.remove(workflow);
        }
    }
}

impl Cell {
    /// Counts some more of the runs, if not all were, and says how many were counted.
    pub fn count<R: Rows>(&mut self, rows: &R) -> Result<&Counted, Fault<R::Error>> {
        let counted = self.counted.get_or_insert_default();
        if !counted.is_all {
            let tally = rows.tally(counted.from, COUNT_SLICE).map_err(Fault::Storage)?;
            for (workflow, status, count) in tally.counts {
                counted.add(&workflow, status, count);
            }
            match tally.more_before {
                Some(number) => counted.from = number,
                None => (counted.from, counted.is_all) = (0, true),
            }
        }
        Ok(counted)
    }

    /// A run was stored, changed or deleted: what it counted as before, and what it counts as from here on.
    pub(super) fn recount(&mut self, run: &Run, before: Option<Status>, after: Option<Status>) {
        let Some(counted) = &mut self.counted else { return };
        if before == after || run.id.number < counted.from {
            return;
        }
        if let Some(status) = before {
            counted.take(&run.workflow, status);
        }
        if let Some(status) = after {
            counted.add(&run.workflow, status, 1);
        }
    }

    /// Something could not be written, or was and nobody knows: whoever asks next has it counted anew.
    pub(super) fn lose_count<E>(&mut self, error: E) -> Fault<E> {
        self.counted = None;
        Fault::Storage(error)
    }
}

/// What a run counts as; nothing, if it is being deleted.
pub(super) fn counts_as(run: &Run) -> Option<Status> {
    (!run.deleting).then(|| run.status())
}
