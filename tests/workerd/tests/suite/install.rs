//! What people install, installed: the npm packages and the crates as they would be published, into an empty project
//! that is made, built, served and asked. `just five-minutes` does the same without caches.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use stepwell_workerd_tests::{TestResult, cli::stepwell_binary, free_port, repository_root};
use tokio::{process::Command, time::timeout};

/// The first build compiles all dependencies of a project, for which a small machine takes minutes. Later ones, and those
/// after the tour of `demo.rs`, compile only our own crates.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(30 * 60);

#[tokio::test]
async fn packages_as_they_are_published_lead_to_a_first_run() -> TestResult {
    let script = Command::new(repository_root().join("scripts/five-minutes"))
        .arg("--warm")
        .env("STEPWELL_BIN", stepwell_binary()?)
        .env("STEPWELL_FIVE_MINUTES_PORT", free_port()?.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(INSTALL_TIMEOUT, script).await.context("it does not end")??;
    let said = format!("{}{}", String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{said}");
    for line in ["$ npx stepwell start greet '\"Ada\"' --watch", "\"Hello, Ada!\"", " s of CPU  in all"] {
        assert!(said.contains(line), "'{line}' is missing in:\n{said}");
    }
    Ok(())
}
