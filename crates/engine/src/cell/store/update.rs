//! Changing the row of a run.

use stepwell_core::run::Run;
use stepwell_protocol::{Payload, Timestamp};
use wasm_bindgen::JsValue;

use super::Store;
use crate::object::{StoreError, number, time};

impl Store {
    pub(super) fn update_ended(&self, run: &Run, result: Option<String>) -> Result<(), StoreError> {
        let row = run.to_row();
        self.tables.execute(
            "UPDATE runs SET status = ?, wake_at = ?, ended_at = ?, state = ?, result = ? WHERE number = ?",
            &[
                row.status.into(),
                time(row.wake_at),
                time(row.ended_at),
                row.state.as_str().into(),
                result.map_or(JsValue::NULL, JsValue::from),
                number(run.id.number),
            ],
        )
    }

    pub(super) fn update_emptied(&self, run: &Run) -> Result<(), StoreError> {
        let row = run.to_row();
        self.tables.execute(
            "UPDATE runs SET wake_at = ?, state = ?, input = 'null', result = NULL WHERE number = ?",
            &[time(row.wake_at), row.state.as_str().into(), number(run.id.number)],
        )
    }

    /// One statement: the same row written twice would be billed twice.
    pub(super) fn update_anew(&self, run: &Run, input: &Payload) -> Result<(), StoreError> {
        let row = run.to_row();
        self.tables.execute(
            "UPDATE runs SET status = ?, wake_at = ?, state = ?, input = ? WHERE number = ?",
            &[
                row.status.into(),
                time(row.wake_at),
                row.state.as_str().into(),
                input.text().into(),
                number(run.id.number),
            ],
        )
    }

    pub(super) fn update(&self, run: &Run, wake_before: Option<Timestamp>) -> Result<(), StoreError> {
        let row = run.to_row();
        let (status, state) = (JsValue::from(row.status), JsValue::from(row.state.as_str()));
        let number = number(run.id.number);
        // An indexed column that is named is a row written, changed or not.
        if row.wake_at == wake_before {
            let query = "UPDATE runs SET status = ?, state = ? WHERE number = ?";
            return self.tables.execute(query, &[status, state, number]);
        }
        self.tables.execute(
            "UPDATE runs SET status = ?, wake_at = ?, state = ? WHERE number = ?",
            &[status, time(row.wake_at), state, number],
        )
    }
}
