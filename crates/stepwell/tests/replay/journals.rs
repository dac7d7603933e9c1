//! Journals that the code does not match, and journals in pieces.

use std::future::pending;

use stepwell::{
    prelude::*,
    testing::engine::{Death, Ended, Engine},
};
use stepwell_core::run::Phase;
use stepwell_protocol::Code;

use crate::world::dies_everywhere;

#[workflow(name = "order")]
async fn order_before(ctx: Ctx) -> Result<u32> {
    let price = ctx.step("price", async || Ok(10)).await?;
    let tax = ctx.step("tax", async || Ok(2)).await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    Ok(price + tax)
}

#[workflow(name = "order")]
async fn order_renamed(ctx: Ctx) -> Result<u32> {
    let price = ctx.step("cost", async || Ok(10)).await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    Ok(price)
}

#[workflow(name = "order")]
async fn order_shorter(ctx: Ctx) -> Result<u32> {
    ctx.step("price", async || Ok(10)).await
}

#[workflow(name = "order")]
async fn order_retyped(ctx: Ctx) -> Result<String> {
    ctx.step("price", async || Ok("ten".to_owned())).await
}

#[workflow(name = "other")]
async fn another(ctx: Ctx) -> Result<()> {
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    Ok(())
}

/// A run that sleeps with the journal of `order_before`; then the app is another one.
fn deployed_over(app: App, page_size: usize) -> Engine {
    let mut engine = Engine::start(App::new().workflow(order_before), "order", &());
    engine.sleep_first();
    engine.app = app.into();
    engine.page_size = page_size;
    engine
}

fn pauses_at(app: fn() -> App, code: Code, expected: &[&str]) {
    for page_size in [usize::MAX, 2, 1] {
        let mut engine = deployed_over(app(), page_size);
        let journal = engine.journal.clone();
        let Ended::Paused(problem) = engine.finish() else { panic!("it pauses") };
        assert_eq!(problem.code, code);
        for words in expected {
            assert!(problem.detail.contains(words), "{words} is not in: {}", problem.detail);
        }
        assert!(engine.journal.starts_with(&journal), "the journal is as it was");
        assert_eq!(engine.run.epoch.0, 2, "it pauses at once, in pages of {page_size}");
    }
}

#[test]
fn a_step_that_the_code_no_longer_has_pauses_the_run() {
    let expected = ["journal goes on with step 'price'", "waits for step 'cost'"];
    pauses_at(|| App::new().workflow(order_renamed), Code::Diverged, &expected);
}

#[test]
fn code_that_returns_before_the_journal_ends_pauses_the_run() {
    let expected = ["journal goes on with step 'tax'", "has already returned"];
    pauses_at(|| App::new().workflow(order_shorter), Code::Diverged, &expected);
}

#[test]
fn a_result_of_another_type_pauses_the_run() {
    let expected = ["result of step 'price' cannot be read"];
    pauses_at(|| App::new().workflow(order_retyped), Code::Diverged, &expected);
}

#[test]
fn a_workflow_that_the_app_does_not_have_pauses_the_run() {
    let expected = ["no workflow 'order'", "it has: other"];
    pauses_at(|| App::new().workflow(another), Code::WorkflowNotFound, &expected);
}

#[workflow]
async fn stuck(ctx: Ctx) -> Result<()> {
    ctx.step("begin", async || Ok(())).await?;
    pending::<()>().await;
    Ok(())
}

#[test]
fn a_workflow_that_awaits_something_else_is_paused() {
    let mut engine = Engine::start(App::new().workflow(stuck), "stuck", &());
    let Ended::Paused(problem) = engine.finish() else { panic!("it pauses") };
    assert_eq!(problem.code, Code::NotDurable);
    assert_eq!(engine.journal.len(), 1, "its step is on record");
}

#[workflow]
async fn nested(ctx: Ctx) -> Result<u32> {
    let outer = ctx.step("outer", async || Ok(ctx.step("inner", async || Ok(1)).await?)).await?;
    Ok(outer)
}

#[test]
fn a_step_within_a_step_is_paused_before_it_can_diverge() {
    let mut engine = Engine::start(App::new().workflow(nested), "nested", &());
    let Ended::Paused(problem) = engine.finish() else { panic!("it pauses") };
    assert_eq!(problem.code, Code::NotDurable);
    assert!(problem.detail.contains("'inner'") && problem.detail.contains("'outer'"), "{}", problem.detail);
    assert!(engine.journal.is_empty());
}

#[workflow]
async fn nameless(ctx: Ctx, name: String) -> Result<()> {
    ctx.step(name, async || Ok(())).await?;
    Ok(())
}

#[test]
fn what_the_engine_refuses_to_record_fails_the_run_with_its_words() {
    for name in [String::new(), "x".repeat(300)] {
        let mut engine = Engine::start(App::new().workflow(nameless), "nameless", &name);
        let Ended::Failed(failure) = engine.run_to_end() else { panic!("it fails") };
        assert!(failure.message.contains("it takes 1 to 256"), "{}", failure.message);
        assert_eq!(engine.ran.len(), 1, "and its code does not run again and again");
        assert_eq!(engine.run.epoch.0, 1);
    }
}

#[workflow]
async fn long(ctx: Ctx, steps: u64) -> Result<u64> {
    let mut sum = 0;
    for n in 0..steps {
        sum += ctx.step("add", async || Ok(n)).await?;
    }
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    Ok(sum)
}

#[test]
fn a_journal_may_come_in_pages_of_any_size() {
    for page_size in [1, 2, 3, 7, 19, 20, 21] {
        let mut engine = Engine::start(App::new().workflow(long), "long", &20).pages_of(page_size);
        assert_eq!(engine.finish(), Ended::Completed("190".into()), "pages of {page_size}");
    }
    let make = || Engine::start(App::new().workflow(long), "long", &10).pages_of(3);
    assert_eq!(dies_everywhere(make), Ended::Completed("45".into()));
}

#[test]
fn a_run_of_a_hundred_thousand_steps_goes_to_its_end_and_replays() {
    let steps = 100_000;
    let mut engine = Engine::start(App::new().workflow(long), "long", &steps).pages_of(1_000);
    assert!(matches!(engine.finish(), Ended::Completed(_)));
    assert_eq!(engine.ran.len(), steps);
}

#[test]
fn a_run_that_was_paused_has_not_lost_what_was_recorded() {
    let mut engine = deployed_over(App::new().workflow(order_renamed), usize::MAX).dies(Death::Never);
    engine.finish();
    assert!(matches!(engine.run.phase, Phase::Paused { .. }));
    assert_eq!(engine.journal.len(), 3, "two steps and the sleep");
}
