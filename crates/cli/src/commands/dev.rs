//! `stepwell dev`: builds a project, serves it, and builds it again whenever a file changes.

use std::{
    env,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::dashboard::Opened;
use crate::{
    Global, browser, changes,
    client::Client,
    config::{Key, Target},
    dashboard,
    failure::{Failure, Result},
    first,
    local::{self, KEY_VARIABLE},
    lock::Lock,
    private,
    project::{Project, Worker},
    serving::{self, Kill, Server, Serving, guarded, kill_group, own_program},
    sources::{Change, Sources},
    tools, variables, words,
};

/// How often it looks whether something is to be done.
const TICK: Duration = Duration::from_millis(100);

/// How often it looks whether a file has changed.
const LOOK: Duration = Duration::from_millis(500);

/// How long a runtime has to live for those that died before it to be forgotten.
const HEALTHY: Duration = Duration::from_secs(5);

/// How many may die in a row: people kill one to see that nothing is lost, but one that dies by itself does so again.
const DEATHS_MAX: u32 = 5;

/// How long the port may take to become free.
const PORT_PATIENCE: Duration = Duration::from_secs(1);

/// What it takes.
#[derive(Debug, Args)]
pub struct Dev {
    /// The port on 127.0.0.1.
    #[arg(long, default_value_t = 8787)]
    port: u16,
    /// Build in release mode: slower to build, faster to run.
    #[arg(long)]
    release: bool,
    /// Another folder to watch, such as that of a local dependency.
    #[arg(long = "watch", value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Do not rebuild when a file changes.
    #[arg(long)]
    once: bool,
    /// Open the dashboard in your browser.
    #[arg(long)]
    open: bool,
    /// Further arguments for cargo.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

impl Dev {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let project = Project::find()?;
        tools::check_wasm_target()?;
        let is_there = tools::workerd(&project.root).is_ok() && tools::check_assets(&project.front).is_ok();
        if tools::install(&project.root, is_there)? {
            say(global, "npm has installed what package.json names");
        }
        // It is served all the same.
        if let Err(failure) = tools::check_assets(&project.front) {
            failure.report(global.json);
        }
        let data = project.data();
        private::create_folder(&data)
            .map_err(|error| Failure::local(format!("{}: {error}", data.display())))?;
        // Before the port: a second `dev` on another port would destroy the data of the first.
        let lock = Lock::take(&data, &serving::address(self.port))?;
        check_port(self.port)?;
        let key = match given_key(global) {
            Some(key) => key,
            None => local::key(&project.root, &data)?,
        };
        let serving = Serving::new(project, self.port, key, lock)?;
        warn(global, &serving.project);
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|error| Failure::local(format!("signals cannot be taken: {error}")))?;
        }
        let mut session = Session { dev: &self, global, serving, stop, has_told: false, opened: None };
        session.serve()
    }
}

/// From its first build to Ctrl-C.
struct Session<'a> {
    dev: &'a Dev,
    global: &'a Global,
    serving: Serving,
    stop: Arc<AtomicBool>,
    /// Whether it was said what to type first.
    has_told: bool,
    /// The dashboard that was opened.
    opened: Option<Opened>,
}

impl Session<'_> {
    fn serve(&mut self) -> Result {
        let mut seen = self.sources();
        let mut server = None;
        match self.build() {
            Built::Well => server = Some(self.start()?),
            Built::Stopped => {
                self.goodbye(None);
                return Ok(());
            }
            Built::Badly(failure) if self.dev.once => return Err(failure),
            Built::Badly(failure) => self.complain(&failure),
        }
        let (mut started, mut looked, mut deaths) = (Instant::now(), Instant::now(), 0);
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            if let Some(end) = server.as_mut().and_then(Server::has_ended) {
                self.pause(true);
                drop(server.take());
                let runtime = self.serving.runtime();
                deaths = if started.elapsed() < HEALTHY { deaths + 1 } else { 1 };
                if deaths > DEATHS_MAX {
                    return Err(Failure::local(format!("{runtime} has ended: {end}"))
                        .next("See what it wrote above."));
                }
                say(self.global, &format!("{runtime} has ended ({end}); it is started again"));
                (server, started) = (Some(self.start()?), Instant::now());
            }
            if self.opened.as_ref().is_some_and(Opened::is_over) {
                self.opened = None;
                let page = self.serving.dashboard().unwrap_or_default();
                say(
                    self.global,
                    &format!("the page is signed out; sign in at {page} with the key of this server"),
                );
            }
            if self.dev.once || looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            let now = self.sources();
            if let Some(change) = now.since(&seen) {
                self.take_up(&change, &mut server);
                started = Instant::now();
            }
            seen = now;
        }
        self.goodbye(server);
        Ok(())
    }

    /// Serves what has changed. Whatever is wrong with it, the last good state goes on.
    fn take_up(&mut self, change: &Change, server: &mut Option<Server>) {
        say(self.global, &format!("{} has changed", change.file));
        if let Err(failure) = self.serving.reload() {
            return self.complain(&failure);
        }
        if change.is_built || server.is_none() {
            match self.build() {
                Built::Well => {}
                Built::Stopped => return,
                Built::Badly(failure) => return self.complain(&failure),
            }
        }
        // The port has to be free before another can listen there.
        self.pause(true);
        drop(server.take());
        match self.start() {
            Ok(started) => *server = Some(started),
            Err(failure) => self.complain(&failure),
        }
    }

    /// The page that was opened asks nobody while the port is free for somebody else.
    fn pause(&self, is_paused: bool) {
        if let Some(opened) = &self.opened {
            opened.pause(is_paused);
        }
    }

    fn start(&mut self) -> Result<Server> {
        let server = self.serving.start()?;
        self.pause(false);
        let target = Target::of_dev(self.serving.address(), Some(self.serving.key.clone()));
        let client = Client::new(target.clone());
        self.sync(&client);
        let address = self.serving.address();
        // Told once: whoever saves a file knows it by then.
        let is_first = !std::mem::replace(&mut self.has_told, true);
        let next = is_first.then(|| first::command(&client, &self.serving.project.root)).flatten();
        if is_first && self.dev.open {
            self.open_dashboard(&target);
        }
        let dashboard = self.serving.dashboard();
        let link = self.opened.as_ref().map(|opened| &opened.link).filter(|_| is_first);
        if self.global.json {
            let ready = json!({
                "event": "ready", "address": address, "dashboard": dashboard, "link": link, "next": next,
            });
            anstream::println!("{ready}");
            return Ok(server);
        }
        let (green, bold, dim) =
            (AnsiColor::Green.on_default().bold(), Style::new().bold(), Style::new().dimmed());
        anstream::println!("{green}ready:{green:#} {bold}{address}{bold:#}; data in .stepwell/");
        if let Some(dashboard) = dashboard {
            anstream::println!(
                "       dashboard: {bold}{dashboard}{bold:#}; sign in with the key of this server"
            );
        }
        if let Some(link) = link {
            anstream::println!("       signed in: {bold}{link}{bold:#}; this link works once");
        }
        if let Some(next) = next {
            anstream::println!("next:  in another terminal, in this folder: {bold}{next}{bold:#}");
        }
        if given_key(self.global).is_some() {
            anstream::println!("       It takes the key that you have set. Ctrl-C ends it; the data stays.");
            return Ok(server);
        }
        let key = self.serving.key.secret();
        anstream::println!("       Commands in this folder find it by themselves. Elsewhere, first run:");
        anstream::println!("       {dim}export STEPWELL_ADDRESS={address} {KEY_VARIABLE}={key}{dim:#}");
        anstream::println!("       Ctrl-C ends it; the data stays.");
        Ok(server)
    }

    /// Opens the dashboard in a browser that is signed in, or else its page.
    fn open_dashboard(&mut self, target: &Target) {
        let Some(page) = self.serving.dashboard() else {
            return say(self.global, "the project has no dashboard: run `npm install @stepwell/dashboard`");
        };
        // The same port each time, if it is free: the browser keeps filters and colours for an address.
        let port = self.dev.port.wrapping_add(1);
        let opened = dashboard::find(None).and_then(|files| {
            Opened::new(port, files.clone(), target).or_else(|_| Opened::new(0, files, target))
        });
        match opened {
            Ok(opened) => {
                browser::open_secret(&opened.link, Some(self.serving.project.data()));
                self.opened = Some(opened);
            }
            Err(failure) => {
                failure.report(self.global.json);
                browser::open(&page);
            }
        }
    }

    /// Lets the engine read what the app declares, and says what has changed.
    fn sync(&self, client: &Client) {
        match changes::sync(client) {
            Ok(plan) => {
                for line in changes::lines(&plan.value) {
                    say(self.global, &anstream::adapter::strip_str(&line).to_string());
                }
            }
            // It is served all the same.
            Err(failure) => {
                failure.report(self.global.json);
            }
        }
    }

    /// Builds all Workers, and takes over what came out.
    fn build(&self) -> Built {
        for worker in self.serving.project.workers().filter(|worker| !worker.is_prebuilt()) {
            match self.build_worker(worker) {
                Built::Well => {}
                other @ (Built::Badly(_) | Built::Stopped) => return other,
            }
        }
        self.serving.adopt().map_or_else(Built::Badly, |()| Built::Well)
    }

    /// Builds, and lets nobody wait for a build that nobody wants any more.
    fn build_worker(&self, worker: &Worker) -> Built {
        let began = Instant::now();
        say(self.global, &format!("building {}", worker.wrangler.name));
        let mut child = match self.build_command(worker) {
            Ok(child) => child,
            Err(failure) => return Built::Badly(failure),
        };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                end_group(&mut child);
                return Built::Stopped;
            }
            match child.try_wait() {
                Ok(None) => thread::sleep(TICK),
                Ok(Some(status)) if status.success() => {
                    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    say(self.global, &format!("built in {}", words::length(ms)));
                    return Built::Well;
                }
                Ok(Some(_)) => {
                    return Built::Badly(
                        Failure::local("the build has failed").next("See what it wrote above."),
                    );
                }
                Err(error) => return Built::Badly(Failure::local(format!("the build was lost: {error}"))),
            }
        }
    }

    fn build_command(&self, worker: &Worker) -> Result<Child> {
        let mut command = match worker.wrangler.own_build() {
            Some(own) => {
                let (shell, option) = if cfg!(windows) { ("cmd", "/C") } else { ("/bin/sh", "-c") };
                let mut command = guarded(Path::new(shell), Kill::Gently)?;
                command.args([option, own]);
                command
            }
            None => {
                let mut command = guarded(&own_program()?, Kill::Gently)?;
                command.arg("build").args((!self.dev.release).then_some("--dev"));
                command.arg("--").args(&self.dev.arguments);
                command
            }
        };
        command.current_dir(&worker.folder).stdin(Stdio::null());
        command.envs(tools::path_for_builds(&worker.folder).map(|path| ("PATH", path)));
        if self.global.json {
            command.stdout(Stdio::null());
        }
        command.spawn().map_err(|error| Failure::local(format!("the build cannot be started: {error}")))
    }

    fn complain(&self, failure: &Failure) {
        failure.report(self.global.json);
        say(self.global, "waiting for a change");
    }

    fn goodbye(&mut self, server: Option<Server>) {
        if let Some(opened) = self.opened.take().filter(|_| server.is_some()) {
            opened.end();
        }
        drop(server);
        say(self.global, "ended; the data stays in .stepwell/");
    }

    /// All files that matter, as they are.
    fn sources(&self) -> Sources {
        Sources::of(&self.serving.project.root, &self.dev.folders)
    }
}

/// How a build came out.
enum Built {
    Well,
    Badly(Failure),
    /// The person wants to stop.
    Stopped,
}

/// The key that a person has named for this once.
fn given_key(global: &Global) -> Option<Key> {
    let variable = || env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()).map(Key::from);
    global.key.clone().or_else(variable)
}

/// Says what a person may not expect.
fn warn(global: &Global, project: &Project) {
    for worker in project.workers() {
        if !worker.not_served.is_empty() {
            let names = worker.not_served.join(", ");
            say(
                global,
                &format!("{names}: only on Cloudflare; `npx wrangler dev` has stand-ins for some of them"),
            );
        }
        let file = worker.folder.join(variables::FILE);
        if private::is_open_to_others(&file) {
            let file = file.display();
            say(global, &format!("other users of this machine can read {file}: run `chmod 600 {file}`"));
        }
    }
}

fn check_port(port: u16) -> Result {
    let began = Instant::now();
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(()),
            // The runtime of a `dev` that was killed may be on its way out.
            Err(_) if began.elapsed() < PORT_PATIENCE => thread::sleep(TICK),
            Err(error) => {
                return Err(Failure::local(format!("127.0.0.1:{port} cannot be listened on: {error}"))
                    .next("Another program uses this port. Stop it, or take another port with --port."));
            }
        }
    }
}

/// Ends a build with all that it has started: cargo and its compilers.
fn end_group(child: &mut Child) {
    kill_group(child, Kill::Gently);
    #[cfg(not(unix))]
    let _ = child.kill();
    let _ = child.wait();
}

fn say(global: &Global, text: &str) {
    if global.json {
        anstream::println!("{}", json!({ "event": "note", "text": text }));
    } else {
        let dim = Style::new().dimmed();
        anstream::eprintln!("{dim}dev:{dim:#} {text}");
    }
}
