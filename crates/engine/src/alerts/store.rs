//! The rows of alerts.

use std::cell::Cell as Slot;

use stepwell_core::alert::{Rows, Rule};
use stepwell_protocol::json;

use crate::{
    object::{StoreError, Tables},
    runtime,
};

/// Created by the first rule. Later versions only ever add.
const SCHEMA: &str = "CREATE TABLE alerts(id TEXT PRIMARY KEY, rule TEXT NOT NULL) WITHOUT ROWID";

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

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
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'alerts'", &[])?;
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

    fn rules(&self) -> Result<Vec<(String, Option<Rule>)>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows("SELECT id, rule FROM alerts ORDER BY id", &[])?;
        let read = |text: Option<String>| text.and_then(|text| json::from_str(&text).ok());
        rows.iter().map(|row| Ok((row.text(0, "id")?, read(row.optional_text(1))))).collect()
    }

    fn put(&self, id: &str, rule: &Rule) -> Result<(), StoreError> {
        let text = serde_json::to_string(rule).expect("a rule holds only what JSON can say");
        self.tables.execute("INSERT OR REPLACE INTO alerts VALUES(?, ?)", &[id.into(), text.into()])
    }

    fn delete(&self, id: &str) -> Result<(), StoreError> {
        self.tables.execute("DELETE FROM alerts WHERE id = ?", &[id.into()])
    }
}
