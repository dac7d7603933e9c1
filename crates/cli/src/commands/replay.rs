//! `stepwell replay`: an exported journal on the code of this folder.
//!
//! The project's own crate is linked, natively, into a small program that calls `stepwell::testing::replay`. That
//! program is a crate of its own in the project's target folder, so nothing has to be added to the project.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::Value;
use stepwell_protocol::export::{Export, FORMAT, ReplayReport};

use crate::{
    Global,
    bars::Spinner,
    failure::{Exit, Failure, Result},
    tools, words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Replay {
    /// What `stepwell export` has written.
    file: PathBuf,
    /// The project, if it is not the one of this folder.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    project: PathBuf,
}

impl Replay {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let export = read(&self.file)?;
        let file = fs::canonicalize(&self.file).map_err(|error| Failure::usage(error.to_string()))?;
        let linked = Linked::find(&self.project)?;
        let report = linked.replay(&file)?;
        if global.json {
            anstream::println!(
                "{}",
                serde_json::to_string(&report).expect("a report can be written as JSON")
            );
        } else {
            tell(&export, &report);
        }
        if report.difference.is_some() { Err(Failure::told(Exit::Differs)) } else { Ok(()) }
    }
}

fn read(file: &Path) -> Result<Export> {
    let wrong = |what: String| {
        Failure::usage(format!("{}: {what}", file.display()))
            .next("`stepwell export RUN` writes such a file.")
    };
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let export: Export =
        serde_json::from_str(&text).map_err(|error| wrong(format!("this is no exported run: {error}")))?;
    if export.format != FORMAT {
        return Err(wrong(format!("it has the form {}, and this command knows {FORMAT}", export.format)));
    }
    Ok(export)
}

fn tell(export: &Export, report: &ReplayReport) {
    let (run, workflow) = (&export.run.id, words::plain(&export.run.workflow));
    let Some(difference) = &report.difference else {
        let green = AnsiColor::Green.on_default();
        let events = words::count(report.events, "event");
        anstream::println!("{green}✓{green:#} {workflow} {run}: the same over {events}");
        if !report.next.is_empty() {
            anstream::println!("  next: {}", words::plain(&report.next.join(", ")));
        }
        if export.replay.is_none() {
            anstream::eprintln!("The file does not have the run's seed: what chance decides may differ.");
        }
        return;
    };
    let (red, green, bold) =
        (AnsiColor::Red.on_default(), AnsiColor::Green.on_default(), Style::new().bold());
    let place = match difference.seq {
        Some(seq) => format!("at event {} of {}", seq.0, export.events.len()),
        None => "at its end".to_owned(),
    };
    anstream::println!("{red}✗{red:#} {workflow} {run}: {bold}something else {place}{bold:#}");
    anstream::println!("{green}- journal:{green:#} {}", words::plain(&difference.expected));
    anstream::println!("{red}+ code:   {red:#} {}", words::plain(&difference.actual));
    anstream::eprintln!(
        "next: keep the old way for runs under way with `ctx.patched`, see docs/workflows.md"
    );
}

/// The crate with the workflows, and what it is linked with.
struct Linked {
    package: String,
    root: PathBuf,
    workspace: PathBuf,
    target: PathBuf,
    /// The SDK that it depends on, as a dependency is written.
    sdk: String,
}

impl Linked {
    fn find(project: &Path) -> Result<Self> {
        let manifest = project.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(Failure::usage(format!("{} has no Cargo.toml", project.display()))
                .next("Go into the project, or name it with --project."));
        }
        let spinner = Spinner::new("looking at the project");
        let output = Command::new(tools::cargo()?)
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure::local(format!("cargo cannot be started: {error}")))?;
        drop(spinner);
        if !output.status.success() {
            return Err(Failure::local("cargo cannot read the project").next("See what it wrote above."));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::local(format!("cargo's answer cannot be understood: {error}")))?;
        let root = fs::canonicalize(project).map_err(|error| Failure::usage(error.to_string()))?;
        Self::of(&metadata, root)
            .ok_or_else(|| Failure::usage("the project has no library that depends on stepwell"))
    }

    fn of(metadata: &Value, root: PathBuf) -> Option<Self> {
        let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
        let packages = metadata.get("packages")?.as_array()?;
        let manifest = root.join("Cargo.toml");
        let is_it = |package: &&Value| {
            text(package, "manifest_path").is_some_and(|path| Path::new(&path) == manifest)
        };
        let package = packages.iter().find(is_it)?;
        let targets = package.get("targets")?.as_array()?;
        let is_library = |target: &&Value| {
            let kinds = target.get("crate_types").and_then(Value::as_array);
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "rlib" || kind == "lib"))
        };
        targets.iter().find(is_library)?;
        let sdk = packages.iter().find(|package| text(package, "name").as_deref() == Some("stepwell"))?;
        Some(Self {
            package: text(package, "name")?,
            root,
            workspace: text(metadata, "workspace_root")?.into(),
            target: text(metadata, "target_directory")?.into(),
            sdk: dependency(sdk)?,
        })
    }

    /// Builds the small program and lets it read the file.
    fn replay(&self, file: &Path) -> Result<ReplayReport> {
        let folder = self.target.join("stepwell-replay").join(&self.package);
        self.write(&folder).map_err(|error| Failure::local(format!("{}: {error}", folder.display())))?;
        let mut command = Command::new(tools::cargo()?);
        command.arg("run");
        // A person sees how far the build is; a log is spared it.
        if !console::user_attended_stderr() {
            command.arg("--quiet");
        }
        let output = command
            .arg("--manifest-path")
            .arg(folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&self.target)
            .arg("--")
            .arg(file)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output();
        let output = output.map_err(|error| Failure::local(format!("cargo cannot be started: {error}")))?;
        // The last line: the workflows' own code may print before it.
        let text = String::from_utf8_lossy(&output.stdout);
        let report = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        report.filter(|_| output.status.success()).ok_or_else(|| {
            Failure::local("the project cannot be linked for a replay").next(
                "See what cargo wrote above. The function with `#[stepwell::main]` has to be in src/lib.rs, and \
                 `crate-type` has to have \"rlib\".",
            )
        })
    }

    fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder.join("src"))?;
        let Self { package, root, sdk, .. } = self;
        let name = toml::Value::String(package.clone());
        let path = toml::Value::String(root.to_string_lossy().into_owned());
        let manifest = format!(
            "[package]\nname = \"stepwell-replay\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\nreplayed = {{ package = {name}, path = {path} }}\n\
             stepwell = {{ {sdk}, features = [\"testing\"] }}\nserde_json = \"1\"\n"
        );
        // What is the same is left alone, so that cargo has nothing to do.
        let write = |path: &Path, text: &str| match fs::read_to_string(path) {
            Ok(there) if there == text => Ok(()),
            Ok(_) | Err(_) => fs::write(path, text),
        };
        write(&folder.join("Cargo.toml"), &manifest)?;
        write(&folder.join("src/main.rs"), PROGRAM)?;
        let lock = self.workspace.join("Cargo.lock");
        // The versions that the project has.
        if lock.is_file() { fs::copy(lock, folder.join("Cargo.lock")).map(drop) } else { Ok(()) }
    }
}

/// A package as a dependency is written.
fn dependency(package: &Value) -> Option<String> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    match package.get("source")?.as_str() {
        None => {
            let manifest = Path::new(package.get("manifest_path")?.as_str()?);
            Some(format!("path = {}", quoted(manifest.parent()?.to_str()?)))
        }
        Some(source) => match source.strip_prefix("git+") {
            Some(git) => {
                let (address, revision) = git.split_once('#')?;
                let address = address.split('?').next()?;
                Some(format!("git = {}, rev = {}", quoted(address), quoted(revision)))
            }
            None => Some(format!("version = {}", quoted(&format!("={}", package.get("version")?.as_str()?)))),
        },
    }
}

/// The small program.
const PROGRAM: &str = r#"//! Written by `stepwell replay`.

fn main() {
    let file = std::env::args().nth(1).expect("a file is named");
    let text = std::fs::read_to_string(file).expect("the file can be read");
    let export = serde_json::from_str(&text).expect("it was read before");
    let report = stepwell::testing::replay(&replayed::__stepwell_app(), &export);
    println!("\n{}", serde_json::to_string(&report).expect("a report can be written as JSON"));
}
"#;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_sdk_is_taken_from_where_the_project_has_it() {
        let sources = [
            (json!({"source": null, "manifest_path": "/a/stepwell/Cargo.toml"}), "path = \"/a/stepwell\""),
            (
                json!({"source": "git+https://example.org/s?branch=main#abc"}),
                "git = \"https://example.org/s\", rev = \"abc\"",
            ),
            (
                json!({"source": "registry+https://example.org/index", "version": "0.2.0"}),
                "version = \"=0.2.0\"",
            ),
        ];
        for (package, written) in sources {
            assert_eq!(dependency(&package).as_deref(), Some(written));
        }
    }
}
