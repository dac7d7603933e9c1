//! What people complain about in systems of this kind, each as a fact about this one.

use futures::future::join_all;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Client, Engine, Form},
};
use tokio::time::{Duration, Instant, sleep};

#[tokio::test]
async fn alarms_go_on_after_reload_after_reload() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("nap", json!(2_500)).await?;
    client.until(&run, "sleeping").await?;
    for _ in 0..4 {
        engine.engine.kill();
        engine.engine.restart().await?;
        sleep(Duration::from_millis(300)).await;
    }
    // Nobody asks the cell for anything until the sleep is over: only its alarm can wake it.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(client.show(&run, 0).await?.json()?["status"], "completed");
    Ok(())
}

#[tokio::test]
async fn a_deploy_of_the_app_fails_no_run() -> TestResult {
    let mut engine = Engine::start(Form::Split, 2).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(client.start_id("race", json!(400)).await?);
        runs.push(client.start_id("nap", json!(300)).await?);
    }
    for _ in 0..3 {
        engine.deploy_app("test-app").await?;
        sleep(Duration::from_millis(100)).await;
    }
    for run in &runs {
        let view = client.show(run, 20).await?.json()?;
        assert_eq!(view["status"], "completed", "{view}");
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_right_after_the_start_is_not_lost() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    for n in 0..30 {
        let run = client.start_id("wait", json!(60_000)).await?;
        client.signal(&run, "go", &json!(format!("at once {n}")), None).await?.json()?;
        assert_eq!(client.show(&run, 10).await?.json()?["output"], format!("at once {n}"));
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_that_timed_out_does_not_eat_the_next_signal() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("twice", json!(100)).await?;
    sleep(Duration::from_millis(400)).await;
    client.signal(&run, "go", &json!(7), None).await?.json()?;
    assert_eq!(client.show(&run, 10).await?.json()?["output"], json!([null, 7]));
    Ok(())
}

#[tokio::test]
async fn no_run_is_stuck_without_anybody_saying_why() -> TestResult {
    let mut engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    let why =
        async |client: &Client, run: &str| client.get(&format!("/api/executions/{run}/why")).await?.json();

    let asleep = client.start_id("nap", json!(600_000)).await?;
    client.until(&asleep, "sleeping").await?;
    assert_eq!(why(&client, &asleep).await?["waits_for"][0]["kind"], "sleep");

    let waiting = client.start_id("twice", json!(600_000)).await?;
    client.until(&waiting, "waiting").await?;
    assert_eq!(why(&client, &waiting).await?["waits_for"][0]["name"], "go");

    let busy = client.start_id("race", json!(5_000)).await?;
    let because = why(&client, &busy).await?["because"].to_string();
    assert!(because.contains("Its program has been at work for"), "{because}");

    // With the app gone, it says that its program is out of reach, and goes on when the app is back.
    engine.app.as_mut().expect("the split form has an app").kill();
    let began = Instant::now();
    while why(&client, &busy).await?["trouble"]["losses"].as_u64().unwrap_or_default() < 2 {
        assert!(began.elapsed() < Duration::from_secs(10), "{}", why(&client, &busy).await?);
        sleep(Duration::from_millis(50)).await;
    }
    engine.deploy_app("test-app").await?;
    client.signal(&busy, "stop", &Value::Null, None).await?.json()?;
    assert_eq!(client.show(&busy, 20).await?.json()?["output"], "signal");
    Ok(())
}

#[tokio::test]
async fn a_workflow_that_ignores_every_error_still_sleeps_and_waits() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let began = Instant::now();
    let run = engine.client().start("careless", &Value::Null, None, 20).await?.json()?;
    assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!(3)), "{run}");
    assert!(began.elapsed() >= Duration::from_millis(120));
    Ok(())
}

#[tokio::test]
async fn code_that_no_longer_matches_pauses_its_runs_and_fails_none() -> TestResult {
    let mut engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    let run = client.start_id("changing", Value::Null).await?;
    client.until(&run, "waiting").await?;

    engine.deploy_app("test-app-changed").await?;
    client.signal(&run, "go", &Value::Null, None).await?.json()?;
    let view = client.until(&run, "paused").await?;
    assert_eq!(view["problem"]["code"], "diverged", "{view}");
    let detail = view["problem"]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("'original'") && detail.contains("'renamed'"), "{detail}");

    engine.deploy_app("test-app").await?;
    client.resume(&run).await?.json()?;
    assert_eq!(client.show(&run, 15).await?.json()?["output"], "original");
    Ok(())
}

#[tokio::test]
async fn whoever_sends_somewhat_too_much_is_told_so() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let body = format!("\"{}\"", "x".repeat(4_000_000));
    for round in 0..10 {
        // A server that closes the connection before it has read the body is seen as a broken pipe, now and then.
        let asked = (0..8).map(|_| client.send_post("/api/workflows/ten/start", &body));
        for answer in join_all(asked).await {
            assert_eq!(answer?.problem()?, (413, "payload_too_large".into()), "round {round}");
        }
    }
    Ok(())
}
