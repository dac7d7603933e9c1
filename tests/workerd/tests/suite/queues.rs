//! Queues on the real workerd, seen from outside: what was accepted is handed out until it is done, also through kills.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Answer, TestResult,
    access::namespace,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

async fn post(client: &Client, path: &str, body: &Value) -> Result<Answer> {
    client.request("POST", &format!("/api/queues/{path}"), &body.to_string()).await
}

async fn send(client: &Client, queue: &str, body: &Value) -> Result<Value> {
    let answer = post(client, &format!("{queue}/jobs"), body).await?;
    anyhow::ensure!([200, 201].contains(&answer.status), "{} {}", answer.status, answer.body);
    answer.json()
}

async fn claim(client: &Client, queue: &str, body: &Value) -> Result<Vec<Value>> {
    let answer = post(client, &format!("{queue}/claim"), body).await?;
    anyhow::ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    answer.json()?["jobs"].as_array().cloned().context("a claim has jobs")
}

fn leases(jobs: &[Value]) -> Value {
    json!(jobs.iter().map(|job| job["lease"].clone()).collect::<Vec<_>>())
}

/// Says what became of each.
async fn end(client: &Client, queue: &str, deed: &str, body: Value) -> Result<Vec<String>> {
    let ended = post(client, &format!("{queue}/{deed}"), &body).await?.json()?;
    let results = ended["results"].as_array().with_context(|| ended.to_string())?;
    Ok(results.iter().filter_map(|result| result["status"].as_str().map(str::to_owned)).collect())
}

async fn ack(client: &Client, queue: &str, jobs: &[Value]) -> Result<Vec<String>> {
    end(client, queue, "ack", json!({ "leases": leases(jobs) })).await
}

async fn counts(client: &Client, queue: &str) -> Result<Value> {
    Ok(client.get(&format!("/api/queues/{queue}")).await?.json()?["counts"].take())
}

/// Waits until a queue has these counts.
async fn until(client: &Client, queue: &str, is_it: impl Fn(&Value) -> bool) -> Result<()> {
    let began = Instant::now();
    loop {
        let counts = counts(client, queue).await?;
        if is_it(&counts) {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(20), "{counts}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Claims and acknowledges until nothing is left; gives the numbers in the bodies.
async fn drain(client: &Client, queue: &str) -> Result<Vec<u64>> {
    let mut seen = Vec::new();
    for _ in 0..2_000 {
        let jobs = claim(client, queue, &json!({ "limit": 100 })).await?;
        if jobs.is_empty() {
            let counts = counts(client, queue).await?;
            if counts["depth"] == 0 {
                return Ok(seen);
            }
            continue;
        }
        ack(client, queue, &jobs).await?;
        seen.extend(jobs.iter().filter_map(|job| job["body"].as_u64()));
    }
    anyhow::bail!("it has no end")
}

/// The table of docs/jobs.md.
#[tokio::test]
async fn a_job_writes_the_rows_that_the_docs_say() -> TestResult {
    let engine =
        Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "1"), ("STEPWELL_METER", "1")]).await?;
    let client = engine.client();
    let rows = async || -> Result<u64> {
        let answer = client.get("/api/queues/metered").await?;
        Ok(answer.headers.get("stepwell-rows-written").context("it is metered")?.to_str()?.parse()?)
    };
    // All alarms are set with the first: an extension writes its claim's row, and no alarm.
    send(&client, "metered", &json!({ "body": 0 })).await?;
    let held = claim(&client, "metered", &json!({ "limit": 1, "visibility_ms": 20_000 })).await?;
    let mut before = rows().await?;
    let mut written = async || -> Result<u64> {
        let after = rows().await?;
        Ok(after - std::mem::replace(&mut before, after))
    };
    let once = async |jobs: &Value, count: u64| -> Result<()> {
        send(&client, "metered", jobs).await?;
        let claimed = claim(&client, "metered", &json!({ "limit": count })).await?;
        anyhow::ensure!(claimed.len() as u64 == count, "{claimed:?}");
        ack(&client, "metered", &claimed).await?;
        Ok(())
    };
    once(&json!({ "body": 1 }), 1).await?;
    assert_eq!(written().await?, 4);
    let hundred: Vec<_> = (0..100).map(|body| json!({ "body": body })).collect();
    once(&json!({ "jobs": hundred }), 100).await?;
    assert_eq!(written().await?, 100 + 1 + 101);
    once(&json!({ "body": 1, "dedupe_id": "d" }), 1).await?;
    let deduped = written().await?;
    // Its key, which has an index; the other two when the key is deleted, after its time.
    assert_eq!(deduped, 4 + 2);
    once(&json!({ "body": 1, "priority": 5 }), 1).await?;
    assert!((4 + 3..=4 + 5).contains(&written().await?));
    assert_eq!(ack(&client, "metered", &held).await?, ["done"]);
    assert_eq!(written().await?, 2);
    Ok(())
}

#[tokio::test]
async fn bodies_of_all_kinds_come_back_as_they_were_sent() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let text = "a \u{0} b\n\u{1f980}";
    send(&client, "mixed", &json!({ "body": { "to": ["ada", null, 1.5] } })).await?;
    send(&client, "mixed", &json!({ "text": text, "content_type": "text/markdown" })).await?;
    send(&client, "mixed", &json!({ "base64": "AP+AAQ==" })).await?;
    let http = client.http();
    let bytes: Vec<u8> = (0..1_900_000_u32).map(|number| u8::try_from(number % 251).unwrap_or(0)).collect();
    let path = "/api/queues/mixed/jobs?dedupe_id=cat";
    for status in [201, 200] {
        let request = http.client().post(http.url(path)).bearer_auth(client.key());
        let request = request.header("content-type", "image/png").body(bytes.clone());
        let answer = http.send(request, path).await?;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    let jobs = claim(&client, "mixed", &json!({ "limit": 10 })).await?;
    assert_eq!(jobs.len(), 4);
    assert_eq!(jobs[0]["body"], json!({ "to": ["ada", null, 1.5] }));
    assert_eq!(jobs[0]["content_type"], "application/json");
    assert_eq!((&jobs[1]["text"], &jobs[1]["content_type"]), (&json!(text), &json!("text/markdown")));
    assert_eq!(jobs[2]["base64"], "AP+AAQ==");
    assert_eq!(jobs[3]["content_type"], "image/png");
    let length = jobs[3]["base64"].as_str().context("it is not text")?.len();
    assert_eq!(length, bytes.len().div_ceil(3) * 4);
    assert_eq!(ack(&client, "mixed", &jobs).await?, ["done"; 4]);
    assert_eq!(ack(&client, "mixed", &jobs).await?, ["done"; 4], "an ack can be repeated");
    Ok(())
}

#[tokio::test]
async fn nothing_that_was_accepted_is_lost_and_nothing_done_comes_back_through_kills() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    client.request("PATCH", "/api/queues/kills", r#"{"partitions":3,"max_attempts":50}"#).await?.json()?;
    let (mut accepted, mut done) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..6_u64 {
        for batch in 0..5_u64 {
            let numbers: Vec<_> = (0..20).map(|index| round * 100 + batch * 20 + index).collect();
            let jobs =
                numbers.iter().map(|number| json!({ "body": number, "dedupe_id": number.to_string() }));
            let jobs = json!({ "jobs": jobs.collect::<Vec<_>>() });
            send(&client, "kills", &jobs).await?;
            accepted.extend(numbers);
        }
        let held = claim(&client, "kills", &json!({ "limit": 30, "visibility_ms": 1_000 })).await?;
        let (first, rest) = held.split_at(held.len() / 2);
        assert!(ack(&client, "kills", first).await?.iter().all(|status| status == "done"));
        done.extend(first.iter().filter_map(|job| job["body"].as_u64()));
        // The others are held when everything dies.
        engine.engine.kill();
        engine.engine.restart().await?;
        // A lease that was not over is good after the kill, and an ack that was heard is known.
        if !first.is_empty() {
            assert!(ack(&client, "kills", first).await?.iter().all(|status| status == "done"));
        }
        let ended = if rest.is_empty() { Vec::new() } else { ack(&client, "kills", rest).await? };
        for (job, status) in rest.iter().zip(ended) {
            if status == "done" {
                done.extend(job["body"].as_u64());
            }
        }
        // Sending again what was accepted stores nothing.
        let again = json!({ "jobs": [{ "body": round * 100, "dedupe_id": (round * 100).to_string() }] });
        assert_eq!(send(&client, "kills", &again).await?["results"][0]["status"], "duplicate");
    }
    sleep(Duration::from_millis(1_100)).await;
    let last = drain(&client, "kills").await?;
    assert!(last.iter().all(|number| !done.contains(number)), "something done came back");
    done.extend(last);
    assert_eq!(done, accepted);
    let counts = counts(&client, "kills").await?;
    assert_eq!((&counts["depth"], &counts["in_flight"], &counts["dead"]), (&json!(0), &json!(0), &json!(0)));
    Ok(())
}

#[tokio::test]
async fn another_queue_is_told_of_each_dead_letter_once_through_kills() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let patch = json!({ "dead_to": "mourners", "partitions": 2 }).to_string();
    client.request("PATCH", "/api/queues/mortal", &patch).await?.json()?;
    let own = client.request("PATCH", "/api/queues/mortal", r#"{"dead_to":"mortal"}"#).await?;
    assert_eq!(own.status, 400, "{}", own.body);
    for round in 0..3_u64 {
        let jobs: Vec<_> = (0..20).map(|number| json!({ "body": round * 20 + number })).collect();
        send(&client, "mortal", &json!({ "jobs": jobs })).await?;
        for _ in 0..2 {
            let claimed = claim(&client, "mortal", &json!({ "limit": 10 })).await?;
            let nack = json!({ "leases": leases(&claimed), "dead": true, "reason": "no" });
            end(&client, "mortal", "nack", nack).await?;
        }
        sleep(Duration::from_millis(round * 10)).await;
        engine.engine.kill();
        engine.engine.restart().await?;
    }
    let mut told = Vec::new();
    let began = Instant::now();
    while told.len() < 60 && began.elapsed() < Duration::from_secs(60) {
        let jobs = claim(&client, "mourners", &json!({ "limit": 100, "wait_ms": 1_000 })).await?;
        if !jobs.is_empty() {
            ack(&client, "mourners", &jobs).await?;
        }
        for job in jobs {
            assert_eq!(job["content_type"], "application/vnd.stepwell.dead-letter+json");
            let letter = &job["body"];
            assert_eq!(
                (&letter["queue"], &letter["code"]),
                (&json!("mortal"), &json!("rejected")),
                "{letter}"
            );
            told.extend(letter["body"].as_u64());
        }
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(counts(&client, "mourners").await?["depth"], 0);
    told.sort_unstable();
    assert_eq!(told, (0..60).collect::<Vec<_>>());
    assert_eq!(counts(&client, "mortal").await?["dead"], 60, "they stay");
    Ok(())
}

/// Runs that send jobs while everything is killed: each job is there once.
async fn runs_send(form: Form, partitions: u32) -> TestResult {
    let mut engine = Engine::start(form, 4).await?;
    let client = engine.client();
    let patch = json!({ "partitions": partitions }).to_string();
    client.request("PATCH", "/api/queues/sent", &patch).await?.json()?;
    let mut runs = Vec::new();
    for run in 0..30_u64 {
        runs.push(client.start_id("sends", json!(["sent", run, 5])).await?);
        if run % 10 == 5 {
            sleep(Duration::from_millis(7 * run)).await;
            engine.engine.kill();
            engine.engine.restart().await?;
        }
    }
    for run in &runs {
        client.until(run, "completed").await?;
    }
    until(&client, "sent", |counts| counts["depth"].as_u64() >= Some(150)).await?;
    let mut bodies = drain(&client, "sent").await?;
    bodies.sort_unstable();
    let expected: Vec<_> = (0..30).flat_map(|run| (0..5).map(move |number| run * 1_000 + number)).collect();
    assert_eq!(bodies, expected);
    let letters = client.get("/api/outbox").await?.json()?;
    assert_eq!(letters["messages"].as_array().map(Vec::len), Some(0), "{letters}");
    Ok(())
}

#[tokio::test]
async fn each_job_that_a_run_sends_is_stored_once_through_kills_all_in_one() -> TestResult {
    runs_send(Form::AllInOne, 1).await
}

#[tokio::test]
async fn each_job_that_a_run_sends_is_stored_once_through_kills_with_two_workers() -> TestResult {
    runs_send(Form::Split, 3).await
}

#[tokio::test]
async fn a_repeated_request_or_claim_gives_the_same_also_after_a_kill() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let http = client.http().clone();
    let jobs = json!({ "jobs": (0..1_000).map(|number| json!({ "body": number })).collect::<Vec<_>>() });
    let batch = async |body: &Value| {
        let path = "/api/queues/again/jobs";
        let request = http.client().post(http.url(path)).bearer_auth(client.key());
        http.send(request.header("idempotency-key", "import-1").body(body.to_string()), path).await
    };
    let first = batch(&jobs).await?.json()?;
    assert_eq!(first["results"][999]["status"], "accepted");
    let claimed = claim(&client, "again", &json!({ "limit": 5, "nonce": "mine" })).await?;
    engine.engine.kill();
    engine.engine.restart().await?;
    let again = batch(&jobs).await?.json()?;
    assert_eq!(again["results"][999]["id"], first["results"][999]["id"]);
    assert_eq!(again["results"][0]["status"], "duplicate");
    assert_eq!(batch(&json!({ "body": "other" })).await?.status, 422);
    assert_eq!(claim(&client, "again", &json!({ "limit": 5, "nonce": "mine" })).await?, claimed);
    assert_eq!(claimed[0]["attempt"], 1);
    let counts = counts(&client, "again").await?;
    assert_eq!((&counts["depth"], &counts["in_flight"]), (&json!(995), &json!(5)));
    Ok(())
}

#[tokio::test]
async fn dead_letters_are_inspected_edited_and_redriven() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    client.request("PATCH", "/api/queues/dead", r#"{"max_attempts":2}"#).await?.json()?;
    for number in 0..3 {
        send(&client, "dead", &json!({ "body": number })).await?;
    }
    for _ in 0..2 {
        let jobs = claim(&client, "dead", &json!({ "limit": 3 })).await?;
        let nack = json!({ "leases": leases(&jobs), "delay_ms": 0, "reason": "upstream is down" });
        end(&client, "dead", "nack", nack).await?;
    }
    let dead = client.get("/api/queues/dead/dead?limit=2").await?.json()?;
    assert_eq!(dead["jobs"][0]["death"]["code"], "attempts");
    assert_eq!(dead["jobs"][0]["death"]["reason"], "upstream is down");
    let next = dead["next"].as_str().context("there is another page")?;
    let rest = client.get(&format!("/api/queues/dead/dead?limit=2&cursor={next}")).await?.json()?;
    assert_eq!(rest["jobs"].as_array().map(Vec::len), Some(1));
    let id = dead["jobs"][0]["id"].as_str().context("it has an id")?.to_owned();
    let path = format!("/api/queues/dead/jobs/{id}");
    let edited = client.request("PUT", &path, r#"{"body":"better"}"#).await?;
    assert_eq!(edited.status, 200, "{}", edited.body);
    assert_eq!(client.get(&path).await?.json()?["body"], "better");
    let redriven = client.request("POST", &format!("{path}/redrive"), "").await?;
    assert_eq!(redriven.json()?["status"], "queued");
    assert_eq!(client.request("POST", &format!("{path}/redrive"), "").await?.status, 409);
    let all = post(&client, "dead/redrive", &json!({ "contains": "upstream", "per_second": 100 })).await?;
    assert_eq!(all.status, 202, "{}", all.body);
    until(&client, "dead", |counts| counts["dead"] == 0 && counts["depth"] == 3).await?;
    let jobs = claim(&client, "dead", &json!({ "limit": 3 })).await?;
    assert!(jobs.iter().any(|job| job["body"] == "better") && jobs.iter().all(|job| job["attempt"] == 1));
    ack(&client, "dead", &jobs).await?;
    assert_eq!(client.get(&path).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn groups_stay_in_order_when_partitions_are_added() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let grouped = |number: u64| json!({ "body": number, "group": format!("g{}", number % 3) });
    let batch = |from: u64| json!({ "jobs": (from..from + 12).map(grouped).collect::<Vec<_>>() });
    send(&client, "groups", &batch(0)).await?;
    let grown = client.request("PATCH", "/api/queues/groups", r#"{"partitions":8}"#).await?.json()?;
    assert_eq!((&grown["partitions"], &grown["keyed_partitions"]), (&json!(8), &json!(1)));
    assert_eq!(grown["max_attempts"], 5, "what was not said stays");
    let fewer = client.request("PATCH", "/api/queues/groups", r#"{"partitions":2}"#).await?;
    assert_eq!(fewer.status, 400, "{}", fewer.body);
    send(&client, "groups", &batch(12)).await?;
    for number in 100..140_u64 {
        send(&client, "groups", &json!({ "body": number })).await?;
    }
    let seen = drain(&client, "groups").await?;
    assert_eq!(seen.len(), 64);
    for group in 0..3 {
        let of: Vec<_> = seen.iter().filter(|it| **it < 24 && **it % 3 == group).collect();
        assert!(of.is_sorted() && of.len() == 8, "{of:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_waiting_claim_is_woken_by_a_job_and_one_claim_has_at_most_four_mebibytes() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    client.request("PATCH", "/api/queues/waits", r#"{"partitions":2}"#).await?.json()?;
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let jobs = claim(&client, "waits", &json!({ "wait_ms": 15_000 })).await;
            jobs.map(|jobs| (jobs.len(), began.elapsed()))
        })
    };
    sleep(Duration::from_millis(700)).await;
    send(&client, "waits", &json!({ "body": 1 })).await?;
    let (count, took) = waiting.await??;
    assert_eq!(count, 1);
    assert!((Duration::from_millis(600)..Duration::from_secs(5)).contains(&took), "{took:?}");
    let large = "x".repeat(1_500_000);
    for _ in 0..8 {
        send(&client, "waits", &json!({ "text": large })).await?;
    }
    let mut seen = 0;
    for _ in 0..40 {
        let jobs = claim(&client, "waits", &json!({ "limit": 100 })).await?;
        let bytes: usize = jobs.iter().filter_map(|job| job["text"].as_str()).map(str::len).sum();
        assert!(bytes <= 4_194_304, "{bytes}");
        seen += jobs.len();
        if seen == 8 {
            return Ok(());
        }
    }
    panic!("{seen} of 8 came")
}

#[tokio::test]
async fn a_purge_beside_sends_deletes_what_was_there_and_a_deleted_queue_begins_anew() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    client.request("PATCH", "/api/queues/purged", r#"{"partitions":3}"#).await?.json()?;
    for _ in 0..4 {
        let old = json!({ "jobs": (0..500).map(|_| json!({ "body": 0 })).collect::<Vec<_>>() });
        send(&client, "purged", &old).await?;
    }
    let held = claim(&client, "purged", &json!({ "limit": 4 })).await?;
    assert_eq!(post(&client, "purged/purge", &json!({})).await?.status, 202);
    for _ in 0..5 {
        send(&client, "purged", &json!({ "body": 1 })).await?;
    }
    end(&client, "purged", "nack", json!({ "leases": leases(&held), "delay_ms": 0 })).await?;
    engine.engine.kill();
    engine.engine.restart().await?;
    until(&client, "purged", |counts| counts["purging"] != true).await?;
    let mut left = drain(&client, "purged").await?;
    left.sort_unstable();
    let mut expected = vec![0; held.len()];
    expected.extend([1; 5]);
    assert_eq!(left, expected);
    let id = send(&client, "purged", &json!({ "body": 2 })).await?["id"].clone();
    assert_eq!(client.request("DELETE", "/api/queues/purged", "").await?.status, 409);
    send(&client, "purged", &json!({ "body": 3 })).await?;
    let deleted = client.request("DELETE", "/api/queues/purged?purge=true", "").await?;
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    assert_eq!(client.get("/api/queues/purged").await?.status, 404);
    assert_eq!(client.get("/api/queues").await?.json()?["queues"], json!([]));
    send(&client, "purged", &json!({ "body": 4 })).await?;
    let old = id.as_str().context("it has an id")?;
    assert_eq!(client.get(&format!("/api/queues/purged/jobs/{old}")).await?.status, 404);
    assert_eq!(counts(&client, "purged").await?["depth"], 1);
    Ok(())
}

#[tokio::test]
async fn paused_and_draining_queues_and_scopes_refuse_what_they_should() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    send(&admin, "mails", &json!({ "body": 1 })).await?;
    let key = async |scope: &str| {
        let made = json!({ "name": scope, "scopes": [scope] }).to_string();
        let made = admin.request("POST", "/api/keys", &made).await?.json()?;
        anyhow::Ok(admin.with_key(made["key"].as_str().context("a key")?))
    };
    let (reader, writer) = (key("read").await?, key("write").await?);
    assert_eq!(reader.get("/api/queues/mails").await?.status, 200);
    assert_eq!(post(&reader, "mails/jobs", &json!({ "body": 2 })).await?.status, 403);
    assert_eq!(post(&reader, "mails/claim", &json!({})).await?.status, 403);
    assert_eq!(post(&writer, "mails/jobs", &json!({ "body": 2 })).await?.status, 201);
    for (method, path) in
        [("PATCH", "mails"), ("DELETE", "mails"), ("POST", "mails/purge"), ("POST", "mails/pause")]
    {
        let refused = writer.request(method, &format!("/api/queues/{path}"), "{}").await?;
        assert_eq!(refused.status, 403, "{method} {path}: {}", refused.body);
    }
    // Another namespace has queues of its own.
    let other = namespace(&root, "zenith").await?;
    assert_eq!(other.get("/api/queues/mails").await?.status, 404);
    assert_eq!(post(&other, "mails/claim", &json!({})).await?.status, 404);
    post(&admin, "mails/pause", &json!({})).await?.json()?;
    assert_eq!(claim(&writer, "mails", &json!({})).await?, [] as [Value; 0]);
    post(&admin, "mails/drain", &json!({})).await?.json()?;
    let refused = post(&writer, "mails/jobs", &json!({ "body": 3 })).await?;
    assert!(refused.status == 409 && refused.body.contains("queue_closed"), "{}", refused.body);
    assert_eq!(claim(&writer, "mails", &json!({ "limit": 9 })).await?.len(), 2);
    for (path, body) in [
        ("a%2Fb/jobs", json!({ "body": 1 })),
        ("mails/jobs", json!({ "jobs": [] })),
        ("mails/jobs", json!({ "body": 1, "priority": 10 })),
        ("mails/jobs", json!({ "body": 1, "delay": 5 })),
        ("mails/jobs", json!({ "body": 1, "delay_ms": 31_536_000_001_u64 })),
        ("mails/jobs", json!({ "body": 1, "delay_ms": -1 })),
        ("mails/claim", json!({ "limit": 0 })),
        ("mails/claim", json!({ "limit": 101 })),
        ("mails/claim", json!({ "visibility_ms": 0 })),
        ("mails/claim", json!({ "nonce": "a b" })),
        ("mails/ack", json!({ "leases": [] })),
        ("mails/ack", json!({ "leases": ["nonsense"] })),
    ] {
        let refused = post(&writer, path, &body).await?;
        assert_eq!(refused.status, 400, "{path} {body}: {}", refused.body);
    }
    Ok(())
}
