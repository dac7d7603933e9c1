//! What is deleted was over, and nothing of it is left.

use stepwell_core::run::Run;
use stepwell_protocol::{RunId, Timestamp};

use super::{AtEnd, Checked, Checker};
use crate::tables::{Deleted, Tables, Write};

/// How long after its time a run may still be there, when nothing is broken.
const LATE_MS: u64 = 10_000;

impl Checker {
    /// A run, or a piece of it, was deleted; or it was said that it will be.
    pub fn deleted(
        &mut self,
        (cell, disk): (usize, &Tables),
        write: &Write,
        before: Option<&Run>,
        latest: Timestamp,
    ) -> Checked {
        const RULE: &str = "29 nothing is deleted before its time";
        let about = |text: String| format!("cell {cell}, run {}: {text}", write.number);
        let Some(before) = before else { return Err((RULE, about("it was not there".into()))) };
        if let Some(Deleted::Erased(part)) = write.deleted {
            return self.erased(cell, before, part);
        }
        if !before.is_expired(latest) {
            let text = format!("it is deleted at {}, and was {:?}", latest.as_millis(), before.phase);
            return Err((RULE, about(text)));
        }
        self.runs.entry((cell, write.number)).or_default().deleted = true;
        self.keys.retain(|_, (_, run)| *run != before.id);
        self.freed.extend(before.key.clone());
        if disk.runs.contains_key(&write.number) {
            return Ok(());
        }
        let left = disk.journal(write.number).len()
            + disk.signals.iter().filter(|(number, _)| *number == write.number).count()
            + disk.keys.values().filter(|stored| stored.number == write.number).count();
        if left > 0 {
            return Err(("29 nothing of a deleted run is left", about(format!("{left} rows are"))));
        }
        Ok(())
    }

    /// Whether a run was deleted: whatever was said of it before is out of date.
    pub fn is_deleted(&self, cell: usize, run: &RunId) -> bool {
        self.runs.get(&(cell, run.number)).is_some_and(|known| known.deleted)
    }

    /// What was deleted stays so, and what is over is gone.
    pub(super) fn nothing_is_left(&self, at: &AtEnd<'_>) -> Checked {
        for ((cell, number), known) in &self.runs {
            // Of a child, the empty row stays for a while.
            let is_emptied = at.disk.run(at.place, *number).is_some_and(|run| run.emptied);
            if *cell == at.cell && known.deleted && at.disk.runs.contains_key(number) && !is_emptied {
                let text = format!("cell {cell}, run {number}: it was deleted and is there");
                return Err(("29 what is over is deleted", text));
            }
        }
        for number in at.disk.runs.keys() {
            let run = at.disk.run(at.place, *number).expect("it is on disk");
            if run.deleted_at().is_some_and(|over| over.plus_millis(LATE_MS) <= at.clock) {
                let text = format!("cell {}, run {number}: its time was over long ago", at.cell);
                return Err(("29 what is over is deleted", text));
            }
        }
        let known = |number: &u64| at.disk.runs.contains_key(number);
        let strays = at.disk.journal.iter().filter(|(_, rows)| !rows.is_empty()).map(|(number, _)| number);
        let strays = strays.chain(at.disk.signals.iter().map(|(number, _)| number));
        match strays.filter(|number| !known(number)).count() {
            0 => Ok(()),
            left => {
                Err(("29 nothing of a deleted run is left", format!("cell {}: {left} rows are", at.cell)))
            }
        }
    }
}
