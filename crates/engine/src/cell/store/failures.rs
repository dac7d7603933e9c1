//! Failed runs, in groups of those that failed alike: a row for each group. Runs that are deleted leave theirs behind.

use stepwell_core::cell::FailureRows;
use stepwell_protocol::{Timestamp, failures::FailureGroup, json};

use super::Store;
use crate::object::{StoreError, number, time};

/// Created by the first run that fails. Without a second index: each failed run writes one row.
const SCHEMA: &str = "CREATE TABLE failures(id TEXT PRIMARY KEY, last_at INTEGER NOT NULL, workflow TEXT NOT NULL, \
                      failures TEXT NOT NULL) WITHOUT ROWID";

impl Store {
    fn has_failures(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_failures.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'failures'", &[])?;
        self.has_failures.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }
}

impl FailureRows for Store {
    fn failure(&self, id: &str) -> Result<Option<FailureGroup>, StoreError> {
        if !self.has_failures()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT failures FROM failures WHERE id = ?", &[id.into()])?;
        Ok(rows.first().and_then(|row| read(row.optional_text(0))))
    }

    fn keep_failure(
        &self,
        group: &FailureGroup,
        forget: Option<(Timestamp, usize)>,
    ) -> Result<(), StoreError> {
        if !self.has_failures()? {
            self.tables.execute(SCHEMA, &[])?;
            self.has_failures.set(Some(true));
        }
        let text = serde_json::to_string(group).expect("a group holds only what JSON can say");
        self.tables.transaction(|| {
            if let Some((before, most)) = forget {
                self.tables.execute("DELETE FROM failures WHERE last_at < ?", &[time(Some(before))])?;
                // A new group is rare, and there are few: they need no index. One comes at a time, so one goes.
                let oldest = "DELETE FROM failures WHERE (SELECT count(*) FROM failures) > ? AND id = \
                              (SELECT id FROM failures WHERE workflow = (SELECT workflow FROM failures \
                              GROUP BY workflow ORDER BY count(*) DESC, workflow LIMIT 1) ORDER BY last_at, id LIMIT 1)";
                self.tables.execute(oldest, &[number(most as u64)])?;
            }
            let (id, workflow) = (group.id.as_str().into(), group.workflow.as_str().into());
            let values = [id, time(Some(group.last_at)), workflow, text.as_str().into()];
            self.tables.execute("INSERT OR REPLACE INTO failures VALUES(?, ?, ?, ?)", &values)
        })
    }

    fn each_failure(&self, each: &mut dyn FnMut(FailureGroup)) -> Result<(), StoreError> {
        if !self.has_failures()? {
            return Ok(());
        }
        let rows = self.tables.rows("SELECT failures FROM failures", &[])?;
        rows.iter().filter_map(|row| read(row.optional_text(0))).for_each(each);
        Ok(())
    }
}

/// What cannot be read is begun anew: no run depends on it.
fn read(text: Option<String>) -> Option<FailureGroup> {
    json::from_str(&text?).ok()
}
