//! What a step or a workflow promises beside its result: to run at most once, to end in time, to go one way.

use std::cell::Cell;

use stepwell::{
    Timestamp,
    prelude::*,
    testing::engine::{Death, Ended, Engine},
};
use stepwell_protocol::{
    Code, Event,
    program::{Progress, Then},
    stream::{Chunk, Item, LogLine},
};

use crate::world::{dies_everywhere, note, take_notes, takes};

#[workflow]
async fn pay_once(ctx: Ctx) -> Result<String> {
    ctx.step("before", async || Ok(())).await?;
    let paid = ctx.step("pay", async || {
        note("paid");
        takes(3).await;
        Ok("paid".to_owned())
    });
    let result = match paid.at_most_once().await {
        Ok(text) => text,
        Err(error) => {
            assert_eq!(error.code(), Some(Code::StepInterrupted));
            "interrupted".into()
        }
    };
    ctx.step("after", async || Ok(())).await?;
    Ok(result)
}

#[test]
fn a_step_that_must_not_run_twice_never_does_whatever_dies() {
    let make = || Engine::start(App::new().workflow(pay_once), "pay_once", &());
    let mut calm = make();
    assert_eq!(calm.finish(), Ended::Completed("\"paid\"".into()));
    assert_eq!(take_notes().len(), 1);
    // The result of `before`, that `pay` begins, its result, the result of `after` and the end.
    assert_eq!(calm.commits.len(), 4);
    let mut interrupted = Vec::new();
    for number in 1..=calm.commits.len() {
        for death in [Death::Before(number), Death::After(number)] {
            let ended = make().dies(death).finish();
            let paid = take_notes().len();
            assert!(paid <= 1, "{death:?}");
            if ended == Ended::Completed("\"interrupted\"".into()) {
                interrupted.push(death);
            } else {
                assert_eq!((ended, paid), (Ended::Completed("\"paid\"".into()), 1), "{death:?}");
            }
        }
    }
    assert_eq!(interrupted, [Death::After(2), Death::Before(3)], "only between its beginning and its result");
}

#[workflow]
async fn fails_once(ctx: Ctx) -> Result<()> {
    let step = ctx.step("pay", async || {
        note("paid");
        Err::<(), _>(Error::msg("no answer"))
    });
    step.attempts(5).at_most_once().await?;
    Ok(())
}

#[test]
fn a_step_that_must_not_run_twice_has_one_attempt() {
    let mut engine = Engine::start(App::new().workflow(fails_once), "fails_once", &());
    let Ended::Failed(failure) = engine.finish() else { panic!("it fails") };
    assert!(failure.message.contains("no answer"), "{}", failure.message);
    assert_eq!(take_notes(), ["paid"]);
}

#[workflow]
async fn drops_it(ctx: Ctx) -> Result<String> {
    let pay = ctx.step("pay", async || {
        takes(100).await;
        Ok(())
    });
    let first =
        futures::future::select(pay.at_most_once(), ctx.sleep("sleep", Duration::from_millis(50))).await;
    drop(first);
    ctx.step("after", async || Ok(())).await?;
    Ok("went on".into())
}

#[test]
fn a_step_that_must_not_run_twice_may_lose_a_race() {
    let ended = dies_everywhere(|| Engine::start(App::new().workflow(drops_it), "drops_it", &()));
    assert_eq!(ended, Ended::Completed("\"went on\"".into()));
}

/// Says when it is dropped.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        note("dropped");
    }
}

#[workflow]
async fn slow_at_first(ctx: Ctx, attempts: u32) -> Result<u32> {
    let retry = Retry { attempts, initial_ms: 1_000, factor: 1.0, max_ms: 1_000, jitter: 0.0 };
    let step = ctx.step_with("slow", async |info| {
        let guard = Guard;
        takes(if info.attempt < 3 { 100_000 } else { 1 }).await;
        std::mem::forget(guard);
        Ok(info.attempt)
    });
    step.retry(retry).timeout(Duration::from_millis(500)).await
}

#[test]
fn an_attempt_that_takes_too_long_is_dropped_and_tried_again() {
    let make = || Engine::start(App::new().workflow(slow_at_first), "slow_at_first", &3);
    assert_eq!(dies_everywhere(make), Ended::Completed("3".into()));
    take_notes();
    let mut engine = make();
    let start = engine.now;
    engine.finish();
    assert_eq!(take_notes(), ["dropped", "dropped"]);
    assert_eq!(engine.now.as_millis() - start.as_millis(), 500 + 1_000 + 500 + 1_000 + 10);
    let failures: Vec<_> = engine
        .journal
        .iter()
        .filter_map(|record| {
            if let Event::StepRetrying { failure, .. } = &record.event { Some(failure.code) } else { None }
        })
        .collect();
    assert_eq!(failures, [Some(Code::StepTimedOut), Some(Code::StepTimedOut)]);
}

#[test]
fn a_step_whose_last_attempt_takes_too_long_fails_and_says_so() {
    let mut engine = Engine::start(App::new().workflow(slow_at_first), "slow_at_first", &2);
    let Ended::Failed(failure) = engine.finish() else { panic!("it fails") };
    assert_eq!(failure.code, Some(Code::StepTimedOut));
    assert!(failure.message.contains("500 ms"), "{}", failure.message);
    take_notes();
}

#[workflow]
async fn in_time(ctx: Ctx) -> Result<u32> {
    let step = ctx.step("quick", async || {
        takes(50).await;
        Ok(1)
    });
    step.timeout(Duration::from_millis(500)).await
}

#[test]
fn a_step_that_ends_in_the_very_moment_of_its_limit_has_ended() {
    let ended = dies_everywhere(|| Engine::start(App::new().workflow(in_time), "in_time", &()));
    assert_eq!(ended, Ended::Completed("1".into()));
}

#[workflow]
async fn optional(ctx: Ctx) -> Result<(Option<u32>, Option<u32>)> {
    let bad = ctx.step("bad", async || Err::<u32, _>(Terminal::new("no").into())).or_none().await;
    let good = ctx.step("good", async || Ok(1)).or_none().await;
    Ok((bad, good))
}

#[test]
fn a_workflow_may_go_on_without_a_step() {
    let ended = dies_everywhere(|| Engine::start(App::new().workflow(optional), "optional", &()));
    assert_eq!(ended, Ended::Completed("[null,1]".into()));
}

#[workflow]
async fn until(ctx: Ctx, at_ms: u64) -> Result<u64> {
    ctx.sleep_until("sleep", Timestamp::from_millis(at_ms)).await;
    Ok(ctx.now().as_millis())
}

#[test]
fn a_sleep_until_a_time_ends_then_whatever_dies() {
    let at = 1_700_000_000_000 + 86_400_000_u64;
    let make = || Engine::start(App::new().workflow(until), "until", &at);
    assert_eq!(dies_everywhere(make), Ended::Completed(at.to_string()));
}

#[test]
fn a_sleep_until_a_time_that_is_over_ends_at_once() {
    for at in [0, 1_600_000_000_000, 1_700_000_000_000_u64] {
        let mut engine = Engine::start(App::new().workflow(until), "until", &at);
        let start = engine.now;
        assert_eq!(engine.finish(), Ended::Completed(start.plus_millis(1).as_millis().to_string()));
    }
}

#[workflow(timeout = "1h")]
async fn limited(ctx: Ctx, hours: u64) -> Result<String> {
    ctx.step("begin", async || Ok(())).await?;
    ctx.sleep("sleep", Duration::from_secs(hours * 1_800)).await;
    Ok("in time".into())
}

#[test]
fn a_workflow_that_says_how_long_it_may_take_is_failed_after_that() {
    let make = |hours: u64| Engine::start(App::new().workflow(limited), "limited", &hours);
    assert_eq!(dies_everywhere(|| make(1)), Ended::Completed("\"in time\"".into()));
    let mut engine = make(3);
    let start = engine.now;
    let Ended::Failed(failure) = engine.finish() else { panic!("it fails") };
    assert_eq!(failure.code, Some(Code::RunTimedOut));
    assert_eq!(engine.now, start.plus_millis(3_600_000));
}

#[workflow(timeout = "100ms")]
async fn too_busy(ctx: Ctx) -> Result<()> {
    ctx.step("long", async || {
        takes(1_000).await;
        Ok(())
    })
    .await?;
    Ok(())
}

#[test]
fn a_run_is_failed_in_time_while_a_step_is_under_way() {
    let mut engine = Engine::start(App::new().workflow(too_busy), "too_busy", &());
    let start = engine.now;
    let Ended::Failed(failure) = engine.finish() else { panic!("it fails") };
    assert_eq!(failure.code, Some(Code::RunTimedOut));
    assert_eq!(engine.now, start.plus_millis(100));
}

thread_local! {
    static DEPLOYED: Cell<bool> = const { Cell::new(false) };
}

/// Old and new code of one workflow: which one is deployed changes under the run.
#[workflow]
async fn changed(ctx: Ctx) -> Result<String> {
    let mut ways = String::new();
    ctx.step("first", async || Ok(())).await?;
    for _ in 0..2 {
        let new_way = DEPLOYED.get() && ctx.patched("by mail");
        if new_way {
            ctx.step("mail", async || Ok(())).await?;
        } else {
            ctx.step("post", async || Ok(())).await?;
        }
        ways.push(if new_way { 'n' } else { 'o' });
        ctx.sleep("sleep", Duration::from_secs(60)).await;
    }
    Ok(ways)
}

fn changed_run() -> Engine {
    Engine::start(App::new().workflow(changed), "changed", &())
}

#[test]
fn a_run_that_began_with_a_patch_goes_the_new_way_whatever_dies() {
    DEPLOYED.set(true);
    assert_eq!(dies_everywhere(changed_run), Ended::Completed("\"nn\"".into()));
    let mut engine = changed_run();
    engine.finish();
    assert_eq!(engine.run.patches, ["by mail"], "it is on record once");
}

#[test]
fn a_run_that_was_past_a_patch_goes_the_old_way_to_its_end_whatever_dies() {
    let mut calm = changed_run();
    DEPLOYED.set(false);
    calm.sleep_first();
    // The patch is deployed while the run sleeps past the place where it is asked for.
    let make = || {
        DEPLOYED.set(false);
        let mut engine = changed_run();
        engine.sleep_first();
        DEPLOYED.set(true);
        engine
    };
    for number in 1..12 {
        for death in [Death::Before(number), Death::After(number), Death::AfterEachRecord] {
            let mut engine = make().dies(death);
            assert_eq!(engine.finish(), Ended::Completed("\"oo\"".into()), "{death:?}");
            assert!(engine.run.patches.is_empty());
        }
    }
}

#[workflow]
async fn patched_at_once(ctx: Ctx) -> Result<bool> {
    let new_way = ctx.patched("by mail");
    ctx.step(if new_way { "mail" } else { "post" }, async || Ok(())).await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    Ok(new_way)
}

#[test]
fn a_run_that_got_a_signal_before_its_first_activation_is_still_a_new_one() {
    for death in [Death::Never, Death::After(1), Death::After(2), Death::After(3), Death::AfterEachRecord] {
        let engine = Engine::start(App::new().workflow(patched_at_once), "patched_at_once", &());
        let mut engine = engine.signal(0, "hello", &()).dies(death);
        assert_eq!(engine.finish(), Ended::Completed("true".into()), "{death:?}");
    }
}

#[workflow]
async fn loses_its_limit(ctx: Ctx) -> Result<String> {
    if DEPLOYED.get() && ctx.patched("no limit") {
        ctx.step("alone", async || {
            takes(200).await;
            Ok(())
        })
        .await?;
        ctx.sleep("sleep", Duration::from_millis(100)).await;
        return Ok("new".into());
    }
    let work = ctx.step("long", async || {
        // The patch is deployed while this is under way.
        DEPLOYED.set(true);
        takes(100).await;
        Ok(())
    });
    futures::future::select(work, ctx.sleep("sleep", Duration::from_millis(500))).await;
    Ok("old".into())
}

#[test]
fn what_the_old_way_was_waiting_for_does_not_disturb_the_new_one() {
    DEPLOYED.set(false);
    let engine = Engine::start(App::new().workflow(loses_its_limit), "loses_its_limit", &());
    let mut engine = engine.dies(Death::After(1));
    let start = engine.now;
    assert_eq!(engine.finish(), Ended::Completed("\"new\"".into()));
    assert_eq!(engine.now, start.plus_millis(2_100), "its sleep is its own");
}

#[workflow]
async fn tells(ctx: Ctx) -> Result<()> {
    for percent in [10.0, 60.0, f64::NAN, 900.0] {
        ctx.progress(percent, format!("at {percent}"));
        ctx.step("part", async || Ok(())).await?;
        ctx.sleep("sleep", Duration::from_secs(1)).await;
    }
    Ok(())
}

#[test]
fn progress_is_told_as_it_is_made_and_not_again_by_a_replay() {
    let make = || Engine::start(App::new().workflow(tells), "tells", &());
    let mut engine = make();
    engine.finish();
    let told: Vec<_> = engine.commits.iter().filter_map(|commit| commit.progress.as_ref()).collect();
    let percents: Vec<_> = told.iter().map(|progress| progress.percent).collect();
    assert_eq!(percents, [10.0, 60.0, 0.0, 100.0]);
    let said = |progress: &Progress| (progress.percent, progress.message.clone());
    assert_eq!(engine.run.progress.as_ref().map(said), told.last().map(|told| said(told)));
    dies_everywhere(make);
}

#[workflow]
async fn long_words(ctx: Ctx) -> Result<()> {
    ctx.progress(1.0, "ü".repeat(100_000));
    ctx.step("part", async || Ok(())).await?;
    Ok(())
}

#[test]
fn a_message_about_progress_is_cut_rather_than_refused() {
    let mut engine = Engine::start(App::new().workflow(long_words), "long_words", &());
    assert_eq!(engine.finish(), Ended::Completed("null".into()));
}

#[workflow]
async fn only_progress(ctx: Ctx) -> Result<()> {
    ctx.progress(50.0, "");
    std::future::ready(()).await;
    Ok(())
}

#[test]
fn progress_travels_with_the_end_of_a_run() {
    let mut engine = Engine::start(App::new().workflow(only_progress), "only_progress", &());
    engine.finish();
    assert_eq!(engine.commits.len(), 1);
    assert!(matches!(engine.commits[0].then, Then::Complete { .. }));
    assert_eq!(engine.run.progress.map(|progress| progress.percent), Some(50.0));
}

#[workflow]
async fn is_found(ctx: Ctx) -> Result<()> {
    ctx.set_attribute("customer", "acme");
    for stage in 0..3 {
        ctx.set_attribute("stage", stage);
        ctx.set_attribute("note", "ü".repeat(1_000));
        ctx.step("part", async || Ok(())).await?;
        ctx.sleep("sleep", Duration::from_secs(1)).await;
    }
    Ok(())
}

#[test]
fn attributes_are_told_when_they_change_and_not_again_by_a_replay() {
    let make = || Engine::start(App::new().workflow(is_found), "is_found", &());
    let mut engine = make();
    engine.finish();
    let told: Vec<_> =
        engine.commits.iter().map(|commit| commit.attributes.len()).filter(|n| *n > 0).collect();
    assert_eq!(told, [3, 1, 1]);
    assert_eq!(engine.run.attributes["stage"], "2");
    assert_eq!(engine.run.attributes["note"].len(), 256);
    dies_everywhere(make);
}

#[workflow]
async fn has_a_bad_attribute(ctx: Ctx) -> Result<()> {
    ctx.set_attribute("a:b", true);
    std::future::ready(()).await;
    Ok(())
}

#[test]
fn an_attribute_without_a_good_name_fails_the_run_and_says_so() {
    let mut engine = Engine::start(App::new().workflow(has_a_bad_attribute), "has_a_bad_attribute", &());
    let Ended::Failed(failure) = engine.run_to_end() else { panic!("it did not fail") };
    assert!(failure.message.contains("name of an attribute"), "{}", failure.message);
}

/// Talks outside and inside of steps.
#[workflow]
async fn talks(ctx: Ctx) -> Result<()> {
    for n in 0..3 {
        ctx.log().info(format!("before {n}"));
        ctx.step("say", async || {
            ctx.publish("words", &n);
            Ok(())
        })
        .await?;
        ctx.sleep("sleep", Duration::from_secs(1)).await;
    }
    ctx.log().error("over");
    Ok(())
}

#[test]
fn what_is_published_is_not_said_again_by_a_replay() {
    let make = || Engine::start(App::new().workflow(talks), "talks", &());
    let mut engine = make();
    engine.finish();
    let words: Vec<_> = engine
        .published
        .iter()
        .map(|item| match item {
            Item::Log(LogLine { message, op, .. }) => format!("{message}, {op:?}"),
            Item::Chunk(Chunk { name, value, op }) => {
                format!(
                    "{name} {}, {}",
                    value.text(),
                    op.as_ref().map(ToString::to_string).unwrap_or_default()
                )
            }
            Item::LeftOut { .. } => unreachable!("it is not much"),
        })
        .collect();
    let wanted = [
        "before 0, None",
        "words 0, step:0:say",
        "before 1, None",
        "words 1, step:1:say",
        "before 2, None",
        "words 2, step:2:say",
        "over, None",
    ];
    assert_eq!(words, wanted);
    dies_everywhere(make);
}
