//! One workerd that serves a project on this machine: its configuration and its life.
//!
//! Only the process that was started here is ever ended, and it ends with this one, however that ends.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::{
    config::Key,
    failure::{Failure, Result},
    project::Project,
};

/// workerd listens a fraction of a second after it was started; a machine under load may need much longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The files that worker-build leaves.
const MODULES: [&str; 2] = ["index.js", "index_bg.wasm"];

/// A running workerd.
#[derive(Debug)]
pub struct Workerd {
    child: Child,
}

/// Where and how a project is served.
#[derive(Debug)]
pub struct Serving<'a> {
    /// The project.
    pub project: &'a Project,
    /// The binary.
    pub binary: PathBuf,
    /// Such as `127.0.0.1:8787`.
    pub address: String,
    /// What every request has to bring.
    pub key: Key,
    /// Variables besides those of `wrangler.toml`, by their names.
    pub variables: Vec<(String, String)>,
}

impl Serving<'_> {
    /// Takes the bundle that was just built, and starts workerd with it.
    pub fn start(&self) -> Result<Workerd> {
        let data = self.project.data();
        let wrong = |error: std::io::Error| Failure::local(format!("{}: {error}", data.display()));
        fs::create_dir_all(data.join("disk")).map_err(wrong)?;
        fs::create_dir_all(data.join("worker")).map_err(wrong)?;
        for module in MODULES {
            let built = self.project.root.join("build").join(module);
            fs::copy(&built, data.join("worker").join(module)).map_err(|error| {
                Failure::local(format!("the build has left no {}: {error}", built.display()))
                    .next("Is `crate-type = [\"cdylib\", \"rlib\"]` in Cargo.toml?")
            })?;
        }
        let config = data.join("worker/config.capnp");
        fs::write(&config, self.render()).map_err(wrong)?;
        self.spawn(&config, &data)
    }

    fn spawn(&self, config: &Path, data: &Path) -> Result<Workerd> {
        let mut disk = std::ffi::OsString::from("--directory-path=disk=");
        disk.push(data.join("disk"));
        let mut command = guarded(&self.binary)?;
        let mut child = command
            .args(["serve", "--control-fd=1"])
            .arg(config)
            .arg(disk)
            // The key goes by the environment: a file or an argument could be read by others.
            .env("STEPWELL_KEY", self.key.secret())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Failure::local(format!("{} cannot be started: {error}", self.binary.display()))
            })?;
        let listening = child.stdout.take().map(listens);
        let workerd = Workerd { child };
        match listening.map(|listening| listening.recv_timeout(START_TIMEOUT)) {
            Some(Ok(())) => Ok(workerd),
            Some(Err(_)) | None => Err(Failure::local(format!("workerd does not serve {}", self.address))
                .next("See what it wrote above. Does something else use the port? --port takes another.")),
        }
    }

    /// The configuration, in the language of workerd.
    fn render(&self) -> String {
        let wrangler = &self.project.wrangler;
        let mut text = String::from("using Workerd = import \"/workerd/workerd.capnp\";\n\n");
        text.push_str(
            "const config :Workerd.Config = (\n  services = [\n    (name = \"main\", worker = .main),\n",
        );
        text.push_str("    (name = \"disk\", disk = (path = \"disk\", writable = true)),\n");
        // People's own servers are on this machine and beside it.
        text.push_str("    (name = \"internet\", network = (allow = [\"public\", \"private\"],");
        text.push_str(" tlsOptions = (trustBrowserCas = true))),\n  ],\n");
        let address = quote(&self.address);
        let _ = writeln!(
            text,
            "  sockets = [(name = \"http\", address = {address}, http = (), service = \"main\")],\n);\n"
        );
        text.push_str("const main :Workerd.Worker = (\n  modules = [\n");
        text.push_str("    (name = \"index.js\", esModule = embed \"index.js\"),\n");
        text.push_str("    (name = \"./index_bg.wasm\", wasm = embed \"index_bg.wasm\"),\n  ],\n");
        let _ = writeln!(text, "  compatibilityDate = {},", quote(&wrangler.compatibility_date));
        let flags: Vec<_> = wrangler.compatibility_flags.iter().map(|flag| quote(flag)).collect();
        let _ = writeln!(text, "  compatibilityFlags = [{}],", flags.join(", "));
        text.push_str("  durableObjectStorage = (localDisk = \"disk\"),\n  durableObjectNamespaces = [\n");
        for binding in &wrangler.durable_objects.bindings {
            let class = quote(&binding.class_name);
            let key = quote(&format!("{}-{}", wrangler.name, binding.class_name));
            let _ = writeln!(text, "    (className = {class}, uniqueKey = {key}, enableSql = true),");
        }
        text.push_str("  ],\n  bindings = [\n");
        for binding in &wrangler.durable_objects.bindings {
            let (name, class) = (quote(&binding.name), quote(&binding.class_name));
            let _ = writeln!(text, "    (name = {name}, durableObjectNamespace = {class}),");
        }
        for (name, value) in self.bound() {
            let _ = writeln!(text, "    (name = {}, text = {}),", quote(&name), quote(&value));
        }
        text.push_str("    (name = \"STEPWELL_KEY\", fromEnvironment = \"STEPWELL_KEY\"),\n  ],\n);\n");
        text
    }

    /// The variables: those of `wrangler.toml`, and over them the others.
    fn bound(&self) -> Vec<(String, String)> {
        let mut bound: std::collections::BTreeMap<String, String> = self
            .project
            .wrangler
            .vars
            .iter()
            .map(|(name, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (name.clone(), text)
            })
            .collect();
        bound.extend(self.variables.iter().cloned());
        bound.remove("STEPWELL_KEY");
        bound.insert("STEPWELL_DEV".into(), "1".into());
        bound.into_iter().collect()
    }
}

impl Workerd {
    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

impl Drop for Workerd {
    fn drop(&mut self) {
        // It may have ended by itself. Its rows are durable before it answers, so nothing is lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that ends when this process does, even if that is killed. In a group of its own, so that Ctrl-C
/// reaches it through us.
pub fn guarded(program: &Path) -> Result<Command> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::local(format!("this program cannot be found: {error}")))?;
    let mut command = if cfg!(target_os = "linux") {
        let mut command = Command::new(own);
        command.arg("guard").arg(program);
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

/// Tells when workerd listens. Nothing is told when it ends before.
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

/// A text literal of Cap'n Proto; its escapes are those of C.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
