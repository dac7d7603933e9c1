//! Stepwell under Miniflare, which has queues: a Node process, and the workerd that it starts.
//!
//! The port and the folder stay the same over restarts. Only processes that were started here are ever signalled,
//! by their pid: Node's own, and those of its children.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    COMPATIBILITY_DATE, Http,
    engine::{APP_KEY, Build, Client, Form, KEY},
    paths::{node_binary, repository_root},
    process::free_port,
};

/// Node and workerd take about a second to start; a machine under load may need much longer.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// Tries with another port, or again with the same one after a kill.
const START_ATTEMPTS: u32 = 5;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How engine and app are put together. They are one process in either form.
    pub form: Form,
    /// What a panic does in the bundles.
    pub build: Build,
    /// Cells in the pool.
    pub cells: u32,
    /// Programs that a cell calls at once.
    pub window: u32,
}

/// Cloudflare Queues of the engine's Worker, besides the one through which it calls programs.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// Its `STEPWELL_SOURCES`.
    pub sources: &'static str,
    /// The queues that it consumes, with Miniflare's options.
    pub consumers: Value,
    /// The queues that it sends to, by their bindings, with Miniflare's options.
    pub producers: Value,
    /// Batches that it gets as if they came from a queue. What it says about each is a line of the log.
    pub deliveries: Value,
}

/// Stepwell with a queue: it runs, or was killed and can be started again.
#[derive(Debug)]
pub struct Miniflare {
    setup: Setup,
    /// What the app takes for its key.
    app_key: String,
    /// What is besides.
    queues: Queues,
    folder: Option<TempDir>,
    port: u16,
    node: Option<Child>,
    /// The processes that Node has started.
    children: Vec<Pid>,
}

impl Miniflare {
    /// Starts it on a free port, with an empty disk.
    pub async fn start(setup: Setup) -> Result<Self> {
        Self::start_with_app_key(setup, APP_KEY).await
    }

    /// Starts it with another key for the app, if that is a Worker of its own.
    pub async fn start_with_app_key(setup: Setup, app_key: &str) -> Result<Self> {
        Self::start_with(setup, app_key, Queues::default()).await
    }

    /// Starts it with queues of its user.
    pub async fn start_with_queues(setup: Setup, queues: Queues) -> Result<Self> {
        Self::start_with(setup, APP_KEY, queues).await
    }

    async fn start_with(setup: Setup, app_key: &str, queues: Queues) -> Result<Self> {
        let folder = Some(tempfile::Builder::new().prefix("stepwell-miniflare-").tempdir()?);
        let app_key = app_key.to_owned();
        let mut miniflare =
            Self { setup, app_key, queues, folder, port: 0, node: None, children: Vec::new() };
        let mut outcome = Ok(());
        for _ in 0..START_ATTEMPTS {
            miniflare.port = free_port()?;
            miniflare.write()?;
            outcome = miniflare.spawn().await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map(|()| miniflare)
    }

    /// Kills it if it runs, and starts it with the same port and the same disk. What was in the queue is gone.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut outcome = Ok(());
        for _ in 0..START_ATTEMPTS {
            outcome = self.spawn().await;
            if outcome.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        outcome
    }

    /// Starts it again with another key for the app.
    pub async fn set_app_key(&mut self, app_key: &str) -> Result<()> {
        self.kill();
        app_key.clone_into(&mut self.app_key);
        self.write()?;
        self.restart().await
    }

    /// Kills all of it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        let Some(mut node) = self.node.take() else { return };
        // workerd first: Node would see it die, but not the other way round.
        for child in self.children.drain(..) {
            // One that has ended by itself cannot be killed.
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = node.kill();
        let _ = node.wait();
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        self.node.as_mut().is_some_and(|node| matches!(node.try_wait(), Ok(None)))
    }

    /// A client that brings the key.
    pub fn client(&self) -> Client {
        Client::new(Http::new(&format!("http://127.0.0.1:{}", self.port)))
    }

    /// What it wrote so far, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn folder(&self) -> &Path {
        self.folder.as_ref().expect("the folder is only given up when the value is dropped").path()
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("miniflare.log")
    }

    fn write(&self) -> Result<()> {
        let Setup { form, build, cells, window } = self.setup;
        let texts = json!({
            "STEPWELL_KEY": KEY,
            "STEPWELL_CELLS": cells.to_string(), "STEPWELL_WINDOW": window.to_string(),
            "STEPWELL_SOURCES": self.queues.sources,
        });
        let worker = |name: &str, from: &str, services: Value| -> Result<Value> {
            Ok(json!({
                "name": name, "bundle": build.bundle(from)?, "compatibilityDate": COMPATIBILITY_DATE,
                "texts": texts, "cells": true, "queue": "dispatch", "services": services,
                "sinks": self.queues.producers, "sources": self.queues.consumers,
            }))
        };
        let workers = match form {
            Form::AllInOne => vec![worker("engine", "test-all-in-one", json!({}))?],
            Form::Split => {
                let mut engine = worker("engine", "engine", json!({ "APP": "app" }))?;
                engine["texts"]["STEPWELL_APP_KEY"] = json!(APP_KEY);
                let app = json!({
                    "name": "app", "bundle": build.bundle("test-app")?, "compatibilityDate": COMPATIBILITY_DATE,
                    "texts": { "STEPWELL_APP_KEY": self.app_key }, "cells": false, "queue": null, "services": {},
                });
                vec![engine, app]
            }
        };
        let config = json!({
            "port": self.port, "folder": self.folder(), "workers": workers, "deliveries": self.queues.deliveries,
        });
        fs::write(self.folder().join("config.json"), config.to_string())?;
        Ok(())
    }

    async fn spawn(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut node = Command::new(node_binary()?)
            .arg(repository_root().join("tests/workerd/miniflare.mjs"))
            .arg(self.folder().join("config.json"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .spawn()
            .context("starting Node")?;
        let stdout = node.stdout.take().expect("the output is piped");
        let pid = node.id();
        self.node = Some(node);
        let (sender, ready) = oneshot::channel();
        std::thread::spawn(move || {
            let (mut sender, mut log) = (Some(sender), log);
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line == "ready" {
                    // Nobody waits any more when the start timed out.
                    let _ = sender.take().map(|sender| sender.send(()));
                } else if writeln!(log, "{line}").is_err() {
                    break;
                }
            }
        });
        let started = tokio::time::timeout(START_TIMEOUT, ready).await;
        self.children = children_of(pid)?;
        if !matches!(started, Ok(Ok(()))) {
            self.kill();
            bail!("Miniflare did not start; it wrote:\n{}", self.log());
        }
        ensure!(!self.children.is_empty(), "Miniflare runs no workerd");
        Ok(())
    }
}

impl Drop for Miniflare {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- Miniflare on port {} wrote:\n{}", self.port, self.log());
            if let Some(folder) = self.folder.take() {
                eprintln!("--- its folder is kept: {}", folder.keep().display());
            }
        }
    }
}

/// The processes that a process has started. They are in groups of their own, so the parent's says nothing.
fn children_of(parent: u32) -> Result<Vec<Pid>> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().context("listing processes")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let pairs = listed.lines().filter_map(|line| {
        let (pid, of) = line.trim().split_once(char::is_whitespace)?;
        Some((pid.parse::<i32>().ok()?, of.trim().parse::<u32>().ok()?))
    });
    Ok(pairs.filter(|(_, of)| *of == parent).filter_map(|(pid, _)| Pid::from_raw(pid)).collect())
}
