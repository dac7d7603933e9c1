//! Starts that have become part of runs that others have started: by what each is known, and when that is forgotten.

use stepwell_core::{
    cell::JoinedRun,
    run::{KnownJoin, Run},
};
use stepwell_protocol::Timestamp;

use super::Store;
use crate::object::{StoreError, number, time};

/// Created by the first of them.
const SCHEMA: [&str; 2] = [
    "CREATE TABLE joins(key TEXT PRIMARY KEY, run INTEGER NOT NULL, suffix TEXT NOT NULL, fingerprint TEXT NOT NULL,
       until INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX joins_by_end ON joins(until)",
];

impl Store {
    fn has_joins(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_joins.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'joins'", &[])?;
        self.has_joins.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    pub(super) fn prepare_joins(&self) -> Result<(), StoreError> {
        if !self.has_joins()? {
            self.tables.transaction(|| SCHEMA.iter().try_for_each(|part| self.tables.execute(part, &[])))?;
            self.has_joins.set(Some(true));
        }
        Ok(())
    }

    pub(super) fn insert_join(&self, run: &Run, known: &KnownJoin) -> Result<(), StoreError> {
        let values = [
            known.key.as_str().into(),
            number(run.id.number),
            run.id.suffix.as_str().into(),
            known.fingerprint.as_str().into(),
            time(Some(known.until)),
        ];
        self.tables.execute("INSERT OR REPLACE INTO joins VALUES(?, ?, ?, ?, ?)", &values)
    }

    pub(super) fn joined_run(&self, key: &str) -> Result<Option<JoinedRun>, StoreError> {
        if !self.has_joins()? {
            return Ok(None);
        }
        let query = "SELECT run, suffix, fingerprint FROM joins WHERE key = ?";
        let rows = self.tables.rows(query, &[key.into()])?;
        let read = |row: &crate::object::Row| {
            let (suffix, fingerprint) = (row.text(1, "suffix")?, row.text(2, "fingerprint")?);
            Ok(JoinedRun { number: row.number(0, "run")?, suffix, fingerprint })
        };
        rows.first().map(read).transpose()
    }

    pub(super) fn first_join(&self) -> Result<Option<Timestamp>, StoreError> {
        if !self.has_joins()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT until FROM joins ORDER BY until LIMIT 1", &[])?;
        Ok(rows.first().and_then(|row| row.optional_time(0)))
    }

    pub(super) fn forget_joins(&self, now: Timestamp, limit: usize) -> Result<(), StoreError> {
        if !self.has_joins()? {
            return Ok(());
        }
        let query =
            "DELETE FROM joins WHERE key IN (SELECT key FROM joins WHERE until <= ? ORDER BY until LIMIT ?)";
        self.tables.execute(query, &[time(Some(now)), number(limit as u64)])
    }
}
