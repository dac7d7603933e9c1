//! Runs that the storage has just failed for: each is left alone for a moment, and keeps no other waiting.
//!
//! Without this, a run that the storage refuses is the first that is due at each alarm, for ever. Only in memory: a
//! fresh instance finds such a run by its row, and tries it once.
//!
//! Invariant: a run in here is tried again within [`DEAD_MAN_MS`], so the alarm is never later than it may be for any
//! run that is due.

use stepwell_protocol::Timestamp;

use crate::{
    object::{DEAD_MAN_MS, LOOK_AGAIN_MS},
    ordered::OrdMap,
};

/// How many of them are remembered. Should there be more, all rows are looked at anew by and by.
const REFUSALS_MAX: usize = 1_024;

/// The runs that the storage has failed for.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    runs: OrdMap<u64, Refusal>,
    /// If there were too many: when all rows are to be looked at anew.
    look_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// How often it has failed.
    times: u32,
    /// When it is tried again.
    until: Timestamp,
    /// Whether it was tried since, and nobody knows yet what comes of it.
    is_tried: bool,
}

impl Refusal {
    /// Twice as long each time.
    fn put_off(&mut self, now: Timestamp) {
        self.until = now.plus_millis((LOOK_AGAIN_MS << self.times.min(16)).min(DEAD_MAN_MS));
    }
}

impl Refusals {
    /// The storage has failed for a run.
    pub(super) fn note(&mut self, now: Timestamp, number: u64) {
        let is_known = self.runs.get(&number).is_some_and(|refusal| refusal.until > now && !refusal.is_tried);
        if is_known {
            return;
        }
        if !self.runs.contains_key(&number) && self.runs.len() >= REFUSALS_MAX {
            self.look_at.get_or_insert(now.plus_millis(DEAD_MAN_MS));
            return;
        }
        let refusal =
            self.runs.get_or_insert_with(number, || Refusal { times: 0, until: now, is_tried: false });
        refusal.put_off(now);
        refusal.is_tried = false;
        refusal.times = refusal.times.saturating_add(1);
    }

    /// A run was tried, and nothing had to be stored: whether that would fail shows later.
    pub(super) fn put_off(&mut self, now: Timestamp, number: u64) {
        if let Some(refusal) = self.runs.get_mut(&number) {
            refusal.put_off(now);
            refusal.is_tried = true;
        }
    }

    /// The storage has taken something of a run, or the run is gone. Says whether it was in here.
    pub(super) fn clear(&mut self, number: u64) -> bool {
        // Nearly always there is none.
        !self.runs.is_empty() && self.runs.remove(&number).is_some()
    }

    /// Whether a run is not to be tried yet.
    pub(super) fn holds_back(&self, now: Timestamp, number: u64) -> bool {
        self.runs.get(&number).is_some_and(|refusal| refusal.until > now)
    }

    /// The runs that are to be tried again by now.
    pub(super) fn due(&self, now: Timestamp) -> Vec<u64> {
        self.runs.iter().filter(|(_, refusal)| refusal.until <= now).map(|(number, _)| *number).collect()
    }

    /// When the next of them is to be tried again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.runs.values().map(|refusal| refusal.until).chain(self.look_at).min()
    }

    /// Whether all rows are to be looked at anew.
    pub(super) fn take_overflow(&mut self, now: Timestamp) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }
}
