//! Deleting runs, a bounded number of rows at a time.

use std::cell::Cell as Slot;

use stepwell_core::{
    cell::{Slice, Trimmed},
    run::Run,
};
use wasm_bindgen::JsValue;

use super::{DELETE_LABEL, Store, list};
use crate::object::{StoreError, number};

impl Store {
    /// Deletes the first events of a run's journal, then what it has published, then ids of its signals: as much as
    /// fits.
    pub(super) fn trim_run(&self, run: u64, room: Slice) -> Result<Trimmed, StoreError> {
        let rows = self.tables.rows(
            "SELECT seq, octet_length(event) FROM journal WHERE run = ? ORDER BY seq LIMIT ?",
            &[number(run), number(room.rows as u64)],
        )?;
        let (mut last, mut bytes, mut is_all) = (None, 0, rows.len() < room.rows);
        for row in &rows {
            bytes += row.number(1, "length")?;
            if bytes > room.bytes && last.is_some() {
                is_all = false;
                break;
            }
            last = Some(row.seq(0));
        }
        let events = match last {
            Some(last) => {
                let query = "DELETE FROM journal WHERE run = ? AND seq <= ?";
                self.tables.execute_counted(query, &[number(run), last.0.into()])?
            }
            None => 0,
        };
        if !is_all {
            return Ok(Trimmed { rows: events, is_all });
        }
        let told = self.trim_told(run, room.rows.saturating_sub(events))?;
        let left = room.rows.saturating_sub(events + told);
        let ids = self.tables.execute_counted(
            "DELETE FROM signals WHERE run = ?1
               AND id IN (SELECT id FROM signals WHERE run = ?1 ORDER BY id LIMIT ?2)",
            &[number(run), number(left as u64)],
        )?;
        Ok(Trimmed { rows: events + told + ids, is_all: ids < left })
    }

    /// Deletes a run and all that belongs to it; gives the number of rows.
    pub(super) fn remove_run(&self, run: &Run) -> Result<usize, StoreError> {
        let of_run = [number(run.id.number)];
        let removed = Slot::new(0);
        let delete = |query, bindings: &[JsValue]| {
            removed.set(removed.get() + self.tables.execute_counted(query, bindings)?);
            Ok::<_, StoreError>(())
        };
        self.tables.transaction(|| {
            removed.set(0);
            delete("DELETE FROM journal WHERE run = ?", &of_run)?;
            delete("DELETE FROM signals WHERE run = ?", &of_run)?;
            if self.has_told()? {
                delete("DELETE FROM published WHERE run = ?", &of_run)?;
            }
            let attributes = run.attributes.iter().map(|(name, value)| list::label(name, value));
            for label in run.tags.iter().cloned().chain(attributes) {
                delete(DELETE_LABEL, &[label.into(), number(run.id.number)])?;
            }
            for key in run.key.as_deref().into_iter().chain(run.found_by()) {
                // By now it may be another run's.
                let values = [key.into(), number(run.id.number)];
                delete("DELETE FROM keys WHERE key = ? AND run = ?", &values)?;
            }
            let later = self.tables.rows("SELECT 1 FROM runs WHERE number > ? LIMIT 1", &of_run)?;
            if later.is_empty() {
                delete(
                    "INSERT INTO meta VALUES('last_number', ?) ON CONFLICT(key) DO UPDATE
                       SET value = excluded.value
                       WHERE CAST(value AS INTEGER) < CAST(excluded.value AS INTEGER)",
                    &[run.id.number.to_string().into()],
                )?;
            }
            delete("DELETE FROM runs WHERE number = ?", &of_run)
        })?;
        Ok(removed.get())
    }
}
