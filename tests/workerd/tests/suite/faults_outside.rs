//! What is outside of the engine breaks: the servers that steps call, the app under the engine, a program that kills
//! what it runs in.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Outside, TestResult,
    engine::{Engine, Form},
};
use tokio::time::sleep;

const FORMS: [Form; 2] = [Form::AllInOne, Form::Split];

fn order(outside: &Outside, how: &str, timeout_ms: u64) -> Value {
    json!({ "url": outside.url(how), "timeout_ms": timeout_ms, "attempts": 3 })
}

#[tokio::test]
async fn an_endpoint_that_hangs_dies_or_answers_garbage_costs_one_attempt() -> TestResult {
    for form in FORMS {
        let engine = Engine::start(form, 2).await?;
        let client = engine.client();
        for (how, said) in [
            ("hang", "it took longer than 300 ms"),
            ("die", "Network connection lost"),
            ("garbage", "that is no number: <html>502 Bad Gateway</html>"),
        ] {
            let outside = Outside::start().await?;
            let run = client.start("phone", &order(&outside, how, 300), None, 15).await?.json()?;
            assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!(2)), "{how}: {run}");
            let asked = outside.asked();
            assert_eq!(asked.iter().map(|asked| asked.attempt).collect::<Vec<_>>(), [1, 2], "{how}");
            assert_eq!(asked[0].key, asked[1].key, "{how}: the second attempt is known by its key");
            let history = client.history(run["id"].as_str().unwrap_or_default()).await?;
            let failure = history[0]["event"]["step_retrying"]["failure"]["message"].to_string();
            assert!(failure.contains(said), "{how}: {failure}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_that_comes_after_its_activation_was_replaced_is_refused() -> TestResult {
    let mut engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    let outside = Outside::start().await?;
    let run = client.start_id("phone", order(&outside, "late", 60_000)).await?;
    outside.until_asked(1).await?;
    // The engine dies and forgets its calls; the app stands still meanwhile, and knows nothing of it.
    let app = engine.app.as_ref().expect("the split form has an app");
    app.pause()?;
    engine.engine.kill();
    engine.engine.restart().await?;
    client.show(&run, 0).await?.json()?;
    let began = Instant::now();
    while client.show(&run, 0).await?.json()?["activations"] != 2 {
        assert!(began.elapsed() < Duration::from_secs(10), "{}", client.show(&run, 0).await?.body);
        sleep(Duration::from_millis(50)).await;
    }
    outside.let_go();
    engine.app.as_ref().expect("the split form has an app").resume()?;
    let view = client.show(&run, 15).await?.json()?;
    assert_eq!(view["status"], "completed", "{view}");
    let history = client.history(&run).await?;
    assert_eq!(history.len(), 1, "one result, whichever call gave it: {history:?}");
    let keys: std::collections::BTreeSet<_> = outside.asked().into_iter().map(|asked| asked.key).collect();
    assert_eq!(keys.len(), 1, "both calls of the step had the same key");
    // The second call gave the result: the first one's activation was over.
    assert_eq!(view["output"], 2, "{view}");
    Ok(())
}

#[tokio::test]
async fn an_app_that_is_deployed_in_mid_run_goes_on_and_the_engine_does_not_notice() -> TestResult {
    let mut engine = Engine::start(Form::Split, 2).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(client.start_id("steady", json!(500)).await?);
    }
    let asleep = client.start_id("nap", json!(2_000)).await?;
    let waiting = client.start_id("wait", json!(60_000)).await?;
    client.until(&waiting, "waiting").await?;
    for bundle in ["test-app-changed", "test-app"] {
        sleep(Duration::from_millis(400)).await;
        engine.deploy_app(bundle).await?;
    }
    client.signal(&waiting, "go", &json!("still there"), None).await?.json()?;
    for run in runs.iter().chain([&asleep, &waiting]) {
        let view = client.show(run, 20).await?.json()?;
        assert_eq!(view["status"], "completed", "{view}");
    }
    assert_eq!(client.show(&asleep, 0).await?.json()?["activations"], 2, "a run that sleeps is not called");
    Ok(())
}

/// Starts a program that is killed with its process whenever it runs, beside others; gives how often it was called
/// and how long that took.
async fn poison(form: Form) -> TestResult {
    let mut engine = Engine::start(form, 2).await?;
    let client = engine.client();
    let outside = Outside::start().await?;
    let began = Instant::now();
    let poison = client.start_id("phone", order(&outside, "late", 600_000)).await?;
    let mut neighbours = Vec::new();
    for _ in 0..3 {
        neighbours.push(client.start_id("steady", json!(1_000)).await?);
    }
    let (mut deaths, mut view) = (0, Value::Null);
    while view.get("ended_at").is_none() {
        assert!(began.elapsed() < Duration::from_secs(240), "after {deaths} deaths: {view}");
        if outside.asked().len() > deaths {
            // It has begun: whatever it runs in dies.
            deaths = outside.asked().len();
            let victim = engine.app.as_mut().unwrap_or(&mut engine.engine);
            victim.restart().await?;
        }
        sleep(Duration::from_millis(20)).await;
        view = client.show(&poison, 0).await?.json()?;
    }
    let failed = began.elapsed();
    assert_eq!(
        (&view["status"], &view["error"]["code"]),
        (&json!("failed"), &json!("program_died")),
        "{view}"
    );
    let mut most = 0;
    for run in &neighbours {
        let view = client.show(run, 20).await?.json()?;
        assert_eq!(view["status"], "completed", "{view}");
        most = most.max(view["activations"].as_u64().unwrap_or_default());
    }
    println!(
        "{}: failed after {failed:?}, {} activations and {deaths} deaths; its neighbours completed after at most \
         {most} activations",
        form.name(),
        view["activations"]
    );
    assert!(deaths <= 20, "{deaths} deaths");
    let fresh = client.start("ten", &Value::Null, None, 10).await?.json()?;
    assert_eq!(fresh["status"], "completed", "{fresh}");
    Ok(())
}

#[tokio::test]
async fn a_program_that_kills_its_process_is_stopped_and_its_neighbours_complete_all_in_one() -> TestResult {
    poison(Form::AllInOne).await
}

#[tokio::test]
async fn a_program_that_kills_its_process_is_stopped_and_its_neighbours_complete_split() -> TestResult {
    poison(Form::Split).await
}
