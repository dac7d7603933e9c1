//! The page of the API, `/api/docs`, in a real Chromium: searched, a route tried with a key, without a violation of
//! accessibility in both themes and on a phone. `docs_page.mjs` is the visitor; its screenshots are in
//! `target/screenshots/api`.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use stepwell_workerd_tests::{
    TestResult,
    engine::{Engine, Form, KEY},
    node_binary, repository_root,
};
use tokio::{process::Command, time::timeout};

/// Chromium takes about ten seconds; a machine under load may need much longer.
const VISIT_TIMEOUT: Duration = Duration::from_secs(3 * 60);

#[tokio::test]
async fn people_find_try_and_read_the_routes() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let visit = Command::new(node_binary()?)
        .arg(repository_root().join("tests/workerd/docs_page.mjs"))
        .args([engine.client().http().url("").trim_end_matches('/'), KEY, "ten"])
        .arg(repository_root().join("target/screenshots/api"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(VISIT_TIMEOUT, visit).await.context("the visit does not end")??;
    let said = format!("{}{}", String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no violation in 2 themes and 2 sizes"), "{said}");
    Ok(())
}
