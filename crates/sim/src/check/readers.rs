//! What those who follow a run are shown: every event of its journal once and in order, and only what is durable.

use stepwell_core::run::Phase;
use stepwell_protocol::{Event, Place, Record, RunId, Seq, Timestamp};

use super::{Checked, Checker};
use crate::tables::{JournalRow, Tables};

/// How long after it was recorded an event may not have been shown yet, when nothing is broken.
const LATE_MS: u64 = 20_000;

impl Checker {
    /// A follower that had seen the journal up to `seen` was shown another event of it.
    pub fn event_shown(
        &self,
        disk: &Tables,
        cell: usize,
        run: &RunId,
        seen: Seq,
        record: &Record,
    ) -> Checked {
        if record.seq <= seen {
            let detail = format!("{run}: event {} was shown after event {}", record.seq.0, seen.0);
            return Err(("30 a follower sees each event once", detail));
        }
        if self.is_deleted(cell, run) {
            return Ok(());
        }
        let rows = disk.journal_after(run.number, seen);
        let missed = rows.iter().find(|row| row.seq < record.seq);
        if let Some(missed) = missed {
            let detail = format!("{run}: event {} was shown, event {} was not", record.seq.0, missed.seq.0);
            return Err(("30 a follower misses no event", detail));
        }
        // What an earlier life has left behind may have been deleted since.
        let is_erased = disk.erased.get(&run.number).is_some_and(|through| record.seq <= *through);
        let is_stored = rows.first().is_some_and(|row| row.record() == *record);
        if !is_stored && !is_erased {
            let detail = format!("{run}: event {} was shown and is not on disk", record.seq.0);
            return Err(("30 a follower sees only what is durable", detail));
        }
        Ok(())
    }

    /// A follower was told that its run has ended and there is nothing more to see.
    pub fn followed(&self, disk: &Tables, cell: usize, run: &RunId, seen: Seq) -> Checked {
        if self.was_reopened(cell, run) || self.is_deleted(cell, run) {
            return Ok(());
        }
        // The ends of its children are kept after its own.
        let is_of_child = |row: &&JournalRow| {
            matches!(row.says(), Event::ChildFinished { .. } | Event::ChildStarted { .. })
        };
        match disk.journal_after(run.number, seen).iter().find(|row| !is_of_child(row)) {
            Some(row) => {
                let detail = format!("{run}: its stream has ended, and event {} was not shown", row.seq.0);
                Err(("30 a follower misses no event", detail))
            }
            None => Ok(()),
        }
    }

    /// A follower is still there when everything has come to rest.
    pub fn follows(
        &self,
        disk: &Tables,
        place: &Place,
        (cell, run): (usize, &RunId),
        seen: Seq,
        clock: Timestamp,
    ) -> Checked {
        let Some(stands) = disk.run(place, run.number).filter(|_| !self.is_deleted(cell, run)) else {
            return Ok(());
        };
        let is_late = |at: Timestamp| at.plus_millis(LATE_MS) <= clock;
        let rows = disk.journal_after(run.number, seen);
        if let Some(row) = rows.iter().find(|row| is_late(row.at)) {
            let detail = format!("{run}: event {} was never shown", row.seq.0);
            return Err(("30 a follower misses no event", detail));
        }
        if matches!(stands.phase, Phase::Ended { at, .. } if is_late(at)) {
            return Err(("30 a follower hears of the end", format!("{run} has ended")));
        }
        Ok(())
    }
}
