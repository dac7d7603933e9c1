//! The figures that rules look at.

use stepwell_protocol::alert::Watched;

use crate::ordered::{OrdMap, OrdSet};

/// Which figures the rules look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Ends of runs: of which workflow, and within how many minutes.
    pub ends: OrdSet<(Option<String>, u64)>,
    /// Whether what the cells have now.
    pub cells: bool,
    /// The queues.
    pub queues: OrdSet<String>,
}

impl Wanted {
    /// What these rules look at.
    pub fn of<'a>(rules: impl Iterator<Item = &'a Watched>) -> Self {
        let mut wanted = Self::default();
        for rule in rules {
            match rule {
                Watched::Failures { workflow, minutes, .. } => {
                    wanted.ends.insert((workflow.clone(), *minutes));
                }
                Watched::Waiting { .. } | Watched::DeadLetters { .. } | Watched::CellFill { .. } => {
                    wanted.cells = true;
                }
                Watched::Backlog { queue, .. } | Watched::DeadJobs { queue, .. } => {
                    wanted.queues.insert(queue.clone());
                }
            }
        }
        wanted
    }
}

/// Figures, as far as the host could gather them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many runs have failed and how many have ended, by workflow and minutes.
    pub ends: OrdMap<(Option<String>, u64), (u64, u64)>,
    /// For how many seconds the run has waited that has waited longest for a place.
    pub waiting_seconds: Option<u64>,
    /// How many messages between objects are dead.
    pub dead_letters: Option<u64>,
    /// How many percent of the fullest cell are used.
    pub cell_percent: Option<u64>,
    /// How many jobs of a queue wait, and how many are dead.
    pub queues: OrdMap<String, (u64, u64)>,
}

impl Figures {
    /// The figure that a rule looks at; nothing, if it could not be gathered.
    pub(super) fn of(&self, watched: &Watched) -> Option<u64> {
        match watched {
            Watched::Failures { workflow, minutes, at_least, .. } => {
                let (failed, ended) = self.ends.get(&(workflow.clone(), *minutes)).copied()?;
                // Of a few, no part means anything.
                Some(if failed < *at_least { 0 } else { failed * 100 / ended.max(1) })
            }
            Watched::Waiting { .. } => self.waiting_seconds,
            Watched::Backlog { queue, .. } => self.queues.get(queue).map(|(waiting, _)| *waiting),
            Watched::DeadJobs { queue, .. } => self.queues.get(queue).map(|(_, dead)| *dead),
            Watched::DeadLetters { .. } => self.dead_letters,
            Watched::CellFill { .. } => self.cell_percent,
        }
    }
}
