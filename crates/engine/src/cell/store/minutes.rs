//! What has happened to the runs of a cell, minute by minute and all together.

use stepwell_core::cell::{Happened, add_happened};
use stepwell_protocol::json;

use super::Store;
use crate::object::{StoreError, number};

/// Created by the first minute.
const SCHEMA: &str = "CREATE TABLE minutes(minute INTEGER PRIMARY KEY, happened TEXT NOT NULL)";

/// How many minutes are read at once: each of them may tell of 200 workflows.
const SLICE: u64 = 30;

/// Where all before a minute is, as a list of both.
const ADDED_UP: &str = "totals";

impl Store {
    fn has_minutes(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_minutes.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'minutes'", &[])?;
        self.has_minutes.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    pub(super) fn add_to_minute(&self, minute: u64, more: &Happened) -> Result<(), StoreError> {
        if !self.has_minutes()? {
            self.tables.execute(SCHEMA, &[])?;
            self.has_minutes.set(Some(true));
        }
        let query = "SELECT happened FROM minutes WHERE minute = ?";
        let stored = self.tables.rows(query, &[number(minute)])?;
        let mut happened = read(stored.first().and_then(|row| row.optional_text(0)));
        add_happened(&mut happened, more);
        let values = [number(minute), text(&happened).into()];
        self.tables.execute("INSERT OR REPLACE INTO minutes VALUES(?, ?)", &values)
    }

    pub(super) fn read_minutes(
        &self,
        from: u64,
        each: &mut dyn FnMut(u64, Happened),
    ) -> Result<(), StoreError> {
        if !self.has_minutes()? {
            return Ok(());
        }
        let query = "SELECT minute, happened FROM minutes WHERE minute >= ? ORDER BY minute LIMIT ?";
        let mut from = from;
        loop {
            let rows = self.tables.rows(query, &[number(from), number(SLICE)])?;
            for row in &rows {
                let minute = row.number(0, "minute")?;
                each(minute, read(row.optional_text(1)));
                from = minute + 1;
            }
            if (rows.len() as u64) < SLICE {
                return Ok(());
            }
        }
    }

    pub(super) fn added_up(&self) -> Result<(u64, Happened), StoreError> {
        if !self.has_schema()? {
            return Ok((0, Happened::default()));
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = ?", &[ADDED_UP.into()])?;
        let stored = rows.first().and_then(|row| row.optional_text(0));
        Ok(stored.and_then(|text| json::from_str(&text).ok()).unwrap_or_default())
    }

    pub(super) fn put_added_up(&self, before: u64, all: &Happened, forget: u64) -> Result<(), StoreError> {
        let text = serde_json::to_string(&(before, all)).expect("numbers are JSON");
        self.tables.transaction(|| {
            let values = [ADDED_UP.into(), text.as_str().into()];
            self.tables.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &values)?;
            self.tables.execute("DELETE FROM minutes WHERE minute < ?", &[number(forget)])
        })
    }
}

/// What cannot be read has not happened: nothing depends on it.
fn read(text: Option<String>) -> Happened {
    text.and_then(|text| json::from_str(&text).ok()).unwrap_or_default()
}

fn text(happened: &Happened) -> String {
    serde_json::to_string(happened).expect("numbers are JSON")
}
