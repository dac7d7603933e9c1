//! Reading a run's journal, and deleting parts of it.

use stepwell_core::{cell::Sought, run::Cut};
use stepwell_protocol::{
    Record, Seq,
    program::{PAGE_BYTES_MAX, RawPage, RawRecord},
};

use super::{Store, json, parse, payload};
use crate::object::{Row, StoreError, number};

/// How many events the first query for a page reads.
const RECORDS_FIRST: usize = 16;

/// How many events one query reads at the most.
const RECORDS_MAX: usize = 1_000;

/// How many events that were looked for are read at once.
const FOUND_MAX: u32 = 16;

impl Store {
    /// The journal after a position, as much as goes into a page, and at most this many events.
    pub fn read_page(&self, run: u64, after: Seq, most: usize) -> Result<RawPage, StoreError> {
        let mut page = RawPage::default();
        let (mut bytes, mut last) = (0, after);
        // A thousand of the largest events do not fit into memory: a few show how large these are.
        let mut limit = RECORDS_FIRST;
        loop {
            // One more shows whether there are more.
            limit = limit.min(most.saturating_sub(page.events.len()).saturating_add(1));
            let rows = self.tables.rows(
                "SELECT seq, at, event FROM journal WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                &[number(run), last.0.into(), number(limit as u64)],
            )?;
            let count = rows.len();
            for row in rows {
                let event = payload(row.text(2, "event")?, "event")?;
                bytes += event.size();
                let is_full = bytes > PAGE_BYTES_MAX || page.events.len() == most;
                if is_full && !page.events.is_empty() {
                    page.more = true;
                    return Ok(page);
                }
                last = row.seq(0);
                page.events.push(RawRecord { seq: last, at: row.time(1)?, event });
            }
            if count < limit {
                return Ok(page);
            }
            let average = bytes / page.events.len() + 1;
            limit = ((PAGE_BYTES_MAX - bytes.min(PAGE_BYTES_MAX)) / average + 1).min(RECORDS_MAX);
        }
    }

    /// Some of the journal's events of one kind after a position.
    pub(super) fn find_events(
        &self,
        run: u64,
        what: &Sought<'_>,
        after: Seq,
    ) -> Result<Vec<Record>, StoreError> {
        let mut bindings = vec![number(run), after.0.into()];
        // By its text, and not as JSON: SQLite reads none that is nested a thousand times, and a payload may be. An
        // event begins with its kind and its operation, and no quote within a name looks like one of these.
        let condition = match what {
            Sought::Any => "",
            Sought::Through(last) => {
                bindings.push(last.0.into());
                "AND seq <= ?"
            }
            Sought::FailedSteps => {
                r#"AND 1 IN (instr(event, '{"step_finished":'), instr(event, '{"child_finished":'))
                   AND substr(event, instr(event, ',"outcome":{"') + 13, 5) = 'err":'"#
            }
            Sought::Of(op) => {
                let op = json(op);
                let kinds = [
                    "step_finished",
                    "step_begun",
                    "step_retrying",
                    "step_let_in",
                    "timer_fired",
                    "child_invoked",
                    "child_started",
                    "child_finished",
                ];
                bindings.extend(kinds.map(|kind| format!(r#"{{"{kind}":{{"op":{op}"#).into()));
                "AND 1 IN (instr(event, ?), instr(event, ?), instr(event, ?), instr(event, ?), instr(event, ?),
                   instr(event, ?), instr(event, ?), instr(event, ?))"
            }
            Sought::Children => r#"AND instr(event, '{"child_') = 1"#,
            Sought::Signals => r#"AND instr(event, '{"signal_received":') = 1"#,
        };
        bindings.push(FOUND_MAX.into());
        let query = format!(
            "SELECT seq, at, event FROM journal WHERE run = ? AND seq > ? {condition} ORDER BY seq LIMIT ?"
        );
        self.tables.rows_of(&query.into(), &bindings)?.iter().map(record).collect()
    }

    /// Where the first events of a part of a journal are, and how many bytes each has.
    pub(super) fn event_sizes(
        &self,
        run: u64,
        part: Cut,
        limit: usize,
    ) -> Result<Vec<(Seq, u64)>, StoreError> {
        let rows = self.tables.rows(
            "SELECT seq, octet_length(event) FROM journal WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            &[number(run), part.after.0.into(), part.through.0.into(), number(limit as u64)],
        )?;
        rows.iter().map(|row| Ok((row.seq(0), row.number(1, "length")?))).collect()
    }

    /// Deletes the events of a part of a journal; gives the number of rows.
    pub(super) fn erase_events(&self, run: u64, part: Cut) -> Result<usize, StoreError> {
        let query = "DELETE FROM journal WHERE run = ? AND seq > ? AND seq <= ?";
        self.tables.execute_counted(query, &[number(run), part.after.0.into(), part.through.0.into()])
    }
}

/// A row of a journal: its position, its time, its event.
fn record(row: &Row) -> Result<Record, StoreError> {
    let event = parse(&row.text(2, "event")?, "event")?;
    Ok(Record { seq: row.seq(0), at: row.time(1)?, event })
}
