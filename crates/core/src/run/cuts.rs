//! Parts of a journal that do not count any more, because the run was taken back to before them.

use serde::{Deserialize, Serialize};
use stepwell_protocol::Seq;

use super::Run;
use crate::sorting::sort_by;

/// The most parts of a journal that may be cut out of it.
pub const CUTS_MAX: usize = 1_000;

/// A part of a journal that does not count any more, because the run was taken back to before it. It stays
/// in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The last position before it.
    pub after: Seq,
    /// Its last position.
    pub through: Seq,
}

impl Cut {
    /// A cut of a single event.
    pub fn only(seq: Seq) -> Self {
        Self { after: Seq(seq.0 - 1), through: seq }
    }

    /// All of a journal up to a position, but for these positions, which are in order.
    pub fn all_but(kept: &[Seq], through: Seq) -> Vec<Self> {
        let mut after = Seq(0);
        let mut cuts = Vec::with_capacity(kept.len() + 1);
        for next in kept.iter().copied().chain([through.next()]) {
            let before = Seq(next.0 - 1);
            if after < before {
                cuts.push(Self { after, through: before });
            }
            after = next;
        }
        cuts
    }

    /// The same cuts in order, with those that touch made one.
    pub fn joined(mut cuts: Vec<Self>) -> Vec<Self> {
        sort_by(&mut cuts, |a, b| (a.after, a.through).cmp(&(b.after, b.through)));
        let mut joined: Vec<Self> = Vec::with_capacity(cuts.len());
        for cut in cuts {
            match joined.last_mut() {
                Some(last) if cut.after <= last.through => last.through = last.through.max(cut.through),
                Some(_) | None => joined.push(cut),
            }
        }
        joined
    }
}

impl Run {
    /// Whether an event of its journal still counts.
    pub fn counts(&self, seq: Seq) -> bool {
        counts(&self.cuts, seq)
    }

    /// The last position that counts: what a program that knows everything knows.
    pub fn last_counted(&self) -> Seq {
        let mut seq = self.head;
        while let Some(cut) = self.cuts.iter().find(|cut| cut.after < seq && seq <= cut.through) {
            seq = cut.after;
        }
        seq
    }

    /// How many events that count there are after a position.
    pub(super) fn counted_after(&self, seq: Seq) -> u32 {
        let cut = self.cuts.iter().map(|cut| cut.through.0.saturating_sub(cut.after.max(seq).0));
        self.head.0.saturating_sub(seq.0).saturating_sub(cut.sum())
    }

    /// The last position from which on nothing counts until after this one: where to look for what comes after it.
    pub(crate) fn skip_cuts(&self, after: Seq) -> Seq {
        let mut seq = after;
        while let Some(cut) = self.cuts.iter().find(|cut| cut.after <= seq && seq < cut.through) {
            seq = cut.through;
        }
        seq
    }
}

/// Whether a position is outside of all cuts, which are in order and apart from each other. A run may have begun anew
/// with thousands of signals that nobody took, and each event of a page is asked about.
pub(super) fn counts(cuts: &[Cut], seq: Seq) -> bool {
    let next = cuts.partition_point(|cut| cut.through < seq);
    cuts.get(next).is_none_or(|cut| seq <= cut.after)
}
