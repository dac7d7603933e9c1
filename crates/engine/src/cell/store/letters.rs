//! The rows of the outbox: what this cell has written to others, until it has arrived.
//!
//! Their table is created by the first letter of a cell: the others pay nothing for it.

use stepwell_core::object::{Discarded, Envelope, Letter, Letters, Slip};
use stepwell_protocol::{
    Timestamp,
    outbox::{LetterCounts, MessageHead},
};

use super::{Store, json, parse};
use crate::{
    calls::cell::{ListedLetter, ListedLetters},
    object::{Row, StoreError, number, time},
};

/// Like the other tables, it only ever grows. What each message is about stands beside them, since they may be large:
/// whoever looks for what is left to be sent reads only that.
const SCHEMA: &str = "CREATE TABLE outbox(id INTEGER PRIMARY KEY, posted_at INTEGER NOT NULL,
   dead INTEGER NOT NULL, heads TEXT NOT NULL, messages TEXT NOT NULL)";

/// A letter that arrives is never in it, and costs nothing more for it.
const DEAD_INDEX: &str = "CREATE INDEX outbox_dead ON outbox(id) WHERE dead = 1";

/// How many letters are counted.
const COUNTED_MAX: u64 = 10_000;

impl Store {
    /// Whether there is a table of letters.
    fn has_outbox(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_outbox.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'outbox'", &[])?;
        self.has_outbox.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    /// Creates the table of letters if there is none.
    pub(super) fn prepare_outbox(&self) -> Result<(), StoreError> {
        if !self.has_outbox()? {
            self.tables.execute(SCHEMA, &[])?;
            self.tables.execute(DEAD_INDEX, &[])?;
            self.has_outbox.set(Some(true));
        }
        Ok(())
    }

    pub(super) fn insert_letter(&self, letter: &Letter) -> Result<(), StoreError> {
        let heads: Vec<_> =
            letter.envelopes.iter().map(|Envelope { to, message }| message.head(to)).collect();
        self.tables.execute(
            "INSERT INTO outbox VALUES(?, ?, 0, ?, ?)",
            &[
                number(letter.id),
                time(Some(letter.posted_at)),
                json(&heads).into(),
                json(&letter.envelopes).into(),
            ],
        )
    }

    /// What has not arrived, or only what nobody sends any more.
    pub(in crate::cell) fn list_letters(
        &self,
        only_dead: bool,
        after: u64,
        limit: u32,
    ) -> Result<ListedLetters, StoreError> {
        if !self.has_outbox()? {
            return Ok(ListedLetters { letters: Vec::new(), is_all: true });
        }
        let query = if only_dead {
            "SELECT id, posted_at, heads, dead FROM outbox WHERE id > ? AND dead = 1 ORDER BY id LIMIT ?"
        } else {
            "SELECT id, posted_at, heads, dead FROM outbox WHERE id > ? ORDER BY id LIMIT ?"
        };
        let rows = self.tables.rows(query, &[number(after), number(u64::from(limit) + 1)])?;
        let letter = |row: &Row| {
            Ok(ListedLetter {
                number: row.number(0, "letter")?,
                posted_at: row.optional_time(1).unwrap_or_default(),
                dead: row.number(3, "letter")? > 0,
                heads: heads(row, 2),
            })
        };
        let letters = rows.iter().take(limit as usize).map(letter).collect::<Result<_, StoreError>>()?;
        Ok(ListedLetters { letters, is_all: rows.len() <= limit as usize })
    }

    /// How many letters have not arrived, as far as it counts.
    pub(in crate::cell) fn count_letters(&self) -> Result<LetterCounts, StoreError> {
        if !self.has_outbox()? {
            return Ok(LetterCounts::default());
        }
        let query = "SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE dead = 1 LIMIT ?)),
           (SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT ?))";
        let rows = self.tables.rows(query, &[number(COUNTED_MAX), number(2 * COUNTED_MAX)])?;
        let Some(row) = rows.first() else { return Ok(LetterCounts::default()) };
        let (dead, all) = (row.number(0, "letters")?, row.number(1, "letters")?);
        Ok(LetterCounts { waiting: all.saturating_sub(dead).min(COUNTED_MAX), dead })
    }

    /// Since when the letter has waited that has waited longest, as far as it looks.
    pub(in crate::cell) fn letters_wait_since(&self) -> Result<Option<Timestamp>, StoreError> {
        if !self.has_outbox()? {
            return Ok(None);
        }
        let query = "SELECT min(posted_at) FROM (SELECT posted_at, dead FROM outbox ORDER BY id LIMIT ?)
           WHERE dead = 0";
        let rows = self.tables.rows(query, &[number(2 * COUNTED_MAX)])?;
        Ok(rows.first().and_then(|row| row.optional_time(0)))
    }

    pub(super) fn delete_letter(&self, id: u64) -> Result<(), StoreError> {
        self.tables.execute("DELETE FROM outbox WHERE id = ?", &[number(id)])
    }
}

impl Letters for Store {
    type Error = StoreError;

    fn last_letter(&self) -> Result<u64, StoreError> {
        if !self.has_outbox()? {
            return Ok(0);
        }
        let rows = self.tables.rows("SELECT coalesce(max(id), 0) FROM outbox", &[])?;
        rows.first().map_or(Ok(0), |row| row.number(0, "letter"))
    }

    fn letters(&self, after: u64, limit: usize) -> Result<Vec<Slip>, StoreError> {
        if !self.has_outbox()? {
            return Ok(Vec::new());
        }
        let query = "SELECT id, posted_at, heads FROM outbox WHERE id > ? AND dead = 0 ORDER BY id LIMIT ?";
        self.tables.rows(query, &[number(after), number(limit as u64)])?.iter().map(slip).collect()
    }

    fn letter(&self, id: u64) -> Result<Option<Letter>, StoreError> {
        let query = "SELECT posted_at, messages FROM outbox WHERE id = ? AND dead = 0";
        let rows = self.tables.rows(query, &[number(id)])?;
        let Some(row) = rows.first() else { return Ok(None) };
        // One that cannot be read is laid aside; it must not keep the others from being sent.
        let envelopes = row.optional_text(1).and_then(|text| parse(&text, "letter").ok()).unwrap_or_default();
        Ok(Some(Letter { id, posted_at: row.optional_time(0).unwrap_or_default(), envelopes }))
    }

    fn forget_letter(&self, id: u64) -> Result<(), StoreError> {
        self.delete_letter(id)
    }

    fn revive_letter(&self, id: u64, now: Timestamp) -> Result<Option<bool>, StoreError> {
        if !self.has_outbox()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT dead, messages FROM outbox WHERE id = ?", &[number(id)])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let was_dead = row.number(0, "letter")? > 0;
        if was_dead {
            let mut messages = row.optional_text(1).unwrap_or_default();
            // One that cannot be read is laid aside again.
            if let Ok(envelopes) = parse(&messages, "letter") {
                let mut letter = Letter { id, posted_at: now, envelopes };
                letter.revive(now);
                messages = json(&letter.envelopes);
            }
            let query = "UPDATE outbox SET dead = 0, posted_at = ?, messages = ? WHERE id = ?";
            self.tables.execute(query, &[time(Some(now)), messages.into(), number(id)])?;
        }
        Ok(Some(was_dead))
    }

    fn discard_letter(&self, id: u64) -> Result<Option<Discarded>, StoreError> {
        if !self.has_outbox()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT dead, heads FROM outbox WHERE id = ?", &[number(id)])?;
        let Some(row) = rows.first() else { return Ok(None) };
        if row.number(0, "letter")? == 0 {
            return Ok(Some(Discarded::Alive));
        }
        let heads = heads(row, 1);
        self.delete_letter(id)?;
        Ok(Some(Discarded::Dead(heads)))
    }

    fn split_letter(&self, id: u64, dead: &Letter, rest: Option<&Letter>) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            self.delete_letter(id)?;
            self.insert_letter(dead)?;
            self.bury_letter(dead.id)?;
            rest.map_or(Ok(()), |rest| self.insert_letter(rest))
        })
    }

    fn bury_letter(&self, id: u64) -> Result<(), StoreError> {
        self.tables.execute("UPDATE outbox SET dead = 1 WHERE id = ?", &[number(id)])
    }
}

/// What the messages of a letter are about; nothing if that cannot be read.
fn heads(row: &Row, column: u32) -> Vec<MessageHead> {
    row.optional_text(column).and_then(|text| parse(&text, "heads").ok()).unwrap_or_default()
}

fn slip(row: &Row) -> Result<Slip, StoreError> {
    let to = heads(row, 2).iter().filter_map(|head| head.to.parse().ok()).collect();
    // One that cannot be read is as old as can be, and laid aside.
    Ok(Slip { id: row.number(0, "letter")?, posted_at: row.optional_time(1).unwrap_or_default(), to })
}
