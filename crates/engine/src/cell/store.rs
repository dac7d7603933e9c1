//! The cell's rows: what is stored where, and nothing about why.
//!
//! One row for each run, one for each event of its journal; one more for an idempotency key or a signal's
//! id, if there is one. The only secondary index finds what is due.

use std::cell::Cell as Slot;

use serde::de::DeserializeOwned;
use stepwell_core::{
    cell::{KeyRow, Rows, StoredRun},
    run::{Entry, Mark, Run, Tail},
};
use stepwell_protocol::{
    Event, Payload, Place, Record, RunId, Seq, Timestamp,
    program::{PAGE_BYTES_MAX, RawPage, RawRecord},
    rest::{RunView, Status},
};
use wasm_bindgen::JsValue;

use super::{
    call::{Filter, Listed, Reached},
    fault::StoreError,
    tables::{Tables, number, time},
};
use crate::runtime;

/// Created at the first accepted write, so that asking an empty cell costs nothing. Later versions only
/// ever add.
const SCHEMA: [&str; 7] = [
    "CREATE TABLE runs(number INTEGER PRIMARY KEY, suffix TEXT NOT NULL, workflow TEXT NOT NULL,
       status TEXT NOT NULL, created_at INTEGER NOT NULL, ended_at INTEGER, wake_at INTEGER,
       state TEXT NOT NULL, input TEXT NOT NULL, result TEXT)",
    "CREATE INDEX runs_by_wake ON runs(wake_at) WHERE wake_at IS NOT NULL",
    "CREATE TABLE journal(run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
       event TEXT NOT NULL, mark TEXT, PRIMARY KEY(run, seq)) WITHOUT ROWID",
    "CREATE TABLE keys(key TEXT PRIMARY KEY, run INTEGER NOT NULL, fingerprint TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE signals(run INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY(run, id)) WITHOUT ROWID",
    "CREATE TABLE tags(tag TEXT NOT NULL, run INTEGER NOT NULL, PRIMARY KEY(tag, run)) WITHOUT ROWID",
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// How many runs one list looks at.
const SCANNED_MAX: u32 = 2_000;

/// How many events one query reads.
const RECORDS_MAX: u32 = 1_000;

/// The cell's rows.
pub struct Store {
    tables: Tables,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage) -> Self {
        Self { tables: Tables::new(storage), has_schema: Slot::new(None) }
    }

    /// Creates the tables if there are none, and remembers where this cell is.
    pub fn prepare(&self, place: &Place) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        self.tables.transaction(|| {
            for statement in SCHEMA {
                self.tables.execute(statement, &[])?;
            }
            for (key, value) in [("schema", SCHEMA_VERSION), ("place", &place.to_string())] {
                self.tables.execute("INSERT INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            Ok(())
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }

    /// Adds what a run gave to its view.
    pub fn add_result(&self, view: &mut RunView) -> Result<(), StoreError> {
        let query = "SELECT result FROM runs WHERE number = ?";
        let rows = self.tables.rows(query, &[number(view.id.number)])?;
        let Some(result) = rows.first().and_then(|row| row.optional_text(0)) else { return Ok(()) };
        if view.status == Status::Failed {
            view.error = Some(parse(&result, "failure")?);
        } else {
            view.output = Some(payload(result, "output")?);
        }
        Ok(())
    }

    /// Runs that fit a filter, newest first. Looks at a bounded number of rows: the caller goes on from `next`.
    pub fn list(&self, filter: &Filter, below: u64, limit: u32) -> Result<Listed, StoreError> {
        if !self.has_schema()? {
            return Ok(Listed { runs: Vec::new(), next: None });
        }
        let mut query = String::from("SELECT number, status, workflow, created_at FROM runs");
        let mut bindings = Vec::new();
        if let Some(tag) = &filter.tag {
            query.push_str(" JOIN tags ON tags.run = number AND tags.tag = ?");
            bindings.push(tag.as_str().into());
        }
        query.push_str(" WHERE number < ? ORDER BY number DESC LIMIT ?");
        bindings.extend([number(below), SCANNED_MAX.into()]);
        let rows = self.tables.rows(&query, &bindings)?;
        let (mut runs, mut next) = (Vec::new(), None);
        let is_cut_off = rows.len() == SCANNED_MAX as usize;
        for (index, row) in rows.iter().enumerate() {
            let run_number = row.number(0, "number")?;
            let (status, created_at) = (row.text(1, "status")?, row.time(3)?);
            let fits = filter.status.is_none_or(|wanted| wanted.as_str() == status)
                && filter.from.is_none_or(|from| created_at >= from)
                && filter.until.is_none_or(|until| created_at < until)
                && match &filter.workflow {
                    Some(wanted) => *wanted == row.text(2, "workflow")?,
                    None => true,
                };
            if fits && let Some(run) = self.run(run_number)? {
                let mut view = RunView::from(&run);
                self.add_result(&mut view)?;
                // A list is for finding runs; what one gave is shown by the run itself.
                view.output = None;
                runs.push(view);
            }
            let is_last = index + 1 == rows.len();
            if (runs.len() == limit as usize || is_last) && (is_cut_off || !is_last) {
                next = Some(Reached { number: run_number, created_at });
                break;
            }
        }
        Ok(Listed { runs, next })
    }

    /// Rows that this instance has written, alarms included.
    pub fn rows_written(&self) -> u64 {
        self.tables.rows_written()
    }

    /// Counts rows that were written past this store.
    pub fn count_rows(&self, rows: u64) {
        self.tables.count_rows(rows);
    }

    fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    fn write(&self, run: &Run, wake_before: Option<Timestamp>, entries: &[Entry]) -> Result<(), StoreError> {
        let (mut result, mut reopened) = (None, false);
        for entry in entries {
            if let Entry::Recorded { record, mark } = entry {
                self.insert_record(run.id.number, record, *mark)?;
            } else if let Entry::Completed { output, .. } = entry {
                result = Some(output.text().to_owned());
            } else if let Entry::Failed { failure, .. } = entry {
                result = Some(json(failure));
            } else if let Entry::Reopened { .. } = entry {
                reopened = true;
            }
        }
        if reopened {
            let query = "UPDATE runs SET ended_at = NULL, result = NULL WHERE number = ?";
            self.tables.execute(query, &[number(run.id.number)])?;
        }
        if entries.iter().any(Entry::changes_row) { self.update(run, wake_before, result) } else { Ok(()) }
    }

    fn insert_record(&self, run: u64, record: &Record, mark: Option<Mark>) -> Result<(), StoreError> {
        let mark = mark.map_or(JsValue::NULL, |mark| json(&mark).into());
        let event = json(&record.event).into();
        self.tables.execute(
            "INSERT INTO journal VALUES(?, ?, ?, ?, ?)",
            &[number(run), record.seq.0.into(), time(Some(record.at)), event, mark],
        )?;
        if let Event::SignalReceived { id: Some(id), .. } = &record.event {
            self.tables.execute("INSERT INTO signals VALUES(?, ?)", &[number(run), id.as_str().into()])?;
        }
        Ok(())
    }

    fn update(
        &self,
        run: &Run,
        wake_before: Option<Timestamp>,
        result: Option<String>,
    ) -> Result<(), StoreError> {
        let row = run.to_row();
        let (status, state) = (JsValue::from(row.status), JsValue::from(row.state.as_str()));
        let number = number(run.id.number);
        if row.ended_at.is_some() {
            let result = result.map_or(JsValue::NULL, JsValue::from);
            return self.tables.execute(
                "UPDATE runs SET status = ?, wake_at = NULL, ended_at = ?, state = ?, result = ? WHERE number = ?",
                &[status, time(row.ended_at), state, result, number],
            );
        }
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

impl Rows for Store {
    type Error = StoreError;

    fn run(&self, run: u64) -> Result<Option<Run>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows(
            "SELECT suffix, workflow, created_at, state, (SELECT value FROM meta WHERE key = 'place'),
               (SELECT max(seq) FROM journal WHERE run = number),
               (SELECT mark FROM journal WHERE run = number AND mark IS NOT NULL ORDER BY seq DESC LIMIT 1)
             FROM runs WHERE number = ?",
            &[number(run)],
        )?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id = RunId { place: place(&row.text(4, "place")?)?, number: run, suffix: row.text(0, "suffix")? };
        let mark = match row.optional_text(6) {
            Some(mark) => Some(parse(&mark, "mark")?),
            None => None,
        };
        let tail = Tail { head: row.seq(5), mark };
        let (workflow, state) = (row.text(1, "workflow")?, row.text(3, "state")?);
        Ok(Some(Run::from_row(id, workflow, row.time(2)?, &state, tail)?))
    }

    fn last_number(&self) -> Result<u64, StoreError> {
        let rows = self.tables.rows("SELECT coalesce(max(number), 0) FROM runs", &[])?;
        rows.first().map_or(Ok(0), |row| row.number(0, "number"))
    }

    fn insert(&self, run: &Run, input: &Payload, key: Option<&KeyRow>) -> Result<(), StoreError> {
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
        if key.is_none() && run.tags.is_empty() {
            return insert();
        }
        self.tables.transaction(|| {
            if let Some(key) = key {
                self.tables.execute(
                    "INSERT INTO keys VALUES(?, ?, ?)",
                    &[key.key.as_str().into(), number(run.id.number), key.fingerprint.as_str().into()],
                )?;
            }
            for tag in &run.tags {
                let values = [tag.as_str().into(), number(run.id.number)];
                self.tables.execute("INSERT OR IGNORE INTO tags VALUES(?, ?)", &values)?;
            }
            insert()
        })
    }

    fn commit(&self, run: &Run, wake_before: Option<Timestamp>, entries: &[Entry]) -> Result<(), StoreError> {
        // A single statement is atomic by itself.
        if statements(entries) == 1 {
            return self.write(run, wake_before, entries);
        }
        self.tables.transaction(|| self.write(run, wake_before, entries))
    }

    fn key(&self, key: &str) -> Result<Option<StoredRun>, StoreError> {
        let rows = self.tables.rows("SELECT run, fingerprint FROM keys WHERE key = ?", &[key.into()])?;
        rows.first()
            .map(|row| {
                Ok(StoredRun { number: row.number(0, "run")?, fingerprint: row.text(1, "fingerprint")? })
            })
            .transpose()
    }

    fn has_signal(&self, run: u64, id: &str) -> Result<bool, StoreError> {
        let query = "SELECT 1 FROM signals WHERE run = ? AND id = ?";
        Ok(!self.tables.rows(query, &[number(run), id.into()])?.is_empty())
    }

    fn input(&self, run: u64) -> Result<Payload, StoreError> {
        let rows = self.tables.rows("SELECT input FROM runs WHERE number = ?", &[number(run)])?;
        let row = rows.first().ok_or(StoreError::Unreadable("input"))?;
        payload(row.text(0, "input")?, "input")
    }

    fn page(&self, run: u64, after: Seq) -> Result<RawPage, StoreError> {
        let mut page = RawPage::default();
        let (mut bytes, mut last) = (0, after);
        loop {
            let rows = self.tables.rows(
                "SELECT seq, at, event FROM journal WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                &[number(run), last.0.into(), RECORDS_MAX.into()],
            )?;
            let count = rows.len();
            for row in rows {
                let event = payload(row.text(2, "event")?, "event")?;
                bytes += event.size();
                if bytes > PAGE_BYTES_MAX && !page.events.is_empty() {
                    page.more = true;
                    return Ok(page);
                }
                last = row.seq(0);
                page.events.push(RawRecord { seq: last, at: row.time(1)?, event });
            }
            if count < RECORDS_MAX as usize {
                return Ok(page);
            }
        }
    }

    fn records(&self, run: u64, after: Seq, through: Seq) -> Result<Vec<Record>, StoreError> {
        if after >= through {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows(
            "SELECT seq, at, event FROM journal WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq",
            &[number(run), after.0.into(), through.0.into()],
        )?;
        rows.iter()
            .map(|row| {
                let event = parse(&row.text(2, "event")?, "event")?;
                Ok(Record { seq: row.seq(0), at: row.time(1)?, event })
            })
            .collect()
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows(
            "SELECT wake_at, number FROM runs
             WHERE wake_at IS NOT NULL AND (wake_at, number) > (?, ?) AND wake_at <= ?
             ORDER BY wake_at, number LIMIT ?",
            &[time(Some(after.0)), number(after.1), time(Some(now)), number(limit as u64)],
        )?;
        rows.iter().map(|row| Ok((row.time(0)?, row.number(1, "number")?))).collect()
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows(
            "SELECT wake_at FROM runs WHERE wake_at IS NOT NULL AND (wake_at, number) > (?, ?)
             ORDER BY wake_at, number LIMIT 1",
            &[time(Some(after.0)), number(after.1)],
        )?;
        Ok(rows.first().and_then(|row| row.optional_time(0)))
    }
}

/// How many statements it takes to write these.
fn statements(entries: &[Entry]) -> usize {
    let each = entries.iter().map(|entry| {
        if let Entry::Recorded { record, .. } = entry {
            1 + usize::from(matches!(record.event, Event::SignalReceived { id: Some(_), .. }))
        } else {
            usize::from(matches!(entry, Entry::Reopened { .. }))
        }
    });
    each.sum::<usize>() + usize::from(entries.iter().any(Entry::changes_row))
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what is stored holds only what JSON can say")
}

fn parse<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::Unreadable(what))
}

fn payload(text: String, what: &'static str) -> Result<Payload, StoreError> {
    Payload::from_text(text).map_err(|_| StoreError::Unreadable(what))
}

/// A place as it was written: pool, generation and cell.
fn place(text: &str) -> Result<Place, StoreError> {
    let mut parts = text.split('-');
    let (Some(pool), Some(generation), Some(cell)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(StoreError::Unreadable("place"));
    };
    let part = |text: &str| text.parse().map_err(|_| StoreError::Unreadable("place"));
    Ok(Place { pool: pool.to_owned(), generation: part(generation)?, cell: part(cell)? })
}
