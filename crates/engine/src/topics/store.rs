//! The rows of a topic.

use std::cell::Cell as Slot;

use stepwell_core::topic::{
    Bucket, EventRow, Head, Kept, NewRow, Parked, Rows, Trigger, WaitHead, WaitRow, Webhook,
};
use stepwell_protocol::{Payload, Timestamp, json, topic::MetWait};
use wasm_bindgen::JsValue;

use crate::{
    object::{Row, StoreError, Tables, number, time},
    runtime,
};

/// Created at the first accepted write. Later versions only ever add. Only ids that their senders gave have a row of their
/// own: the others begin with the event's number.
const SCHEMA: [&str; 10] = [
    "CREATE TABLE events(number INTEGER PRIMARY KEY, at INTEGER NOT NULL, generation INTEGER NOT NULL,
       name TEXT NOT NULL, id TEXT NOT NULL, own_id INTEGER NOT NULL, data TEXT NOT NULL, source TEXT)",
    "CREATE TABLE ids(id TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE triggers(id TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE parked(trigger_id TEXT NOT NULL, event INTEGER NOT NULL, PRIMARY KEY(trigger_id, event))
       WITHOUT ROWID",
    "CREATE TABLE watermark(one INTEGER PRIMARY KEY, through INTEGER NOT NULL, looked INTEGER NOT NULL)",
    "CREATE TABLE waits(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, pattern TEXT NOT NULL, path TEXT NOT NULL,
       value TEXT NOT NULL, cell TEXT NOT NULL, until INTEGER, after INTEGER NOT NULL, waiter TEXT NOT NULL)",
    "CREATE INDEX waits_by_value ON waits(pattern, path, value, cell)",
    "CREATE INDEX waits_by_end ON waits(until) WHERE until IS NOT NULL",
    "CREATE TABLE kinds(pattern TEXT NOT NULL, path TEXT NOT NULL, PRIMARY KEY(pattern, path)) WITHOUT ROWID",
    "CREATE TABLE met(event INTEGER NOT NULL, run TEXT NOT NULL, wait TEXT NOT NULL, PRIMARY KEY(event, run, wait))
       WITHOUT ROWID",
];

/// Created with the first webhook. A delivery replaces the one that was in its slot.
const WEBHOOK_SCHEMA: [&str; 2] = [
    "CREATE TABLE webhooks(id TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE deliveries(webhook TEXT NOT NULL, slot INTEGER NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL,
       PRIMARY KEY(webhook, slot)) WITHOUT ROWID",
];

/// The version of [`SCHEMA`].
const SCHEMA_VERSION: &str = "1";

const EVENT: &str = "SELECT number, at, generation, name, id, data, source FROM events WHERE number = ?";
const AFTER: &str = "SELECT number, at, generation, name, id, data, source FROM events WHERE number > ?
   ORDER BY number LIMIT ?";
const BEFORE: &str = "SELECT number, at, generation, name, id, data, source FROM events WHERE number < ?
   ORDER BY number DESC LIMIT ?";
const PUT_TRIGGER: &str =
    "INSERT INTO triggers VALUES(?, ?) ON CONFLICT DO UPDATE SET state = excluded.state";
const PUT_WEBHOOK: &str =
    "INSERT INTO webhooks VALUES(?, ?) ON CONFLICT DO UPDATE SET state = excluded.state";
const PUT_WATERMARK: &str = "INSERT INTO watermark VALUES(0, ?, ?)
   ON CONFLICT DO UPDATE SET through = max(through, excluded.through), looked = max(looked, excluded.looked)";
const PUT_WAIT: &str = "INSERT OR REPLACE INTO waits VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)";
const WAITS: &str = "SELECT number, path, value, after, waiter FROM waits
   WHERE pattern = ? AND path = ? AND value = ? AND cell = ? AND number > ? ORDER BY number LIMIT ?";

const EXPIRE_IDS: &str =
    "DELETE FROM ids WHERE id IN (SELECT id FROM events WHERE number <= ? AND own_id = 1)";

/// The rows.
pub struct Store {
    pub(super) tables: Tables,
    has_schema: Slot<Option<bool>>,
    has_webhooks: Slot<Option<bool>>,
}

impl Store {
    pub fn new(storage: runtime::Storage, is_metered: bool) -> Self {
        Self {
            tables: Tables::new(storage, is_metered),
            has_schema: Slot::new(None),
            has_webhooks: Slot::new(None),
        }
    }

    /// Whether anything was ever stored here.
    pub fn has_schema(&self) -> Result<bool, StoreError> {
        self.has(&self.has_schema, "watermark")
    }

    fn has(&self, known: &Slot<Option<bool>>, table: &str) -> Result<bool, StoreError> {
        if let Some(known) = known.get() {
            return Ok(known);
        }
        let rows = self.tables.rows("SELECT 1 FROM sqlite_master WHERE name = ?", &[table.into()])?;
        known.set(Some(!rows.is_empty()));
        Ok(!rows.is_empty())
    }

    fn has_webhooks(&self) -> Result<bool, StoreError> {
        self.has(&self.has_webhooks, "deliveries")
    }

    /// Creates the tables of webhooks.
    pub fn prepare_webhooks(&self) -> Result<(), StoreError> {
        if !self.has_webhooks()? {
            self.tables.transaction(|| {
                WEBHOOK_SCHEMA.into_iter().try_for_each(|table| self.tables.execute(table, &[]))
            })?;
            self.has_webhooks.set(Some(true));
        }
        Ok(())
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

    /// Rows of a query; none before anything was stored.
    fn rows(&self, query: &'static str, bindings: &[JsValue]) -> Result<Vec<Row>, StoreError> {
        if self.has_schema()? { self.tables.rows(query, bindings) } else { Ok(Vec::new()) }
    }

    fn events(
        &self,
        query: &'static str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Option<EventRow>)>, StoreError> {
        let rows = self.rows(query, &[number(from), limited(limit)])?;
        rows.iter().map(|row| Ok((row.number(0, "number")?, read(row).ok()))).collect()
    }

    fn put(&self, trigger: &Trigger) -> Result<(), StoreError> {
        let state = serde_json::to_string(trigger).expect("a trigger holds only what JSON can say");
        self.tables.execute(PUT_TRIGGER, &[trigger.id.as_str().into(), state.into()])
    }
}

fn read(row: &Row) -> Result<EventRow, StoreError> {
    let generation = row.number(2, "generation")?;
    Ok(EventRow {
        number: row.number(0, "number")?,
        at: row.time(1)?,
        generation: u32::try_from(generation).map_err(|_| StoreError::Unreadable("generation"))?,
        name: row.text(3, "name")?,
        id: row.text(4, "id")?,
        data: Payload::from_text(row.text(5, "data")?).map_err(|_| StoreError::Unreadable("data"))?,
        source: row.optional_text(6),
    })
}

fn read_wait(row: &Row) -> Result<(u64, Option<WaitRow>), StoreError> {
    let number = row.number(0, "number")?;
    let read = || {
        let waiter = json::from_str(&row.text(4, "waiter").ok()?).ok()?;
        let (path, value) = (row.text(1, "path").ok()?, row.text(2, "value").ok()?);
        Some(WaitRow { number, after: row.number(3, "after").ok()?, path, value, waiter })
    };
    Ok((number, read()))
}

fn limited(limit: usize) -> JsValue {
    u32::try_from(limit).unwrap_or(u32::MAX).into()
}

impl Rows for Store {
    type Error = StoreError;

    fn head(&self) -> Result<Head, StoreError> {
        let query = "SELECT (SELECT through FROM watermark), (SELECT max(number) FROM events),
           (SELECT at FROM events WHERE typeof(at) = 'integer' ORDER BY number LIMIT 1)";
        let rows = self.rows(query, &[])?;
        let Some(row) = rows.first() else { return Ok(Head::default()) };
        let through = row.number(0, "watermark").unwrap_or_default();
        let last = row.number(1, "number").unwrap_or_default().max(through);
        Ok(Head { last, through, oldest: row.optional_time(2) })
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.tables.bytes()
    }

    fn triggers(&self) -> Result<Vec<(String, Option<Trigger>)>, StoreError> {
        let rows = self.rows("SELECT id, state FROM triggers ORDER BY id", &[])?;
        let read = |row: &Row| {
            let trigger = row.optional_text(1).and_then(|text| json::from_str(&text).ok());
            Ok((row.text(0, "id")?, trigger))
        };
        rows.iter().map(read).collect()
    }

    fn put_trigger(&self, trigger: &Trigger) -> Result<(), StoreError> {
        self.put(trigger)
    }

    fn delete_trigger(&self, id: &str) -> Result<(), StoreError> {
        self.tables.execute("DELETE FROM triggers WHERE id = ?", &[id.into()])
    }

    fn heard(&self) -> Result<u64, StoreError> {
        let rows = self.rows("SELECT value FROM meta WHERE key = 'declared'", &[])?;
        // One that cannot be read is heard again.
        let text = rows.first().and_then(|row| row.optional_text(0));
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or_default())
    }

    fn declare(&self, revision: u64, changed: &[&Trigger]) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            let heard = ["declared".into(), revision.to_string().into()];
            self.tables.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", &heard)?;
            changed.iter().try_for_each(|trigger| self.put(trigger))
        })
    }

    fn find(&self, id: &str) -> Result<Option<u64>, StoreError> {
        let rows = self.rows("SELECT number FROM ids WHERE id = ?", &[id.into()])?;
        rows.first().map(|row| row.number(0, "number")).transpose()
    }

    fn append(&self, events: &[NewRow<'_>]) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            for NewRow { event, has_own_id } in events {
                let EventRow { number: seq, at, generation, name, id, data, source } = event;
                let values = [
                    number(*seq),
                    time(Some(*at)),
                    (*generation).into(),
                    name.as_str().into(),
                    id.as_str().into(),
                    u32::from(*has_own_id).into(),
                    data.text().into(),
                    source.as_deref().map_or(JsValue::NULL, Into::into),
                ];
                self.tables.execute("INSERT INTO events VALUES(?, ?, ?, ?, ?, ?, ?, ?)", &values)?;
                if *has_own_id {
                    let values = [id.as_str().into(), number(*seq)];
                    self.tables.execute("INSERT INTO ids VALUES(?, ?)", &values)?;
                }
            }
            Ok(())
        })
    }

    fn latest_ids(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        let query = "SELECT id FROM (SELECT number, id, own_id FROM events ORDER BY number DESC LIMIT ?)
           WHERE own_id = 0 ORDER BY number DESC";
        let rows = self.rows(query, &[limited(limit)])?;
        Ok(rows.iter().filter_map(|row| row.optional_text(0)).collect())
    }

    fn event(&self, event: u64) -> Result<Option<EventRow>, StoreError> {
        let rows = self.rows(EVENT, &[number(event)])?;
        Ok(rows.first().and_then(|row| read(row).ok()))
    }

    fn generation(&self, event: u64) -> Result<Option<u32>, StoreError> {
        let rows = self.rows("SELECT generation FROM events WHERE number = ?", &[number(event)])?;
        let generation = rows.first().and_then(|row| row.number(0, "generation").ok());
        Ok(generation.and_then(|generation| u32::try_from(generation).ok()))
    }

    fn after(&self, event: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, StoreError> {
        self.events(AFTER, event, limit)
    }

    fn before(&self, event: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, StoreError> {
        self.events(BEFORE, event, limit)
    }

    fn oldest(&self, limit: usize) -> Result<Vec<(u64, Option<Timestamp>)>, StoreError> {
        let rows = self.rows("SELECT number, at FROM events ORDER BY number LIMIT ?", &[limited(limit)])?;
        rows.iter().map(|row| Ok((row.number(0, "number")?, row.optional_time(1)))).collect()
    }

    fn flush(&self, through: u64, looked: u64, triggers: &[&Trigger]) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            self.tables.execute(PUT_WATERMARK, &[number(through), number(looked)])?;
            triggers.iter().try_for_each(|trigger| self.put(trigger))
        })
    }

    fn park(&self, parked: &Parked) -> Result<(), StoreError> {
        let values = [parked.trigger.as_str().into(), number(parked.event)];
        self.tables.execute("INSERT OR IGNORE INTO parked(trigger_id, event) VALUES(?, ?)", &values)
    }

    fn parked_trigger(&self, after: &str) -> Result<Option<String>, StoreError> {
        let query = "SELECT trigger_id FROM parked WHERE trigger_id > ? ORDER BY trigger_id LIMIT 1";
        let rows = self.rows(query, &[after.into()])?;
        rows.first().map(|row| row.text(0, "trigger")).transpose()
    }

    fn parked(&self, trigger: &str, after: u64, limit: usize) -> Result<Vec<u64>, StoreError> {
        let query = "SELECT event FROM parked WHERE trigger_id = ? AND event > ? ORDER BY event LIMIT ?";
        let rows = self.rows(query, &[trigger.into(), number(after), limited(limit)])?;
        rows.iter().map(|row| row.number(0, "event")).collect()
    }

    fn unpark(&self, parked: &Parked) -> Result<(), StoreError> {
        let values = [parked.trigger.as_str().into(), number(parked.event)];
        self.tables.execute("DELETE FROM parked WHERE trigger_id = ? AND event = ?", &values)
    }

    fn wait_head(&self) -> Result<WaitHead, StoreError> {
        let query = "SELECT (SELECT max(number) FROM waits), (SELECT looked FROM watermark),
           (SELECT min(until) FROM waits WHERE until IS NOT NULL)";
        let rows = self.rows(query, &[])?;
        let Some(row) = rows.first() else { return Ok(WaitHead::default()) };
        let count = |column, what| row.number(column, what).unwrap_or_default();
        Ok(WaitHead { last: count(0, "number"), looked: count(1, "looked"), ends: row.optional_time(2) })
    }

    fn wait_kinds(&self) -> Result<Vec<(String, String)>, StoreError> {
        if !self.has_schema()? {
            return Ok(Vec::new());
        }
        let unused = "DELETE FROM kinds WHERE NOT EXISTS
           (SELECT 1 FROM waits WHERE waits.pattern = kinds.pattern AND waits.path = kinds.path)";
        self.tables.execute(unused, &[])?;
        let rows = self.tables.rows("SELECT pattern, path FROM kinds", &[])?;
        rows.iter().map(|row| Ok((row.text(0, "pattern")?, row.text(1, "path")?))).collect()
    }

    fn put_wait(&self, wait: &WaitRow, is_new_kind: bool) -> Result<(), StoreError> {
        let WaitRow { number: place, after, waiter, path, value } = wait;
        let text = serde_json::to_string(waiter).expect("a wait holds only what JSON can say");
        let values = [
            number(*place),
            wait.id().into(),
            waiter.on.as_str().into(),
            path.as_str().into(),
            value.as_str().into(),
            waiter.run.place.to_string().into(),
            time(waiter.until),
            number(*after),
            text.into(),
        ];
        self.tables.transaction(|| {
            if is_new_kind {
                let kind = [waiter.on.as_str().into(), path.as_str().into()];
                self.tables.execute("INSERT OR IGNORE INTO kinds VALUES(?, ?)", &kind)?;
            }
            self.tables.execute(PUT_WAIT, &values)
        })
    }

    fn wait_cell(&self, bucket: Bucket<'_>, after: &str) -> Result<Option<String>, StoreError> {
        let Bucket { on, path, value } = bucket;
        let query = "SELECT cell FROM waits WHERE pattern = ? AND path = ? AND value = ? AND cell > ?
           ORDER BY cell LIMIT 1";
        let rows = self.rows(query, &[on.into(), path.into(), value.into(), after.into()])?;
        rows.first().map(|row| row.text(0, "cell")).transpose()
    }

    fn waits(
        &self,
        bucket: Bucket<'_>,
        cell: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Option<WaitRow>)>, StoreError> {
        let Bucket { on, path, value } = bucket;
        let values = [on.into(), path.into(), value.into(), cell.into(), number(after), limited(limit)];
        self.rows(WAITS, &values)?.iter().map(read_wait).collect()
    }

    fn waits_after(&self, after: u64, limit: usize) -> Result<Vec<(u64, Option<WaitRow>)>, StoreError> {
        let query =
            "SELECT number, path, value, after, waiter FROM waits WHERE number > ? ORDER BY number LIMIT ?";
        let rows = self.rows(query, &[number(after), limited(limit)])?;
        rows.iter().map(read_wait).collect()
    }

    fn wait(&self, id: &str) -> Result<Option<WaitRow>, StoreError> {
        let query = "SELECT number, path, value, after, waiter FROM waits WHERE id = ?";
        let rows = self.rows(query, &[id.into()])?;
        Ok(rows.first().map(read_wait).transpose()?.and_then(|(_, wait)| wait))
    }

    fn end_waits(&self, event: u64, over: &[(&WaitRow, bool)]) -> Result<(), StoreError> {
        self.tables.transaction(|| {
            for (wait, is_met) in over {
                if *is_met {
                    let (run, op) = (wait.waiter.run.to_string(), wait.waiter.op.to_string());
                    let values = [number(event), run.into(), op.into()];
                    self.tables.execute("INSERT OR IGNORE INTO met VALUES(?, ?, ?)", &values)?;
                }
                self.tables.execute("DELETE FROM waits WHERE number = ?", &[number(wait.number)])?;
            }
            Ok(())
        })
    }

    fn expire_waits(&self, until: Timestamp, limit: usize) -> Result<Option<Timestamp>, StoreError> {
        let query = "DELETE FROM waits WHERE number IN
           (SELECT number FROM waits WHERE until IS NOT NULL AND until <= ? LIMIT ?)";
        self.tables.execute(query, &[time(Some(until)), limited(limit)])?;
        Ok(self.wait_head()?.ends)
    }

    fn met(&self, event: u64, limit: usize) -> Result<Vec<MetWait>, StoreError> {
        let query = "SELECT run, wait FROM met WHERE event = ? LIMIT ?";
        let rows = self.rows(query, &[number(event), limited(limit)])?;
        let read = |row: &Row| {
            let (run, wait) = (row.text(0, "run").ok()?, row.text(1, "wait").ok()?);
            Some(MetWait { run: run.parse().ok()?, wait })
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    fn expire(&self, last: u64, through: u64) -> Result<(), StoreError> {
        let last = number(last);
        let last = std::slice::from_ref(&last);
        self.tables.transaction(|| {
            // What was deleted is not counted again.
            self.tables.execute(PUT_WATERMARK, &[number(through), number(0)])?;
            self.tables.execute(EXPIRE_IDS, last)?;
            self.tables.execute("DELETE FROM met WHERE event <= ?", last)?;
            self.tables.execute("DELETE FROM events WHERE number <= ?", last)
        })
    }

    fn webhooks(&self) -> Result<Vec<(String, Option<Webhook>)>, StoreError> {
        if !self.has_webhooks()? {
            return Ok(Vec::new());
        }
        let rows = self.tables.rows("SELECT id, state FROM webhooks ORDER BY id", &[])?;
        let read = |row: &Row| {
            let webhook = row.optional_text(1).and_then(|text| json::from_str(&text).ok());
            Ok((row.text(0, "id")?, webhook))
        };
        rows.iter().map(read).collect()
    }

    fn put_webhook(&self, webhook: &Webhook) -> Result<(), StoreError> {
        let state = serde_json::to_string(webhook).expect("a webhook holds only what JSON can say");
        self.tables.execute(PUT_WEBHOOK, &[webhook.id.as_str().into(), state.into()])
    }

    fn delete_webhook(&self, id: &str) -> Result<(), StoreError> {
        let id = JsValue::from_str(id);
        let id = std::slice::from_ref(&id);
        self.tables.transaction(|| {
            self.tables.execute("DELETE FROM webhooks WHERE id = ?", id)?;
            self.tables.execute("DELETE FROM deliveries WHERE webhook = ?", id)
        })
    }

    fn put_delivery(&self, webhook: &str, slot: u64, kept: &Kept) -> Result<(), StoreError> {
        let body = kept.delivery.body.as_deref().unwrap_or_default();
        let mut head = kept.clone();
        head.delivery.body = None;
        let state = serde_json::to_string(&head).expect("a delivery holds only what JSON can say");
        let values = [webhook.into(), number(slot), state.into(), body.into()];
        self.tables.execute("INSERT OR REPLACE INTO deliveries VALUES(?, ?, ?, ?)", &values)
    }

    fn deliveries(&self, webhook: &str) -> Result<Vec<Kept>, StoreError> {
        let query = "SELECT state FROM deliveries WHERE webhook = ?";
        let rows = self.tables.rows(query, &[webhook.into()])?;
        // One that a later release has stored is left out.
        Ok(rows.iter().filter_map(|row| json::from_str(&row.optional_text(0)?).ok()).collect())
    }

    fn delivery(&self, webhook: &str, slot: u64) -> Result<Option<Kept>, StoreError> {
        let query = "SELECT state, body FROM deliveries WHERE webhook = ? AND slot = ?";
        let rows = self.tables.rows(query, &[webhook.into(), number(slot)])?;
        let read = |row: &Row| {
            let mut kept: Kept = json::from_str(&row.optional_text(0)?).ok()?;
            kept.delivery.body = row.optional_text(1);
            Some(kept)
        };
        Ok(rows.first().and_then(read))
    }
}
