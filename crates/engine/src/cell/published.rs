//! The rows of what runs have published, and the look at all runs for readers that come back.
//!
//! Their table is created by the first run of a cell that publishes: the others pay nothing for it.

use stepwell_core::{
    cell::{DELETE_SLICE, Slice},
    stream::{Change, PublishedMark, PublishedPage, PublishedRow, Walked},
};
use stepwell_protocol::{RunId, program::PAGE_BYTES_MAX, stream::StoredItem};

use super::store::{Store, json, list::status, parse};
use crate::object::{StoreError, number};

/// Like the tables of [`super::store`], it only ever grows.
const SCHEMA: &str =
    "CREATE TABLE published(run INTEGER NOT NULL, last INTEGER NOT NULL, head INTEGER NOT NULL,
   mark TEXT NOT NULL, items TEXT NOT NULL, PRIMARY KEY(run, last)) WITHOUT ROWID";

/// How many rows one query reads: a page is full after one or two of the largest.
const ROWS_MAX: u64 = 16;

impl Store {
    pub(super) fn insert_told(&self, run: u64, row: &PublishedRow) -> Result<(), StoreError> {
        if !self.has_told()? {
            self.tables.execute(SCHEMA, &[])?;
            self.has_told.set(Some(true));
        }
        self.tables.execute(
            "INSERT INTO published VALUES(?, ?, ?, ?, ?)",
            &[
                number(run),
                row.last.into(),
                row.after.0.into(),
                json(&row.mark).into(),
                json(&row.items).into(),
            ],
        )
    }

    pub(super) fn last_told(&self, run: u64) -> Result<Option<(u32, PublishedMark)>, StoreError> {
        if !self.has_told()? {
            return Ok(None);
        }
        let query = "SELECT last, mark FROM published WHERE run = ? ORDER BY last DESC LIMIT 1";
        let rows = self.tables.rows(query, &[number(run)])?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some((row.seq(0).0, parse(&row.text(1, "mark")?, "mark")?)))
    }

    pub(super) fn told_page(&self, run: u64, after: u32) -> Result<PublishedPage, StoreError> {
        let mut page = PublishedPage::default();
        if !self.has_told()? {
            return Ok(page);
        }
        let rows = self.tables.rows(
            "SELECT last, head, mark, items FROM published WHERE run = ? AND last > ? ORDER BY last LIMIT ?",
            &[number(run), after.into(), number(ROWS_MAX)],
        )?;
        page.more = rows.len() as u64 == ROWS_MAX;
        let mut bytes = 0;
        for row in rows {
            let items = row.text(3, "items")?;
            bytes += items.len();
            if bytes > PAGE_BYTES_MAX && !page.rows.is_empty() {
                page.more = true;
                break;
            }
            let items: Vec<StoredItem> = parse(&items, "items")?;
            let mark = parse(&row.text(2, "mark")?, "mark")?;
            page.rows.push(PublishedRow { last: row.seq(0).0, after: row.seq(1), mark, items });
        }
        Ok(page)
    }

    pub(super) fn weight_of_told(&self, run: u64) -> Result<Slice, StoreError> {
        if !self.has_told()? {
            return Ok(Slice { rows: 0, bytes: 0 });
        }
        // More than fit into a slice need not be counted: they are deleted in several.
        let query = "SELECT count(*), coalesce(sum(octet_length(items)), 0) FROM
                       (SELECT items FROM published WHERE run = ? LIMIT ?)";
        let most = number(DELETE_SLICE.rows as u64 + 1);
        let rows = self.tables.rows(query, &[number(run), most])?;
        let Some(row) = rows.first() else { return Ok(Slice { rows: 0, bytes: 0 }) };
        let count = usize::try_from(row.number(0, "count")?).unwrap_or(usize::MAX);
        Ok(Slice { rows: count, bytes: row.number(1, "weight")? })
    }

    /// Deletes the first rows of a run, at most so many. Says how many that were.
    pub(super) fn trim_told(&self, run: u64, limit: usize) -> Result<usize, StoreError> {
        if !self.has_told()? {
            return Ok(0);
        }
        self.tables.execute_counted(
            "DELETE FROM published WHERE run = ?1
               AND last IN (SELECT last FROM published WHERE run = ?1 ORDER BY last LIMIT ?2)",
            &[number(run), number(limit as u64)],
        )
    }

    pub(super) fn changed_after(&self, after: u64, from: u64, limit: usize) -> Result<Walked, StoreError> {
        let Some(place) = self.place()? else { return Ok(Walked::default()) };
        let rows = self.tables.rows(
            "SELECT coalesce(max(number), 0), count(*) FROM
               (SELECT number FROM runs WHERE number > ? ORDER BY number LIMIT ?)",
            &[number(after), number(limit as u64)],
        )?;
        let Some(row) = rows.first() else { return Ok(Walked::default()) };
        let (last, looked_at) = (row.number(0, "number")?, row.number(1, "count")?);
        // A state that is not JSON would fail the whole query.
        let rows = self.tables.rows(
            "SELECT number, suffix, workflow, status, stamp FROM
               (SELECT number, suffix, workflow, status, instr(state, '\"deleting\":true') AS deleting,
                  iif(json_valid(state), coalesce(json_extract(state, '$.stamps.status'), 0), 0) AS stamp
                FROM runs WHERE number > ? AND number <= ?)
             WHERE stamp >= ? AND deleting = 0 ORDER BY number",
            &[number(after), number(last), number(from)],
        )?;
        let changes = rows.iter().map(|row| {
            let (place, suffix) = (place.clone(), row.text(1, "suffix")?);
            Ok(Change {
                stamp: row.number(4, "stamp")?,
                id: RunId { place, number: row.number(0, "number")?, suffix },
                workflow: row.text(2, "workflow")?,
                // One row that cannot be read must not cost anybody the stream.
                status: status(row, 3),
            })
        });
        let through = (looked_at == limit as u64).then_some(last);
        Ok(Walked { changes: changes.collect::<Result<_, StoreError>>()?, through })
    }

    /// Whether any run of this cell has published anything.
    pub(super) fn has_told(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_told.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'published'", &[])?;
        self.has_told.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }
}
