//! One workerd process: its folder, its port and its life.
//!
//! The port and the folder stay the same over restarts; nothing else does. Only the process that was
//! started here is ever signalled, by its pid.

use std::collections::BTreeSet;
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
    /// One for each socket.
    ports: Vec<u16>,
    child: Option<Child>,
    arguments: Vec<&'static str>,
}

impl Workerd {
    /// Writes the configuration into a fresh folder, and starts workerd on a free port.
    pub async fn start(config: &Config) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stepwell-workerd-").tempdir()?;
        // Tells on standard output when the socket listens, so nobody has to poll the port.
        let mut arguments = vec!["--control-fd=1"];
        if config.is_experimental() {
            arguments.push("--experimental");
        }
        let mut workerd = Self { folder: Some(folder), ports: Vec::new(), child: None, arguments };
        let mut outcome = Ok(());
        for _ in 0..START_ATTEMPTS {
            workerd.ports = (0..config.sockets()).map(|_| free_port()).collect::<Result<_>>()?;
            let addresses: Vec<_> = workerd.ports.iter().copied().map(address).collect();
            config.write(workerd.folder(), &addresses)?;
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

    /// The process's number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How much memory it has resident now, and at the most since it was started, in KiB.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let child = self.child.as_ref().context("workerd does not run")?;
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
                .with_context(|| format!("/proc has no {name}"))
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
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

    /// Lets no file grow beyond so many bytes, as if the disk was full; or again as far as it likes.
    #[cfg(target_os = "linux")]
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        use rustix::process::{Resource, Rlimit, prlimit};
        let child = self.child.as_ref().context("workerd does not run")?;
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(child)), Resource::Fsize, limit)?;
        Ok(())
    }

    /// The address of the HTTP socket, such as `127.0.0.1:20000`.
    pub fn address(&self) -> String {
        address(self.ports[0])
    }

    /// A client for the HTTP socket.
    pub fn http(&self) -> Http {
        Http::new(&format!("http://{}", self.address()))
    }

    /// A client for the socket that was added as this one, from 1; 0 is the first.
    pub fn http_at(&self, socket: usize) -> Http {
        Http::new(&format!("http://{}", address(self.ports[socket])))
    }

    /// The folder with the configuration, the log and the disk.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("the folder is only given up when the value is dropped").path()
    }

    /// The folder where the objects' databases lie, one folder for each class.
    pub fn disk(&self) -> PathBuf {
        self.folder().join("disk")
    }

    /// All files on its disk. An object has one as soon as it is asked for anything.
    pub fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let (mut found, mut folders) = (BTreeSet::new(), vec![self.disk()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.insert(path);
                }
            }
        }
        Ok(found)
    }

    /// What workerd wrote so far, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Starts workerd and does not wait until it listens, for tests that kill it on the way.
    pub fn begin(&mut self) -> Result<()> {
        self.kill();
        self.launch().map(drop)
    }

    async fn spawn(&mut self) -> Result<()> {
        let listening = self.launch()?;
        if !matches!(tokio::time::timeout(START_TIMEOUT, listening).await, Ok(Ok(()))) {
            self.kill();
            bail!("workerd did not start to listen; it wrote:\n{}", self.log());
        }
        Ok(())
    }

    /// Starts workerd, and tells when it listens.
    fn launch(&mut self) -> Result<oneshot::Receiver<()>> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        // The shell becomes workerd. A write beyond the limit of a file is an error then, as on a full disk,
        // and not a signal that kills.
        let mut child = Command::new("sh")
            .args(["-c", r#"trap '' XFSZ; exec "$0" "$@""#])
            .arg(workerd_binary()?)
            .arg("serve")
            .args(&self.arguments)
            .arg(self.folder().join("config.capnp"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .spawn()
            .context("starting workerd")?;
        let stdout = child.stdout.take().expect("the output is piped");
        self.child = Some(child);
        Ok(watch_output(stdout, log, self.ports.len()))
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

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Copies workerd's output into the log until it ends, and tells when all its sockets listen. Nothing is
/// told when workerd ends before.
fn watch_output(output: ChildStdout, mut log: File, sockets: usize) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    let (mut sender, mut silent) = (Some(sender), sockets);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with(r#"{"event":"listen""#) {
                silent = silent.saturating_sub(1);
                if let Some(sender) = sender.take_if(|_| silent == 0) {
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

/// A port on 127.0.0.1 that nobody listens on at this moment.
pub fn free_port() -> Result<u16> {
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
