//! Deletes runs that have been kept for long enough, a bounded number of rows at a time.
//!
//! A run's expiry is its wake time, so the index and the alarm that find everything else find it too. What is
//! found is put aside in memory, and each alarm deletes a slice of it. A run that fits into a slice goes at
//! once. A longer one is marked first, and is gone for everybody from then on; its journal goes piece by piece,
//! and its row last, so that whoever takes over from a dead instance finds what is left by the same index.
//!
//! Of a child, the row stays for a week after its start, with nothing in it: it tells that the invocation has started a
//! run, if that is delivered once more.
//!
//! What earlier lives of a run have left behind goes in the same slices (`remains.rs`).
//!
//! Invariant: nothing of a run that counts is deleted before it has ended and its time is over.

use std::rc::Rc;

use stepwell_protocol::Timestamp;

use super::{Cell, Rows, Slice, counts::counts_as};
use crate::{
    object::Fault,
    run::{Input, Run},
};

/// What one alarm deletes at the most; the next one follows at once. Large events take longer to delete than
/// small ones, so both count.
pub const DELETE_SLICE: Slice = Slice { rows: 500, bytes: 16 << 20 };

/// How many runs are put aside at the most: the others are found again when these are gone.
const EXPIRED_MAX: usize = 4_096;

impl Cell {
    /// A cell that deletes so much at once.
    #[must_use]
    pub fn with_delete_slice(self, slice: Slice) -> Self {
        Self { delete_slice: slice, ..self }
    }

    /// Puts a run aside whose time is over, or whose earlier lives have left something behind.
    pub(super) fn set_aside(&mut self, number: u64) {
        if self.expired.len() < EXPIRED_MAX {
            self.expired.insert(number);
        } else {
            self.more_expired = true;
        }
    }

    /// Deletes a slice of what was put aside.
    pub(super) fn delete_slice<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        let mut room = self.delete_slice;
        while room.rows > 0
            && let Some(number) = self.expired.first().copied()
        {
            match self.delete_expired(rows, now, number, &mut room) {
                Ok(true) => {}
                Ok(false) => break,
                // It is put aside again when its time has come. Those behind it must not wait for that.
                Err(_) => self.refusals.note(now, number),
            }
            self.expired.remove(&number);
        }
        if !self.expired.is_empty() {
            self.object.arm_by(now, now);
        } else if std::mem::take(&mut self.more_expired) {
            self.look_again(now);
        }
    }

    /// Deletes as much of a run as there is room for. Says whether nothing of it is to be deleted any more.
    fn delete_expired<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        room: &mut Slice,
    ) -> Result<bool, Fault<R::Error>> {
        let known = self.runs.get(&number).cloned();
        let run =
            if known.is_some() { known } else { self.load_or_quarantine(rows, now, number)?.map(Rc::new) };
        match run {
            Some(run) if run.is_expired(now) => {
                let is_gone = self.delete(rows, now, &run, room)?;
                if is_gone {
                    let _ = self.refusals.clear(number);
                }
                Ok(is_gone)
            }
            Some(run) if run.remains.is_some() => self.delete_remains(rows, &run, room),
            // Somebody may have taken it back to life, or memory knows that nothing is left behind.
            Some(_) => Ok(true),
            None => {
                let _ = self.refusals.clear(number);
                Ok(true)
            }
        }
    }

    /// Deletes as much of a run as there is room for. Says whether nothing is left of it.
    fn delete<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: &Run,
        room: &mut Slice,
    ) -> Result<bool, Fault<R::Error>> {
        let told = rows.told_weight(run.id.number).map_err(Fault::Storage)?;
        let rows_most = rows_of(run) + told.rows;
        let mut before = counts_as(run);
        let leaves_row = run.outlives_itself(now);
        let in_slices = run.deleting || leaves_row || rows_most > self.delete_slice.rows;
        let bytes =
            if in_slices { 0 } else { told.bytes + rows.weight(run.id.number).map_err(Fault::Storage)? };
        if in_slices || bytes > self.delete_slice.bytes {
            if !run.deleting {
                self.drive(rows, now, run.id.number, |_| Input::Expire)?;
                before = None;
            }
            let trimmed = rows.trim(run.id.number, *room).map_err(Fault::Storage)?;
            room.take(trimmed.rows);
            if !trimmed.is_all {
                return Ok(false);
            }
            if leaves_row {
                self.drive(rows, now, run.id.number, |_| Input::Empty)?;
                return Ok(true);
            }
        } else if rows_most > room.rows || bytes > room.bytes {
            return Ok(false);
        }
        let removed = rows.remove(run).map_err(|error| self.lose_count(error))?;
        self.recount(run, before, None);
        room.take(removed);
        room.bytes -= bytes.min(room.bytes);
        Ok(true)
    }
}

impl Slice {
    /// Uses up some of its rows. At least one: however a storage counts, a slice ends.
    pub(super) fn take(&mut self, rows: usize) {
        self.rows = self.rows.saturating_sub(rows.max(1));
    }
}

/// The rows that deleting a run writes at the most, without what it has published: its own, its events, an id for
/// each signal among them, its key, its tags and attributes, and the cell's largest number.
fn rows_of(run: &Run) -> usize {
    3 + 2 * run.head.0 as usize + run.tags.len() + run.attributes.len()
}
