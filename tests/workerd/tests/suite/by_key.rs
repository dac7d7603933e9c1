//! Runs that their callers reach by the keys that they have started them with.

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Answer,
    access::{key, namespace},
    cli::Terminal,
    engine::{Client, Engine, Form},
    without_request,
};
use tokio::time::{Duration, Instant, sleep};

/// The address of a run by its key, whatever characters that has.
fn by_key(workflow: &str, key: &str) -> String {
    let encoded = key.bytes().fold(String::new(), |encoded, byte| format!("{encoded}%{byte:02X}"));
    format!("/api/workflows/{workflow}/by-key/{encoded}")
}

/// Starts a run that waits for the signal `go`, and gives its id.
async fn waiting(client: &Client, key: &str) -> Result<String> {
    let run = client.start("wait", &json!(600_000), Some(key), 0).await?.json()?;
    let id = run["id"].as_str().with_context(|| run.to_string())?.to_owned();
    client.until(&id, "waiting").await?;
    Ok(id)
}

/// A run without what it has cost: looking at it is counted.
fn without_meter(answer: &Answer) -> Result<Value> {
    let mut run = answer.json()?;
    run["meter"].take();
    Ok(run)
}

#[tokio::test]
async fn a_run_is_shown_signalled_and_cancelled_by_its_key() -> Result<()> {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 4).await?;
        let client = engine.client();
        for order in ["order-7", "acme/2026/order 7?#%2F..;~\"", &"k".repeat(256)] {
            let id = waiting(&client, order).await?;
            let address = by_key("wait", order);
            engine.engine.restart().await?;
            let shown = client.get(&address).await?;
            assert_eq!(shown.status, 200, "{order}: {}", shown.body);
            assert_eq!(shown.headers["content-location"], format!("/api/executions/{id}"));
            assert_eq!(without_meter(&shown)?, without_meter(&client.show(&id, 0).await?)?);

            let identified: &[_] = &[("idempotency-key", "s")];
            let signal = format!("{address}/signals/go");
            let first = client.request_with(Method::POST, &signal, identified, "\"gone\"").await?;
            assert_eq!((first.status, first.json()?), (202, json!({"duplicate": false})));
            let wait: &[_] = &[("prefer", "wait=10")];
            let ended = client.request_with(Method::GET, &address, wait, "").await?.json()?;
            assert_eq!((&ended["id"], &ended["output"]), (&json!(id), &json!("gone")));
            let again = client.request_with(Method::POST, &signal, identified, "\"gone\"").await?;
            assert_eq!((again.status, again.json()?), (200, json!({"duplicate": true})));
            let late = client.send_post(&signal, "").await?;
            assert_eq!(late.problem()?, (409, "run_ended".into()));
            assert_eq!(client.history(&id).await?.len(), 1, "the signal was recorded once");

            let other = waiting(&client, &order.replace(['7', 'k'], "8")).await?;
            let address = by_key("wait", &order.replace(['7', 'k'], "8"));
            let cancelled = client.send_post(&format!("{address}/cancel"), "").await?;
            assert_eq!((cancelled.status, &cancelled.json()?["status"]), (200, &json!("cancelled")));
            assert_eq!(cancelled.headers["content-location"], format!("/api/executions/{other}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_key_without_a_run_is_not_found_whatever_the_reason_and_nothing_is_written() -> Result<()> {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    let id = waiting(&client, "order-7").await?;
    let written = async || -> Result<String> {
        Ok(client.show(&id, 0).await?.headers["stepwell-rows-written"].to_str()?.to_owned())
    };
    // The end of its call may still set the alarm.
    sleep(Duration::from_millis(500)).await;
    let before = written().await?;
    let mut refused = Vec::new();
    // A key of another workflow, one that was never used, and a workflow that there is none of.
    for address in [by_key("nap", "order-7"), by_key("wait", "order-8"), by_key("nothing", "order-7")] {
        for (method, rest) in [("GET", ""), ("POST", "/cancel"), ("POST", "/signals/go")] {
            let answer = client.request(method, &format!("{address}{rest}"), "").await?;
            assert_eq!(answer.problem()?, (404, "run_not_found".into()), "{method} {address}{rest}");
            assert!(!answer.headers.contains_key("content-location"));
            refused.push(without_request(&answer.body));
        }
    }
    refused.dedup();
    assert_eq!(refused.len(), 1, "they tell one reason from another: {refused:?}");
    assert_eq!(written().await?, before);
    assert_eq!(client.start("wait", &json!(1), Some("order-8"), 0).await?.status, 201, "the key is free");
    Ok(())
}

#[tokio::test]
async fn cells_that_hold_nothing_are_asked_without_a_trace() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 8).await?;
    let client = engine.client();
    for number in 0..32 {
        let answer = client.get(&by_key("wait", &format!("order-{number}"))).await?;
        assert_eq!(answer.problem()?, (404, "run_not_found".into()));
    }
    assert_eq!(client.get("/api/metrics").await?.json()?["total"], 0);
    Ok(())
}

#[tokio::test]
async fn a_key_takes_the_scope_of_its_workflow() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let root = engine.client();
    let (admin, other) = (namespace(&root, "acme").await?, namespace(&root, "other").await?);
    let limits = json!({ "payload_bytes_max": 10 });
    assert_eq!(root.request("PUT", "/api/namespaces/acme/limits", &limits.to_string()).await?.status, 200);
    let id = waiting(&admin, "order-7").await?;
    let (_, reader) = key(&admin, &["read:wait"]).await?;
    let (_, writer) = key(&admin, &["write:wait"]).await?;
    let (_, elsewhere) = key(&admin, &["write:nap"]).await?;
    let address = by_key("wait", "order-7");
    let signal = format!("{address}/signals/go");
    assert_eq!(reader.get(&address).await?.json()?["id"], json!(id));
    let forbidden = [
        reader.request("POST", &signal, "1").await?,
        reader.request("POST", &format!("{address}/cancel"), "").await?,
        elsewhere.get(&address).await?,
        elsewhere.request("POST", &signal, "1").await?,
        // Whether there is such a run is none of its business.
        elsewhere.get(&by_key("wait", "order-8")).await?,
    ];
    for answer in forbidden {
        assert_eq!(answer.problem()?, (403, "forbidden".into()));
    }
    for stranger in [&other, &root] {
        assert_eq!(stranger.get(&address).await?.problem()?, (404, "run_not_found".into()));
    }
    assert_eq!(writer.request("POST", &signal, "\"gone\"").await?.status, 202);
    let ended = admin.show(&id, 10).await?.json()?;
    assert_eq!(ended["output"], "gone");
    let next = waiting(&admin, "order-9").await?;
    let large = format!("\"{}\"", "x".repeat(20));
    let refused =
        writer.request("POST", &format!("{}/signals/go", by_key("wait", "order-9")), &large).await?;
    assert_eq!(refused.problem()?, (413, "payload_too_large".into()));
    assert_eq!(admin.history(&next).await?, Vec::<Value>::new());
    Ok(())
}

#[tokio::test]
async fn a_run_is_found_by_its_key_in_every_life_and_no_more_when_it_is_deleted() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let input = json!({ "left": 3, "taken": [], "keys": [] });
    let first = client.start("lives", &input, Some("subscription-7"), 0).await?.json()?;
    let address = by_key("lives", "subscription-7");
    let began = Instant::now();
    let mut sent = 0;
    let last = loop {
        let run = client.get(&address).await?.json()?;
        assert_eq!(run["id"], first["id"], "{run}");
        if run["status"] == "completed" {
            break run;
        }
        let item = client.send_post(&format!("{address}/signals/item"), &sent.to_string()).await?;
        assert!([202, 409, 429].contains(&item.status), "{}", item.body);
        sent += 1;
        ensure!(began.elapsed() < Duration::from_secs(30), "{run}");
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(last["life"]["number"], 4, "{last}");

    let gone = client.start("soon_gone", &Value::Null, Some("order-7"), 10).await?.json()?;
    assert_eq!(gone["status"], "completed");
    let address = by_key("soon_gone", "order-7");
    assert_eq!(client.get(&address).await?.json()?["id"], gone["id"]);
    let began = Instant::now();
    while client.get(&address).await?.status == 200 {
        ensure!(began.elapsed() < Duration::from_secs(20), "it is still there");
        sleep(Duration::from_millis(50)).await;
    }
    for (method, rest) in [("GET", ""), ("POST", "/cancel"), ("POST", "/signals/go")] {
        let answer = client.request(method, &format!("{address}{rest}"), "").await?;
        assert_eq!(answer.problem()?, (404, "run_not_found".into()));
    }
    let next = client.start("soon_gone", &Value::Null, Some("order-7"), 10).await?.json()?;
    assert_ne!(next["id"], gone["id"]);
    assert_eq!(client.get(&address).await?.json()?["id"], next["id"]);
    Ok(())
}

#[tokio::test]
async fn another_worker_reaches_runs_by_their_keys() -> Result<()> {
    let engine = Engine::start_with_caller(Form::AllInOne, 2).await?;
    let call = async |method: &str, arguments: Value| -> Result<Value> {
        let given = engine.call(method, &arguments).await?;
        given.map_err(|thrown| anyhow::anyhow!("{method} {arguments}: {thrown}"))
    };
    let run = call("startWorkflow", json!(["wait", 600_000, {"idempotencyKey": "order/7"}])).await?;
    let found = call("getExecutionByKey", json!(["wait", "order/7"])).await?;
    assert_eq!(found["id"], run["id"]);
    let receipt = call("sendSignalByKey", json!(["wait", "order/7", "go", "gone"])).await?;
    assert_eq!(receipt["duplicate"], false);
    let ended = call("getExecutionByKey", json!(["wait", "order/7", {"wait": 10}])).await?;
    assert_eq!(ended["output"], "gone");
    assert_eq!(call("cancelExecutionByKey", json!(["wait", "order/7"])).await?, json!(false));
    call("startWorkflow", json!(["nap", 600_000, {"idempotencyKey": "order/8"}])).await?;
    assert_eq!(call("cancelExecutionByKey", json!(["nap", "order/8"])).await?, json!(true));
    assert_eq!(call("getExecutionByKey", json!(["nap", "order/7"])).await?, Value::Null);
    assert_eq!(call("cancelExecutionByKey", json!(["wait", "order/8"])).await?, json!(false));
    Ok(())
}

#[tokio::test]
async fn every_command_that_takes_a_run_takes_its_workflow_and_key() -> Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let terminal = Terminal::open(&engine.engine.address())?;
    let id = waiting(&client, "acme/order 7").await?;
    waiting(&client, "order 8").await?;
    let run = "wait/acme/order 7";
    for (arguments, said) in [
        (&["show", run][..], id.as_str()),
        (&["why", run], "wait go"),
        (&["pause", run], "is paused"),
        (&["resume", run], id.as_str()),
        (&["logs", run], ""),
        (&["signal", run, "go", "--text", "gone"], "stepwell watch wait/acme/order 7"),
        (&["watch", run], "\"gone\""),
        (&["export", run], id.as_str()),
        (&["restart", run], id.as_str()),
        (&["cancel", "wait/order 8"], "is cancelled"),
    ] {
        let ran = terminal.quietly(arguments).await?;
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stdout.contains(said), "{arguments:?}: {}", ran.stdout);
    }
    let ran = terminal.quietly(&["show", "nap/acme/order 7"]).await?;
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("This key has not started a run of this workflow"), "{}", ran.stderr);
    for (name, why) in [("wait/", "as WORKFLOW/KEY"), ("wait/..", "name the run by its id")] {
        let ran = terminal.quietly(&["show", name]).await?;
        assert_eq!((ran.code, ran.stderr.contains(why)), (Some(2), true), "{}", ran.stderr);
    }
    Ok(())
}
