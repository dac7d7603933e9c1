//! What a key for one workflow learns of the others, and what the limits of a namespace hold back, on the real workerd.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    access::{code, key, namespace},
    engine::{Engine, Form},
};

#[tokio::test]
async fn a_key_for_one_workflow_pages_through_its_runs_as_if_there_were_no_others() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (_, only_nap) = key(&admin, &["read:nap"]).await?;
    let mut own = BTreeSet::new();
    for _ in 0..3 {
        own.insert(admin.start_id("nap", json!(600_000)).await?);
        for _ in 0..4 {
            admin.start_id("wait", json!(600_000)).await?;
        }
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    for _ in 0..10 {
        let page = only_nap.get(&format!("/api/executions?limit=1{cursor}")).await?.json()?;
        let runs = page["executions"].as_array().context("a list")?;
        let next = page["cursor"].as_str();
        ensure!(runs.len() == 1 || next.is_none(), "an empty page tells that there are others: {page}");
        seen.extend(runs.iter().filter_map(|run| run["id"].as_str()).map(str::to_owned));
        let Some(next) = next else { break };
        cursor = format!("&cursor={next}");
    }
    ensure!(
        seen.len() == own.len() && seen.into_iter().collect::<BTreeSet<_>>() == own,
        "it sees its own runs"
    );
    Ok(())
}

#[tokio::test]
async fn a_missing_workflow_lists_only_the_names_that_the_caller_may_see() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    for (scopes, names) in [
        (&["write"][..], &["nap", "wait", "ten"][..]),
        (&["write:nop", "read:nap"], &["nap"]),
        (&["write:nop"], &[]),
    ] {
        let (_, client) = key(&admin, scopes).await?;
        let refused = client.start("nop", &Value::Null, None, 0).await?;
        ensure!(code(&refused)? == "workflow_not_found", "{}", refused.body);
        for name in ["nap", "wait", "ten"] {
            ensure!(refused.body.contains(name) == names.contains(&name), "{scopes:?}: {}", refused.body);
        }
    }
    ensure!(root.start("nop", &Value::Null, None, 0).await?.body.contains("wait"), "root sees all");
    Ok(())
}

#[tokio::test]
async fn runs_that_live_again_count_against_the_limit() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    let mut ended = Vec::new();
    for _ in 0..4 {
        let id = admin.start_id("wait", json!(600_000)).await?;
        admin.cancel(&id).await?.json()?;
        ended.push(id);
    }
    let limits = json!({ "live_runs": 2 }).to_string();
    root.request("PUT", "/api/namespaces/acme/limits", &limits).await?.json()?;
    let restart = |id: &str| format!("/api/executions/{id}/restart");
    for id in &ended[..2] {
        admin.post_json(&restart(id), &json!({})).await?;
    }
    let refused = admin.request("POST", &restart(&ended[2]), "").await?;
    ensure!((refused.status, code(&refused)?.as_str()) == (429, "limit_reached"), "{}", refused.body);
    let alive = admin.request("POST", &restart(&ended[0]), "").await?;
    ensure!((alive.status, code(&alive)?.as_str()) == (409, "wrong_status"), "{}", alive.body);
    Ok(())
}

#[tokio::test]
async fn a_bulk_brings_back_no_more_runs_than_may_live() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    for _ in 0..6 {
        let id = admin.start_id("wait", json!(600_000)).await?;
        admin.cancel(&id).await?.json()?;
    }
    // The bulk is a run, too.
    let limits = json!({ "live_runs": 3 }).to_string();
    root.request("PUT", "/api/namespaces/acme/limits", &limits).await?.json()?;
    let bulk = admin
        .post_json("/api/bulk", &json!({ "action": "restart", "filter": { "workflow": "wait" } }))
        .await?;
    let bulk = admin.until(bulk["id"].as_str().context("it has an id")?, "completed").await?;
    let changed = bulk["output"]["changed"].as_u64().context("a number")?;
    ensure!((1..=3).contains(&changed), "{bulk}");
    ensure!(bulk["output"]["unchanged"] == 6 - changed, "{bulk}");
    Ok(())
}
