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
    let written = bindgen.module(true).and_then(Bindgen::generate_output).and_then(|mut output| {
        for function in output.wasm_mut().funcs.iter_mut() {
            let name = function.name.take().map(without_hash);
            function.name = name.filter(|name| checks || !is_of_a_library(name));
        }
        output.emit(out)
    });
    written.map_err(|error| format!("{error:#}"))
}

/// The name of a function as people know it. The compiler's hash at its end says nothing to them, and does not compress:
/// without the hashes, the names take half of the room.
fn without_hash(mut name: String) -> String {
    let hash = name.rfind("::h").filter(|&start| {
        name.get(start + 3..).is_some_and(|rest| {
            rest.len() >= 16 && rest.chars().take(16).all(|digit| digit.is_ascii_hexdigit())
        })
    });
    if let Some(start) = hash {
        name.truncate(start);
    }
    name
}

/// Libraries whose functions say nothing, in a stack trace, about where it happened.
const LIBRARIES: [&str; 26] = [
    "alloc",
    "base64",
    "bytes",
    "core",
    "dlmalloc",
    "futures_channel",
    "futures_core",
    "futures_util",
    "hashbrown",
    "http",
    "js_sys",
    "memchr",
    "serde",
    "serde_core",
    "serde_json",
    "sha2",
    "smallvec",
    "std",
    "stepwell_promises",
    "stepwell_protocol",
    "url",
    "wasm_bindgen",
    "wasm_bindgen_futures",
    "web_sys",
    "worker",
    "worker_sys",
];

/// Whether this is one of the many functions that are not the project's own: those of libraries, those that the compiler
/// makes of a library's for each type, what reads and writes JSON, and calls of JavaScript, whose names end with a hash.
/// They are most of the names.
fn is_of_a_library(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '[']);
    let path = ["mut ", "dyn "].iter().find_map(|word| path.strip_prefix(word)).unwrap_or(path);
    let krate = path.split([':', '[', '<', '>', ' ', ']']).next().unwrap_or_default();
    let is_glue = name.contains("serde_core::") || name.contains("::__wbg_");
    LIBRARIES.contains(&krate) || krate.len() <= 1 || path == krate || is_glue
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
    fn names_are_without_the_compilers_hash() {
        for (given, wanted) in [
            ("app::greet::h0123456789abcdef", "app::greet"),
            ("app::greet::{{closure}}::h0123456789abcdef[2]", "app::greet::{{closure}}"),
            ("app::hello", "app::hello"),
            ("app::h0123456789abcdefg::hi", "app::h0123456789abcdefg::hi"),
            ("__wbindgen_malloc", "__wbindgen_malloc"),
        ] {
            assert_eq!(without_hash(given.to_owned()), wanted);
        }
    }

    #[test]
    fn names_are_those_of_the_projects_own_code() {
        for name in [
            "core::ptr::drop_in_place<app::Order>",
            "<&mut serde_json::de::Deserializer<R> as serde_core::de::Deserializer>::deserialize_map",
            "<core::pin::Pin<P> as core::future::future::Future>::poll",
        ] {
            assert!(is_of_a_library(name), "{name}");
        }
        for name in [
            "<T as serde_core::ser::Serialize>::serialize",
            "core[c5930c85a12de822]::num::flt2dec::strategy::dragon::format_shortest",
            "app::_::<impl serde_core::ser::Serialize for app::Order>::serialize",
            "<dlmalloc[e24a27700634d609]::dlmalloc::Dlmalloc<dlmalloc[e24a27700634d609]::sys::System>>::malloc",
            "stepwell_protocol::json::Reader::value",
            "app::sockets::send::__wbg_send_a948b1a8d0804e76",
        ] {
            assert!(is_of_a_library(name), "{name}");
        }
        for name in ["app::greet::{{closure}}", "<app::Order as core::fmt::Debug>::fmt", "core_of_app::greet"]
        {
            assert!(!is_of_a_library(name), "{name}");
        }
    }

    #[test]
    fn the_version_is_that_of_the_workspace() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(locked(workspace).as_deref(), Some(VERSION));
    }
}
