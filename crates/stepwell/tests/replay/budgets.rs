//! Activations that end because their budget is used up: a run that is cut anywhere does what it does uncut.

use std::collections::BTreeMap;

use futures::future::join_all;
use stepwell::{
    prelude::*,
    testing::engine::{Ended, Engine},
};
use stepwell_protocol::{
    Code, Epoch,
    program::{Command, Commit, Then},
};

use crate::world::takes;

#[workflow]
async fn line(ctx: Ctx, steps: u32) -> Result<u32> {
    let mut sum = 0;
    for n in 0..steps {
        sum += ctx.step("add", async || Ok(n)).await?;
        if n == 5 {
            ctx.sleep("sleep", Duration::from_secs(1)).await;
        }
        if n == 7 {
            let flaky =
                async |info: stepwell::StepInfo| if info.attempt < 3 { Err(Error::msg("no")) } else { Ok(0) };
            sum += ctx.step_with("flaky", flaky).await?;
        }
    }
    Ok(sum)
}

#[workflow]
async fn fan(ctx: Ctx, steps: u64) -> Result<u64> {
    let all = (0..steps).map(|n| {
        let step = ctx.step(format!("part {n}"), async move || {
            takes(1 + n % 3).await;
            Ok(n)
        });
        async move { if n % 5 == 0 { step.at_most_once().await } else { step.await } }
    });
    let mut sum = 0;
    for part in join_all(all).await {
        sum += part?;
    }
    Ok(sum)
}

fn app() -> App {
    App::new().workflow(line).workflow(fan).workflow(beside).workflow(picky)
}

/// The calls of each activation.
fn calls(engine: &Engine) -> BTreeMap<Epoch, usize> {
    let mut calls = BTreeMap::new();
    for commit in &engine.commits {
        *calls.entry(commit.epoch).or_default() += 1;
    }
    calls
}

fn commands(commits: &[Commit]) -> Vec<Command> {
    commits.iter().flat_map(|commit| commit.commands.clone()).collect()
}

fn yields(engine: &Engine) -> usize {
    engine.commits.iter().filter(|commit| matches!(commit.then, Then::Yield { .. })).count()
}

#[test]
fn a_run_that_is_cut_anywhere_sends_the_commands_of_one_that_is_not() {
    let mut uncut = Engine::start(app(), "line", &30);
    let end = uncut.finish();
    assert_eq!((&end, yields(&uncut)), (&Ended::Completed("435".into()), 0));
    for commits in 0..40 {
        let mut cut = Engine::start(app(), "line", &30).budget(commits).pages_of(7);
        assert_eq!(cut.finish(), end, "budget {commits}");
        assert_eq!(commands(&cut.commits), commands(&uncut.commits), "budget {commits}");
        let calls = calls(&cut);
        assert!(
            calls.values().all(|&calls| calls <= (commits as usize).max(2)),
            "budget {commits}: {calls:?}"
        );
        assert!(commits > 20 || yields(&cut) > 0, "budget {commits}");
    }
}

#[test]
fn pages_of_a_replay_count_and_never_take_it_all() {
    let mut cut = Engine::start(app(), "line", &200).budget(12).pages_of(1);
    assert_eq!(cut.finish(), Ended::Completed("19900".into()));
    // The first page comes with the call. A quarter is three calls: two steps and the last word.
    let calls = calls(&cut);
    assert_eq!(calls[&Epoch(1)], 6 + 1, "up to its sleep");
    assert_eq!(calls.values().rev().nth(3), Some(&3));
}

#[test]
fn steps_beside_each_other_are_cut_too_and_each_runs_once() {
    let end = Engine::start(app(), "fan", &40).finish();
    for commits in 0..90 {
        let mut cut = Engine::start(app(), "fan", &40).budget(commits);
        assert_eq!(cut.finish(), end, "budget {commits}");
        let mut ran = cut.ran.clone();
        ran.sort();
        ran.dedup();
        assert_eq!((ran.len(), cut.ran.len()), (40, 40), "budget {commits}: no step was cut short");
        let calls = calls(&cut);
        assert!(
            calls.values().all(|&calls| calls <= (commits as usize).max(3)),
            "budget {commits}: {calls:?}"
        );
    }
}

/// Steps beside a sleep and a wait.
#[workflow]
async fn beside(ctx: Ctx) -> Result<(u32, u32)> {
    let steps = async {
        let mut sum = 0;
        for n in 0..20 {
            let step = ctx.step("work", async || {
                takes(10).await;
                Ok(n)
            });
            sum += step.await?;
        }
        Ok::<_, Error>(sum)
    };
    let waits = async {
        ctx.sleep("sleep", Duration::from_millis(350)).await;
        ctx.wait::<u32>("go").await.map_err(Error::from)
    };
    let (sum, signal) = futures::join!(steps, waits);
    Ok((sum?, signal?))
}

#[test]
fn what_a_run_waits_for_besides_outlives_its_activations() {
    for commits in 0..30 {
        for at in [0, 90, 200, 349, 350, 351, 1_000, 4_000] {
            let mut cut = Engine::start(app(), "beside", &()).budget(commits).signal(at, "go", &7);
            assert_eq!(cut.finish(), Ended::Completed("[190,7]".into()), "budget {commits}, signal at {at}");
        }
    }
}

/// Does not await a step that it has begun.
#[workflow]
async fn picky(ctx: Ctx) -> Result<String> {
    let mut kept = Box::pin(ctx.step("kept", async || {
        takes(1_000).await;
        Ok(())
    }));
    let sleep = ctx.sleep("sleep", Duration::from_millis(100));
    let _ = futures::future::select(&mut kept, sleep).await;
    for _ in 0..5 {
        ctx.step("work", async || Ok(())).await?;
    }
    let answer = ctx.wait::<String>("go").await?;
    kept.await?;
    Ok(answer)
}

#[test]
fn a_step_that_nobody_awaits_keeps_no_run_from_its_rest() {
    for commits in 0..12 {
        let mut cut = Engine::start(app(), "picky", &()).budget(commits).signal(60_000, "go", &"on");
        assert_eq!(cut.finish(), Ended::Completed("\"on\"".into()), "budget {commits}");
        assert!(cut.run.epoch.0 < 12, "budget {commits}: {} activations", cut.run.epoch.0);
    }
}

#[test]
fn a_dead_cell_and_a_budget_do_not_mind_each_other() {
    for commits in 0..8 {
        let ended = crate::world::dies_everywhere(|| Engine::start(app(), "line", &12).budget(commits));
        assert_eq!(ended, Ended::Completed("66".into()));
    }
}

#[test]
fn a_workflow_that_is_not_there_pauses_as_ever() {
    let mut engine = Engine::start(app(), "gone", &()).budget(1);
    assert!(matches!(engine.finish(), Ended::Paused(problem) if problem.code == Code::WorkflowNotFound));
}
