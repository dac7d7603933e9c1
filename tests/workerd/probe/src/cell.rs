//! The object: SQL, alarms and sessions, each behind one command.

use std::cell::{Cell as Slot, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use js_sys::{Array, Date};
use serde_json::json;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::{Delay, DurableObject, Env, Request, Response, Result, State, durable_object};

use crate::runtime::{self, Entrypoint, RawCursor, RawStorage, Session};

const SCHEMA: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS numbers(n INTEGER PRIMARY KEY, text TEXT, alarm_at INTEGER)",
    "CREATE TABLE IF NOT EXISTS fired(seq INTEGER PRIMARY KEY, began INTEGER, ended INTEGER,
       id_name TEXT, alarm_inside INTEGER, armed_at INTEGER)",
    "CREATE TABLE IF NOT EXISTS outcomes(target TEXT PRIMARY KEY, outcome TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS settings(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    "INSERT OR IGNORE INTO settings VALUES('on_alarm', 'record')",
];

/// An object of the probe.
#[durable_object]
pub struct Cell {
    inner: Rc<Inner>,
}

struct Inner {
    state: State,
    env: Env,
    storage: RawStorage,
    epoch: Rc<Slot<u32>>,
    // Kept so that a session can be used after the call that it was handed to has ended.
    sessions: RefCell<Vec<Session>>,
}

impl DurableObject for Cell {
    fn new(state: State, env: Env) -> Self {
        let storage = state.storage().as_raw().unchecked_ref::<RawStorage>().clone();
        let inner = Inner { state, env, storage, epoch: Rc::default(), sessions: RefCell::default() };
        for statement in SCHEMA {
            inner.exec(statement, &[]).expect("the schema is valid SQL and fits the empty database");
        }
        Self { inner: Rc::new(inner) }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        match self.inner.handle(request).await {
            Ok(answer) => Response::from_json(&answer),
            Err(thrown) => Response::error(runtime::describe(&thrown), 500),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        self.inner.on_alarm().await.map_err(|thrown| runtime::describe(&thrown))?;
        Response::empty()
    }
}

type Answer = std::result::Result<serde_json::Value, JsValue>;

impl Inner {
    async fn handle(self: &Rc<Self>, mut request: Request) -> Answer {
        let url = request.url().map_err(JsValue::from)?;
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let number = |key: &str| query.get(key).and_then(|text| text.parse::<f64>().ok());
        let body = request.text().await.map_err(JsValue::from)?;
        let command = url.path().rsplit('/').next().unwrap_or_default();
        match command {
            "sql" => self.run_sql(&body),
            "transaction" => Ok(self.transaction(&body)),
            "insert" => {
                let n = number("n").unwrap_or_default();
                self.exec("INSERT INTO numbers(n) VALUES(?)", &[n.into()])?;
                Ok(json!(n))
            }
            "insert-and-arm" => self.insert_and_arm(number("in_ms").unwrap_or_default()).await,
            "arm" => {
                let at = Date::now() + number("in_ms").unwrap_or_default();
                let promise = self.storage.set_alarm(at)?;
                JsFuture::from(promise).await?;
                Ok(json!(at))
            }
            "alarm" => Ok(json!(self.alarm_time().await?)),
            "now" => Ok(json!(Date::now())),
            "name" => Ok(json!(self.state.id().name())),
            "raise-epoch" => {
                self.epoch.set(self.epoch.get() + 1);
                Ok(json!(self.epoch.get()))
            }
            "activate" => {
                let target = query.get("target").map_or("APP", String::as_str);
                Ok(self.activate(target, &body).await)
            }
            "spawn" => {
                self.spawn("APP", body);
                Ok(json!("spawned"))
            }
            other => Err(JsValue::from_str(&format!("no command {other}"))),
        }
    }

    fn exec(&self, query: &str, bindings: &[JsValue]) -> std::result::Result<RawCursor, JsValue> {
        let bindings: Array = bindings.iter().collect();
        self.storage.sql().exec(query, &bindings)
    }

    /// Runs any statement and answers its rows and what the platform counted.
    fn run_sql(&self, query: &str) -> Answer {
        let cursor = self.exec(query, &[])?;
        let rows = cursor.raw()?.to_array()?;
        let text = String::from(js_sys::JSON::stringify(&rows)?);
        let rows: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| JsError::new(&error.to_string()))?;
        Ok(json!({
            "rows": rows,
            "written": cursor.rows_written()?,
            "read": cursor.rows_read()?,
        }))
    }

    /// Inserts a row, then fails: with the thrown text of `body`, or by SQL when `body` is a statement.
    fn transaction(&self, body: &str) -> serde_json::Value {
        let mut inside = 0.0;
        let outcome = self.storage.transaction_sync(&mut || {
            self.exec("INSERT INTO numbers(n) VALUES(1)", &[])?;
            let counted = self.exec("SELECT count(*) FROM numbers", &[])?.raw()?.to_array()?;
            inside = Array::from(&counted.get(0)).get(0).as_f64().unwrap_or_default();
            if body.starts_with("INSERT") {
                self.exec(body, &[])?;
                Ok(JsValue::from_str("finished"))
            } else {
                Err(JsError::new(body).into())
            }
        });
        match outcome {
            Ok(value) => json!({ "inside": inside, "ok": value.as_string() }),
            Err(thrown) => json!({ "inside": inside, "thrown": runtime::describe(&thrown) }),
        }
    }

    /// A row that remembers its alarm, and the alarm, with no await between the two.
    async fn insert_and_arm(&self, in_ms: f64) -> Answer {
        let at = Date::now() + in_ms;
        self.exec("INSERT INTO numbers(alarm_at) VALUES(?)", &[at.into()])?;
        let promise = self.storage.set_alarm(at)?;
        JsFuture::from(promise).await?;
        Ok(json!(at))
    }

    async fn alarm_time(&self) -> std::result::Result<Option<f64>, JsValue> {
        let promise = self.storage.get_alarm()?;
        Ok(JsFuture::from(promise).await?.as_f64())
    }

    /// Hands the program a session of the present epoch and waits for its end.
    async fn activate(self: &Rc<Self>, target: &str, order: &str) -> serde_json::Value {
        let began = Date::now();
        let outcome = match self.entrypoint(target) {
            Ok(program) => match program.activate(order, &self.session()) {
                Ok(answer) => runtime::settle(answer).await,
                Err(thrown) => Err(thrown),
            },
            Err(thrown) => Err(thrown),
        };
        let took_ms = Date::now() - began;
        match outcome {
            Ok(value) => json!({ "ok": value.as_string(), "took_ms": took_ms }),
            Err(thrown) => json!({ "rejected": runtime::describe(&thrown), "took_ms": took_ms }),
        }
    }

    /// Activates without anybody waiting for it, and records the outcome as a row.
    fn spawn(self: &Rc<Self>, target: &'static str, order: String) {
        let inner = Rc::clone(self);
        wasm_bindgen_futures::spawn_local(async move {
            let outcome = inner.activate(target, &order).await;
            let row = [target.into(), outcome.to_string().into()];
            if let Err(thrown) = inner.exec("INSERT INTO outcomes VALUES(?, ?)", &row) {
                worker::console_error!("outcome not recorded: {}", runtime::describe(&thrown));
            }
        });
    }

    /// `exports` is the Worker's own default entrypoint; any other target is a service binding.
    fn entrypoint(&self, target: &str) -> std::result::Result<Entrypoint, JsValue> {
        let found = if target == "exports" {
            let exports = runtime::property(self.state.as_raw(), "exports")?;
            runtime::property(&exports, "default")?
        } else {
            runtime::property(&self.env, target)?
        };
        if found.is_undefined() {
            return Err(JsError::new(&format!("no entrypoint {target}")).into());
        }
        Ok(found.unchecked_into())
    }

    fn session(self: &Rc<Self>) -> JsValue {
        let epoch = self.epoch.get();
        // Weak: the session is kept by the object, and must not keep the object in turn.
        let inner = Rc::downgrade(self);
        let commit =
            Closure::<dyn Fn(String) -> std::result::Result<JsValue, JsValue>>::new(move |text: String| {
                let inner = inner.upgrade().ok_or_else(|| JsError::new("the object is gone"))?;
                if inner.epoch.get() != epoch {
                    return Err(JsError::new(&format!("epoch {epoch} is over")).into());
                }
                inner.exec("INSERT INTO numbers(text) VALUES(?)", &[text.into()])?;
                Ok(JsValue::TRUE)
            });
        let session = Session::new(&commit.into_js_value());
        let value = JsValue::from(&session);
        self.sessions.borrow_mut().push(session);
        value
    }

    fn setting(&self, key: &str) -> std::result::Result<String, JsValue> {
        let cursor = self.exec("SELECT value FROM settings WHERE key = ?", &[key.into()])?;
        let rows = cursor.raw()?.to_array()?;
        Ok(Array::from(&rows.get(0)).get(0).as_string().unwrap_or_default())
    }

    /// Records that it ran, and does what the setting `on_alarm` says.
    async fn on_alarm(self: &Rc<Self>) -> std::result::Result<(), JsValue> {
        let began = Date::now();
        let plan = self.setting("on_alarm")?;
        let (verb, value) = plan.split_once(' ').unwrap_or((&plan, ""));
        let value: f64 = value.parse().unwrap_or_default();
        let name = self.state.id().name();
        let inserted = self.exec(
            "INSERT INTO fired(began, id_name) VALUES(?, ?) RETURNING seq",
            &[began.into(), name.map_or(JsValue::NULL, JsValue::from)],
        )?;
        let seq = Array::from(&inserted.raw()?.to_array()?.get(0)).get(0);
        // A plan holds for one firing, which tells it from the firing that it arms.
        self.exec("UPDATE settings SET value = 'record' WHERE key = 'on_alarm'", &[])?;
        match verb {
            "arm-in" => self.rearm(&seq, began + value).await?,
            "spawn" => self.spawn("APP", self.setting("order")?),
            "arm-at" => self.rearm(&seq, value).await?,
            "arm-next-and-sleep" => {
                self.rearm(&seq, began + 50.0).await?;
                Delay::from(Duration::from_secs_f64(value / 1000.0)).await;
            }
            _ => {}
        }
        self.exec("UPDATE fired SET ended = ? WHERE seq = ?", &[Date::now().into(), seq])?;
        Ok(())
    }

    async fn rearm(&self, seq: &JsValue, at: f64) -> std::result::Result<(), JsValue> {
        let promise = self.storage.set_alarm(at)?;
        JsFuture::from(promise).await?;
        let inside = self.alarm_time().await?.map_or(JsValue::NULL, JsValue::from);
        self.exec(
            "UPDATE fired SET armed_at = ?, alarm_inside = ? WHERE seq = ?",
            &[at.into(), inside, seq.clone()],
        )?;
        Ok(())
    }
}
