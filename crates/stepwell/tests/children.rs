//! Workflows that invoke others, on the real run machine.

use std::cell::Cell;

use futures::future::{join, join_all};
use stepwell::{
    Code,
    prelude::*,
    testing::{Test, effect, takes},
};

#[workflow(timeout = "1h")]
async fn charge(ctx: Ctx, cents: u32) -> Result<String> {
    ctx.step_with("charge", async |info| {
        effect(&info, &cents);
        ensure!(cents != 13, terminal: "declined");
        Ok(())
    })
    .await?;
    ctx.sleep("the bank", Duration::from_secs(u64::from(cents))).await;
    Ok(format!("receipt for {cents}"))
}

#[workflow]
async fn order(ctx: Ctx, cents: u32) -> Result<String> {
    let receipt = ctx.invoke(charge, cents).await?;
    ctx.step("mail", async || Ok(())).await?;
    Ok(receipt)
}

#[workflow]
async fn orders(ctx: Ctx, all: Vec<u32>) -> Result<Vec<String>> {
    let receipts = join_all(all.into_iter().map(|cents| ctx.invoke(charge, cents))).await;
    receipts.into_iter().collect()
}

/// Says what becomes of an order that may take ten seconds.
#[workflow]
async fn hurried(ctx: Ctx, cents: u32) -> Result<String> {
    match ctx.invoke(charge, cents).timeout("10 seconds").on_close(OnClose::Abandon).await {
        Ok(receipt) => Ok(receipt),
        Err(error) if error.code() == Some(Code::ChildTimedOut) => Ok("too late".into()),
        Err(error) => {
            let child = error.child().expect("a child has failed");
            ensure!(child.run.is_some(), "it has an id");
            Ok(format!("{}: {}", child.name, error.message()))
        }
    }
}

/// Starts two children, of which it hears nothing more; one of them is cancelled with it.
#[workflow]
async fn fires(ctx: Ctx) -> Result<bool> {
    let one = ctx.invoke(charge, 1).detached();
    let other = ctx.invoke(charge, 2).detached().on_close(OnClose::Cancel);
    let (one, other) = join(one, other).await;
    let differ = one? != other?;
    ctx.sleep("a minute", "1 minute").await;
    Ok(differ)
}

#[workflow]
async fn nests(ctx: Ctx, depth: u32) -> Result<u32> {
    if depth == 0 { Ok(0) } else { Ok(ctx.invoke(nests, depth - 1).await? + 1) }
}

#[workflow]
async fn asks_another_app(ctx: Ctx) -> Result<u32> {
    ctx.invoke_named::<_, u32>("elsewhere", "question").await
}

#[workflow]
async fn waits(ctx: Ctx) -> Result<u32> {
    Ok(ctx.wait::<u32>("number").await?)
}

#[workflow]
async fn parent_of_waits(ctx: Ctx) -> Result<u32> {
    ctx.invoke(waits, ()).await
}

/// A step is under way when a child is invoked, and when it ends.
#[workflow]
async fn beside_a_step(ctx: Ctx) -> Result<(String, u32)> {
    let step = ctx.step("long", async || {
        takes(Duration::from_secs(60)).await;
        Ok(7)
    });
    let (receipt, number) = join(ctx.invoke(charge, 30), step).await;
    Ok((receipt?, number?))
}

fn app() -> App {
    App::new()
        .workflow(charge)
        .workflow(order)
        .workflow(orders)
        .workflow(hurried)
        .workflow(fires)
        .workflow(nests)
        .workflow(asks_another_app)
        .workflow(waits)
        .workflow(parent_of_waits)
        .workflow(beside_a_step)
}

#[test]
fn a_child_runs_in_its_own_journal_and_gives_its_output() {
    let outcome = Test::new(app()).run("order", &40);
    assert_eq!(outcome.output::<String>(), "receipt for 40");
    assert_eq!(outcome.ran(), ["mail"]);
    assert_eq!(outcome.slept(), Duration::from_secs(40));
    let [(name, child)] = outcome.children() else { panic!("it has one child") };
    assert_eq!((name.as_str(), child.ran()), ("charge", vec!["charge"]));
    assert_eq!(child.output::<String>(), "receipt for 40");
}

#[test]
fn children_run_side_by_side() {
    let outcome = Test::new(app()).run("orders", &[50, 20, 30]);
    assert_eq!(outcome.output::<Vec<String>>(), ["receipt for 50", "receipt for 20", "receipt for 30"]);
    assert_eq!(outcome.took(), Duration::from_secs(50), "as long as the longest");
}

#[test]
fn a_child_may_fail_or_take_too_long() {
    let run = |cents: u32| Test::new(app()).run("hurried", &cents).output::<String>();
    assert_eq!(run(5), "receipt for 5");
    assert_eq!(run(11), "too late");
    assert_eq!(run(13), "charge: step 'charge' failed: declined");
    let failed = Test::new(app()).run("order", &13);
    assert_eq!(failed.error().message, "child 'charge' failed: step 'charge' failed: declined");
    // The child's own time-out is not its parent's.
    let late = Test::new(app()).run("order", &3_601);
    assert_eq!(late.error().code, None, "{:?}", late.error());
    assert!(late.error().message.starts_with("child 'charge' failed: "), "{:?}", late.error());
}

#[test]
fn detached_children_are_started_and_not_waited_for() {
    let outcome = Test::new(app()).run("fires", &());
    assert!(outcome.output::<bool>());
    assert_eq!((outcome.children().len(), outcome.effects().len()), (2, 2));
}

#[test]
fn a_workflow_that_invokes_itself_comes_to_an_end() {
    assert_eq!(Test::new(app()).run("nests", &16).output::<u32>(), 16);
    let error = Test::new(app()).run("nests", &17);
    assert_eq!(error.error().code, Some(Code::TooManyChildren));
}

#[test]
fn children_can_be_mocked_by_their_workflow() {
    let outcome = Test::new(app())
        .mock_child("elsewhere", |question: String| Ok(question.len()))
        .run("asks_another_app", &());
    assert_eq!(outcome.output::<u32>(), 8);
    let outcome =
        Test::new(app()).mock_child("charge", |_: u32| Err::<(), _>(Error::msg("closed"))).run("order", &40);
    assert_eq!(outcome.error().message, "child 'charge' failed: closed");
    assert!(outcome.children().is_empty() && outcome.effects().is_empty());
}

#[test]
#[should_panic(expected = "replace it with `.mock_child(\"elsewhere\", …)`")]
fn a_workflow_of_another_app_has_to_be_mocked() {
    Test::new(app()).run("asks_another_app", &());
}

#[test]
fn mocks_and_signals_reach_children() {
    thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
    let mocked = Test::new(app()).mock("charge", |_| {
        CALLS.set(CALLS.get() + 1);
        Ok(())
    });
    mocked.run("order", &40);
    assert_eq!(CALLS.get(), 1);
    let outcome = Test::new(app()).signal_when_waiting("number", &9).run("parent_of_waits", &());
    assert_eq!(outcome.output::<u32>(), 9);
}

#[test]
#[should_panic(expected = "it waits for child 'waits', which does not end: it waits for a signal")]
fn a_child_that_does_not_end_is_named() {
    let _: u32 = Test::new(app()).run("parent_of_waits", &()).output();
}

#[test]
fn time_passes_for_a_step_beside_a_child() {
    let outcome = Test::new(app()).run("beside_a_step", &());
    assert_eq!(outcome.output::<(String, u32)>(), ("receipt for 30".into(), 7));
    assert_eq!(outcome.took(), Duration::from_secs(60));
}

#[test]
fn a_crash_at_any_commit_loses_no_child_and_invokes_none_twice() {
    let outcome = Test::new(app()).crash_everywhere("order", &40);
    assert_eq!(outcome.effects().len(), 1);
    let outcome = Test::new(app()).crash_everywhere("orders", &[50, 20, 30]);
    assert_eq!(outcome.effects().len(), 3);
    for (workflow, cents) in [("order", 13), ("hurried", 11), ("hurried", 13)] {
        Test::new(app()).crash_everywhere(workflow, &cents);
    }
    Test::new(app()).crash_everywhere("fires", &());
    Test::new(app()).crash_everywhere("beside_a_step", &());
    Test::new(app()).crash_everywhere("nests", &3);
}
