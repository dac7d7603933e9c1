//! Webhooks on the real workerd: what a sender has signed starts one run, also through kills, and nothing else does.

use std::{path::PathBuf, time::UNIX_EPOCH};

use anyhow::{Context as _, Result};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_protocol::{
    Timestamp,
    signature::{Key, Purpose},
    webhook::{Address, schemes::sign},
};
use stepwell_workerd_tests::{
    Answer, TestResult,
    access::namespace,
    cli::Terminal,
    engine::{Client, Engine, Form, KEY, URL},
};
use tokio::time::{Duration, Instant, sleep};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A webhook of the topic `shop`.
struct Hook {
    spec: Value,
    path: String,
}

pub(crate) fn now() -> Result<Timestamp> {
    Ok(Timestamp::from_millis(u64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?))
}

/// Makes a webhook, and a trigger that starts a run of each of its events.
async fn set(client: &Client, id: &str, mut spec: Value) -> Result<Hook> {
    let answer = client.request("PUT", &format!("/api/webhooks/shop/{id}"), &spec.to_string()).await?;
    let made = answer.json()?;
    anyhow::ensure!(!answer.body.contains("MfKQ9r8G"), "it shows its secret: {made}");
    let url = made["url"].as_str().context("it has an address")?;
    let path = url.strip_prefix(URL).with_context(|| url.to_owned())?.to_owned();
    let trigger = json!({ "on": "shop/*", "workflow": "ten", "tags": ["shop"] }).to_string();
    client.request("PUT", "/api/triggers/shop/all", &trigger).await?.json()?;
    spec["secret"].take();
    Ok(Hook { spec, path })
}

impl Hook {
    /// Delivers what this secret has signed, without a key.
    async fn signed_by(&self, client: &Client, secret: &str, id: &str, body: &str) -> Result<Answer> {
        let spec = serde_json::from_value(self.spec.clone())?;
        let signed = sign(&spec, secret, id, now()?, body.as_bytes());
        self.post(client, &signed, body).await
    }

    async fn post(&self, client: &Client, headers: &[(String, String)], body: &str) -> Result<Answer> {
        let http = client.http();
        let request = http.client().post(http.url(&self.path)).body(body.to_owned());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        http.send(request, &self.path).await
    }

    async fn deliver(&self, client: &Client, id: &str, body: &str) -> Result<Value> {
        self.signed_by(client, SECRET, id, body).await?.json()
    }
}

/// The files of all objects that are no cells.
fn stored(engine: &Engine) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(engine.engine.disk().join("Station"))?;
    files.map(|file| Ok(file?.path())).collect()
}

/// Waits until there are so many runs of events, and a moment longer.
async fn until_runs(client: &Client, count: usize) -> Result<usize> {
    let began = Instant::now();
    loop {
        let found = client.list("tag=shop", 100).await?.len();
        if found >= count {
            sleep(Duration::from_millis(500)).await;
            return Ok(client.list("tag=shop", 100).await?.len());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "{found} runs of {count}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_signed_delivery_of_each_kind_starts_one_run() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let kinds = [
        ("standard", json!({ "event": "shop/paid" }), r#"{"type":"a"}"#, "shop/paid", "standard-1"),
        (
            "github",
            json!({ "event": "shop/{body.action}" }),
            r#"{"action":"opened"}"#,
            "shop/opened",
            "github-1",
        ),
        (
            "stripe",
            json!({ "event": "shop/{body.type}" }),
            r#"{"id":"evt_1","type":"invoice.paid"}"#,
            "shop/invoice.paid",
            "evt_1",
        ),
        ("slack", json!({ "event": "shop/message" }), r#"{"event_id":"Ev1"}"#, "shop/message", "Ev1"),
        (
            "hmac",
            json!({ "event": "shop/made", "header": "x-sig", "encoding": "base64", "algorithm": "sha512",
            "id_header": "x-id" }),
            "not JSON \u{e4}",
            "shop/made",
            "hmac-1",
        ),
    ];
    for (kind, mut spec, body, name, id) in kinds {
        spec["kind"] = kind.into();
        spec["secret"] = SECRET.into();
        let hook = set(&client, kind, spec).await?;
        let sent = format!("{kind}-1");
        let accepted = hook.deliver(&client, &sent, body).await?;
        assert_eq!(accepted, json!({ "status": "accepted", "name": name, "id": id }), "{kind}");
        let again = hook.deliver(&client, &sent, body).await?;
        assert_eq!(again["status"], "duplicate", "{kind}");
        let refused = hook.signed_by(&client, OTHER, &sent, body).await?;
        assert_eq!(refused.problem()?, (403, "webhook_refused".into()), "{kind}");
        let event = client.get(&format!("/api/events/shop/{id}")).await?.json()?;
        let data = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
        assert_eq!((&event["name"], &event["data"]), (&json!(name), &data), "{kind}");
        let kept = client.get(&format!("/api/webhooks/shop/{kind}/deliveries")).await?;
        assert!(!kept.body.contains("signature\",\"") && !kept.body.contains(SECRET), "{}", kept.body);
        let kept = kept.json()?["deliveries"].clone();
        let statuses: Vec<_> =
            kept.as_array().into_iter().flatten().map(|one| one["status"].clone()).collect();
        assert_eq!(statuses, ["refused", "accepted"], "{kept}");
    }
    assert_eq!(until_runs(&client, 5).await?, 5, "one for each kind");
    Ok(())
}

#[tokio::test]
async fn addresses_that_nobody_was_given_touch_no_object() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let spec = json!({ "kind": "github", "event": "shop/push", "secret": SECRET });
    let mut hook = set(&client, "repo", spec).await?;
    let good = hook.path.clone();
    let before = stored(&engine)?;
    for path in [
        good.replace("/shop/", "/ship/"),
        good.replace("/repo-", "/other-"),
        good.replace("/default/", "/acme/"),
        format!("{}x", &good[..good.len() - 1]),
    ] {
        hook.path = path;
        let refused = hook.signed_by(&client, SECRET, "1", "{}").await?;
        assert_eq!(refused.problem()?, (404, "webhook_not_found".into()), "{}", hook.path);
    }
    assert_eq!(stored(&engine)?, before, "no object was made");
    hook.path = good;
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    assert_eq!(hook.signed_by(&client, SECRET, "2", &large).await?.problem()?.0, 413);
    let largest = format!("\"{}\"", "x".repeat(999_998));
    assert_eq!(hook.deliver(&client, "3", &largest).await?["status"], "accepted");
    client.request("DELETE", "/api/webhooks/shop/repo", "").await?.json()?;
    let gone = hook.signed_by(&client, SECRET, "4", "{}").await?;
    assert_eq!(gone.problem()?, (404, "webhook_not_found".into()));
    Ok(())
}

#[tokio::test]
async fn secrets_are_rotated_and_slack_is_answered() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let spec = json!({ "kind": "slack", "event": "shop/message", "secret": SECRET });
    let hook = set(&client, "slack", spec.clone()).await?;
    let challenge = r#"{"type":"url_verification","challenge":"3eZbrw1aB"}"#;
    assert_eq!(hook.deliver(&client, "", challenge).await?, json!({ "challenge": "3eZbrw1aB" }));
    let mut rotated = spec.clone();
    rotated["secret"] = OTHER.into();
    rotated["overlap_ms"] = 1_500.into();
    let view = client.request("PUT", "/api/webhooks/shop/slack", &rotated.to_string()).await?.json()?;
    assert!(view["previous_until"].is_u64(), "{view}");
    for (secret, id) in [(SECRET, "a"), (OTHER, "b")] {
        let body = json!({ "event_id": id }).to_string();
        assert_eq!(hook.signed_by(&client, secret, "", &body).await?.json()?["status"], "accepted");
    }
    sleep(Duration::from_millis(1_600)).await;
    let retired = hook.signed_by(&client, SECRET, "", r#"{"event_id":"c"}"#).await?;
    assert_eq!(retired.problem()?, (403, "webhook_refused".into()));
    // What is stored is enough for another instance, and does not say the secret.
    for file in stored(&engine)? {
        let bytes = std::fs::read(&file)?;
        let has = |secret: &str| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!has(SECRET) && !has(OTHER), "{}", file.display());
    }
    engine.engine.kill();
    engine.engine.restart().await?;
    let client = engine.client();
    let after = hook.signed_by(&client, OTHER, "", r#"{"event_id":"d"}"#).await?.json()?;
    assert_eq!(after["status"], "accepted");
    Ok(())
}

#[tokio::test]
async fn accepted_deliveries_start_their_runs_once_through_kills() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let spec = json!({ "kind": "standard", "event": "shop/paid", "secret": SECRET });
    let hook = set(&engine.client(), "shop", spec).await?;
    for round in 0..3_u64 {
        for number in 0..5 {
            let accepted = hook.deliver(&engine.client(), &format!("{round}-{number}"), "{}").await?;
            assert_eq!(accepted["status"], "accepted");
        }
        sleep(Duration::from_millis(10 * round)).await;
        engine.engine.kill();
        engine.engine.restart().await?;
        // The sender did not hear of it, and delivers again.
        let again = hook.deliver(&engine.client(), &format!("{round}-0"), "{}").await?;
        assert_eq!(again["status"], "duplicate");
    }
    assert_eq!(until_runs(&engine.client(), 15).await?, 15, "each delivery has one run");
    Ok(())
}

#[tokio::test]
async fn a_delivery_is_shown_and_delivered_again() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let wrong = json!({ "kind": "github", "event": "shop/push", "secret": OTHER });
    let hook = set(&client, "repo", wrong.clone()).await?;
    assert_eq!(hook.signed_by(&client, SECRET, "guid-1", r#"{"n":1}"#).await?.status, 403);
    let deliveries = "/api/webhooks/shop/repo/deliveries";
    let list = client.get(deliveries).await?.json()?;
    let one = format!("{deliveries}/{}", list["deliveries"][0]["id"]);
    let shown = client.get(&one).await?.json()?;
    assert_eq!((&shown["body"], &shown["is_verified"]), (&json!(r#"{"n":1}"#), &json!(false)), "{shown}");
    // The secret was wrong. Once it is right, what was refused is accepted.
    let again = client.request("POST", &format!("{one}/redeliver"), "").await?;
    assert_eq!(again.problem()?, (403, "webhook_refused".into()));
    let mut right = wrong;
    right["secret"] = SECRET.into();
    set(&client, "repo", right).await?;
    let accepted = client.request("POST", &format!("{one}/redeliver"), "").await?.json()?;
    assert_eq!((&accepted["status"], &accepted["id"]), (&json!("accepted"), &json!("guid-1")));
    let another = client.request("POST", &format!("{one}/redeliver"), "").await?.json()?;
    assert_eq!(another["status"], "accepted");
    assert_ne!(another["id"], "guid-1");
    assert_eq!(until_runs(&client, 2).await?, 2);
    // Nobody else may.
    let nobody = client.request_with(Method::GET, deliveries, &[("authorization", "Bearer x")], "").await?;
    assert_eq!(nobody.status, 401);
    Ok(())
}

#[tokio::test]
async fn the_command_line_sets_tests_and_redelivers() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let terminal = Terminal::open(&engine.engine.address())?;
    let file = terminal.folder().join("secret");
    std::fs::write(&file, format!("{SECRET}\n"))?;
    let secret = format!("--secret-file={}", file.display());
    let run = async |arguments: &[&str]| -> Result<String> {
        let ran = terminal.quietly(arguments).await?;
        anyhow::ensure!(ran.code == Some(0), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        Ok(ran.stdout)
    };
    let set = run(&["webhooks", "set", "billing", "stripe/{body.type}", "--kind=stripe", &secret]).await?;
    assert!(set.contains("/api/hooks/default/stripe/billing-") && !set.contains("MfKQ"), "{set}");
    let tested = run(&["webhooks", "test", "stripe", "billing", &secret]).await?;
    assert!(tested.starts_with("Accepted as stripe/test, with the id test_"), "{tested}");
    let body = r#"{"id":"evt_7","type":"invoice.paid"}"#;
    run(&["webhooks", "test", "stripe", "billing", body, &secret]).await?;
    let list = run(&["webhooks", "deliveries", "stripe", "billing"]).await?;
    assert!(list.contains("accepted as evt_7"), "{list}");
    let number = list.split_whitespace().next().context("it has a number")?;
    let shown = run(&["webhooks", "deliveries", "stripe", "billing", number]).await?;
    assert!(shown.contains(body) && !shown.contains("v1="), "{shown}");
    let again = run(&["webhooks", "redeliver", "stripe", "billing", number]).await?;
    assert!(again.starts_with("Accepted as stripe/invoice.paid"), "{again}");
    assert!(run(&["webhooks", "list", "stripe"]).await?.contains("billing"));
    run(&["webhooks", "show", "stripe", "billing"]).await?;
    run(&["webhooks", "delete", "stripe", "billing"]).await?;
    Ok(())
}

#[tokio::test]
async fn whoever_delivers_what_is_not_signed_is_refused_before_it_is_read() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let spec = json!({ "kind": "github", "event": "shop/push", "secret": SECRET });
    let (hook, other) = (set(&client, "repo", spec.clone()).await?, set(&client, "other", spec).await?);
    let deliver = async |hook: &Hook, address: &str, secret: &str, id: &str| {
        let mut headers = sign(&serde_json::from_value(hook.spec.clone())?, secret, id, now()?, b"{}");
        headers.push(("cf-connecting-ip".into(), address.into()));
        hook.post(&client, &headers, "{}").await
    };
    let mut refused = 0;
    let throttled = loop {
        let answer = deliver(&hook, "203.0.113.9", OTHER, "x").await?;
        if answer.status == 429 {
            break answer;
        }
        assert_eq!(answer.problem()?, (403, "webhook_refused".into()));
        refused += 1;
        assert!(refused < 300, "nobody stops it");
    };
    assert!(refused >= 60, "a sender with a wrong secret is told so for longer: {refused}");
    assert_eq!(throttled.problem()?, (429, "limit_reached".into()));
    assert!(throttled.headers.contains_key("retry-after"));
    // Neither others, nor what the same sender delivers elsewhere; and it comes back by itself.
    for (hook, address, id) in [(&hook, "203.0.113.10", "a"), (&other, "203.0.113.9", "b")] {
        assert_eq!(deliver(hook, address, SECRET, id).await?.json()?["status"], "accepted");
    }
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(deliver(&hook, "203.0.113.9", SECRET, "c").await?.json()?["status"], "accepted");
    Ok(())
}

#[tokio::test]
async fn the_address_of_a_namespace_that_is_not_there_touches_no_object() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let spec = json!({ "kind": "github", "event": "shop/push" });
    // As it was given to somebody before the namespace was deleted.
    let address = Address { namespace: "gone".into(), topic: "shop".into(), webhook: "repo".into() };
    let hook = Hook { spec, path: address.path(&Key::derive(KEY, Purpose::Webhook)) };
    namespace(&client, "other").await?;
    let objects = || -> Result<usize> {
        let is_one = |file: &PathBuf| file.extension().is_some_and(|end| end == "sqlite");
        Ok(stored(&engine)?.into_iter().filter(is_one).count())
    };
    let before = objects()?;
    let refused = hook.signed_by(&client, SECRET, "1", "{}").await?;
    assert_eq!(refused.problem()?, (404, "webhook_not_found".into()));
    assert_eq!(objects()?, before, "no object was made");
    Ok(())
}
