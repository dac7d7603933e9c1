//! The catalog's rows.

use std::cell::Cell as Slot;

use stepwell_core::{
    catalog::{Line, Log, Numbers, Row, Rows, STATION, Trim},
    object::Address,
};
use stepwell_protocol::{access::AuditRecord, json};

use crate::{
    object::{StoreError, Tables, number},
    runtime,
};

/// Created at the first accepted write. Later versions only ever add.
const SCHEMA: [&str; 2] = [
    "CREATE TABLE things(kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(kind, name))
       WITHOUT ROWID",
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

/// How many old lines of the audit log are looked at with each new one.
const TRIMMED_MAX: u32 = 100;

/// The catalog's rows.
pub struct Store {
    tables: Tables,
    has_schema: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage) -> Self {
        Self { tables: Tables::new(storage, false), has_schema: Slot::new(None) }
    }

    /// Creates the tables if there are none, and remembers whose catalog this is.
    pub fn prepare(&self, namespace: &str) -> Result<(), StoreError> {
        if self.has_schema()? {
            return Ok(());
        }
        self.tables.transaction(|| {
            let logs = Log::ALL.map(|log| statements(log).table);
            for statement in SCHEMA.into_iter().chain(logs) {
                self.tables.execute(statement, &[])?;
            }
            let address = Address::catalog(namespace).to_string();
            for (key, value) in [("schema", SCHEMA_VERSION), ("address", &address)] {
                self.tables.execute("INSERT INTO meta VALUES(?, ?)", &[key.into(), value.into()])?;
            }
            Ok(())
        })?;
        self.has_schema.set(Some(true));
        Ok(())
    }

    /// Whose catalog this is, once it has stored something.
    pub fn namespace(&self) -> Result<Option<String>, StoreError> {
        if !self.has_schema()? {
            return Ok(None);
        }
        let address: Option<Address> = self.tables.address()?.and_then(|stored| stored.parse().ok());
        Ok(address.map(|address| address.namespace))
    }

    fn has_schema(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.has_schema.get() {
            return Ok(known);
        }
        let query = "SELECT name FROM sqlite_master WHERE name IN ('things', 'syncs', 'letters')";
        let tables = self.tables.rows(query, &[])?;
        let tables: Vec<_> = tables.iter().map(|row| row.text(0, "name")).collect::<Result<_, _>>()?;
        let has = |table: &str| tables.iter().any(|name| name == table);
        let has_schema = has("things");
        // A release before this one has made the tables.
        for (log, table) in [(Log::Syncs, "syncs"), (Log::Letters, "letters")] {
            if has_schema && !has(table) {
                self.tables.execute(statements(log).table, &[])?;
            }
        }
        self.has_schema.set(Some(has_schema));
        Ok(has_schema)
    }
}

/// The statements of one part of the audit log. Within a part, numbers and times rise together with `seq`, so the first
/// lines are the oldest; the last one stays, for the numbers to go on from.
struct Statements {
    table: &'static str,
    insert: &'static str,
    last: &'static str,
    trim: &'static str,
}

macro_rules! statements {
    ($table:literal) => {
        Statements {
            table: concat!(
                "CREATE TABLE ",
                $table,
                "(seq INTEGER PRIMARY KEY, number INTEGER NOT NULL, at INTEGER NOT NULL,
                   line TEXT NOT NULL)"
            ),
            insert: concat!("INSERT INTO ", $table, " VALUES(?, ?, ?, ?)"),
            last: concat!("SELECT seq, number FROM ", $table, " ORDER BY seq DESC LIMIT 1"),
            trim: concat!(
                "DELETE FROM ",
                $table,
                " WHERE seq IN (SELECT seq FROM ",
                $table,
                " ORDER BY seq LIMIT ?)
                   AND (number < ? OR at < ?) AND seq < (SELECT max(seq) FROM ",
                $table,
                ")"
            ),
        }
    };
}

fn statements(log: Log) -> Statements {
    match log {
        Log::Changes => statements!("changes"),
        Log::SignIns => statements!("sign_ins"),
        Log::Registry => statements!("registry"),
        Log::Syncs => statements!("syncs"),
        Log::Letters => statements!("letters"),
    }
}

impl Rows for Store {
    type Error = StoreError;

    fn load(&self) -> Result<Vec<Row>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        // Two stretches of the primary key: however many stations there are, none of them is read.
        let query = "SELECT kind, name, value FROM things WHERE kind < ?1 UNION ALL
           SELECT kind, name, value FROM things WHERE kind > ?1";
        let rows = self.tables.rows(query, &[STATION.into()])?;
        let row = |row: &crate::object::Row| {
            let (kind, name) = (row.text(0, "kind")?, row.text(1, "name")?);
            Ok(Row { kind, name, value: Some(row.text(2, "value")?) })
        };
        rows.iter().map(row).collect()
    }

    fn audit_last(&self) -> Result<Numbers, StoreError> {
        let mut last = Numbers::default();
        if !self.has_schema()? {
            return Ok(last);
        }
        for log in Log::ALL {
            for row in &self.tables.rows(statements(log).last, &[])? {
                last.seq = last.seq.max(row.number(0, "seq")?);
                last.lines.insert(log, row.number(1, "number")?);
            }
        }
        Ok(last)
    }

    fn stations(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let query = "SELECT name FROM things WHERE kind = ? AND name > ? ORDER BY name LIMIT ?";
        let rows = self.tables.rows(query, &[STATION.into(), after.into(), number(limit as u64)])?;
        rows.iter().map(|row| row.text(0, "name")).collect()
    }

    fn has_station(&self, name: &str) -> Result<bool, StoreError> {
        if !self.has_schema()? {
            return Ok(false);
        }
        let query = "SELECT 1 FROM things WHERE kind = ? AND name = ?";
        Ok(!self.tables.rows(query, &[STATION.into(), name.into()])?.is_empty())
    }

    fn commit(&self, rows: &[Row], audit: &[Line], trims: &[Trim]) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            for Row { kind, name, value } in rows {
                let (kind, name) = (kind.as_str().into(), name.as_str().into());
                match value {
                    Some(value) => {
                        let query = "INSERT INTO things VALUES(?, ?, ?)
                           ON CONFLICT DO UPDATE SET value = excluded.value";
                        self.tables.execute(query, &[kind, name, value.as_str().into()])?;
                    }
                    None => {
                        let query = "DELETE FROM things WHERE kind = ? AND name = ?";
                        self.tables.execute(query, &[kind, name])?;
                    }
                }
            }
            for Line { log, number: of_log, record } in audit {
                let line = serde_json::to_string(record).expect("a line holds only what JSON can say");
                let at = number(record.at.as_millis());
                let bindings = [number(record.seq), number(*of_log), at, line.into()];
                self.tables.execute(statements(*log).insert, &bindings)?;
            }
            for trim in trims {
                // Some at a time: the next line drops more of them.
                let bindings = [TRIMMED_MAX.into(), number(trim.first), number(trim.from.as_millis())];
                self.tables.execute(statements(trim.log).trim, &bindings)?;
            }
            Ok(())
        })
    }

    fn audit(&self, below: u64, limit: u32, with_registry: bool) -> Result<Vec<AuditRecord>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let query = "SELECT seq, line FROM changes WHERE seq < ? UNION ALL
           SELECT seq, line FROM sign_ins WHERE seq < ? UNION ALL
           SELECT seq, line FROM syncs WHERE seq < ? UNION ALL
           SELECT seq, line FROM letters WHERE seq < ? UNION ALL
           SELECT seq, line FROM registry WHERE seq < ? ORDER BY seq DESC LIMIT ?";
        let of_registry = if with_registry { below } else { 0 };
        let below = number(below);
        let bindings =
            [below.clone(), below.clone(), below.clone(), below, number(of_registry), limit.into()];
        let rows = self.tables.rows(query, &bindings)?;
        let line = |row: &crate::object::Row| {
            json::from_str(&row.text(1, "line")?).map_err(|_| StoreError::Unreadable("line"))
        };
        rows.iter().map(line).collect()
    }
}
