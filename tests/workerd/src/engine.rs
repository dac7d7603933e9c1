//! Stepwell itself on workerd, in both forms, with the workflows of `app/`.

use anyhow::Result;
use serde_json::Value;

use crate::{Answer, Config, Http, Worker, Workerd, bundle};

/// The key of every engine that the tests start.
pub const KEY: &str = "test-key";

/// How engine and app are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One Worker.
    AllInOne,
    /// Two Workers, in two processes.
    Split,
}

impl Form {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllInOne => "all-in-one",
            Self::Split => "split",
        }
    }
}

/// A running engine, and its app if that is a process of its own.
#[derive(Debug)]
pub struct Engine {
    /// The process that serves HTTP and holds the cells.
    pub engine: Workerd,
    /// The process that holds only the workflows.
    pub app: Option<Workerd>,
}

impl Engine {
    /// Starts one with this many cells.
    pub async fn start(form: Form, cells: u32) -> Result<Self> {
        let worker = |name| -> Result<Worker> {
            Ok(Worker::bundle("engine", &bundle(name)?)
                .durable_object("CELL", "Cell")
                .text("STEPWELL_KEY", KEY)
                .text("STEPWELL_METER", "1")
                .text("STEPWELL_CELLS", &cells.to_string()))
        };
        match form {
            Form::AllInOne => {
                let config = Config::serving("engine").worker(worker("test-all-in-one")?);
                Ok(Self { engine: Workerd::start(&config).await?, app: None })
            }
            Form::Split => {
                let app = Config::serving("app").worker(Worker::bundle("app", &bundle("test-app")?));
                let app = Workerd::start(&app).await?;
                let config = Config::serving("engine")
                    .worker(worker("engine")?.service("APP", "app"))
                    .external("app", &app.address());
                Ok(Self { engine: Workerd::start(&config).await?, app: Some(app) })
            }
        }
    }

    /// A client that brings the key.
    pub fn client(&self) -> Client {
        Client { http: self.engine.http() }
    }
}

/// Asks an engine.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
}

impl Client {
    /// Starts a run; waits for its end up to `wait` seconds.
    pub async fn start(&self, workflow: &str, input: &Value, key: Option<&str>, wait: u32) -> Result<Answer> {
        let path = format!("/api/workflows/{workflow}/start");
        let mut request = self.post(&path).body(input.to_string());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if wait > 0 {
            request = request.header("prefer", format!("wait={wait}"));
        }
        self.http.send(request, &path).await
    }

    /// Shows a run; waits for its end up to `wait` seconds.
    pub async fn show(&self, run: &str, wait: u32) -> Result<Answer> {
        let path = format!("/api/executions/{run}");
        let request = self.http.client().get(self.http.url(&path)).bearer_auth(KEY);
        self.http.send(request.header("prefer", format!("wait={wait}")), &path).await
    }

    /// A run's whole history.
    pub async fn history(&self, run: &str) -> Result<Vec<Value>> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let path = format!("/api/executions/{run}/history?after={after}");
            let request = self.http.client().get(self.http.url(&path)).bearer_auth(KEY);
            let mut page = self.http.send(request, &path).await?.json()?;
            if let Some(Value::Array(more)) = page.get_mut("events").map(Value::take) {
                events.extend(more);
            }
            match page.get("next").and_then(Value::as_u64) {
                Some(next) => after = next,
                None => return Ok(events),
            }
        }
    }

    /// Sends a run a signal.
    pub async fn signal(&self, run: &str, name: &str, payload: &Value, id: Option<&str>) -> Result<Answer> {
        let path = format!("/api/executions/{run}/signals/{name}");
        let mut request = self.post(&path).body(payload.to_string());
        if let Some(id) = id {
            request = request.header("idempotency-key", id);
        }
        self.http.send(request, &path).await
    }

    /// Cancels a run.
    pub async fn cancel(&self, run: &str) -> Result<Answer> {
        let path = format!("/api/executions/{run}/cancel");
        self.http.send(self.post(&path), &path).await
    }

    fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.client().post(self.http.url(path)).bearer_auth(KEY)
    }
}
