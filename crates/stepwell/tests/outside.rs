//! What steps reach of the world around them, in tests: secrets, variables, bindings.

use std::cell::RefCell;

use stepwell::{
    EnvError, StepInfo, fetch,
    prelude::*,
    testing::{Test, takes},
};

#[workflow]
async fn ask(ctx: Ctx, question: String) -> Result<String> {
    ctx.step("ask", async || {
        let key = ctx.env().secret("API_KEY")?;
        let host = ctx.env().var("API_HOST")?;
        Ok(format!("{host} answers {question} for a key of {}", key.expose().len()))
    })
    .await
}

/// A helper without a context, as a client library would be.
fn host() -> Result<String, EnvError> {
    stepwell::env().var("API_HOST")
}

#[workflow]
async fn helped(ctx: Ctx) -> Result<String> {
    ctx.step("ask", async || Ok(host()?)).await
}

#[workflow]
async fn keep(ctx: Ctx) -> Result<()> {
    ctx.step("keep it", async || Ok(ctx.env().kv("CACHE")?.put("k", "v")?.execute().await?)).await
}

#[workflow]
#[expect(clippy::unused_async, reason = "a workflow is async, whatever it does")]
async fn outside_of_a_step(ctx: Ctx) -> Result<()> {
    ctx.env().d1("ORDERS")?;
    Ok(())
}

fn app() -> App {
    App::new().workflow(ask).workflow(helped).workflow(keep).workflow(outside_of_a_step)
}

#[test]
fn a_test_supplies_secrets_and_variables() {
    let test = Test::new(app()).secret("API_KEY", "s3cret").var("API_HOST", "api.example.com");
    let outcome = test.crash_everywhere("ask", "what?");
    assert_eq!(outcome.output::<String>(), "api.example.com answers what? for a key of 6");
    let outcome = Test::new(app()).var("API_HOST", "here").run("helped", &());
    assert_eq!(outcome.output::<String>(), "here");
}

#[test]
fn what_one_test_supplies_is_gone_in_the_next() {
    Test::new(app()).var("API_HOST", "here").run("helped", &());
    let outcome = Test::new(app()).run("helped", &());
    assert!(
        outcome.error().message.contains("there is no variable 'API_HOST'"),
        "{}",
        outcome.error().message
    );
}

#[test]
fn a_missing_secret_fails_the_step_at_once_and_says_how_to_supply_it() {
    let outcome = Test::new(app()).run("ask", "what?");
    assert_eq!(outcome.ran(), ["ask"], "a retry would not find it either");
    assert_eq!(
        outcome.error().message,
        "step 'ask' failed: there is no secret 'API_KEY': supply it with \
         `Test::new(app()).secret(\"API_KEY\", \"…\")`"
    );
}

#[test]
fn a_binding_names_the_step_to_mock() {
    let outcome = Test::new(app()).run("keep", &());
    assert_eq!(outcome.ran(), ["keep it"]);
    assert_eq!(
        outcome.error().message,
        "step 'keep it' failed: the KV namespace 'CACHE' works only in a Worker: in this test, replace the step \
         with `.mock(\"keep it\", |_| Ok(…))`"
    );
    Test::new(app()).mock("keep it", |_| Ok(())).run("keep", &()).output::<()>();
    let outcome = Test::new(app()).run("outside_of_a_step", &());
    assert!(outcome.error().message.contains("move the call into a step"), "{}", outcome.error().message);
}

#[test]
fn no_debug_output_shows_a_secret() {
    #[workflow]
    async fn look(ctx: Ctx) -> Result<String> {
        ctx.step("look", async || Ok(format!("{:?} {:?}", ctx.env(), ctx.env().secret("API_KEY")?))).await
    }
    let outcome = Test::new(App::new().workflow(look)).secret("API_KEY", "s3cret").run("look", &());
    assert_eq!(outcome.output::<String>(), "Env Secret(…)");
}

#[test]
fn a_call_names_the_step_to_mock() {
    #[workflow]
    async fn call(ctx: Ctx) -> Result<String> {
        ctx.step_with("call", async |info| {
            fetch(&info, "https://api.example.com/orders?key=s3cret").send().await?.ok()?.text().await
        })
        .await
    }
    let outcome = Test::new(App::new().workflow(call)).run("call", &());
    assert_eq!(outcome.ran(), ["call"], "a retry would not reach it either");
    assert_eq!(
        outcome.error().message,
        "step 'call' failed: the call of 'https://api.example.com/orders' works only in a Worker: in this test, \
         replace the step with `.mock(\"call\", |_| Ok(…))`"
    );
}

#[test]
fn an_attempt_that_times_out_or_is_cancelled_is_aborted() {
    thread_local! {
        static ATTEMPTS: RefCell<Vec<StepInfo>> = const { RefCell::new(Vec::new()) };
    }
    #[workflow]
    async fn slow(ctx: Ctx) -> Result<u32> {
        ctx.step_with("slow", async |info| {
            ATTEMPTS.with_borrow_mut(|attempts| attempts.push(info.clone()));
            if info.attempt != 2 {
                takes(Duration::from_secs(60)).await;
            }
            ensure!(info.attempt != 2, "it fails by itself");
            Ok(info.attempt)
        })
        .timeout("10 seconds")
        .await
    }
    let aborted = || ATTEMPTS.take().iter().map(StepInfo::is_aborted).collect::<Vec<_>>();
    Test::new(App::new().workflow(slow)).run("slow", &()).error();
    assert_eq!(aborted(), [true, false, true], "the second has ended by itself");
    Test::new(App::new().workflow(slow)).cancel_after(Duration::from_secs(5)).run("slow", &());
    assert_eq!(aborted(), [true]);
}
