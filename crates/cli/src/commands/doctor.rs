//! `stepwell doctor`: looks at everything that the other commands need, and says how to mend what is missing.

use std::{env, ffi::OsString, path::Path};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;

use crate::{
    Global,
    bars::Spinner,
    client::{Ask, Client},
    config,
    failure::{Exit, Failure, Result},
    private,
    project::Project,
    tools, variables,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Check only the deployment, not the tools.
    #[arg(long)]
    remote: bool,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    /// Only some commands need it.
    Note,
    Bad,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Good, found: found.into(), remedy: None }
    }

    fn of(name: &'static str, state: State, failure: Failure) -> Self {
        Self { name, state, found: failure.what, remedy: failure.next }
    }

    fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Bad, found: found.into(), remedy: Some(remedy.into()) }
    }
}

impl Doctor {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let spinner = Spinner::new("looking");
        let mut checks = Vec::new();
        if !self.remote {
            checks.extend(machine());
        }
        checks.extend(configuration(global));
        drop(spinner);
        let is_well = checks.iter().all(|check| check.state != State::Bad);
        if global.json {
            anstream::println!("{}", serde_json::to_string(&checks).expect("texts can be written as JSON"));
        } else {
            checks.iter().for_each(tell);
        }
        if is_well { Ok(()) } else { Err(Failure::told(Exit::Local)) }
    }
}

fn tell(check: &Check) {
    let (symbol, style) = match check.state {
        State::Good => ('✓', AnsiColor::Green.on_default()),
        State::Note => ('–', AnsiColor::Yellow.on_default()),
        State::Bad => ('✗', AnsiColor::Red.on_default()),
    };
    anstream::println!("{style}{symbol}{style:#} {:13} {}", check.name, check.found);
    if let Some(remedy) = &check.remedy {
        let bold = Style::new().bold();
        anstream::println!("{:15} {bold}→{bold:#} {remedy}", "");
    }
}

/// The tools, and the project of this folder.
fn machine() -> Vec<Check> {
    let project = Project::find();
    // Who only looks after runs needs none of the tools.
    let missing = if project.is_ok() { State::Bad } else { State::Note };
    let here = env::current_dir().unwrap_or_default();
    let root = project.as_ref().map_or(here.as_path(), |project| project.root.as_path());
    let mut checks = vec![
        tool("cargo", missing, tools::cargo().map(|cargo| (cargo, Vec::new()))),
        wasm(missing),
        worker_build(missing),
        tool("node", missing, tools::node(root).map(|node| (node, Vec::new()))),
        tool("workerd", missing, tools::workerd(root).map(|workerd| (workerd, Vec::new()))),
        tool("wrangler", missing, tools::wrangler(root)),
    ];
    checks.push(match &project {
        Ok(project) => {
            let names: Vec<_> = project.workers().map(|worker| worker.wrangler.name.as_str()).collect();
            match project.workers().try_for_each(|worker| library(&worker.folder)) {
                Ok(()) => Check::good("project", format!("{} in {}", names.join(" and "), root.display())),
                Err(failure) => Check::of("project", State::Bad, failure),
            }
        }
        Err(_) if !here.ancestors().any(|folder| folder.join("wrangler.toml").is_file()) => {
            let failure =
                Failure::local("this folder has no project").next("`stepwell new NAME` creates one.");
            Check::of("project", State::Note, failure)
        }
        Err(failure) => Check::bad("project", &failure.what, failure.next.clone().unwrap_or_default()),
    });
    if private::is_open_to_others(&root.join(variables::FILE)) {
        let file = variables::FILE;
        let found = format!("other users of this machine can read {file}");
        checks.push(Check::bad("variables", found, format!("chmod 600 {file}")));
    }
    checks
}

fn tool(name: &'static str, missing: State, found: Result<(std::path::PathBuf, Vec<OsString>)>) -> Check {
    match found {
        Ok((program, arguments)) => {
            let Some(version) = tools::version(&program, &arguments) else {
                let what =
                    format!("{} does not say its version, so it may not run at all", program.display());
                return Check::of(name, missing, Failure::local(what).next(tools::GET_NPM));
            };
            Check::good(name, version)
        }
        Err(failure) => Check::of(name, missing, failure),
    }
}

fn wasm(missing: State) -> Check {
    let remedy = || Failure::local("the compiler has none").next(tools::GET_WASM);
    match tools::has_wasm_target() {
        Some(true) => Check::good("wasm target", "wasm32-unknown-unknown"),
        Some(false) | None => Check::of("wasm target", missing, remedy()),
    }
}

fn worker_build(missing: State) -> Check {
    let Some(program) = tools::in_path("worker-build") else {
        let failure = Failure::local("worker-build is missing").next(tools::GET_WORKER_BUILD);
        return Check::of("worker-build", missing, failure);
    };
    match tools::version(&program, &[]) {
        Some(version) if version.contains(tools::WORKER_BUILD) => Check::good("worker-build", version),
        Some(version) => Check::bad(
            "worker-build",
            format!("{version}, but the SDK wants {}", tools::WORKER_BUILD),
            tools::GET_WORKER_BUILD,
        ),
        None => Check::good("worker-build", program.display().to_string()),
    }
}

/// Whether a Worker can be made of the crate.
fn library(root: &Path) -> Result {
    let text = std::fs::read_to_string(root.join("Cargo.toml"))
        .map_err(|error| Failure::local(format!("Cargo.toml cannot be read: {error}")))?;
    let manifest: toml::Table =
        toml::from_str(&text).map_err(|error| Failure::local(format!("Cargo.toml: {}", error.message())))?;
    let types = manifest.get("lib").and_then(|lib| lib.get("crate-type")).and_then(toml::Value::as_array);
    if types.is_some_and(|types| types.iter().any(|kind| kind.as_str() == Some("cdylib"))) {
        return Ok(());
    }
    Err(Failure::local("Cargo.toml makes no Worker")
        .next("Add `[lib]` with `crate-type = [\"cdylib\", \"rlib\"]` to it."))
}

/// The configuration, and whether the deployment that it names answers.
fn configuration(global: &Global) -> Vec<Check> {
    let target = match global.target() {
        Ok(target) => target,
        Err(failure) => return vec![Check::of("configuration", State::Bad, failure)],
    };
    let mut checks = Vec::new();
    if let Some(path) = config::path().filter(|path| path.exists()) {
        let has_key = std::fs::read_to_string(&path).is_ok_and(|text| text.lines().any(sets_key));
        checks.push(if has_key && private::is_open_to_others(&path) {
            Check::bad(
                "configuration",
                format!("others on this machine can read {}", path.display()),
                format!("chmod 600 {}", path.display()),
            )
        } else {
            Check::good("configuration", path.display().to_string())
        });
    }
    let address = target.address.clone();
    let source = target.source.clone();
    let key_source = target.key_source.clone();
    let has_key = target.key.is_some();
    let client = Client::new(target);
    let ask = Ask { query: vec![("limit", "1".into())], ..Ask::default() };
    let answer = client.status(&["executions"], &ask);
    match answer {
        Err(failure) => checks.push(Check::of("address", State::Bad, failure)),
        Ok((status, text)) => {
            let is_ours = status == 200 || text.contains("\"code\":");
            if !is_ours {
                let what = format!("{address} answers {status}, and not as Stepwell does");
                checks.push(Check::bad("address", what, format!("It comes from {source}.")));
                return checks;
            }
            checks.push(Check::good("address", format!("{address}, from {source}")));
            checks.push(match status {
                200 => Check::good("key", format!("accepted, from {key_source}")),
                401 if has_key => Check::bad(
                    "key",
                    format!("refused; it comes from {key_source}"),
                    "Set STEPWELL_KEY, or `key` in a profile, to the key of this deployment.",
                ),
                401 => Check::bad("key", "it is missing", "Set STEPWELL_KEY, or `key` in a profile."),
                _ if text.contains("\"misconfigured\"") => Check::bad(
                    "key",
                    "the deployment refuses every request: its settings are invalid, or its key is missing or too short",
                    "openssl rand -hex 32 | npx wrangler secret put STEPWELL_KEY   (see docs/errors/misconfigured.md)",
                ),
                other => Check::bad("key", format!("the answer is {other}"), "Look into the Worker's log."),
            });
        }
    }
    checks
}

/// Whether a line of the configuration has a key in it.
fn sets_key(line: &str) -> bool {
    line.trim_start().strip_prefix("key").is_some_and(|rest| rest.trim_start().starts_with('='))
}
