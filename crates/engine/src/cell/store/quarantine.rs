//! Rows that cannot be read: set aside until a time, shown as far as they can be, and taken back.

use stepwell_core::run::Run;
use stepwell_protocol::{
    RunId, Timestamp,
    rest::{RunView, Status},
};

use super::Store;
use crate::{
    log,
    object::{StoreError, number, time},
};

const UPDATE: &str = "UPDATE runs SET status = ?, wake_at = ? WHERE number = ?";

impl Store {
    pub(super) fn quarantine_run(
        &self,
        run: u64,
        error: &StoreError,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        log::error!("run {run} is set aside: {error}");
        self.tables.execute(UPDATE, &[Status::Paused.as_str().into(), time(Some(until)), number(run)])
    }

    pub(super) fn release_run(&self, run: &Run) -> Result<(), StoreError> {
        let row = run.to_row();
        self.tables.execute(UPDATE, &[row.status.into(), time(row.wake_at), number(run.id.number)])
    }

    /// A run whose state cannot be read, as far as it can be shown.
    pub fn unreadable_view(&self, id: &RunId) -> Result<Option<RunView>, StoreError> {
        let found = self.views(&[id.number])?.pop();
        Ok(found.filter(|view| view.id == *id))
    }
}
