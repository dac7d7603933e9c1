//! `stepwell watch` and `stepwell logs` over streams: what they show, and what a crash of the server does to them.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    cli::{Running, Terminal, compare},
    engine::{Engine, Form},
    following::{Follower, Way},
};

/// The events of lines of JSON.
fn events(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// The next event that a command gives.
async fn event(running: &mut Running) -> Result<Value> {
    let line = running.line().await?.context("it has ended")?;
    serde_json::from_str(&line).with_context(|| line)
}

#[tokio::test]
async fn a_session_with_runs_that_talk_reads_as_it_should() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let mut terminal = Terminal::open(&engine.engine.address())?;
    let run = client.start_id("chatty", json!([2, 2, 5])).await?;
    client.until(&run, "completed").await?;
    for arguments in [
        &["logs", &run][..],
        &["logs", &run, "--level", "warn"],
        &["logs", &run, "--level", "error"],
        &["logs", &run, "--chunks", "--follow"],
    ] {
        assert_eq!(terminal.run(arguments).await?.code, Some(0), "{arguments:?}");
    }
    // Where among the steps its words come depends on when they were stored.
    let watched = terminal.quietly(&["watch", &run]).await?;
    let mut lines: Vec<_> = watched.stdout.lines().filter_map(|line| line.split_once("s  ")).collect();
    lines.retain(|(_, line)| !line.starts_with('▪'));
    let mut lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    lines.sort_unstable();
    let wanted = [
        "· debug within 0 (talk)",
        "· debug within 1 (talk)",
        "· info  before 0",
        "· info  before 1",
        "· warn  done",
        "» tokens: \"0-0\" (talk)",
        "» tokens: \"0-1\" (talk)",
        "» tokens: \"1-0\" (talk)",
        "» tokens: \"1-1\" (talk)",
        "☾ sleep is over",
        "☾ sleep is over",
        "✓ talk done: 0",
        "✓ talk done: 1",
    ];
    assert_eq!(lines, wanted);
    assert!(watched.stdout.contains("▪ 100 % talking, 2 of 2\n"), "{}", watched.stdout);

    let waits = client.start_id("wait", json!(60_000)).await?;
    client.until(&waits, "waiting").await?;
    assert_eq!(terminal.run(&["logs", &waits]).await?.code, Some(0), "it does not wait for the run's end");
    let stuck = client.start_id("fail", json!("await")).await?;
    client.until(&stuck, "paused").await?;
    assert_eq!(terminal.run(&["watch", &stuck]).await?.code, Some(5), "a person is needed");
    assert_eq!(terminal.run(&["watch", "--all", &run]).await?.code, Some(2));
    assert_eq!(terminal.run(&["watch", &run, "--cursor", "yesterday"]).await?.code, Some(1));
    assert_eq!(terminal.run(&["logs", "default-1-0-1-000000000000"]).await?.code, Some(1));
    compare("streams", terminal.transcript())?;
    Ok(())
}

#[tokio::test]
async fn a_run_is_watched_through_a_crash_and_nothing_is_missing_or_twice() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let terminal = Terminal::open(&engine.engine.address())?;
    let run = client.start_id("chatty", json!([30, 2, 30])).await?;
    let mut watching = terminal.begin(&["watch", &run, "--json"])?;
    let mut seen = Vec::new();
    for kills in 1..=2 {
        while seen.iter().filter(|event: &&Value| event["type"] == "step").count() < kills * 5 {
            seen.push(event(&mut watching).await?);
        }
        engine.engine.restart().await?;
    }
    let ended = watching.end().await?;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    seen.extend(events(&ended.stdout)?);
    assert_eq!(ended.stderr.matches("coming back").count(), 2, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("Reconnected.").count(), 2, "{}", ended.stderr);

    // Whoever comes afterwards sees the same. States are shown as they are, not as they were.
    let after = terminal.quietly(&["watch", &run, "--json"]).await?;
    let is_event =
        |event: &&Value| !["status", "progress"].contains(&event["type"].as_str().unwrap_or_default());
    let of = |events: &[Value]| {
        let shown = events.iter().filter(is_event);
        shown.map(|event| (event["type"].clone(), event["data"].clone())).collect::<Vec<_>>()
    };
    let (seen, after) = (of(&seen), of(&events(&after.stdout)?));
    assert_eq!(seen.iter().filter(|(kind, _)| kind == "step").count(), 30);
    assert!(seen == after, "{seen:#?}\nis not\n{after:#?}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_says_no_on_the_way_back_ends_the_watch() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let mut terminal = Terminal::open(&engine.engine.address())?;
    let made = client.post_json("/api/keys", &json!({"name": "ci", "scopes": ["read"]})).await?;
    terminal.set_key(made["key"].as_str().context("a new key is shown")?);
    let run = client.start_id("wait", json!(60_000)).await?;
    let mut watching = terminal.begin(&["watch", &run, "--json"])?;
    event(&mut watching).await?;
    let id = made["id"].as_str().context("a key has an id")?;
    client.post_json(&format!("/api/keys/{id}/revoke"), &Value::Null).await?;
    let ended = watching.end().await?;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("\"unauthorized\""), "{}", ended.stderr);
    engine.engine.kill();
    Ok(())
}

#[tokio::test]
async fn all_runs_are_watched_as_they_come_and_through_a_crash() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let terminal = Terminal::open(&engine.engine.address())?;
    let before = client.start_id("ten", json!(null)).await?;
    client.until(&before, "completed").await?;

    let mut watching = terminal.begin(&["watch", "--json", "--workflow", "nap"])?;
    assert_eq!(event(&mut watching).await?["type"], "ready");
    let other = client.start_id("ten", json!(null)).await?;
    let first = client.start_id("nap", json!(50)).await?;
    let until_ended = async |watching: &mut Running, wanted: &str| -> Result<Vec<String>> {
        let mut runs = Vec::new();
        loop {
            let event = event(watching).await?;
            if event["type"] == "status" {
                runs.push(event["data"]["id"].as_str().unwrap_or_default().to_owned());
                if event["data"]["id"] == wanted && event["data"]["status"] == "completed" {
                    return Ok(runs);
                }
            }
        }
    };
    let runs = until_ended(&mut watching, &first).await?;
    assert!(runs.iter().all(|run| *run == first), "{other} is of another workflow: {runs:?}");
    engine.engine.restart().await?;
    let second = engine.client().start_id("nap", json!(50)).await?;
    until_ended(&mut watching, &second).await?;

    // Those that there are, as they stand; one line for each.
    let mut all = terminal.begin(&["watch", "--all", "--status", "completed"])?;
    let mut lines = Vec::new();
    while lines.len() < 4 {
        lines.push(all.line().await?.context("it has no end")?);
    }
    for run in [&before, &other, &first, &second] {
        let line = lines.iter().find(|line| line.contains(run.as_str()));
        assert!(line.is_some_and(|line| line.contains("  completed  ")), "{run} is not in {lines:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_that_only_looks_ends_with_the_run_as_it_stands() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("wait", json!(60_000)).await?;
    client.until(&run, "waiting").await?;
    let path = format!("/api/executions/{run}/stream?follow=");
    for way in Way::ALL {
        let events = Follower::open(&http, &format!("{path}false"), way, None).await?.rest().await?;
        let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["status", "end"]);
        let end = events.last().context("it ends")?;
        assert_eq!(end.data["status"], "waiting");
        assert!(end.at > 0, "it has a time");
        let again = Follower::open(&http, &format!("{path}false"), way, Some(&end.id)).await?.rest().await?;
        assert_eq!(again.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["end"]);
        let refused = Follower::open(&http, &format!("{path}perhaps"), way, None).await;
        assert!(refused.is_err_and(|error| error.to_string().starts_with("status 400")));
    }
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_for_a_stream_is_named_and_an_output_is_shown_all_the_same() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let terminal = Terminal::open(&engine.engine.address())?;
    let run = client.start_id("wait", json!(60_000)).await?;
    client.signal(&run, "go", &json!("x".repeat(300_000)), None).await?;
    let ran = terminal.quietly(&["watch", &run]).await?;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("which `stepwell show` has").count(), 1, "{:.500}", ran.stdout);
    assert_eq!(ran.stdout.lines().last().map(str::len), Some(300_002), "{:.500}", ran.stdout);
    Ok(())
}
