//! The rows of a station of schedules.

use std::cell::Cell as Slot;

use stepwell_core::schedule::{Heard, Rows, Schedule};
use stepwell_protocol::{Timestamp, json};

use crate::{
    object::{Row, StoreError, Tables, time},
    runtime,
};

/// Created at the first accepted write. Later versions only ever add. There is no index: a station reads when each of
/// its schedules is due once, and keeps that in memory. An index would be one more row for each tick.
const SCHEMA: &str =
    "CREATE TABLE schedules(id TEXT PRIMARY KEY, due_at INTEGER, state TEXT NOT NULL) WITHOUT ROWID";

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// The rows.
pub struct Store {
    pub(super) tables: Tables,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage, is_metered: bool) -> Self {
        Self { tables: Tables::new(storage, is_metered), has_schema: Slot::new(None) }
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

fn read(row: &Row, column: u32) -> Result<Schedule, StoreError> {
    json::from_str(&row.text(column, "schedule")?).map_err(|_| StoreError::Unreadable("schedule"))
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

    fn page(&self, after: &str, limit: usize) -> Result<Vec<(String, Option<Schedule>)>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let query = "SELECT id, state FROM schedules WHERE id > ? ORDER BY id LIMIT ?";
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let rows = self.tables.rows(query, &[after.into(), limit.into()])?;
        rows.iter().map(|row| Ok((row.text(0, "id")?, read(row, 1).ok()))).collect()
    }

    fn put(&self, schedule: &Schedule) -> Result<(), StoreError> {
        let state = serde_json::to_string(schedule).expect("a schedule holds only what JSON can say");
        let query = "INSERT INTO schedules VALUES(?, ?, ?)
           ON CONFLICT DO UPDATE SET due_at = excluded.due_at, state = excluded.state";
        self.tables.execute(query, &[schedule.id.as_str().into(), time(schedule.due_at()), state.into()])
    }

    fn heard(&self) -> Result<Heard, StoreError> {
        if !self.has_schema()? {
            return Ok(Heard::default());
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = 'declared'", &[])?;
        let heard = rows.first().map(|row| {
            let text = row.text(0, "declared")?;
            json::from_str(&text).map_err(|_| StoreError::Unreadable("declared"))
        });
        heard.transpose().map(Option::unwrap_or_default)
    }

    fn declare(&self, heard: &Heard, schedules: &[Schedule]) -> Result<(), StoreError> {
        let text = serde_json::to_string(heard).expect("names are JSON");
        self.tables.transaction(|| {
            for schedule in schedules {
                self.put(schedule)?;
            }
            let row = ["declared".into(), text.as_str().into()];
            self.tables.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &row)
        })
    }

    fn delete(&self, id: &str) -> Result<(), StoreError> {
        self.tables.execute("DELETE FROM schedules WHERE id = ?", &[id.into()])
    }
}
