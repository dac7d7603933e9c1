//! The project of this folder: its crate, its configuration, and what `stepwell dev` needs to serve it.

use std::{env, net::TcpListener, path::Path};

use super::{Check, State};
use crate::{
    building::bindings,
    failure::{Failure, Result},
    local::{APP_KEY_VARIABLE, KEY_VARIABLE},
    lock, private,
    project::{Project, Worker},
    tools, variables,
};

/// The engine's classes, each with the name that it is bound to.
const CLASSES: [(&str, &str); 2] = [("CELL", "Cell"), ("STATION", "Station")];

/// The port of `stepwell dev`, unless somebody says otherwise.
const PORT: u16 = 8787;

/// What can be said about the project, if there is one.
pub fn checks(project: &Result<Project>) -> Vec<Check> {
    let project = match project {
        Ok(project) => project,
        Err(failure) => return vec![none(failure)],
    };
    let mut checks = vec![crates(project)];
    checks.extend(built(project).map(wasm_bindgen).find(|check| check.state != State::Good));
    checks.push(objects(&project.front));
    checks.push(trigger(&project.front));
    checks.extend(project.app.as_ref().map(|app| shared_secret(app, &project.front)));
    checks.push(serving(project));
    checks.extend(project.workers().filter_map(variables));
    checks
}

fn none(failure: &Failure) -> Check {
    let here = env::current_dir().unwrap_or_default();
    if here.ancestors().any(|folder| folder.join("wrangler.toml").is_file()) {
        return Check::bad("project", &failure.what, failure.next.clone().unwrap_or_default());
    }
    Check::note("project", "this folder is none", "`stepwell new NAME` makes one.")
}

/// The Workers that are built here.
fn built(project: &Project) -> impl Iterator<Item = &Worker> {
    project.workers().filter(|worker| !worker.is_prebuilt())
}

fn crates(project: &Project) -> Check {
    let names: Vec<_> = project.workers().map(|worker| worker.wrangler.name.as_str()).collect();
    match built(project).try_for_each(|worker| library(&worker.folder)) {
        Ok(()) => Check::good("project", format!("{} in {}", names.join(" and "), project.root.display())),
        Err(failure) => Check::of("project", State::Bad, failure),
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

/// Whether the bindings can be made.
fn wasm_bindgen(worker: &Worker) -> Check {
    match bindings::Binder::of(&worker.folder) {
        Ok(_) => Check::good("wasm-bindgen", bindings::VERSION),
        Err(failure) => Check::of("wasm-bindgen", State::Bad, failure),
    }
}

/// Whether the engine's objects are declared, with a migration that makes them.
fn objects(front: &Worker) -> Check {
    let wrangler = &front.wrangler;
    let bound = |(name, class): (&str, &str)| {
        let mut bindings = wrangler.durable_objects.bindings.iter();
        bindings.any(|binding| binding.name == name && binding.class_name == class)
    };
    let file = front.folder.join("wrangler.toml");
    for (name, class) in CLASSES {
        if !bound((name, class)) {
            let found = format!("{} binds no {name} to the class {class}", file.display());
            let remedy = format!(
                "Add `[[durable_objects.bindings]]` with `name = \"{name}\"` and `class_name = \"{class}\"`."
            );
            return Check::bad("objects", found, remedy);
        }
        if !wrangler
            .migrations
            .iter()
            .any(|migration| migration.new_sqlite_classes.iter().any(|new| new == class))
        {
            let found = format!("{} has no migration that makes the class {class}", file.display());
            let remedy = "Add `[[migrations]]` with `tag = \"v1\"` and `new_sqlite_classes = [\"Cell\", \"Station\"]`.";
            return Check::bad("objects", found, remedy);
        }
    }
    Check::good("objects", "Cell and Station")
}

/// Whether somebody looks after cells that nobody asks anything.
fn trigger(front: &Worker) -> Check {
    match front.wrangler.triggers.crons.first() {
        Some(cron) => Check::good("cron trigger", cron),
        None => Check::bad(
            "cron trigger",
            "wrangler.toml has none: should the platform lose an alarm, runs sleep until the next request",
            "Add `[triggers]` with `crons = [\"*/15 * * * *\"]`.",
        ),
    }
}

/// Whether engine and app have the secret that they share. `stepwell dev` gives them one; this is about Cloudflare.
fn shared_secret(app: &Worker, engine: &Worker) -> Check {
    let has = |worker: &Worker| {
        tools::secrets(worker, &[]).map(|names| names.iter().any(|name| name == APP_KEY_VARIABLE))
    };
    let (Some(of_app), Some(of_engine)) = (has(app), has(engine)) else {
        let found = format!("wrangler does not say whether {APP_KEY_VARIABLE} is set on both Workers");
        return Check::note("app key", found, "npx wrangler login, if the project is deployed");
    };
    match (of_app, of_engine) {
        // Nobody can read secrets, so nobody can compare them.
        (true, true) => Check::good(
            "app key",
            format!("{APP_KEY_VARIABLE} is set on both; whether it is the same cannot be seen"),
        ),
        (true | false, false) | (false, true) => {
            let lacks = |has: bool, worker: &Worker| (!has).then(|| worker.wrangler.name.clone());
            let names: Vec<_> =
                [lacks(of_app, app), lacks(of_engine, engine)].into_iter().flatten().collect();
            let found =
                format!("{} has no {APP_KEY_VARIABLE}: the app refuses the engine", names.join(" and "));
            Check::bad("app key", found, "`stepwell deploy` sets a new one on both.")
        }
    }
}

/// Whether `stepwell dev` could begin: its data and its port are free, or it runs already.
fn serving(project: &Project) -> Check {
    if lock::is_held(&project.data()) {
        let found = match lock::holder(&project.data()) {
            Some(holder) => format!(
                "`stepwell dev` (process {}) serves this project at {}, or is building it",
                holder.process, holder.address
            ),
            None => format!("another process uses the data in {}", project.data().display()),
        };
        return Check::note("dev", found, "Stop it before you run another one here.");
    }
    match TcpListener::bind(("127.0.0.1", PORT)) {
        Ok(_) => Check::good("dev", format!("port {PORT} is free")),
        Err(error) => Check::bad(
            "dev",
            format!("127.0.0.1:{PORT} cannot be listened on: {error}"),
            "Another program uses this port. Stop it, or run `stepwell dev --port 8788`.",
        ),
    }
}

/// What is wrong with the variables of a Worker.
fn variables(worker: &Worker) -> Option<Check> {
    let file = worker.folder.join(variables::FILE);
    if private::is_open_to_others(&file) {
        let found = format!("other users of this machine can read {}", file.display());
        return Some(Check::bad("variables", found, format!("chmod 600 {}", file.display())));
    }
    let plain =
        worker.wrangler.vars.keys().find(|name| [KEY_VARIABLE, APP_KEY_VARIABLE].contains(&name.as_str()))?;
    Some(Check::bad(
        "variables",
        format!(
            "{} has {plain} among its variables, where everybody reads it",
            worker.folder.join("wrangler.toml").display()
        ),
        format!(
            "Remove it from [vars]. It is a secret: `openssl rand -hex 32 | npx wrangler secret put {plain}`."
        ),
    ))
}
