//! The configuration of one workerd process, and its text in Cap'n Proto.
//!
//! Owns names, bindings and modules; the process owns the port and the folder. Every process has a disk
//! service for its objects and a network service that may reach loopback, which production must not.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The compatibility date that every Worker of the tests runs with.
pub const COMPATIBILITY_DATE: &str = "2026-04-01";

/// The host name by which two workerd processes agree to speak Cap'n Proto instead of HTTP.
const CAPNP_HOST: &str = "capnp.internal";

/// What one workerd process runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Workers that a socket leads to, the main one first.
    served: Vec<String>,
    workers: Vec<Worker>,
    externals: Vec<(String, String)>,
    experimental: bool,
    heap_mib: Option<u32>,
}

/// One Worker: its modules and its bindings.
#[derive(Clone, Debug)]
pub struct Worker {
    name: String,
    code: Code,
    flags: Vec<String>,
    bindings: Vec<(String, Binding)>,
    classes: Vec<String>,
}

#[derive(Clone, Debug)]
enum Code {
    Bundle(PathBuf),
    Inline(Vec<(String, String)>),
}

#[derive(Clone, Debug)]
enum Binding {
    Text(String),
    Json(String),
    Service(String),
    Entrypoint { service: String, class: String },
    Objects(String),
    ObjectsOf { class: String, service: String },
}

impl Config {
    /// A process whose HTTP socket leads to the Worker named `main`.
    pub fn serving(main: &str) -> Self {
        Self {
            served: vec![main.into()],
            workers: Vec::new(),
            externals: Vec::new(),
            experimental: false,
            heap_mib: None,
        }
    }

    /// Adds a socket that leads to another Worker of the process.
    #[must_use]
    pub fn also_serving(mut self, worker: &str) -> Self {
        self.served.push(worker.into());
        self
    }

    /// How many sockets it has.
    pub(crate) fn sockets(&self) -> usize {
        self.served.len()
    }

    /// Adds a Worker.
    #[must_use]
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// Adds a service that is the main Worker of another process, at `address`. Method calls and
    /// capabilities cross over.
    #[must_use]
    pub fn external(mut self, name: &str, address: &str) -> Self {
        self.externals.push((name.into(), address.into()));
        self
    }

    /// Leads the HTTP socket to another Worker.
    #[must_use]
    pub fn serving_instead(mut self, main: &str) -> Self {
        self.served[0] = main.into();
        self
    }

    /// Allows flags that workerd calls experimental.
    #[must_use]
    pub fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }

    /// Whether such flags are allowed.
    pub(crate) fn is_experimental(&self) -> bool {
        self.experimental
    }

    /// Bounds the heap of each isolate, as the platform does. workerd itself lets garbage lie for as long as there is
    /// memory.
    #[must_use]
    pub fn heap_mib(mut self, mib: u32) -> Self {
        self.heap_mib = Some(mib);
        self
    }

    /// Writes the configuration and the modules into `folder`; answers the path of the configuration.
    pub(crate) fn write(&self, folder: &Path, addresses: &[String]) -> Result<PathBuf> {
        let disk = folder.join("disk");
        fs::create_dir_all(&disk)?;
        for worker in &self.workers {
            worker.write_modules(&folder.join(&worker.name))?;
        }
        let path = folder.join("config.capnp");
        fs::write(&path, self.render(&disk, addresses)?)?;
        Ok(path)
    }

    fn render(&self, disk: &Path, addresses: &[String]) -> Result<String> {
        let mut text = String::from("using Workerd = import \"/workerd/workerd.capnp\";\n\n");
        text.push_str("const config :Workerd.Config = (\n  services = [\n");
        for worker in &self.workers {
            writeln!(text, "    (name = {}, worker = {}),", quote(&worker.name), worker.render()?)?;
        }
        for (name, address) in &self.externals {
            writeln!(
                text,
                "    (name = {}, external = (address = {}, http = (capnpConnectHost = {}))),",
                quote(name),
                quote(address),
                quote(CAPNP_HOST)
            )?;
        }
        writeln!(
            text,
            "    (name = \"disk\", disk = (path = {}, writable = true)),",
            quote(&disk.to_string_lossy())
        )?;
        // 'private' includes loopback, where the tests listen.
        text.push_str("    (name = \"internet\", network = (allow = [\"public\", \"private\"])),\n  ],\n");
        let mut flags: Vec<String> = Vec::new();
        if let Some(mib) = self.heap_mib {
            flags.push(format!("--max-old-space-size={mib}"));
            flags.push("--max-semi-space-size=2".to_owned());
        }
        // For profilers: `--perf-basic-prof` lets `perf` name what V8 has compiled.
        let more = std::env::var("STEPWELL_V8_FLAGS").unwrap_or_default();
        flags.extend(more.split_whitespace().map(str::to_owned));
        if !flags.is_empty() {
            let flags: Vec<_> = flags.iter().map(|flag| quote(flag)).collect();
            writeln!(text, "  v8Flags = [{}],", flags.join(", "))?;
        }
        text.push_str("  sockets = [\n");
        for (index, (worker, address)) in self.served.iter().zip(addresses).enumerate() {
            writeln!(
                text,
                "    (name = {}, address = {}, http = (capnpConnectHost = {}), service = {}),",
                quote(&format!("http-{index}")),
                quote(address),
                quote(CAPNP_HOST),
                quote(worker)
            )?;
        }
        text.push_str("  ],\n);\n");
        Ok(text)
    }
}

impl Worker {
    /// A Worker from a folder with `index.js` and `index_bg.wasm`, as `stepwell build` leaves it.
    pub fn bundle(name: &str, folder: &Path) -> Self {
        Self::new(name, Code::Bundle(folder.into()))
    }

    /// A Worker from JavaScript module texts, the main module first.
    pub fn inline<const N: usize>(name: &str, modules: [(&str, &str); N]) -> Self {
        let modules = modules.map(|(name, text)| (name.into(), text.into()));
        Self::new(name, Code::Inline(modules.into()))
    }

    /// Declares an object class that this Worker exports, with SQL storage on the process's disk, and
    /// binds its namespace. The class name is also the unique key, so it survives restarts.
    #[must_use]
    pub fn durable_object(mut self, binding: &str, class: &str) -> Self {
        self.classes.push(class.into());
        self.bind(binding, Binding::Objects(class.into()))
    }

    /// Binds the namespace of an object class that another Worker of the process has.
    #[must_use]
    pub fn durable_object_of(self, binding: &str, class: &str, worker: &str) -> Self {
        self.bind(binding, Binding::ObjectsOf { class: class.into(), service: worker.into() })
    }

    /// Binds a text: a variable or a secret, which are the same to workerd.
    #[must_use]
    pub fn text(self, binding: &str, value: &str) -> Self {
        self.bind(binding, Binding::Text(value.into()))
    }

    /// Binds a JSON value, as the platform does with a Worker's version.
    #[must_use]
    pub fn json(self, binding: &str, value: &str) -> Self {
        self.bind(binding, Binding::Json(value.into()))
    }

    /// Binds another service of the process, or an external one.
    #[must_use]
    pub fn service(self, binding: &str, service: &str) -> Self {
        self.bind(binding, Binding::Service(service.into()))
    }

    /// Binds a named entrypoint of another service of the process.
    #[must_use]
    pub fn entrypoint(self, binding: &str, service: &str, class: &str) -> Self {
        self.bind(binding, Binding::Entrypoint { service: service.into(), class: class.into() })
    }

    /// Adds a compatibility flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.into());
        self
    }

    fn new(name: &str, code: Code) -> Self {
        Self { name: name.into(), code, flags: Vec::new(), bindings: Vec::new(), classes: Vec::new() }
    }

    fn bind(mut self, name: &str, binding: Binding) -> Self {
        self.bindings.push((name.into(), binding));
        self
    }

    // `embed` in a configuration takes no absolute paths, so the modules lie beside it.
    fn write_modules(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        match &self.code {
            Code::Bundle(bundle) => {
                for file in ["index.js", "index_bg.wasm"] {
                    let source = bundle.join(file);
                    fs::copy(&source, folder.join(file))
                        .with_context(|| format!("copying {}", source.display()))?;
                }
            }
            Code::Inline(modules) => {
                for (name, text) in modules {
                    fs::write(folder.join(name), text)?;
                }
            }
        }
        Ok(())
    }

    fn render(&self) -> Result<String> {
        let mut text = format!(
            "(\n      compatibilityDate = {},\n      globalOutbound = \"internet\",\n",
            quote(COMPATIBILITY_DATE)
        );
        let flags: Vec<String> = self.flags.iter().map(|flag| quote(flag)).collect();
        writeln!(text, "      compatibilityFlags = [{}],", flags.join(", "))?;
        text.push_str("      modules = [\n");
        for (name, kind) in self.modules() {
            let file = quote(&format!("{}/{name}", self.name));
            writeln!(text, "        (name = {}, {kind} = embed {file}),", quote(&name))?;
        }
        text.push_str("      ],\n");
        if !self.classes.is_empty() {
            text.push_str("      durableObjectStorage = (localDisk = \"disk\"),\n");
            text.push_str("      durableObjectNamespaces = [\n");
            for class in &self.classes {
                let class = quote(class);
                writeln!(text, "        (className = {class}, uniqueKey = {class}, enableSql = true),")?;
            }
            text.push_str("      ],\n");
        }
        text.push_str("      bindings = [\n");
        for (name, binding) in &self.bindings {
            let (kind, value) = match binding {
                Binding::Text(value) => ("text", quote(value)),
                Binding::Json(value) => ("json", quote(value)),
                Binding::Service(value) => ("service", quote(value)),
                Binding::Entrypoint { service, class } => {
                    ("service", format!("(name = {}, entrypoint = {})", quote(service), quote(class)))
                }
                Binding::Objects(value) => ("durableObjectNamespace", quote(value)),
                Binding::ObjectsOf { class, service } => (
                    "durableObjectNamespace",
                    format!("(className = {}, serviceName = {})", quote(class), quote(service)),
                ),
            };
            writeln!(text, "        (name = {}, {kind} = {value}),", quote(name))?;
        }
        text.push_str("      ],\n    )");
        Ok(text)
    }

    fn modules(&self) -> Vec<(String, &'static str)> {
        match &self.code {
            Code::Bundle(_) => vec![("index.js".into(), "esModule"), ("index_bg.wasm".into(), "wasm")],
            Code::Inline(modules) => modules.iter().map(|(name, _)| (name.clone(), "esModule")).collect(),
        }
    }
}

/// A Cap'n Proto text literal; its escapes are those of C.
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
