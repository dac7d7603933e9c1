//! `stepwell dev`: builds a project, serves it with workerd, and builds it again whenever a file changes.

use std::{
    collections::BTreeMap,
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    Global,
    config::{Key, LOCAL_KEY},
    failure::{Failure, Result},
    project::Project,
    tools,
    workerd::{Serving, Workerd, guarded},
};

/// How often it looks whether something is to be done.
const TICK: Duration = Duration::from_millis(100);

/// How often it looks whether a file has changed.
const LOOK: Duration = Duration::from_millis(500);

/// How long a workerd has to live for those that died before it to be forgotten.
const HEALTHY: Duration = Duration::from_secs(5);

/// How many may die in a row: people kill one to see that nothing is lost, but one that dies by itself does so again.
const DEATHS_MAX: u32 = 5;

/// How many files are looked at.
const FILES_MAX: usize = 20_000;

/// Folders without source code. Hidden ones have none either.
const NOT_SOURCE: &[&str] = &["target", "build", "node_modules"];

/// What it takes.
#[derive(Debug, Args)]
pub struct Dev {
    /// The port on 127.0.0.1.
    #[arg(long, default_value_t = 8787)]
    port: u16,
    /// Build as for a deployment: slower to build, faster to run.
    #[arg(long)]
    release: bool,
    /// Another folder whose changes lead to a build, such as that of a crate that the project depends on.
    #[arg(long = "watch", value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Do not build again when a file changes.
    #[arg(long)]
    once: bool,
    /// What else worker-build shall be told.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

impl Dev {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let project = Project::find()?;
        let worker_build = tools::worker_build()?;
        let serving = Serving {
            binary: tools::workerd(&project.root)?,
            address: format!("127.0.0.1:{}", self.port),
            key: key(global),
            variables: secrets(&project.root)?,
            project: &project,
        };
        check_port(self.port)?;
        if !project.not_served.is_empty() {
            let names = project.not_served.join(", ");
            say(global, &format!("{names}: only on Cloudflare; `npx wrangler dev` has stand-ins for them"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|error| Failure::local(format!("signals cannot be taken: {error}")))?;
        }
        let mut session = Session { dev: &self, global, serving, worker_build, stop };
        session.serve()
    }
}

/// From its first build to Ctrl-C.
struct Session<'a> {
    dev: &'a Dev,
    global: &'a Global,
    serving: Serving<'a>,
    worker_build: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Session<'_> {
    fn serve(&mut self) -> Result {
        let mut seen = self.sources();
        let mut workerd = None;
        match self.build() {
            Built::Well => workerd = Some(self.start()?),
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
            if let Some(end) = workerd.as_mut().and_then(Workerd::has_ended) {
                drop(workerd.take());
                deaths = if started.elapsed() < HEALTHY { deaths + 1 } else { 1 };
                if deaths > DEATHS_MAX {
                    return Err(
                        Failure::local(format!("workerd has ended: {end}")).next("See what it wrote above.")
                    );
                }
                say(self.global, &format!("workerd has ended ({end}); it is started again"));
                (workerd, started) = (Some(self.start()?), Instant::now());
            }
            if self.dev.once || looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            let now = self.sources();
            if now == seen {
                continue;
            }
            let changed = changed(&seen, &now);
            seen = now;
            say(self.global, &format!("{changed} has changed"));
            match self.build() {
                Built::Well => {
                    // The port has to be free before another can listen there.
                    drop(workerd.take());
                    (workerd, started) = (Some(self.start()?), Instant::now());
                }
                Built::Stopped => break,
                Built::Badly(failure) => self.complain(&failure),
            }
        }
        self.goodbye(workerd);
        Ok(())
    }

    fn start(&self) -> Result<Workerd> {
        let workerd = self.serving.start()?;
        let address = format!("http://{}", self.serving.address);
        if self.global.json {
            anstream::println!("{}", json!({ "event": "ready", "address": address }));
            return Ok(workerd);
        }
        let (green, bold) = (AnsiColor::Green.on_default().bold(), Style::new().bold());
        let key = if self.serving.key.secret() == LOCAL_KEY {
            format!("the key '{LOCAL_KEY}'")
        } else {
            "the key that you have set".to_owned()
        };
        anstream::println!("{green}ready:{green:#} {bold}{address}{bold:#} with {key}; data in .stepwell/");
        anstream::println!("       Ctrl-C ends it; the data stays");
        Ok(workerd)
    }

    /// Builds, and lets nobody wait for a build that nobody wants any more.
    fn build(&self) -> Built {
        let began = Instant::now();
        say(self.global, &format!("building {}", self.serving.project.wrangler.name));
        let mut child = match self.build_command() {
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
                    say(self.global, &format!("built in {} s", began.elapsed().as_secs()));
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

    fn build_command(&self) -> Result<Child> {
        let mut command = guarded(&self.worker_build)?;
        if self.dev.release {
            command.arg("--release");
        } else {
            command.args(["--dev", "--no-opt"]);
        }
        command.args(&self.dev.arguments).current_dir(&self.serving.project.root).stdin(Stdio::null());
        if self.global.json {
            command.stdout(Stdio::null());
        }
        command.spawn().map_err(|error| Failure::local(format!("worker-build cannot be started: {error}")))
    }

    fn complain(&self, failure: &Failure) {
        failure.report(self.global.json);
        say(self.global, "waiting for a change");
    }

    fn goodbye(&self, workerd: Option<Workerd>) {
        drop(workerd);
        say(self.global, "ended; the data stays in .stepwell/");
    }

    /// All files of the project that a build could depend on, and when they were changed.
    fn sources(&self) -> Sources {
        let mut sources = Sources::new();
        collect(&self.serving.project.root, false, &mut sources);
        for folder in &self.dev.folders {
            collect(folder, true, &mut sources);
        }
        sources
    }
}

/// How a build came out.
enum Built {
    Well,
    Badly(Failure),
    /// Somebody wants to stop.
    Stopped,
}

/// Files, with the time of their last change and their size.
type Sources = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

// Looking at times works on every file system, shared ones and those of containers too, and costs a few
// milliseconds for a project. Outside of `src` only what a build is sure to read counts: a log that somebody keeps
// in the project must not lead to a build that writes to it.
fn collect(folder: &Path, all: bool, sources: &mut Sources) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_hidden = name.to_string_lossy().starts_with('.') && name != ".dev.vars";
        if is_hidden || NOT_SOURCE.iter().any(|not| name == *not) || sources.len() >= FILES_MAX {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        let is_code = path.extension().is_some_and(|extension| extension == "rs" || extension == "toml");
        if metadata.is_dir() {
            collect(&path, all || name == "src", sources);
        } else if metadata.is_file() && (all || is_code || name == ".dev.vars") {
            sources.insert(path, (metadata.modified().ok(), metadata.len()));
        }
    }
}

/// The first file that differs, by its name.
fn changed(before: &Sources, now: &Sources) -> String {
    let is_new = now.iter().find(|(path, state)| before.get(*path) != Some(*state)).map(|(path, _)| path);
    let is_gone = || before.keys().find(|path| !now.contains_key(*path));
    let path = is_new.or_else(is_gone);
    path.and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What every request to it has to bring.
fn key(global: &Global) -> Key {
    let variable = || env::var("STEPWELL_KEY").ok().filter(|key| !key.is_empty()).map(Key::from);
    global.key.clone().or_else(variable).unwrap_or_else(|| Key::from(LOCAL_KEY.to_owned()))
}

/// The variables of `.dev.vars`, where wrangler too looks for secrets on this machine.
fn secrets(root: &Path) -> Result<Vec<(String, String)>> {
    let Ok(text) = fs::read_to_string(root.join(".dev.vars")) else { return Ok(Vec::new()) };
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let (name, value) = line
                .split_once('=')
                .ok_or_else(|| Failure::local(format!(".dev.vars, line {number}: expected NAME=value")))?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            Ok((name.trim().to_owned(), bare.unwrap_or(value).to_owned()))
        })
        .collect()
}

fn check_port(port: u16) -> Result {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::local(format!("127.0.0.1:{port} cannot be listened on: {error}"))
            .next("Is another `stepwell dev` at work? End it, or take another port with --port.")),
    }
}

/// Ends a build with all that it has started: cargo and its compilers.
fn end_group(child: &mut Child) {
    #[cfg(unix)]
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(pid) = rustix::process::Pid::from_raw(pid)
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::TERM);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_source_is_seen_and_one_of_a_build_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        let look = || {
            let mut sources = Sources::new();
            collect(folder.path(), false, &mut sources);
            sources
        };
        write("src/lib.rs", "one");
        let first = look();
        write("target/debug/thing", "built");
        write("build/index.js", "built");
        write(".stepwell/disk/cell", "data");
        write("Cargo.lock", "locked");
        write("dev.log", "written by the build itself");
        assert_eq!(look(), first);
        write("src/lib.rs", "another");
        assert_eq!(changed(&first, &look()), "lib.rs");
        let second = look();
        write("src/words.txt", "included");
        assert_eq!(changed(&second, &look()), "words.txt");
        fs::remove_file(folder.path().join("src/words.txt")).expect("it is there");
        fs::remove_file(folder.path().join("src/lib.rs")).expect("it is there");
        assert_eq!(changed(&second, &look()), "lib.rs");
    }

    #[test]
    fn secrets_are_read_as_wrangler_does() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(".dev.vars"), "# mine\nTOKEN=\"a b\"\n\nOTHER = x=y\n")
            .expect("written");
        let read = secrets(folder.path()).expect("they can be read");
        assert_eq!(read, [("TOKEN".into(), "a b".into()), ("OTHER".into(), "x=y".into())]);
        fs::write(folder.path().join(".dev.vars"), "nonsense\n").expect("written");
        assert!(secrets(folder.path()).is_err());
    }
}
