//! Deletes what earlier lives of a run have left behind, a bounded number of rows at a time.
//!
//! A run that has begun anew is put aside with those whose time is over, and each alarm deletes a slice of its old
//! events. Nothing is written for that but the deletions: if the instance dies, the next one finds by the run's row that
//! something may be left, when it takes the run up. It is due then, or comes to be when it wakes.

use std::rc::Rc;

use stepwell_protocol::Seq;

use super::{Cell, Rows, Slice};
use crate::{
    object::Fault,
    run::{Cut, Entry, Run},
};

impl Cell {
    /// Puts a run aside that begins anew, or is called while something may be left of its earlier lives: the alarm that
    /// is set while a run is due deletes that.
    pub(super) fn look_after_remains(&mut self, run: &Run, entries: &[Entry]) {
        let begins = entries.iter().any(|entry| matches!(entry, Entry::BegunAnew { .. }));
        if begins {
            self.inputs.remove(&run.id.number);
        }
        if run.remains.is_some()
            && (begins || entries.iter().any(|entry| matches!(entry, Entry::Activated { .. })))
        {
            self.set_aside(run.id.number);
        }
    }

    /// Deletes as much of it as there is room for. Says whether nothing of it is left.
    pub(super) fn delete_remains<R: Rows>(
        &mut self,
        rows: &R,
        run: &Run,
        room: &mut Slice,
    ) -> Result<bool, Fault<R::Error>> {
        let Some(through) = run.remains else { return Ok(true) };
        let number = run.id.number;
        let (mut after, mut deleted) = (Seq(0), 0);
        let is_all = loop {
            let found = rows
                .sizes(number, Cut { after, through }, self.delete_slice.rows.max(1))
                .map_err(Fault::Storage)?;
            let Some(&(last, _)) = found.last() else { break true };
            let (parts, is_full) = old_parts(run, &found, room);
            for part in parts {
                deleted += rows.erase(number, part).map_err(Fault::Storage)?;
            }
            if is_full {
                break false;
            }
            after = last;
        };
        if let Some(known) = self.runs.get_mut(&number) {
            Rc::make_mut(known).trimmed(deleted, is_all);
        }
        Ok(is_all)
    }
}

/// The parts of a journal that hold those of these events which do not count, as far as there is room for them; and
/// whether there was too little.
fn old_parts(run: &Run, events: &[(Seq, u64)], room: &mut Slice) -> (Vec<Cut>, bool) {
    let mut parts: Vec<Cut> = Vec::new();
    // Whether the last event that was looked at is the end of the last part.
    let mut goes_on = false;
    for &(seq, bytes) in events {
        if run.counts(seq) {
            goes_on = false;
            continue;
        }
        if room.rows == 0 || room.bytes == 0 {
            return (parts, true);
        }
        room.take(1);
        room.bytes = room.bytes.saturating_sub(bytes);
        match parts.last_mut() {
            Some(part) if goes_on => part.through = seq,
            Some(_) | None => parts.push(Cut::only(seq)),
        }
        goes_on = true;
    }
    (parts, false)
}
