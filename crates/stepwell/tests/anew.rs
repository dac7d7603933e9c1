//! Workflows that continue as new, on the test kit.

use futures::future::{Either, select};
use std::{cell::RefCell, pin::pin};
use stepwell::{
    prelude::*,
    testing::{
        Test, effect,
        engine::{Death, Ended, Engine},
        replay,
    },
};
use stepwell_protocol::{
    Code, Event, Payload,
    export::{Export, FORMAT},
    rest::{RunView, Status},
};

/// Counts to ten, three at a time.
#[workflow]
async fn counts(ctx: Ctx, from: u32) -> Result<(u32, u32)> {
    let mut at = from;
    for _ in 0..3 {
        at = ctx
            .step_with("count", async |info| {
                effect(&info, &(at + 1));
                Ok(at + 1)
            })
            .await?;
        if at == 10 {
            return Ok((at, ctx.life()));
        }
        ctx.sleep("between", "1 minute").await;
    }
    ctx.continue_as_new(&at).await
}

#[test]
fn a_workflow_goes_on_in_a_new_life_with_its_new_input() {
    let outcome = Test::new(App::new().workflow(counts)).run("counts", &0);
    assert_eq!(outcome.output::<(u32, u32)>(), (10, 4));
    assert_eq!((outcome.lives(), outcome.inputs::<u32>()), (4, vec![0, 3, 6, 9]));
    assert_eq!(outcome.ran().len(), 10);
    assert_eq!(outcome.effects().len(), 10, "the same step of another life has another key");
    assert_eq!(outcome.slept(), Duration::from_mins(9));
}

#[test]
fn a_crash_at_any_commit_changes_nothing() {
    let outcome = Test::new(App::new().workflow(counts)).crash_everywhere("counts", &0);
    assert_eq!(outcome.lives(), 4);
}

/// Takes one signal in each life, and passes on what it has.
#[workflow]
async fn takes_one(ctx: Ctx, mut taken: Vec<u32>) -> Result<Vec<u32>> {
    taken.push(ctx.wait("item").await?);
    if taken.len() == 5 {
        return Ok(taken);
    }
    ctx.continue_as_new(&taken).await
}

#[test]
fn signals_are_neither_lost_nor_doubled_between_lives() {
    let test = || {
        let test = Test::new(App::new().workflow(takes_one));
        // Four at once, and one that comes later.
        let test = (1..=4).fold(test, |test, n| test.signal("item", &n));
        test.signal_after(Duration::from_secs(9), "item", &5)
    };
    let nothing: &[u32] = &[];
    let outcome = test().run("takes_one", nothing);
    assert_eq!(outcome.output::<Vec<u32>>(), [1, 2, 3, 4, 5]);
    assert_eq!(outcome.lives(), 5);
    test().crash_everywhere("takes_one", nothing);
}

/// A wait that has its signal and is dropped without being looked at has not taken it.
#[workflow]
async fn drops_a_wait(ctx: Ctx, again: bool) -> Result<u32> {
    if again {
        return Ok(ctx.wait("item").await?);
    }
    let step = pin!(ctx.step("first", async || Ok(())));
    // Both are ready in one poll at the latest when the signal is delivered behind the step.
    match select(step, ctx.wait::<u32>("other")).await {
        Either::Left((done, _)) => done?,
        Either::Right(_) => bail!("nobody sends it"),
    }
    let _unread = ctx.wait::<u32>("item");
    ctx.continue_as_new(&true).await
}

#[test]
fn a_signal_that_came_while_nobody_waited_is_there_in_the_next_life() {
    let test = || Test::new(App::new().workflow(drops_a_wait)).signal("item", &7);
    assert_eq!(test().run("drops_a_wait", &false).output::<u32>(), 7);
    test().crash_everywhere("drops_a_wait", &false);
}

/// A signal comes while the commit that begins anew is under way.
#[test]
fn a_signal_that_comes_with_the_change_of_lives_is_kept() {
    let mut engine = Engine::start(App::new().workflow(takes_one), "takes_one", &[1, 2, 3]);
    for n in 4..=5 {
        engine = engine.signal(0, "item", &n);
    }
    assert_eq!(engine.finish(), Ended::Completed("[1,2,3,4,5]".into()));
    assert_eq!(engine.inputs.len(), 2);
}

thread_local! {
    static SEEN: RefCell<Vec<(u64, u64, u64)>> = const { RefCell::new(Vec::new()) };
}

#[workflow]
async fn draws(ctx: Ctx, life: u32) -> Result<()> {
    SEEN.with_borrow_mut(|seen| {
        seen.push((ctx.random(), ctx.now().as_millis(), ctx.started_at().as_millis()));
    });
    ctx.sleep("an hour", "1 hour").await;
    if life == 3 {
        return Ok(());
    }
    ctx.continue_as_new(&(life + 1)).await
}

#[test]
fn a_life_has_its_own_chance_and_its_own_time_and_the_runs_start() {
    let mut engine = Engine::start(App::new().workflow(draws), "draws", &1);
    assert_eq!(engine.run_to_end(), Ended::Completed("null".into()));
    let mut seen = SEEN.take();
    // Each life was replayed once after its sleep, and drew the same.
    seen.dedup();
    let hour = 3_600_000;
    let [(a, first, start), (b, second, of_b), (c, third, of_c)] = seen[..] else { panic!("{seen:?}") };
    assert!(a != b && b != c && a != c);
    assert_eq!((first, second, third), (start, start + hour, start + 2 * hour));
    assert_eq!((of_b, of_c), (start, start));
}

#[workflow(timeout = "90m")]
async fn hourly(ctx: Ctx, rounds: u32) -> Result<()> {
    ctx.sleep("an hour", "1 hour").await;
    if rounds == 0 {
        return Ok(());
    }
    ctx.continue_as_new(&(rounds - 1)).await
}

#[test]
fn the_time_out_is_that_of_a_life() {
    let outcome = Test::new(App::new().workflow(hourly)).run("hourly", &5);
    assert_eq!((outcome.status(), outcome.lives()), (Status::Completed, 6));
}

#[workflow]
async fn spins(ctx: Ctx) -> Result<()> {
    ctx.continue_as_new(&()).await
}

#[test]
fn a_workflow_that_does_nothing_but_begin_anew_is_stopped() {
    let outcome = Test::new(App::new().workflow(spins)).run("spins", &());
    assert_eq!(outcome.error().code, Some(Code::ProgramDied));
    assert_eq!(outcome.lives(), 10);
    assert!(outcome.took() > Duration::from_secs(30), "the lives are further and further apart");
}

#[workflow]
async fn races(ctx: Ctx, life: u32) -> Result<String> {
    if life == 2 {
        return Ok("done".into());
    }
    let slow = pin!(ctx.step::<(), _>("slow", async || std::future::pending().await));
    let quick = pin!(async {
        ctx.step("quick", async || Ok(())).await?;
        ctx.continue_as_new(&(life + 1)).await
    });
    match select(slow, quick).await {
        Either::Left((slow, _)) => slow.map(|()| "slow".into()),
        Either::Right((quick, _)) => quick,
    }
}

#[test]
fn what_is_under_way_is_dropped_with_its_life() {
    let outcome = Test::new(App::new().workflow(races)).run("races", &1);
    assert_eq!(outcome.output::<String>(), "done");
    assert_eq!(outcome.lives(), 2);
}

#[workflow]
async fn goes_on(ctx: Ctx, life: u32) -> Result<&'static str> {
    if life == 2 {
        return Ok("second");
    }
    let step = pin!(async { ctx.step("a", async || Ok(())).await });
    // It is asked for in the same poll in which the other way is ready.
    let anew = pin!(async { ctx.continue_as_new(&(life + 1)).await });
    let _: Either<((), _), _> = select(anew, std::future::ready(())).await;
    step.await?;
    Ok("first")
}

#[test]
fn nothing_goes_on_after_it() {
    let outcome = Test::new(App::new().workflow(goes_on)).run("goes_on", &1);
    // A life that has done nothing waits for a moment, and that is all.
    assert_eq!(outcome.output::<String>(), "second");
    assert!(outcome.ran().is_empty());
}

#[workflow]
async fn within(ctx: Ctx) -> Result<()> {
    ctx.step("outer", async || ctx.continue_as_new(&()).await).await
}

#[test]
fn a_step_cannot_continue_its_run_as_new() {
    let outcome = Test::new(App::new().workflow(within)).run("within", &());
    assert_eq!(outcome.problem().map(|problem| problem.code), Some(Code::NotDurable));
}

#[derive(Deserialize)]
struct Whimsical;

impl Serialize for Whimsical {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no"))
    }
}

#[workflow]
async fn cannot_write(ctx: Ctx, input: Whimsical) -> Result<()> {
    ctx.continue_as_new(&input).await
}

#[test]
fn an_input_that_cannot_be_written_fails_the_run() {
    let outcome = Test::new(App::new().workflow(cannot_write)).run("cannot_write", &());
    assert!(outcome.error().message.contains("cannot be written as JSON"), "{:?}", outcome.error());
}

#[workflow]
async fn large(ctx: Ctx, text: String) -> Result<()> {
    ctx.continue_as_new(&text.repeat(1_000_000)).await
}

#[test]
fn an_input_that_is_too_large_fails_the_run() {
    let outcome = Test::new(App::new().workflow(large)).run("large", "xx");
    assert!(outcome.error().message.contains("input of the run's next life"), "{:?}", outcome.error());
    assert_eq!(outcome.lives(), 1);
}

#[workflow]
async fn patched(ctx: Ctx, life: u32) -> Result<bool> {
    let is_patched = ctx.patched("new way");
    ctx.wait::<u32>("item").await?;
    if life == 2 {
        return Ok(is_patched);
    }
    ctx.continue_as_new(&(life + 1)).await
}

#[test]
fn a_new_life_goes_the_new_way_even_if_it_begins_with_signals() {
    let outcome =
        Test::new(App::new().workflow(patched)).signal("item", &1).signal("item", &2).run("patched", &1);
    assert!(outcome.output::<bool>());
}

#[test]
fn the_history_of_the_present_life_is_replayed() {
    let app = || App::new().workflow(counts);
    let mut engine = Engine::start(app(), "counts", &0);
    assert_eq!(engine.finish(), Ended::Completed("[10,4]".into()));
    let run = RunView {
        output: Some(Payload::from_text("[10,4]".into()).expect("JSON")),
        ..RunView::from(&engine.run)
    };
    // What earlier lives have left behind may be gone, or not.
    for is_trimmed in [false, true] {
        let events = engine.journal.iter().filter(|record| !is_trimmed || engine.run.counts(record.seq));
        let export = Export {
            format: FORMAT,
            run: run.clone(),
            input: engine.inputs.last().cloned().expect("it has lives"),
            replay: Some(engine.run.replay_facts()),
            events: events.cloned().collect(),
        };
        let report = replay(&app(), &export);
        assert_eq!((report.difference, report.events), (None, 1));
    }
    assert!(matches!(engine.journal[0].event, Event::StepFinished { .. }));
}

#[test]
fn a_cell_that_dies_all_the_time_brings_all_lives_to_an_end() {
    for page in [1, 2, usize::MAX] {
        let engine = Engine::start(App::new().workflow(counts), "counts", &0);
        let mut engine = engine.dies(Death::AfterEachRecord).pages_of(page).budget(4);
        assert_eq!(engine.finish(), Ended::Completed("[10,4]".into()));
        assert_eq!(engine.inputs.len(), 4);
    }
}
