//! The cell's rows: what is stored where, and nothing about why.
//!
//! One row for each run, one for each event of its journal; one more for an idempotency key, a signal's id, a
//! tag or an attribute, if there is one, and one for each commit that writes to other cells, until they have it. The only secondary index finds what is due.

mod answers;
mod failures;
mod insertion;
mod joins;
mod journal;
mod letters;
pub(super) mod list;
mod minutes;
mod quarantine;
mod removal;
mod unbound;
mod update;

use std::cell::Cell as Slot;

use serde::de::DeserializeOwned;
use stepwell_core::{
    cell::{Happened, JoinedRun, KeyRow, Mail, Rows, Slice, Sought, StoredKey, StoredRun, Tally, Trimmed},
    run::{Cut, Entry, Run, Tail, Trailer},
    stream::{PublishedMark, PublishedPage, PublishedRow, Walked},
};
use stepwell_protocol::{
    Event, Payload, Place, Record, RunId, Seq, Timestamp, json,
    program::RawPage,
    rest::{RunView, Status},
};

use crate::{
    log,
    object::{StoreError, Tables, number, time},
    runtime,
    settings::DEFAULT_NAMESPACE,
};

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

/// The run of a key that has gone to another cell, whose place is then where the fingerprint would be. A
/// release that does not know this refuses the key: it starts no second run.
const MOVED: u64 = 0;

const DELETE_LABEL: &str = "DELETE FROM tags WHERE tag = ? AND run = ?";

/// The cell's rows.
pub struct Store {
    pub(super) tables: Tables,
    has_schema: Slot<Option<bool>>,
    /// Whether there is a table of what runs have published, if that is known.
    pub(super) has_told: Slot<Option<bool>>,
    /// Whether there is a table of letters, if that is known.
    has_outbox: Slot<Option<bool>>,
    /// Whether there is a table of keys that are to be forgotten, if that is known.
    has_unbound: Slot<Option<bool>>,
    /// Whether there is a table of starts that have become part of runs, if that is known.
    has_joins: Slot<Option<bool>>,
    /// Whether there is a table of what has happened, if that is known.
    has_minutes: Slot<Option<bool>>,
    /// Whether there is a table of failed runs, if that is known.
    has_failures: Slot<Option<bool>>,
}

impl Store {
    /// Counts the rows that are read only if asked to: the count has to be fetched from the runtime.
    pub fn new(storage: runtime::Storage, counts_reads: bool) -> Self {
        Self {
            tables: Tables::new(storage, counts_reads),
            has_schema: Slot::new(None),
            has_told: Slot::new(None),
            has_outbox: Slot::new(None),
            has_unbound: Slot::new(None),
            has_joins: Slot::new(None),
            has_minutes: Slot::new(None),
            has_failures: Slot::new(None),
        }
    }

    /// Creates the tables if there are none, and remembers where this cell is, and among how many.
    pub fn prepare(
        &self,
        namespace: &str,
        place: &Place,
        life: Option<u64>,
        cells: impl FnOnce() -> Option<u32>,
    ) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        let cells = cells();
        self.tables.transaction(|| {
            for statement in SCHEMA {
                self.tables.execute(statement, &[])?;
            }
            for (key, value) in [("schema", SCHEMA_VERSION), ("place", &place.to_string())] {
                self.tables.execute("INSERT INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            if let Some(cells) = cells {
                let query = "INSERT INTO meta VALUES('cells', ?)";
                self.tables.execute(query, &[cells.to_string().into()])?;
            }
            if namespace != DEFAULT_NAMESPACE {
                let query = "INSERT INTO meta VALUES('namespace', ?)";
                self.tables.execute(query, &[namespace.into()])?;
            }
            if let Some(life) = life {
                let query = "INSERT INTO meta VALUES('life', ?)";
                self.tables.execute(query, &[life.to_string().into()])?;
            }
            Ok(())
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }

    /// Where this cell is, once it holds a run.
    pub fn place(&self) -> Result<Option<Place>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = 'place'", &[])?;
        rows.first().map(|row| place(&row.text(0, "place")?)).transpose()
    }

    /// How many cells its generation had when this cell got its first run.
    pub fn cells(&self) -> Result<Option<u32>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = 'cells'", &[])?;
        Ok(rows.first().and_then(|row| row.optional_text(0)?.parse().ok()))
    }

    /// The namespace of this cell. Those of the default one do not store it.
    pub fn namespace(&self) -> Result<String, StoreError> {
        let rows = if self.has_schema()? {
            self.tables.rows("SELECT value FROM meta WHERE key = 'namespace'", &[])?
        } else {
            Vec::new()
        };
        rows.first().map_or(Ok(DEFAULT_NAMESPACE.into()), |row| row.text(0, "namespace"))
    }

    /// Where the last sweep has stopped, if it was kept here.
    pub fn sweep_cursor(&self) -> Result<Option<String>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT value FROM meta WHERE key = 'sweep'", &[])?;
        Ok(rows.first().and_then(|row| row.optional_text(0)))
    }

    /// Keeps where a sweep has stopped.
    pub fn keep_sweep_cursor(&self, cursor: &str) -> Result<(), StoreError> {
        self.tables.execute("INSERT OR REPLACE INTO meta VALUES('sweep', ?)", &[cursor.into()])
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

    /// Rows that this instance has written, alarms included.
    pub fn rows_written(&self) -> u64 {
        self.tables.rows_written()
    }

    /// Rows that this instance has read, if they are counted.
    pub fn rows_read(&self) -> u64 {
        self.tables.rows_read()
    }

    /// Counts rows that were written past this store.
    pub fn count_rows(&self, rows: u64) {
        self.tables.count_rows(rows);
    }

    /// Whether there are tables.
    pub fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    fn write(
        &self,
        run: &Run,
        wake_before: Option<Timestamp>,
        entries: &[Entry],
        mail: &Mail,
    ) -> Result<(), StoreError> {
        for letter in &mail.post {
            self.insert_letter(letter)?;
        }
        if let Some(done) = mail.done {
            self.delete_letter(done)?;
        }
        let (mut result, mut ended, mut reopened, mut anew) = (None, false, false, None);
        let last = entries.iter().rposition(|entry| entry.record().is_some());
        for (index, entry) in entries.iter().enumerate() {
            if let Some(record) = entry.record() {
                let trailer = (Some(index) == last).then(|| run.trailer());
                self.insert_record(run.id.number, record, trailer.as_ref())?;
            } else if let Entry::SignalNoted(nonce) = entry {
                self.insert_signal(run.id.number, nonce)?;
            } else if let Entry::SignalForgotten(id) = entry {
                let values = [number(run.id.number), id.as_str().into()];
                self.tables.execute("DELETE FROM signals WHERE run = ? AND id = ?", &values)?;
            } else if let Entry::Completed { output, .. } = entry {
                (result, ended) = (Some(output.text().to_owned()), true);
            } else if let Entry::Failed { failure, .. } = entry {
                (result, ended) = (Some(json(failure)), true);
            } else if let Entry::Cancelled { .. } = entry {
                ended = true;
            } else if let Entry::Reopened { .. } = entry {
                reopened = true;
            } else if let Entry::Attributed { name, value, before } = entry {
                self.write_attribute(run.id.number, name, value, before.as_deref())?;
            } else if let Some(input) = entry.input() {
                anew = Some(input);
            }
            if let Some(known) = entry.known_join() {
                self.insert_join(run, known)?;
            }
        }
        if reopened {
            let query = "UPDATE runs SET ended_at = NULL, result = NULL WHERE number = ?";
            self.tables.execute(query, &[number(run.id.number)])?;
        }
        if entries.iter().any(|entry| matches!(entry, Entry::Emptied)) {
            self.update_emptied(run)
        } else if ended {
            self.update_ended(run, result)
        } else if let Some(input) = anew {
            self.update_anew(run, input)
        } else if entries.iter().any(Entry::changes_row) {
            self.update(run, wake_before)
        } else {
            Ok(())
        }
    }

    fn insert_record(&self, run: u64, record: &Record, trailer: Option<&Trailer>) -> Result<(), StoreError> {
        let mark = trailer.map(json);
        let (event, place) = (json(&record.event), (record.seq, record.at));
        let query = "INSERT INTO journal VALUES(?, ?, ?, ?, ?)";
        self.tables.insert_record(query, run, place, &event, mark.as_deref())?;
        if let Event::SignalReceived { id: Some(id), .. } = &record.event {
            self.insert_signal(run, id)?;
        }
        Ok(())
    }

    /// What a signal is known by if it comes again.
    fn insert_signal(&self, run: u64, id: &str) -> Result<(), StoreError> {
        self.tables.execute("INSERT OR IGNORE INTO signals VALUES(?, ?)", &[number(run), id.into()])
    }

    fn write_attribute(
        &self,
        run: u64,
        name: &str,
        value: &str,
        before: Option<&str>,
    ) -> Result<(), StoreError> {
        if let Some(before) = before {
            self.delete_label(&list::label(name, before), run)?;
        }
        let values = [list::label(name, value).into(), number(run)];
        self.tables.execute("INSERT OR IGNORE INTO tags VALUES(?, ?)", &values)
    }

    fn delete_label(&self, label: &str, run: u64) -> Result<(), StoreError> {
        self.tables.execute(DELETE_LABEL, &[label.into(), number(run)])
    }
}

impl Rows for Store {
    fn is_unreadable(error: &StoreError) -> bool {
        match error {
            StoreError::Corrupt(_) | StoreError::CorruptCatalog(_) | StoreError::Unreadable(_) => true,
            StoreError::Refused(_) => false,
        }
    }

    fn quarantine(&self, run: u64, error: &StoreError, until: Timestamp) -> Result<(), StoreError> {
        self.quarantine_run(run, error, until)
    }

    fn release(&self, run: &Run) -> Result<(), StoreError> {
        self.release_run(run)
    }

    fn run(&self, run: u64) -> Result<Option<Run>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows(
            "SELECT suffix, workflow, created_at, state, (SELECT value FROM meta WHERE key = 'place'),
               (SELECT max(seq) FROM journal WHERE run = number),
               (SELECT mark FROM journal WHERE run = number ORDER BY seq DESC LIMIT 1),
               status = 'paused' AND wake_at IS NOT NULL
             FROM runs WHERE number = ?",
            &[number(run)],
        )?;
        let Some(row) = rows.first() else { return Ok(None) };
        let place = place(&row.optional_text(4).unwrap_or_default())?;
        let id = RunId { place, number: run, suffix: row.text(0, "suffix")? };
        let trailer = match row.optional_text(6) {
            Some(trailer) => parse(&trailer, "mark")?,
            None => Trailer::default(),
        };
        let tail = Tail { head: row.seq(5), trailer, quarantined: row.number(7, "status")? > 0 };
        let (workflow, state) = (row.text(1, "workflow")?, row.text(3, "state")?);
        Ok(Some(Run::from_row(id, workflow, row.time(2)?, &state, tail)?))
    }

    fn last_number(&self) -> Result<u64, StoreError> {
        let rows = self.tables.rows(
            "SELECT max(coalesce((SELECT max(number) FROM runs), 0),
               coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_number'), 0))",
            &[],
        )?;
        rows.first().map_or(Ok(0), |row| row.number(0, "number"))
    }

    fn latest(&self, limit: usize) -> Result<Vec<(u64, String)>, StoreError> {
        let query = "SELECT number, suffix FROM runs ORDER BY number DESC LIMIT ?";
        let rows = self.tables.rows(query, &[number(limit as u64)])?;
        // A suffix that cannot be read is no nonce; it must not keep others from starting.
        rows.iter()
            .map(|row| Ok((row.number(0, "number")?, row.optional_text(1).unwrap_or_default())))
            .collect()
    }

    fn insert(&self, run: &Run, input: &Payload, key: Option<&KeyRow>) -> Result<(), StoreError> {
        self.insert_run(run, input, key)
    }

    fn namespace(&self) -> Result<String, StoreError> {
        Store::namespace(self)
    }

    fn commit(
        &self,
        run: &Run,
        wake_before: Option<Timestamp>,
        entries: &[Entry],
        mail: &Mail,
    ) -> Result<(), StoreError> {
        if !mail.post.is_empty() {
            self.prepare_outbox()?;
        }
        if entries.iter().any(|entry| entry.known_join().is_some()) {
            self.prepare_joins()?;
        }
        // A single statement is atomic by itself.
        let written = if statements(entries) == 1 && mail.is_empty() {
            self.write(run, wake_before, entries, mail)
        } else {
            self.tables.transaction(|| self.write(run, wake_before, entries, mail))
        };
        written.inspect_err(|error| {
            log::error!("what happened to run {} was not stored: {error}", run.id.number);
        })
    }

    fn joined(&self, key: &str) -> Result<Option<JoinedRun>, StoreError> {
        self.joined_run(key)
    }

    fn key(&self, key: &str) -> Result<Option<StoredKey>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT run, fingerprint FROM keys WHERE key = ?", &[key.into()])?;
        rows.first()
            .map(|row| {
                let (number, fingerprint) = (row.number(0, "run")?, row.text(1, "fingerprint")?);
                Ok(match number {
                    MOVED if fingerprint.is_empty() => StoredKey::GivenUp,
                    MOVED => StoredKey::Moved(place(&fingerprint)?),
                    number => StoredKey::Run(StoredRun { number, fingerprint }),
                })
            })
            .transpose()
    }

    fn reserve(&self, key: &str, to: &Place) -> Result<(), StoreError> {
        let values = [key.into(), number(MOVED), to.to_string().into()];
        self.tables.execute("INSERT OR REPLACE INTO keys VALUES(?, ?, ?)", &values)
    }

    fn give_up(&self, key: &str, until: Timestamp) -> Result<(), StoreError> {
        self.give_up_key(key, until)
    }

    fn unbind(&self, key: &str, until: Timestamp) -> Result<(), StoreError> {
        self.unbind_key(key, until)
    }

    fn add_minute(&self, minute: u64, happened: &Happened) -> Result<(), StoreError> {
        self.add_to_minute(minute, happened)
    }

    fn each_minute(&self, from: u64, each: &mut dyn FnMut(u64, Happened)) -> Result<(), StoreError> {
        self.read_minutes(from, each)
    }

    fn totals(&self) -> Result<(u64, Happened), StoreError> {
        self.added_up()
    }

    fn add_up(&self, before: u64, all: &Happened, forget_before: u64) -> Result<(), StoreError> {
        self.put_added_up(before, all, forget_before)
    }

    fn first_lapse(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.first_unbound_key()?.into_iter().chain(self.first_join()?).min())
    }

    fn forget_lapsed(&self, now: Timestamp, limit: usize) -> Result<(), StoreError> {
        self.forget_unbound_keys(now, limit)?;
        self.forget_joins(now, limit)
    }

    fn weight(&self, run: u64) -> Result<u64, StoreError> {
        // The length of an event is known without reading all of it.
        let query = "SELECT coalesce(sum(octet_length(event)), 0) FROM journal WHERE run = ?";
        let rows = self.tables.rows(query, &[number(run)])?;
        rows.first().map_or(Ok(0), |row| row.number(0, "weight"))
    }

    fn trim(&self, run: u64, room: Slice) -> Result<Trimmed, StoreError> {
        self.trim_run(run, room)
    }

    fn sizes(&self, run: u64, part: Cut, limit: usize) -> Result<Vec<(Seq, u64)>, StoreError> {
        self.event_sizes(run, part, limit)
    }

    fn erase(&self, run: u64, part: Cut) -> Result<usize, StoreError> {
        self.erase_events(run, part)
    }

    fn remove(&self, run: &Run) -> Result<usize, StoreError> {
        self.remove_run(run)
    }

    fn tally(&self, before: u64, limit: usize) -> Result<Tally, StoreError> {
        self.tally_runs(before, limit)
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.tables.bytes()
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
        self.read_page(run, after, usize::MAX)
    }

    fn find(&self, run: u64, what: &Sought<'_>, after: Seq) -> Result<Vec<Record>, StoreError> {
        self.find_events(run, what, after)
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

    fn due_of(
        &self,
        workflow: &str,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, StoreError> {
        // There is a workflow, so there are tables.
        let rows = self.tables.rows(
            "SELECT wake_at, number FROM runs
             WHERE wake_at IS NOT NULL AND (wake_at, number) > (?, ?) AND wake_at <= ? AND workflow = ?
             ORDER BY wake_at, number LIMIT ?",
            &[time(Some(after.0)), number(after.1), time(Some(now)), workflow.into(), number(limit as u64)],
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

    fn tell(&self, run: u64, row: &PublishedRow) -> Result<(), StoreError> {
        self.insert_told(run, row)
    }

    fn told_last(&self, run: u64) -> Result<Option<(u32, PublishedMark)>, StoreError> {
        self.last_told(run)
    }

    fn told(&self, run: u64, after: u32) -> Result<PublishedPage, StoreError> {
        self.told_page(run, after)
    }

    fn told_weight(&self, run: u64) -> Result<Slice, StoreError> {
        self.weight_of_told(run)
    }

    fn changed(&self, after: u64, from: u64, limit: usize) -> Result<Walked, StoreError> {
        self.changed_after(after, from, limit)
    }
}

/// How many statements it takes to write these.
fn statements(entries: &[Entry]) -> usize {
    let each = entries.iter().map(|entry| {
        if let Entry::Recorded { record, .. } = entry {
            1 + usize::from(matches!(record.event, Event::SignalReceived { id: Some(_), .. }))
        } else {
            usize::from(entry.known_join().is_some())
                + usize::from(matches!(
                    entry,
                    Entry::Reopened { .. }
                        | Entry::Attributed { .. }
                        | Entry::SignalNoted(_)
                        | Entry::SignalForgotten(_)
                ))
        }
    });
    each.sum::<usize>() + usize::from(entries.iter().any(Entry::changes_row))
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what is stored holds only what JSON can say")
}

pub(super) fn parse<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, StoreError> {
    json::from_str(text).map_err(|_| StoreError::Unreadable(what))
}

fn payload(text: String, what: &'static str) -> Result<Payload, StoreError> {
    Payload::from_text(text).map_err(|_| StoreError::Unreadable(what))
}

/// A place as it was written: pool, generation and cell. It is the whole cell's: no run is to blame for it.
fn place(text: &str) -> Result<Place, StoreError> {
    text.parse().map_err(|_| StoreError::Refused(format!("the cell's stored place is '{text}'")))
}
