//! A project: a crate with workflows, and the configuration that Cloudflare's tools read too.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::failure::{Failure, Result};

/// What a Worker may be bound to that only Cloudflare and its own tools have.
const NOT_SERVED: &[&str] = &[
    "ai",
    "analytics_engine_datasets",
    "browser",
    "d1_databases",
    "hyperdrive",
    "kv_namespaces",
    "queues",
    "r2_buckets",
    "send_email",
    "services",
    "vectorize",
    "workflows",
];

/// A project.
#[derive(Debug)]
pub struct Project {
    /// Its folder.
    pub root: PathBuf,
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

impl Project {
    /// The project of this folder, or of the nearest one above.
    pub fn find() -> Result<Self> {
        let here =
            env::current_dir().map_err(|error| Failure::local(format!("no folder to work in: {error}")))?;
        let root = here.ancestors().find(|folder| folder.join("wrangler.toml").is_file());
        let Some(root) = root else {
            return Err(Failure::local("there is no wrangler.toml in this folder or above it")
                .next("Go into a project, or make one with `stepwell new NAME`."));
        };
        Self::at(root)
    }

    /// The project of a folder.
    pub fn at(root: &Path) -> Result<Self> {
        let path = root.join("wrangler.toml");
        let wrong = |what: String| Failure::local(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
        let wrangler: Wrangler = table.clone().try_into().map_err(|error: toml::de::Error| {
            wrong(error.message().to_owned()).next("A Worker has at least `name` and `compatibility_date`.")
        })?;
        if !root.join("Cargo.toml").is_file() {
            return Err(Failure::local(format!("{} has no Cargo.toml", root.display()))
                .next("`stepwell new NAME` makes a project that has one."));
        }
        let not_served =
            NOT_SERVED.iter().filter(|name| table.contains_key(**name)).map(|&name| name.to_owned());
        Ok(Self { root: root.to_owned(), wrangler, not_served: not_served.collect() })
    }

    /// Where `stepwell dev` keeps its data.
    pub fn data(&self) -> PathBuf {
        self.root.join(".stepwell")
    }
}
