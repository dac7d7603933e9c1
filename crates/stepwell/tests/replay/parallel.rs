//! Several things at once: whoever won at first wins on every replay.

use std::pin::pin;

use futures::{
    StreamExt,
    future::{Either, join_all, select},
    stream::FuturesUnordered,
};
use stepwell::{
    prelude::*,
    testing::engine::{Death, Ended, Engine},
};

use crate::world::{dies_everywhere, note, take_notes, takes, yields};

#[workflow]
async fn pair(ctx: Ctx) -> Result<u32> {
    let left = ctx.step("left", async || {
        takes(5).await;
        Ok(1)
    });
    let right = ctx.step("right", async || {
        takes(2).await;
        Ok(2)
    });
    let (left, right) = futures::join!(left, right);
    Ok(left? * 10 + right?)
}

#[test]
fn joined_steps_both_give_their_results() {
    let make = || Engine::start(App::new().workflow(pair), "pair", &());
    assert_eq!(dies_everywhere(make), Ended::Completed("12".into()));
    let mut engine = make();
    let start = engine.now;
    engine.finish();
    assert_eq!(engine.now.as_millis() - start.as_millis(), 50, "they run beside each other");
}

#[workflow]
async fn race(ctx: Ctx, (ticks, sleep_ms): (u64, u64)) -> Result<String> {
    let work = ctx.step("work", async || {
        takes(ticks).await;
        Ok("work".to_owned())
    });
    match select(work, ctx.sleep("sleep", Duration::from_millis(sleep_ms))).await {
        Either::Left((work, _)) => Ok(work?),
        Either::Right(_) => {
            ctx.step("tidy", async || Ok(())).await?;
            Ok("timer".into())
        }
    }
}

#[test]
fn a_step_that_is_quicker_than_its_time_limit_wins() {
    let ended = dies_everywhere(|| Engine::start(App::new().workflow(race), "race", &(3, 60_000)));
    assert_eq!(ended, Ended::Completed("\"work\"".into()));
}

#[test]
fn a_step_that_is_slower_than_its_time_limit_loses() {
    let ended = dies_everywhere(|| Engine::start(App::new().workflow(race), "race", &(1_000, 300)));
    assert_eq!(ended, Ended::Completed("\"timer\"".into()));
}

#[workflow]
async fn photo_finish(ctx: Ctx) -> Result<String> {
    let work = ctx.step("work", async || {
        takes(30).await;
        Ok(())
    });
    let winner = match select(work, ctx.sleep("sleep", Duration::from_millis(300))).await {
        Either::Left(_) => "work",
        Either::Right(_) => "timer",
    };
    note(winner);
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    ctx.step("after", async || Ok(())).await?;
    Ok(winner.into())
}

#[test]
fn a_race_has_one_winner_even_when_both_end_in_one_moment() {
    for death in [Death::Never, Death::After(3), Death::After(4), Death::AfterEachRecord] {
        let mut engine = Engine::start(App::new().workflow(photo_finish), "photo_finish", &()).dies(death);
        let Ended::Completed(_) = engine.finish() else { panic!("it completes") };
        let mut winners = take_notes();
        winners.dedup();
        assert_eq!(winners.len(), 1, "{winners:?}");
    }
}

#[workflow]
async fn five(ctx: Ctx, ticks: Vec<u64>) -> Result<Vec<usize>> {
    let mut steps: FuturesUnordered<_> = ticks
        .into_iter()
        .enumerate()
        .map(|(number, ticks)| {
            ctx.step(format!("step {number}"), async move || {
                takes(ticks).await;
                // Busy code asks to be called again and again.
                yields(3).await;
                Ok(number)
            })
        })
        .collect();
    let mut order = Vec::new();
    while let Some(number) = steps.next().await {
        order.push(number?);
        note(format!("{order:?} at {}", ctx.now().as_millis()));
    }
    Ok(order)
}

#[test]
fn unordered_steps_resolve_on_replay_in_the_order_in_which_they_ended() {
    for ticks in [[5, 4, 3, 2, 1], [3, 1, 4, 1, 5], [0, 0, 0, 0, 0], [1, 9, 2, 9, 2]] {
        let make = || Engine::start(App::new().workflow(five), "five", &ticks);
        let mut engine = make();
        engine.run_to_end();
        assert_eq!(take_notes().len(), 5);
        for number in 1..=engine.commits.len() {
            let mut engine = make().dies(Death::After(number));
            // Its last replay checks the order of the whole; here, what was seen on the way.
            engine.finish();
            let notes = take_notes();
            let (before, after) = notes.split_at(notes.len() - 5);
            assert!(before.iter().all(|note| after.contains(note)), "{before:?} became {after:?}");
        }
    }
}

#[workflow]
async fn first_of_three(ctx: Ctx) -> Result<u64> {
    let mut steps: FuturesUnordered<_> = [30, 5, 20]
        .into_iter()
        .map(|ticks| {
            ctx.step("try", async move || {
                takes(ticks).await;
                Ok(ticks)
            })
        })
        .collect();
    let first = steps.next().await.expect("there are three")?;
    drop(steps);
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    let again = ctx.step("try", async || Ok(first)).await?;
    Ok(again)
}

#[test]
fn steps_that_were_dropped_do_not_hold_up_the_run_and_keep_their_place() {
    let make = || Engine::start(App::new().workflow(first_of_three), "first_of_three", &());
    assert_eq!(dies_everywhere(make), Ended::Completed("5".into()));
    let mut engine = make();
    engine.finish();
    assert_eq!(engine.ran.len(), 4, "the losers of the race do not run again");
    assert_eq!(engine.run.epoch.0, 2, "it sleeps although steps were under way");
}

#[workflow]
async fn many_sleeps(ctx: Ctx) -> Result<u64> {
    let nap = |ms| ctx.sleep("sleep", Duration::from_millis(ms));
    // Groups within a group: the combinators give way before all was begun.
    let groups = (0..6).map(|group| {
        let mut naps: FuturesUnordered<_> = (0..3).map(|n| nap(1_000 + group * 10 + n)).collect();
        async move { while naps.next().await.is_some() {} }
    });
    let mut groups: FuturesUnordered<_> = groups.collect();
    let before = ctx.now();
    while groups.next().await.is_some() {}
    Ok(ctx.now().as_millis() - before.as_millis())
}

#[test]
fn all_that_is_awaited_at_once_begins_at_once() {
    let mut engine = Engine::start(App::new().workflow(many_sleeps), "many_sleeps", &());
    assert_eq!(engine.finish(), Ended::Completed("1052".into()));
}

#[workflow]
async fn polite(ctx: Ctx) -> Result<u32> {
    yields(7).await;
    let value = ctx.step("work", async || Ok(1)).await?;
    yields(7).await;
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    yields(7).await;
    Ok(value)
}

#[test]
fn a_workflow_that_gives_way_is_not_taken_for_stuck() {
    let make = || Engine::start(App::new().workflow(polite), "polite", &());
    assert_eq!(dies_everywhere(make), Ended::Completed("1".into()));
}

#[workflow]
async fn loser_in_scope(ctx: Ctx) -> Result<u32> {
    let mut slow = pin!(ctx.step("slow", async || {
        takes(20).await;
        Ok(7)
    }));
    if let Either::Left(_) = select(slow.as_mut(), pin!(ctx.sleep("sleep", Duration::from_millis(100)))).await
    {
        return Ok(0);
    }
    // `slow` is still there, but nobody polls it.
    ctx.sleep("sleep", Duration::from_secs(3_600)).await;
    ctx.step("between", async || Ok(())).await?;
    ctx.sleep("sleep", Duration::from_secs(3_600)).await;
    slow.await
}

#[test]
fn a_step_that_nobody_polls_neither_wakes_its_run_nor_keeps_it_awake() {
    let make = || Engine::start(App::new().workflow(loser_in_scope), "loser_in_scope", &());
    for death in [Death::Never, Death::After(1), Death::After(2), Death::After(3), Death::AfterEachRecord] {
        let mut engine = make().dies(death);
        assert_eq!(engine.finish(), Ended::Completed("7".into()));
        let activations = engine.run.epoch.0;
        assert!(activations <= 6, "{activations} activations for three sleeps and one death");
    }
}

#[workflow]
async fn crowd(ctx: Ctx, size: u64) -> Result<u64> {
    let steps = (0..size).map(|n| ctx.step(format!("member {n}"), async move || Ok(n)));
    let mut sum = 0;
    for value in join_all(steps).await {
        sum += value?;
    }
    Ok(sum)
}

#[test]
fn many_steps_at_once_go_into_few_commits() {
    let mut engine = Engine::start(App::new().workflow(crowd), "crowd", &500);
    assert_eq!(engine.finish(), Ended::Completed("124750".into()));
    assert_eq!(engine.commits.len(), 2);
}

#[workflow]
async fn staggered_crowd(ctx: Ctx, size: u64) -> Result<u64> {
    let steps = (0..size).map(|n| {
        ctx.step("member", async move || {
            takes(n).await;
            Ok(1_u64)
        })
    });
    let mut sum = 0;
    for value in join_all(steps).await {
        sum += value?;
    }
    Ok(sum)
}

#[test]
fn the_end_of_one_step_costs_the_same_however_many_are_under_way() {
    let seconds = |size: u64| {
        let mut engine = Engine::start(App::new().workflow(staggered_crowd), "staggered_crowd", &size);
        let start = std::time::Instant::now();
        assert_eq!(engine.finish(), Ended::Completed(size.to_string()));
        start.elapsed().as_secs_f64()
    };
    // Sixteen times as many take sixteen times as long, or 256 times if each looked at all others.
    let (few, many) = (seconds(250), seconds(4_000));
    assert!(many < few * 100.0, "{few} s became {many} s");
}
