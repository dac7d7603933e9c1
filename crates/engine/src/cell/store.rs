//! The cell's rows: what is stored where, and nothing about why.
//!
//! One row for each run, one for each event of its journal; one more for an idempotency key or a signal's
//! id, if there is one. The only secondary index finds what is due.

use std::cell::Cell as Slot;

use js_sys::Array;
use serde::de::DeserializeOwned;
use stepwell_core::run::{Entry, Mark, Run, Tail};
use stepwell_protocol::{
    Code, Event, Failure, Payload, Place, Problem, Record, RunId, Seq, Timestamp,
    program::{PAGE_BYTES_MAX, RawPage, RawRecord},
    rest::RunView,
};
use wasm_bindgen::JsValue;

use super::fault::Fault;
use crate::runtime;

/// Created at the first accepted write, so that asking an empty cell costs nothing. Later versions only
/// ever add.
const SCHEMA: [&str; 6] = [
    "CREATE TABLE runs(number INTEGER PRIMARY KEY, suffix TEXT NOT NULL, workflow TEXT NOT NULL,
       status TEXT NOT NULL, created_at INTEGER NOT NULL, ended_at INTEGER, wake_at INTEGER,
       state TEXT NOT NULL, input TEXT NOT NULL, result TEXT)",
    "CREATE INDEX runs_by_wake ON runs(wake_at) WHERE wake_at IS NOT NULL",
    "CREATE TABLE journal(run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
       event TEXT NOT NULL, mark TEXT, PRIMARY KEY(run, seq)) WITHOUT ROWID",
    "CREATE TABLE keys(key TEXT PRIMARY KEY, run INTEGER NOT NULL, fingerprint TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE signals(run INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY(run, id)) WITHOUT ROWID",
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// How many events one query reads.
const RECORDS_MAX: u32 = 1_000;

/// The cell's rows.
pub struct Store {
    storage: runtime::Storage,
    sql: runtime::Sql,
    has_schema: Slot<Option<bool>>,
    rows_written: Slot<u64>,
}

/// A run to be inserted.
pub struct NewRun<'a> {
    /// Its state.
    pub run: &'a Run,
    /// What it was started with.
    pub input: &'a Payload,
    /// Its idempotency key.
    pub key: Option<&'a Key>,
}

/// An idempotency key and what it stands for.
pub struct Key {
    /// The key.
    pub key: String,
    /// A hash of what was asked for.
    pub fingerprint: String,
}

impl Store {
    pub fn new(storage: runtime::Storage) -> Self {
        let sql = storage.sql();
        Self { storage, sql, has_schema: Slot::new(None), rows_written: Slot::default() }
    }

    /// Creates the tables if there are none, and remembers where this cell is.
    pub fn prepare(&self, place: &Place) -> Result<(), Fault> {
        if self.has_schema()? {
            return Ok(());
        }
        self.transaction(|| {
            for statement in SCHEMA {
                self.execute(statement, &[])?;
            }
            for (key, value) in [("schema", SCHEMA_VERSION), ("place", &place.to_string())] {
                self.execute("INSERT INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            Ok(())
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }

    /// The number for the next run.
    pub fn next_number(&self) -> Result<u64, Fault> {
        let rows = self.rows("SELECT coalesce(max(number), 0) + 1 FROM runs", &[])?;
        rows.first().map_or(Ok(1), |row| row.number(0, "number"))
    }

    /// Stores a new run.
    pub fn insert(&self, new: &NewRun<'_>) -> Result<(), Fault> {
        let (run, row) = (new.run, new.run.to_row());
        let number = float(run.id.number);
        let insert = || {
            self.execute(
                "INSERT INTO runs(number, suffix, workflow, status, created_at, wake_at, state, input)
                 VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                &[
                    number.into(),
                    run.id.suffix.as_str().into(),
                    run.workflow.as_str().into(),
                    row.status.into(),
                    time(Some(run.created_at)),
                    time(row.wake_at),
                    row.state.as_str().into(),
                    new.input.text().into(),
                ],
            )
        };
        match new.key {
            None => insert(),
            Some(key) => self.transaction(|| {
                self.execute(
                    "INSERT INTO keys VALUES(?, ?, ?)",
                    &[key.key.as_str().into(), number.into(), key.fingerprint.as_str().into()],
                )?;
                insert()
            }),
        }
    }

    /// Stores what a machine decided: all of it or nothing. `run` is the state after it.
    pub fn commit(&self, run: &Run, wake_before: Option<Timestamp>, entries: &[Entry]) -> Result<(), Fault> {
        let changes_row = entries.iter().any(Entry::changes_row);
        // A single statement is atomic by itself.
        if entries.len() == 1 && !has_signal_id(&entries[0]) {
            return self.write(run, wake_before, entries, changes_row);
        }
        self.transaction(|| self.write(run, wake_before, entries, changes_row))
    }

    fn write(
        &self,
        run: &Run,
        wake_before: Option<Timestamp>,
        entries: &[Entry],
        changes_row: bool,
    ) -> Result<(), Fault> {
        let mut result = None;
        for entry in entries {
            match entry {
                Entry::Recorded { record, mark } => self.insert_record(run.id.number, record, *mark)?,
                Entry::Completed { output, .. } => result = Some(output.text().to_owned()),
                Entry::Failed { failure, .. } => result = Some(json(failure)),
                Entry::Marked(_)
                | Entry::OpenChanged(_)
                | Entry::Troubled(_)
                | Entry::Queued { .. }
                | Entry::Activated { .. }
                | Entry::Orphaned { .. }
                | Entry::Suspended
                | Entry::Paused(_)
                | Entry::Cancelled { .. } => {}
            }
        }
        if changes_row { self.update(run, wake_before, result) } else { Ok(()) }
    }

    fn insert_record(&self, number: u64, record: &Record, mark: Option<Mark>) -> Result<(), Fault> {
        let mark = mark.map_or(JsValue::NULL, |mark| json(&mark).into());
        self.execute(
            "INSERT INTO journal VALUES(?, ?, ?, ?, ?)",
            &[
                float(number).into(),
                record.seq.0.into(),
                time(Some(record.at)),
                json(&record.event).into(),
                mark,
            ],
        )?;
        if let Event::SignalReceived { id: Some(id), .. } = &record.event {
            self.execute("INSERT INTO signals VALUES(?, ?)", &[float(number).into(), id.as_str().into()])?;
        }
        Ok(())
    }

    fn update(&self, run: &Run, wake_before: Option<Timestamp>, result: Option<String>) -> Result<(), Fault> {
        let row = run.to_row();
        let (status, state) = (JsValue::from(row.status), JsValue::from(row.state.as_str()));
        let number = JsValue::from(float(run.id.number));
        if row.ended_at.is_some() {
            let result = result.map_or(JsValue::NULL, JsValue::from);
            return self.execute(
                "UPDATE runs SET status = ?, wake_at = NULL, ended_at = ?, state = ?, result = ? WHERE number = ?",
                &[status, time(row.ended_at), state, result, number],
            );
        }
        // An indexed column that is named is a row written, changed or not.
        if row.wake_at == wake_before {
            return self
                .execute("UPDATE runs SET status = ?, state = ? WHERE number = ?", &[status, state, number]);
        }
        self.execute(
            "UPDATE runs SET status = ?, wake_at = ?, state = ? WHERE number = ?",
            &[status, time(row.wake_at), state, number],
        )
    }

    /// A run's state.
    pub fn run(&self, number: u64) -> Result<Run, Fault> {
        let rows = self.rows(
            "SELECT suffix, workflow, created_at, state, (SELECT value FROM meta WHERE key = 'place'),
               (SELECT max(seq) FROM journal WHERE run = number),
               (SELECT mark FROM journal WHERE run = number AND mark IS NOT NULL ORDER BY seq DESC LIMIT 1)
             FROM runs WHERE number = ?",
            &[float(number).into()],
        )?;
        let row = rows.first().ok_or_else(no_such_run)?;
        let id = RunId { place: place(&row.text(4, "place")?)?, number, suffix: row.text(0, "suffix")? };
        let mark = match row.optional_text(6) {
            Some(mark) => Some(parse(&mark, "mark")?),
            None => None,
        };
        let tail = Tail { head: Seq(row.seq(5)), mark };
        Ok(Run::from_row(id, row.text(1, "workflow")?, row.time(2)?, &row.text(3, "state")?, tail)?)
    }

    /// A run as people see it, if the random part of its id is right.
    pub fn view(&self, number: u64, suffix: &str) -> Result<RunView, Fault> {
        self.check_suffix(number, suffix)?;
        let run = self.run(number)?;
        let rows =
            self.rows("SELECT result, ended_at FROM runs WHERE number = ?", &[float(number).into()])?;
        let row = rows.first().ok_or_else(no_such_run)?;
        let result = row.optional_text(0);
        let (mut output, mut error) = (None, None);
        match (&run.phase, result) {
            (stepwell_core::run::Phase::Ended { how: stepwell_core::run::End::Failed, .. }, Some(text)) => {
                error = Some(parse::<Failure>(&text, "failure")?);
            }
            (_, Some(text)) => output = Some(payload(text, "output")?),
            (_, None) => {}
        }
        let problem = match &run.phase {
            stepwell_core::run::Phase::Paused { problem } => Some(problem.clone()),
            _ => None,
        };
        Ok(RunView {
            status: run.status(),
            created_at: run.created_at,
            ended_at: row.optional_time(1),
            wakes_at: run.next_open(),
            waits_for: run.open.iter().filter_map(|open| open.signal.clone()).collect(),
            output,
            error,
            problem,
            head: run.head,
            activations: run.epoch.0,
            workflow: run.workflow,
            id: run.id,
        })
    }

    /// Refuses a run whose random part is another: it is another run's id.
    pub fn check_suffix(&self, number: u64, suffix: &str) -> Result<(), Fault> {
        if !self.has_schema()? {
            return Err(no_such_run());
        }
        let rows = self.rows("SELECT suffix FROM runs WHERE number = ?", &[float(number).into()])?;
        match rows.first() {
            Some(row) if row.text(0, "suffix")? == suffix => Ok(()),
            Some(_) | None => Err(no_such_run()),
        }
    }

    /// What a run was started with.
    pub fn input(&self, number: u64) -> Result<Payload, Fault> {
        let rows = self.rows("SELECT input FROM runs WHERE number = ?", &[float(number).into()])?;
        let row = rows.first().ok_or_else(no_such_run)?;
        payload(row.text(0, "input")?, "input")
    }

    /// Which run an idempotency key has started, and what for.
    pub fn key(&self, key: &str) -> Result<Option<(u64, String)>, Fault> {
        let rows = self.rows("SELECT run, fingerprint FROM keys WHERE key = ?", &[key.into()])?;
        rows.first().map(|row| Ok((row.number(0, "run")?, row.text(1, "fingerprint")?))).transpose()
    }

    /// Whether a signal of this id was received before.
    pub fn has_signal(&self, number: u64, id: &str) -> Result<bool, Fault> {
        let rows =
            self.rows("SELECT 1 FROM signals WHERE run = ? AND id = ?", &[float(number).into(), id.into()])?;
        Ok(!rows.is_empty())
    }

    /// The journal after a position, as much as goes into a page; at least one event, if there is one.
    pub fn page(&self, number: u64, after: Seq) -> Result<RawPage, Fault> {
        let mut page = RawPage::default();
        let (mut bytes, mut last) = (0, after);
        loop {
            let rows = self.rows(
                "SELECT seq, at, event FROM journal WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                &[float(number).into(), last.0.into(), RECORDS_MAX.into()],
            )?;
            let count = rows.len();
            for row in rows {
                let event = payload(row.text(2, "event")?, "event")?;
                bytes += event.size();
                if bytes > PAGE_BYTES_MAX && !page.events.is_empty() {
                    page.more = true;
                    return Ok(page);
                }
                last = Seq(row.seq(0));
                page.events.push(RawRecord { seq: last, at: row.time(1)?, event });
            }
            if count < RECORDS_MAX as usize {
                return Ok(page);
            }
        }
    }

    /// The journal after one position up to another.
    pub fn records(&self, number: u64, after: Seq, through: Seq) -> Result<Vec<Record>, Fault> {
        if after >= through {
            return Ok(Vec::new());
        }
        let rows = self.rows(
            "SELECT seq, at, event FROM journal WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq",
            &[float(number).into(), after.0.into(), through.0.into()],
        )?;
        rows.iter()
            .map(|row| {
                let event = parse(&row.text(2, "event")?, "event")?;
                Ok(Record { seq: Seq(row.seq(0)), at: row.time(1)?, event })
            })
            .collect()
    }

    /// The earliest time at which any run is due.
    pub fn first_wake(&self) -> Result<Option<Timestamp>, Fault> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.rows("SELECT min(wake_at) FROM runs WHERE wake_at IS NOT NULL", &[])?;
        Ok(rows.first().and_then(|row| row.optional_time(0)))
    }

    /// The earliest time at which a run is due that comes after this place in the order of due runs.
    pub fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Fault> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.rows(
            "SELECT wake_at FROM runs WHERE wake_at IS NOT NULL AND (wake_at, number) > (?, ?)
             ORDER BY wake_at, number LIMIT 1",
            &[time(Some(after.0)), float(after.1).into()],
        )?;
        Ok(rows.first().and_then(|row| row.optional_time(0)))
    }

    /// Runs that are due by `now`, after a place in that order.
    pub fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Fault> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let rows = self.rows(
            "SELECT wake_at, number FROM runs
             WHERE wake_at IS NOT NULL AND (wake_at, number) > (?, ?) AND wake_at <= ?
             ORDER BY wake_at, number LIMIT ?",
            &[time(Some(after.0)), float(after.1).into(), time(Some(now)), float(limit as u64).into()],
        )?;
        rows.iter().map(|row| Ok((row.time(0)?, row.number(1, "number")?))).collect()
    }

    /// Rows that this instance has written, alarms included.
    pub fn rows_written(&self) -> u64 {
        self.rows_written.get()
    }

    /// Counts rows that were written past this store.
    pub fn count_rows(&self, rows: u64) {
        self.rows_written.set(self.rows_written.get() + rows);
    }

    fn has_schema(&self) -> Result<bool, Fault> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    fn transaction(&self, body: impl Fn() -> Result<(), Fault>) -> Result<(), Fault> {
        let mut fault = None;
        let outcome = self.storage.transaction_sync(&mut || match body() {
            Ok(()) => Ok(JsValue::UNDEFINED),
            Err(error) => {
                let thrown = JsValue::from_str(&error.to_string());
                fault = Some(error);
                Err(thrown)
            }
        });
        match (outcome, fault) {
            (_, Some(fault)) => Err(fault),
            (Err(thrown), None) => Err(thrown.into()),
            (Ok(_), None) => Ok(()),
        }
    }

    fn execute(&self, query: &str, bindings: &[JsValue]) -> Result<(), Fault> {
        let cursor = self.sql.exec(query, &bindings.iter().collect::<Array>())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of rows is whole, positive and small"
        )]
        self.count_rows(cursor.rows_written() as u64);
        Ok(())
    }

    /// All rows at once: a cursor must not be read across an await.
    fn rows(&self, query: &str, bindings: &[JsValue]) -> Result<Vec<Row>, Fault> {
        let cursor = self.sql.exec(query, &bindings.iter().collect::<Array>())?;
        let rows = cursor.raw()?.to_array()?;
        Ok(rows.iter().map(|row| Row(row.into())).collect())
    }
}

/// One row of a result.
struct Row(Array);

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers in rows are whole, positive and below 2^53: only this file writes them"
)]
impl Row {
    fn text(&self, column: u32, what: &'static str) -> Result<String, Fault> {
        self.optional_text(column).ok_or(Fault::Unreadable(what))
    }

    fn optional_text(&self, column: u32) -> Option<String> {
        self.0.get(column).as_string()
    }

    fn number(&self, column: u32, what: &'static str) -> Result<u64, Fault> {
        self.0.get(column).as_f64().map(|number| number as u64).ok_or(Fault::Unreadable(what))
    }

    fn seq(&self, column: u32) -> u32 {
        self.0.get(column).as_f64().map_or(0, |number| number as u32)
    }

    fn time(&self, column: u32) -> Result<Timestamp, Fault> {
        self.optional_time(column).ok_or(Fault::Unreadable("time"))
    }

    fn optional_time(&self, column: u32) -> Option<Timestamp> {
        self.0.get(column).as_f64().map(|millis| Timestamp::from_millis(millis as u64))
    }
}

fn has_signal_id(entry: &Entry) -> bool {
    matches!(
        entry,
        Entry::Recorded { record: Record { event: Event::SignalReceived { id: Some(_), .. }, .. }, .. }
    )
}

fn time(at: Option<Timestamp>) -> JsValue {
    at.map_or(JsValue::NULL, |at| float(at.as_millis()).into())
}

/// SQL takes JavaScript's numbers; ours are exact in them.
#[expect(clippy::cast_precision_loss, reason = "numbers and times are below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what is stored holds only what JSON can say")
}

fn parse<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| Fault::Unreadable(what))
}

fn payload(text: String, what: &'static str) -> Result<Payload, Fault> {
    Payload::from_text(text).map_err(|_| Fault::Unreadable(what))
}

/// A place as it was written: pool, generation and cell.
fn place(text: &str) -> Result<Place, Fault> {
    let mut parts = text.split('-');
    let (Some(pool), Some(generation), Some(cell)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Fault::Unreadable("place"));
    };
    let number = |text: &str| text.parse().map_err(|_| Fault::Unreadable("place"));
    Ok(Place { pool: pool.to_owned(), generation: number(generation)?, cell: number(cell)? })
}

fn no_such_run() -> Fault {
    let detail = "There is no run of this id. Ids are case-sensitive; a run may also be past its retention.";
    Fault::Rejected(Problem::new(Code::RunNotFound, detail))
}
