//! A project served on this machine: its settings, and the life of the runtime.
//!
//! Plain workerd serves a project, unless the project declares KV, R2, D1 or queues: those are Miniflare's. Both keep
//! the runs in the same place, so a project can begin with the one and go on with the other.
//!
//! Only the processes that were started here are ever ended, and they end with this one, however that ends.

mod exports;
mod miniflare;
mod workerd;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    thread,
    time::Duration,
};

use stepwell_protocol::wait_token::URL_VARIABLE;

use crate::{
    building::MODULES,
    config::Key,
    failure::{Failure, Result},
    local::{self, APP_KEY_VARIABLE, KEY_VARIABLE},
    lock::Lock,
    private,
    project::{Project, Worker},
    tools, variables,
};

/// A runtime listens within a second or two; a machine under load may need much longer.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Tells the engine that it runs on a developer's machine: only requests for a loopback host are answered.
const DEVELOPMENT: (&str, &str) = ("STEPWELL_DEV", "1");

/// Where and how a project is served.
#[derive(Debug)]
pub struct Serving {
    /// The project.
    pub project: Project,
    /// The port on 127.0.0.1.
    pub port: u16,
    /// What every request has to bring.
    pub key: Key,
    /// Keeps every other `dev` away from the data.
    pub lock: Lock,
    /// The variables of each Worker's `.dev.vars`, by the Worker's folder.
    variables: BTreeMap<PathBuf, Vec<(String, String)>>,
    /// What engine and app share, if they are two Workers.
    app_key: Option<Key>,
    runtime: Runtime,
}

/// What serves.
#[derive(Debug)]
enum Runtime {
    Workerd { workerd: PathBuf },
    Miniflare { workerd: PathBuf, node: PathBuf, miniflare: PathBuf },
}

/// A running runtime.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Serving {
    /// Reads what the project is to be served with.
    pub fn new(project: Project, port: u16, key: Key, lock: Lock) -> Result<Self> {
        let (runtime, variables) = (Runtime::of(&project)?, variables_of(&project)?);
        let app_key = app_key_of(&project)?;
        Ok(Self { project, port, key, lock, variables, app_key, runtime })
    }

    /// Reads the project's configuration and variables again. If they make no sense, the old ones stay.
    pub fn reload(&mut self) -> Result {
        let project = Project::at(&self.project.root)?;
        let (runtime, variables) = (Runtime::of(&project)?, variables_of(&project)?);
        self.app_key = app_key_of(&project)?;
        (self.project, self.runtime, self.variables) = (project, runtime, variables);
        Ok(())
    }

    /// Such as `http://127.0.0.1:8787`.
    pub fn address(&self) -> String {
        address(self.port)
    }

    /// Where the dashboard is served, if the project has it.
    pub fn dashboard(&self) -> Option<String> {
        self.dashboard_files().map(|_| format!("{}/dash/", self.address()))
    }

    /// The folder with the dashboard's files. The configuration of a runtime is text.
    fn dashboard_files(&self) -> Option<String> {
        tools::dashboard(&self.project.front).and_then(|folder| folder.to_str().map(str::to_owned))
    }

    /// The runtime's name.
    pub fn runtime(&self) -> &'static str {
        match self.runtime {
            Runtime::Workerd { .. } => "workerd",
            Runtime::Miniflare { .. } => "Miniflare",
        }
    }

    /// Takes over the bundles that were just built: what a later build leaves half done does not matter then.
    pub fn adopt(&self) -> Result {
        private::create_folder(&self.folder())
            .map_err(|error| Failure::local(format!("{}: {error}", self.folder().display())))?;
        self.check_engine(&self.project.front.bundle().join(MODULES[0]))?;
        for (name, worker) in self.project.named() {
            let folder = self.bundle(name);
            private::create_folder(&folder)
                .map_err(|error| Failure::local(format!("{}: {error}", folder.display())))?;
            for module in MODULES {
                let built = worker.bundle().join(module);
                fs::copy(&built, folder.join(module)).map_err(|error| {
                    let next = if worker.is_prebuilt() {
                        tools::INSTALL
                    } else {
                        "See what the build wrote above: `stepwell build` makes it."
                    };
                    Failure::local(format!("there is no {}: {error}", built.display())).next(next)
                })?;
            }
        }
        Ok(())
    }

    /// Starts the runtime with the bundle that was taken over last.
    pub fn start(&self) -> Result<Server> {
        for folder in [self.folder(), self.objects()] {
            private::create_folder(&folder)
                .map_err(|error| Failure::local(format!("{}: {error}", folder.display())))?;
        }
        let command = match &self.runtime {
            Runtime::Workerd { workerd } => self.workerd(workerd)?,
            Runtime::Miniflare { workerd, node, miniflare } => self.miniflare(workerd, node, miniflare)?,
        };
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Result<Server> {
        let mut child = command
            // The key goes by the environment: one that a person has set is not written to a file.
            .env(KEY_VARIABLE, self.key.secret())
            .stdin(self.lock.share()?)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .map_err(|error| Failure::local(format!("{} cannot be started: {error}", self.runtime())))?;
        let listening = child.stdout.take().map(listens);
        let server = Server { child };
        match listening.map(|listening| listening.recv_timeout(START_TIMEOUT)) {
            Some(Ok(())) => Ok(server),
            Some(Err(_)) | None => {
                Err(Failure::local(format!("{} does not serve {}", self.runtime(), self.address()))
                    .next("See what it wrote above. Does something else use the port? --port takes another."))
            }
        }
    }

    /// The texts that a Worker is bound to: the variables of `wrangler.toml`, over them those of `.dev.vars`, and
    /// over all of them ours. The deployment's key is not among them: only the engine gets it.
    fn texts(&self, worker: &Worker) -> BTreeMap<String, String> {
        let vars = worker.wrangler.vars.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), text)
        });
        let mut texts: BTreeMap<_, _> = vars.collect();
        texts.extend(self.variables.get(&worker.folder).into_iter().flatten().cloned());
        // Links lead to this server, wherever those of the deployment do.
        texts.insert(URL_VARIABLE.to_owned(), self.address());
        texts.remove(KEY_VARIABLE);
        let (name, value) = DEVELOPMENT;
        texts.insert(name.to_owned(), value.to_owned());
        if let Some(key) = &self.app_key {
            texts.insert(APP_KEY_VARIABLE.to_owned(), key.secret().to_owned());
        }
        texts
    }

    /// The services of this project that a Worker is bound to: the name of each binding, and of the Worker.
    fn services<'a>(&'a self, worker: &'a Worker) -> impl Iterator<Item = (&'a str, &'a str)> {
        let app = self.project.app.as_ref().map(|app| app.wrangler.name.as_str());
        let services = worker.wrangler.services.iter();
        services
            .filter(move |service| Some(service.service.as_str()) == app)
            .map(|service| (service.binding.as_str(), service.service.as_str()))
    }

    /// Where the bundles and the runtime's configuration are.
    fn folder(&self) -> PathBuf {
        self.project.data().join("worker")
    }

    /// Where the bundle of a Worker is.
    fn bundle(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Where everything is that has to survive. Wrangler's `--persist-to .stepwell` means the same folder.
    fn persisted(&self) -> PathBuf {
        self.project.data().join("v3")
    }

    /// Where the objects are, and with them all runs.
    fn objects(&self) -> PathBuf {
        self.persisted().join("do")
    }

    /// Writes a file of the runtime's configuration. It has the values of secrets in it.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder().join(name);
        private::write(&path, text)
            .map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
        Ok(path)
    }
}

impl Runtime {
    fn of(project: &Project) -> Result<Self> {
        let workerd = tools::workerd(&project.root)?;
        if !project.workers().any(|worker| worker.wrangler.needs_miniflare()) {
            return Ok(Self::Workerd { workerd });
        }
        let (node, miniflare) = (tools::node(&project.root)?, tools::miniflare(&project.root)?);
        Ok(Self::Miniflare { workerd, node, miniflare })
    }
}

fn variables_of(project: &Project) -> Result<BTreeMap<PathBuf, Vec<(String, String)>>> {
    project.workers().map(|worker| Ok((worker.folder.clone(), variables::read(&worker.folder)?))).collect()
}

fn app_key_of(project: &Project) -> Result<Option<Key>> {
    project.app.as_ref().map(|_| local::app_key(&project.data())).transpose()
}

impl Server {
    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its rows are durable before it answers, so a kill loses nothing. The whole group: Miniflare's workerd would
        // outlive it.
        kill_group(&self.child, Kill::AtOnce);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address that a port stands for.
pub fn address(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A command that ends when this process does, even if that is killed. In a group of its own, so that Ctrl-C
/// reaches it through us.
pub fn guarded(program: &Path, how: Kill) -> Result<Command> {
    let mut command = if cfg!(target_os = "linux") {
        let mut command = Command::new(own_program()?);
        command.args(how.guard()).arg(program);
        command
    } else {
        Command::new(program)
    };
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
    }
    Ok(command)
}

/// This very program.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Failure::local(format!("this program cannot be found: {error}")))
}

/// How a group of processes is ended.
#[derive(Clone, Copy, Debug)]
pub enum Kill {
    /// They may tidy up first.
    Gently,
    /// At once.
    AtOnce,
}

impl Kill {
    /// The arguments that make this program a guard.
    fn guard(self) -> &'static [&'static str] {
        match self {
            Self::Gently => &["guard"],
            Self::AtOnce => &["guard", "--at-once"],
        }
    }
}

/// Ends a process that [`guarded`] made, with all that it has started.
pub fn kill_group(child: &Child, how: Kill) {
    #[cfg(unix)]
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(pid) = rustix::process::Pid::from_raw(pid)
    {
        use rustix::process::Signal;
        let signal = match how {
            Kill::Gently => Signal::TERM,
            Kill::AtOnce => Signal::KILL,
        };
        // They may have ended by themselves.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
    #[cfg(not(unix))]
    let _ = (child, how);
}

/// Tells when a runtime listens. Nothing is told when it ends before.
fn listens(output: ChildStdout) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            if line.starts_with(r#"{"event":"listen""#) {
                // Nobody waits any more when the start timed out.
                let _ = sender.send(());
            } else {
                anstream::eprintln!("{line}");
            }
        }
    });
    receiver
}
