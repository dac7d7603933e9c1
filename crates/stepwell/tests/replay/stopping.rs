//! Runs that are paused, resumed and taken back while their programs are at work.

use std::cell::Cell;

use stepwell::{
    prelude::*,
    testing::engine::{Death, Ended, Engine, Outside},
};
use stepwell_core::run::{Cut, Input, Phase, Signal};
use stepwell_protocol::{Event, Seq};

use crate::world::{note, take_notes, takes};

#[workflow]
async fn works_and_sleeps(ctx: Ctx) -> Result<u32> {
    let one = ctx
        .step("one", async || {
            takes(20).await;
            Ok(1)
        })
        .await?;
    ctx.sleep("sleep", Duration::from_millis(500)).await;
    let two = ctx
        .step("two", async || {
            takes(20).await;
            Ok(2)
        })
        .await?;
    let three = ctx.step("three", async || Ok(3)).at_most_once().await?;
    Ok(one + two + three)
}

fn run() -> Engine {
    Engine::start(App::new().workflow(works_and_sleeps), "works_and_sleeps", &())
}

#[test]
fn a_run_that_is_paused_at_any_moment_goes_on_and_loses_nothing() {
    for at in (0..1_000).step_by(50) {
        for pause in [1, 300, 5_000] {
            let mut engine = run().happens(at, Outside::Pause).happens(at + pause, Outside::Resume);
            assert_eq!(engine.finish(), Ended::Completed("6".into()), "paused at {at} for {pause} ms");
            let mut ran = engine.ran.clone();
            ran.dedup();
            assert_eq!(ran, ["step:0:one", "step:0:two", "step:0:three"], "paused at {at} for {pause} ms");
        }
    }
}

#[test]
fn a_step_that_ends_while_its_run_is_paused_does_not_run_again() {
    let mut engine = run().happens(50, Outside::Pause).happens(5_000, Outside::Resume);
    assert_eq!(engine.finish(), Ended::Completed("6".into()));
    assert_eq!(engine.ran, ["step:0:one", "step:0:two", "step:0:three"]);
}

#[test]
fn a_paused_run_that_nobody_resumes_stays_where_it_is() {
    let mut engine = run().happens(50, Outside::Pause);
    assert_eq!(engine.run_to_end(), Ended::Halted);
    assert_eq!(engine.ran, ["step:0:one"]);
    assert_eq!(engine.journal.len(), 1, "what was under way is on record");
}

#[test]
fn a_run_that_is_paused_and_dies_goes_on_as_well() {
    for at in (0..1_000).step_by(50) {
        for number in 1..8 {
            for death in [Death::Before(number), Death::After(number)] {
                let engine = run().happens(at, Outside::Pause).happens(at + 77, Outside::Resume);
                let ended = engine.dies(death).finish();
                let Ended::Failed(failure) = ended else {
                    assert_eq!(ended, Ended::Completed("6".into()), "paused at {at}, {death:?}");
                    continue;
                };
                assert!(failure.message.contains("interrupted"), "{}", failure.message);
            }
        }
    }
}

thread_local! {
    static BROKEN: Cell<bool> = const { Cell::new(false) };
}

#[workflow]
async fn order(ctx: Ctx) -> Result<String> {
    let who: String = ctx.wait("who").await?;
    let price = ctx.step("price", async || Ok(10));
    let stock = ctx.step("stock", async || Ok(3));
    let (price, stock) = futures::join!(price, stock);
    let (price, stock) = (price?, stock?);
    let charge = ctx.step_with("charge", async |info| {
        note(format!("charge {}", info.attempt));
        if BROKEN.get() { Err(Error::msg("no answer")) } else { Ok(price) }
    });
    let charged = charge.attempts(2).await?;
    let bonus: u32 = ctx.wait("bonus").await?;
    Ok(format!("{who} paid {charged} for one of {stock}, and got {bonus}"))
}

/// A run that has failed at `charge`; both signals have come.
fn failed_order() -> Engine {
    BROKEN.set(true);
    let mut engine = Engine::start(App::new().workflow(order), "order", &())
        .signal(0, "who", &"Ada")
        .signal(0, "bonus", &5);
    let Ended::Failed(_) = engine.run_to_end() else { panic!("it fails") };
    BROKEN.set(false);
    take_notes();
    engine.ran.clear();
    engine.commits.clear();
    engine
}

fn restart(engine: &mut Engine, after: Seq, only: &[Seq]) {
    let mut cuts: Vec<_> = only.iter().map(|seq| Cut::only(*seq)).collect();
    cuts.push(Cut { after, through: engine.run.head });
    let signals = engine.counted(after, engine.run.head).filter_map(|record| Signal::of(&record.event));
    let signals = signals.collect();
    engine
        .give(Input::Restart { cuts, signals, dropped: None, keeps_progress: false, slot: None })
        .expect("it is at rest");
}

/// The first event of a step.
fn first_of(engine: &Engine, name: &str) -> Seq {
    let found = engine.counted(Seq(0), engine.run.head).find(|record| match &record.event {
        Event::StepFinished { op, .. } | Event::StepRetrying { op, .. } | Event::StepBegun { op } => {
            op.name == name
        }
        Event::StepLetIn { .. }
        | Event::TimerFired { .. }
        | Event::SignalReceived { .. }
        | Event::ChildInvoked { .. }
        | Event::ChildStarted { .. }
        | Event::ChildFinished { .. } => false,
    });
    found.expect("it is in the journal").seq
}

const PAID: &str = "\"Ada paid 10 for one of 3, and got 5\"";

#[test]
fn a_run_taken_back_to_a_step_runs_that_and_none_before_it() {
    for number in 0..6 {
        for death in [Death::Before(number), Death::After(number), Death::AfterEachRecord] {
            let mut engine = failed_order().dies(death);
            let at = first_of(&engine, "charge");
            restart(&mut engine, Seq(at.0 - 1), &[]);
            // Only rows are left of the restart.
            engine.die();
            assert_eq!(engine.finish(), Ended::Completed(PAID.into()), "{death:?}");
            assert!(engine.ran.iter().all(|op| op == "step:0:charge"), "{:?}", engine.ran);
            assert!(take_notes().iter().all(|note| note == "charge 1"), "it has all its attempts again");
        }
    }
}

#[test]
fn a_run_taken_back_to_its_beginning_keeps_its_signals_and_nothing_else() {
    for number in 0..8 {
        let mut engine = failed_order().dies(Death::After(number));
        restart(&mut engine, Seq(0), &[]);
        assert_eq!(engine.finish(), Ended::Completed(PAID.into()));
        let ran: std::collections::BTreeSet<_> = engine.ran.iter().cloned().collect();
        assert_eq!(ran.len(), 3, "{ran:?}");
    }
}

#[test]
fn a_run_may_be_taken_back_twice() {
    let mut engine = failed_order();
    restart(&mut engine, Seq(0), &[]);
    BROKEN.set(true);
    let Ended::Failed(_) = engine.finish() else { panic!("it fails again") };
    BROKEN.set(false);
    let at = first_of(&engine, "charge");
    restart(&mut engine, Seq(at.0 - 1), &[]);
    engine.ran.clear();
    assert_eq!(engine.finish(), Ended::Completed(PAID.into()));
    assert_eq!(engine.ran, ["step:0:charge"]);
}

#[test]
fn a_journal_with_cuts_may_come_in_pages_of_any_size() {
    for page_size in 1..6 {
        let mut engine = failed_order().pages_of(page_size);
        let at = first_of(&engine, "charge");
        restart(&mut engine, Seq(at.0 - 1), &[]);
        assert_eq!(engine.finish(), Ended::Completed(PAID.into()), "pages of {page_size}");
    }
}

#[test]
fn a_completed_run_may_be_taken_back_too() {
    let mut engine = failed_order();
    restart(&mut engine, Seq(0), &[]);
    assert_eq!(engine.finish(), Ended::Completed(PAID.into()));
    restart(&mut engine, Seq(0), &[]);
    assert!(matches!(engine.run.phase, Phase::Pending { .. }));
    assert_eq!(engine.finish(), Ended::Completed(PAID.into()));
}
