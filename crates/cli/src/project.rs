//! A project: a crate with workflows, and the configuration that Cloudflare's tools read too.
//!
//! A project is one Worker, or two: then the engine is in the folder `engine`, as a crate of its own or built from an npm
//! package, and calls the app.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    failure::{Failure, Result},
    trust,
};

/// What a Worker may be bound to that only Cloudflare has.
const ONLY_ON_CLOUDFLARE: &[&str] =
    &["ai", "analytics_engine_datasets", "browser", "hyperdrive", "send_email", "vectorize", "workflows"];

/// The binding from which the engine serves the dashboard.
pub const ASSETS: &str = "ASSETS";

/// The folder of an engine that is a Worker of its own.
const ENGINE: &str = "engine";

/// A project.
#[derive(Debug)]
pub struct Project {
    /// Its folder.
    pub root: PathBuf,
    /// The Worker that answers requests: the engine, alone or with the app.
    pub front: Worker,
    /// The app, if that is a Worker of its own.
    pub app: Option<Worker>,
}

/// A Worker of a project.
#[derive(Debug)]
pub struct Worker {
    /// The folder of its crate.
    pub folder: PathBuf,
    /// What its `wrangler.toml` says.
    pub wrangler: Wrangler,
    /// The bindings that `stepwell dev` has nothing for.
    pub not_served: Vec<String>,
}

/// What of `wrangler.toml` matters here.
#[derive(Debug, Deserialize)]
pub struct Wrangler {
    /// The Worker's name.
    pub name: String,
    /// The module that the runtime begins with.
    pub main: Option<String>,
    /// The day from which the runtime's behaviour is taken.
    pub compatibility_date: String,
    /// Deviations from it.
    #[serde(default)]
    pub compatibility_flags: Vec<String>,
    /// Its variables.
    #[serde(default)]
    pub vars: BTreeMap<String, toml::Value>,
    /// Its classes of objects.
    #[serde(default)]
    pub durable_objects: DurableObjects,
    /// Its KV namespaces.
    #[serde(default)]
    pub kv_namespaces: Vec<KvNamespace>,
    /// Its R2 buckets.
    #[serde(default)]
    pub r2_buckets: Vec<R2Bucket>,
    /// Its D1 databases.
    #[serde(default)]
    pub d1_databases: Vec<D1Database>,
    /// Its queues.
    #[serde(default)]
    pub queues: Queues,
    /// The Workers that it calls.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Its files.
    #[serde(default)]
    pub assets: Assets,
    /// How its classes came about.
    #[serde(default)]
    pub migrations: Vec<Migration>,
    /// When it is called by the clock.
    #[serde(default)]
    pub triggers: Triggers,
    /// How it is built.
    #[serde(default)]
    pub build: BuildSection,
    /// Its environments.
    #[serde(default)]
    pub env: BTreeMap<String, Environment>,
}

/// The files of a Worker.
#[derive(Debug, Default, Deserialize)]
pub struct Assets {
    /// Where they are.
    pub directory: Option<String>,
    /// The name that they are bound to.
    pub binding: Option<String>,
}

/// A step in the history of a Worker's classes.
#[derive(Debug, Default, Deserialize)]
pub struct Migration {
    /// The classes that it makes.
    #[serde(default)]
    pub new_sqlite_classes: Vec<String>,
}

/// What calls a Worker without a request.
#[derive(Debug, Default, Deserialize)]
pub struct Triggers {
    /// The times, as cron writes them.
    #[serde(default)]
    pub crons: Vec<String>,
}

/// How a Worker is built.
#[derive(Debug, Default, Deserialize)]
pub struct BuildSection {
    /// What wrangler runs.
    pub command: Option<String>,
}

/// An environment: what it has instead of what stands at the top.
#[derive(Debug, Default, Deserialize)]
pub struct Environment {
    /// Its variables.
    #[serde(default)]
    pub vars: BTreeMap<String, toml::Value>,
}

/// The classes of objects of a Worker.
#[derive(Debug, Default, Deserialize)]
pub struct DurableObjects {
    /// Each with the name that it is bound to.
    #[serde(default)]
    pub bindings: Vec<ObjectBinding>,
}

/// A class of objects, and the name that it is bound to.
#[derive(Debug, Deserialize)]
pub struct ObjectBinding {
    /// The name.
    pub name: String,
    /// The class.
    pub class_name: String,
}

/// A KV namespace.
#[derive(Debug, Deserialize)]
pub struct KvNamespace {
    /// The name that it is bound to.
    pub binding: String,
    /// Its id on Cloudflare; a project that was never deployed has none.
    pub id: Option<String>,
}

/// An R2 bucket.
#[derive(Debug, Deserialize)]
pub struct R2Bucket {
    /// The name that it is bound to.
    pub binding: String,
    /// Its name on Cloudflare.
    pub bucket_name: Option<String>,
}

/// A D1 database.
#[derive(Debug, Deserialize)]
pub struct D1Database {
    /// The name that it is bound to.
    pub binding: String,
    /// Its id on Cloudflare; a project that was never deployed has none.
    pub database_id: Option<String>,
}

/// The queues that a Worker sends to and reads from.
#[derive(Debug, Default, Deserialize)]
pub struct Queues {
    /// Those that it sends to.
    #[serde(default)]
    pub producers: Vec<Producer>,
    /// Those that it reads from.
    #[serde(default)]
    pub consumers: Vec<Consumer>,
}

/// A queue that a Worker sends to.
#[derive(Debug, Deserialize)]
pub struct Producer {
    /// The name that it is bound to.
    pub binding: String,
    /// The queue.
    pub queue: String,
}

/// A queue that a Worker reads from.
#[derive(Debug, Deserialize)]
pub struct Consumer {
    /// The queue.
    pub queue: String,
    /// How many messages one call gets at the most.
    pub max_batch_size: Option<u32>,
    /// How many seconds a call waits for more of them.
    pub max_batch_timeout: Option<f64>,
    /// How often a message is delivered again.
    pub max_retries: Option<u32>,
    /// Where messages go that were delivered too often.
    pub dead_letter_queue: Option<String>,
}

/// Another Worker.
#[derive(Debug, Deserialize)]
pub struct Service {
    /// The name that it is bound to.
    pub binding: String,
    /// The Worker's name.
    pub service: String,
}

impl Wrangler {
    /// The command that builds it, unless that is `stepwell build`.
    pub fn own_build(&self) -> Option<&str> {
        let command = self.build.command.as_deref().map(str::trim).filter(|command| !command.is_empty())?;
        let ours = command.strip_prefix("npx ").unwrap_or(command).trim_start();
        (!ours.starts_with("stepwell build")).then_some(command)
    }

    /// Whether it declares something that plain workerd has not.
    pub fn needs_miniflare(&self) -> bool {
        let Self { kv_namespaces, r2_buckets, d1_databases, queues, .. } = self;
        let Queues { producers, consumers } = queues;
        !kv_namespaces.is_empty()
            || !r2_buckets.is_empty()
            || !d1_databases.is_empty()
            || !producers.is_empty()
            || !consumers.is_empty()
    }
}

impl Project {
    /// The folder of the project that a folder belongs to.
    pub fn root_of(folder: &Path) -> Option<&Path> {
        let is_project = |folder: &&Path| folder.join("wrangler.toml").is_file();
        let root = trust::ancestors(folder).find(is_project)?;
        let above = root.parent().filter(is_project).filter(|_| root.ends_with(ENGINE));
        Some(above.unwrap_or(root))
    }

    /// Where `stepwell dev` keeps the data of the project in this folder.
    pub fn data_of(root: &Path) -> PathBuf {
        root.join(".stepwell")
    }

    /// The project of this folder, or of the nearest one above.
    pub fn find() -> Result<Self> {
        let here =
            env::current_dir().map_err(|error| Failure::local(format!("no folder to work in: {error}")))?;
        let Some(root) = Self::root_of(&here) else {
            return Err(Failure::local("there is no wrangler.toml in this folder or above it")
                .next("Go into a project, or make one with `stepwell new NAME`."));
        };
        Self::at(root)
    }

    /// The project of a folder.
    pub fn at(root: &Path) -> Result<Self> {
        let (mut front, mut app, engine) = (Worker::at(root)?, None, root.join(ENGINE));
        if engine.join("wrangler.toml").is_file() {
            app = Some(std::mem::replace(&mut front, Worker::at(&engine)?));
        }
        let own = app.as_ref().map(|app| app.wrangler.name.as_str());
        let others = front.wrangler.services.iter().filter(|service| Some(service.service.as_str()) != own);
        let others: Vec<_> = others.map(|service| format!("the service {}", service.service)).collect();
        front.not_served.extend(others);
        Ok(Self { root: root.to_owned(), front, app })
    }

    /// Its Workers, in the order in which they are deployed: the engine binds to the app.
    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.app.iter().chain([&self.front])
    }

    /// Its Workers by the names that they have on this machine. The one that answers requests comes first.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Worker)> {
        [("main", &self.front)].into_iter().chain(self.app.iter().map(|app| ("app", app)))
    }

    /// Where `stepwell dev` keeps its data.
    pub fn data(&self) -> PathBuf {
        Self::data_of(&self.root)
    }
}

impl Worker {
    /// Whether an npm package brings it: there is nothing to build.
    pub fn is_prebuilt(&self) -> bool {
        let main = self.wrangler.main.as_deref().unwrap_or_default();
        self.wrangler.build.command.is_none() && main.split('/').any(|part| part == "node_modules")
    }

    /// Where its bundle is: what a build leaves, or what a package brings.
    pub fn bundle(&self) -> PathBuf {
        let main = self.wrangler.main.as_deref().filter(|_| self.is_prebuilt());
        let main = main.and_then(|main| Path::new(main).parent());
        self.folder.join(main.unwrap_or(Path::new("build")))
    }

    fn at(folder: &Path) -> Result<Self> {
        let path = folder.join("wrangler.toml");
        let wrong = |what: String| Failure::local(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
        let wrangler: Wrangler = table.clone().try_into().map_err(|error: toml::de::Error| {
            wrong(error.message().to_owned()).next("A Worker has at least `name` and `compatibility_date`.")
        })?;
        let not_served =
            ONLY_ON_CLOUDFLARE.iter().filter(|name| table.contains_key(**name)).map(|&name| name.to_owned());
        let worker = Self { folder: folder.to_owned(), wrangler, not_served: not_served.collect() };
        if !worker.is_prebuilt() && !folder.join("Cargo.toml").is_file() {
            return Err(Failure::local(format!("{} has no Cargo.toml", folder.display()))
                .next("`stepwell new NAME` makes a project that has one."));
        }
        Ok(worker)
    }
}
