//! SQL: statements, rows and values, and nothing about what they mean.

use std::cell::Cell as Slot;

use js_sys::Array;
use stepwell_protocol::{Seq, Timestamp};
use wasm_bindgen::JsValue;

use super::fault::StoreError;
use crate::runtime;

/// The object's SQLite database.
pub struct Tables {
    storage: runtime::Storage,
    sql: runtime::Sql,
    rows_written: Slot<u64>,
}

impl Tables {
    pub fn new(storage: runtime::Storage) -> Self {
        let sql = storage.sql();
        Self { storage, sql, rows_written: Slot::default() }
    }

    /// All of it or nothing.
    pub fn transaction(&self, body: impl Fn() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut error = None;
        let outcome = self.storage.transaction_sync(&mut || match body() {
            Ok(()) => Ok(JsValue::UNDEFINED),
            Err(inner) => {
                let thrown = JsValue::from_str(&inner.to_string());
                error = Some(inner);
                Err(thrown)
            }
        });
        match (outcome, error) {
            (_, Some(error)) => Err(error),
            (Err(thrown), None) => Err(thrown.into()),
            (Ok(_), None) => Ok(()),
        }
    }

    /// Runs a statement that writes.
    pub fn execute(&self, query: &str, bindings: &[JsValue]) -> Result<(), StoreError> {
        let cursor = self.sql.exec(query, &bindings.iter().collect::<Array>())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of rows is whole, positive and small"
        )]
        self.count_rows(cursor.rows_written() as u64);
        Ok(())
    }

    /// All rows of a query at once: a cursor must not be read across an await.
    pub fn rows(&self, query: &str, bindings: &[JsValue]) -> Result<Vec<Row>, StoreError> {
        let cursor = self.sql.exec(query, &bindings.iter().collect::<Array>())?;
        let rows = cursor.raw()?.to_array()?;
        Ok(rows.iter().map(|row| Row(row.into())).collect())
    }

    /// Rows that this instance has written.
    pub fn rows_written(&self) -> u64 {
        self.rows_written.get()
    }

    /// Counts rows that were written in another way.
    pub fn count_rows(&self, rows: u64) {
        self.rows_written.set(self.rows_written.get() + rows);
    }
}

/// One row of a result.
pub struct Row(Array);

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers in rows are whole, positive and below 2^53: only the store writes them"
)]
impl Row {
    pub fn text(&self, column: u32, what: &'static str) -> Result<String, StoreError> {
        self.optional_text(column).ok_or(StoreError::Unreadable(what))
    }

    pub fn optional_text(&self, column: u32) -> Option<String> {
        self.0.get(column).as_string()
    }

    pub fn number(&self, column: u32, what: &'static str) -> Result<u64, StoreError> {
        self.0.get(column).as_f64().map(|number| number as u64).ok_or(StoreError::Unreadable(what))
    }

    /// A position in the journal; 0 where there is none.
    pub fn seq(&self, column: u32) -> Seq {
        Seq(self.0.get(column).as_f64().map_or(0, |number| number as u32))
    }

    pub fn time(&self, column: u32) -> Result<Timestamp, StoreError> {
        self.optional_time(column).ok_or(StoreError::Unreadable("time"))
    }

    pub fn optional_time(&self, column: u32) -> Option<Timestamp> {
        self.0.get(column).as_f64().map(|millis| Timestamp::from_millis(millis as u64))
    }
}

/// A time as a value, or NULL.
pub fn time(at: Option<Timestamp>) -> JsValue {
    at.map_or(JsValue::NULL, |at| number(at.as_millis()))
}

/// SQL takes JavaScript's numbers; ours are exact in them, but for the one that stands for 'after all'.
#[expect(clippy::cast_precision_loss, reason = "numbers and times are below 2^53")]
pub fn number(number: u64) -> JsValue {
    JsValue::from_f64(number as f64)
}
