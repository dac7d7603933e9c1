//! `stepwell new`: makes a project that builds and runs as it is.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;

use crate::{
    Global,
    failure::{Failure, Result},
    templates::{Filling, Form, Template},
    tools, words,
};

/// The longest name: Cloudflare takes no longer one for a Worker.
const NAME_LENGTH_MAX: usize = 63;

/// Names that cargo, or the project itself, has for something else.
const TAKEN: &[&str] = &["stepwell", "stepwell-engine", "test", "core", "std", "alloc", "build", "deps"];

/// What it takes.
#[derive(Debug, Args)]
pub struct New {
    /// The project's name, or the folder to create it in.
    #[arg(value_name = "NAME")]
    path: PathBuf,
    /// The template to start from.
    #[arg(long, value_enum, default_value_t)]
    template: Template,
    /// Create engine and app as two Workers, so that deploying your code does not restart the engine.
    #[arg(long)]
    two_workers: bool,
    /// Skip `npm install`; `dev` and `deploy` run it.
    #[arg(long)]
    no_install: bool,
    /// A checkout of Stepwell to build with, instead of the published release.
    #[arg(long, value_name = "FOLDER")]
    stepwell: Option<PathBuf>,
}

impl New {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        check_name(&name)?;
        let source = Source::of(self.stepwell.as_deref())?;
        let form = if self.two_workers { Form::TwoWorkers } else { Form::AllInOne };
        let files = self.template.project(form, &source.filling(&name));
        write_all(&self.path, &files)?;
        let folder = self.path.display();
        if !global.json {
            anstream::println!("{folder} is there. Its workflows are in src/lib.rs.");
        }
        let missing = tools::missing(&self.path);
        // What is installed has to run, too.
        if !self.no_install && missing.is_empty() {
            // The files of the dashboard are the project's own, whatever is installed above it.
            let is_there = tools::workerd(&self.path).is_ok() && source.filling(&name).version.is_none();
            if let Err(failure) = tools::install(&self.path, is_there) {
                anstream::eprintln!("{}; `{} dev` tries it again", failure.what, words::own_name());
            }
        }
        if global.json {
            let files: Vec<_> = files.keys().collect();
            anstream::println!("{}", json!({ "name": name, "folder": self.path, "files": files }));
            return Ok(());
        }
        if !missing.is_empty() {
            anstream::eprintln!("This machine lacks some of what the project needs:");
        }
        for failure in missing {
            anstream::eprintln!("- {}. {}", failure.what, failure.next.unwrap_or_default());
        }
        let first = match self.template {
            Template::Hello => "",
            Template::Orders | Template::Agent => " (README.md has what to start before it)",
        };
        anstream::eprintln!("next: cd {folder} && {} dev{first}", words::own_name());
        Ok(())
    }
}

fn check_name(name: &str) -> Result {
    let is_good = name.len() <= NAME_LENGTH_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !is_good {
        let what = format!(
            "'{}' cannot name a project: up to {NAME_LENGTH_MAX} lower-case letters, digits and hyphens can, a letter first",
            crate::words::plain(name)
        );
        return Err(Failure::usage(what));
    }
    if TAKEN.contains(&name) {
        return Err(
            Failure::usage(format!("'{name}' is the name of something else")).next("Take another name.")
        );
    }
    Ok(())
}

/// Where the crates come from, as dependencies are written.
struct Source {
    sdk: String,
    engine: String,
    is_release: bool,
}

impl Source {
    fn of(checkout: Option<&Path>) -> Result<Self> {
        let Some(checkout) = checkout else {
            // Any release that is compatible with this command.
            let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
            let [sdk, engine] = [(); 2].map(|()| format!("version = \"{version}\""));
            return Ok(Self { sdk, engine, is_release: true });
        };
        if !checkout.join("crates/stepwell/Cargo.toml").is_file() {
            let what =
                format!("{} is not a checkout of Stepwell: it has no crates/stepwell", checkout.display());
            return Err(Failure::usage(what));
        }
        let checkout = fs::canonicalize(checkout)
            .map_err(|error| Failure::usage(format!("{} cannot be found: {error}", checkout.display())))?;
        let text = checkout.to_str().filter(|text| !text.contains(['"', '\\', '\n']));
        let Some(text) = text else {
            return Err(Failure::usage(format!("a Cargo.toml cannot hold the path {}", checkout.display())));
        };
        let [sdk, engine] = ["stepwell", "engine"].map(|name| format!("path = \"{text}/crates/{name}\""));
        Ok(Self { sdk, engine, is_release: false })
    }

    fn filling<'a>(&'a self, name: &'a str) -> Filling<'a> {
        let version = self.is_release.then_some(env!("CARGO_PKG_VERSION"));
        Filling { name, sdk: &self.sdk, engine: &self.engine, version }
    }
}

fn write_all(folder: &Path, files: &BTreeMap<&str, String>) -> Result {
    let wrong = |path: &Path, error: &std::io::Error| Failure::local(format!("{}: {error}", path.display()));
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        return Err(Failure::usage(format!("{} is there already", folder.display()))
            .next("Take another name, or delete it first."));
    }
    for (path, text) in files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| wrong(parent, &error))?;
        }
        fs::write(&path, text).map_err(|error| wrong(&path, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_good_for_cargo_and_for_cloudflare() {
        for good in ["orders", "my-app2"] {
            check_name(good).expect(good);
        }
        for bad in ["", "Orders", "2fast", "my_app", "a/..", "app-", "ünïcode", "test", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_a_project_and_overwrites_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("orders");
        let checkout = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let forms = [Form::AllInOne, Form::TwoWorkers];
        for (source, form) in
            [None, Some(checkout)].into_iter().flat_map(|from| forms.map(|form| (Source::of(from), form)))
        {
            let _ = fs::remove_dir_all(&root);
            let source = source.expect("a source");
            let files = Template::Hello.project(form, &source.filling("orders"));
            write_all(&root, &files).expect("it is written");
            let project = crate::project::Project::at(&root).expect("it is a project");
            assert_eq!(project.front.wrangler.name, "orders");
            assert!(project.workers().all(|worker| worker.wrangler.own_build().is_none()));
            let app = project.app.map(|app| app.wrangler.name);
            assert_eq!(app, (form == Form::TwoWorkers).then(|| "orders-app".to_owned()));
            assert_eq!(project.front.not_served, Vec::<String>::new(), "the app is served too");
            assert!(write_all(&root, &files).is_err(), "it would overwrite somebody's work");
        }
    }
}
