//! The rows of a station of schedules.

use std::cell::Cell as Slot;

use stepwell_core::{
    object::Address,
    schedule::{Rows, Schedule},
};
use stepwell_protocol::Timestamp;

use crate::{
    object::{Row, StoreError, Tables, time},
    runtime,
};

/// Created at the first accepted write. Later versions only ever add. There is no index: a station reads when each of
/// its schedules is due once, and keeps that in memory. An index would be one more row for each tick.
const SCHEMA: [&str; 2] = [
    "CREATE TABLE schedules(id TEXT PRIMARY KEY, due_at INTEGER, state TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// The rows.
pub struct Store {
    tables: Tables,
    address: Address,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage, address: Address) -> Self {
        Self { tables: Tables::new(storage, false), address, has_schema: Slot::new(None) }
    }

    /// Whether anything was ever stored here.
    pub fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'schedules'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    /// Creates the tables, and remembers where this is.
    pub fn prepare(&self) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        let address = self.address.to_string();
        self.tables.transaction(|| {
            for statement in SCHEMA {
                self.tables.execute(statement, &[])?;
            }
            for (key, value) in [("schema", SCHEMA_VERSION), ("address", &address)] {
                self.tables.execute("INSERT INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            Ok(())
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }
}

fn read(row: &Row, column: u32) -> Result<Schedule, StoreError> {
    serde_json::from_str(&row.text(column, "schedule")?).map_err(|_| StoreError::Unreadable("schedule"))
}

impl Rows for Store {
    type Error = StoreError;

    fn is_unreadable(error: &StoreError) -> bool {
        matches!(error, StoreError::Unreadable(_))
    }

    fn due(&self) -> Result<Vec<(String, Option<Timestamp>)>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows("SELECT id, due_at FROM schedules", &[])?;
        rows.iter().map(|row| Ok((row.text(0, "id")?, row.optional_time(1)))).collect()
    }

    fn get(&self, id: &str) -> Result<Option<Schedule>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT state FROM schedules WHERE id = ?", &[id.into()])?;
        rows.first().map(|row| read(row, 0)).transpose()
    }

    fn page(&self, after: &str, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let query = "SELECT state FROM schedules WHERE id > ? ORDER BY id LIMIT ?";
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let rows = self.tables.rows(query, &[after.into(), limit.into()])?;
        Ok(rows.iter().filter_map(|row| read(row, 0).ok()).collect())
    }

    fn put(&self, schedule: &Schedule) -> Result<(), StoreError> {
        let state = serde_json::to_string(schedule).expect("a schedule holds only what JSON can say");
        let query = "INSERT INTO schedules VALUES(?, ?, ?)
           ON CONFLICT DO UPDATE SET due_at = excluded.due_at, state = excluded.state";
        self.tables.execute(query, &[schedule.id.as_str().into(), time(schedule.due_at()), state.into()])
    }

    fn delete(&self, id: &str) -> Result<(), StoreError> {
        self.tables.execute("DELETE FROM schedules WHERE id = ?", &[id.into()])
    }
}
