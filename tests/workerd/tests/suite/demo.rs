//! The tour of `just demo`, compared with one that was looked at: a project is made, built, run, changed and left.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use stepwell_workerd_tests::{
    TestResult,
    cli::{compare, stepwell_binary},
    free_port, repository_root,
};
use tokio::{process::Command, time::timeout};

/// The first build compiles all dependencies of a project, for which a small machine takes minutes.
const DEMO_TIMEOUT: Duration = Duration::from_secs(15 * 60);

#[tokio::test]
async fn the_tour_from_new_to_watch_reads_as_it_should() -> TestResult {
    let port = free_port()?;
    let demo = Command::new(repository_root().join("scripts/demo"))
        .env("STEPWELL_BIN", stepwell_binary()?)
        .env("STEPWELL_DEMO_PORT", port.to_string())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(DEMO_TIMEOUT, demo).await.context("the tour does not end")??;
    let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{stdout}\n--- and besides:\n{stderr}");
    compare("demo", &stdout.replace(&port.to_string(), "PORT"))?;
    assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_ok(), "a workerd was left behind");
    Ok(())
}
