//! What an app declares: how it comes to hold, what a person can do to it, and what no deploy undoes.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    cli::Terminal,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// How soon the engine reads by itself what an app declares, after something has led it there.
const READ_WITHIN: Duration = Duration::from_secs(5);

async fn sync(client: &Client, query: &str) -> Result<Value> {
    client.send_post(&format!("/api/sync{query}"), "").await?.json()
}

/// The names of one part of a plan.
fn names(part: &Value) -> Vec<&str> {
    part.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

/// Waits until the app declares nothing that does not hold.
async fn until_it_holds(client: &Client) -> Result<()> {
    let began = Instant::now();
    loop {
        let plan = sync(client, "?dry_run=true").await?;
        if ["added", "changed", "retired"].iter().all(|part| plan[part] == json!([])) {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < READ_WITHIN, "it is not read: {plan}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn status(client: &Client, workflow: &str) -> Result<Value> {
    Ok(client.get(&format!("/api/workflows/{workflow}")).await?.json()?["status"].clone())
}

#[tokio::test]
async fn a_deploy_changes_what_is_declared_and_leaves_paused_what_a_person_has_paused() -> TestResult {
    let mut engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    for _ in 0..2 {
        let plan = sync(&client, "?dry_run=true").await?;
        assert_eq!(plan["outcome"], "planned");
        assert!(names(&plan["added"]).contains(&"termed"), "a dry run stores nothing: {plan}");
    }
    let plan = sync(&client, "").await?;
    assert_eq!((&plan["outcome"], &plan["version"]["id"]), (&json!("applied"), &json!("version-10")));
    assert!(names(&plan["added"]).contains(&"termed"), "{plan}");
    until_it_holds(&client).await?;

    let paused = client.post_json("/api/workflows/termed/pause", &Value::Null).await?;
    assert_eq!(paused["paused"]["by"], "root");
    let refused = client.start("termed", &Value::Null, None, 0).await?;
    assert_eq!(refused.problem()?, (409, "workflow_paused".into()));
    client.start_id("withdrawn", Value::Null).await?;

    engine.deploy_version("test-app-changed", 11).await?;
    let plan = sync(&client, "").await?;
    assert_eq!(names(&plan["retired"]), ["withdrawn"]);
    assert_eq!(names(&plan["changed"]), ["termed"]);
    let changes = json!([
        "key_required: none -> true",
        "retention_ms: 604800000 -> none",
        "timeout_ms: 3600000 -> 7200000"
    ]);
    assert_eq!(plan["changed"][0]["changes"], changes);
    assert_eq!((names(&plan["kept_paused"]), names(&plan["added"])), (vec!["termed"], vec![]));
    assert_eq!(status(&client, "withdrawn").await?, "retired");
    // Starts go by what the app said up to ten seconds ago.
    let began = Instant::now();
    while client.start("withdrawn", &Value::Null, None, 0).await?.status != 404 {
        assert!(began.elapsed() < Duration::from_secs(30), "it is still started");
        sleep(Duration::from_millis(500)).await;
    }

    engine.engine.kill();
    engine.engine.restart().await?;
    assert_eq!(status(&client, "termed").await?, "paused");
    let refused = client.start("termed", &Value::Null, Some("once"), 0).await?;
    assert_eq!(refused.problem()?, (409, "workflow_paused".into()), "a deploy or a kill has resumed it");
    client.post_json("/api/workflows/termed/resume", &Value::Null).await?;
    assert_eq!(client.start("termed", &Value::Null, Some("once"), 0).await?.status, 201);

    engine.deploy_version("test-app", 12).await?;
    assert_eq!(names(&sync(&client, "").await?["added"]), ["withdrawn"], "it has come back");
    assert_eq!(status(&client, "withdrawn").await?, "active");
    let audit = client.get("/api/audit").await?.json()?;
    let actions: Vec<_> = audit["records"].as_array().context("lines")?.iter().collect();
    assert!(actions.iter().any(|line| line["action"] == "workflow_paused" && line["actor"] == "root"));
    assert!(actions.iter().any(|line| line["detail"] == "added: withdrawn; changed: termed"), "{audit}");
    Ok(())
}

#[tokio::test]
async fn the_engine_reads_by_itself_what_an_app_declares() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        // With the first start.
        let engine = Engine::start(form, 1).await?;
        let client = engine.client();
        client.start_id("nap", json!(1)).await?;
        until_it_holds(&client).await?;
        // By the sweep, if nobody starts anything.
        let engine = Engine::start_with_clock(form, 1).await?;
        engine.strike().await?;
        until_it_holds(&engine.client()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_older_version_holds_only_if_a_person_asks_for_it() -> TestResult {
    let mut engine = Engine::start_with_clock(Form::Split, 1).await?;
    let client = engine.client();
    sync(&client, "").await?;
    engine.deploy_version("test-app-changed", 9).await?;
    engine.strike().await?;
    let plan = sync(&client, "?dry_run=true").await?;
    assert_eq!(names(&plan["retired"]), ["withdrawn"], "the older version was taken: {plan}");
    assert_eq!(sync(&client, "").await?["outcome"], "applied");
    until_it_holds(&client).await?;
    engine.deploy_version("test-app", 11).await?;
    engine.strike().await?;
    until_it_holds(&client).await?;
    Ok(())
}

#[tokio::test]
async fn a_pause_is_of_one_namespace_and_takes_an_admin() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let made = root.post_json("/api/namespaces", &json!({"name": "acme"})).await?;
    let admin = root.with_key(made["admin"]["key"].as_str().context("a key")?);
    let key = |scope: &str| json!({"name": scope, "scopes": [scope]});
    let writer = admin.post_json("/api/keys", &key("write")).await?;
    let writer = root.with_key(writer["key"].as_str().context("a key")?);
    assert_eq!(writer.send_post("/api/workflows/nap/pause", "").await?.problem()?.0, 403);
    assert_eq!(admin.send_post("/api/workflows/nap/pause", "").await?.status, 200);
    let refused = writer.start("nap", &json!(1), None, 0).await?;
    assert_eq!(refused.problem()?, (409, "workflow_paused".into()));
    assert_eq!(root.start("nap", &json!(1), None, 0).await?.status, 201, "another namespace");
    // What the app declares belongs to the default namespace; there, a key that may write is enough.
    assert_eq!(admin.send_post("/api/sync", "").await?.problem()?, (403, "forbidden".into()));
    for (scope, status) in [("read", 403), ("write", 200)] {
        let made = root.post_json("/api/namespaces/default/keys", &key(scope)).await?;
        let client = root.with_key(made["key"].as_str().context("a key")?);
        assert_eq!(client.send_post("/api/sync", "").await?.status, status, "{scope}");
        assert_eq!(client.send_post("/api/sync?dry_run=true", "").await?.status, 200, "{scope}");
        let both = client.send_post("/api/sync?dry_run=true&dry_run=false", "").await?;
        assert_eq!(both.status, status, "{scope}");
    }
    Ok(())
}

#[tokio::test]
async fn a_manifest_with_mistakes_is_refused_with_all_of_them() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let manifest =
        json!({"protocol": 1, "workflows": [{"name": "a"}, {"name": "a"}, {"name": "stepwell.b"}]});
    let answer = engine.client().send_post("/api/sync?dry_run=true", &manifest.to_string()).await?;
    assert_eq!(answer.problem()?, (422, "invalid_manifest".into()));
    assert!(
        answer.body.contains("'a' is declared twice") && answer.body.contains("'stepwell.b'"),
        "{}",
        answer.body
    );
    Ok(())
}

#[tokio::test]
async fn a_manifest_is_not_read_for_a_key_that_may_not_send_one() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let key = json!({"name": "weak", "scopes": ["read:nap"]});
    let made = root.post_json("/api/namespaces/default/keys", &key).await?;
    let weak = root.with_key(made["key"].as_str().context("a key")?);
    // The key was found good a moment ago, so this isolate knows it.
    weak.get("/api/executions").await?.json()?;
    for body in ["no JSON at all", r#"{"protocol": 1, "workflows": [{"name": ""}]}"#] {
        let refused = weak.send_post("/api/sync?dry_run=true", body).await?;
        assert_eq!(refused.problem()?, (403, "forbidden".into()), "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn a_start_that_the_key_does_not_allow_passes_no_manifest_on() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let made = root.post_json("/api/namespaces", &json!({"name": "acme"})).await?;
    let admin = root.with_key(made["admin"]["key"].as_str().context("a key")?);
    let made = admin.post_json("/api/keys", &json!({"name": "weak", "scopes": ["write:a"]})).await?;
    let weak = root.with_key(made["key"].as_str().context("a key")?);
    // The key was found good a moment ago, so this isolate knows it.
    weak.get("/api/executions").await?.json()?;
    for name in ["x0", "x1", "nap"] {
        let refused = weak.start(name, &json!(1), None, 0).await?;
        assert_eq!(refused.problem()?, (403, "forbidden".into()), "{name}");
    }
    sleep(Duration::from_millis(500)).await;
    let plan = sync(&root, "?dry_run=true").await?;
    assert!(names(&plan["added"]).contains(&"nap"), "it was passed on: {plan}");
    // Whoever may start something passes it on, and the log does not take the app for a person.
    root.start_id("nap", json!(1)).await?;
    until_it_holds(&root).await?;
    let log = root.get("/api/audit").await?.json()?;
    let records = log["records"].as_array().context("records")?;
    let synced: Vec<_> = records.iter().filter(|one| one["action"] == "manifest_synced").collect();
    assert_eq!(synced.iter().map(|one| &one["actor"]).collect::<Vec<_>>(), ["app"], "{log}");
    Ok(())
}

#[tokio::test]
async fn a_start_that_is_repeated_while_its_workflow_is_paused_gets_its_run() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let first = client.start("nap", &json!(1), Some("k"), 0).await?;
    assert_eq!(first.status, 201);
    client.post_json("/api/workflows/nap/pause", &Value::Null).await?;
    let again = client.start("nap", &json!(1), Some("k"), 0).await?;
    assert_eq!((again.status, &again.json()?["id"]), (200, &first.json()?["id"]));
    let other_input = client.start("nap", &json!(2), Some("k"), 0).await?;
    assert_eq!(other_input.problem()?.1, "idempotency_key_reused");
    for key in [Some("new"), None] {
        let refused = client.start("nap", &json!(1), key, 0).await?;
        assert_eq!(refused.problem()?, (409, "workflow_paused".into()));
    }
    // What was refused has left nothing.
    client.post_json("/api/workflows/nap/resume", &Value::Null).await?;
    assert_eq!(client.start("nap", &json!(1), Some("new"), 0).await?.status, 201);
    Ok(())
}

#[tokio::test]
async fn the_command_line_checks_an_input_before_it_starts_a_run() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let terminal = Terminal::open(&engine.engine.address())?;
    let wrong = terminal.quietly(&["start", "mixed", r#"{"ledger": 7}"#]).await?;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("/ledger: 7 is not of type string"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("\"items\" is missing"), "{}", wrong.stderr);
    assert_eq!(terminal.quietly(&["list", "--json"]).await?.stdout.matches("\"id\"").count(), 0);
    let unchecked = terminal.quietly(&["start", "mixed", r#"{"ledger": 7}"#, "--no-check"]).await?;
    assert_eq!(unchecked.code, Some(0), "{unchecked:?}");
    let good = terminal.quietly(&["start", "nap", "1"]).await?;
    assert_eq!(good.code, Some(0), "{good:?}");
    let paused = terminal.quietly(&["workflows", "pause", "nap"]).await?;
    assert!(paused.stdout.starts_with("nap is paused since "), "{paused:?}");
    let refused = terminal.quietly(&["start", "nap", "1"]).await?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let listed = terminal.quietly(&["workflows", "list"]).await?;
    assert!(listed.stdout.lines().any(|line| line.starts_with("nap ") && line.ends_with("paused by root")));
    assert_eq!(terminal.quietly(&["workflows", "resume", "nap"]).await?.stdout, "nap is active\n");
    Ok(())
}
