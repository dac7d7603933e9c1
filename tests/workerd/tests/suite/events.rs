//! Events on the real workerd: they are stored once, and start one run for each trigger, also through kills.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult, Worker,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

async fn put(client: &Client, id: &str, spec: &Value) -> Result<Value> {
    let answer = client.request("PUT", &format!("/api/triggers/order/{id}"), &spec.to_string()).await?;
    anyhow::ensure!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
    answer.json()
}

async fn send(client: &Client, event: &Value) -> Result<(u16, Value)> {
    let answer = client.request("POST", "/api/events", &event.to_string()).await?;
    Ok((answer.status, answer.json()?))
}

/// Waits until there are so many runs with a tag, and a moment longer.
async fn until_runs(client: &Client, tag: &str, count: usize) -> Result<usize> {
    let began = Instant::now();
    loop {
        let found = client.list(&format!("tag={tag}"), 100).await?.len();
        if found >= count {
            sleep(Duration::from_millis(500)).await;
            return Ok(client.list(&format!("tag={tag}"), 100).await?.len());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "{found} runs of {count}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_event_starts_one_run_for_each_trigger_that_it_meets() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    put(&client, "all", &json!({ "on": "order/*", "workflow": "ten", "tags": ["all"] })).await?;
    let when = "event.data.amount > 100 && event.data.country in [\"DE\", \"AT\"]";
    put(&client, "large", &json!({ "on": "order/paid", "when": when, "workflow": "ten", "tags": ["large"] }))
        .await?;
    let paid = json!({ "name": "order/paid", "id": "evt-1", "data": { "amount": 120, "country": "AT" } });
    let (status, accepted) = send(&client, &paid).await?;
    assert_eq!((status, &accepted["status"], &accepted["id"]), (201, &json!("accepted"), &json!("evt-1")));
    let (status, again) = send(&client, &paid).await?;
    assert_eq!((status, &again["status"]), (200, &json!("duplicate")));
    let others = json!({ "events": [
        { "name": "order/shipped", "data": { "amount": 500, "country": "DE" } },
        { "name": "order/paid", "data": { "amount": 5, "country": "DE" } },
        { "name": "order/paid", "data": null },
        { "name": "order paid" },
    ]});
    let (status, list) = send(&client, &others).await?;
    assert_eq!((status, &list["results"][3]["status"]), (200, &json!("refused")));
    assert_eq!(until_runs(&client, "all", 4).await?, 4);
    assert_eq!(until_runs(&client, "large", 1).await?, 1);
    let event = client.get("/api/events/order/evt-1").await?.json()?;
    let tag = event["tag"].as_str().context("a tag")?;
    assert_eq!(client.list(&format!("tag={tag}"), 10).await?.len(), 2);
    sleep(Duration::from_millis(1_500)).await;
    let large = client.get("/api/triggers/order/large").await?.json()?;
    assert_eq!((&large["counts"]["started"], &large["counts"]["failed"]), (&json!(1), &json!(1)), "{large}");
    let page = client.get("/api/events?topic=order&limit=2").await?.json()?;
    assert_eq!((page["events"].as_array().map(Vec::len), &page["next"]), (Some(2), &json!(3)));
    Ok(())
}

/// Events that become jobs of two queues while everything is killed: each is in both once.
async fn events_become_jobs(form: Form) -> Result<()> {
    let mut engine = Engine::start(form, 4).await?;
    let client = engine.client();
    client.request("PATCH", "/api/queues/stock", r#"{"partitions":3}"#).await?.json()?;
    for queue in ["mails", "stock"] {
        put(&client, queue, &json!({ "on": "order/*", "queue": queue })).await?;
    }
    for round in 0..4_u64 {
        let events: Vec<_> =
            (0..10).map(|number| json!({ "name": "order/paid", "data": round * 10 + number })).collect();
        let (status, list) = send(&client, &json!({ "events": events })).await?;
        anyhow::ensure!(status == 200, "{list}");
        sleep(Duration::from_millis(15 * round)).await;
        engine.engine.kill();
        engine.engine.restart().await?;
    }
    for queue in ["mails", "stock"] {
        let mut bodies = Vec::new();
        let began = Instant::now();
        while bodies.len() < 40 && began.elapsed() < Duration::from_secs(60) {
            let claim = json!({ "limit": 100, "wait_ms": 1_000 });
            let jobs = client.post_json(&format!("/api/queues/{queue}/claim"), &claim).await?;
            bodies
                .extend(jobs["jobs"].as_array().into_iter().flatten().filter_map(|job| job["body"].as_u64()));
        }
        sleep(Duration::from_millis(1_500)).await;
        let counts = client.get(&format!("/api/queues/{queue}")).await?.json()?["counts"].take();
        anyhow::ensure!(counts["depth"] == 0, "{counts}");
        bodies.sort_unstable();
        assert_eq!(bodies, (0..40).collect::<Vec<_>>(), "{queue}");
        let trigger = client.get(&format!("/api/triggers/order/{queue}")).await?.json()?;
        assert_eq!((&trigger["counts"]["waiting"], &trigger["last"]["run"]), (&json!(0), &Value::Null));
    }
    Ok(())
}

#[tokio::test]
async fn an_event_becomes_one_job_of_each_queue_through_kills_all_in_one() -> TestResult {
    Ok(events_become_jobs(Form::AllInOne).await?)
}

#[tokio::test]
async fn an_event_becomes_one_job_of_each_queue_through_kills_with_two_workers() -> TestResult {
    Ok(events_become_jobs(Form::Split).await?)
}

/// Sends events, and kills everything in the middle of their starts.
async fn kill_between(form: Form) -> Result<()> {
    let mut engine = Engine::start(form, 4).await?;
    put(&engine.client(), "all", &json!({ "on": "order/*", "workflow": "ten", "tags": ["all"] })).await?;
    let mut accepted = 0;
    for round in 0..3 {
        let events: Vec<_> = (0..10).map(|number| json!({ "name": "order/paid", "data": number })).collect();
        let (status, list) = send(&engine.client(), &json!({ "events": events })).await?;
        anyhow::ensure!(status == 200, "{list}");
        accepted += events.len();
        sleep(Duration::from_millis(20 * round)).await;
        engine.engine.kill();
        engine.engine.restart().await?;
    }
    let client = engine.client();
    assert_eq!(until_runs(&client, "all", accepted).await?, accepted, "each event has one run");
    Ok(())
}

#[tokio::test]
async fn accepted_events_start_their_runs_once_through_kills() -> TestResult {
    Ok(kill_between(Form::AllInOne).await?)
}

#[tokio::test]
async fn accepted_events_start_their_runs_once_through_kills_with_two_workers() -> TestResult {
    Ok(kill_between(Form::Split).await?)
}

#[tokio::test]
async fn another_worker_sends_events() -> TestResult {
    let engine = Engine::start_with_caller(Form::AllInOne, 2).await?;
    let send = async |event: Value| engine.call("sendEvents", &json!([event])).await;
    let accepted = send(json!({ "name": "order/paid", "id": "evt-1" })).await?;
    assert_eq!(accepted.map(|one| one["status"].clone()), Ok(json!("accepted")));
    let several = send(json!({ "events": [{ "name": "order/paid", "id": "evt-1" }] })).await?;
    assert_eq!(several.map(|all| all["results"][0]["status"].clone()), Ok(json!("duplicate")));
    let thrown = send(json!({ "name": "paid" })).await?.err().context("it is thrown")?;
    assert!(thrown.starts_with("invalid_request"), "{thrown}");
    Ok(())
}

#[tokio::test]
async fn a_paused_workflow_holds_up_its_own_trigger_only() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    put(&client, "held", &json!({ "on": "order/*", "workflow": "ward", "tags": ["held"] })).await?;
    put(&client, "free", &json!({ "on": "order/*", "workflow": "ten", "tags": ["free"] })).await?;
    client.send_post("/api/workflows/ward/pause", "").await?;
    send(&client, &json!({ "name": "order/paid", "data": 1 })).await?;
    assert_eq!(until_runs(&client, "free", 1).await?, 1);
    assert_eq!(client.list("tag=held", 10).await?.len(), 0);
    Ok(())
}

/// Starts a run that waits for the payment of an order, and waits until its topic knows of that.
async fn ship(client: &Client, order: u64) -> Result<String> {
    let run = client.start_id("ship", json!({ "id": order })).await?;
    client.until(&run, "waiting").await?;
    Ok(run)
}

#[tokio::test]
async fn a_run_waits_for_an_event_that_another_run_emits() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let (first, second) = (ship(&client, 1).await?, ship(&client, 2).await?);
    let why = client.get(&format!("/api/executions/{first}/why")).await?.json()?;
    assert_eq!(why["because"], "It waits for event 'order/paid'.");
    let waits_for = &why["waits_for"][0];
    assert_eq!((&waits_for["kind"], &waits_for["name"]), (&json!("event"), &json!("order/paid")));
    assert!(waits_for["since"].is_u64() && waits_for["until"].is_u64(), "{waits_for}");

    let payer = client.start("pay", &json!({ "id": 2 }), None, 10).await?.json()?;
    let id = payer["output"].as_str().context("the event's id")?.to_owned();
    let done = client.until(&second, "completed").await?;
    assert_eq!(done["output"], "order/paid 2 of 2");
    assert_eq!(client.show(&first, 0).await?.json()?["status"], "waiting");

    let event = client.get(&format!("/api/events/order/{id}")).await?.json()?;
    let payer = payer["id"].as_str().context("a run")?;
    assert_eq!(event["source"], json!(format!("run:{payer}")));
    assert_eq!(event["waits"].as_array().map(Vec::len), Some(1), "{event}");
    assert_eq!(event["waits"][0]["run"], json!(second));
    Ok(())
}

#[tokio::test]
async fn no_signal_and_no_link_stands_for_an_event() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let by_key = client.start("ship", &json!({ "id": 1 }), Some("order-1"), 0).await?.json()?;
    let run = by_key["id"].as_str().context("a run")?.to_owned();
    client.until(&run, "waiting").await?;
    let forged = json!({ "id": "evt-1", "name": "order/paid", "at": 1, "data": { "id": 1 } });
    let signals = format!("/api/executions/{run}/signals/event:order%2Fpaid");
    let tokens = format!("/api/executions/{run}/tokens");
    for (path, body) in [
        (signals.as_str(), forged.clone()),
        ("/api/workflows/ship/by-key/order-1/signals/event:order%2Fpaid", forged),
        (tokens.as_str(), json!({ "name": "event:order/paid" })),
        (tokens.as_str(), json!({ "name": "event:order/paid", "occurrence": 0 })),
    ] {
        let refused = client.request("POST", path, &body.to_string()).await?;
        assert_eq!(refused.problem()?, (400, "invalid_request".into()), "{path}");
        assert!(refused.body.contains("Send the event instead"), "{}", refused.body);
    }
    // Nor does a signal keep the event away whose id its sender has foreseen.
    let other = client.signal(&run, "other", &json!(1), Some("event:order/1/event:order/paid")).await?;
    let warning = other.json()?["warning"].as_str().context("a warning")?.to_owned();
    assert!(warning.ends_with("It waits for: event order/paid."), "{warning}");
    assert_eq!(client.show(&run, 0).await?.json()?["status"], "waiting");
    send(&client, &json!({ "name": "order/paid", "data": { "id": 1 } })).await?;
    assert_eq!(client.until(&run, "completed").await?["output"], "order/paid 1 of 1");
    Ok(())
}

#[tokio::test]
async fn an_event_that_came_just_before_a_wait_is_not_lost() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    send(&client, &json!({ "name": "order/paid", "data": { "id": 5 } })).await?;
    let run = client.start_id("ship", json!({ "id": 5 })).await?;
    assert_eq!(client.until(&run, "completed").await?["output"], "order/paid 5 of 5");
    Ok(())
}

#[tokio::test]
async fn an_event_cancels_the_run_that_it_is_about() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let (one, other) = (
        client.start_id("on_the_road", json!({ "id": 1 })).await?,
        client.start_id("on_the_road", json!({ "id": 2 })).await?,
    );
    client.until(&one, "sleeping").await?;
    client.until(&other, "sleeping").await?;
    send(&client, &json!({ "name": "order/cancelled", "id": "evt-1", "data": { "id": 1 } })).await?;
    let cancelled = client.until(&one, "cancelled").await?;
    assert_eq!(cancelled["acts"][0]["by"], "event:order/1", "{cancelled}");
    assert_eq!(client.show(&other, 0).await?.json()?["status"], "sleeping");
    Ok(())
}

/// Emits and waits while everything is killed: each event is stored once, and each wait gets its own.
async fn kill_waits(form: Form) -> Result<()> {
    const ORDERS: u64 = 12;
    let mut engine = Engine::start(form, 4).await?;
    let mut runs = Vec::new();
    for order in 0..ORDERS {
        let client = engine.client();
        // Half of them wait first.
        if order % 2 == 0 {
            runs.push((order, client.start_id("ship", json!({ "id": order })).await?));
            client.start_id("pay", json!({ "id": order })).await?;
        } else {
            client.start_id("pay", json!({ "id": order })).await?;
            runs.push((order, client.start_id("ship", json!({ "id": order })).await?));
        }
        if order % 4 == 3 {
            engine.engine.kill();
            engine.engine.restart().await?;
        }
    }
    let client = engine.client();
    for (order, run) in runs {
        let done = client.until(&run, "completed").await?;
        assert_eq!(done["output"], json!(format!("order/paid {order} of {order}")));
    }
    let page = client.get("/api/events?topic=order&limit=100").await?.json()?;
    let events = page["events"].as_array().context("a list")?;
    assert_eq!(events.len(), usize::try_from(ORDERS)?, "each was emitted once");
    Ok(())
}

#[tokio::test]
async fn waits_get_their_events_once_through_kills() -> TestResult {
    Ok(kill_waits(Form::AllInOne).await?)
}

#[tokio::test]
async fn a_topic_that_nobody_has_used_is_not_made_by_looking_at_it() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let page = client.get("/api/events?topic=nobody").await?;
    assert_eq!((page.status, &page.json()?["events"]), (200, &json!([])));
    let triggers = client.get("/api/triggers?topic=nobody").await?;
    assert_eq!((triggers.status, &triggers.json()?["triggers"]), (200, &json!([])));
    for (path, code) in [
        ("/api/events/nobody/evt-1", "event_not_found"),
        ("/api/triggers/nobody/charge", "trigger_not_found"),
    ] {
        assert_eq!(client.get(path).await?.problem()?, (404, code.to_owned()));
    }
    send(&client, &json!({ "name": "nobody/was", "data": 1 })).await?;
    let page = client.get("/api/events?topic=nobody").await?.json()?;
    assert_eq!(page["events"].as_array().map(Vec::len), Some(1));
    Ok(())
}

/// An app whose next version, from this time on, has one trigger less. Its runs never end.
fn declaring_app(until_ms: u64) -> Worker {
    let app = r#"
        import { WorkerEntrypoint } from "cloudflare:workers";
        export default class extends WorkerEntrypoint {
          describe() {
            const on = (name, on) => ({ name, spec: { workflow: "w", on, tags: [name] } });
            const isFirst = Date.now() < Number(this.env.UNTIL);
            return JSON.stringify({
              protocol: 1,
              version: { id: isFirst ? "one" : "two", at: isFirst ? 1 : 2 },
              workflows: [{ name: "w" }],
              triggers: isFirst
                ? [on("gone", "order/paid"), on("kept", "order/*"), on("other", "invoice/paid")]
                : [on("kept", "order/*")],
            });
          }
          activate() { return new Promise(() => {}); }
        }"#;
    Worker::inline("app", [("main.js", app)]).text("UNTIL", &until_ms.to_string())
}

/// Waits until a trigger is as it should be.
async fn until_trigger(client: &Client, path: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = client.get(path).await?;
        if answer.status == 200 && is(&answer.json()?) {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(15), "{path}: {}", answer.body);
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn what_the_code_declares_starts_runs_through_a_kill_and_what_leaves_it_is_retired() -> TestResult {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let until = u64::try_from(now.as_millis())? + 12_000;
    let mut engine = Engine::beside(declaring_app(until)).await?;
    let plan = engine.client().send_post("/api/sync", "").await?.json()?;
    assert_eq!(plan["added"][3], json!({ "kind": "trigger", "name": "invoice/other" }), "{plan}");
    // The topics may not have heard of it yet.
    engine.engine.kill();
    engine.engine.restart().await?;
    let client = engine.client();
    client.send_post("/api/sync", "").await?;
    let paths = ["order/gone", "order/kept", "invoice/other"].map(|name| format!("/api/triggers/{name}"));
    for path in &paths {
        until_trigger(&client, path, |trigger| trigger["changed_by"] == "app").await?;
    }
    let events =
        json!({ "events": [{ "name": "order/paid", "data": 1 }, { "name": "invoice/paid", "data": 1 }] });
    send(&client, &events).await?;
    for tag in ["gone", "kept", "other"] {
        assert_eq!(until_runs(&client, tag, 1).await?, 1, "{tag}");
    }
    client.send_post("/api/triggers/order/kept/pause", "").await?;
    let refused = client.request("DELETE", "/api/triggers/order/kept", "").await?;
    assert_eq!(refused.problem()?, (409, "wrong_status".into()));
    let began = Instant::now();
    let plan = loop {
        let plan = client.send_post("/api/sync", "").await?.json()?;
        if plan["version"]["id"] == "two" {
            break plan;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it is never deployed: {plan}");
        sleep(Duration::from_millis(200)).await;
    };
    let gone = |name: &str| json!({ "kind": "trigger", "name": name });
    assert_eq!(plan["retired"], json!([gone("invoice/other"), gone("order/gone")]), "{plan}");
    for path in [&paths[0], &paths[2]] {
        until_trigger(&client, path, |trigger| trigger["declared"]["retired_at"].is_number()).await?;
    }
    send(&client, &events).await?;
    sleep(Duration::from_millis(1_500)).await;
    for tag in ["gone", "kept", "other"] {
        assert_eq!(client.list(&format!("tag={tag}"), 10).await?.len(), 1, "{tag} goes on");
    }
    Ok(())
}
