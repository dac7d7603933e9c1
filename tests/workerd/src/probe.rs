//! The probe Worker (`tests/workerd/probe`) from the test's side: its configuration, and one of its
//! objects as a value with methods.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::config::{Config, Worker};
use crate::http::Http;
use crate::paths::bundle;
use crate::process::Workerd;

/// The probe alone: the Worker with its objects.
pub fn probe() -> Result<Config> {
    Ok(Config::serving("main").worker(probe_worker("main")?))
}

/// The probe with a second copy of itself bound as `APP`, in the same process.
pub fn probe_with_app() -> Result<Config> {
    Ok(Config::serving("main")
        .worker(probe_worker("main")?.service("APP", "app"))
        .worker(Worker::bundle("app", &bundle("probe")?)))
}

/// The program alone, for a process of its own.
pub fn probe_app() -> Result<Config> {
    Ok(Config::serving("app").worker(Worker::bundle("app", &bundle("probe")?)))
}

/// The probe with `APP` bound to the main Worker of another process.
pub fn probe_with_remote_app(app: &Workerd) -> Result<Config> {
    Ok(Config::serving("main")
        .worker(probe_worker("main")?.service("APP", "app"))
        .external("app", &app.address()))
}

fn probe_worker(name: &str) -> Result<Worker> {
    Ok(Worker::bundle(name, &bundle("probe")?).durable_object("CELL", "Cell"))
}

/// One object of the probe.
#[derive(Clone, Debug)]
pub struct Object {
    http: Http,
    name: String,
}

impl Object {
    /// The object called `name`.
    pub fn new(workerd: &Workerd, name: &str) -> Self {
        Self { http: workerd.http(), name: name.into() }
    }

    /// Sends a command with a body, and answers its JSON.
    pub async fn ask(&self, command: &str, body: &str) -> Result<Value> {
        let path = format!("/{}/{command}", self.name);
        self.http.post(&path, body).await?.json().context(path)
    }

    /// Runs a statement and answers its rows, each an array.
    pub async fn rows(&self, query: &str) -> Result<Vec<Vec<Value>>> {
        let answer = self.ask("sql", query).await.context(query.to_owned())?;
        Ok(serde_json::from_value(answer["rows"].clone())?)
    }

    /// Runs a statement and answers how many rows the platform says it wrote.
    pub async fn written(&self, query: &str) -> Result<u64> {
        let answer = self.ask("sql", query).await.context(query.to_owned())?;
        // The figure crosses JavaScript as a float.
        match answer["written"].as_f64() {
            Some(count) => Ok(format!("{count}").parse()?),
            None => bail!("no figure in {answer}"),
        }
    }

    /// Runs a statement that must fail, and answers what the object was told.
    pub async fn sql_error(&self, query: &str) -> Result<String> {
        let path = format!("/{}/sql", self.name);
        let answer = self.http.post(&path, query).await?;
        anyhow::ensure!(answer.status == 500, "{query} did not fail: {}", answer.body);
        Ok(answer.body)
    }

    /// The time that `getAlarm()` shows.
    pub async fn alarm(&self) -> Result<Option<f64>> {
        Ok(self.ask("alarm", "").await?.as_f64())
    }

    /// Activates a program that makes `commits` commits, each after `delay_ms`, and reports to `report`.
    /// Answers `ok` with the program's last word or `rejected` with the error, and `took_ms`.
    pub async fn activate(
        &self,
        target: &str,
        commits: u32,
        delay_ms: u64,
        report: Option<&str>,
    ) -> Result<Value> {
        let order = json!({ "commits": commits, "delay_ms": delay_ms, "report": report });
        self.ask(&format!("activate?target={target}"), &order.to_string()).await
    }
}
