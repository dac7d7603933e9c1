//! `stepwell deploy`: puts a project on Cloudflare, with Cloudflare's own tool.

use std::{
    ffi::OsString,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anstyle::Style;
use clap::Args;
use serde_json::json;
use stepwell_protocol::manifest::Plan;

use crate::{
    Global, changes,
    client::{Answer, Client},
    config::Key,
    failure::{Exit, Failure, Result},
    local::{self, APP_KEY_VARIABLE, KEY_VARIABLE},
    project::{Project, Worker},
    tools,
};

/// Variables that a deployment must not have in its configuration file, and why.
const NEVER_PLAIN: [(&str, &str); 3] = [
    (
        KEY_VARIABLE,
        "everyone who reads the file has the key. Set it with `npx wrangler secret put STEPWELL_KEY`",
    ),
    (APP_KEY_VARIABLE, "everyone who reads the file has the key. `stepwell deploy` sets it as a secret"),
    ("STEPWELL_DEV", "it is for development servers: the engine would take any key"),
];

/// How often a deployment is asked that does not answer yet, and how long apart.
const SYNC_TRIES: u32 = 5;
const SYNC_PAUSE: Duration = Duration::from_secs(2);

/// What it takes.
#[derive(Debug, Args)]
pub struct Deploy {
    /// Build and check everything without deploying. Needs no account.
    #[arg(long)]
    dry_run: bool,
    /// The environment in wrangler.toml to deploy, such as staging or production.
    #[arg(long, value_name = "NAME")]
    env: Option<String>,
    /// Further arguments for wrangler.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

impl Deploy {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let project = Project::find()?;
        // wrangler would only say that a command has failed.
        tools::check_wasm_target()?;
        let is_there = tools::wrangler(&project.root).is_ok() && tools::check_assets(&project.front).is_ok();
        tools::install(&project.root, is_there)?;
        tools::check_assets(&project.front)?;
        let wrangler = Wrangler { tool: tools::wrangler(&project.root)?, env: self.environment() };
        for worker in project.workers() {
            check_variables(worker, self.env.as_deref())?;
        }
        for worker in project.workers() {
            self.deploy(global, &wrangler, worker)?;
        }
        let name = &project.front.wrangler.name;
        if self.dry_run {
            if global.json {
                anstream::println!("{}", json!({ "name": name, "dry_run": true }));
            } else {
                anstream::println!("{name} can be deployed. Nothing was deployed.");
            }
            return Ok(());
        }
        let key = set_secrets(&wrangler, &project)?;
        // The key is shown whatever becomes of the rest: it is shown this once.
        let synced = sync(global, &key);
        if global.json {
            let plan = synced.as_ref().ok().and_then(Option::as_ref).map(Answer::raw);
            let deployed = json!({ "name": name, "dry_run": false, "key": key.made(), "plan": plan });
            anstream::println!("{deployed}");
            return synced.map(drop);
        }
        let bold = Style::new().bold();
        anstream::println!("{name} is deployed.");
        match key {
            Secrets::Made(key) => {
                anstream::println!("{KEY_VARIABLE}={key}");
                anstream::eprintln!("This is its new key. It is shown only once: store it in a safe place.");
            }
            Secrets::There => {}
            Secrets::Unknown => anstream::eprintln!(
                "{bold}next:{bold:#} wrangler does not say which secrets the Worker has. If {KEY_VARIABLE} is not \
                 set, every request is refused: `openssl rand -hex 32 | npx wrangler secret put {KEY_VARIABLE}`."
            ),
        }
        tell(synced?.as_ref());
        anstream::eprintln!("{bold}next:{bold:#} stepwell doctor --address https://…");
        Ok(())
    }

    /// The arguments that name the environment, unless the person names one to wrangler itself. An empty name means
    /// none: wrangler wants it said when there are environments.
    fn environment(&self) -> Vec<OsString> {
        if self.arguments.iter().any(|argument| argument == "-e" || argument.starts_with("--env")) {
            return Vec::new();
        }
        vec!["--env".into(), self.env.clone().unwrap_or_default().into()]
    }

    fn deploy(&self, global: &Global, wrangler: &Wrangler, worker: &Worker) -> Result {
        let mut command = wrangler.command(worker, &["deploy"]);
        command.args(&self.arguments);
        if self.dry_run {
            command.args(["--dry-run", "--outdir", ".stepwell/deploy"]);
            // Nobody is asked anything, and nothing is sent.
            command.env("CI", "true").env("WRANGLER_SEND_METRICS", "false").stdin(Stdio::null());
        }
        if global.json {
            command.stdout(Stdio::null());
        }
        let status = command.status().map_err(|error| wrangler.not_started(&error))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::local(format!("wrangler has ended with {status}"))
            .next("See what it wrote above; `npx wrangler login` if it does not know who you are."))
    }
}

/// Refuses what would be unsafe, as far as the configuration tells.
fn check_variables(worker: &Worker, environment: Option<&str>) -> Result {
    let wrangler = &worker.wrangler;
    let vars = match environment {
        Some(name) => wrangler.env.get(name).map(|environment| &environment.vars),
        None => Some(&wrangler.vars),
    };
    for (name, why) in NEVER_PLAIN {
        if vars.is_some_and(|vars| vars.contains_key(name)) {
            let path = worker.folder.join("wrangler.toml");
            return Err(Failure::usage(format!("{} sets {name} as a variable: {why}", path.display()))
                .next(format!("Remove {name} from [vars].")));
        }
    }
    Ok(())
}

/// What became of the key.
enum Secrets {
    /// The deployment has one.
    There,
    /// It had none, and got this one.
    Made(String),
    /// wrangler does not say.
    Unknown,
}

impl Secrets {
    fn made(&self) -> Option<&str> {
        match self {
            Self::Made(key) => Some(key),
            Self::There | Self::Unknown => None,
        }
    }
}

/// Gives the deployment the secrets that it cannot do without and does not have.
fn set_secrets(wrangler: &Wrangler, project: &Project) -> Result<Secrets> {
    if let Some(app) = &project.app
        && let (Some(of_app), Some(of_engine)) = (wrangler.secrets(app), wrangler.secrets(&project.front))
    {
        let has = |names: &[String]| names.iter().any(|name| name == APP_KEY_VARIABLE);
        if !has(&of_app) || !has(&of_engine) {
            let key = local::random()?;
            // The app first: it has to know the key before the engine signs with it.
            wrangler.put(app, APP_KEY_VARIABLE, &key)?;
            wrangler.put(&project.front, APP_KEY_VARIABLE, &key)?;
            anstream::eprintln!("{APP_KEY_VARIABLE} is set to a new secret on both Workers.");
        }
    }
    let Some(names) = wrangler.secrets(&project.front) else { return Ok(Secrets::Unknown) };
    if names.iter().any(|name| name == KEY_VARIABLE) {
        return Ok(Secrets::There);
    }
    let key = local::random()?;
    wrangler.put(&project.front, KEY_VARIABLE, &key)?;
    Ok(Secrets::Made(key))
}

/// Lets the deployment read what its app declares, if it is known where it is and by which key.
fn sync(global: &Global, secrets: &Secrets) -> Result<Option<Answer<Plan>>> {
    if !global.names_a_deployment() {
        return Ok(None);
    }
    let mut target = global.target()?;
    target.key = target.key.or_else(|| secrets.made().map(|key| Key::from(key.to_owned())));
    if target.key.is_none() {
        return Ok(None);
    }
    let client = Client::new(target);
    let mut tries = 0;
    loop {
        tries += 1;
        match changes::sync(&client) {
            // A name that is new takes a moment to be known everywhere.
            Err(failure) if failure.exit == Exit::Unreachable && tries < SYNC_TRIES => {
                thread::sleep(SYNC_PAUSE);
            }
            synced => return synced.map(Some),
        }
    }
}

/// Says what the deploy has changed.
fn tell(synced: Option<&Answer<Plan>>) {
    let Some(plan) = synced else {
        anstream::eprintln!(
            "The engine reads what the app declares by itself, with the next start or within 15 minutes. To see here what \
             that changes, set STEPWELL_ADDRESS and STEPWELL_KEY."
        );
        return;
    };
    let lines = changes::lines(&plan.value);
    if lines.is_empty() {
        anstream::println!("The app declares the same as before.");
    }
    for line in lines {
        anstream::println!("{line}");
    }
}

/// Cloudflare's tool, and the environment that is meant.
struct Wrangler {
    tool: (PathBuf, Vec<OsString>),
    env: Vec<OsString>,
}

impl Wrangler {
    fn command(&self, worker: &Worker, arguments: &[&str]) -> Command {
        let (program, first) = &self.tool;
        let mut command = Command::new(program);
        command.args(first).args(arguments).args(&self.env).current_dir(&worker.folder);
        // wrangler runs the `[build]` command, which is this program.
        command.envs(tools::path_for_builds(&worker.folder).map(|path| ("PATH", path)));
        command
    }

    /// The names of a Worker's secrets; nothing, if wrangler does not say.
    fn secrets(&self, worker: &Worker) -> Option<Vec<String>> {
        tools::secrets(worker, &self.env)
    }

    /// Sets a secret. Its value goes through a pipe: others could see an argument.
    fn put(&self, worker: &Worker, name: &str, value: &str) -> Result {
        let mut command = self.command(worker, &["secret", "put", name]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = spawned.map_err(|error| self.not_started(&error))?;
        let written = child.stdin.take().map(|mut input| input.write_all(value.as_bytes()));
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        if status.success() && matches!(written, Some(Ok(()))) {
            return Ok(());
        }
        let what = format!("wrangler cannot set the secret {name} of {}", worker.wrangler.name);
        Err(Failure::local(what).next(format!("Set it yourself: npx wrangler secret put {name}")))
    }

    fn not_started(&self, error: &std::io::Error) -> Failure {
        Failure::local(format!("{} cannot be started: {error}", self.tool.0.display()))
    }
}
