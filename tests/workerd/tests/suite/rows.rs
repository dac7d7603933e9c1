//! What schedules, events, webhooks and tokens cost: the rows that the platform bills, alarms included.

use std::future::Future;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_protocol::webhook::schemes::sign;
use stepwell_workerd_tests::{
    Answer, TestResult,
    engine::{Client, Engine, Form, URL},
};
use tokio::time::{Duration, sleep};

use super::webhooks::now;

/// How often each thing is done: what happens once, or once a second, is shared by so many.
const TIMES: u32 = 20;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The cell, the topic `order` and the schedules of an engine that nothing else is done with.
struct Metered {
    client: Client,
    /// A run of the cell.
    run: String,
}

fn rows(answer: &Answer) -> Result<u64> {
    let header = answer.headers.get("stepwell-rows-written").context("it is metered")?;
    Ok(header.to_str()?.parse()?)
}

impl Metered {
    async fn of_cell(&self) -> Result<u64> {
        rows(&self.client.show(&self.run, 0).await?)
    }

    async fn of_topic(&self) -> Result<u64> {
        rows(&self.client.get("/api/events?topic=order&limit=1").await?)
    }

    /// The rows that one of many costs: in the topic, and in the cell.
    async fn each<F: Future<Output = Result<()>>>(&self, act: impl Fn(u32) -> F) -> Result<(f64, f64)> {
        // The first one makes tables.
        act(0).await?;
        self.settled().await;
        let (topic, cell) = (self.of_topic().await?, self.of_cell().await?);
        for number in 1..=TIMES {
            act(number).await?;
        }
        self.settled().await;
        let each = |before, after| anyhow::Ok(f64::from(u32::try_from(after - before)?) / f64::from(TIMES));
        Ok((each(topic, self.of_topic().await?)?, each(cell, self.of_cell().await?)?))
    }

    /// Waits until what was begun is written.
    async fn settled(&self) {
        sleep(Duration::from_millis(2_500)).await;
    }

    async fn send(&self, event: Value) -> Result<()> {
        let answer = self.client.request("POST", "/api/events", &event.to_string()).await?;
        anyhow::ensure!(answer.status == 201, "{}", answer.body);
        Ok(())
    }

    async fn put(&self, path: &str, body: Value) -> Result<Value> {
        self.client.request("PUT", path, &body.to_string()).await?.json()
    }
}

async fn metered(engine: &Engine) -> Result<Metered> {
    let client = engine.client();
    let run = client.start_id("echo", json!(0)).await?;
    let metered = Metered { client, run };
    metered.send(json!({ "name": "order/begun" })).await?;
    Ok(metered)
}

#[tokio::test]
async fn events_and_what_they_start_cost_few_rows() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let metered = metered(&engine).await?;
    let (plain, _) = metered.each(|_| metered.send(json!({ "name": "order/paid" }))).await?;
    let with_id = |number| metered.send(json!({ "name": "order/paid", "id": format!("own-{number}") }));
    let (with_id, _) = metered.each(with_id).await?;
    let alone = async |number: u32| metered.client.start_id("echo", json!(number)).await.map(drop);
    let (_, alone) = metered.each(alone).await?;
    metered.put("/api/triggers/order/sold", json!({ "on": "order/sold", "workflow": "echo" })).await?;
    let (topic, cell) = metered.each(|_| metered.send(json!({ "name": "order/sold" }))).await?;
    let start = topic - plain + cell - alone;
    println!(
        "rows: an event {plain:.2}, with an id {with_id:.2}; a run by a trigger {start:.2} beyond its event and a run"
    );
    // The event, its id, and the watermark and alarm of each second.
    assert!(plain <= 1.5 && with_id <= 2.5, "{plain} {with_id}");
    assert!(start <= 3.0, "{start}");
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_met_and_a_token_that_is_completed_cost_few_rows() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let metered = metered(&engine).await?;
    let client = &metered.client;
    let (plain, _) = metered.each(|_| metered.send(json!({ "name": "order/begun" }))).await?;
    let by_signal = async |_| {
        let run = client.start_id("wait", json!(60_000)).await?;
        client.until(&run, "waiting").await?;
        client.signal(&run, "go", &json!("now"), None).await?;
        client.until(&run, "completed").await.map(drop)
    };
    let (_, by_signal) = metered.each(by_signal).await?;
    let by_event = async |number: u32| {
        let run = client.start_id("ship", json!({ "id": number })).await?;
        client.until(&run, "waiting").await?;
        metered.send(json!({ "name": "order/paid", "data": { "id": number } })).await?;
        client.until(&run, "completed").await.map(drop)
    };
    let (topic, cell) = metered.each(by_event).await?;
    let met = topic + cell - plain - by_signal;
    let by_token = async |_| {
        let run = client.start_id("wait", json!(60_000)).await?;
        client.until(&run, "waiting").await?;
        let made =
            client.post_json(&format!("/api/executions/{run}/tokens"), &json!({ "name": "go" })).await?;
        let url = made["url"].as_str().context("it has an address")?;
        let path = url.strip_prefix(URL).with_context(|| url.to_owned())?;
        let answer = client.send_post(path, "\"now\"").await?;
        anyhow::ensure!(answer.status < 300, "{}", answer.body);
        client.until(&run, "completed").await.map(drop)
    };
    let (_, by_token) = metered.each(by_token).await?;
    println!(
        "rows: a run that waits for a signal {by_signal:.2}, for a token {by_token:.2}, for an event {:.2}: {met:.2} \
         beyond the signal and the event",
        topic + cell
    );
    // About 9: on a quick machine, fewer events share a watermark and an alarm.
    assert!(met <= 9.5, "{met}");
    assert!(by_token <= by_signal + 1.0, "{by_token} {by_signal}");
    Ok(())
}

#[tokio::test]
async fn a_delivery_costs_three_rows() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let metered = metered(&engine).await?;
    let spec = json!({ "kind": "standard", "event": "order/paid", "secret": SECRET });
    let made = metered.put("/api/webhooks/order/shop", spec.clone()).await?;
    let url = made["url"].as_str().context("it has an address")?.to_owned();
    let path = url.strip_prefix(URL).with_context(|| url.clone())?;
    let spec = serde_json::from_value(spec)?;
    let deliver = async |number: u32| {
        let (http, body) = (metered.client.http(), number.to_string());
        let signed = sign(&spec, SECRET, &format!("msg-{number}"), now()?, body.as_bytes());
        let request = http.client().post(http.url(path)).body(body);
        let request = signed.iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = http.send(request, path).await?;
        anyhow::ensure!(answer.status < 300, "{}", answer.body);
        Ok(())
    };
    let (topic, _) = metered.each(deliver).await?;
    println!("rows: a delivery {topic:.2}");
    assert!(topic <= 3.5, "{topic}");
    Ok(())
}

#[tokio::test]
async fn a_tick_costs_few_rows() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let metered = metered(&engine).await?;
    let alone = async |number: u32| metered.client.start_id("echo", json!(number)).await.map(drop);
    let (_, alone) = metered.each(alone).await?;
    let spec = json!({ "workflow": "echo", "when": "* * * * * *", "catch_up": "all" });
    metered.put("/api/schedules/quick", spec).await?;
    let look = async || {
        let answer = metered.client.get("/api/schedules/quick").await?;
        let started = answer.json()?["counts"]["started"].as_u64().context("it is counted")?;
        anyhow::Ok((started, rows(&answer)?, metered.of_cell().await?))
    };
    metered.settled().await;
    let before = look().await?;
    sleep(Duration::from_secs(10)).await;
    metered.client.send_post("/api/schedules/quick/pause", "").await?;
    metered.settled().await;
    let after = look().await?;
    let ticks = f64::from(u32::try_from(after.0 - before.0)?);
    let each = |before, after| anyhow::Ok(f64::from(u32::try_from(after - before)?) / ticks);
    let (station, cell) = (each(before.1, after.1)?, each(before.2, after.2)?);
    println!(
        "rows: a tick {station:.2} in the schedules and {:.2} in the cell beyond a run, of {ticks} ticks",
        cell - alone
    );
    assert!(ticks >= 8.0, "{ticks}");
    // The schedule and its alarms, and the pause; the run's key.
    assert!(station <= 3.3 && cell - alone <= 1.5, "{station} {cell} {alone}");
    Ok(())
}
