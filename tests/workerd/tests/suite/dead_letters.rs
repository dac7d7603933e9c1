//! Letters between runs that do not arrive, on the real workerd: how they wait, die, are sent again and are discarded.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Answer, TestResult, Workerd,
    cli::Terminal,
    engine::{Client, Engine, Form},
    sqlite::{change, databases, sql},
};
use tokio::time::{Duration, Instant, sleep};

/// Longer than a letter lives.
const WEEK_MS: u64 = 7 * 86_400_000;

/// Asks until the answer fits.
async fn until(client: &Client, path: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
    let began = Instant::now();
    loop {
        let answer = client.get(path).await?.json()?;
        if fits(&answer) {
            return Ok(answer);
        }
        ensure!(began.elapsed() < Duration::from_secs(30), "{path}: {answer}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn messages(list: &Value) -> Vec<Value> {
    list["messages"].as_array().cloned().unwrap_or_default()
}

fn letter(message: &Value) -> Result<&str> {
    message["letter"].as_str().context("a message has a letter")
}

/// The code of a problem.
fn code(answer: &Answer) -> Result<Value> {
    Ok(serde_json::from_str::<Value>(&answer.body)?["code"].take())
}

/// Changes every outbox while workerd is down. Says in how many cells there is one.
fn change_outboxes(workerd: &Workerd, script: &str) -> Result<usize> {
    let mut changed = 0;
    for path in databases(workerd)? {
        if sql(&path, "SELECT count(*) FROM sqlite_master WHERE name = 'outbox'")? == "1" {
            change(&path, script)?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// How long the oldest letter has waited that is not dead, in seconds, as Prometheus is told.
async fn oldest(client: &Client) -> Result<f64> {
    let text = client.get("/api/metrics/prometheus").await?.body;
    let line = text.lines().find(|line| line.starts_with("stepwell_outbox_oldest_seconds{"));
    let value = line.and_then(|line| line.rsplit(' ').next()).with_context(|| text.clone())?;
    Ok(value.parse()?)
}

#[tokio::test]
async fn a_letter_that_nobody_takes_for_a_week_is_dead_until_a_person_sends_it_again_or_discards_it()
-> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    client.post_json("/api/workflows/ward/pause", &json!(null)).await?;
    let mut parents = Vec::new();
    for input in 1..=3 {
        parents.push(client.start_id("guardian", json!({ "workflow": "ward", "input": input })).await?);
    }
    let waiting = until(&client, "/api/outbox", |list| messages(list).len() == 3).await?;
    assert_eq!(waiting["complete"], true, "{waiting}");
    let counts = client.get("/api/metrics").await?.json()?;
    assert_eq!(counts["letters"], json!({ "waiting": 3, "dead": 0 }), "{counts}");
    assert_eq!(counts["workflows"]["ward"], Value::Null, "children of a paused workflow wait: {counts}");
    let one = client.get("/api/metrics?workflow=guardian").await?.json()?;
    assert_eq!(one["letters"], Value::Null, "{one}");

    // Nothing is late yet; with time it is, and what is dead no longer waits.
    let waits = oldest(&client).await?;
    assert!(waits > 0.0 && waits < 60.0, "{waits} s");

    // One page after the other.
    let first = client.get("/api/outbox?limit=1").await?.json()?;
    assert_eq!((messages(&first).len(), &first["complete"]), (1, &json!(false)), "{first}");
    let cursor = first["cursor"].as_str().context("there is another page")?;
    let second = client.get(&format!("/api/outbox?limit=1&cursor={cursor}")).await?.json()?;
    assert_eq!((messages(&second).len(), &second["complete"]), (1, &json!(false)), "{second}");
    let cursor = second["cursor"].as_str().context("there is another page")?;
    let third = client.get(&format!("/api/outbox?limit=1&cursor={cursor}")).await?.json()?;
    assert_eq!((messages(&third).len(), &third["complete"]), (1, &json!(true)), "{third}");
    assert_eq!([messages(&first), messages(&second), messages(&third)].concat(), messages(&waiting));

    // What is on its way cannot be discarded.
    let on_its_way = format!("/api/outbox/{}", letter(&messages(&waiting)[0])?);
    let refused = client.request("DELETE", &on_its_way, "").await?;
    assert_eq!((refused.status, code(&refused)?), (409, json!("wrong_status")));

    // The deployment is down for a week.
    engine.engine.kill();
    let script = format!("UPDATE outbox SET posted_at = posted_at - {WEEK_MS}");
    assert!(change_outboxes(&engine.engine, &script)? > 0);
    engine.engine.restart().await?;
    let dead = until(&client, "/api/outbox?dead=true", |list| messages(list).len() == 3).await?;
    assert!(messages(&dead).iter().all(|message| message["dead"] == true), "{dead}");
    let counts = client.get("/api/metrics").await?.json()?;
    assert_eq!(counts["letters"], json!({ "waiting": 0, "dead": 3 }), "{counts}");
    assert!(oldest(&client).await? <= 0.0, "dead ones do not wait");

    // Nobody sends them by themselves, not even when there is nothing in their way any more.
    client.post_json("/api/workflows/ward/resume", &json!(null)).await?;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(client.list("workflow=ward", 10).await?.len(), 0);
    let of = |parent: &str| {
        let dead = messages(&dead);
        let found = dead.iter().find(|message| message["from"] == parent);
        Ok::<_, anyhow::Error>(letter(found.context("it is dead")?)?.to_owned())
    };
    let again = of(&parents[0])?;
    let sent = client.post_json(&format!("/api/outbox/{again}/redeliver"), &json!(null)).await?;
    assert_eq!(sent, json!({ "letter": again, "was_dead": true }));
    let wards =
        until(&client, "/api/executions?workflow=ward", |list| list["executions"] != json!([])).await?;
    let ward = wards["executions"][0]["id"].as_str().context("a run has an id")?;
    client.signal(ward, "go", &json!("paid"), None).await?;
    assert_eq!(client.until(&parents[0], "completed").await?["output"], json!({ "output": "paid" }));

    let given_up = of(&parents[1])?;
    let gone = client.request("DELETE", &format!("/api/outbox/{given_up}"), "").await?;
    assert_eq!(gone.status, 200, "{}", gone.body);
    assert_eq!(gone.json()?["messages"][0]["from"], parents[1].as_str(), "{}", gone.body);
    let twice = client.request("DELETE", &format!("/api/outbox/{given_up}"), "").await?;
    assert_eq!((twice.status, code(&twice)?), (404, json!("letter_not_found")));
    let terminal = Terminal::open(&engine.engine.address())?;
    let shown = terminal.quietly(&["outbox", "--dead"]).await?;
    assert!(shown.stdout.lines().count() == 1 && shown.stdout.contains(&parents[2]), "{shown:?}");
    let all = terminal.quietly(&["outbox", "discard", "--all"]).await?;
    assert_eq!((all.code, all.stdout), (Some(0), format!("{} is discarded.\n", of(&parents[2])?)));
    let none = terminal.quietly(&["outbox", "discard", "--all"]).await?;
    assert_eq!((none.code, none.stderr.as_str()), (Some(0), "No letter is dead.\n"));
    let empty = until(&client, "/api/outbox", |list| messages(list).is_empty()).await?;
    // Who did what to which letter is on record; what was refused is not.
    let audit = client.get("/api/audit").await?.json()?;
    let lines = audit["records"].as_array().context("the log has lines")?.iter();
    let of_letters =
        lines.filter(|line| line["action"].as_str().is_some_and(|said| said.starts_with("letter_")));
    let said: Vec<_> =
        of_letters.map(|line| json!([line["actor"], line["action"], line["subject"]])).collect();
    let line = |action: &str, letter: &str| json!(["root", action, format!("letter:{letter}")]);
    let expected = [
        line("letter_discarded", &of(&parents[2])?),
        line("letter_discarded", &given_up),
        line("letter_redelivered", &again),
    ];
    assert_eq!(said, expected, "{audit}");
    assert_eq!(empty, json!({ "messages": [], "complete": true }));
    assert_eq!(client.show(&parents[1], 0).await?.json()?["status"], "waiting", "nobody told it");
    assert_eq!(client.list("workflow=ward", 10).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_list_says_which_cells_did_not_answer() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    client.post_json("/api/workflows/ward/pause", &json!(null)).await?;
    client.start_id("guardian", json!({ "workflow": "ward", "input": 1 })).await?;
    until(&client, "/api/outbox", |list| messages(list).len() == 1).await?;
    engine.engine.kill();
    assert_eq!(change_outboxes(&engine.engine, "ALTER TABLE outbox RENAME COLUMN heads TO lost")?, 1);
    engine.engine.restart().await?;
    let list = client.get("/api/outbox").await?.json()?;
    assert_eq!((messages(&list).len(), &list["complete"]), (0, &json!(false)), "{list}");
    assert_eq!(list["unanswered"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["cursor"], Value::Null, "no page would show it: {list}");
    let shown = Terminal::open(&engine.engine.address())?.quietly(&["outbox"]).await?;
    assert!(shown.stderr.contains("1 cell did not answer, and may have more: default-1-"), "{shown:?}");
    Ok(())
}
