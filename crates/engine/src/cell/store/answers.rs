//! What the API has answered, as Workers have told: one row.

use stepwell_protocol::json;

use super::Store;
use crate::{
    calls::figures::{Answers, add_answers},
    object::StoreError,
};

/// Where it is.
const ANSWERS: &str = "answers";

impl Store {
    /// All that was told. What cannot be read was not: nothing depends on it.
    pub(in crate::cell) fn answers(&self) -> Result<Answers, StoreError> {
        if !self.has_schema()? {
            return Ok(Answers::new());
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = ?", &[ANSWERS.into()])?;
        let stored = rows.first().and_then(|row| row.optional_text(0));
        Ok(stored.and_then(|text| json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Adds what was told.
    pub(in crate::cell) fn add_answers(&self, more: &Answers) -> Result<(), StoreError> {
        let mut all = self.answers()?;
        add_answers(&mut all, more);
        let text = serde_json::to_string(&all).expect("numbers are JSON");
        self.tables
            .execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &[ANSWERS.into(), text.as_str().into()])
    }
}
