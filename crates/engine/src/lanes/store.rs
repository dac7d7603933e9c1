//! The rows of a lane.

use std::cell::Cell as Slot;

use stepwell_core::lane::{Rows, Waiter};
use stepwell_protocol::{json, lane::SetLimit};

use crate::{
    object::{StoreError, Tables, number},
    runtime,
};

/// Created at the first ask. Later versions only ever add. There is no index: a lane reads all of it once, and keeps it in
/// memory.
const SCHEMA: &str = "CREATE TABLE waiters(number INTEGER PRIMARY KEY, state TEXT NOT NULL)";

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// A part of the rows: as objects of the runtime, all of them would take many times their size.
const PAGE: &str = "SELECT number, state FROM waiters WHERE number > ? ORDER BY number LIMIT 1000";

/// How many rows that are.
const PAGE_ROWS: usize = 1_000;

/// The rows.
pub struct Store {
    tables: Tables,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage) -> Self {
        Self { tables: Tables::new(storage, false), has_schema: Slot::new(None) }
    }

    fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'waiters'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    /// Creates the table, once the station is registered.
    pub fn prepare(&self) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        self.tables.transaction(|| {
            self.tables.execute(SCHEMA, &[])?;
            let version = ["schema".into(), SCHEMA_VERSION.into()];
            self.tables.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &version)
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }
}

impl Rows for Store {
    type Error = StoreError;

    fn waiters(&self) -> Result<Vec<(u64, Option<Waiter>)>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let (mut waiters, mut after) = (Vec::new(), 0);
        loop {
            let rows = self.tables.rows(PAGE, &[number(after)])?;
            for row in &rows {
                after = row.number(0, "number")?;
                let state = row.text(1, "state").ok();
                waiters.push((after, state.and_then(|state| json::from_str(&state).ok())));
            }
            if rows.len() < PAGE_ROWS {
                return Ok(waiters);
            }
        }
    }

    fn set_limits(&self) -> Result<Vec<SetLimit>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = 'limits'", &[])?;
        let text = rows.first().and_then(|row| row.text(0, "meta").ok());
        Ok(text.and_then(|text| json::from_str(&text).ok()).unwrap_or_default())
    }

    fn write_set_limits(&self, set: &[SetLimit]) -> Result<(), StoreError> {
        let text = serde_json::to_string(set).expect("a limit holds only what JSON can say");
        let row = ["limits".into(), text.into()];
        self.tables.transaction(|| self.tables.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &row))
    }

    fn write(&self, put: &[(u64, &Waiter)], deleted: &[u64]) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            for (place, waiter) in put {
                let state = serde_json::to_string(waiter).expect("a waiter holds only what JSON can say");
                let query =
                    "INSERT INTO waiters VALUES(?, ?) ON CONFLICT DO UPDATE SET state = excluded.state";
                self.tables.execute(query, &[number(*place), state.into()])?;
            }
            for place in deleted {
                self.tables.execute("DELETE FROM waiters WHERE number = ?", &[number(*place)])?;
            }
            Ok(())
        })
    }
}
