//! One workerd process: its folder, its port and its life.
//!
//! The port and the folder stay the same over restarts; nothing else does. Only the process that was
//! started here is ever signalled, by its pid.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::http::Http;
use crate::paths::workerd_binary;

/// workerd listens about 0.1 s after it was started; a machine under load may need much longer.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Tries with another port, or again with the same one after a kill.
const START_ATTEMPTS: u32 = 5;

/// Below the range from which the system takes ports for outgoing connections: those could take a port
/// while its workerd is down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// A running workerd, or one that was killed and can be started again.
#[derive(Debug)]
pub struct Workerd {
    folder: Option<TempDir>,
    port: u16,
    child: Option<Child>,
}

impl Workerd {
    /// Writes the configuration into a fresh folder, and starts workerd on a free port.
    pub async fn start(config: &Config) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stepwell-workerd-").tempdir()?;
        let mut workerd = Self { folder: Some(folder), port: 0, child: None };
        let mut outcome = Ok(());
        for _ in 0..START_ATTEMPTS {
            workerd.port = free_port()?;
            config.write(workerd.folder(), &workerd.address())?;
            outcome = workerd.spawn().await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map(|()| workerd)
    }

    /// Kills workerd if it runs, and starts it with the same port, configuration and disk.
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

    /// Kills workerd with SIGKILL and waits until it is gone. Nothing if it does not run.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child that was not waited for can be killed");
            child.wait().expect("a killed child can be waited for");
        }
    }

    /// Whether workerd was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks workerd to end with SIGTERM, and waits until it has.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    /// Stops workerd with SIGSTOP: it keeps its connections and answers nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a paused workerd run on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// The address of the HTTP socket, such as `127.0.0.1:20000`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client for the HTTP socket.
    pub fn http(&self) -> Http {
        Http::new(&format!("http://{}", self.address()))
    }

    /// The folder with the configuration, the log and the disk.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("the folder is only given up when the value is dropped").path()
    }

    /// The folder where the objects' databases lie, one folder for each class.
    pub fn disk(&self) -> PathBuf {
        self.folder().join("disk")
    }

    /// What workerd wrote so far, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    async fn spawn(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut child = Command::new(workerd_binary()?)
            .arg("serve")
            // Tells on standard output when the socket listens, so nobody has to poll the port.
            .arg("--control-fd=1")
            .arg(self.folder().join("config.capnp"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .spawn()
            .context("starting workerd")?;
        let stdout = child.stdout.take().expect("the output is piped");
        self.child = Some(child);
        let listening = watch_output(stdout, log);
        if !matches!(tokio::time::timeout(START_TIMEOUT, listening).await, Ok(Ok(()))) {
            self.kill();
            bail!("workerd did not start to listen; it wrote:\n{}", self.log());
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("workerd does not run")?;
        kill_process(Pid::from_child(child), signal)?;
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("workerd.log")
    }
}

impl Drop for Workerd {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- workerd on {} wrote:\n{}", self.address(), self.log());
            if let Some(folder) = self.folder.take() {
                eprintln!("--- its folder is kept: {}", folder.keep().display());
            }
        }
    }
}

/// Copies workerd's output into the log until it ends, and tells when its socket listens. Nothing is
/// told when workerd ends before.
fn watch_output(output: ChildStdout, mut log: File) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with(r#"{"event":"listen""#) {
                if let Some(sender) = sender.take() {
                    // Nobody waits any more when the start timed out.
                    let _ = sender.send(());
                }
            } else if writeln!(log, "{line}").is_err() {
                break;
            }
        }
    });
    receiver
}

fn free_port() -> Result<u16> {
    const ATTEMPTS: u32 = 100;
    let mut random = rand::rng();
    for _ in 0..ATTEMPTS {
        let port = random.random_range(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port among {ATTEMPTS} tried in {PORTS:?}")
}
