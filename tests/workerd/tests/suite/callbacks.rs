//! Addresses that are called when runs end, on the real workerd.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_protocol::{
    Timestamp,
    webhook::{WebhookSpec, schemes::verify},
};
use stepwell_workerd_tests::{
    Answer, TestResult, Worker,
    endpoint::{Endpoint, Pushed, Reply},
    engine::{APP_KEY, Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// Development may call this machine.
const DEV: &[(&str, &str)] = &[("STEPWELL_DEV", "1"), ("STEPWELL_CELLS", "2")];

const QUEUE: &str = "/api/queues/stepwell.webhooks";

/// Asks for a run that calls an address when it ends.
async fn ask(client: &Client, workflow: &str, url: &str, more: &[(&str, &str)]) -> Result<Answer> {
    let path = format!("/api/workflows/{workflow}/start?tag=eu");
    let headers: Vec<_> = [("stepwell-callback", url)].into_iter().chain(more.iter().copied()).collect();
    client.request_with(Method::POST, &path, &headers, "").await
}

async fn start(client: &Client, workflow: &str, url: &str) -> Result<String> {
    let answer = ask(client, workflow, url, &[]).await?;
    ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
    Ok(answer.json()?["id"].as_str().context("a run has an id")?.to_owned())
}

/// Waits until the queue's counts are so.
async fn until(client: &Client, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let began = Instant::now();
    loop {
        let answer = client.get(QUEUE).await?;
        let counts = if answer.status == 200 { answer.json()?["counts"].take() } else { Value::Null };
        if is(&counts) {
            return Ok(counts);
        }
        ensure!(began.elapsed() < Duration::from_secs(40), "{counts}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn is_at_rest(counts: &Value) -> bool {
    counts["depth"] == 0 && counts["in_flight"] == 0
}

/// Checks a call as whoever has a library of Standard Webhooks does it.
fn check(secret: &str, call: &Pushed) -> Result<Value> {
    let spec: WebhookSpec = serde_json::from_value(json!({ "kind": "standard", "event": "run/ended" }))?;
    let headers: Vec<_> = call.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let now = Timestamp::from_millis(u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?);
    let verified = verify(&spec, &[secret], &headers, &call.body, Some(now));
    ensure!(verified.is_ok(), "{verified:?}");
    ensure!(verify(&spec, &[secret], &headers, b"other", Some(now)).is_err(), "anything is good");
    Ok(serde_json::from_slice(&call.body)?)
}

fn of_run(call: &Pushed) -> String {
    let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    body["data"]["run"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_address_hears_of_each_end_signed_and_a_run_without_one_makes_no_queue() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let endpoint = Endpoint::start(|_, _| Reply::new("204 No Content")).await?;
    client.start("ten", &Value::Null, None, 10).await?.json()?;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(client.get(QUEUE).await?.status, 404);
    // Whoever is called can know the secret before.
    let secret = client.get(&format!("{QUEUE}/secret")).await?.json()?;
    let secret = secret["secret"].as_str().context("there is one")?;
    let url = endpoint.url("/done?x=1");
    let answer = ask(&client, "ten", &url, &[("idempotency-key", "order-7")]).await?;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let run = answer.json()?;
    assert_eq!(run["callback"], url);
    let calls = endpoint.until(1).await?;
    let body = check(secret, &calls[0])?;
    assert_eq!((calls[0].path.as_str(), calls[0].header("content-type")), ("/done?x=1", "application/json"));
    assert_eq!(
        (body["type"].as_str(), body["data"]["run"].clone()),
        (Some("run.completed"), run["id"].clone())
    );
    let data = json!({
        "run": run["id"], "workflow": "ten", "status": "completed", "key": "order-7", "tags": ["eu"], "result": 45,
    });
    assert_eq!(body["data"], data);
    // A repeat of the start is no second run, and no second callback.
    let again = ask(&client, "ten", &url, &[("idempotency-key", "order-7")]).await?;
    assert_eq!((again.status, again.json()?["id"].clone()), (200, run["id"].clone()));
    // A restart ends once more: another callback, with another id.
    let id = run["id"].as_str().context("it has one")?;
    assert_eq!(client.act(id, "restart", "").await?.status, 200);
    let calls = endpoint.until(2).await?;
    check(secret, &calls[1])?;
    assert_ne!(calls[0].header("webhook-id"), calls[1].header("webhook-id"));
    // A cancel is an end, too.
    let waiting = start(&client, "termed", &endpoint.url("/cancelled")).await?;
    assert_eq!(client.cancel(&waiting).await?.status, 200);
    let calls = endpoint.until(3).await?;
    let body = check(secret, &calls[2])?;
    assert_eq!(
        (body["type"].as_str(), body["data"]["status"].as_str()),
        (Some("run.cancelled"), Some("cancelled"))
    );
    until(&client, |counts| is_at_rest(counts) && counts["dead"] == 0).await?;
    assert_eq!(endpoint.calls().len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_callback_is_tried_again_with_the_same_id_and_never_follows_a_redirect() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let canary = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    let away = canary.url("/");
    let endpoint =
        Endpoint::start(move |call, _| match (call.path.as_str(), call.header("stepwell-attempt")) {
            ("/flaky", "1" | "2") => Reply::new("500 No\r\nretry-after: 1"),
            ("/away", _) => Reply::new(&format!("302 Found\r\nlocation: {away}")),
            _ => Reply::new("200 OK"),
        })
        .await?;
    start(&client, "ten", &endpoint.url("/flaky")).await?;
    let calls = endpoint.until(3).await?;
    let ids: BTreeSet<_> = calls.iter().map(|call| call.header("webhook-id")).collect();
    let times: BTreeSet<_> = calls.iter().map(|call| call.header("webhook-timestamp")).collect();
    let attempts: Vec<_> = calls.iter().map(|call| call.header("stepwell-attempt")).collect();
    assert_eq!((ids.len(), times.len(), attempts), (1, 3, vec!["1", "2", "3"]));
    let secret = client.get(&format!("{QUEUE}/secret")).await?.json()?;
    for call in &calls {
        check(secret["secret"].as_str().context("there is one")?, call)?;
    }
    until(&client, is_at_rest).await?;
    start(&client, "ten", &endpoint.url("/away")).await?;
    let away = endpoint.until(4).await?.remove(3);
    until(&client, |counts| counts["delayed"] == 1).await?;
    let job = client.get(&format!("{QUEUE}/jobs/{}", away.header("webhook-id"))).await?.json()?;
    assert_eq!((job["status"].as_str(), job["attempts"].as_u64()), (Some("delayed"), Some(1)), "{job}");
    assert_eq!(job["url"], endpoint.url("/away"));
    assert_eq!(canary.calls().len(), 0);
    Ok(())
}

#[tokio::test]
async fn an_address_that_is_gone_is_disabled_until_a_redriven_callback_arrives() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let is_gone = Arc::new(AtomicBool::new(true));
    let gone = Arc::clone(&is_gone);
    let endpoint = Endpoint::start(move |call, _| {
        let is_gone = call.path == "/gone" && gone.load(Ordering::SeqCst);
        Reply::new(if is_gone { "410 Gone" } else { "200 OK" })
    })
    .await?;
    let url = endpoint.url("/gone");
    start(&client, "ten", &url).await?;
    until(&client, |counts| counts["dead"] == 1).await?;
    let first = start(&client, "ten", &url).await?;
    start(&client, "ten", &endpoint.url("/there")).await?;
    until(&client, |counts| counts["dead"] == 2 && is_at_rest(counts)).await?;
    let paths: Vec<_> = endpoint.calls().into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/gone", "/there"], "the second one was not tried");
    let dead = client.get(&format!("{QUEUE}/dead")).await?.json()?;
    let codes: Vec<_> =
        dead["jobs"].as_array().into_iter().flatten().map(|job| &job["death"]["code"]).collect();
    assert_eq!(codes, ["rejected", "disabled"], "{dead}");
    let why = dead["jobs"][1]["death"]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("the address is disabled"), "{why}");
    // It is back: one that is redriven arrives, and lets the next ones go.
    is_gone.store(false, Ordering::SeqCst);
    let id = dead["jobs"][1]["id"].as_str().context("it has one")?;
    assert_eq!(client.send_post(&format!("{QUEUE}/jobs/{id}/redrive"), "").await?.status, 200);
    let calls = endpoint.until(3).await?;
    assert_eq!((of_run(&calls[2]), calls[2].header("webhook-id")), (first, id));
    start(&client, "ten", &url).await?;
    endpoint.until(4).await?;
    let counts = until(&client, is_at_rest).await?;
    assert_eq!(counts["dead"], 1);
    Ok(())
}

#[tokio::test]
async fn no_callback_is_lost_through_kills_and_one_that_comes_twice_has_the_same_id() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let slow = || Reply { after: Duration::from_millis(200), ..Reply::new("200 OK") };
    let endpoint = Endpoint::start(move |_, _| slow()).await?;
    let mut runs = BTreeSet::new();
    for _ in 0..3 {
        for n in 0..10 {
            runs.insert(start(&client, "ten", &endpoint.url(&format!("/{}", n % 4))).await?);
        }
        for run in &runs {
            client.until(run, "completed").await?;
        }
        engine.engine.kill();
        engine.engine.restart().await?;
    }
    until(&client, is_at_rest).await?;
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let calls = endpoint.calls();
    for call in &calls {
        ids.entry(of_run(call)).or_default().insert(call.header("webhook-id").to_owned());
    }
    assert_eq!(ids.keys().cloned().collect::<BTreeSet<_>>(), runs);
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    // Only those that were under way at a kill came again.
    assert!(calls.len() <= runs.len() + 3 * 6, "{} calls", calls.len());
    Ok(())
}

#[tokio::test]
async fn an_address_that_hangs_does_not_slow_another_one() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let hangs =
        Endpoint::start(|_, _| Reply { after: Duration::from_secs(600), ..Reply::new("200 OK") }).await?;
    let well = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    for _ in 0..30 {
        start(&client, "ten", &hangs.url("/")).await?;
    }
    hangs.until(3).await?;
    for n in 1..=10 {
        let began = Instant::now();
        start(&client, "ten", &well.url("/")).await?;
        well.until(n).await?;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        // Over the time that the other one may take to answer.
        sleep(Duration::from_secs(2)).await;
    }
    // It notices later than the engine that a call is over.
    assert!(hangs.most() < 6, "{} at once", hangs.most());
    let counts = until(&client, |_| true).await?;
    assert_eq!(counts["dead"], 0, "{counts}");
    Ok(())
}

/// An app that speaks the protocol by hand: `declared` ends at once, and `parent` invokes it.
fn app(url: &str) -> Worker {
    let app = r#"
        import { WorkerEntrypoint } from "cloudflare:workers";
        export default class extends WorkerEntrypoint {
          describe() {
            return JSON.stringify({
              protocol: 1,
              workflows: [{ name: "declared", callback: this.env.URL }, { name: "parent" }],
              triggers: [{ name: "t", spec: { workflow: "declared", on: "order/paid" } }],
              schedules: [{ name: "s", spec: { workflow: "declared", when: "every 1s" } }],
            });
          }
          async activate(text, session) {
            const { workflow, epoch, journal } = JSON.parse(text);
            const base = journal.events.at(-1)?.seq ?? 0;
            const commit = (commands, then) => session.commit(JSON.stringify({ epoch, base, commands, then }));
            if (workflow === "parent" && base === 0) {
              const op = "child:0:declared";
              const invocation = { workflow: "declared", input: null, callback: this.env.URL + "/child" };
              await commit([{ child_invoked: { op, invocation } }], { suspend: { open: [{ child: { op, invoked: 1 } }] } });
            } else {
              await commit([], { complete: { output: workflow } });
            }
          }
        }"#;
    Worker::inline("app", [("main.js", app)]).text("URL", url).text("STEPWELL_APP_KEY", APP_KEY)
}

async fn declared() -> Result<()> {
    let endpoint = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    let engine = Engine::beside_with(app(&endpoint.url("/declared")), &[("STEPWELL_DEV", "1")]).await?;
    let client = engine.client();
    let synced = client.send_post("/api/sync", "").await?;
    assert_eq!(synced.status, 200, "{}", synced.body);
    // By a start that names no address, and by one that names another.
    let plain = client.start("declared", &Value::Null, None, 10).await?.json()?;
    let other = start(&client, "declared", &endpoint.url("/other")).await?;
    let parent = client.start("parent", &Value::Null, None, 10).await?.json()?;
    assert_eq!(
        (parent["status"].as_str(), parent["callback"].as_str()),
        (Some("completed"), None),
        "{parent}"
    );
    client.post_json("/api/events", &json!({ "name": "order/paid", "data": {} })).await?;
    let began = Instant::now();
    loop {
        let mut seen = BTreeSet::new();
        for call in endpoint.calls() {
            let run = of_run(&call);
            let by =
                client.show(&run, 0).await?.json()?["started_by"].as_str().unwrap_or_default().to_owned();
            let by = by.split(':').next().unwrap_or_default().to_owned();
            let known = if plain["id"] == run {
                "plain"
            } else if other == run {
                "other"
            } else {
                &by
            };
            seen.insert(format!("{known} {}", call.path));
        }
        let wanted = [
            "other /other",
            "plain /declared",
            "run /declared/child",
            "schedule /declared",
            "trigger /declared",
        ];
        if wanted.iter().all(|wanted| seen.contains(*wanted)) {
            assert_eq!(seen.len(), wanted.len(), "{seen:?}");
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_secs(30), "{seen:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn runs_that_nobody_asks_for_call_the_address_that_their_workflow_declares() -> TestResult {
    Ok(declared().await?)
}

#[tokio::test]
async fn an_address_that_must_not_be_called_is_refused_before_anything_is_started() -> TestResult {
    let canary = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let long = format!("https://example.com/{}", "x".repeat(2_048));
    for url in [
        canary.url("/").as_str(),
        "",
        "example.com",
        "http://example.com/",
        "https://localhost/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/",
        "https://user@example.com/",
        "https://example.com:22/",
        "javascript:alert(1)",
        "https://example.com/, https://example.org/",
        &long,
    ] {
        let answer = ask(&client, "ten", url, &[]).await?;
        assert_eq!((answer.status, answer.problem()?.1.as_str()), (400, "invalid_request"), "{url}");
        assert!(answer.body.contains("`Stepwell-Callback` cannot be called"), "{}", answer.body);
    }
    assert!(client.list("", 10).await?.is_empty(), "nothing was started");
    // One that the code declares is refused when it is deployed.
    let manifest = json!({ "protocol": 1, "workflows": [{ "name": "w", "callback": canary.url("/") }] });
    let answer = client.send_post("/api/sync?dry_run=true", &manifest.to_string()).await?;
    assert_eq!((answer.status, answer.problem()?.1.as_str()), (422, "invalid_manifest"), "{}", answer.body);
    let manifest =
        json!({ "protocol": 1, "workflows": [], "jobs": [{ "queue": "stepwell.webhooks", "push": {} }] });
    let answer = client.send_post("/api/sync?dry_run=true", &manifest.to_string()).await?;
    assert_eq!((answer.status, answer.problem()?.1.as_str()), (422, "invalid_manifest"), "{}", answer.body);
    assert_eq!(canary.calls().len(), 0);
    Ok(())
}

#[tokio::test]
async fn the_queue_of_callbacks_is_stepwells_own() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let endpoint = Endpoint::start(|_, _| Reply::new("422 No\r\nstepwell-reject: not mine")).await?;
    let refused = async |client: &Client| -> Result<()> {
        for (method, path, body) in [
            ("POST", "/jobs", r#"{"body":1}"#),
            ("POST", "/claim", ""),
            ("PATCH", "", r#"{"push":{"url":"https://example.com/"}}"#),
            ("PATCH", "", r#"{"push":null}"#),
            ("PATCH", "", r#"{"partitions":2}"#),
            ("POST", "/drain", ""),
            ("POST", "/purge", ""),
            ("DELETE", "", ""),
            ("DELETE", "?purge=true", ""),
            ("PUT", "/jobs/18bcfe56800-0-1", r#"{"body":1}"#),
        ] {
            let answer = client.request(method, &format!("{QUEUE}{path}"), body).await?;
            ensure!(
                answer.status == 400 && answer.body.contains("Stepwell's own"),
                "{method} {path}: {}",
                answer.body
            );
        }
        Ok(())
    };
    refused(&client).await?;
    assert_eq!(client.get(QUEUE).await?.status, 404, "none of these has made it");
    // An address of 2,000 bytes is one like any other.
    let url = endpoint.url(&format!("/{}", "x".repeat(1_970)));
    start(&client, "ten", &url).await?;
    until(&client, |counts| counts["dead"] == 1).await?;
    refused(&client).await?;
    let queues = client.get("/api/queues").await?.json()?;
    let queues = queues["queues"].as_array().context("they are a list")?;
    assert!(queues.contains(&json!("stepwell.webhooks")), "{queues:?}");
    // While it is paused, callbacks wait.
    assert_eq!(client.send_post(&format!("{QUEUE}/pause"), "").await?.status, 200);
    start(&client, "ten", &url).await?;
    until(&client, |counts| counts["depth"] == 1).await?;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(endpoint.calls().len(), 1);
    assert_eq!(client.send_post(&format!("{QUEUE}/resume"), "").await?.status, 200);
    until(&client, |counts| counts["dead"] == 2).await?;
    // Dead letters can be read, redriven and deleted.
    let dead = client.get(&format!("{QUEUE}/dead")).await?.json()?;
    assert_eq!(
        (&dead["jobs"][0]["url"], &dead["jobs"][0]["death"]["reason"]),
        (&json!(url), &json!("not mine"))
    );
    let id = dead["jobs"][0]["id"].as_str().context("it has one")?;
    assert_eq!(client.request("DELETE", &format!("{QUEUE}/jobs/{id}"), "").await?.status, 200);
    assert_eq!(client.send_post(&format!("{QUEUE}/purge"), r#"{"dead":true}"#).await?.status, 202);
    until(&client, |counts| counts["dead"] == 0).await?;
    Ok(())
}
