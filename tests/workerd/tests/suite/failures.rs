//! Failed runs are counted in groups on the real workerd, which outlive kills and the runs themselves.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Answer, TestResult,
    cli::Terminal,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, sleep};

async fn groups(client: &Client, query: &str) -> Result<Vec<Value>> {
    let listed = client.get(&format!("/api/failures{query}")).await?.json()?;
    assert_eq!(listed["complete"], true, "{listed}");
    listed["failures"].as_array().cloned().context("a list")
}

/// A run that fails, and is deleted half a second later.
async fn fail(client: &Client, how: &str) -> Result<String> {
    let run = client.start_id("fail", json!(how)).await?;
    client.until(&run, "failed").await?;
    Ok(run)
}

#[tokio::test]
async fn groups_of_failures_outlive_kills_and_their_runs_and_keys_see_their_own() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 4).await?;
        // Settings do not hold for the deployment's own key.
        let root = engine.client();
        let key = root.post_json("/api/keys", &json!({"name": "admin", "scopes": ["admin"]})).await?;
        let key = key["key"].as_str().context("a key")?.to_owned();
        let client = root.with_key(&key);
        let settings =
            client.request("PUT", "/api/settings/workflows/fail", r#"{"retention_ms":3000}"#).await?;
        assert_eq!(settings.status, 200, "{}", settings.body);
        let mut runs = Vec::new();
        for _ in 0..8 {
            runs.push(fail(&client, "terminal").await?);
        }
        engine.engine.restart().await?;
        let client = engine.client().with_key(&key);
        runs.push(fail(&client, "terminal").await?);
        fail(&client, "other").await?;
        let found = groups(&client, "").await?;
        assert_eq!(found.len(), 2, "cells have the same groups: {found:?}");
        assert_eq!((&found[0]["message"], &found[0]["count"]), (&json!("failed on purpose"), &json!(1)));
        assert_eq!((&found[1]["message"], &found[1]["step"]), (&json!("declined"), &json!("t")), "{found:?}");
        assert_eq!(found[1]["count"], 9, "each is counted once, also across a kill: {found:?}");
        assert_eq!(found[1]["runs"][0], json!(runs.last()), "the latest comes first");

        for run in &runs {
            for _ in 0..400 {
                if client.show(run, 0).await?.status == 404 {
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(client.show(run, 0).await?.status, 404, "{run} is deleted");
        }
        assert_eq!(groups(&client, "").await?, found, "the groups outlive their runs");
        let page = client.get("/api/failures?limit=1").await?.json()?;
        let next = page["next"].as_str().context("there is another page")?;
        assert_eq!(groups(&client, &format!("?cursor={next}")).await?, found[1..]);
        let since = found[0]["last_at"].as_u64().context("a time")?;
        assert_eq!(groups(&client, &format!("?since={since}")).await?, found[..1]);

        let own = json!({"name": "own", "scopes": ["read:ten"]});
        let own = client.post_json("/api/keys", &own).await?;
        let own = client.with_key(own["key"].as_str().context("a key")?);
        assert_eq!(own.get("/api/failures").await?.problem()?, (403, "forbidden".into()));
        assert_eq!(own.get("/api/failures?workflow=fail").await?.problem()?, (403, "forbidden".into()));
        assert_eq!(groups(&own, "?workflow=ten").await?, Vec::<Value>::new());

        let terminal = Terminal::open(&engine.engine.address())?;
        let ran = terminal.quietly(&["failures", "--workflow", "fail"]).await?;
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert!(lines.len() == 2 && lines[1].starts_with("9 × "), "{}", ran.stdout);
        assert!(lines[1].contains("fail: t") && lines[1].contains("declined"), "{}", ran.stdout);
        let ran = terminal.quietly(&["failures", "--json", "--limit", "1"]).await?;
        let written: Value = serde_json::from_str(&ran.stdout)?;
        assert_eq!(written["failures"], json!(found[..1]));
    }
    Ok(())
}

/// The word that a number is in letters: digits have placeholders.
fn word(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

#[tokio::test]
async fn a_flood_of_new_messages_drops_the_oldest_of_its_own_workflow_alone() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let other = client.start_id("nap", json!("not a number")).await?;
    client.until(&other, "failed").await?;
    // One more than a cell keeps, and some.
    for number in 0..520_u32 {
        let run = client.start("fail", &json!(format!("say {}", word(number))), None, 10).await?.json()?;
        assert_eq!(run["status"], "failed", "{run}");
    }
    let mut found = Vec::new();
    let mut path = "/api/failures?limit=200".to_owned();
    loop {
        let page = client.get(&path).await?.json()?;
        found.extend(page["failures"].as_array().context("a list")?.clone());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/failures?limit=200&cursor={next}");
    }
    assert_eq!(found.len(), 500, "a cell keeps so many groups");
    let has = |message: &str| found.iter().any(|group| group["message"] == message);
    assert!(has(&word(519)) && has(&word(100)) && !has(&word(0)) && !has(&word(19)));
    assert!(found.iter().any(|group| group["workflow"] == "nap"), "it has done nothing");
    Ok(())
}

#[tokio::test]
async fn a_failed_run_writes_one_row_for_its_group_and_its_meter_says_so() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    let rows =
        |answer: &Answer| -> Result<u64> { Ok(answer.headers["stepwell-rows-written"].to_str()?.parse()?) };
    // The first one makes the tables, and the counters are stored beside it.
    client.start("fail", &json!("other"), None, 10).await?.json()?;
    let mut written = Vec::new();
    for _ in 0..2 {
        let before = rows(&client.get("/api/executions/default-1-0-1-000000000000").await?)?;
        let answer = client.start("fail", &json!("other"), None, 10).await?;
        let run = answer.json()?;
        assert_eq!(run["status"], "failed", "{run}");
        assert_eq!(run["meter"]["rows_written"], rows(&answer)? - before, "{run}");
        written.push(rows(&answer)? - before);
    }
    println!("a run that fails at once: {written:?} rows");
    // The run and its entry in the index when it starts, both when it has ended, and its group.
    assert!(written.iter().all(|rows| *rows == 5), "{written:?}");
    Ok(())
}
