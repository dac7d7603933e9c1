//! Waits for signals: which one gets which, and what happens when none comes.

use std::pin::pin;

use futures::future::{Either, select};
use stepwell::{
    prelude::*,
    testing::engine::{Ended, Engine},
};

use crate::world::{dies_everywhere, takes};

#[workflow]
async fn approval(ctx: Ctx, timeout_ms: Option<u64>) -> Result<String> {
    let wait = ctx.wait::<String>("approve");
    let wait = match timeout_ms {
        Some(ms) => wait.timeout(Duration::from_millis(ms)),
        None => wait,
    };
    match wait.await {
        Ok(who) => Ok(format!("approved by {who}")),
        Err(WaitError::TimedOut { .. }) => Ok("nobody".into()),
        Err(error) => Err(error.into()),
    }
}

fn approval_of(timeout_ms: Option<u64>) -> Engine {
    Engine::start(App::new().workflow(approval), "approval", &timeout_ms)
}

#[test]
fn a_wait_ends_with_its_signal() {
    let ended = dies_everywhere(|| approval_of(None).signal(5_000, "approve", &"Ada"));
    assert_eq!(ended, Ended::Completed("\"approved by Ada\"".into()));
}

#[test]
fn a_wait_ends_with_its_signal_before_its_time_is_over() {
    let ended = dies_everywhere(|| approval_of(Some(9_000)).signal(5_000, "approve", &"Ada"));
    assert_eq!(ended, Ended::Completed("\"approved by Ada\"".into()));
}

#[test]
fn a_wait_whose_time_is_over_ignores_a_later_signal() {
    let ended = dies_everywhere(|| approval_of(Some(3_000)).signal(5_000, "approve", &"Ada"));
    assert_eq!(ended, Ended::Completed("\"nobody\"".into()));
}

#[test]
fn a_signal_of_another_name_does_not_end_a_wait() {
    let ended = dies_everywhere(|| approval_of(Some(3_000)).signal(1_000, "reject", &"Ada"));
    assert_eq!(ended, Ended::Completed("\"nobody\"".into()));
}

#[test]
fn a_signal_of_another_type_that_came_before_the_wait_is_an_error_of_the_wait() {
    let Ended::Failed(failure) = dies_everywhere(|| approval_of(None).signal(0, "approve", &17)) else {
        panic!("it fails");
    };
    assert!(failure.message.contains("something else than expected"), "{failure:?}");
}

#[workflow]
async fn late_wait(ctx: Ctx) -> Result<String> {
    ctx.step("slow", async || {
        takes(50).await;
        Ok(())
    })
    .await?;
    Ok(ctx.wait::<String>("early").await?)
}

#[test]
fn a_signal_that_came_before_anyone_waited_was_kept() {
    for at in [0, 100] {
        let ended = dies_everywhere(|| {
            Engine::start(App::new().workflow(late_wait), "late_wait", &()).signal(at, "early", &"bird")
        });
        assert_eq!(ended, Ended::Completed("\"bird\"".into()));
    }
}

#[workflow]
async fn two_waits(ctx: Ctx) -> Result<(u32, u32)> {
    let (first, second) = futures::join!(ctx.wait::<u32>("n"), ctx.wait::<u32>("n"));
    Ok((first?, second?))
}

#[test]
fn the_oldest_wait_gets_the_first_signal() {
    let ended = dies_everywhere(|| {
        Engine::start(App::new().workflow(two_waits), "two_waits", &())
            .signal(1_000, "n", &1)
            .signal(2_000, "n", &2)
    });
    assert_eq!(ended, Ended::Completed("[1,2]".into()));
}

#[test]
fn two_signals_in_one_moment_go_to_two_waits() {
    let ended = dies_everywhere(|| {
        Engine::start(App::new().workflow(two_waits), "two_waits", &())
            .signal(1_000, "n", &1)
            .signal(1_000, "n", &2)
    });
    assert_eq!(ended, Ended::Completed("[1,2]".into()));
}

#[workflow]
async fn kept_in_scope(ctx: Ctx) -> Result<(u32, u32)> {
    // `first` lives on after it was answered, as a pinned local does.
    let mut first = pin!(ctx.wait::<u32>("n"));
    let one = match select(first.as_mut(), pin!(ctx.sleep("sleep", Duration::from_secs(60)))).await {
        Either::Left((value, _)) => value?,
        Either::Right(_) => 0,
    };
    let two = ctx.wait::<u32>("n").await?;
    Ok((one, two))
}

#[test]
fn a_wait_that_was_answered_takes_no_second_signal() {
    let ended = dies_everywhere(|| {
        Engine::start(App::new().workflow(kept_in_scope), "kept_in_scope", &())
            .signal(1_000, "n", &1)
            .signal(2_000, "n", &2)
    });
    assert_eq!(ended, Ended::Completed("[1,2]".into()));
}

#[workflow]
async fn dropped_wait(ctx: Ctx) -> Result<u32> {
    let mut first = Box::pin(ctx.wait::<u32>("a"));
    if let Either::Left(_) = select(&mut first, pin!(ctx.sleep("sleep", Duration::from_secs(1)))).await {
        return Ok(0);
    }
    // The signal comes while `first` is there, but nobody polls it.
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    drop(first);
    Ok(ctx.wait::<u32>("a").await?)
}

#[test]
fn a_signal_for_a_wait_that_was_dropped_goes_to_the_next_one() {
    let ended = dies_everywhere(|| {
        Engine::start(App::new().workflow(dropped_wait), "dropped_wait", &()).signal(1_500, "a", &7)
    });
    assert_eq!(ended, Ended::Completed("7".into()));
}

#[workflow]
async fn interruptible(ctx: Ctx, ticks: u64) -> Result<String> {
    let work = ctx.step("long", async || {
        takes(ticks).await;
        Ok(())
    });
    match select(work, ctx.wait::<String>("stop")).await {
        Either::Left(_) => Ok("done".into()),
        Either::Right((who, _)) => Ok(format!("stopped by {}", who?)),
    }
}

#[test]
fn a_signal_interrupts_a_long_step() {
    let mut engine = Engine::start(App::new().workflow(interruptible), "interruptible", &1_000)
        .signal(500, "stop", &"Ada");
    assert_eq!(engine.finish(), Ended::Completed("\"stopped by Ada\"".into()));
    assert_eq!(engine.run.epoch.0, 1, "within one activation");
}

#[test]
fn a_step_that_is_done_before_the_signal_wins() {
    let mut engine =
        Engine::start(App::new().workflow(interruptible), "interruptible", &10).signal(500, "stop", &"Ada");
    assert_eq!(engine.finish(), Ended::Completed("\"done\"".into()));
}
