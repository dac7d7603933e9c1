//! Which pairs of phase and input the run machine has met.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::run::{CallEnd, End, Entry, Phase, Run};
use stepwell_protocol::program::Then;

use crate::tables::Batch;

/// The phases, by name.
pub const PHASES: [&str; 7] =
    ["pending", "running", "suspended", "paused", "completed", "failed", "cancelled"];

/// The inputs, by name.
pub const INPUTS: [&str; 19] = [
    "activate", "continue", "suspend", "yield", "anew", "complete", "fail", "pause", "signal", "cancel",
    "wake", "returned", "threw", "lost", "reload", "hold", "resume", "restart", "heard",
];

/// How a key of the catalog stands, by name.
pub const KEYS: [&str; 3] = ["no key", "good key", "revoked key"];

/// What is asked about keys, by name.
pub const KEY_INPUTS: [&str; 4] = ["create", "revoke", "show", "confirm"];

/// Pairs that cannot happen, and why.
pub const IMPOSSIBLE: &[(&str, &str, &str)] = &[
    ("suspended", "reload", "only a running run is reloaded"),
    ("pending", "reload", "only a running run is reloaded"),
    ("paused", "reload", "only a running run is reloaded"),
    ("completed", "reload", "only a running run is reloaded"),
    ("failed", "reload", "only a running run is reloaded"),
    ("cancelled", "reload", "only a running run is reloaded"),
    ("paused", "wake", "a paused run has no wake time"),
    ("no key", "revoke", "clients know only keys that were made"),
    ("no key", "show", "clients know only keys that were made"),
    ("no key", "confirm", "clients know only keys that were made"),
];

/// How often each pair of phase and input came up.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    /// An input met a run.
    pub fn note(&mut self, run: &Run, input: &'static str) {
        *self.0.entry((phase(run), input)).or_default() += 1;
    }

    /// Something was asked about a key.
    pub fn note_key(&mut self, stands: &'static str, input: &'static str) {
        *self.0.entry((stands, input)).or_default() += 1;
    }

    /// Runs that a turn has activated without speaking to them: the window had a place for them.
    pub fn note_writes(&mut self, batch: Option<&Batch>, addressed: &BTreeSet<u64>) {
        for write in batch.into_iter().flat_map(|batch| &batch.writes) {
            let activated = write.entries.iter().any(|entry| matches!(entry, Entry::Activated { .. }));
            if activated && !addressed.contains(&write.number) {
                *self.0.entry(("pending", "activate")).or_default() += 1;
            }
        }
    }

    /// A run that a turn has read without speaking to it: it was in the window's queue and had moved on.
    pub fn note_idle_grant(&mut self, run: &Run) {
        match run.phase {
            Phase::Ended { .. } => self.note(run, "activate"),
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } => {}
        }
    }

    /// Adds what another world has met.
    pub fn add(&mut self, other: &Self) {
        for (pair, count) in &other.0 {
            *self.0.entry(*pair).or_default() += count;
        }
    }

    /// Pairs that can happen and did not.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        pairs()
            .filter(|(phase, input)| {
                !IMPOSSIBLE.iter().any(|(of, by, _)| of == phase && by == input)
                    && !self.0.contains_key(&(*phase, *input))
            })
            .collect()
    }

    /// Pairs that came up although they cannot.
    pub fn surprising(&self) -> Vec<(&'static str, &'static str)> {
        let pairs = self.0.keys().copied();
        pairs
            .filter(|(phase, input)| IMPOSSIBLE.iter().any(|(of, by, _)| of == phase && by == input))
            .collect()
    }

    /// How many pairs came up.
    pub fn met(&self) -> usize {
        self.0.len()
    }

    /// The pairs and how often they came up.
    pub fn pairs(&self) -> impl Iterator<Item = (&(&'static str, &'static str), &u64)> {
        self.0.iter()
    }
}

/// All pairs that there are.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let runs = PHASES.iter().flat_map(|phase| INPUTS.iter().map(|input| (*phase, *input)));
    runs.chain(KEYS.iter().flat_map(|key| KEY_INPUTS.iter().map(|input| (*key, *input))))
}

/// How many pairs can happen.
pub fn possible() -> usize {
    pairs().count() - IMPOSSIBLE.len()
}

/// Where a run stands, in a word.
pub fn phase(run: &Run) -> &'static str {
    match run.phase {
        Phase::Pending { .. } => "pending",
        Phase::Running { .. } => "running",
        Phase::Suspended => "suspended",
        Phase::Paused { .. } => "paused",
        Phase::Ended { how: End::Completed, .. } => "completed",
        Phase::Ended { how: End::Failed, .. } => "failed",
        Phase::Ended { how: End::Cancelled, .. } => "cancelled",
    }
}

/// What a commit does next, in a word.
pub fn then(then: &Then) -> &'static str {
    match then {
        Then::Continue { .. } => "continue",
        Then::Suspend { .. } => "suspend",
        Then::Yield { .. } => "yield",
        Then::Anew { .. } => "anew",
        Then::Complete { .. } => "complete",
        Then::Fail { .. } => "fail",
        Then::Pause { .. } => "pause",
    }
}

/// How a call ended, in a word.
pub fn end(end: &CallEnd) -> &'static str {
    match end {
        CallEnd::Returned => "returned",
        CallEnd::Threw(_) => "threw",
        CallEnd::Lost(_) => "lost",
        CallEnd::Died(_) => "died",
        CallEnd::Unstored => "unstored",
        CallEnd::Silent => "silent",
        CallEnd::Refused(_) => "refused",
    }
}
