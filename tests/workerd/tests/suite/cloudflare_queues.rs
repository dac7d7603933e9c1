//! Cloudflare Queues as a source of events and as a sink of jobs, under Miniflare: workerd alone has none.

use reqwest::Method;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    access::code,
    engine::{Build, Client, Form},
    miniflare::{Miniflare, Queues, Setup},
};
use tokio::time::{Duration, Instant, sleep};

const SETUP: Setup = Setup { form: Form::AllInOne, build: Build::Abort, cells: 1, window: 12 };

/// How long a test waits for something to show up.
const SHOWS_WITHIN: Duration = Duration::from_secs(20);

/// Asks until there are as many as are wanted.
async fn until<T, F: Future<Output = anyhow::Result<Vec<T>>>>(
    wanted: usize,
    what: &str,
    ask: impl Fn() -> F,
) -> anyhow::Result<Vec<T>> {
    let began = Instant::now();
    loop {
        let found = ask().await?;
        if found.len() >= wanted {
            return Ok(found);
        }
        anyhow::ensure!(began.elapsed() < SHOWS_WITHIN, "{} {what} of {wanted}", found.len());
        sleep(Duration::from_millis(50)).await;
    }
}

async fn events(client: &Client, name: &str) -> anyhow::Result<Vec<Value>> {
    let topic = name.split('/').next().unwrap_or_default();
    let page = client.get(&format!("/api/events?topic={topic}")).await?.json()?;
    let events = page["events"].as_array().cloned().unwrap_or_default();
    Ok(events.into_iter().filter(|event| event["name"] == name).collect())
}

/// What the runs of `echo` have given, as texts in order.
async fn echoes(client: &Client) -> anyhow::Result<Vec<String>> {
    let page = client.get("/api/executions?workflow=echo&status=completed").await?.json()?;
    let mut outputs = Vec::new();
    for run in page["executions"].as_array().into_iter().flatten() {
        let id = run["id"].as_str().unwrap_or_default();
        outputs.push(client.show(id, 0).await?.json()?["output"].to_string());
    }
    outputs.sort();
    Ok(outputs)
}

async fn send(client: &Client, content_type: &str, body: &str) -> anyhow::Result<()> {
    let path = "/api/queues/exports/jobs";
    let headers = [("content-type", content_type)];
    let sent = client.request_with(Method::POST, path, &headers, body).await?;
    anyhow::ensure!(sent.status < 300, "{} {}", sent.status, sent.body);
    Ok(())
}

#[tokio::test]
async fn jobs_go_out_to_a_queue_and_its_messages_come_in_as_events() -> TestResult {
    let queues = Queues {
        sources: "orders-in=order/received",
        consumers: json!({ "orders-in": { "maxBatchSize": 10, "maxBatchTimeout": 0 } }),
        producers: json!({ "SINK_ORDERS": { "queueName": "orders-in" } }),
        deliveries: json!([]),
    };
    let miniflare = Miniflare::start_with_queues(SETUP, queues).await?;
    let client = miniflare.client();
    let trigger = json!({ "on": "order/received", "workflow": "echo" }).to_string();
    client.request("PUT", "/api/triggers/order/echo", &trigger).await?.json()?;
    let set = |push: Value| {
        let (client, body) = (client.clone(), json!({ "push": push }).to_string());
        async move { client.request("PATCH", "/api/queues/exports", &body).await }
    };
    let refused = set(json!({ "sink": "SINK_OTHER" })).await?;
    assert_eq!((refused.status, code(&refused)?.as_str()), (400, "invalid_request"));
    assert!(refused.body.contains("no Cloudflare Queue bound as SINK_OTHER"), "{}", refused.body);
    assert_eq!(set(json!({ "sink": "DISPATCH" })).await?.status, 400);
    set(json!({ "sink": "SINK_ORDERS" })).await?.json()?;
    send(&client, "application/json", r#"{"body": {"order": 7}}"#).await?;
    send(&client, "text/plain", "hello").await?;
    send(&client, "application/json", r#"{"base64": "AP8="}"#).await?;
    let outputs = until(3, "runs", || echoes(&client)).await?;
    assert_eq!(outputs, [r#""hello""#, r#"{"base64":"AP8="}"#, r#"{"order":7}"#]);
    let received = events(&client, "order/received").await?;
    assert!(received.iter().all(|event| event["source"] == "queue:orders-in"), "{received:?}");
    // What no queue of Cloudflare takes is a dead letter at once, and holds up no other.
    send(&client, "text/plain", &"x".repeat(200_000)).await?;
    send(&client, "application/json", &format!(r#"{{"body": [{}0]}}"#, "1e20,".repeat(10_000))).await?;
    send(&client, "text/plain", "later").await?;
    until(4, "runs", || echoes(&client)).await?;
    let dead = client.get("/api/queues/exports/dead").await?.json()?.to_string();
    assert!(dead.contains("has 200000 bytes") && dead.contains("has 220003 bytes"), "{dead}");
    Ok(())
}

#[tokio::test]
async fn a_message_is_acknowledged_once_its_event_is_stored_and_counts_once() -> TestResult {
    let message = |id: &str| json!({ "id": id, "body": { "order": id } });
    let queues = Queues {
        sources: "orders-in=order/received",
        consumers: json!({ "orders-in": { "maxBatchSize": 10, "maxBatchTimeout": 0 } }),
        producers: json!({}),
        deliveries: json!([
            { "queue": "orders-in", "messages": [message("a"), message("b"), { "id": "c", "bigint": true }] },
            { "queue": "orders-in", "messages": [message("b"), message("d")] },
            { "queue": "order-in", "messages": [message("e")] },
        ]),
    };
    let miniflare = Miniflare::start_with_queues(SETUP, queues).await?;
    let client = miniflare.client();
    let said = until(3, "deliveries", async || {
        let log = miniflare.log();
        let lines = log.lines().filter_map(|line| line.strip_prefix("delivered "));
        Ok(lines.map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?)
    })
    .await?;
    assert_eq!(
        (&said[0]["outcome"], &said[0]["explicitAcks"]),
        (&json!("ok"), &json!(["a", "b"])),
        "{said:?}"
    );
    assert_eq!(said[0]["retryMessages"], json!([{ "msgId": "c", "delaySeconds": 30 }]), "{said:?}");
    assert_eq!(said[1]["explicitAcks"], json!(["b", "d"]), "{said:?}");
    // Nobody has said what they become: they are not lost by that.
    assert_eq!((&said[2]["explicitAcks"], &said[2]["retryMessages"][0]["msgId"]), (&json!([]), &json!("e")));
    let stored = events(&client, "order/received").await?;
    assert_eq!(stored.len(), 3, "{stored:?}");
    let refused = until(1, "refused events", || events(&client, "queues/refused")).await?;
    assert_eq!(
        (&refused[0]["data"]["queue"], &refused[0]["data"]["message"]),
        (&json!("orders-in"), &json!("c")),
        "{refused:?}"
    );
    // No caller can take the place of a message.
    let body = json!({ "name": "order/received", "id": "queue:orders-in:f", "data": 1 });
    assert_eq!(client.send_post("/api/events", &body.to_string()).await?.status, 400);
    let batch =
        client.post_json("/api/events", &json!({ "events": [body, { "name": "order/other" }] })).await?;
    let statuses: Vec<_> = (0..2).map(|at| batch["results"][at]["status"].clone()).collect();
    assert_eq!(statuses, ["refused", "accepted"], "{batch}");
    Ok(())
}
