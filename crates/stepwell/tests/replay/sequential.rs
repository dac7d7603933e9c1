//! One thing after another: steps, retries, sleeps, and what is the same on every replay.

use stepwell::{
    prelude::*,
    testing::engine::{Death, Ended, Engine},
};
use stepwell_protocol::{Event, program::Then};

use crate::world::{dies_everywhere, note, take_notes, takes};

#[workflow]
async fn three_steps(ctx: Ctx, start: u32) -> Result<u32> {
    let one = ctx.step("one", async || Ok(start + 1)).await?;
    let two = ctx
        .step("two", async || {
            takes(2).await;
            Ok(one * 2)
        })
        .await?;
    let three = ctx.step("three", async || Ok(two + 3)).await?;
    Ok(three)
}

#[test]
fn steps_give_their_results_to_each_other_whatever_dies() {
    let make = || Engine::start(App::new().workflow(three_steps), "three_steps", &4);
    assert_eq!(dies_everywhere(make), Ended::Completed("13".into()));
}

#[test]
fn each_step_is_one_commit_the_last_one_ends_the_run_and_all_run_once() {
    let mut engine = Engine::start(App::new().workflow(three_steps), "three_steps", &4);
    engine.finish();
    assert_eq!(engine.ran, ["step:0:one", "step:0:two", "step:0:three"]);
    assert_eq!(engine.commits.len(), 3);
    assert_eq!(engine.run.epoch.0, 1, "one activation is enough");
}

#[test]
fn a_step_whose_commit_was_lost_runs_again_and_others_do_not() {
    let mut engine =
        Engine::start(App::new().workflow(three_steps), "three_steps", &4).dies(Death::Before(2));
    engine.finish();
    assert_eq!(engine.ran, ["step:0:one", "step:0:two", "step:0:two", "step:0:three"]);
}

#[workflow]
async fn count(ctx: Ctx, rounds: u32) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for _ in 0..rounds {
        keys.push(ctx.step_with("round", async |info| Ok(info.idempotency_key)).await?);
    }
    Ok(keys)
}

#[test]
fn steps_of_one_name_are_told_apart_by_their_occurrence() {
    let make = || Engine::start(App::new().workflow(count), "count", &4);
    let Ended::Completed(keys) = dies_everywhere(make) else { panic!("it completes") };
    let keys: Vec<String> = serde_json::from_str(&keys).expect("it returns strings");
    let occurrences: Vec<_> = keys.iter().filter_map(|key| key.split_once('/')).map(|(_, op)| op).collect();
    assert_eq!(occurrences, ["step:0:round", "step:1:round", "step:2:round", "step:3:round"]);
}

#[workflow]
async fn stubborn(ctx: Ctx, succeeds_at: u32) -> Result<u32> {
    let retry = Retry { attempts: 4, initial_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.0 };
    let step = ctx.step_with("try", async |info| {
        if info.attempt < succeeds_at {
            return Err(Error::msg(format!("attempt {}", info.attempt)));
        }
        Ok(info.attempt)
    });
    step.retry(retry).await
}

#[test]
fn a_step_that_fails_is_tried_again_until_it_succeeds() {
    let make = || Engine::start(App::new().workflow(stubborn), "stubborn", &3);
    assert_eq!(dies_everywhere(make), Ended::Completed("3".into()));
}

#[test]
fn retries_wait_as_long_as_the_policy_says() {
    let mut engine = Engine::start(App::new().workflow(stubborn), "stubborn", &3);
    let start = engine.now;
    engine.finish();
    assert_eq!(engine.now.as_millis() - start.as_millis(), 1_000 + 2_000);
    assert_eq!(engine.ran.len(), 3);
}

#[test]
fn a_step_that_never_succeeds_fails_after_its_last_attempt() {
    let make = || Engine::start(App::new().workflow(stubborn), "stubborn", &99);
    let Ended::Failed(failure) = dies_everywhere(make) else { panic!("it fails") };
    assert_eq!(failure.message, "step 'try' failed: attempt 4");
    let mut engine = make();
    engine.finish();
    assert_eq!(engine.ran.len(), 4);
}

#[workflow]
async fn hopeless(ctx: Ctx) -> Result<()> {
    ctx.step("card", async || Err::<(), _>(Terminal::new("the card was declined").into())).await?;
    Ok(())
}

#[test]
fn a_terminal_error_is_not_tried_again() {
    let make = || Engine::start(App::new().workflow(hopeless), "hopeless", &());
    let Ended::Failed(failure) = dies_everywhere(make) else { panic!("it fails") };
    assert_eq!(failure.message, "step 'card' failed: the card was declined");
    let mut engine = make();
    engine.finish();
    assert_eq!(engine.ran.len(), 1);
}

#[workflow]
async fn nap(ctx: Ctx, ms: u64) -> Result<u64> {
    let before = ctx.now();
    ctx.sleep("sleep", Duration::from_millis(ms)).await;
    Ok(ctx.now().as_millis() - before.as_millis())
}

#[test]
fn a_sleep_takes_as_long_as_it_says_whatever_dies() {
    let make = || Engine::start(App::new().workflow(nap), "nap", &86_400_000_u64);
    assert_eq!(dies_everywhere(make), Ended::Completed("86400000".into()));
    let mut engine = make();
    engine.finish();
    assert_eq!(engine.run.epoch.0, 2, "nothing is awake meanwhile");
}

#[workflow]
async fn dice(ctx: Ctx) -> Result<(u64, String, u64, u64)> {
    let first = ctx.random();
    // What a step's code draws is recorded with its result; the workflow's own numbers do not depend on it.
    let _ = ctx.step("draw", async || Ok(ctx.random())).await?;
    let uuid = ctx.uuid().to_string();
    let now = ctx.now().as_millis();
    note(format!("{first} {uuid} {now}"));
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    Ok((first, uuid, ctx.random(), now))
}

#[test]
fn time_and_chance_are_the_same_on_every_replay() {
    let make = || Engine::start(App::new().workflow(dice), "dice", &());
    let mut calm = make();
    calm.finish();
    for death in (0..=calm.commits.len()).map(Death::After) {
        make().dies(death).finish();
        let mut notes = take_notes();
        assert!(notes.len() > 1, "it is replayed at least once");
        notes.dedup();
        assert_eq!(notes.len(), 1, "{notes:?}");
    }
}

#[workflow]
async fn draws_in_steps(ctx: Ctx) -> Result<bool> {
    let a = ctx.step("a", async || Ok(ctx.uuid().to_string())).await?;
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    let b = ctx.step("b", async || Ok(ctx.uuid().to_string())).await?;
    Ok(a != b && a != ctx.uuid().to_string())
}

#[test]
fn two_steps_never_draw_the_same_number() {
    // The sleep makes two activations of it: each begins to count anew.
    let make = || Engine::start(App::new().workflow(draws_in_steps), "draws_in_steps", &());
    assert_eq!(dies_everywhere(make), Ended::Completed("true".into()));
}

#[workflow]
async fn gives_up(ctx: Ctx, why: String) -> Result<()> {
    ctx.step("look", async || Ok(1)).await?;
    Err(Error::msg(why))
}

#[test]
fn the_error_of_a_workflow_fails_its_run() {
    let make = || Engine::start(App::new().workflow(gives_up), "gives_up", &"no stock");
    let Ended::Failed(failure) = dies_everywhere(make) else { panic!("it fails") };
    assert_eq!(failure.message, "no stock");
}

#[test]
fn an_input_that_does_not_fit_fails_the_run() {
    let mut engine = Engine::start(App::new().workflow(gives_up), "gives_up", &17);
    let Ended::Failed(failure) = engine.finish() else { panic!("it fails") };
    assert!(failure.message.starts_with("the input does not fit workflow 'gives_up'"), "{failure:?}");
}

#[workflow]
async fn large(ctx: Ctx, bytes: usize) -> Result<String> {
    let step = ctx.step("blob", async || Ok("x".repeat(bytes)));
    match step.await {
        Ok(_) => Ok("recorded".into()),
        Err(error) => Ok(error.message().to_owned()),
    }
}

#[test]
fn a_result_beyond_the_limit_fails_its_step_at_once() {
    let most = stepwell_protocol::program::PAYLOAD_BYTES_MAX - 2;
    let mut fits = Engine::start(App::new().workflow(large), "large", &most);
    assert_eq!(fits.finish(), Ended::Completed("\"recorded\"".into()));
    let mut engine = Engine::start(App::new().workflow(large), "large", &(most + 1));
    let Ended::Completed(message) = engine.finish() else { panic!("the workflow handles it") };
    assert!(message.contains("the most is"), "{message}");
    assert_eq!(engine.ran.len(), 1);
    assert!(matches!(&engine.journal[..], [record] if matches!(record.event, Event::StepFinished { .. })));
}

#[test]
fn nothing_is_committed_twice() {
    let mut engine = Engine::start(App::new().workflow(stubborn), "stubborn", &3);
    engine.finish();
    let reports = engine.commits.iter().map(|commit| commit.commands.len()).sum::<usize>();
    assert_eq!(reports, 3);
    let last = engine.commits.last().expect("it has committed");
    assert!(matches!(last.then, Then::Complete { .. }));
}
