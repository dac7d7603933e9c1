//! The engine on the real workerd, in both forms.

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

const FORMS: [Form; 2] = [Form::AllInOne, Form::Split];

async fn status(client: &Client, run: &str) -> anyhow::Result<Value> {
    Ok(client.show(run, 0).await?.json()?["status"].take())
}

#[tokio::test]
async fn a_run_goes_from_start_to_result_in_one_request() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 2).await?;
        let answer = engine.client().start("ten", &Value::Null, None, 10).await?;
        assert_eq!(answer.status, 201);
        let run = answer.json()?;
        assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!(45)));
    }
    Ok(())
}

#[tokio::test]
async fn a_ten_step_run_writes_at_most_16_rows_and_two_more_for_a_tag() -> TestResult {
    for form in FORMS {
        let engine = Engine::start_metered(form, 1).await?;
        let client = engine.client();
        let rows = async |client: &Client, tags: &str| -> anyhow::Result<u64> {
            let (path, wait) = (format!("/api/workflows/ten/start{tags}"), [("prefer", "wait=10")]);
            let answer = client.request_with(reqwest::Method::POST, &path, &wait, "null").await?;
            assert_eq!(answer.json()?["status"], "completed");
            Ok(answer.headers["stepwell-rows-written"].to_str()?.parse()?)
        };
        let (first, second) = (rows(&client, "").await?, rows(&client, "").await?);
        println!(
            "{}: the cell's first run with its tables {first} rows, one more {}",
            form.name(),
            second - first
        );
        // The first one also arms the alarm, which the second finds armed: count one for it.
        assert!(second - first < 16, "{} rows", second - first);
        let tables = 19;
        assert!(first <= second - first + 1 + tables, "{first} rows with the tables");
        let (before, after) = (rows(&client, "?tag=a").await?, rows(&client, "?tag=a").await?);
        let tagged = after - before;
        println!("{}: one with a tag {tagged}", form.name());
        assert!(tagged <= second - first + 2, "{tagged} rows with a tag");
    }
    Ok(())
}

#[tokio::test]
async fn a_sleep_ends_after_its_time_and_not_before() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let began = Instant::now();
    let run = engine.client().start("nap", &json!(700), None, 10).await?.json()?;
    let took = began.elapsed();
    assert_eq!(run["output"], "awake");
    assert!(took >= Duration::from_millis(700), "it slept only {took:?}");
    assert!(took < Duration::from_secs(5), "it slept {took:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_waits_for_less_time_than_a_run_takes_is_told_how_far_it_is() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let began = std::time::Instant::now();
    let run = client.start("nap", &json!(600_000), None, 1).await?.json()?;
    assert_eq!(run["status"], "sleeping", "{run}");
    let run = client.show(run["id"].as_str().unwrap_or_default(), 1).await?.json()?;
    assert_eq!(run["status"], "sleeping", "{run}");
    let took = began.elapsed().as_secs();
    assert!((2..10).contains(&took), "it took {took} s");
    Ok(())
}

#[tokio::test]
async fn a_signal_reaches_a_waiting_run_and_one_that_does_not_wait_yet() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let waiting = client.start_id("wait", json!(60_000)).await?;
        client.until(&waiting, "waiting").await?;
        assert_eq!(client.signal(&waiting, "go", &json!("hello"), None).await?.status, 202);
        assert_eq!(client.show(&waiting, 10).await?.json()?["output"], "hello");

        let early = client.start_id("race", json!(400)).await?;
        client.signal(&early, "other", &json!(1), None).await?.json()?;
        assert_eq!(client.show(&early, 10).await?.json()?["output"], "step");
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_times_out() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let run = engine.client().start("wait", &json!(200), None, 10).await?.json()?;
    assert_eq!(run["output"], "no signal 'go' came in time");
    Ok(())
}

#[tokio::test]
async fn a_signal_is_heard_while_a_step_is_under_way() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let run = client.start_id("race", json!(20_000)).await?;
        sleep(Duration::from_millis(300)).await;
        let began = Instant::now();
        client.signal(&run, "stop", &Value::Null, None).await?.json()?;
        assert_eq!(client.show(&run, 15).await?.json()?["output"], "signal");
        assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_id_counts_once() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("race", json!(1_000)).await?;
    let first = client.signal(&run, "x", &json!(1), Some("id-1")).await?;
    let again = client.signal(&run, "x", &json!(1), Some("id-1")).await?;
    assert_eq!((first.status, again.status), (202, 200));
    assert_eq!(again.json()?["duplicate"], true);
    client.show(&run, 10).await?.json()?;
    let signals =
        client.history(&run).await?.into_iter().filter(|r| r["event"].get("signal_received").is_some());
    assert_eq!(signals.count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_cancelled_run_stays_cancelled() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let busy = client.start_id("race", json!(1_000)).await?;
        let asleep = client.start_id("nap", json!(600_000)).await?;
        client.until(&asleep, "sleeping").await?;
        for run in [&busy, &asleep] {
            assert_eq!(client.cancel(run).await?.json()?["status"], "cancelled");
            assert_eq!(client.cancel(run).await?.status, 200);
            assert_eq!(client.signal(run, "go", &Value::Null, None).await?.status, 409);
        }
        sleep(Duration::from_millis(1_300)).await;
        assert_eq!(status(&client, &busy).await?, "cancelled");
        assert!(client.history(&busy).await?.is_empty(), "a step was recorded after the cancel");
        let done = client.start_id("ten", Value::Null).await?;
        client.until(&done, "completed").await?;
        assert_eq!(client.cancel(&done).await?.status, 409);
    }
    Ok(())
}

#[tokio::test]
async fn a_history_is_read_in_outline_and_event_by_event() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start("ten", &Value::Null, None, 10).await?.json()?;
    let path = format!("/api/executions/{}/history", run["id"].as_str().unwrap_or_default());
    let page = async |query: &str| client.get(&format!("{path}?{query}")).await?.json();
    let (whole, outline) = (page("").await?, page("outline=true").await?);
    for (event, outlined) in whole["events"]
        .as_array()
        .into_iter()
        .flatten()
        .zip(outline["events"].as_array().into_iter().flatten())
    {
        let result = &event["event"]["step_finished"]["outcome"]["ok"];
        assert_eq!(outlined["bytes"], json!(result.to_string().len()), "{outlined}");
        assert_eq!(outlined["event"]["step_finished"]["outcome"], json!({ "ok": null }), "{outlined}");
        assert_eq!(outlined["event"]["step_finished"]["op"], event["event"]["step_finished"]["op"]);
    }
    assert_eq!(outline["events"].as_array().map(Vec::len), Some(10));
    let one = page("after=4&limit=1").await?;
    assert_eq!((&one["events"], &one["next"]), (&json!([whole["events"][4]]), &json!(5)));
    let last = page("after=8&limit=2").await?;
    assert_eq!((last["events"].as_array().map(Vec::len), &last["next"]), (Some(2), &Value::Null), "{last}");
    for wrong in ["limit=0", "limit=1001", "limit=one"] {
        assert_eq!(client.get(&format!("{path}?{wrong}")).await?.status, 400, "{wrong}");
    }
    Ok(())
}

#[tokio::test]
async fn errors_are_retried_and_terminal_ones_are_not() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    for (how, attempts, message) in [
        ("terminal", 0, "step 't' failed: declined"),
        ("retries", 2, "step 'r' failed: busy"),
        ("", 0, "failed on purpose"),
    ] {
        let run = client.start("fail", &json!(how), None, 10).await?.json()?;
        assert_eq!((&run["status"], &run["error"]["message"]), (&json!("failed"), &json!(message)));
        let history = client.history(run["id"].as_str().unwrap_or_default()).await?;
        let retried = history.iter().filter(|record| record["event"].get("step_retrying").is_some()).count();
        assert_eq!(retried, attempts, "{how}: {history:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_workflow_that_awaits_something_that_is_not_durable_is_paused_and_says_so() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("fail", json!("await")).await?;
    client.until(&run, "paused").await?;
    assert_eq!(client.show(&run, 0).await?.json()?["problem"]["code"], "not_durable");
    Ok(())
}

#[tokio::test]
async fn a_key_starts_one_run_and_refuses_another_request() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 16).await?;
    let client = engine.client();
    let input = json!(50);
    let many = (0..20).map(|_| client.start("nap", &input, Some("order-7"), 0));
    let mut ids = std::collections::BTreeSet::new();
    let mut created = 0;
    for answer in futures::future::try_join_all(many).await? {
        created += u32::from(answer.status == 201);
        ids.insert(answer.json()?["id"].to_string());
    }
    assert_eq!((ids.len(), created), (1, 1));
    assert_eq!(client.start("nap", &json!(51), Some("order-7"), 0).await?.status, 422);
    let other = client.start("ten", &json!(50), Some("order-7"), 0).await?;
    assert_eq!(other.status, 201, "a key belongs to its workflow: {}", other.body);
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_is_not_found() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let run = client.start_id("ten", Value::Null).await?;
    let guessed = format!("{}{}", &run[..run.len() - 1], if run.ends_with('0') { '1' } else { '0' });
    let elsewhere = "default-1-99-1-0123456789ab";
    for id in [guessed.as_str(), elsewhere, "default-2-0-1-0123456789ab", "nonsense"] {
        for answer in [client.show(id, 0).await?, client.cancel(id).await?] {
            assert_eq!((answer.status, &answer.body.contains("run_not_found")), (404, &true), "{id}");
        }
    }
    let answer = client.start("nothing", &Value::Null, None, 0).await?;
    assert_eq!(
        (
            answer.status,
            answer.body.contains("It has: approve, ask, ask_again, ask_too, batched, by_plan, call")
        ),
        (404, true),
        "{}",
        answer.body
    );
    Ok(())
}

#[tokio::test]
async fn nothing_is_done_without_the_key() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let http = engine.engine.http();
    for path in ["/", "/api/executions/x", "/api/workflows/ten/start"] {
        let answer = http.post(path, "null").await?;
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        let wrong = http.client().post(http.url(path)).bearer_auth("test-kez").send().await?;
        assert_eq!(wrong.status().as_u16(), 401, "{path}");
    }
    Ok(())
}
