//! cargo, and the module that it has made.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{Build, Profile};
use crate::{
    failure::{Failure, Result},
    tools,
};

/// Compiles the crate for Workers, and gives the module.
pub fn compile(build: &Build) -> Result<PathBuf> {
    let manifest = build.folder.join("Cargo.toml");
    let manifest = manifest.canonicalize().map_err(|error| Failure::local(format!("Cargo.toml: {error}")))?;
    let mut child = command(build)?
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::local(format!("cargo cannot be started: {error}")))?;
    let mut module = None;
    for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()) {
        let line = line.map_err(|error| Failure::local(format!("cargo was lost: {error}")))?;
        let message = serde_json::from_str::<Value>(&line).ok();
        module = message.and_then(|message| made(&message, &manifest)).or(module);
    }
    let status = child.wait().map_err(|error| Failure::local(format!("cargo was lost: {error}")))?;
    if !status.success() {
        return Err(Failure::local("the build has failed").next("See what cargo wrote above."));
    }
    module.ok_or_else(|| {
        Failure::local("cargo has made no module of WebAssembly")
            .next("Is this the folder of the Worker's own crate, and does it have a src/lib.rs?")
    })
}

fn command(build: &Build) -> Result<Command> {
    // Only rustup's own cargo understands `+nightly`.
    let rustup = build.unwinds.then(|| tools::in_path("cargo")).flatten();
    let mut command = Command::new(rustup.map_or_else(tools::cargo, Ok)?);
    if build.unwinds {
        let flags = env::var("RUSTFLAGS").unwrap_or_default();
        command.arg("+nightly").env("RUSTFLAGS", format!("{flags} -Cpanic=unwind"));
    }
    // Only the Worker: of a crate that is an `rlib` as well, cargo leaves out LTO without a warning.
    command.args(["rustc", "--lib", "--crate-type", "cdylib", "--target", tools::WASM]);
    command.arg("--message-format=json-render-diagnostics");
    match &build.profile {
        Profile::Dev => {}
        Profile::Release => drop(command.arg("--release")),
        // `cargo rustc` takes them for its own words, and would build tests.
        Profile::Named(name) if ["test", "bench", "check"].contains(&name.as_str()) => {
            return Err(Failure::usage(format!("'{name}' is a profile of cargo's own"))
                .next("Name one of Cargo.toml, or leave it out for release."));
        }
        Profile::Named(name) => drop(command.args(["--profile", name])),
    }
    if build.unwinds {
        command.args(["-Z", "build-std=std,panic_unwind"]);
    }
    // wasm-bindgen's macros reach promises through js-sys, which a Worker carries anyway.
    command.env("WASM_BINDGEN_USE_JS_SYS", "1");
    command.args(&build.arguments).current_dir(&build.folder).stdin(Stdio::null());
    Ok(command)
}

/// The module of the crate with this manifest, if a message of cargo's is about it.
fn made(message: &Value, manifest: &Path) -> Option<PathBuf> {
    let is_ours = message.get("reason")? == "compiler-artifact"
        && Path::new(message.get("manifest_path")?.as_str()?) == manifest;
    let mut files = message.get("filenames")?.as_array()?.iter().filter_map(Value::as_str).map(PathBuf::from);
    files.rfind(|file| is_ours && file.extension().is_some_and(|extension| extension == "wasm"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_profile(profile: Profile) -> Build {
        Build {
            folder: PathBuf::from("."),
            out: PathBuf::from("build"),
            optimizes: false,
            profile,
            unwinds: false,
            arguments: vec!["--locked".to_owned()],
        }
    }

    #[test]
    fn profiles_that_cargo_takes_for_tests_are_refused() {
        for (name, is_good) in [("test", false), ("bench", false), ("check", false), ("quick", true)] {
            let profile = Profile::Named(name.to_owned());
            assert_eq!(command(&of_profile(profile)).is_ok(), is_good, "{name}");
        }
    }

    #[test]
    fn a_crate_that_is_a_library_of_rust_as_well_is_still_linked_as_a_whole() {
        let command = command(&of_profile(Profile::Release)).expect("cargo is there");
        let arguments: Vec<_> = command.get_args().filter_map(|it| it.to_str()).collect();
        assert_eq!(arguments.first(), Some(&"rustc"), "{arguments:?}");
        assert!(arguments.windows(2).any(|it| it == ["--crate-type", "cdylib"]), "{arguments:?}");
        assert!(arguments.ends_with(&["--release", "--locked"]), "{arguments:?}");
    }

    #[test]
    fn the_module_is_that_of_the_crate_and_not_of_a_dependency() {
        let message = |manifest: &str, file: &str| json!({"reason": "compiler-artifact", "manifest_path": manifest, "filenames": ["a.rlib", file]});
        let ours = Path::new("/project/Cargo.toml");
        assert_eq!(made(&message("/project/Cargo.toml", "our.wasm"), ours), Some("our.wasm".into()));
        assert_eq!(made(&message("/engine/Cargo.toml", "its.wasm"), ours), None);
        assert_eq!(made(&message("/project/Cargo.toml", "our.so"), ours), None);
        assert_eq!(made(&json!({"reason": "build-finished"}), ours), None);
    }
}
