//! The command line, as a person uses it: commands in, a transcript out, compared with one that was looked at.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{engine::KEY, repository_root};

/// Longer than any command takes.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The binary of the command line, which cargo puts beside the tests' folder.
pub fn stepwell_binary() -> Result<PathBuf> {
    let test = env::current_exe()?;
    let folder = test.ancestors().nth(2).context("a test lies in target/PROFILE/deps")?;
    let binary = folder.join("stepwell");
    ensure!(
        binary.exists(),
        "there is no {}: run `just workerd-test`, which builds it first",
        binary.display()
    );
    Ok(binary)
}

/// A terminal in an empty folder.
#[derive(Debug)]
pub struct Terminal {
    folder: TempDir,
    address: String,
    key: String,
    transcript: String,
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it gave.
    pub stdout: String,
    /// What it said besides.
    pub stderr: String,
}

impl Terminal {
    /// A terminal whose environment names this deployment and the tests' key.
    pub fn open(address: &str) -> Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
            address: format!("http://{address}"),
            key: KEY.to_owned(),
            transcript: String::new(),
        })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Names another key from here on.
    pub fn set_key(&mut self, key: &str) {
        key.clone_into(&mut self.key);
    }

    /// Runs a command, and adds it to the transcript.
    pub async fn run(&mut self, arguments: &[&str]) -> Result<Ran> {
        let ran = self.quietly(arguments).await?;
        let shown: Vec<_> = arguments
            .iter()
            .map(|argument| {
                let is_plain = argument.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
                if is_plain { (*argument).to_owned() } else { format!("'{argument}'") }
            })
            .collect();
        let code = ran.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        write!(self.transcript, "$ stepwell {}\n{}", shown.join(" "), ran.stdout)?;
        for line in ran.stderr.lines() {
            writeln!(self.transcript, "! {line}")?;
        }
        if code != "0" {
            writeln!(self.transcript, "[{code}]")?;
        }
        self.transcript.push('\n');
        Ok(ran)
    }

    /// Runs a command.
    pub async fn quietly(&self, arguments: &[&str]) -> Result<Ran> {
        self.within(COMMAND_TIMEOUT, arguments).await
    }

    /// Runs a command that may take longer than others.
    pub async fn within(&self, time: Duration, arguments: &[&str]) -> Result<Ran> {
        let child = self.command(arguments)?.output();
        let output = timeout(time, child)
            .await
            .with_context(|| format!("`stepwell {}` does not end", arguments.join(" ")))??;
        Ok(Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// Begins a command that goes on by itself.
    pub fn begin(&self, arguments: &[&str]) -> Result<Running> {
        let mut child = self.command(arguments)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("it is piped")?;
        Ok(Running { child, lines: BufReader::new(stdout).lines() })
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(stepwell_binary()?);
        command
            .args(arguments)
            .current_dir(self.folder())
            .env("STEPWELL_ADDRESS", &self.address)
            .env("STEPWELL_KEY", &self.key)
            .env("STEPWELL_CONFIG", self.folder().join("config.toml"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    /// All that was typed and answered.
    pub fn transcript(&self) -> &str {
        &self.transcript
    }
}

/// A command that runs beside the test. It ends with it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// The next line that it gives; nothing at its end.
    pub async fn line(&mut self) -> Result<Option<String>> {
        let line = timeout(COMMAND_TIMEOUT, self.lines.next_line());
        Ok(line.await.context("it gives nothing more")??)
    }

    /// Waits for its end: what it has given since, and said besides.
    pub async fn end(mut self) -> Result<Ran> {
        let mut stdout = String::new();
        while let Some(line) = self.line().await? {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let output = timeout(COMMAND_TIMEOUT, self.child.wait_with_output()).await??;
        Ok(Ran { code: output.status.code(), stdout, stderr: String::from_utf8(output.stderr)? })
    }
}

/// Compares a transcript with the one in `tests/golden/NAME.txt`. What differs each time is masked. With
/// `UPDATE_GOLDEN=1` it is written instead.
pub fn compare(name: &str, transcript: &str) -> Result<()> {
    let path = repository_root().join("tests/workerd/tests/golden").join(format!("{name}.txt"));
    let masked = mask(transcript)?;
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, masked)?;
        return Ok(());
    }
    let golden = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    if let Some((line, (was, is))) =
        golden.lines().zip(masked.lines()).enumerate().find(|(_, (was, is))| was != is)
    {
        anyhow::bail!(
            "{}, line {}:\n- {was}\n+ {is}\nAll of it:\n{masked}\nIf that is right: UPDATE_GOLDEN=1",
            path.display(),
            line + 1
        );
    }
    ensure!(golden == masked, "{} is longer or shorter than:\n{masked}", path.display());
    Ok(())
}

/// A transcript without what differs each time.
pub fn mask(text: &str) -> Result<String> {
    let masks = [
        (r"default-\d+-\d+-\d+-[0-9a-z]{12}", "RUN"),
        (r"/tmp/\S*", "FOLDER"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})? UTC", "DATE"),
        (r"sw_(live|test|session)_([a-z0-9-]+)_[0-9a-z]{47}", "SW_${1}_$2"),
        (r"(?m)^((?:! )?)[0-9a-z]{8} \(", "${1}ID ("),
        (r" *\b(\d+ ms|\d+\.\d s|\d+ m \d+ s|\d+ h \d+ m|\d+ d \d+ h)\b", " TIME"),
        (r"│[ █▓░]*│", "│BAR│"),
        (r"\b\d{13}\b", "MILLISECONDS"),
        (r"127\.0\.0\.1:\d{4,}", "ADDRESS"),
        (r"\d+ rows written, (.*); [0-9.]+ dollars", "ROWS written, $1; DOLLARS dollars"),
        // Whether a question falls into such a time is chance.
        (r"(?m)^ {11}(sleeping|waiting|paused)\b.*\n", ""),
        (r"(?m)^ .* ▪ .*\n", ""),
        (r"It has: [a-z0-9_, ]*\.", "It has: WORKFLOWS."),
        (r"\bRUN +", "RUN  "),
        (r"built in \d+ s", "built in TIME"),
    ];
    // First of all: the repository may itself lie in a folder that is masked.
    let root = repository_root().canonicalize()?;
    let mut masked = text.replace(&*root.to_string_lossy(), "STEPWELL");
    for (what, with) in masks {
        masked = Regex::new(what)?.replace_all(&masked, with).into_owned();
    }
    Ok(masked)
}
