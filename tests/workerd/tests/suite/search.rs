//! Finding runs: by workflow, status, tag, time and attributes, page by page; and counting them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::engine::{Client, Engine, Form};

fn ids(runs: &[Value]) -> Vec<String> {
    runs.iter().map(|run| run["id"].as_str().unwrap_or_default().to_owned()).collect()
}

fn count(metrics: &Value, workflow: &str) -> BTreeMap<String, u64> {
    serde_json::from_value(metrics["workflows"][workflow].clone()).unwrap_or_default()
}

/// Waits until a search finds this run.
async fn found_soon(client: &Client, query: &str, run: &str) -> Result<()> {
    let began = Instant::now();
    while ids(&client.list(query, 50).await?) != [run] {
        ensure!(began.elapsed() < Duration::from_secs(10), "{run} is never found by {query}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_run_is_found_by_what_it_says_of_itself() -> Result<()> {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 3).await?;
        let client = engine.client();
        let told = |customer: &str, n: u32| json!([["customer", customer], ["n", n.to_string()]]);
        let mut acme = BTreeSet::new();
        for n in 0..4 {
            let id = client.start_id("found", told("acme: \"1\"", n)).await?;
            client.until(&id, "waiting").await?;
            acme.insert(id);
        }
        let other = client.start_id("found", told("other", 1)).await?;
        client.until(&other, "waiting").await?;
        for kills in [false, true] {
            if kills {
                engine.engine.kill();
                engine.engine.restart().await?;
            }
            let found = client.list("attribute=customer:acme%3A+%221%22", 3).await?;
            assert_eq!(ids(&found).into_iter().collect::<BTreeSet<_>>(), acme);
            assert_eq!(found[0]["attributes"]["customer"], "acme: \"1\"");
            let both = "attribute=n:1&attribute=customer:other&status=waiting&workflow=found";
            assert_eq!(ids(&client.list(both, 50).await?), [other.as_str()]);
            assert!(client.list("attribute=customer:acm", 50).await?.is_empty());
            assert!(client.list("tag=customer", 50).await?.is_empty());
        }
        // A later value takes the place of the earlier one.
        for stage in [1, 2, 3] {
            client.signal(&other, "go", &json!(stage), None).await?;
            let query = format!("attribute=stage:{stage}");
            found_soon(&client, &query, &other).await?;
            let before = format!("attribute=stage:{}", stage - 1);
            assert!(client.list(&before, 50).await?.is_empty());
        }
        client.until(&other, "completed").await?;
    }
    Ok(())
}

#[tokio::test]
async fn pages_have_one_order_whatever_their_size_and_whatever_is_started_meanwhile() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let starts = (0..60).map(|n| {
        let client = client.clone();
        async move { client.start_id("nap", json!(600_000 + n)).await }
    });
    let started: BTreeSet<_> = futures::future::try_join_all(starts).await?.into_iter().collect();
    let whole = ids(&client.list("workflow=nap", 200).await?);
    assert_eq!(whole.iter().cloned().collect::<BTreeSet<_>>(), started);
    assert_eq!(whole.len(), started.len(), "none is there twice");
    for limit in [1, 2, 7, 59, 60] {
        assert_eq!(ids(&client.list("workflow=nap", limit).await?), whole, "in pages of {limit}");
        assert_eq!(ids(&client.list("", limit).await?), whole, "in pages of {limit}, of all");
    }
    // What is started while somebody turns the pages is not on those that follow.
    let first = client.get("/api/executions?limit=10").await?.json()?;
    let mut seen = ids(first["executions"].as_array().context("runs")?);
    for n in 0..20 {
        client.start_id("nap", json!(700_000 + n)).await?;
    }
    let cursor = first["cursor"].as_str().context("there are more")?;
    seen.extend(ids(&client.list(&format!("cursor={cursor}"), 200).await?));
    assert_eq!(seen, whole);
    Ok(())
}

#[tokio::test]
async fn runs_are_found_by_the_time_of_their_start() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for n in 0..6 {
        let run = client.start("nap", &json!(600_000 + n), None, 0).await?.json()?;
        runs.push((
            run["created_at"].as_u64().context("a time")?,
            run["id"].as_str().unwrap_or("").to_owned(),
        ));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let (from, until) = (runs[2].0, runs[4].0);
    let expected: Vec<_> =
        runs.iter().rev().filter(|(at, _)| (from..until).contains(at)).map(|(_, id)| id.clone()).collect();
    assert_eq!(ids(&client.list(&format!("from={from}&until={until}"), 50).await?), expected);
    assert!(client.list("from=9999999999999", 50).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn runs_are_found_by_how_they_ended_how_long_they_took_and_what_went_wrong() -> Result<()> {
    let mut engine = Engine::start(Form::AllInOne, 3).await?;
    let client = engine.client();
    let failed = client.start_id("fail", json!("say Ümlaut: card 12 was refused")).await?;
    let retrying = client.start_id("fail", json!("retries later")).await?;
    let slow = client.start_id("nap", json!(1_500)).await?;
    let asleep = client.start_id("nap", json!(600_000)).await?;
    let paused = client.start_id("nap", json!(600_000)).await?;
    client.until(&failed, "failed").await?;
    client.until(&slow, "completed").await?;
    found_soon(&client, "retrying=true", &retrying).await?;
    client.request("POST", &format!("/api/executions/{paused}/pause"), "").await?.json()?;
    // The same run but for the random part of its id.
    let (known, last) = failed.split_at(failed.len() - 1);
    let forged = format!("{known}{}", if last == "0" { "1" } else { "0" });
    let ended_at = client.get(&format!("/api/executions/{slow}")).await?.json()?["ended_at"].clone();
    let (at, after) = (ended_at.as_u64().context("it has ended")?, ended_at.as_u64().unwrap_or(0) + 1);
    for kills in [false, true] {
        if kills {
            engine.engine.kill();
            engine.engine.restart().await?;
        }
        for (query, expected) in [
            ("status=failed,completed".to_owned(), vec![&failed, &slow]),
            ("status=failed&status=paused".into(), vec![&failed, &paused]),
            ("retrying=true&status=sleeping,waiting,pending,running".into(), vec![&retrying]),
            ("retrying=true&workflow=nap".into(), vec![]),
            (format!("ended_from={at}&ended_until={after}"), vec![&slow]),
            (format!("ended_until={at}"), vec![&failed]),
            ("min_duration_ms=1500&status=completed,failed".into(), vec![&slow]),
            ("min_duration_ms=1500&workflow=nap".into(), vec![&slow, &asleep, &paused]),
            (format!("id={failed},{asleep}&id={slow}"), vec![&failed, &asleep, &slow]),
            (format!("id={failed},{asleep}&status=failed"), vec![&failed]),
            (format!("id={forged}"), vec![]),
            ("error=CARD".into(), vec![&failed, &retrying]),
            ("error=card%20%224711%22".into(), vec![&retrying]),
            ("error=%C3%9Cmlaut".into(), vec![&failed]),
            ("error=charge".into(), vec![]),
        ] {
            for limit in [1, 50] {
                let found: BTreeSet<_> = ids(&client.list(&query, limit).await?).into_iter().collect();
                assert_eq!(
                    found,
                    expected.iter().map(|id| (*id).clone()).collect(),
                    "{query}, {limit} at a time"
                );
            }
        }
    }
    let shown = client.get(&format!("/api/executions/{retrying}")).await?.json()?;
    assert_eq!(shown["retrying"], json!(["charge"]), "{shown}");
    let bulk = json!({ "action": "cancel", "filter": { "retrying": true, "error": "declined" } });
    let started = client.request("POST", "/api/bulk", &bulk.to_string()).await?.json()?;
    client.until(started["id"].as_str().context("an id")?, "completed").await?;
    assert_eq!(client.get(&format!("/api/executions/{retrying}")).await?.json()?["status"], "cancelled");
    assert!(client.list("retrying=true", 50).await?.is_empty());
    let bulk = json!({ "action": "cancel", "filter": { "ids": [asleep, slow] } });
    let started = client.request("POST", "/api/bulk", &bulk.to_string()).await?.json()?;
    let done = client.until(started["id"].as_str().context("an id")?, "completed").await?;
    assert_eq!(done["output"], json!({ "changed": 1, "unchanged": 1 }), "{done}");
    assert_eq!(client.get(&format!("/api/executions/{asleep}")).await?.json()?["status"], "cancelled");
    for query in
        ["status=failed,done", "id=x", "error=", "min_duration_ms=x", "retrying=yes", "ended_from=-1"]
    {
        let refused = client.get(&format!("/api/executions?{query}")).await?;
        assert_eq!(refused.status, 400, "{query}: {}", refused.body);
    }
    let bulk = json!({ "action": "cancel", "filter": { "error": "" } });
    assert_eq!(client.request("POST", "/api/bulk", &bulk.to_string()).await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn a_rare_error_is_found_behind_many_others_page_by_page() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let rare = client.start_id("fail", json!("say something rare")).await?;
    let starts = (0..420).map(|n| {
        let client = client.clone();
        async move { client.start_id("fail", json!(format!("say common {n}"))).await }
    });
    let started = futures::future::try_join_all(starts).await?;
    for id in started.iter().chain([&rare]) {
        client.until(id, "failed").await?;
    }
    // The cell reads only some of them whole for a request, and says where it goes on.
    let page = client.get("/api/executions?error=rare").await?.json()?;
    ensure!(page["executions"] == json!([]) && page["cursor"].is_string(), "{page}");
    assert_eq!(ids(&client.list("error=rare", 50).await?), [rare.as_str()]);
    assert_eq!(client.list("error=common", 200).await?.len(), 420);
    Ok(())
}

#[tokio::test]
async fn counts_are_those_of_the_runs_before_and_after_a_kill() -> Result<()> {
    let mut engine = Engine::start(Form::AllInOne, 3).await?;
    let client = engine.client();
    let empty = client.get("/api/metrics").await?.json()?;
    assert_eq!(
        empty,
        json!({"total": 0, "statuses": {}, "workflows": {}, "letters": {"waiting": 0, "dead": 0}, "complete": true})
    );
    let mut naps = Vec::new();
    for n in 0..12 {
        naps.push(client.start_id("nap", json!(600_000 + n)).await?);
    }
    for id in &naps {
        client.until(id, "sleeping").await?;
    }
    for id in &naps[..5] {
        client.cancel(id).await?;
    }
    client.start("ten", &Value::Null, None, 10).await?;
    client.start("fail", &json!("terminal"), None, 10).await?;
    for kills in [false, true] {
        if kills {
            engine.engine.kill();
            engine.engine.restart().await?;
        }
        let metrics = client.get("/api/metrics").await?.json()?;
        assert_eq!(metrics["total"], 14);
        assert_eq!(count(&metrics, "nap"), [("cancelled".into(), 5), ("sleeping".into(), 7)].into());
        assert_eq!(metrics["statuses"], json!({"sleeping": 7, "completed": 1, "failed": 1, "cancelled": 5}));
        let one = client.get("/api/metrics?workflow=ten").await?.json()?;
        assert_eq!(one["workflows"], json!({"ten": {"completed": 1}}));
        for status in ["sleeping", "completed", "failed", "cancelled"] {
            let listed = client.list(&format!("status={status}"), 50).await?.len() as u64;
            assert_eq!(metrics["statuses"][status].as_u64(), Some(listed), "{status}");
        }
    }
    assert_eq!(client.get("/api/metrics?colour=red").await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn the_workflows_are_those_of_the_app() -> Result<()> {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let workflows = client.get("/api/workflows").await?.json()?;
        let names: Vec<_> =
            workflows["workflows"].as_array().context("a list")?.iter().map(|one| &one["name"]).collect();
        assert!(names.len() > 20 && names.is_sorted_by_key(|name| name.as_str()), "{names:?}");
        let mixed = client.get("/api/workflows/mixed").await?.json()?;
        assert_eq!((&mixed["timeout_ms"], &mixed["status"]), (&json!(600_000), &json!("active")));
        assert_eq!(mixed["effective"], json!({"timeout_ms": 600_000}));
        let schema = &mixed["input_schema"];
        assert_eq!(schema["properties"]["ledger"], json!({"type": "string"}), "{schema}");
        let none = client.get("/api/workflows/nothing").await?;
        assert_eq!(none.problem()?, (404, "workflow_not_found".into()));
        let reserved = client.start("stepwell.bulk", &Value::Null, None, 0).await?;
        assert_eq!(reserved.problem()?, (400, "invalid_request".into()));
        if let Some(app) = &mut engine.app {
            app.kill();
            let lost = client.get("/api/workflows").await?;
            assert_eq!(lost.problem()?, (502, "app_unreachable".into()));
        }
    }
    Ok(())
}
