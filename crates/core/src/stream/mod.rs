//! Streams: where a reader is, and what it is shown next.
//!
//! A run's stream has one order. Its journal has positions; what it publishes is stored in rows, each of which
//! knows the journal's head when it was written, so that rows and events have one order together. Status and
//! progress are states and not events: each change has a stamp, and a reader is shown the latest one once.
//! A [`Cursor`] says how far a reader has come in all three, and nothing of it is lost with an instance: all of
//! it is in rows.
//!
//! Owns: cursors, filters, what is sent next, and how much may be under way to a reader. Does not own: rows,
//! sockets, and when somebody looks.

mod changes;
mod cursor;
mod kinds;
mod reader;

pub use changes::{Change, Changes, Only, RECENT_MAX, WALKED_MAX, Walked};
pub use cursor::{CellCursor, Cursor, NotACursor, PoolCursor, Walk};
pub use kinds::Kinds;
pub use reader::{Batch, CellReader, EVENT_BYTES_MAX, Flow, Reader, Source, WINDOW_BYTES};

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Epoch, Seq, Timestamp, stream::StoredItem};

/// How many stamps there are in a millisecond, unless more are needed.
const STAMPS_EACH_MS: u64 = 1_024;

/// Gives each change of a state a number that is larger than all before it. It follows the clock, so that the next
/// instance of a cell need not know where the one before has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamper {
    last: u64,
}

impl Stamper {
    /// A stamp for something that happens now.
    pub fn stamp(&mut self, now: Timestamp) -> u64 {
        self.last = (self.last + 1).max(now.as_millis() * STAMPS_EACH_MS);
        self.last
    }

    /// Smaller than all that will be given.
    pub fn next(&self, now: Timestamp) -> u64 {
        (self.last + 1).max(now.as_millis() * STAMPS_EACH_MS)
    }
}

/// When a stamp was given.
pub(crate) fn time_of(stamp: u64) -> Timestamp {
    Timestamp::from_millis(stamp / STAMPS_EACH_MS)
}

/// One row of what a run has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedRow {
    /// The number of its last item: they are counted through the run's whole life, from 1.
    pub last: u32,
    /// The journal's head when it was written: it comes after that event and before the next.
    pub after: Seq,
    /// Up to where, when, and by whom.
    pub mark: PublishedMark,
    /// Its items.
    pub items: Vec<StoredItem>,
}

/// What has to be known of the latest row to go on after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedMark {
    /// When it was written.
    pub at: Timestamp,
    /// The activation that has published it.
    pub epoch: Epoch,
    /// How many items of that activation are stored.
    pub taken: u32,
    /// How many bytes of items the run has published up to here.
    #[serde(default)]
    pub bytes: u64,
    /// Whether nothing comes after it: the run has published all that it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_full: bool,
}

/// Some of what a run has published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedPage {
    /// Rows in order.
    pub rows: Vec<PublishedRow>,
    /// Whether there are more after these.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_only_ever_grow_whatever_the_clock_does() {
        let mut stamper = Stamper::default();
        let at = Timestamp::from_millis;
        let mut last = 0;
        for now in [at(5), at(5), at(4), at(6), at(1)] {
            let next = stamper.next(now);
            let stamp = stamper.stamp(now);
            assert!(stamp > last && stamp >= next, "{stamp} after {last}");
            last = stamp;
        }
        assert_eq!(time_of(last), at(6));
    }

    #[test]
    fn the_next_instance_goes_on_after_the_one_before() {
        let mut before = Stamper::default();
        let last = (0..2_000).map(|_| before.stamp(Timestamp::from_millis(10))).last();
        assert!(Some(Stamper::default().stamp(Timestamp::from_millis(12))) > last);
    }
}
