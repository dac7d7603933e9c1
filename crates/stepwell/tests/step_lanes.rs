//! Steps in lanes.

use std::{cell::Cell, future::poll_fn, rc::Rc, task::Poll};

use futures::{FutureExt, select};
use stepwell::{prelude::*, testing::Test};
use stepwell_protocol::Event;

thread_local! {
    /// How many steps are at work, and how many were at most.
    static AT_WORK: Rc<Cell<(u32, u32)>> = Rc::default();
}

/// Code that is at work for a few turns.
async fn work() -> Result<()> {
    let at_work = AT_WORK.with(Clone::clone);
    let (now, most) = at_work.get();
    at_work.set((now + 1, most.max(now + 1)));
    let mut turns = 0;
    poll_fn(|cx| {
        turns += 1;
        cx.waker().wake_by_ref();
        if turns < 4 { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let (now, most) = at_work.get();
    at_work.set((now - 1, most));
    Ok(())
}

fn let_in(outcome: &stepwell::testing::Outcome) -> usize {
    outcome.history().iter().filter(|record| matches!(record.event, Event::StepLetIn { .. })).count()
}

#[workflow]
async fn fan_out(ctx: Ctx, items: u32) -> Result<usize> {
    let calls = ctx.each("call", 0..items, async |_, _| work().await).lane("api", "acme").limit(2);
    Ok(calls.await?.len())
}

#[test]
fn no_more_steps_of_a_run_are_at_work_than_their_lane_says() {
    AT_WORK.with(|at_work| at_work.set((0, 0)));
    let outcome = Test::new(App::new().workflow(fan_out)).run("fan_out", &9);
    assert_eq!(outcome.output::<usize>(), 9);
    assert_eq!(AT_WORK.with(|at_work| at_work.get()), (0, 2));
    assert_eq!(let_in(&outcome), 9);
}

#[test]
fn each_step_is_recorded_once_wherever_the_run_dies() {
    let outcome = Test::new(App::new().workflow(fan_out)).crash_everywhere("fan_out", &4);
    assert_eq!(outcome.output::<usize>(), 4);
}

#[workflow]
async fn flaky(ctx: Ctx, once: bool) -> Result<u32> {
    let step = ctx.step_with("call", async |info| {
        if info.attempt < 3 && !once { Err(Error::msg("not now")) } else { Ok(info.attempt) }
    });
    let step = step.lane("api", ()).limit(5).lane("api", 7_u32).per("1 second");
    if once { step.at_most_once().await } else { step.await }
}

#[test]
fn each_attempt_is_let_in() {
    let test = || Test::new(App::new().workflow(flaky));
    let outcome = test().run("flaky", &false);
    assert_eq!((outcome.output::<u32>(), let_in(&outcome)), (3, 3));
    let outcome = test().run("flaky", &true);
    assert_eq!((outcome.output::<u32>(), let_in(&outcome)), (1, 1));
    test().crash_everywhere("flaky", &false);
}

#[workflow]
async fn impatient(ctx: Ctx, (): ()) -> Result<u32> {
    let mut slow =
        ctx.step("slow", async || std::future::pending::<Result<u32>>().await).lane("api", ()).fuse();
    let mut time = std::pin::pin!(ctx.sleep("limit", "1 minute").fuse());
    select! {
        _ = slow => return Ok(1),
        () = time => {}
    }
    drop(slow);
    // The first one's place is free, or this one would wait for ever.
    ctx.step("other", async || Ok(2)).lane("api", ()).await
}

#[test]
fn a_step_that_nobody_awaits_leaves_its_place_to_others() {
    let outcome = Test::new(App::new().workflow(impatient)).run("impatient", &());
    assert_eq!(outcome.output::<u32>(), 2);
}

#[workflow]
async fn confused(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("call", async || Ok(())).lane("api", ()).lane("other", ()).await
}

#[workflow]
async fn unlimited(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("call", async || Ok(())).limit(2).await
}

#[workflow]
async fn nameless(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("call", async || Ok(())).lane("", ()).await
}

#[test]
fn what_no_lane_can_be_fails_the_run_and_says_why() {
    let test = || Test::new(App::new().workflow(confused).workflow(unlimited).workflow(nameless));
    for (workflow, expected) in [
        ("confused", "a step can be in only one lane, and this one is in 'api' and 'other'"),
        ("unlimited", "a step's limit needs a lane"),
        ("nameless", "the name of a lane has 1 to 64 bytes"),
    ] {
        let outcome = test().run(workflow, &());
        let error = outcome.error().message.clone();
        assert!(error.contains(expected), "{workflow}: {error}");
    }
}

/// Many more steps than may wait at once.
#[workflow]
async fn crowd(ctx: Ctx, (): ()) -> Result<usize> {
    let steps = (0..120).map(|_| ctx.step("call", async || work().await).lane("api", ()).limit(3));
    let results = futures::future::join_all(steps).await;
    Ok(results.into_iter().flatten().count())
}

#[test]
fn a_crowd_of_steps_comes_through() {
    AT_WORK.with(|at_work| at_work.set((0, 0)));
    let outcome = Test::new(App::new().workflow(crowd)).run("crowd", &());
    assert_eq!(outcome.output::<usize>(), 120);
    assert_eq!(AT_WORK.with(|at_work| at_work.get()), (0, 3));
}

/// Items that the loop keeps and does not await while it saves, in the lane that they need.
#[workflow]
async fn pipeline(ctx: Ctx, items: u32) -> Result<u32> {
    use futures::StreamExt;
    let fetches = (0..items).map(|item| ctx.step("fetch", async move || Ok(item)).lane("api", ()));
    let mut results = futures::stream::iter(fetches).buffer_unordered(4);
    let mut sum = 0;
    while let Some(item) = results.next().await {
        let item = item?;
        sum += ctx.step("save", async || Ok(item)).lane("api", ()).await?;
    }
    Ok(sum)
}

#[test]
fn a_step_that_is_kept_and_not_awaited_blocks_no_other() {
    let outcome = Test::new(App::new().workflow(pipeline)).run("pipeline", &6);
    assert_eq!(outcome.output::<u32>(), 15);
    Test::new(App::new().workflow(pipeline)).crash_everywhere("pipeline", &3);
}

#[workflow]
async fn two_at_once(ctx: Ctx, (): ()) -> Result<usize> {
    let calls = ctx.each("call", 0..20, async |_, _| work().await).at_once(2).lane("api", ()).limit(50);
    Ok(calls.await?.len())
}

#[test]
fn an_each_asks_for_no_more_places_than_it_uses() {
    let outcome = Test::new(App::new().workflow(two_at_once)).run("two_at_once", &());
    assert_eq!(outcome.output::<usize>(), 20);
    let (mut held, mut most) = (0_i32, 0);
    for record in outcome.history() {
        match record.event {
            Event::StepLetIn { .. } => held += 1,
            Event::StepFinished { .. } => held -= 1,
            Event::StepBegun { .. }
            | Event::StepRetrying { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => {}
        }
        most = most.max(held);
    }
    assert!(most <= 2, "{most} places were held for two");
}

/// A laned step that fails once, beside many plain ones.
#[workflow]
async fn beside(ctx: Ctx, (): ()) -> Result<u64> {
    let failing = async {
        let call = ctx.step_with(
            "call",
            async |info| {
                if info.attempt == 1 { Err(Error::msg("not now")) } else { Ok(()) }
            },
        );
        call.lane("api", ()).await?;
        Ok::<_, Error>(ctx.now().as_millis())
    };
    let plain = async {
        for _ in 0..20 {
            ctx.step("plain", async || work().await).timeout("1 minute").await?;
            ctx.sleep("pause", "1 second").await;
        }
        Ok::<_, Error>(ctx.now().as_millis())
    };
    let (failing, plain) = futures::try_join!(failing, plain)?;
    Ok(plain - failing)
}

#[test]
fn the_next_attempt_asks_for_its_place_in_time_while_other_steps_work() {
    let outcome = Test::new(App::new().workflow(beside)).run("beside", &());
    assert!(outcome.output::<u64>() > 10_000, "{}", outcome.output::<u64>());
}

#[workflow]
async fn fails_beside(ctx: Ctx, (): ()) -> Result<()> {
    let good = ctx.step("good", async || work().await).lane("api", ());
    let bad = ctx.step("bad", async || Err::<(), _>(Terminal::new("no").into())).lane("api", ());
    let (good, bad) = futures::join!(good, bad);
    good.and(bad)
}

#[test]
fn a_run_that_fails_gives_its_places_back() {
    let outcome = Test::new(App::new().workflow(fails_beside)).run("fails_beside", &());
    assert!(outcome.error().message.contains("no"), "{:?}", outcome.error());
}
