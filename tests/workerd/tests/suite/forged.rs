//! A second Worker, with the service bindings that any Worker can have, calls programs as if it were a cell. What it
//! tries without any signature is a case of `access-matrix`.

use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::{Value, json};
use stepwell_protocol::{program::Activation, signature::Purpose};
use stepwell_workerd_tests::{
    Outside, TestResult,
    engine::{APP_KEY, Engine, Form, KEY},
    evil::{self, Target, call, forged, signed},
};
use tokio::time::{Duration, sleep};

const FORMS: [Form; 2] = [Form::AllInOne, Form::Split];

const ONE_CELL: &[(&str, &str)] = &[("STEPWELL_CELLS", "1")];

/// The input of a bulk that cancels everything.
fn cancel_all() -> Value {
    json!({ "action": "cancel", "filter": { "from": 0 } })
}

fn value(activation: &Activation) -> Result<Value> {
    Ok(serde_json::to_value(activation)?)
}

/// The secret that activations of the app's workflows are signed with.
fn app_secret(form: Form) -> &'static str {
    match form {
        Form::AllInOne => KEY,
        Form::Split => APP_KEY,
    }
}

fn order(outside: &Outside) -> Value {
    json!({ "url": outside.url("ok"), "timeout_ms": 10_000, "attempts": 1 })
}

#[tokio::test]
async fn a_session_that_answers_for_ever_is_not_listened_to_for_ever() -> TestResult {
    for form in FORMS {
        let engine = Engine::start_with_evil(form, ONE_CELL).await?;
        let bulk = forged("stepwell.bulk", &cancel_all())?;
        let mut paged = bulk.clone();
        paged.journal.more = true;
        let waits = forged("race", &json!(60_000))?;
        for (target, purpose, activation) in [
            (Target::Own, Purpose::Own, bulk),
            (Target::Own, Purpose::Own, paged),
            (Target::App, Purpose::App, waits),
        ] {
            let secret = if target == Target::Own { KEY } else { app_secret(form) };
            let outcome = call(&engine, target, &value(&activation)?, 5_000).await?;
            assert_eq!(outcome.calls, 0, "{activation:?}");
            let good = signed(&activation, secret, purpose, "default", 0)?;
            let outcome = call(&engine, target, &value(&good)?, 5_000).await?;
            assert!((1..=1_100).contains(&outcome.calls), "{} calls of {activation:?}", outcome.calls);
        }
        assert_eq!(engine.client().get("/api/executions").await?.status, 200, "it is there as before");
    }
    Ok(())
}

#[tokio::test]
async fn a_signature_is_good_for_a_minute_and_for_its_own_purpose() -> TestResult {
    for form in FORMS {
        let (engine, outside) = (Engine::start_with_evil(form, ONE_CELL).await?, Outside::start().await?);
        let phone = forged("phone", &order(&outside))?;
        let secret = app_secret(form);
        let mut cases = vec![
            ("a minute ago", signed(&phone, secret, Purpose::App, "default", 61_000)?),
            ("for the engine's own programs", signed(&phone, secret, Purpose::Own, "default", 0)?),
            ("with another secret", signed(&phone, "another", Purpose::App, "default", 0)?),
        ];
        if form == Form::Split {
            cases.push(("with the deployment's key", signed(&phone, KEY, Purpose::App, "default", 0)?));
        }
        for (how, activation) in cases {
            let outcome = call(&engine, Target::App, &value(&activation)?, 10).await?;
            assert_eq!(outcome.refused().as_deref(), Some("activation_unverified"), "signed {how}");
        }
        assert_eq!(outside.asked(), []);

        // Whoever holds what the app holds cannot speak for the engine.
        let bulk = forged("stepwell.bulk", &cancel_all())?;
        let run = engine.client().start_id("nap", json!(600_000)).await?;
        engine.client().until(&run, "sleeping").await?;
        for (secret, purpose) in [(secret, Purpose::App), (APP_KEY, Purpose::Own)] {
            let activation = signed(&bulk, secret, purpose, "default", 0)?;
            let outcome = call(&engine, Target::Own, &value(&activation)?, 10).await?;
            assert_eq!(outcome.refused().as_deref(), Some("activation_unverified"), "{secret} {purpose:?}");
        }
        assert_eq!(engine.client().show(&run, 0).await?.json()?["status"], "sleeping");
    }
    Ok(())
}

#[tokio::test]
async fn both_keys_are_good_while_the_deployments_own_is_rotated() -> TestResult {
    const OLD: &str = "old-key-0123456789abcdef0123456789abcdef";
    let variables = [ONE_CELL[0], ("STEPWELL_KEY_PREVIOUS", OLD)];
    let engine = Engine::start_with_evil(Form::AllInOne, &variables).await?;
    for secret in [KEY, OLD] {
        let client = engine.client().with_key(secret);
        assert_eq!(client.get("/api/namespaces").await?.status, 200, "{secret} may do everything");
        let outside = Outside::start().await?;
        let activation = signed(&forged("phone", &order(&outside))?, secret, Purpose::App, "default", 0)?;
        call(&engine, Target::App, &value(&activation)?, 10).await?;
        assert_eq!(outside.asked().len(), 1, "what {secret} has signed is good");
    }
    let stranger = engine.client().with_key("new-key-0123456789abcdef0123456789abcdef");
    assert_eq!(stranger.get("/api/namespaces").await?.status, 401);
    assert_eq!(engine.engine.log().matches("still uses STEPWELL_KEY_PREVIOUS").count(), 1);
    Ok(())
}

#[tokio::test]
async fn what_a_cell_has_signed_is_good_for_nothing_else() -> TestResult {
    let (engine, outside) = (Engine::start_with_tap().await?, Outside::start().await?);
    let client = engine.client();
    let run = client.start("phone", &order(&outside), None, 10).await?.json()?;
    assert_eq!((&run["status"], outside.asked().len()), (&json!("completed"), 1), "{run}");
    let other = "default-1-0-99-000000000000";
    for change in [json!({ "run": other }), json!({ "epoch": 2 }), json!({ "workflow": "ten" })] {
        let outcome = call(&engine, Target::App, &json!({ "tapped": change }), 10).await?;
        assert_eq!(
            (outcome.refused().as_deref(), outcome.calls),
            (Some("activation_unverified"), 0),
            "{change}"
        );
    }
    assert_eq!(outside.asked().len(), 1, "nothing has run again");
    // As it was signed, it is good: the test could fail.
    assert_eq!(call(&engine, Target::App, &json!({ "tapped": {} }), 1).await?.refused(), None);
    Ok(())
}

/// The methods of a bundle's default entrypoint, which any Worker with a service binding can call.
fn exported(bundle: &str) -> Result<Vec<String>> {
    let code = std::fs::read_to_string(stepwell_workerd_tests::bundle(bundle)?.join("index.js"))?;
    let class = Regex::new(r"([\w$]+)\s*=\s*class[^{]* extends [\w$]+\s*\{\s*\}")?;
    let found = class.captures(&code).context("the bundle has an entrypoint")?;
    let method = Regex::new(&format!(r"\b{}\.prototype\.(\w+)\s*=", regex::escape(&found[1])))?;
    let mut methods: Vec<_> = method.captures_iter(&code).map(|found| found[1].to_owned()).collect();
    methods.sort_unstable();
    Ok(methods)
}

#[tokio::test]
async fn only_what_the_platform_and_a_cell_call_is_exported() -> TestResult {
    let engine = ["fetch", "queue", "scheduled", "stepwellActivate"];
    let app = ["activate", "describe", "job"];
    let mut all = [&app[..], &engine[..]].concat();
    all.sort_unstable();
    assert_eq!(exported("test-all-in-one")?, all);
    assert_eq!(exported("engine")?, engine);
    assert_eq!(exported("test-app")?, app);

    Ok(())
}

#[tokio::test]
async fn what_only_the_platform_calls_no_worker_can() -> TestResult {
    let engine = Engine::start_with_evil(Form::AllInOne, ONE_CELL).await?;
    let client = engine.client();
    let nudge =
        json!({ "namespace": "invented", "pool": "default", "generation": 1, "cell": 0, "number": 1 });
    let batch =
        json!({ "queue": "dispatch", "messages": [{ "id": "a", "attempts": 1, "body": nudge.to_string() }] });
    client.start_id("ten", Value::Null).await?;
    let before = engine.engine.files()?;
    // Whoever waits for an answer while that happens still gets it: nobody has stopped the instance.
    let nap = json!(1_500);
    let waiting = client.start("nap", &nap, None, 20);
    let calls = async {
        let events =
            [json!({ "cron": "* * * * *", "scheduledTime": 0 }), batch, json!({}), json!([]), json!(1)];
        for (method, event) in ["queue", "scheduled"].iter().flat_map(|m| events.iter().map(move |e| (*m, e)))
        {
            let event = json!({ "plain": event });
            let outcome = evil::call_method(&engine, "ENGINE", method, &event, 0, &[]).await?;
            let thrown = outcome.answer["thrown"].as_str().unwrap_or_default();
            anyhow::ensure!(thrown.contains("Only the platform"), "{method}: {}", outcome.answer);
        }
        let gone = evil::call_method(&engine, "ENGINE", "extend_durable_object", &json!({}), 0, &[]).await?;
        anyhow::ensure!(gone.answer["thrown"].is_string(), "{}", gone.answer);
        Ok(())
    };
    let (waited, called) = tokio::join!(waiting, calls);
    called?;
    assert_eq!(waited?.json()?["status"], "completed");
    assert_eq!(engine.engine.files()?, before, "no object was made");
    Ok(())
}

#[tokio::test]
async fn runs_of_an_app_without_its_key_wait_and_say_so_until_it_has_one() -> TestResult {
    let mut engine = Engine::start_with_app_key("too short").await?;
    let client = engine.client();
    let run = client.start_id("ten", Value::Null).await?;
    let view = until_problem(&engine, &run, "app_key_missing").await?;
    assert_eq!(view["status"], "pending", "{view}");
    let why = client.get(&format!("/api/executions/{run}/why")).await?.json()?;
    assert!(why["because"].as_str().is_some_and(|text| text.contains("STEPWELL_APP_KEY")), "{why}");
    assert_eq!(why["trouble"]["strikes"], 0, "{why}");

    engine.set_app_key(&"x".repeat(32)).await?;
    until_problem(&engine, &run, "activation_unverified").await?;

    engine.set_app_key(APP_KEY).await?;
    let view = client.until(&run, "completed").await?;
    assert_eq!((&view["output"], view.get("problem")), (&json!(45), None), "{view}");
    Ok(())
}

/// Waits until a run shows a problem.
async fn until_problem(engine: &Engine, run: &str, code: &str) -> Result<Value> {
    for _ in 0..1_000 {
        let view = engine.client().show(run, 0).await?.json()?;
        if view["problem"]["code"] == code {
            return Ok(view);
        }
        sleep(Duration::from_millis(20)).await;
    }
    let view = engine.client().show(run, 0).await?.body;
    Err(anyhow::anyhow!("{run} never said {code}: {view}")).context("waiting for a problem")
}
