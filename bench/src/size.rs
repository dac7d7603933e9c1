//! The size of the release bundles, compressed: what Cloudflare limits, and loads at a cold start.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use stepwell_workerd_tests::bundle;

use crate::load::as_f64;

/// What each bundle has to stay below.
const BYTES_MAX: usize = 1024 * 1024;

const BUNDLES: [(&str, &str); 3] = [
    ("bench-all-in-one", "engine and app in one"),
    ("bench-engine", "engine alone"),
    ("bench-app", "app alone"),
];

/// Prints the compressed size of each bundle, and fails if one is too large.
pub fn print() -> Result<()> {
    println!("Release bundles, gzip:");
    for (name, what) in BUNDLES {
        let folder = bundle(name).context("the bench's bundles are built by `just bench-bundles`")?;
        let bytes = compressed(&folder.join("index.js"))? + compressed(&folder.join("index_bg.wasm"))?;
        println!("  {what:<24}{:>8.1} KiB", as_f64(bytes) / 1024.0);
        ensure!(bytes < BYTES_MAX, "{name} has {bytes} bytes, and may have {BYTES_MAX}");
    }
    Ok(())
}

fn compressed(file: &Path) -> Result<usize> {
    let output = Command::new("gzip")
        .arg("--stdout")
        .arg(file)
        .stderr(Stdio::inherit())
        .output()
        .context("running gzip")?;
    ensure!(output.status.success(), "gzip could not read {}", file.display());
    Ok(output.stdout.len())
}
