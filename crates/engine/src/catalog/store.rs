//! The catalog's rows.

use std::cell::Cell as Slot;

use stepwell_core::catalog::{Row, Rows, Trim};
use stepwell_protocol::access::AuditRecord;

use crate::{
    cell::{StoreError, Tables, number},
    runtime,
};

/// Created at the first accepted write. Later versions only ever add.
const SCHEMA: [&str; 3] = [
    "CREATE TABLE things(kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(kind, name))
       WITHOUT ROWID",
    "CREATE TABLE audit(seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, line TEXT NOT NULL)",
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// How many old lines of the audit log are looked at with each new one.
const TRIMMED_MAX: u32 = 100;

/// The catalog's rows.
pub struct Store {
    tables: Tables,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage) -> Self {
        Self { tables: Tables::new(storage, false), has_schema: Slot::new(None) }
    }

    /// Creates the tables if there are none, and remembers whose catalog this is.
    pub fn prepare(&self, namespace: &str) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        self.tables.transaction(|| {
            for statement in SCHEMA {
                self.tables.execute(statement, &[])?;
            }
            for (key, value) in [("schema", SCHEMA_VERSION), ("namespace", namespace)] {
                self.tables.execute("INSERT INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            Ok(())
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }

    /// Whose catalog this is, once it has stored something.
    pub fn namespace(&self) -> Result<Option<String>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = 'namespace'", &[])?;
        rows.first().map(|row| row.text(0, "namespace")).transpose()
    }

    fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'things'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    /// Drops lines of the audit log that are too many or too old, some at a time: their numbers and times rise
    /// together, so the first ones are the oldest.
    fn trim(&self, trim: Trim) -> Result<(), StoreError> {
        let query = "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT ?)
           AND (seq < ? OR at < ?) AND seq < (SELECT max(seq) FROM audit)";
        let bindings = [TRIMMED_MAX.into(), number(trim.first), number(trim.from.as_millis())];
        self.tables.execute(query, &bindings)
    }
}

impl Rows for Store {
    type Error = StoreError;

    fn load(&self) -> Result<Vec<Row>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows("SELECT kind, name, value FROM things", &[])?;
        let row = |row: &crate::cell::SqlRow| {
            let (kind, name) = (row.text(0, "kind")?, row.text(1, "name")?);
            Ok(Row { kind, name, value: Some(row.text(2, "value")?) })
        };
        rows.iter().map(row).collect()
    }

    fn audit_last(&self) -> Result<u64, StoreError> {
        if !self.has_schema()? {
            return Ok(0);
        }
        let rows = self.tables.rows("SELECT coalesce(max(seq), 0) FROM audit", &[])?;
        rows.first().map_or(Ok(0), |row| row.number(0, "seq"))
    }

    fn commit(&self, rows: &[Row], audit: &[AuditRecord], trim: Option<Trim>) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            for Row { kind, name, value } in rows {
                let (kind, name) = (kind.as_str().into(), name.as_str().into());
                match value {
                    Some(value) => {
                        let query = "INSERT INTO things VALUES(?, ?, ?)
                           ON CONFLICT DO UPDATE SET value = excluded.value";
                        self.tables.execute(query, &[kind, name, value.as_str().into()])?;
                    }
                    None => {
                        let query = "DELETE FROM things WHERE kind = ? AND name = ?";
                        self.tables.execute(query, &[kind, name])?;
                    }
                }
            }
            for record in audit {
                let line = serde_json::to_string(record).expect("a line holds only what JSON can say");
                let bindings = [number(record.seq), number(record.at.as_millis()), line.into()];
                self.tables.execute("INSERT INTO audit VALUES(?, ?, ?)", &bindings)?;
            }
            trim.map_or(Ok(()), |trim| self.trim(trim))
        })
    }

    fn audit(&self, below: u64, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let query = "SELECT line FROM audit WHERE seq < ? ORDER BY seq DESC LIMIT ?";
        let rows = self.tables.rows(query, &[number(below), limit.into()])?;
        let line = |row: &crate::cell::SqlRow| {
            serde_json::from_str(&row.text(0, "line")?).map_err(|_| StoreError::Unreadable("line"))
        };
        rows.iter().map(line).collect()
    }
}
