//! The walk-through of `docs/getting-started.md`, word for word: its commands are run by bash, its outputs compared.
//!
//! The first terminal is `scripts/dev`, which `just dev` runs; the second is one bash that lives through the
//! whole section, so that its variables do. Cloning, setting up and building are left out: what they give is
//! there.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use stepwell_workerd_tests::{
    Http, TestResult,
    page::{Block, section},
    repository_root,
};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{self, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

/// The address that the page names.
const ADDRESS: &str = "127.0.0.1:8787";

/// Longer than any command of the page takes: it waits 15 seconds at the most.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// A person takes longer than this from one command to the next.
const READING_TIME: Duration = Duration::from_secs(1);

/// workerd listens a fraction of a second after it was started.
const START_TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_walk_through_with_curl_works_word_for_word() -> TestResult {
    ensure_port_is_free()?;
    let mut first = FirstTerminal::new()?;
    let mut second = SecondTerminal::open().await?;
    let mut compared = 0;
    let mut output = String::new();
    for Block { language, text } in section("docs/getting-started.md", "Use the HTTP API with curl")? {
        match language.as_str() {
            "sh" if text.lines().any(|line| line.ends_with("just dev")) => {
                check_first_terminal(&text)?;
                first.run_dev().await?;
            }
            "sh" => {
                sleep(READING_TIME).await;
                output = second.run(&text).await?;
            }
            "json" => {
                compare(&text, &output)?;
                compared += 1;
            }
            other => panic!("the page has a block of '{other}', which nobody checks"),
        }
    }
    assert_eq!(first.starts, 2, "the page starts workerd, kills it, and starts it again");
    assert!(compared >= 6, "only {compared} outputs were compared");
    Ok(())
}

/// The lines that the first terminal may have: all but the last were done before this test.
fn check_first_terminal(text: &str) -> Result<()> {
    for line in text.lines() {
        let known = line.starts_with("git clone https://")
            || ["cd stepwell", "just setup && just build && just dev", "just dev"].contains(&line);
        ensure!(known, "the first terminal runs '{line}', which this test does not know");
    }
    Ok(())
}

fn ensure_port_is_free() -> Result<()> {
    TcpListener::bind(ADDRESS)
        .with_context(|| format!("this test needs {ADDRESS}: end whatever listens there (`just dev`?)"))?;
    Ok(())
}

/// Where `just dev` runs, with data of its own.
struct FirstTerminal {
    folder: TempDir,
    dev: Option<Child>,
    starts: u32,
}

impl FirstTerminal {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stepwell-quickstart-").tempdir()?;
        Ok(Self { folder, dev: None, starts: 0 })
    }

    /// Runs it until it listens. One that ran before has to be dead already: the page kills it.
    async fn run_dev(&mut self) -> Result<()> {
        if let Some(mut dev) = self.dev.take() {
            let died = timeout(START_TIMEOUT, async {
                while dev.try_wait()?.is_none() {
                    sleep(Duration::from_millis(20)).await;
                }
                anyhow::Ok(())
            });
            if died.await.is_err() {
                self.dev = Some(dev);
                bail!("the page's kill -9 has not killed workerd");
            }
        }
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let dev = Command::new(repository_root().join("scripts/dev"))
            .env("STEPWELL_DATA", self.folder.path().join("data"))
            .env_remove("STEPWELL_KEY")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("scripts/dev")?;
        self.dev = Some(dev);
        self.starts += 1;
        timeout(START_TIMEOUT, self.answers())
            .await
            .unwrap_or_else(|_| Err(anyhow::anyhow!("it does not answer")))
            .with_context(|| format!("scripts/dev wrote: {}", self.log()))
    }

    async fn answers(&mut self) -> Result<()> {
        let http = Http::new(&format!("http://{ADDRESS}"));
        while http.get("/").await.is_err() {
            let dev = self.dev.as_mut().context("it was just started")?;
            if let Some(status) = dev.try_wait()? {
                bail!("it ended with {status}");
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("dev.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

impl Drop for FirstTerminal {
    fn drop(&mut self) {
        if let Some(mut dev) = self.dev.take() {
            // `scripts/dev` becomes workerd, so this pid is workerd's. It may be dead already.
            let _ = dev.kill();
            let _ = dev.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- scripts/dev wrote:\n{}", self.log());
        }
    }
}

/// The terminal in which the commands are typed.
struct SecondTerminal {
    // Held to be killed when this is dropped.
    _bash: process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl SecondTerminal {
    async fn open() -> Result<Self> {
        let mut bash = process::Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(repository_root())
            // A machine's proxy has no way to this machine's loopback.
            .env("NO_PROXY", "127.0.0.1")
            .env("no_proxy", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("bash")?;
        let input = bash.stdin.take().context("the input is piped")?;
        let output = bash.stdout.take().context("the output is piped")?;
        let mut terminal = Self { _bash: bash, input, output: BufReader::new(output).lines() };
        terminal.run("exec 2>&1\n").await?;
        Ok(terminal)
    }

    /// Types a block and reads what it prints. Its last command has to succeed.
    async fn run(&mut self, block: &str) -> Result<String> {
        const END: &str = "quickstart-block-ended-with";
        self.input.write_all(format!("{block}echo \"{END} $?\"\n").as_bytes()).await?;
        let mut printed = String::new();
        let reading = async {
            while let Some(line) = self.output.next_line().await? {
                if let Some(status) = line.strip_prefix(END) {
                    return Ok(status.trim().to_owned());
                }
                printed.push_str(&line);
                printed.push('\n');
            }
            bail!("bash has ended")
        };
        let status = timeout(BLOCK_TIMEOUT, reading).await;
        let status =
            status.with_context(|| format!("this did not end:\n{block}it printed:\n{printed}"))??;
        ensure!(status == "0", "this ended with {status}:\n{block}it printed:\n{printed}");
        Ok(printed)
    }
}

/// Compares what the page shows with what was printed: line by line, as JSON. Ids and times differ each
/// time; they only have to be there.
fn compare(shown: &str, printed: &str) -> Result<()> {
    let read = |text: &str| -> Result<Vec<Value>> {
        text.lines()
            .map(|line| {
                let mut value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
                blank(&mut value);
                Ok(value)
            })
            .collect()
    };
    let (shown_values, printed_values) = (read(shown)?, read(printed)?);
    ensure!(shown_values == printed_values, "the page shows:\n{shown}but this came:\n{printed}");
    Ok(())
}

fn blank(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if ["id", "at", "since", "took_ms"].contains(&name.as_str()) || name.ends_with("_at") {
                    *field = Value::Null;
                } else {
                    blank(field);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(blank),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
