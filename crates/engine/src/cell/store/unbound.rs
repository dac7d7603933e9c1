//! Keys of children that this cell has sent on and that have ended, and keys that are given up: when each of them is
//! forgotten.

use stepwell_protocol::Timestamp;

use super::{MOVED, Store};
use crate::object::{StoreError, number, time};

/// Created by the first of them.
const SCHEMA: [&str; 2] = [
    "CREATE TABLE unbound(key TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX unbound_by_end ON unbound(until)",
];

impl Store {
    fn has_unbound(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_unbound.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'unbound'", &[])?;
        self.has_unbound.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    pub(super) fn unbind_key(&self, key: &str, until: Timestamp) -> Result<(), StoreError> {
        if !self.has_unbound()? {
            self.tables.transaction(|| SCHEMA.iter().try_for_each(|part| self.tables.execute(part, &[])))?;
            self.has_unbound.set(Some(true));
        }
        let values = [key.into(), time(Some(until))];
        self.tables.execute("INSERT OR IGNORE INTO unbound VALUES(?, ?)", &values)
    }

    /// It looks like one that has gone to no place.
    pub(super) fn give_up_key(&self, key: &str, until: Timestamp) -> Result<(), StoreError> {
        self.unbind_key(key, until)?;
        let values = [key.into(), number(MOVED), "".into()];
        self.tables.execute("INSERT OR REPLACE INTO keys VALUES(?, ?, ?)", &values)
    }

    pub(super) fn first_unbound_key(&self) -> Result<Option<Timestamp>, StoreError> {
        if !self.has_unbound()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT until FROM unbound ORDER BY until LIMIT 1", &[])?;
        Ok(rows.first().and_then(|row| row.optional_time(0)))
    }

    pub(super) fn forget_unbound_keys(&self, now: Timestamp, limit: usize) -> Result<(), StoreError> {
        if !self.has_unbound()? {
            return Ok(());
        }
        let query = "SELECT key FROM unbound WHERE until <= ? ORDER BY until LIMIT ?";
        let rows = self.tables.rows(query, &[time(Some(now)), number(limit as u64)])?;
        self.tables.transaction(|| {
            for row in &rows {
                let key = row.text(0, "key")?;
                let moved = [key.as_str().into(), number(MOVED)];
                self.tables.execute("DELETE FROM keys WHERE key = ? AND run = ?", &moved)?;
                self.tables.execute("DELETE FROM unbound WHERE key = ?", &[key.as_str().into()])?;
            }
            Ok(())
        })
    }
}
