//! Queues that take their jobs to a consumer by themselves, on the real workerd.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_protocol::{
    Timestamp,
    webhook::{WebhookSpec, schemes::verify},
};
use stepwell_workerd_tests::{
    TestResult,
    endpoint::{Endpoint, Pushed, Reply},
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// Development may call this machine.
const DEV: &[(&str, &str)] = &[("STEPWELL_DEV", "1")];

async fn set(client: &Client, queue: &str, patch: &Value) -> Result<Value> {
    let answer = client.request("PATCH", &format!("/api/queues/{queue}"), &patch.to_string()).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    answer.json()
}

async fn send(client: &Client, queue: &str, body: &Value) -> Result<Value> {
    client.post_json(&format!("/api/queues/{queue}/jobs"), body).await
}

/// Waits until a queue has nothing to do: its counts.
async fn rest(client: &Client, queue: &str, within: Duration) -> Result<Value> {
    let began = Instant::now();
    loop {
        let counts = client.get(&format!("/api/queues/{queue}")).await?.json()?["counts"].take();
        if counts["depth"] == 0 && counts["in_flight"] == 0 {
            return Ok(counts);
        }
        ensure!(began.elapsed() < within, "{counts}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn jobs_are_pushed_to_an_address_signed_and_as_they_were_sent() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let endpoint = Endpoint::start(|_, _| Reply::new("204 No Content")).await?;
    set(&client, "mails", &json!({ "push": { "url": endpoint.url("/mails?x=1") } })).await?;
    let sent = send(&client, "mails", &json!({ "body": { "to": "ada" } })).await?;
    send(&client, "mails", &json!({ "text": "grüße", "group": "g" })).await?;
    send(&client, "mails", &json!({ "base64": "AP+AAQ==", "content_type": "image/png" })).await?;
    let calls = endpoint.until(3).await?;
    let of = |kind: &str| calls.iter().find(|call| call.header("content-type") == kind);
    let json = of("application/json").context("the first one")?;
    assert_eq!((json.text().as_str(), json.path.as_str()), (r#"{"to":"ada"}"#, "/mails?x=1"));
    assert_eq!(sent["id"], json.header("webhook-id"));
    assert_eq!((json.header("stepwell-queue"), json.header("stepwell-attempt")), ("mails", "1"));
    let text = of("text/plain; charset=utf-8").context("the second one")?;
    assert_eq!((text.text().as_str(), text.header("stepwell-group")), ("grüße", "g"));
    assert_eq!(of("image/png").context("the third one")?.body, [0, 255, 128, 1]);
    // Verified as whoever has a library of Standard Webhooks does it.
    let secret = client.get("/api/queues/mails/secret").await?.json()?;
    let secret = secret["secret"].as_str().context("there is one")?;
    let spec: WebhookSpec = serde_json::from_value(json!({ "kind": "standard", "event": "job/pushed" }))?;
    for Pushed { headers, body, .. } in &calls {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let now = Timestamp::from_millis(u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?);
        assert_eq!(verify(&spec, &[secret], &headers, body, Some(now)), Ok(()));
        assert!(verify(&spec, &[secret], &headers, b"other", Some(now)).is_err());
    }
    rest(&client, "mails", Duration::from_secs(5)).await?;
    Ok(())
}

#[tokio::test]
async fn a_consumer_says_when_to_try_again_or_never() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let endpoint = Endpoint::start(|call, _| match (call.text().as_str(), call.header("stepwell-attempt")) {
        ("\"soon\"", "1") => Reply::new("503 Busy\r\nretry-after: 1"),
        ("\"never\"", _) => Reply::new("422 No\r\nstepwell-reject: no such address"),
        ("\"away\"", _) => Reply::new("302 Found\r\nlocation: http://127.0.0.1:9/"),
        ("\"slow\"", _) => Reply { after: Duration::from_secs(20), ..Reply::new("200 OK") },
        ("\"bad\"", _) => Reply { body: "a <b>\n".repeat(1_000), ..Reply::new("400 Bad Request") },
        _ => Reply::new("200 OK"),
    })
    .await?;
    let push = json!({ "url": endpoint.url("/"), "timeout_ms": 1_500 });
    set(&client, "q", &json!({ "max_attempts": 1, "push": push })).await?;
    for body in ["never", "away", "slow", "bad"] {
        send(&client, "q", &json!({ "body": body })).await?;
    }
    let counts = rest(&client, "q", Duration::from_secs(20)).await?;
    assert_eq!(counts["dead"], 4, "{counts}");
    let dead = client.get("/api/queues/q/dead").await?.json()?;
    let reasons = dead["jobs"].as_array().into_iter().flatten();
    let mut reasons: Vec<_> = reasons.filter_map(|job| job["death"]["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert!(reasons[0].starts_with("HTTP 302: redirects are not followed"), "{reasons:?}");
    assert!(reasons[1].starts_with("HTTP 400: a <b> a <b>") && reasons[1].len() < 600, "{reasons:?}");
    assert_eq!(reasons[2..], ["no answer within 1500 ms", "no such address"]);
    // One that is to be tried again is, after the time that was asked for.
    set(&client, "q", &json!({ "max_attempts": 3 })).await?;
    let began = Instant::now();
    send(&client, "q", &json!({ "body": "soon" })).await?;
    rest(&client, "q", Duration::from_secs(20)).await?;
    let took = began.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&took), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn no_more_are_pushed_at_once_than_may_be_and_none_is_lost_through_kills() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let done = Arc::new(std::sync::Mutex::new(Vec::<u64>::new()));
    let heard = Arc::clone(&done);
    let endpoint = Endpoint::start(move |call, _| {
        heard.lock().expect("nobody panics").extend(call.text().parse::<u64>());
        Reply { after: Duration::from_millis(20), ..Reply::new("200 OK") }
    })
    .await?;
    let push = json!({ "url": endpoint.url("/"), "concurrency": 4, "timeout_ms": 1_000 });
    set(&client, "k", &json!({ "partitions": 2, "max_attempts": 50, "push": push })).await?;
    let mut accepted = BTreeSet::new();
    for round in 0..4_u64 {
        let numbers: Vec<_> = (0..100).map(|number| round * 100 + number).collect();
        let jobs =
            numbers.iter().map(|number| json!({ "body": number, "group": format!("g{}", number % 7) }));
        send(&client, "k", &json!({ "jobs": jobs.collect::<Vec<_>>() })).await?;
        accepted.extend(numbers);
        sleep(Duration::from_millis(150)).await;
        engine.engine.kill();
        engine.engine.restart().await?;
    }
    let counts = rest(&client, "k", Duration::from_secs(60)).await?;
    assert_eq!(counts["dead"], 0);
    let seen = done.lock().expect("nobody panics").clone();
    assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), accepted, "each was pushed");
    // Those that were under way at a kill come again; all others once.
    assert!(seen.len() <= accepted.len() + 4 * 4, "{} calls for {} jobs", seen.len(), accepted.len());
    assert!(endpoint.most() <= 4, "{} at once", endpoint.most());
    // In the order of each group, but for those that come again.
    for group in 0..7 {
        let mut firsts = Vec::new();
        for number in seen.iter().filter(|number| *number % 7 == group) {
            if !firsts.contains(number) {
                firsts.push(*number);
            }
        }
        assert!(firsts.is_sorted(), "group {group}: {firsts:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_address_that_must_not_be_called_is_refused_and_never_called() -> TestResult {
    let canary = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let port = canary.url("/");
    for url in [
        port.clone(),
        port.replace("http:", "https:"),
        "https://localhost/".into(),
        "https://169.254.169.254/latest/meta-data/".into(),
        "https://user@example.com/".into(),
        "http://example.com/".into(),
    ] {
        let patch = json!({ "push": { "url": url } }).to_string();
        let answer = client.request("PATCH", "/api/queues/canary", &patch).await?;
        assert_eq!((answer.status, answer.problem()?.1.as_str()), (400, "invalid_request"), "{url}");
        assert!(answer.body.contains("`url` cannot be called"), "{}", answer.body);
    }
    assert_eq!(canary.calls().len(), 0);
    Ok(())
}

/// Lets the engine read what the app declares, and waits until the queue knows its handler.
async fn declared(client: &Client) -> Result<Value> {
    let synced = client.send_post("/api/sync", "").await?;
    ensure!(synced.status == 200, "{} {}", synced.status, synced.body);
    let began = Instant::now();
    loop {
        let answer = client.get("/api/queues/errands").await?;
        if answer.status == 200 {
            return answer.json();
        }
        ensure!(began.elapsed() < Duration::from_secs(20), "{} {}", answer.status, answer.body);
        sleep(Duration::from_millis(50)).await;
    }
}

async fn handled(form: Form) -> Result<()> {
    let mut engine = Engine::start_with(form, &[("STEPWELL_CELLS", "1")]).await?;
    let client = engine.client();
    let endpoint = Endpoint::start(|call, _| {
        let after = if call.path.contains("how=slow") { 3_000 } else { 30 };
        Reply { after: Duration::from_millis(after), ..Reply::new("200 OK") }
    })
    .await?;
    let queue = declared(&client).await?;
    assert_eq!(queue["settings"]["push"], json!({ "concurrency": 4, "timeout_ms": 1_000 }));
    assert_eq!(queue["settings"]["declared"], true);
    let patch = json!({ "push": { "url": "https://example.com" } }).to_string();
    assert_eq!(client.request("PATCH", "/api/queues/errands", &patch).await?.status, 409);
    set(&client, "errands", &json!({ "max_attempts": 2 })).await?;
    let errand = |how: &str| json!({ "body": { "address": endpoint.url("/"), "how": how } });
    let jobs: Vec<_> = (0..40).map(|_| errand("now")).collect();
    send(&client, "errands", &json!({ "jobs": jobs })).await?;
    rest(&client, "errands", Duration::from_secs(20)).await?;
    let dead = client.get("/api/queues/errands/dead?limit=1").await?.body;
    assert_eq!((endpoint.calls().len(), endpoint.most()), (40, 4), "{dead}");
    // How handlers fail: for good, for now, by a panic, and by taking too long.
    for how in ["never", "later", "slow"] {
        send(&client, "errands", &errand(how)).await?;
    }
    send(&client, "errands", &json!({ "body": "of another shape" })).await?;
    rest(&client, "errands", Duration::from_secs(60)).await?;
    // Where panics abort, one stops whatever is in the same instance.
    send(&client, "errands", &errand("panic")).await?;
    let counts = rest(&client, "errands", Duration::from_secs(60)).await?;
    assert_eq!(counts["dead"], 4, "{counts}");
    let dead = client.get("/api/queues/errands/dead").await?.json()?;
    let reasons = dead["jobs"].as_array().into_iter().flatten();
    let mut reasons: Vec<_> = reasons.filter_map(|job| job["death"]["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons[..2], ["no answer within 1000 ms", "no such address"], "{reasons:?}");
    assert!(reasons[2].contains("does not fit the handler of 'errands'"), "{reasons:?}");
    // In one Worker, it stops the partition as well: the lease ends by itself, and gives no reason.
    let cursed = reasons.get(3).is_some_and(|reason| reason.contains("the errand is cursed"));
    assert_eq!(cursed, form == Form::Split, "{reasons:?}");
    // A kill: what was under way comes again, and nothing is lost.
    let before = endpoint.calls().len();
    let jobs: Vec<_> = (0..40).map(|_| errand("now")).collect();
    send(&client, "errands", &json!({ "jobs": jobs })).await?;
    endpoint.until(before + 10).await?;
    engine.engine.kill();
    engine.engine.restart().await?;
    let counts = rest(&client, "errands", Duration::from_secs(30)).await?;
    assert_eq!(counts["dead"], 4);
    let calls = endpoint.calls();
    let ids: BTreeSet<_> =
        calls.iter().skip(before).filter_map(|call| call.path.split("id=").nth(1)).collect();
    assert_eq!(ids.len(), 40);
    assert!((40..=44).contains(&(calls.len() - before)), "{}", calls.len() - before);
    assert_eq!(endpoint.most(), 4);
    Ok(())
}

#[tokio::test]
async fn the_apps_handler_gets_the_jobs_of_its_queue_in_one_worker() -> TestResult {
    Ok(handled(Form::AllInOne).await?)
}

#[tokio::test]
async fn the_apps_handler_gets_the_jobs_of_its_queue_in_another_worker() -> TestResult {
    Ok(handled(Form::Split).await?)
}
