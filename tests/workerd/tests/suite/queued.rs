//! Programs that are called through a queue, under Miniflare: workerd alone has none.

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    access::namespace,
    engine::{APP_KEY, Build, Client, Form},
    kill::ledger::Ledger,
    miniflare::{Miniflare, Setup},
};
use tokio::time::{Duration, Instant, sleep};

const ONE_CELL: Setup = Setup { form: Form::AllInOne, build: Build::Abort, cells: 1, window: 12 };

/// How long a test waits for something to show up.
const SHOWS_WITHIN: Duration = Duration::from_secs(20);

/// The steps that have begun, by name and in order.
fn steps(ledger: &Ledger) -> Vec<String> {
    ledger.entries().iter().filter_map(|entry| entry.key.rsplit(':').next().map(str::to_owned)).collect()
}

/// Waits until the ledger has this many entries.
async fn until_written(ledger: &Ledger, count: usize) {
    let began = Instant::now();
    while ledger.entries().len() < count {
        assert!(began.elapsed() < SHOWS_WITHIN, "only {:?} have begun", steps(ledger));
        sleep(Duration::from_millis(10)).await;
    }
}

async fn because(client: &Client, run: &str) -> anyhow::Result<String> {
    let why = client.get(&format!("/api/executions/{run}/why")).await?.json()?;
    Ok(why["because"].as_str().unwrap_or_default().to_owned())
}

/// Waits until a run says this of itself.
async fn until_because(client: &Client, run: &str, part: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let because = because(client, run).await?;
        if because.contains(part) {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < SHOWS_WITHIN, "it says: {because}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_queued_run_of_an_app_without_its_key_waits_and_says_so() -> TestResult {
    let setup = Setup { form: Form::Split, ..ONE_CELL };
    let mut miniflare = Miniflare::start_with_app_key(setup, "too short").await?;
    let run = miniflare.client().start_id("slow_queued", Value::Null).await?;
    until_because(&miniflare.client(), &run, "STEPWELL_APP_KEY").await?;
    let view = miniflare.client().show(&run, 0).await?.json()?;
    assert_eq!((&view["status"], &view["problem"]["code"]), (&json!("pending"), &json!("app_key_missing")));
    miniflare.set_app_key(APP_KEY).await?;
    miniflare.client().until(&run, "completed").await?;
    Ok(())
}

#[tokio::test]
async fn everything_there_is_completes_in_both_forms() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let miniflare = Miniflare::start(Setup { form, ..ONE_CELL }).await?;
        let (client, ledger) = (miniflare.client(), Ledger::start().await?);
        let plan = json!({
            "ledger": ledger.address(), "failures": 2, "sleep_ms": 30, "waits": true, "items": 3,
        });
        let run = client.start_id("mixed_queued", plan).await?;
        client.until(&run, "waiting").await?;
        client.signal(&run, "go", &json!(7), None).await?.json()?;
        let run = client.show(&run, 15).await?.json()?;
        assert_eq!(run["status"], "completed", "{run}\n{}", miniflare.log());
        assert_eq!(run["output"].as_array().map(Vec::len), Some(13), "{run}");
    }
    Ok(())
}

#[tokio::test]
async fn a_run_of_another_namespace_goes_through_the_queue_and_comes_back_to_its_cell() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let (admin, ledger) = (namespace(&miniflare.client(), "acme").await?, Ledger::start().await?);
    let run = admin.start_id("long", json!({ "ledger": ledger.address(), "ms": 100 })).await?;
    let run = admin.show(&run, 15).await?.json()?;
    assert_eq!(run["status"], "completed", "{run}\n{}", miniflare.log());
    Ok(())
}

#[tokio::test]
async fn a_consumer_calls_the_program_and_the_run_says_so() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let (client, ledger) = (miniflare.client(), Ledger::start().await?);
    let run = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 3_000 })).await?;
    until_because(&client, &run, "called by a consumer of the queue").await?;
    // One batch at a time: the next message waits until this one is done.
    until_written(&ledger, 2).await;
    let next = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 0 })).await?;
    until_because(&client, &next, "waits for a consumer of the queue").await?;
    for run in [run, next] {
        assert_eq!(client.show(&run, 15).await?.json()?["status"], "completed");
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_reaches_a_program_whose_step_is_under_way() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let client = miniflare.client();
    let run = client.start_id("race_queued", json!(60_000)).await?;
    until_because(&client, &run, "called by a consumer").await?;
    let began = Instant::now();
    client.signal(&run, "stop", &Value::Null, None).await?.json()?;
    let run = client.show(&run, 15).await?.json()?;
    assert_eq!(run["output"], "signal", "{run}");
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_tried_again() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let client = miniflare.client();
    let run = client.start("slow_queued", &Value::Null, None, 20).await?.json()?;
    assert_eq!(run["output"], 3, "{run}");
    let history = client.history(run["id"].as_str().unwrap_or_default()).await?;
    assert_eq!(history[0]["event"]["step_retrying"]["failure"]["code"], "step_timed_out", "{history:?}");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_run_frees_its_consumer() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let (client, ledger) = (miniflare.client(), Ledger::start().await?);
    let run = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 60_000 })).await?;
    until_written(&ledger, 2).await;
    client.cancel(&run).await?.json()?;
    assert_eq!(client.show(&run, 0).await?.json()?["status"], "cancelled");
    // The consumer is told with its next beat; then it has time for others.
    let next =
        client.start("long", &json!({ "ledger": ledger.address(), "ms": 0 }), None, 15).await?.json()?;
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(steps(&ledger), ["before", "long", "before", "long", "after"]);
    Ok(())
}

#[tokio::test]
async fn what_a_program_has_done_when_its_run_is_paused_is_kept() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let (client, ledger) = (miniflare.client(), Ledger::start().await?);
    let run = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 1_000 })).await?;
    until_written(&ledger, 2).await;
    assert_eq!(client.pause(&run).await?.json()?["status"], "paused");
    let began = Instant::now();
    while client.history(&run).await?.len() < 2 {
        assert!(began.elapsed() < SHOWS_WITHIN, "the step that was under way is not recorded");
        sleep(Duration::from_millis(20)).await;
    }
    client.resume(&run).await?.json()?;
    let run = client.show(&run, 15).await?.json()?;
    assert_eq!(run["output"], json!([0, 1, 2]), "{run}");
    assert_eq!(steps(&ledger), ["before", "long", "after"], "none ran twice");
    Ok(())
}

#[tokio::test]
async fn an_activation_that_was_replaced_records_nothing() -> TestResult {
    let miniflare = Miniflare::start(ONE_CELL).await?;
    let (client, ledger) = (miniflare.client(), Ledger::start().await?);
    let run = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 1_500 })).await?;
    until_written(&ledger, 2).await;
    // Resumed while its step is still under way, it is activated anew: the first program speaks for nobody.
    client.pause(&run).await?.json()?;
    client.resume(&run).await?.json()?;
    let view = client.show(&run, 20).await?.json()?;
    assert_eq!(view["output"], json!([0, 2, 3]), "the second attempt counts: {view}");
    let history = client.history(&run).await?;
    let finished = history.iter().filter(|record| record["event"].get("step_finished").is_some());
    assert_eq!(finished.count(), 3, "{history:?}");
    Ok(())
}

#[tokio::test]
async fn a_program_that_fails_or_panics_says_so_through_its_consumer() -> TestResult {
    let miniflare = Miniflare::start(Setup { form: Form::Split, ..ONE_CELL }).await?;
    let client = miniflare.client();
    let run = client.start("fail_queued", &json!(false), None, 15).await?.json()?;
    assert_eq!(run["error"]["message"], "failed on purpose", "{run}");
    let run = client.start("fail_queued", &json!(true), None, 25).await?.json()?;
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("panicked")), "{run}");
    Ok(())
}

#[tokio::test]
async fn runs_that_find_no_place_go_through_the_queue() -> TestResult {
    // One place for each workflow.
    let miniflare = Miniflare::start(Setup { window: 2, ..ONE_CELL }).await?;
    let client = miniflare.client();
    let mut runs = Vec::new();
    let began = Instant::now();
    for _ in 0..6 {
        runs.push(client.start_id("race", json!(3_000)).await?);
    }
    // Whoever comes first has them: the consumer, or the place when it is free again.
    let mut by_consumer = false;
    while !by_consumer && began.elapsed() < SHOWS_WITHIN {
        for run in &runs[1..] {
            by_consumer |= because(&client, run).await?.contains("called by a consumer");
        }
    }
    assert!(by_consumer, "all of them waited for the place");
    assert!(!because(&client, &runs[0]).await?.contains("consumer"), "the first has the place");
    for run in &runs {
        assert_eq!(client.show(run, 15).await?.json()?["output"], "step");
    }
    assert!(began.elapsed() < Duration::from_secs(9), "one after another would take 18 s");
    Ok(())
}

#[tokio::test]
async fn a_run_whose_consumer_dies_in_mid_step_completes_after_the_lease() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut miniflare = Miniflare::start(Setup { form, ..ONE_CELL }).await?;
        let (client, ledger) = (miniflare.client(), Ledger::start().await?);
        let run = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 2_000 })).await?;
        until_written(&ledger, 2).await;
        miniflare.kill();
        miniflare.restart().await?;
        let began = Instant::now();
        let view = client.show(&run, 25).await?.json()?;
        assert_eq!(view["output"], json!([0, 2, 3]), "{view}\n{}", miniflare.log());
        assert_eq!(view["activations"], 2, "{view}");
        assert_eq!(
            steps(&ledger),
            ["before", "long", "long", "after"],
            "what was recorded does not run again"
        );
        assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn a_message_that_is_lost_with_the_queue_is_sent_again() -> TestResult {
    let mut miniflare = Miniflare::start(ONE_CELL).await?;
    let (client, ledger) = (miniflare.client(), Ledger::start().await?);
    // The first one keeps the consumer busy, so the message of the second is in the queue when that dies.
    let first = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 60_000 })).await?;
    until_written(&ledger, 2).await;
    let second = client.start_id("long", json!({ "ledger": ledger.address(), "ms": 0 })).await?;
    until_because(&client, &second, "Message 1 was sent").await?;
    miniflare.kill();
    miniflare.restart().await?;
    assert_eq!(client.show(&second, 15).await?.json()?["status"], "completed", "{}", miniflare.log());
    client.cancel(&first).await?.json()?;
    Ok(())
}
