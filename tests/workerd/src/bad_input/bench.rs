//! What every case is tried on: one engine, the keys to it, and what must hold for each answer and after each class.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use stepwell_protocol::{Code, Problem};

use super::wire::{self, Act, Request};
use crate::{
    Answer,
    access::{Secrets, key as make_key, namespace, text},
    engine::{Client, KEY},
    repository_root,
};

/// Stands in requests for what must never be seen again, and is put in by whoever sends them.
pub const CANARY: &str = "CANARY";

/// How much of what was sent an answer may say again, where it may.
const ECHO_BYTES_MAX: usize = 1_200;

/// One engine, and who asks it.
pub struct Bench {
    /// Where it listens.
    pub address: String,
    /// The deployment's own key.
    pub root: Client,
    /// The key of the namespace that all cases are about.
    pub admin: Client,
    /// A key that may only look at runs.
    pub reader: Client,
    /// What stands where a request says [`CANARY`].
    canary: String,
    secrets: Mutex<Secrets>,
    /// Runs that were accepted.
    started: AtomicU64,
    /// Answers that were looked at.
    answers: AtomicU64,
    disk: PathBuf,
}

/// What must not be changed by what is refused.
#[derive(Debug, PartialEq)]
pub struct State {
    runs: u64,
    settings: Value,
    files: BTreeSet<PathBuf>,
}

impl Bench {
    /// Makes the namespace and its keys.
    pub async fn new(root: Client, address: String, disk: PathBuf) -> Result<Self> {
        let admin = namespace(&root, "acme").await?;
        let (_, reader) = make_key(&admin, &["read"]).await?;
        let mut secrets = Secrets::default();
        for client in [&admin, &reader] {
            secrets.add(client.key());
        }
        let canary = format!("cnry{:016x}", rand::random::<u64>());
        // Whatever is there before the first case is not what a case has made.
        for client in [&root, &admin] {
            client.get("/api/metrics").await?.json()?;
        }
        Ok(Self {
            address,
            root,
            admin,
            reader,
            canary,
            secrets: Mutex::new(secrets),
            started: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            disk,
        })
    }

    /// How many answers were looked at.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// A text as it is sent.
    pub fn filled(&self, bytes: &[u8]) -> Vec<u8> {
        let mut filled = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some(at) = wire::find(rest, CANARY.as_bytes()) {
            filled.extend_from_slice(&rest[..at]);
            filled.extend_from_slice(self.canary.as_bytes());
            rest = &rest[at + CANARY.len()..];
        }
        filled.extend_from_slice(rest);
        filled
    }

    /// Sends a request, and looks at the answer: whatever it is, it has the form that answers have.
    pub async fn ask(&self, request: &Request) -> Result<Answer> {
        let text = |text: &str| String::from_utf8_lossy(&self.filled(text.as_bytes())).into_owned();
        let mut filled = Request {
            target: text(&request.target),
            headers: request.headers.iter().map(|(name, value)| (name.clone(), self.filled(value))).collect(),
            body: self.filled(&request.body),
            ..request.clone()
        };
        filled.headers.push(("X-Canary".to_owned(), self.canary.clone().into_bytes()));
        let answer = wire::ask(&self.address, filled.bytes(&self.address, self.admin.key())).await?;
        let is_start = request.target.contains("/start") || request.target.starts_with("/api/bulk");
        if answer.status == 201 && is_start {
            self.started.fetch_add(1, Ordering::Relaxed);
        }
        self.inspect(&answer, request.echoes, request.method == "HEAD")?;
        Ok(answer)
    }

    /// Does something on a socket. The answer, if there is one, may be the server's own.
    pub async fn perform(&self, acts: &[Act]) -> Result<Option<Answer>> {
        let filled: Vec<_> = acts
            .iter()
            .map(|act| match act {
                Act::Send(bytes) => Act::Send(self.filled(bytes)),
                Act::Pause(_) | Act::End | Act::Leave => act.clone(),
            })
            .collect();
        let answer = wire::perform(&self.address, &filled).await?;
        if let Some(answer) = &answer {
            // Nothing else that is sent in this way creates anything.
            self.started.fetch_add(u64::from(answer.status == 201), Ordering::Relaxed);
            self.inspect_servers_own(answer)?;
        }
        Ok(answer)
    }

    /// An answer of the server's own has no form, but says nothing that it should not.
    fn inspect_servers_own(&self, answer: &Answer) -> Result<()> {
        if is_problem(answer) {
            return self.inspect(answer, false, false);
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        // The code of HTTP for a method that nobody knows.
        ensure!(answer.status < 500 || answer.status == 501, "{} {}", answer.status, shown(&answer.body));
        ensure!(answer.status < 400 || !answer.body.contains(&self.canary), "the answer has the canary");
        Ok(())
    }

    fn inspect(&self, answer: &Answer, echoes: bool, is_head: bool) -> Result<()> {
        self.answers.fetch_add(1, Ordering::Relaxed);
        ensure!(answer.status < 500, "{} {}", answer.status, shown(&answer.body));
        if answer.status < 400 {
            return Ok(());
        }
        // Whatever the body would be, the answer to this method has none.
        if !is_head {
            read_problem(answer)?;
        }
        if answer.status == 405 {
            ensure!(answer.headers.contains_key("allow"), "405 without `Allow`");
        }
        if answer.status == 401 {
            ensure!(answer.headers.contains_key("www-authenticate"), "401 without `WWW-Authenticate`");
        }
        let has_canary = answer.body.contains(&self.canary)
            || answer
                .headers
                .values()
                .any(|value| wire::find(value.as_bytes(), self.canary.as_bytes()).is_some());
        ensure!(echoes || !has_canary, "what was sent is in the answer: {}", shown(&answer.body));
        ensure!(
            answer.body.len() <= ECHO_BYTES_MAX,
            "a refusal has {} bytes: {}",
            answer.body.len(),
            shown(&answer.body)
        );
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(secrets.count(answer.body.as_bytes()) == 0, "a key is in the answer");
        Ok(())
    }

    /// A good request, which works whatever was refused before it.
    pub async fn good(&self) -> Result<()> {
        let request = Request::post("/api/workflows/echo/start", r#"{"good":[1,2,3]}"#);
        let answer = self.ask(&request.header("Prefer", "wait=10")).await?;
        let run = answer.json()?;
        ensure!(
            run["status"] == "completed" && run["output"] == json!({ "good": [1, 2, 3] }),
            "a good request gives {run}"
        );
        Ok(())
    }

    /// What there is, without the runs that were accepted.
    pub async fn state(&self) -> Result<State> {
        let started = self.started.load(Ordering::Relaxed);
        let counted = self.admin.get("/api/metrics").await?.json()?;
        let total = counted["total"].as_u64().context("a total")?;
        let settings = json!({
            "keys": self.admin.get("/api/keys").await?.json()?,
            "settings": self.admin.get("/api/settings").await?.json()?,
            "of_all": self.root.get("/api/settings").await?.json()?,
            "namespaces": self.root.get("/api/namespaces").await?.json()?,
            "issuers": self.root.get("/api/issuers").await?.json()?,
            "schedules": self.admin.get("/api/schedules").await?.json()?,
            "schedules_of_all": self.root.get("/api/schedules").await?.json()?,
            "runs_of_all": self.root.get("/api/metrics").await?.json()?["total"],
        });
        let runs = total.checked_sub(started).context("a run that was accepted is not there")?;
        Ok(State { runs, settings, files: self.files()? })
    }

    /// The databases of all objects. Beside each of them there may be files of its own.
    fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let (mut files, mut folders) = (BTreeSet::new(), vec![self.disk.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|kind| kind == "sqlite") {
                    files.insert(path);
                }
            }
        }
        Ok(files)
    }

    /// How often a canary is in the log, and a key or token in the log and the storage files; and how many files there
    /// are. The process has ended by now.
    pub fn look_for_traces(&self, workerd: &crate::Workerd) -> Result<Traces> {
        let log = workerd.log();
        let (canaries, mut files) = (log.matches(&self.canary).count(), 0);
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = secrets.look_for_traces(workerd, &mut files)? + log.matches(KEY).count();
        Ok(Traces { canaries, keys, files })
    }
}

/// What was found where it must not be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traces {
    /// Canaries in the log.
    pub canaries: usize,
    /// Keys and tokens in the log and in storage files.
    pub keys: usize,
    /// Storage files that were looked through.
    pub files: usize,
}

impl std::ops::AddAssign for Traces {
    fn add_assign(&mut self, other: Self) {
        self.canaries += other.canaries;
        self.keys += other.keys;
        self.files += other.files;
    }
}

/// Whether an answer says that it is a problem.
pub fn is_problem(answer: &Answer) -> bool {
    answer.headers.get("content-type").is_some_and(|kind| kind == "application/problem+json")
}

/// The problem of an answer, which says of itself what is true, and has a page.
pub fn read_problem(answer: &Answer) -> Result<Problem> {
    ensure!(is_problem(answer), "{} is no problem: {}", answer.status, shown(&answer.body));
    let problem: Problem =
        serde_json::from_str(&answer.body).with_context(|| format!("no problem: {}", shown(&answer.body)))?;
    ensure!(problem.status == answer.status, "{} says {}", answer.status, problem.status);
    ensure!(problem.code.status() == answer.status, "{} is not the status of its code", answer.status);
    ensure!(problem.page == problem.code.page(), "{} is not the page of its code", problem.page);
    let page = repository_root().join(format!("docs/errors/{}.md", problem.code.as_str()));
    ensure!(page.exists(), "there is no page of {}", problem.code.as_str());
    ensure!(!problem.detail.is_empty(), "{} has no detail", problem.code.as_str());
    Ok(problem)
}

/// Refuses an answer that is no refusal with one of these codes.
pub fn expect_refusal(answer: &Answer, codes: &[Code]) -> Result<()> {
    if answer.status < 400 {
        bail!("{} is no refusal: {}", answer.status, shown(&answer.body));
    }
    let code = read_problem(answer)?.code;
    ensure!(
        codes.is_empty() || codes.contains(&code),
        "it is refused with {}: {}",
        code.as_str(),
        shown(&answer.body)
    );
    Ok(())
}

/// Refuses an answer that is no success.
pub fn expect_success(answer: &Answer) -> Result<()> {
    ensure!(answer.status < 400, "it is refused: {} {}", answer.status, shown(&answer.body));
    Ok(())
}

/// As much of a text as a line of a report holds.
pub fn shown(text: &str) -> String {
    text.chars().take(300).collect()
}

/// The id in an answer that is a run.
pub fn run_id(answer: &Answer) -> Result<String> {
    Ok(text(&answer.json()?["id"])?.to_owned())
}
