//! Storing a new run.

use stepwell_core::{cell::KeyRow, run::Run};
use stepwell_protocol::Payload;

use super::Store;
use crate::object::{StoreError, number, time};

impl Store {
    pub(super) fn insert_run(
        &self,
        run: &Run,
        input: &Payload,
        key: Option<&KeyRow>,
    ) -> Result<(), StoreError> {
        let row = run.to_row();
        let insert = || {
            self.tables.execute(
                "INSERT INTO runs(number, suffix, workflow, status, created_at, wake_at, state, input)
                 VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                &[
                    number(run.id.number),
                    run.id.suffix.as_str().into(),
                    run.workflow.as_str().into(),
                    row.status.into(),
                    time(Some(run.created_at)),
                    time(row.wake_at),
                    row.state.as_str().into(),
                    input.text().into(),
                ],
            )
        };
        // A single statement is atomic by itself.
        if key.is_none() && run.tags.is_empty() && run.gathering.is_none() {
            return insert();
        }
        self.tables.transaction(|| {
            if let Some(key) = key {
                // A key whose run is gone is free again.
                self.tables.execute(
                    "INSERT OR REPLACE INTO keys VALUES(?, ?, ?)",
                    &[key.key.as_str().into(), number(run.id.number), key.fingerprint.as_str().into()],
                )?;
            }
            if let Some(key) = run.found_by() {
                let values = [key.into(), number(run.id.number), run.id.suffix.as_str().into()];
                self.tables.execute("INSERT OR REPLACE INTO keys VALUES(?, ?, ?)", &values)?;
            }
            for tag in &run.tags {
                let values = [tag.as_str().into(), number(run.id.number)];
                self.tables.execute("INSERT OR IGNORE INTO tags VALUES(?, ?)", &values)?;
            }
            insert()
        })
    }
}
