//! The rows of a partition.

use std::cell::Cell as Slot;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use js_sys::Uint8Array;
use serde::{Serialize, de::DeserializeOwned};
use stepwell_core::queue::{
    Change, Content, Counts, Form, Found, Head, Key, LeaseRow, Mark, Plain, Row, Rows, Unwell,
};
use stepwell_protocol::{Timestamp, json};
use wasm_bindgen::JsValue;

use crate::{
    log,
    object::{Row as Columns, StoreError, Tables, number, time},
    runtime,
};

/// Created with the queue. Later versions only ever add. A body is a text or, if it was sent as bytes, a blob. The indexes
/// have only what they are asked for: a plain job is in none of them.
const SCHEMA: [&str; 12] = [
    "CREATE TABLE head(one INTEGER PRIMARY KEY, state TEXT NOT NULL)",
    "CREATE TABLE plain(number INTEGER PRIMARY KEY, sent_at INTEGER NOT NULL, size INTEGER NOT NULL, mark TEXT NOT NULL,
       first INTEGER NOT NULL, type TEXT NOT NULL, form INTEGER NOT NULL, counts TEXT, data NOT NULL)",
    "CREATE TABLE jobs(number INTEGER PRIMARY KEY, priority INTEGER NOT NULL, due INTEGER NOT NULL, place INTEGER NOT NULL,
       line INTEGER NOT NULL, grp TEXT, died_at INTEGER, back TEXT, state TEXT NOT NULL)",
    "CREATE TABLE bodies(number INTEGER PRIMARY KEY, mark TEXT NOT NULL, first INTEGER NOT NULL, type TEXT NOT NULL,
       form INTEGER NOT NULL, data NOT NULL)",
    "CREATE TABLE leases(id INTEGER PRIMARY KEY, nonce TEXT NOT NULL, holds TEXT NOT NULL, counts TEXT NOT NULL)",
    "CREATE TABLE keys(key TEXT PRIMARY KEY, job INTEGER NOT NULL, until INTEGER NOT NULL, told TEXT) WITHOUT ROWID",
    "CREATE INDEX keys_by_end ON keys(until)",
    "CREATE INDEX jobs_in_line ON jobs(priority, due, place) WHERE line = 1",
    "CREATE INDEX jobs_of_group ON jobs(grp, place) WHERE grp IS NOT NULL AND died_at IS NULL",
    "CREATE INDEX dead_jobs ON jobs(died_at, number) WHERE died_at IS NOT NULL",
    "CREATE INDEX jobs_back ON jobs(back, place) WHERE back IS NOT NULL",
    "CREATE TABLE addresses(address TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

const PLAIN: &str = "SELECT number, sent_at, size FROM plain WHERE number > ? ORDER BY number LIMIT ?";
const LINE: &str =
    "SELECT number, state FROM jobs WHERE line = 1 AND priority = ? ORDER BY due, place LIMIT ?";
const LINE_BY: &str = "SELECT number, state FROM jobs
   WHERE line = 1 AND priority = ? AND due <= ? ORDER BY due, place LIMIT ?";
const DELAYED: &str = "SELECT count(*) FROM
   (SELECT 1 FROM jobs WHERE line = 1 AND priority = ? AND due > ? LIMIT ?)";
const JOBS: &str = "SELECT number, state FROM jobs WHERE number > ? ORDER BY number LIMIT ?";
const DEAD: &str = "SELECT number, state FROM jobs
   WHERE died_at IS NOT NULL AND (died_at, number) > (?, ?) ORDER BY died_at, number LIMIT ?";
const GROUP: &str = "SELECT number, state FROM jobs
   WHERE grp = ? AND grp IS NOT NULL AND died_at IS NULL AND place > ? ORDER BY place LIMIT ?";
const CONTENT: &str = "SELECT type, form, data FROM plain WHERE number = ?
   UNION ALL SELECT type, form, data FROM bodies WHERE number = ?";
const MARKS: &str = "SELECT DISTINCT mark, first FROM plain WHERE number > ?
   UNION SELECT mark, first FROM bodies WHERE number > ?";
const BACK: &str = "SELECT number, state FROM jobs
   WHERE back = ? AND back IS NOT NULL ORDER BY place LIMIT ?";
const PUT_JOB: &str = "INSERT INTO jobs VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
   priority = excluded.priority, due = excluded.due, place = excluded.place, line = excluded.line,
   grp = excluded.grp, died_at = excluded.died_at, back = excluded.back, state = excluded.state";
const PUT_ADDRESS: &str =
    "INSERT INTO addresses VALUES(?, ?) ON CONFLICT DO UPDATE SET state = excluded.state";
const PUT_LEASE: &str = "INSERT INTO leases VALUES(?, ?, ?, ?) ON CONFLICT DO UPDATE SET
   nonce = excluded.nonce, holds = excluded.holds, counts = excluded.counts";
const PUT_KEY: &str = "INSERT OR REPLACE INTO keys VALUES(?, ?, ?, ?)";
const PUT_HEAD: &str = "INSERT INTO head VALUES(0, ?) ON CONFLICT DO UPDATE SET state = excluded.state";

/// The rows.
pub struct Store {
    pub(super) tables: Tables,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage, is_metered: bool) -> Self {
        Self { tables: Tables::new(storage, is_metered), has_schema: Slot::new(None) }
    }

    /// All rows are about to be deleted.
    pub fn forget(&self) {
        self.has_schema.set(None);
    }

    fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'plain'", &[])?;
        self.has_schema.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    /// Creates the tables, once the station is registered.
    pub fn prepare(&self) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        self.tables.transaction(|| {
            for table in SCHEMA {
                self.tables.execute(table, &[])?;
            }
            let version = ["schema".into(), SCHEMA_VERSION.into()];
            self.tables.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &version)
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }

    fn states(&self, query: &'static str, bindings: &[JsValue]) -> Result<Vec<(u64, Row)>, StoreError> {
        let rows = self.tables.rows(query, bindings)?;
        rows.iter().map(|row| Ok((row.number(0, "number")?, state(row, 1)?))).collect()
    }

    fn put_job(&self, place: u64, row: &Row) -> Result<(), StoreError> {
        let bindings = [
            number(place),
            number(row.priority.into()),
            time(Some(row.due)),
            number(row.place),
            number(row.is_in_line.into()),
            row.group.as_deref().map_or(JsValue::NULL, JsValue::from),
            time(row.death.as_ref().map(|death| death.at)),
            row.to.as_deref().filter(|_| row.is_back).map_or(JsValue::NULL, JsValue::from),
            text(row).into(),
        ];
        self.tables.execute(PUT_JOB, &bindings)
    }

    fn apply(&self, change: &Change) -> Result<(), StoreError> {
        let execute = |query, bindings: &[JsValue]| self.tables.execute(query, bindings);
        match change {
            Change::Head(head) => execute(PUT_HEAD, &[text(head).into()]),
            Change::AddPlain { number: job, sent_at, mark: Mark { request, first }, content, counts } => {
                let [kind, form, data] = stored(content)?;
                let (size, mark) = (number(content.size() as u64), request.as_str().into());
                let counts = counts.map_or(JsValue::NULL, |counts| text(&counts).into());
                let (job, first) = (number(*job), number(*first));
                let bindings = [job, time(Some(*sent_at)), size, mark, first, kind, form, counts, data];
                execute("INSERT INTO plain VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", &bindings)
            }
            Change::Add { number: job, mark: Mark { request, first }, row, content } => {
                self.put_job(*job, row)?;
                let [kind, form, data] = stored(content)?;
                let bindings = [number(*job), request.as_str().into(), number(*first), kind, form, data];
                execute("INSERT INTO bodies VALUES(?, ?, ?, ?, ?, ?)", &bindings)
            }
            Change::Demote { number: job, row } => {
                self.put_job(*job, row)?;
                let moved = "INSERT INTO bodies SELECT number, mark, first, type, form, data FROM plain
                   WHERE number = ?";
                execute(moved, &[number(*job)])?;
                execute("DELETE FROM plain WHERE number = ?", &[number(*job)])
            }
            Change::Update { number: job, row } => self.put_job(*job, row),
            Change::Edit { number: job, content } => {
                let [kind, form, data] = stored(content)?;
                let bindings = [kind, form, data, number(*job)];
                execute("UPDATE bodies SET type = ?, form = ?, data = ? WHERE number = ?", &bindings)
            }
            Change::Remove { number: job, is_plain: true } => {
                execute("DELETE FROM plain WHERE number = ?", &[number(*job)])
            }
            Change::Remove { number: job, is_plain: false } => {
                execute("DELETE FROM jobs WHERE number = ?", &[number(*job)])?;
                execute("DELETE FROM bodies WHERE number = ?", &[number(*job)])
            }
            Change::Lease(LeaseRow { id, nonce, holds, counts }) => {
                let bindings =
                    [number((*id).into()), nonce.as_str().into(), text(holds).into(), text(counts).into()];
                execute(PUT_LEASE, &bindings)
            }
            Change::RemoveLease(id) => execute("DELETE FROM leases WHERE id = ?", &[number((*id).into())]),
            Change::PutKey { key, value: Key { job, until, told } } => {
                let told = told.as_deref().map_or(JsValue::NULL, JsValue::from);
                execute(PUT_KEY, &[key.as_str().into(), number(*job), time(Some(*until)), told])
            }
            Change::RemoveKey(key) => execute("DELETE FROM keys WHERE key = ?", &[key.as_str().into()]),
            Change::Address { address, unwell: Some(unwell) } => {
                execute(PUT_ADDRESS, &[address.as_str().into(), text(unwell).into()])
            }
            Change::Address { address, unwell: None } => {
                execute("DELETE FROM addresses WHERE address = ?", &[address.as_str().into()])
            }
        }
    }
}

impl Rows for Store {
    type Error = StoreError;

    fn head(&self) -> Result<Option<Head>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let rows = self.tables.rows("SELECT state FROM head", &[])?;
        let head = rows.first().map(|row| row.text(0, "head")).transpose()?;
        head.map(|head| json::from_str(&head).map_err(|_| StoreError::Unreadable("head"))).transpose()
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.tables.bytes()
    }

    fn latest(&self) -> Result<Option<(u64, Option<Counts>)>, StoreError> {
        let rows = self.tables.rows("SELECT number, counts FROM plain ORDER BY number DESC LIMIT 1", &[])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let counts = row.optional_text(1).and_then(|counts| read("counts", &counts));
        Ok(Some((row.number(0, "number")?, counts)))
    }

    fn leases(&self) -> Result<Vec<LeaseRow>, StoreError> {
        let rows = self.tables.rows("SELECT id, nonce, holds, counts FROM leases", &[])?;
        // Of a claim that cannot be read, the jobs are for others, as if its time was over.
        let lease = |row: &Columns| {
            let text = |column| row.optional_text(column).unwrap_or_default();
            Ok(LeaseRow {
                id: u32::try_from(row.number(0, "lease")?).map_err(|_| StoreError::Unreadable("lease"))?,
                nonce: text(1),
                holds: read("lease", &text(2)).unwrap_or_default(),
                counts: read("counts", &text(3)).unwrap_or_default(),
            })
        };
        rows.iter().map(lease).collect()
    }

    fn plain(&self, after: u64, limit: usize) -> Result<Vec<Plain>, StoreError> {
        let rows = self.tables.rows(PLAIN, &[number(after), number(limit as u64)])?;
        rows.iter().map(plain).collect()
    }

    fn line(&self, priority: u8, by: Option<Timestamp>, limit: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        let (priority, limit) = (number(priority.into()), number(limit as u64));
        match by {
            Some(by) => self.states(LINE_BY, &[priority, time(Some(by)), limit]),
            None => self.states(LINE, &[priority, limit]),
        }
    }

    fn delayed(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut delayed = 0;
        for priority in 0..=stepwell_protocol::queue::PRIORITY_MAX {
            let left = (limit as u64).saturating_sub(delayed);
            let bindings = [number(priority.into()), time(Some(now)), number(left)];
            let rows = self.tables.rows(DELAYED, &bindings)?;
            delayed += rows.first().map(|row| row.number(0, "count")).transpose()?.unwrap_or(0);
        }
        Ok(delayed)
    }

    fn jobs(&self, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.states(JOBS, &[number(after), number(limit as u64)])
    }

    fn dead(&self, after: (Timestamp, u64), limit: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.states(DEAD, &[time(Some(after.0)), number(after.1), number(limit as u64)])
    }

    fn group(&self, group: &str, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.states(GROUP, &[group.into(), number(after), number(limit as u64)])
    }

    fn back(&self, address: &str, limit: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.states(BACK, &[address.into(), number(limit as u64)])
    }

    fn addresses(&self) -> Result<Vec<(String, Unwell)>, StoreError> {
        let rows = self.tables.rows("SELECT address, state FROM addresses", &[])?;
        let unwell = |row: &Columns| {
            let state = json::from_str(&row.text(1, "address")?);
            Ok((row.text(0, "address")?, state.map_err(|_| StoreError::Unreadable("address"))?))
        };
        rows.iter().map(unwell).collect()
    }

    fn job(&self, job: u64) -> Result<Option<Found>, StoreError> {
        let rows =
            self.tables.rows("SELECT number, sent_at, size FROM plain WHERE number = ?", &[number(job)])?;
        if let Some(row) = rows.first() {
            return plain(row).map(Found::Plain).map(Some);
        }
        let rows = self.tables.rows("SELECT state FROM jobs WHERE number = ?", &[number(job)])?;
        rows.first().map(|row| state(row, 0).map(Found::Row)).transpose()
    }

    fn marks(&self, after: u64) -> Result<Vec<(String, u64)>, StoreError> {
        let rows = self.tables.rows(MARKS, &[number(after), number(after)])?;
        rows.iter().map(|row| Ok((row.text(0, "mark")?, row.number(1, "mark")?))).collect()
    }

    fn content(&self, job: u64) -> Result<Option<Content>, StoreError> {
        let rows = self.tables.rows(CONTENT, &[number(job), number(job)])?;
        let content = |row: &Columns| {
            let (form, data) = match row.number(1, "form")? {
                0 => (Form::Json, row.text(2, "body")?),
                1 => (Form::Text, row.text(2, "body")?),
                _ => (Form::Bytes, STANDARD.encode(Uint8Array::new(&row.value(2)).to_vec())),
            };
            Ok(Content { content_type: row.text(0, "type")?, form, data })
        };
        rows.first().map(content).transpose()
    }

    fn key(&self, key: &str) -> Result<Option<Key>, StoreError> {
        let rows = self.tables.rows("SELECT job, until, told FROM keys WHERE key = ?", &[key.into()])?;
        rows.first().map(|row| key_of(row, 0)).transpose()
    }

    fn keys(&self, limit: usize) -> Result<Vec<(String, Key)>, StoreError> {
        let query = "SELECT key, job, until, told FROM keys ORDER BY until LIMIT ?";
        let rows = self.tables.rows(query, &[number(limit as u64)])?;
        rows.iter().map(|row| Ok((row.text(0, "key")?, key_of(row, 1)?))).collect()
    }

    fn write(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.tables.transaction(|| changes.iter().try_for_each(|change| self.apply(change)))
    }
}

fn plain(row: &Columns) -> Result<Plain, StoreError> {
    let size = usize::try_from(row.number(2, "size")?).unwrap_or(usize::MAX);
    Ok(Plain { number: row.number(0, "number")?, sent_at: row.time(1)?, size })
}

fn state(row: &Columns, column: u32) -> Result<Row, StoreError> {
    json::from_str(&row.text(column, "job")?).map_err(|_| StoreError::Unreadable("job"))
}

fn key_of(row: &Columns, from: u32) -> Result<Key, StoreError> {
    let (job, until) = (row.number(from, "key")?, row.time(from + 1)?);
    Ok(Key { job, until, told: row.optional_text(from + 2) })
}

/// What the partition can do without.
fn read<T: DeserializeOwned>(what: &str, text: &str) -> Option<T> {
    json::from_str(text).inspect_err(|_| log::error!("the queue has {what} that cannot be read")).ok()
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("what is stored holds only what JSON can say")
}

/// A body's type, form and data as values.
fn stored(content: &Content) -> Result<[JsValue; 3], StoreError> {
    let (form, data) = match content.form {
        Form::Json => (0, content.data.as_str().into()),
        Form::Text => (1, content.data.as_str().into()),
        Form::Bytes => {
            let bytes = STANDARD.decode(&content.data).map_err(|_| StoreError::Unreadable("base64"))?;
            (2, Uint8Array::from(bytes.as_slice()).buffer().into())
        }
    };
    Ok([content.content_type.as_str().into(), number(form), data])
}
