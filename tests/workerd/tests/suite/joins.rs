//! Starts that do not each become a run, on the real workerd.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
    sqlite::{change, databases, sql},
};
use tokio::time::{Duration, Instant, sleep};

/// Starts a run: a status and its id.
async fn start(client: &Client, workflow: &str, key: &str, number: u32) -> Result<(u16, String)> {
    let answer = client.start(workflow, &json!({ "key": key, "number": number }), None, 0).await?;
    let run = answer.json()?;
    Ok((answer.status, run["id"].as_str().with_context(|| run.to_string())?.to_owned()))
}

async fn output(client: &Client, run: &str) -> Result<Value> {
    Ok(client.until(run, "completed").await?["output"].clone())
}

#[tokio::test]
async fn starts_that_come_close_together_become_one_run_with_the_last_input() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let engine = Engine::start(form, 4).await?;
        let client = engine.client();
        let (status, first) = start(&client, "debounced", "a", 1).await?;
        assert_eq!(status, 202);
        let (_, other) = start(&client, "debounced", "b", 7).await?;
        assert_ne!(other, first, "another key");
        let why = client.get(&format!("/api/executions/{first}/why")).await?.json()?;
        assert!(why["because"].as_str().is_some_and(|why| why.ends_with("has 1 start so far.")), "{why}");
        for number in 2..=4 {
            assert_eq!(start(&client, "debounced", "a", number).await?, (202, first.clone()));
        }
        assert_eq!(output(&client, &first).await?, 4);
        assert_eq!(output(&client, &other).await?, 7);
        let (_, next) = start(&client, "debounced", "a", 5).await?;
        assert_ne!(next, first);
    }
    Ok(())
}

#[tokio::test]
async fn a_debounced_run_does_not_wait_for_longer_than_it_says() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let began = Instant::now();
    let (_, first) = start(&client, "debounced", "a", 0).await?;
    let mut number = 0;
    loop {
        number += 1;
        assert!(number < 100, "it never begins");
        sleep(Duration::from_millis(200)).await;
        if start(&client, "debounced", "a", number).await?.1 != first {
            break;
        }
    }
    let waited = began.elapsed();
    assert!((2_900..6_000).contains(&waited.as_millis()), "{waited:?}");
    assert_eq!(output(&client, &first).await?, number - 1);
    Ok(())
}

#[tokio::test]
async fn starts_become_batches_and_each_is_in_one_of_them_though_the_process_dies() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 4).await?;
        let client = engine.client();
        let spec = json!({ "on": "item/*", "workflow": "batched", "tags": ["batch"] });
        client.request("PUT", "/api/triggers/item/batch", &spec.to_string()).await?;
        let (mut sent, mut number) = (BTreeSet::new(), 0_u32);
        for round in 0..4 {
            for _ in 0..8 {
                let event = |number: u32| {
                    let data = json!({ "key": format!("k{}", number % 3), "number": number });
                    json!({ "name": "item/came", "id": format!("evt-{number}"), "data": data })
                };
                let events: Vec<_> = (number..number + 5).map(event).collect();
                let answer =
                    client.request("POST", "/api/events", &json!({ "events": events }).to_string()).await?;
                assert!(answer.status == 200, "{} {}", answer.status, answer.body);
                sent.extend(number..number + 5);
                number += 5;
            }
            if round < 3 {
                engine.engine.kill();
                engine.engine.restart().await?;
            }
        }
        let client = engine.client();
        let began = Instant::now();
        let runs = loop {
            let runs = client.list("tag=batch", 100).await?;
            let ended = runs.iter().filter(|run| run["status"] == "completed").count();
            let mut seen = BTreeMap::new();
            for run in runs.iter().filter(|run| run["status"] == "completed") {
                let id = run["id"].as_str().context("an id")?;
                for number in output(&client, id).await?.as_array().context("a list")? {
                    *seen.entry(number.as_u64().context("a number")?).or_insert(0_u32) += 1;
                }
            }
            assert!(seen.values().all(|times| *times == 1), "one is in two runs: {seen:?}");
            if seen.len() == sent.len() && ended == runs.len() {
                break runs;
            }
            assert!(began.elapsed() < Duration::from_secs(90), "{} of {} in {ended}", seen.len(), sent.len());
            sleep(Duration::from_millis(300)).await;
        };
        assert!(runs.len() < sent.len() / 2, "{} runs for {} events", runs.len(), sent.len());
    }
    Ok(())
}

#[tokio::test]
async fn of_a_singleton_there_is_one_run_and_others_are_skipped_or_replace_it() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let (status, first) = start(&client, "only_one", "a", 1).await?;
    assert_eq!(status, 201);
    assert_eq!(start(&client, "only_one", "a", 2).await?, (200, first.clone()));
    assert_eq!(start(&client, "only_one", "b", 3).await?.0, 201);
    client.signal(&first, "go", &Value::Null, None).await?;
    assert_eq!(output(&client, &first).await?, 1);
    assert_eq!(start(&client, "only_one", "a", 4).await?.0, 201);

    let (_, first) = start(&client, "latest_only", "a", 1).await?;
    let (status, second) = start(&client, "latest_only", "a", 2).await?;
    assert_eq!(status, 201);
    client.until(&first, "cancelled").await?;
    client.signal(&second, "go", &Value::Null, None).await?;
    assert_eq!(output(&client, &second).await?, 2);

    // A trigger says what was skipped.
    let spec = json!({ "on": "item/*", "workflow": "only_one" });
    client.request("PUT", "/api/triggers/item/one", &spec.to_string()).await?;
    for number in 0..2 {
        let event = json!({ "name": "item/came", "data": { "key": "a", "number": number } });
        client.request("POST", "/api/events", &event.to_string()).await?;
    }
    let began = Instant::now();
    loop {
        let trigger = client.get("/api/triggers/item/one").await?.json()?;
        if trigger.to_string().matches("starts with the same key are skipped").count() >= 2 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{trigger}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_start_with_a_key_joins_once() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let mut ids = BTreeSet::new();
    for number in [1, 2, 2, 1, 3] {
        let input = json!({ "key": "a", "number": number });
        let answer = client.start("batched", &input, Some(&format!("key-{number}")), 0).await?;
        assert!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
        ids.insert(answer.json()?["id"].to_string());
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    let id = ids.first().context("an id")?.trim_matches('"').to_owned();
    assert_eq!(output(&client, &id).await?, json!([1, 2, 3]));
    let other = client.start("batched", &json!({ "key": "a", "number": 9 }), Some("key-2"), 0).await?;
    assert_eq!(other.status, 422, "{}", other.body);
    Ok(())
}

#[tokio::test]
async fn starts_beyond_a_rate_are_dropped_and_say_when_to_come_again() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let began = Instant::now();
    for number in 0..5 {
        let key = format!("key-{number}");
        let answer = client.start("dropped", &json!({ "key": "a", "number": number }), Some(&key), 0).await?;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let input = json!({ "key": "a", "number": 6 });
    let dropped = client.start("dropped", &input, Some("key-6"), 0).await?;
    assert!(began.elapsed() < Duration::from_secs(3), "too slow to say anything");
    assert!(dropped.status == 429 && dropped.body.contains("start_dropped"), "{}", dropped.body);
    let after = dropped.headers.get("retry-after").context("it says when")?.to_str()?.parse::<u64>()?;
    assert!((1..=4).contains(&after), "{after}");
    let again = client.start("dropped", &json!({ "key": "a", "number": 1 }), Some("key-1"), 0).await?;
    assert_eq!(again.status, 200, "it was started before: {}", again.body);
    assert_eq!(start(&client, "dropped", "b", 1).await?.0, 201, "another key");
    sleep(Duration::from_secs(after)).await;
    assert_eq!(client.start("dropped", &input, Some("key-6"), 0).await?.status, 201);
    Ok(())
}

#[tokio::test]
async fn a_throttle_spreads_runs_evenly() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for _ in 0..12 {
        runs.push(client.start_id("throttled", Value::Null).await?);
    }
    let mut times = Vec::new();
    for run in &runs {
        times.push(output(&client, run).await?.as_u64().context("a time")?);
    }
    times.sort_unstable();
    // Each is let in 200 ms after the one before; how soon it begins then depends on the machine.
    let all = times[11] - times[0];
    assert!(all >= 11 * 200 - 150, "{times:?}");
    for pair in times.windows(4) {
        assert!(pair[3] - pair[0] >= 350, "{times:?}");
    }
    Ok(())
}

#[tokio::test]
async fn ticks_that_join_a_run_do_not_hold_up_their_schedule() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let input = json!({ "key": "t", "number": 1 });
    let spec = json!({
        "when": "* * * * * *", "workflow": "batched", "input": input, "overlap": "allow", "tags": ["tick"],
    });
    let made = client.request("PUT", "/api/schedules/each", &spec.to_string()).await?;
    assert!((200..300).contains(&made.status), "{} {}", made.status, made.body);
    sleep(Duration::from_millis(6_500)).await;
    client.send_post("/api/schedules/each/pause", "").await?;
    sleep(Duration::from_millis(2_500)).await;
    let mut taken = 0;
    for run in client.list("tag=tick", 100).await? {
        let id = run["id"].as_str().context("an id")?;
        taken += output(&client, id).await?.as_array().context("a list")?.len();
    }
    assert!(taken >= 5, "{taken} ticks in six seconds");
    Ok(())
}

#[tokio::test]
async fn a_start_that_joined_is_forgotten_after_its_time_and_the_alarm_is_fine() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for number in 0..2 {
        let input = json!({ "key": "a", "number": number });
        let answer = client.start("debounced", &input, Some(&format!("key-{number}")), 0).await?;
        runs.push(answer.json()?["id"].clone());
    }
    assert_eq!(runs[0], runs[1]);
    output(&client, runs[0].as_str().context("an id")?).await?;
    engine.engine.kill();
    let mut joins = 0;
    for path in databases(&engine.engine)? {
        if sql(&path, "SELECT count(*) FROM sqlite_master WHERE name = 'joins'")? == "1" {
            joins += sql(&path, "SELECT count(*) FROM joins")?.parse::<u32>()?;
            change(&path, "UPDATE joins SET until = 1")?;
        }
    }
    assert!(joins > 0, "none has joined");
    engine.engine.restart().await?;
    let client = engine.client();
    // Somebody comes by, and the cell looks after its alarm.
    output(&client, &start(&client, "debounced", "b", 7).await?.1).await?;
    sleep(Duration::from_secs(1)).await;
    let said = engine.engine.log();
    assert!(!said.contains("an alarm could not read the rows"), "{said}");
    engine.engine.kill();
    for path in databases(&engine.engine)? {
        if sql(&path, "SELECT count(*) FROM sqlite_master WHERE name = 'joins'")? == "1" {
            assert_eq!(sql(&path, "SELECT count(*) FROM joins WHERE until = 1")?, "0");
        }
    }
    Ok(())
}
