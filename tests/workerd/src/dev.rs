//! `stepwell dev` in a project of its own, whose build only copies a bundle that is there.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{COMPATIBILITY_DATE, Http, cli::stepwell_binary, free_port, repository_root};

/// Longer than a start takes.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How soon a change has to show.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The smallest module that wasm has.
const EMPTY_WASM: &[u8] = b"\0asm\x01\0\0\0";

/// Stands in for `stepwell build`: what is tested is what comes after it.
const BUILD: &str = "build.command = \"echo built >> builds.log; mkdir -p build; \
                     cp bundle/index.js bundle/index_bg.wasm build/\"\n";

/// The classes that a Worker with the engine exports.
const CLASSES: &str = "class Rows {}\nexport { Rows as Cell };\nexport class Station {}\n";

/// A project.
#[derive(Debug)]
pub struct Project {
    folder: TempDir,
    /// The port that it is served on.
    pub port: u16,
}

/// A `stepwell dev`. It ends with the test.
#[derive(Debug)]
pub struct Dev {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Project {
    /// A project whose Worker is this JavaScript, with classes of the engine's names.
    pub fn of_script(script: &str) -> Result<Self> {
        Self::without_engine(&format!("{script}\n{CLASSES}"))
    }

    /// A project whose Worker is this JavaScript alone.
    pub fn without_engine(script: &str) -> Result<Self> {
        let project = Self::new()?;
        fs::create_dir(project.path("bundle"))?;
        project.write("bundle/index.js", script)?;
        fs::write(project.path("bundle/index_bg.wasm"), EMPTY_WASM)?;
        project.configure("")?;
        Ok(project)
    }

    /// A project whose Worker is this bundle, with the objects of Stepwell.
    pub fn of_bundle(bundle: &Path) -> Result<Self> {
        let project = Self::new()?;
        symlink(bundle, project.path("bundle"))?;
        project.configure("")?;
        Ok(project)
    }

    /// Makes the engine a Worker of its own, with more at the end of its configuration.
    pub fn add_engine(&self, script: &str, more: &str) -> Result<()> {
        fs::create_dir_all(self.path("engine/bundle"))?;
        self.write("engine/bundle/index.js", &format!("{script}\n{CLASSES}"))?;
        fs::write(self.path("engine/bundle/index_bg.wasm"), EMPTY_WASM)?;
        self.write("engine/Cargo.toml", "[package]\nname = \"engine\"\n")?;
        self.write(
            "engine/wrangler.toml",
            &format!("name = \"engine\"\ncompatibility_date = \"{COMPATIBILITY_DATE}\"\n{BUILD}{more}"),
        )
    }

    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stepwell-dev-").tempdir()?;
        let project = Self { folder, port: free_port()? };
        symlink(repository_root().join("node_modules").canonicalize()?, project.path("node_modules"))?;
        project.write("Cargo.toml", "[package]\nname = \"orders\"\n")?;
        Ok(project)
    }

    /// Writes the project's configuration, with more at its end.
    pub fn configure(&self, more: &str) -> Result<()> {
        let objects = if self.path("bundle").is_symlink() {
            "[[durable_objects.bindings]]\nname = \"CELL\"\nclass_name = \"Cell\"\n\
             [[durable_objects.bindings]]\nname = \"STATION\"\nclass_name = \"Station\"\n"
        } else {
            ""
        };
        self.write(
            "wrangler.toml",
            &format!(
                "name = \"orders\"\ncompatibility_date = \"{COMPATIBILITY_DATE}\"\n{BUILD}{objects}{more}"
            ),
        )
    }

    /// Takes over a configuration, whose Worker is not built but copied.
    pub fn adopt_configuration(&self, from: &Path) -> Result<()> {
        let mut table: toml::Table = toml::from_str(&fs::read_to_string(from)?)?;
        table.extend(toml::from_str::<toml::Table>(BUILD)?);
        self.write("wrangler.toml", &toml::to_string(&table)?)
    }

    /// A file of the project.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file of the project.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        fs::write(self.path(path), text).with_context(|| path.to_owned())
    }

    /// How often it was built.
    pub fn builds(&self) -> usize {
        fs::read_to_string(self.path("builds.log")).unwrap_or_default().lines().count()
    }

    /// The key that it has for itself.
    pub fn key(&self) -> Result<String> {
        Ok(fs::read_to_string(self.path(".stepwell/key"))?.trim().to_owned())
    }

    /// A client for it.
    pub fn http(&self) -> Http {
        Http::new(&format!("http://127.0.0.1:{}", self.port))
    }

    /// Serves it, and waits until it is ready.
    pub async fn dev(&self) -> Result<Dev> {
        Ok(self.dev_with(&[]).await?.0)
    }

    /// The same with more arguments, and what it says when it is ready.
    pub async fn dev_with(&self, more: &[&str]) -> Result<(Dev, Value)> {
        let port = self.port.to_string();
        let mut child = self.command(&["--json", "dev", "--port", &port])?.args(more).spawn()?;
        let stdout = child.stdout.take().context("it is piped")?;
        let mut dev = Dev { child, lines: BufReader::new(stdout).lines() };
        let ready = dev.ready().await?;
        Ok((dev, ready))
    }

    /// A command of the command line in the project's folder.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(stepwell_binary()?);
        let own = self.path("bin").into_os_string();
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .args(arguments)
            .env("PATH", [own, path].join(OsStr::new(":")))
            .current_dir(self.folder.path())
            .env("STEPWELL_CONFIG", "/dev/null")
            .env("NO_COLOR", "1")
            .env_remove("STEPWELL_KEY")
            .env_remove("STEPWELL_ADDRESS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Waits until it answers anything.
    pub async fn is_there(&self) -> Result<()> {
        let (http, began) = (self.http(), Instant::now());
        while http.get("/").await.is_err() {
            ensure!(began.elapsed() < CHANGE_TIMEOUT, "it does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until a path answers this text.
    pub async fn answers(&self, path: &str, wanted: &str) -> Result<()> {
        let (http, began, mut last) = (self.http(), Instant::now(), String::new());
        while began.elapsed() < CHANGE_TIMEOUT {
            // It is between two lives.
            if let Ok(answer) = http.get(path).await {
                if answer.body == wanted {
                    return Ok(());
                }
                last = answer.body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{path} answers '{last}' instead of '{wanted}'")
    }
}

impl Dev {
    /// Its process.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("it runs")
    }

    /// Waits until it says that it is ready, and gives what it says then.
    pub async fn ready(&mut self) -> Result<Value> {
        let ready = async {
            while let Some(line) = self.lines.next_line().await? {
                if let Ok(line) = serde_json::from_str::<Value>(&line)
                    && line["event"] == "ready"
                {
                    return Ok(line);
                }
            }
            bail!("it has ended")
        };
        timeout(START_TIMEOUT, ready).await.context("it is not ready")?
    }

    /// Ends it as Ctrl-C does, and waits until it is gone.
    pub async fn end(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid()?)?).context("a process has a number")?;
        kill_process(pid, Signal::INT)?;
        timeout(START_TIMEOUT, self.child.wait()).await.context("it does not end")??;
        Ok(())
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await?;
        Ok(())
    }
}

/// The processes that a process has started, with what they were started as.
pub fn children_of(parent: u32) -> Result<Vec<(i32, String)>> {
    let listed = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid=,args="]).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (pid, of) = (words.next()?.parse().ok()?, words.next()?.parse::<u32>().ok()?);
        (of == parent).then(|| (pid, words.collect::<Vec<_>>().join(" ")))
    });
    Ok(rows.collect())
}
