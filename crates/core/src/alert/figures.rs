//! The figures that rules look at.

use stepwell_protocol::{
    alert::Watched,
    totals::{LATE_BOUNDS_MS, Totals},
};

use crate::ordered::{OrdMap, OrdSet};

/// A workflow, or all of them, and how many minutes.
pub type Span = (Option<String>, u64);

/// Which figures the rules look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// What has happened: of which workflow, and within how many minutes.
    pub spans: OrdSet<Span>,
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
            wanted.spans.extend(span_of(rule));
            match rule {
                Watched::Waiting { .. }
                | Watched::DeadLetters { .. }
                | Watched::CellFill { .. }
                | Watched::Unreached { .. } => wanted.cells = true,
                Watched::Backlog { queue, .. } | Watched::DeadJobs { queue, .. } => {
                    wanted.queues.insert(queue.clone());
                }
                Watched::Failures { .. }
                | Watched::Retries { .. }
                | Watched::Pauses { .. }
                | Watched::BrokenCalls { .. }
                | Watched::Late { .. }
                | Watched::Rows { .. } => {}
            }
        }
        wanted
    }
}

/// Figures, as far as the host could gather them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What has happened.
    pub spans: OrdMap<Span, Totals>,
    /// For how many seconds the run has waited that has waited longest for a place.
    pub waiting_seconds: Option<u64>,
    /// How many messages between objects are dead.
    pub dead_letters: Option<u64>,
    /// How many percent of the fullest cell are used.
    pub cell_percent: Option<u64>,
    /// How many jobs of a queue wait, and how many are dead.
    pub queues: OrdMap<String, (u64, u64)>,
    /// How many cells did not answer.
    pub unreached: Option<u64>,
}

impl Figures {
    /// The figure that a rule looks at; nothing, if it could not be gathered.
    pub(super) fn of(&self, watched: &Watched) -> Option<u64> {
        match watched {
            Watched::Failures { at_least, .. } => {
                let Totals { completed, failed, cancelled, .. } = self.span(watched)?;
                Some(percent(*failed, completed + failed + cancelled, *at_least))
            }
            Watched::Retries { at_least, .. } => {
                let Totals { retries, steps, steps_failed, .. } = self.span(watched)?;
                Some(percent(*retries, steps + steps_failed, *at_least))
            }
            Watched::Pauses { .. } => self.span(watched).map(|it| it.diverged + it.stopped),
            Watched::BrokenCalls { .. } => self.span(watched).map(|it| it.deaths + it.losses),
            Watched::Late { .. } => {
                let Totals { timer_late_ms, tick_late_ms, .. } = self.span(watched)?;
                let longest = [timer_late_ms, tick_late_ms].map(|late| late.longest_ms(&LATE_BOUNDS_MS));
                longest.into_iter().max().map(|ms| ms / 1_000)
            }
            Watched::Rows { .. } => {
                let Totals { rows, completed, failed, cancelled, .. } = self.span(watched)?;
                let ended = completed + failed + cancelled;
                // Where none has ended, nobody knows what one takes.
                Some(rows.checked_div(ended).unwrap_or_default())
            }
            Watched::Unreached { .. } => self.unreached,
            Watched::Waiting { .. } => self.waiting_seconds,
            Watched::Backlog { queue, .. } => self.queues.get(queue).map(|(waiting, _)| *waiting),
            Watched::DeadJobs { queue, .. } => self.queues.get(queue).map(|(_, dead)| *dead),
            Watched::DeadLetters { .. } => self.dead_letters,
            Watched::CellFill { .. } => self.cell_percent,
        }
    }

    fn span(&self, watched: &Watched) -> Option<&Totals> {
        self.spans.get(&span_of(watched)?)
    }
}

fn span_of(watched: &Watched) -> Option<Span> {
    watched.span().map(|(workflow, minutes)| (workflow.map(str::to_owned), minutes))
}

/// Of a few, no part means anything.
fn percent(part: u64, all: u64, at_least: u64) -> u64 {
    if part < at_least { 0 } else { part.saturating_mul(100) / all.max(1) }
}
