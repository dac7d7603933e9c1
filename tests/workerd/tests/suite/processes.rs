//! What object and program see of each other when they run in two workerd processes and one is killed.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use stepwell_workerd_tests::{Listener, Object, TestResult, Workerd, probe_app, probe_with_remote_app};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What a caller is told when the other process has died or does not run. The error carries
/// `retryable` and, unlike an error that the program threw, not `remote`.
const CONNECTION_LOST: &str = "Error: Network connection lost. [retryable]";

/// A death is seen in milliseconds; a loaded machine may be slow, but not this slow.
const SOON: Duration = Duration::from_secs(3);

/// Far more commits than are made before the kill.
const ENDLESS: u32 = 1_000_000;

async fn two_processes() -> Result<(Workerd, Workerd)> {
    let app = Workerd::start(&probe_app()?).await?;
    let engine = Workerd::start(&probe_with_remote_app(&app)?).await?;
    Ok((engine, app))
}

fn activate_endlessly(object: &Object, report: &str) -> JoinHandle<Result<Value>> {
    let (object, report) = (object.clone(), report.to_owned());
    tokio::spawn(async move { object.activate("APP", ENDLESS, 0, Some(&report)).await })
}

async fn commits_once(object: &Object) -> Result<()> {
    let answer = object.activate("APP", 1, 0, None).await?;
    assert_eq!(answer["ok"], "committed 1", "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_session_works_between_two_processes() -> TestResult {
    let (engine, _app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    let answer = object.activate("APP", 3, 0, None).await?;
    assert_eq!(answer["ok"], "committed 3", "{answer}");
    let rows = object.rows("SELECT text FROM numbers ORDER BY n").await?;
    assert_eq!(rows, [["1"], ["2"], ["3"]]);
    Ok(())
}

#[tokio::test]
async fn an_error_of_the_program_is_marked_remote() -> TestResult {
    let (engine, _app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    let answer = object.ask("activate?target=APP", "not an order").await?;
    assert_eq!(answer["rejected"], "Error: expected ident at line 1 column 2 [remote]", "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_killed_program_rejects_the_pending_call_at_once() -> TestResult {
    let (engine, mut app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    let mut reports = Listener::start().await?;
    let activation = activate_endlessly(&object, reports.url());
    let mut held = reports.next().await;
    app.kill();
    let answer = timeout(SOON, activation).await???;
    assert_eq!(answer["rejected"], CONNECTION_LOST, "{answer}");
    timeout(SOON, held.hung_up()).await?;

    // The object lives on, with what was committed before.
    object.rows("INSERT INTO numbers(text) VALUES('later')").await?;
    let rows = object.rows("SELECT text FROM numbers ORDER BY n").await?;
    assert_eq!(rows, [["1"], ["later"]]);
    Ok(())
}

#[tokio::test]
async fn a_call_to_a_process_that_is_down_rejects_at_once() -> TestResult {
    let (engine, mut app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    commits_once(&object).await?;
    app.kill();
    let answer = timeout(SOON, object.activate("APP", 1, 0, None)).await??;
    assert_eq!(answer["rejected"], CONNECTION_LOST, "{answer}");
    app.restart().await?;
    commits_once(&object).await?;
    Ok(())
}

#[tokio::test]
async fn a_binding_reconnects_to_a_restarted_process() -> TestResult {
    let (engine, mut app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    commits_once(&object).await?;
    // No call fails in between: a connection kept from before would break this one.
    app.restart().await?;
    commits_once(&object).await?;
    Ok(())
}

#[tokio::test]
async fn a_program_is_cancelled_when_its_object_is_killed() -> TestResult {
    let (mut engine, app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    let mut reports = Listener::start().await?;
    let activation = activate_endlessly(&object, reports.url());
    let mut held = reports.next().await;
    engine.kill();
    activation.await?.expect_err("the test's own connection went with the process");
    // The program's own request is given up: it is not resumed, so no error ever reaches it.
    timeout(SOON, held.hung_up()).await?;
    held.answer();
    timeout(Duration::from_secs(1), reports.next()).await.expect_err("a cancelled program reports nothing");
    assert_eq!(app.log(), "", "a cancelled program leaves no trace");

    engine.restart().await?;
    commits_once(&Object::new(&engine, "a")).await?;
    Ok(())
}

#[tokio::test]
async fn a_paused_program_leaves_the_call_pending() -> TestResult {
    let (engine, app) = two_processes().await?;
    let object = Object::new(&engine, "a");
    commits_once(&object).await?;
    app.pause()?;
    let mut activation = {
        let object = object.clone();
        tokio::spawn(async move { object.activate("APP", 1, 0, None).await })
    };
    timeout(Duration::from_secs(2), &mut activation)
        .await
        .expect_err("nothing ends a call to a process that only stands still");
    app.resume()?;
    let answer = timeout(SOON, activation).await???;
    assert_eq!(answer["ok"], "committed 1", "{answer}");
    Ok(())
}
