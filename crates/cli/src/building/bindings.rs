//! The bindings between a module and JavaScript, made by wasm-bindgen.
//!
//! wasm-bindgen's two halves, the crate in the project and what makes the bindings, have to be of one version. This
//! program carries the second half for [`VERSION`], which new projects have in their lock files. For a project with
//! another version, the command `wasm-bindgen` of that version is used if there is one.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use wasm_bindgen_cli_support::Bindgen;

use crate::{
    failure::{Failure, Result},
    tools,
};

/// The version of wasm-bindgen that this program makes bindings for.
pub const VERSION: &str = "0.2.129";

/// What makes the bindings.
#[derive(Debug, PartialEq, Eq)]
pub enum Binder {
    /// This program.
    Own,
    /// The command `wasm-bindgen` of the project's version.
    Command(PathBuf),
}

impl Binder {
    /// What fits the project of a folder.
    pub fn of(folder: &Path) -> Result<Self> {
        // Without a lock file, cargo is about to write one.
        let Some(locked) = locked(folder) else { return Ok(Self::Own) };
        if locked == VERSION {
            return Ok(Self::Own);
        }
        let named = env::var_os("WASM_BINDGEN_BIN").map(PathBuf::from);
        let command = named.or_else(|| tools::in_path("wasm-bindgen"));
        let fits = |command: &PathBuf| {
            tools::version(command, &[])
                .is_some_and(|said| said.split_whitespace().any(|word| word == locked))
        };
        command.filter(fits).map(Self::Command).ok_or_else(|| mismatch(&locked))
    }

    /// Writes `index.js` and `index_bg.wasm` for a module.
    pub fn bind(&self, folder: &Path, module: &Path, out: &Path, checks: bool) -> Result {
        match self {
            Self::Own => own(module, out, checks).map_err(|error| match locked(folder) {
                Some(locked) if locked != VERSION => mismatch(&locked),
                Some(_) | None => Failure::local(format!("wasm-bindgen cannot bind the module: {error}")),
            }),
            Self::Command(command) => {
                let mut command = Command::new(command);
                command
                    .arg(module)
                    .arg("--out-dir")
                    .arg(out)
                    .args(["--target", "module", "--out-name", "index", "--no-typescript"])
                    .args(["--experimental-reset-state-function", "--force-enable-abort-handler"])
                    .args(checks.then_some("--debug"));
                tools::succeed(command.stdin(Stdio::null()), "wasm-bindgen")
            }
        }
    }
}

fn own(module: &Path, out: &Path, checks: bool) -> std::result::Result<(), String> {
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(module)
        .out_name("index")
        .typescript(false)
        .debug(checks)
        // A module that has panicked can begin anew without its isolate.
        .reset_state_function(true)
        .force_enable_abort_handler(true);
    let written = bindgen.module(true).and_then(|bindgen| bindgen.generate(out));
    written.map_err(|error| format!("{error:#}"))
}

/// The version in the lock file of a project: its own, or that of the workspace that it belongs to.
pub fn locked(folder: &Path) -> Option<String> {
    let lock = folder.ancestors().map(|folder| folder.join("Cargo.lock")).find(|lock| lock.is_file())?;
    let lock: toml::Table = toml::from_str(&fs::read_to_string(lock).ok()?).ok()?;
    let package = lock
        .get("package")?
        .as_array()?
        .iter()
        .find(|package| package.get("name").and_then(toml::Value::as_str) == Some("wasm-bindgen"))?;
    package.get("version")?.as_str().map(str::to_owned)
}

/// What to do about another version.
pub fn mismatch(locked: &str) -> Failure {
    Failure::local(format!("the project has wasm-bindgen {locked}, and this stepwell is made for {VERSION}"))
        .next(format!(
            "Take the stepwell that fits it: `npm install --save-dev stepwell@latest`. Or go back: add \
             `wasm-bindgen = \"={VERSION}\"` to [dependencies] and run `cargo update`."
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_with_another_wasm_bindgen_is_told_before_it_is_compiled() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |version: &str| {
            let text =
                format!("version = 4\n\n[[package]]\nname = \"wasm-bindgen\"\nversion = \"{version}\"\n");
            fs::write(folder.path().join("Cargo.lock"), text).expect("written");
        };
        assert_eq!(Binder::of(folder.path()).expect("cargo writes the lock file"), Binder::Own);
        write(VERSION);
        assert_eq!(Binder::of(&folder.path().join("engine")).expect("it fits"), Binder::Own);
        write("0.2.1");
        let failure = Binder::of(folder.path()).expect_err("it does not fit");
        assert!(failure.what.contains("0.2.1,") && failure.what.contains(VERSION), "{}", failure.what);
    }

    #[test]
    fn the_version_is_that_of_the_workspace() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(locked(workspace).as_deref(), Some(VERSION));
    }
}
