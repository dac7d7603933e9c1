//! What steps reach of the world around their Worker: secrets, variables, bindings, HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Listener, TestResult,
    engine::{Engine, Form},
};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_step_reads_the_secrets_and_variables_of_its_own_worker() -> TestResult {
    let variables = [("STEPWELL_CELLS", "1"), ("API_HOST", "api.example.com")];
    let missing = |name: &str| {
        format!(
            "there is no secret '{name}': set it with `wrangler secret put {name}`, or in `.dev.vars` for development"
        )
    };
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let run =
        engine.client().start("environment", &json!(["API_HOST", "API_KEY"]), None, 10).await?.json()?;
    assert_eq!(run["output"], json!(["api.example.com", missing("API_KEY")]), "{run}");

    // The engine's own key stays with the engine.
    let split = Engine::start_with(Form::Split, &variables).await?;
    let run = split.client().start("environment", &json!(["STEPWELL_KEY"]), None, 10).await?.json()?;
    assert_eq!(run["output"], json!([missing("STEPWELL_KEY")]), "{run}");
    Ok(())
}

#[tokio::test]
async fn a_binding_that_is_not_there_fails_the_step_at_once() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let run = engine.client().start("unbound", &Value::Null, None, 10).await?.json()?;
    let message =
        "step 'look' failed: there is no KV namespace 'CACHE': declare the binding in wrangler.toml";
    assert_eq!(run["error"]["message"], message, "{run}");
    assert_eq!(run["last_error"]["attempt"], 1, "{run}");
    Ok(())
}

#[tokio::test]
async fn an_attempt_that_times_out_hangs_up_on_whom_it_called() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let mut outside = Listener::start().await?;
    let input = json!({"url": outside.url(), "timeout_ms": 300});
    let run = engine.client().start_id("call", input).await?;
    let mut held = timeout(SOON, outside.next()).await?;
    timeout(SOON, held.hung_up()).await?;
    let run = engine.client().show(&run, 10).await?.json()?;
    assert_eq!(run["error"]["code"], "step_timed_out", "{run}");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_run_hangs_up_on_whom_it_called() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let engine = Engine::start(form, 1).await?;
        let mut outside = Listener::start().await?;
        let input = json!({"url": outside.url(), "timeout_ms": 600_000});
        let run = engine.client().start_id("call", input).await?;
        let mut held = timeout(SOON, outside.next()).await?;
        engine.client().cancel(&run).await?;
        timeout(SOON, held.hung_up()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_gives_its_answer_and_the_journal_says_how_long_it_took() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let mut outside = Listener::start().await?;
    let input = json!({"url": outside.url(), "timeout_ms": 60_000});
    let run = engine.client().start_id("call", input).await?;
    let held = timeout(SOON, outside.next()).await?;
    tokio::time::sleep(Duration::from_millis(400)).await;
    held.answer();
    let ended = engine.client().show(&run, 10).await?.json()?;
    assert_eq!(ended["output"], 200, "{ended}");
    let history = engine.client().history(&run).await?;
    let took_ms = history[0]["event"]["step_finished"]["took_ms"].as_u64();
    assert!(took_ms.is_some_and(|ms| (350..5_000).contains(&ms)), "{history:?}");
    Ok(())
}

#[tokio::test]
async fn a_signal_that_does_not_fit_is_refused_and_one_that_nobody_waits_for_is_warned_about() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("decide", Value::Null).await?;
    client.until(&run, "waiting").await?;
    let why = client.get(&format!("/api/executions/{run}/why")).await?.json()?;
    assert_eq!(why["waits_for"][0]["expects"], "true or false", "{why}");

    let refused = client.signal(&run, "decision", &Value::Null, Some("s1")).await?;
    assert_eq!(refused.problem()?, (422, "signal_mismatch".to_owned()));
    let early = client.signal(&run, "decison", &json!(true), None).await?.json()?;
    let warning = "The run does not wait for signal 'decison' yet. The signal is kept until it does. It waits for: decision.";
    assert_eq!(early, json!({"duplicate": false, "warning": warning}));

    // The id of a refused signal is not used up.
    let sent = client.signal(&run, "decision", &json!(true), Some("s1")).await?.json()?;
    assert_eq!(sent, json!({"duplicate": false}));
    let ended = client.show(&run, 10).await?.json()?;
    assert_eq!(ended["output"], true, "{ended}");
    Ok(())
}
