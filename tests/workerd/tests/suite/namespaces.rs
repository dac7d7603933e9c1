//! The deletion of a namespace, on the real workerd, killed at any moment.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Workerd,
    access::{code, key, namespace},
    engine::{Client, Engine, Form},
    following::{Follower, Way},
    sqlite,
};

/// Two generations, so that cells of both are emptied.
const CELLS: &str = "3,4";

/// Fills a namespace: some runs are over, some sleep, some wait, some have children.
async fn fill(admin: &Client, runs: u32) -> Result<()> {
    for number in 0..runs {
        match number % 4 {
            0 => admin.start_id("nap", json!(600_000)).await?,
            1 => admin.start_id("wait", json!(600_000)).await?,
            2 => admin.start_id("ten", Value::Null).await?,
            _ => {
                let family =
                    json!({ "ledger": null, "name": "a", "children": [2], "lives": 0, "child_lives": null });
                admin.start_id("family", family).await?
            }
        };
    }
    Ok(())
}

/// The objects whose databases hold anything of a namespace, while workerd is down.
fn left_of(workerd: &Workerd, name: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for class in ["Cell", "Station"] {
        for entry in fs::read_dir(workerd.disk().join(class))? {
            let path = entry?.path();
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !file.ends_with(".sqlite") || file == "metadata.sqlite" {
                continue;
            }
            let tables = sqlite::sql(
                &path,
                "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 4) <> '_cf_'",
            )?;
            if tables.is_empty() {
                continue;
            }
            let meta = sqlite::sql(&path, "SELECT key, value FROM meta")?;
            let is_of =
                |line: &str| line == format!("namespace|{name}") || line == format!("address|catalog/{name}");
            if meta.lines().any(is_of) {
                left.push(format!("{class}/{file}: {}", tables.replace('\n', ", ")));
            }
        }
    }
    Ok(left)
}

async fn until_it_is_gone(root: &Client, name: &str) -> Result<()> {
    for _ in 0..600 {
        let shown = root.get(&format!("/api/namespaces/{name}")).await?;
        if shown.status == 404 {
            return Ok(());
        }
        ensure!(shown.json()?["deleting"].is_object(), "{}", shown.body);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{name} is still there after a minute")
}

#[tokio::test]
async fn a_namespace_is_deleted_with_all_that_is_in_it_and_its_name_begins_anew() -> Result<()> {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", CELLS)]).await?;
    let root = engine.client();
    let (acme, other) = (namespace(&root, "acme").await?, namespace(&root, "other").await?);
    fill(&acme, 200).await?;
    fill(&other, 20).await?;
    let (_, reader) = key(&acme, &["read"]).await?;
    let run = acme.start_id("wait", json!(600_000)).await?;
    acme.until(&run, "waiting").await?;
    let mut follower =
        Follower::open_as(&reader, &format!("/api/executions/{run}/stream"), Way::Socket, None).await?;
    ensure!(follower.next().await?.is_some(), "it shows nothing");
    let kept = other.list("", 200).await?.len();
    engine.engine.kill();
    ensure!(!left_of(&engine.engine, "acme")?.is_empty(), "this test would find nothing");
    engine.engine.restart().await?;
    let root = engine.client();
    let (acme, other) = (root.with_key(acme.key()), root.with_key(other.key()));
    let mut follower = Follower::open_as(
        &root.with_key(reader.key()),
        &format!("/api/executions/{run}/stream"),
        Way::Socket,
        None,
    )
    .await?;
    ensure!(follower.next().await?.is_some(), "it shows nothing");

    let refused = acme.request("DELETE", "/api/namespaces/acme", "").await?;
    ensure!(code(&refused)? == "forbidden", "{}", refused.body);
    let refused = root.request("DELETE", "/api/namespaces/default", "").await?;
    ensure!(code(&refused)? == "invalid_request", "{}", refused.body);
    let deleted = root.request("DELETE", "/api/namespaces/acme", "").await?;
    ensure!(deleted.status == 202, "{} {}", deleted.status, deleted.body);
    ensure!(deleted.json()?["deleting"]["since"].is_u64(), "{}", deleted.body);
    // Deleted, or about to be: neither takes anything.
    for refused in [
        acme.start("ten", &Value::Null, None, 0).await?,
        acme.get("/api/executions").await?,
        acme.signal(&run, "go", &json!("x"), None).await?,
        acme.request("POST", "/api/keys", r#"{"name":"a","scopes":["read"]}"#).await?,
    ] {
        ensure!(
            ["namespace_deleting", "unauthorized"].contains(&code(&refused)?.as_str()),
            "{}",
            refused.body
        );
    }
    until_it_is_gone(&root, "acme").await?;
    ensure!(follower.rest().await.is_ok(), "the stream has ended");
    let gone = root.request("DELETE", "/api/namespaces/acme", "").await?;
    ensure!(code(&gone)? == "namespace_not_found", "{}", gone.body);
    let log = root.get("/api/audit").await?.body;
    ensure!(log.contains("namespace_deleting") && log.contains("namespace_deleted"), "{log}");

    engine.engine.kill();
    let left = left_of(&engine.engine, "acme")?;
    ensure!(left.is_empty(), "{left:?}");
    engine.engine.restart().await?;
    let root = engine.client();
    let (before, other) = (root.with_key(acme.key()), root.with_key(other.key()));
    let anew = namespace(&root, "acme").await?;
    ensure!(anew.list("", 200).await?.is_empty(), "the new namespace is empty");
    let refused = before.get("/api/executions").await?;
    ensure!(code(&refused)? == "unauthorized", "an old key stays useless: {}", refused.body);
    let refused = anew.show(&run, 0).await?;
    ensure!(code(&refused)? == "run_not_found", "{}", refused.body);
    let ended = anew.start("ten", &Value::Null, None, 10).await?.json()?;
    ensure!(ended["output"] == 45, "{ended}");
    fill(&anew, 12).await?;
    ensure!(other.list("", 200).await?.len() == kept, "the other namespace is as it was");
    Ok(())
}

#[tokio::test]
async fn a_deletion_survives_a_kill_at_any_moment() -> Result<()> {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", CELLS)]).await?;
    let other = namespace(&engine.client(), "other").await?.key().to_owned();
    fill(&engine.client().with_key(&other), 12).await?;
    let mut cut_short = 0;
    for (round, ms) in [0_u64, 3, 6, 10, 15, 25, 60].into_iter().enumerate() {
        let (root, name) = (engine.client(), format!("acme-{round}"));
        let acme = namespace(&root, &name).await?;
        fill(&acme, 40).await?;
        let path = format!("/api/namespaces/{name}");
        let asked = {
            let (root, path) = (root.clone(), path.clone());
            tokio::spawn(async move { root.request("DELETE", &path, "").await.map(|answer| answer.status) })
        };
        tokio::time::sleep(Duration::from_millis(ms)).await;
        engine.engine.kill();
        let was_accepted = asked.await?.is_ok_and(|status| status == 202);
        engine.engine.restart().await?;
        let root = engine.client();
        let shown = root.get(&path).await?;
        if was_accepted {
            ensure!(
                shown.status == 404 || shown.json()?["deleting"].is_object(),
                "it is forgotten: {}",
                shown.body
            );
        }
        if shown.status == 200 && shown.json()?["deleting"].is_object() {
            cut_short += 1;
        } else if shown.status == 200 {
            let again = root.request("DELETE", &path, "").await?;
            ensure!(again.status == 202, "{}", again.body);
        }
        until_it_is_gone(&root, &name).await?;
        let refused = root.with_key(acme.key()).get("/api/executions").await?;
        ensure!(code(&refused)? == "unauthorized", "{}", refused.body);
        engine.engine.kill();
        let left = left_of(&engine.engine, &name)?;
        ensure!(left.is_empty(), "after {ms} ms: {left:?}");
        engine.engine.restart().await?;
    }
    println!("{cut_short} deletions were cut short");
    let runs = engine.client().with_key(&other).list("", 200).await?;
    ensure!(runs.len() >= 12, "the other namespace is as it was");
    Ok(())
}

#[tokio::test]
async fn the_command_line_deletes_a_namespace_and_waits_for_its_end() -> Result<()> {
    use stepwell_workerd_tests::cli::Terminal;
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let root = engine.client();
    fill(&namespace(&root, "acme").await?, 12).await?;
    let mut terminal = Terminal::open(&engine.engine.address())?;
    terminal.set_key(root.key());
    let refused = terminal.run(&["namespaces", "delete", "acme"]).await.context("nobody types the name")?;
    ensure!(refused.code == Some(2), "{refused:?}");
    ensure!(root.get("/api/namespaces").await?.body.contains("acme"), "nothing was deleted");
    let deleted = terminal.run(&["namespaces", "delete", "acme", "--yes", "--wait"]).await?;
    ensure!(deleted.code == Some(0), "{deleted:?}");
    ensure!(deleted.stdout.contains("nothing is left of acme"), "{deleted:?}");
    ensure!(root.get("/api/namespaces/acme").await?.status == 404, "it is gone");
    Ok(())
}

#[tokio::test]
async fn a_namespace_is_deleted_though_a_cell_does_not_know_its_life_any_more() -> Result<()> {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", CELLS)]).await?;
    let root = engine.client();
    let acme = namespace(&root, "acme").await?;
    fill(&acme, 20).await?;
    engine.engine.kill();
    let mut damaged = 0;
    for path in sqlite::databases(&engine.engine)? {
        if sqlite::sql(&path, "SELECT count(*) FROM sqlite_master WHERE name = 'meta'")? == "1"
            && sqlite::sql(&path, "SELECT count(*) FROM meta WHERE key = 'life'")? == "1"
        {
            sqlite::change(&path, "UPDATE meta SET value = 'x' WHERE key = 'life'")?;
            damaged += 1;
        }
    }
    ensure!(damaged > 0, "no cell knows its life");
    engine.engine.restart().await?;
    let root = engine.client();
    let deleted = root.request("DELETE", "/api/namespaces/acme", "").await?;
    ensure!(deleted.status == 202, "{} {}", deleted.status, deleted.body);
    until_it_is_gone(&root, "acme").await?;
    engine.engine.kill();
    ensure!(left_of(&engine.engine, "acme")?.is_empty(), "{:?}", left_of(&engine.engine, "acme")?);
    Ok(())
}

#[tokio::test]
async fn whoever_knew_a_secret_of_a_namespace_does_not_know_that_of_the_next_one_of_its_name() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let root = engine.client();
    let mut known = Vec::new();
    for _ in 0..2 {
        let acme = namespace(&root, "acme").await?;
        let secret = acme.get("/api/queues/stepwell.webhooks/secret").await?.json()?["secret"].clone();
        ensure!(secret.is_string() && !known.contains(&secret), "{secret} of {known:?}");
        known.push(secret);
        root.request("DELETE", "/api/namespaces/acme", "").await?;
        until_it_is_gone(&root, "acme").await?;
    }
    Ok(())
}
