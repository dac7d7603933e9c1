//! Alerts that tell an address on the real workerd.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    access::code,
    endpoint::{Endpoint, Reply},
    engine::{Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

/// Development may call this machine.
const DEV: &[(&str, &str)] = &[("STEPWELL_DEV", "1"), ("STEPWELL_CELLS", "2")];

#[tokio::test]
async fn an_alert_tells_its_address_once_that_it_fires_and_once_that_it_is_over_through_kills() -> TestResult
{
    let mut engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    let endpoint = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    for number in 0..3 {
        client.post_json("/api/queues/mails/jobs", &json!({ "body": number })).await?;
    }
    assert_eq!(client.get("/api/alerts").await?.json()?["alerts"], json!([]));
    let spec = json!({ "on": "backlog", "queue": "mails", "above": 2, "url": endpoint.url("/ops") });
    let made = client.request("PUT", "/api/alerts/pile", &spec.to_string()).await?;
    assert_eq!(made.status, 201, "{}", made.body);
    let again = client.request("PUT", "/api/alerts/pile", &spec.to_string()).await?;
    assert_eq!(again.status, 200, "{}", again.body);
    let told = endpoint.until(1).await?;
    let fired: Value = serde_json::from_str(&told[0].text())?;
    assert_eq!((&fired["type"], &fired["data"]["value"]), (&json!("alert.fired"), &json!(3)), "{fired}");
    assert_eq!(fired["data"]["summary"], "3 jobs wait in the queue 'mails'.");
    assert!(told[0].header("webhook-signature").starts_with("v1,"), "{:?}", told[0].headers);
    engine.engine.restart().await?;
    let client = engine.client();
    let view = client.get("/api/alerts/pile").await?.json()?;
    assert_eq!(view["state"], "firing", "{view}");
    client.request("POST", "/api/queues/mails/purge", "{}").await?.json()?;
    // What was under way when it was killed may come twice, by the same id.
    let notices = || -> BTreeMap<String, String> {
        let calls = endpoint.calls();
        calls.iter().map(|call| (call.header("webhook-id").to_owned(), call.text())).collect()
    };
    let began = Instant::now();
    while notices().len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(100), "it is not over");
        sleep(Duration::from_millis(200)).await;
    }
    let told: Vec<Value> =
        notices().values().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>()?;
    let over = told.iter().find(|notice| notice["type"] == "alert.resolved").expect("it is over");
    assert_eq!((told.len(), &over["data"]["value"]), (2, &json!(0)), "{told:?}");
    assert_eq!(client.request("DELETE", "/api/alerts/pile", "").await?.status, 200);
    let gone = client.get("/api/alerts/pile").await?;
    assert_eq!((gone.status, code(&gone)?.as_str()), (404, "alert_not_found"));
    Ok(())
}

#[tokio::test]
async fn failures_are_watched_by_workflow_and_private_addresses_are_refused() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEV).await?;
    let client = engine.client();
    for _ in 0..5 {
        client.start("fail", &json!("error"), None, 10).await?.json()?;
        client.start("ten", &Value::Null, None, 10).await?.json()?;
    }
    // What has happened is stored within half a minute at rest, by each cell for itself.
    let began = Instant::now();
    for (workflow, status) in [("fail", "failed"), ("ten", "completed")] {
        loop {
            let listed = client.get(&format!("/api/metrics/minutes?workflow={workflow}")).await?.json()?;
            let minutes = listed["minutes"].as_array().into_iter().flatten();
            if minutes.filter_map(|minute| minute[status].as_u64()).sum::<u64>() == 5 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{listed}");
            sleep(Duration::from_millis(500)).await;
        }
    }
    let endpoint = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
    for (id, workflow) in [("all", Value::Null), ("ten", json!("ten")), ("fail", json!("fail"))] {
        let spec = json!({ "on": "failures", "workflow": workflow, "url": endpoint.url(&format!("/{id}")) });
        client.request("PUT", &format!("/api/alerts/{id}"), &spec.to_string()).await?.json()?;
    }
    let mut told: Vec<_> = endpoint.until(2).await?.iter().map(|call| call.path.clone()).collect();
    told.sort();
    assert_eq!(told, ["/all", "/fail"]);
    let all = client.get("/api/alerts/all").await?.json()?;
    assert_eq!((&all["value"], &all["state"]), (&json!(50), &json!("firing")), "{all}");

    let engine = Engine::start(Form::AllInOne, 1).await?;
    for url in ["http://ops.example.com/", "https://127.0.0.1/", "https://metadata.google.internal/"] {
        let spec = json!({ "on": "dead_letters", "url": url }).to_string();
        let refused = engine.client().request("PUT", "/api/alerts/a", &spec).await?;
        assert_eq!((refused.status, code(&refused)?.as_str()), (400, "invalid_request"), "{url}");
    }
    Ok(())
}
