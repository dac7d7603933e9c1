//! The project's own crate, linked natively into a small program that describes and replays its workflows.
//!
//! That program is a crate of its own in the project's target folder, so nothing has to be added to the project.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stepwell_protocol::{Payload, export::ReplayReport};

use crate::{
    bars::Spinner,
    failure::{Failure, Result},
    local::KEY_VARIABLE,
    tools,
};

/// Which features of the project's crate it is built with.
#[derive(Clone, Debug, Default, Args)]
pub struct Features {
    /// Features of the project's crate to build with.
    #[arg(long, value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// Build without the default features of the project's crate.
    #[arg(long)]
    no_default_features: bool,
}

/// What the lines of the small program begin with: the workflows' own code may print, too.
const MARK: &str = "stepwell says: ";

/// The crate with the workflows, and what it is linked with.
pub struct Linked {
    package: String,
    features: Features,
    root: PathBuf,
    workspace: PathBuf,
    target: PathBuf,
    /// The SDK that it depends on, as a dependency is written.
    sdk: String,
}

impl Linked {
    /// The project in this folder, built with these features.
    pub fn find(project: &Path, features: &Features) -> Result<Self> {
        Self::find_with(project, features, false)
    }

    /// The same, with exactly the dependencies that its Cargo.lock names, if it has one.
    pub fn find_locked(project: &Path, features: &Features) -> Result<Self> {
        Self::find_with(project, features, true)
    }

    fn find_with(project: &Path, features: &Features, as_locked: bool) -> Result<Self> {
        let manifest = project.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(Failure::usage(format!("{} has no Cargo.toml", project.display()))
                .next("Go into the project, or name it with --project."));
        }
        let spinner = Spinner::new("looking at the project");
        let is_locked = as_locked && is_locked(&manifest)?;
        let output = without_key(Command::new(tools::cargo()?))
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .args(is_locked.then_some("--locked"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(not_started)?;
        drop(spinner);
        if !output.status.success() {
            let next = "See what it wrote above. If Cargo.lock is out of date, run `cargo check` first.";
            return Err(Failure::local("cargo cannot read the project").next(next));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::local(format!("cargo's answer cannot be understood: {error}")))?;
        let root = fs::canonicalize(project).map_err(|error| Failure::usage(error.to_string()))?;
        Self::of(&metadata, root, features)
            .ok_or_else(|| Failure::usage("the project has no library that depends on stepwell"))
    }

    fn of(metadata: &Value, root: PathBuf, features: &Features) -> Option<Self> {
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
            features: features.clone(),
            root,
            workspace: text(metadata, "workspace_root")?.into(),
            target: text(metadata, "target_directory")?.into(),
            sdk: dependency(sdk)?,
        })
    }

    /// What it declares, as it says it.
    pub fn manifest(&self) -> Result<Payload> {
        let mut said: Vec<Payload> = self.ask(None, None)?;
        said.pop().ok_or_else(not_linked)
    }

    /// Replays all exported runs of a file, one after the other.
    pub fn replay(&self, file: &Path) -> Result<Vec<ReplayReport>> {
        self.ask(Some(file), None)
    }

    /// Replays all exported runs of a text, one after the other. They are never in a file: whatever ends this command
    /// leaves nothing behind.
    pub fn replay_text(&self, text: &str) -> Result<Vec<ReplayReport>> {
        self.ask(Some(Path::new(STDIN)), Some(text))
    }

    /// Builds the small program, and gives what it says.
    fn ask<T: DeserializeOwned>(&self, file: Option<&Path>, input: Option<&str>) -> Result<Vec<T>> {
        let folder = self.target.join("stepwell-replay").join(&self.package);
        self.write(&folder).map_err(|error| Failure::local(format!("{}: {error}", folder.display())))?;
        let mut command = without_key(Command::new(tools::cargo()?));
        command.arg("run");
        // A person sees how far the build is; a log is spared it.
        if !console::user_attended_stderr() {
            command.arg("--quiet");
        }
        command
            .arg("--manifest-path")
            .arg(folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&self.target)
            .arg("--")
            .args(file)
            .stderr(Stdio::inherit());
        let output = said_by(command, input).map_err(not_started)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = text.lines().filter_map(|line| line.strip_prefix(MARK));
        let said: Option<Vec<T>> = said.map(|line| serde_json::from_str(line).ok()).collect();
        said.filter(|_| output.status.success()).ok_or_else(not_linked)
    }

    fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder.join("src"))?;
        let Self { package, root, sdk, features, .. } = self;
        let name = toml::Value::String(package.clone());
        let path = toml::Value::String(root.to_string_lossy().into_owned());
        let Features { features, no_default_features } = features;
        let features = toml::Value::from(features.clone());
        let default = !no_default_features;
        let manifest = format!(
            "[package]\nname = \"stepwell-replay\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\nreplayed = {{ package = {name}, path = {path}, default-features = {default}, \
             features = {features} }}\n\
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

/// Starts a command, writes a text to it, and waits for its end.
fn said_by(mut command: Command, input: Option<&str>) -> std::io::Result<Output> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn()?;
    let (stdin, input) = (child.stdin.take(), input.unwrap_or_default());
    thread::scope(|scope| {
        // Beside reading what it says, so that neither waits for the other. One that does not read has failed, and
        // has said why.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })
}

/// The code of a project, and that of its build scripts, is not given the key of a deployment: in CI it may be anybody's.
fn without_key(mut command: Command) -> Command {
    command.env_remove(KEY_VARIABLE);
    command
}

/// Whether the project's dependencies are locked.
fn is_locked(manifest: &Path) -> Result<bool> {
    let located = without_key(Command::new(tools::cargo()?))
        .args(["locate-project", "--workspace", "--message-format", "plain", "--manifest-path"])
        .arg(manifest)
        .stderr(Stdio::null())
        .output()
        .map_err(not_started)?;
    let workspace = String::from_utf8_lossy(&located.stdout);
    Ok(Path::new(workspace.trim()).with_file_name("Cargo.lock").is_file() && located.status.success())
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_started(error: std::io::Error) -> Failure {
    Failure::local(format!("cargo cannot be started: {error}"))
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

fn not_linked() -> Failure {
    Failure::local("the project cannot be linked for a replay").next(
        "See what cargo wrote above. The function with `#[stepwell::main]` has to be in src/lib.rs, and `crate-type` \
         has to have \"rlib\".",
    )
}

/// What the small program is given in place of a file, if it shall read its standard input.
const STDIN: &str = "-";

/// The small program: without a file it says what the app declares.
const PROGRAM: &str = r#"//! Written by `stepwell`.

fn main() {
    let app = replayed::__stepwell_app();
    let say = |line: String| println!("\nstepwell says: {line}");
    let Some(file) = std::env::args().nth(1) else {
        return say(serde_json::to_string(&app.manifest()).expect("a manifest can be written as JSON"));
    };
    let text = match file.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()),
        file => std::fs::read_to_string(file),
    };
    let text = text.expect("the exported runs can be read");
    for export in serde_json::Deserializer::from_str(&text).into_iter() {
        let export = export.expect("it was read before");
        let report = stepwell::testing::replay(&app, &export);
        say(serde_json::to_string(&report).expect("a report can be written as JSON"));
    }
}
"#;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_small_program_marks_what_it_says() {
        assert!(PROGRAM.contains(&format!("\\n{MARK}")));
    }

    #[test]
    fn the_code_of_the_project_is_not_given_the_key() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"key: $STEPWELL_KEY\""]).env(KEY_VARIABLE, "secret");
        let output = said_by(without_key(command), None).expect("there is a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "key: \n");
    }

    #[test]
    fn a_long_text_reaches_a_program_that_answers_while_it_reads() {
        let text = "x".repeat(1 << 20);
        let output = said_by(Command::new("cat"), Some(&text)).expect("there is a cat");
        assert!(output.stdout == text.as_bytes());
        let ended = said_by(Command::new("true"), Some(&text)).expect("it ends without reading");
        assert!(ended.status.success());
    }

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
