//! Where the repository keeps what the tests run.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The folder that holds the workspace.
pub fn repository_root() -> &'static Path {
    // This crate lives two folders below the root.
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The `workerd` binary: `WORKERD_BIN`, or the one that npm installed.
pub fn workerd_binary() -> Result<PathBuf> {
    let modules = repository_root().join("node_modules");
    let named = std::env::var_os("WORKERD_BIN").map_or_else(|| modules.join(".bin/workerd"), PathBuf::from);
    // npm's `.bin/workerd` is a Node script that starts the binary: killing its pid would leave workerd
    // itself running. The binary lies in the package of the platform.
    let native = modules.join(format!("@cloudflare/workerd-{}/bin/workerd", platform_package()));
    let binary = if named.ends_with(".bin/workerd") && native.exists() { native } else { named };
    ensure!(binary.exists(), "there is no workerd at {}: run `just setup`", binary.display());
    Ok(binary)
}

/// Node: the one that npm installed, or any other.
pub fn node_binary() -> Result<PathBuf> {
    // npm's `.bin/node` is a link to the binary itself, so its pid is Node's.
    let installed = repository_root().join("node_modules/.bin/node");
    Ok(if installed.exists() { std::fs::canonicalize(installed)? } else { "node".into() })
}

/// The bundle of a Worker, in the checkout's own `target/bundles/NAME` wherever cargo builds.
pub fn bundle(name: &str) -> Result<PathBuf> {
    let folder = repository_root().join("target/bundles").join(name);
    for file in ["index.js", "index_bg.wasm"] {
        ensure!(
            folder.join(file).exists(),
            "the bundle {} has no {file}: run `just workerd-test`, which builds it first",
            folder.display()
        );
    }
    Ok(folder)
}

fn platform_package() -> &'static str {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "darwin-arm64",
        ("macos", _) => "darwin-64",
        (_, "aarch64") => "linux-arm64",
        _ => "linux-64",
    }
}
