//! SQL: statements, rows and values, and nothing about what they mean.

use std::{
    cell::{Cell as Slot, RefCell},
    panic::AssertUnwindSafe,
};

use js_sys::Array;
use stepwell_core::{object::Address, ordered::OrdMap};
use stepwell_protocol::{Seq, Timestamp};
use wasm_bindgen::JsValue;

use super::StoreError;
use crate::runtime;

/// The object's SQLite database.
pub struct Tables {
    storage: runtime::Storage,
    sql: runtime::Sql,
    /// The texts of statements as JavaScript has them, by where they are: each crossing would be a copy.
    statements: RefCell<OrdMap<usize, JsValue>>,
    rows_written: Slot<u64>,
    rows_read: Slot<u64>,
    /// Whether rows are counted: asking for them is a crossing too.
    counts: bool,
}

impl Tables {
    pub fn new(storage: runtime::Storage, counts: bool) -> Self {
        let sql = storage.sql();
        let (rows_written, rows_read) = (Slot::default(), Slot::default());
        Self { storage, sql, statements: RefCell::default(), rows_written, rows_read, counts }
    }

    /// The object's own address, if it has stored anything.
    pub fn address(&self) -> Result<Option<String>, StoreError> {
        self.meta("SELECT value FROM meta WHERE key = 'address'")
    }

    /// The life of its namespace that the object was begun in, if it knows it.
    pub fn life(&self) -> Result<Option<u64>, StoreError> {
        let life = self.meta("SELECT value FROM meta WHERE key = 'life'")?;
        life.map(|text| text.parse().map_err(|_| StoreError::Unreadable("life"))).transpose()
    }

    /// Makes the table `meta`, with the object's own address and the life of its namespace.
    pub fn begin(&self, address: &Address, life: u64) -> Result<(), StoreError> {
        self.transaction(|| {
            self.execute(
                "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
                &[],
            )?;
            for (key, value) in [("address", address.to_string()), ("life", life.to_string())] {
                self.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            Ok(())
        })
    }

    fn meta(&self, query: &'static str) -> Result<Option<String>, StoreError> {
        if self.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'", &[])?.is_empty() {
            return Ok(None);
        }
        let rows = self.rows(query, &[])?;
        rows.first().map(|row| row.text(0, "meta")).transpose()
    }

    /// All of it or nothing.
    pub fn transaction(&self, body: impl Fn() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut error = None;
        // A panic rolls it back like an error, and nothing else was changed.
        let mut act = AssertUnwindSafe(|| match body() {
            Ok(()) => Ok(JsValue::UNDEFINED),
            Err(inner) => {
                let thrown = JsValue::from_str(&inner.to_string());
                error = Some(inner);
                Err(thrown)
            }
        });
        let outcome = self.storage.transaction_sync(&mut move || {
            let AssertUnwindSafe(act) = &mut act;
            act()
        });
        match (outcome, error) {
            (_, Some(error)) => Err(error),
            (Err(thrown), None) => Err(thrown.into()),
            (Ok(_), None) => Ok(()),
        }
    }

    /// Runs a statement that writes.
    pub fn execute(&self, query: &'static str, bindings: &[JsValue]) -> Result<(), StoreError> {
        let cursor = self.sql.exec(&self.statement(query), &array(bindings))?;
        if self.counts {
            self.count_rows(whole(cursor.rows_written()));
        }
        Ok(())
    }

    /// Runs a statement that writes and returns how many rows it wrote, whether or not the meter is on: for
    /// callers whose next decision depends on the number.
    pub fn execute_counted(&self, query: &'static str, bindings: &[JsValue]) -> Result<usize, StoreError> {
        let cursor = self.sql.exec(&self.statement(query), &array(bindings))?;
        let rows = whole(cursor.rows_written());
        self.count_rows(rows);
        Ok(usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// Runs the statement that inserts a record into a journal.
    #[expect(clippy::cast_precision_loss, reason = "numbers and times are below 2^53")]
    pub fn insert_record(
        &self,
        query: &'static str,
        run: u64,
        (seq, at): (Seq, Timestamp),
        event: &str,
        mark: Option<&str>,
    ) -> Result<(), StoreError> {
        let (run, at) = (run as f64, at.as_millis() as f64);
        self.with_statement(query, |query| {
            let sql = &self.sql;
            let rows = runtime::insert_record(sql, query, self.counts, run, seq.0, at, event, mark)?;
            self.count_rows(whole(rows));
            Ok(())
        })
    }

    /// All rows of a query at once: a cursor must not be read across an await.
    pub fn rows(&self, query: &'static str, bindings: &[JsValue]) -> Result<Vec<Row>, StoreError> {
        self.rows_of(&self.statement(query), bindings)
    }

    /// The same for a query that was put together.
    pub fn rows_of(&self, query: &JsValue, bindings: &[JsValue]) -> Result<Vec<Row>, StoreError> {
        let cursor = self.sql.exec(query, &array(bindings))?;
        let rows = cursor.raw()?.to_array()?;
        if self.counts {
            self.rows_read.set(self.rows_read.get() + whole(cursor.rows_read()));
        }
        Ok(rows.iter().map(|row| Row(row.into())).collect())
    }

    fn statement(&self, query: &'static str) -> JsValue {
        self.with_statement(query, JsValue::clone)
    }

    fn with_statement<T>(&self, query: &'static str, act: impl FnOnce(&JsValue) -> T) -> T {
        let mut statements = self.statements.borrow_mut();
        act(statements.get_or_insert_with(query.as_ptr() as usize, || query.into()))
    }

    /// The bytes of the database.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.sql.database_size().map(whole)?)
    }

    /// Rows that this instance has written. Complete only while the meter is on: never decide by it.
    pub fn rows_written(&self) -> u64 {
        self.rows_written.get()
    }

    /// Rows that this instance has written and read, if the meter is on.
    pub fn metered(&self) -> Option<(u64, u64)> {
        self.counts.then(|| (self.rows_written.get(), self.rows_read.get()))
    }

    /// Rows that this instance has read, if they are counted.
    pub fn rows_read(&self) -> u64 {
        self.rows_read.get()
    }

    /// Counts rows that were written in another way.
    pub fn count_rows(&self, rows: u64) {
        self.rows_written.set(self.rows_written.get() + rows);
    }
}

/// A count or a size as the runtime gives it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and sizes are whole, positive and below 2^53"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// Values for a statement; a few of them cross over at once.
fn array(values: &[JsValue]) -> Array {
    match values {
        [one] => Array::of1(one),
        [one, two] => Array::of2(one, two),
        [one, two, three] => Array::of3(one, two, three),
        [one, two, three, four] => Array::of4(one, two, three, four),
        [one, two, three, four, five] => Array::of5(one, two, three, four, five),
        more => more.iter().collect(),
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

    /// Whatever it is.
    pub fn value(&self, column: u32) -> JsValue {
        self.0.get(column)
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
