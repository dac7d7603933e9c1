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
    tools,
};

/// The files of a project, and where they go.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../../templates/Cargo.toml.in")),
    ("Cargo.lock", include_str!("../../templates/Cargo.lock.in")),
    ("src/lib.rs", include_str!("../../templates/lib.rs.in")),
    ("tests/workflows.rs", include_str!("../../templates/workflows.rs.in")),
    ("wrangler.toml", include_str!("../../templates/wrangler.toml.in")),
    ("package.json", include_str!("../../templates/package.json.in")),
    ("README.md", include_str!("../../templates/README.md.in")),
    (".gitignore", include_str!("../../templates/gitignore.in")),
];

/// The files that two Workers have besides, or instead.
const FILES_OF_TWO: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../../templates/app.Cargo.toml.in")),
    ("wrangler.toml", include_str!("../../templates/app.wrangler.toml.in")),
    ("engine/Cargo.toml", include_str!("../../templates/engine.Cargo.toml.in")),
    ("engine/src/lib.rs", include_str!("../../templates/engine.lib.rs.in")),
    ("engine/wrangler.toml", include_str!("../../templates/wrangler.toml.in")),
];

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
    /// A checkout of Stepwell to build with, instead of the published release.
    #[arg(long, value_name = "FOLDER")]
    stepwell: Option<PathBuf>,
    /// Create engine and app as two Workers, so that deploying your code does not restart the engine.
    #[arg(long)]
    two_workers: bool,
}

impl New {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        check_name(&name)?;
        let source = source(self.stepwell.as_deref())?;
        let form = if self.two_workers { Form::TwoWorkers } else { Form::AllInOne };
        write_all(&self.path, &name, &source, form)?;
        if global.json {
            let files: Vec<_> = files(form).into_keys().collect();
            anstream::println!("{}", json!({ "name": name, "folder": self.path, "files": files }));
            return Ok(());
        }
        anstream::println!("{} is there. It has two workflows, in src/lib.rs.", self.path.display());
        let missing = tools::missing(&self.path);
        if !missing.is_empty() {
            anstream::eprintln!("This machine lacks some of what the project needs:");
        }
        for failure in missing {
            anstream::eprintln!("- {}. {}", failure.what, failure.next.unwrap_or_default());
        }
        anstream::eprintln!("next: cd {} && npm install && stepwell dev", self.path.display());
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

/// Where the crates come from.
struct Source {
    /// What both dependencies begin with.
    common: String,
    sdk: &'static str,
    engine: &'static str,
}

fn source(checkout: Option<&Path>) -> Result<Source> {
    let Some(checkout) = checkout else {
        // The release that this command belongs to: a branch would change under the project.
        let common =
            format!("git = \"{}\", tag = \"v{}\"", env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
        return Ok(Source { common, sdk: "", engine: "" });
    };
    if !checkout.join("crates/stepwell/Cargo.toml").is_file() {
        let what = format!("{} is not a checkout of Stepwell: it has no crates/stepwell", checkout.display());
        return Err(Failure::usage(what));
    }
    let checkout = fs::canonicalize(checkout)
        .map_err(|error| Failure::usage(format!("{} cannot be found: {error}", checkout.display())))?;
    let text = checkout.to_str().filter(|text| !text.contains(['"', '\\', '\n']));
    let Some(text) = text else {
        return Err(Failure::usage(format!("a Cargo.toml cannot hold the path {}", checkout.display())));
    };
    Ok(Source { common: format!("path = \"{text}/crates/"), sdk: "stepwell\"", engine: "engine\"" })
}

/// How engine and app are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    AllInOne,
    TwoWorkers,
}

/// The files of a project, by where they go.
fn files(form: Form) -> BTreeMap<&'static str, &'static str> {
    let more = match form {
        Form::AllInOne => &[],
        Form::TwoWorkers => FILES_OF_TWO,
    };
    FILES.iter().chain(more).copied().collect()
}

/// What the engine's configuration says about the app of an environment.
fn binding(form: Form, name: &str, environment: &str) -> String {
    match form {
        Form::AllInOne => String::new(),
        Form::TwoWorkers => {
            format!("services = [{{ binding = \"APP\", service = \"{name}-app{environment}\" }}]\n")
        }
    }
}

fn write_all(folder: &Path, name: &str, source: &Source, form: Form) -> Result {
    let wrong = |path: &Path, error: &std::io::Error| Failure::local(format!("{}: {error}", path.display()));
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        return Err(Failure::usage(format!("{} is there already", folder.display()))
            .next("Take another name, or delete it first."));
    }
    let app = match form {
        Form::AllInOne => String::new(),
        Form::TwoWorkers => format!(
            "# The app has to be deployed first.\n[[services]]\nbinding = \"APP\"\nservice = \"{name}-app\"\n\n"
        ),
    };
    for (path, template) in files(form) {
        let text = template
            .replace("#{{app}}\n", &app)
            .replace("#{{app_staging}}\n", &binding(form, name, "-staging"))
            .replace("#{{app_production}}\n", &binding(form, name, "-production"))
            .replace("{{source}}", &source.common)
            .replace("{{sdk}}", source.sdk)
            .replace("{{engine}}", source.engine)
            .replace("{{name}}", name)
            .replace("{{crate}}", &name.replace('-', "_"))
            .replace("{{repository}}", env!("CARGO_PKG_REPOSITORY"));
        let text = match (form, path) {
            // The app does not know the engine.
            (Form::TwoWorkers, "src/lib.rs") => text.replace("use stepwell_engine as _;\n", ""),
            (Form::TwoWorkers | Form::AllInOne, _) => text,
        };
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
    fn no_placeholder_is_left_and_the_files_can_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("orders");
        let checkout = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let forms = [Form::AllInOne, Form::TwoWorkers];
        for (source, form) in
            [None, Some(checkout)].into_iter().flat_map(|from| forms.map(|form| (source(from), form)))
        {
            let _ = fs::remove_dir_all(&root);
            write_all(&root, "orders", &source.expect("a source"), form).expect("it is written");
            for path in files(form).into_keys() {
                let text = fs::read_to_string(root.join(path)).expect("it is there");
                assert!(!text.contains("{{"), "{path}: {text}");
                assert!(!text.contains("branch"), "{path} depends on a branch, which changes");
                if Path::new(path).extension().is_some_and(|extension| extension == "toml") {
                    toml::from_str::<toml::Table>(&text).expect(path);
                }
            }
            let project = crate::project::Project::at(&root).expect("it is a project");
            assert_eq!(project.front.wrangler.name, "orders");
            let app = project.app.map(|app| app.wrangler.name);
            assert_eq!(app, (form == Form::TwoWorkers).then(|| "orders-app".to_owned()));
            assert_eq!(project.front.not_served, Vec::<String>::new(), "the app is served too");
        }
        let source = source(None).expect("a source");
        assert!(
            write_all(&root, "orders", &source, Form::AllInOne).is_err(),
            "it would overwrite somebody's work"
        );
    }
}
