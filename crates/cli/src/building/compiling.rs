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
            .next("Is `crate-type = [\"cdylib\", \"rlib\"]` in Cargo.toml?")
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
    command.args(["build", "--lib", "--target", tools::WASM, "--message-format=json-render-diagnostics"]);
    match &build.profile {
        Profile::Dev => {}
        Profile::Release => drop(command.arg("--release")),
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
