//! The size of the release bundles, compressed, and how long a cold start takes: what Cloudflare limits, and what a
//! Worker's first caller waits for.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use stepwell_workerd_tests::{Workerd, repository_root};

use crate::system::System;

const BUNDLES: [&str; 3] = ["bench-all-in-one", "bench-engine", "bench-app"];

/// Cold starts of which the one in the middle counts.
const STARTS: usize = 9;

/// Prints the compressed size of each bundle and its cold start, and fails if one is too large.
pub async fn print() -> Result<()> {
    println!("Release bundles:");
    let status = Command::new(repository_root().join("scripts/bundle-sizes"))
        .args(BUNDLES)
        .status()
        .context("running scripts/bundle-sizes")?;
    ensure!(status.success(), "a bundle is too large, or missing: see `just bench-bundles`");
    println!("\nFrom the start of workerd to the first answer, in the middle of {STARTS}:");
    for system in [System::Bare, System::Stepwell, System::StepwellSplit] {
        let cold = cold_start(system).await.with_context(|| system.name())?;
        println!("  {:<24}{:>6} ms", system.name(), cold.as_millis());
    }
    Ok(())
}

/// From the start of the process to the answer of its first request.
async fn cold_start(system: System) -> Result<Duration> {
    let mut workerd = Workerd::start(&system.config(false, "")?).await?;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        workerd.kill();
        let client = workerd.http();
        let began = Instant::now();
        workerd.restart().await?;
        // The hand-written objects answer it too, with whatever they have to say.
        client.get("/api/health").await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times.get(STARTS / 2).copied().context("there were starts")
}
