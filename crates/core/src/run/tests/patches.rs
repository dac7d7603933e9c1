//! A patch that is deployed while a run waits: what the old way waited for must not reach the new one.

use super::*;

/// A run that was suspended by the old code and is activated with the new one.
fn patched_meanwhile() -> Bench {
    let mut bench = Bench::suspended(vec![wait("s", 0, None), sleep(0, 100), sleep(1, 200)]);
    bench.signal("s", Some(SLOT)).expect("it is open");
    assert!(bench.run.is_held_by(Epoch(2)));
    bench
}

fn fired(bench: &Bench) -> usize {
    bench.counted().filter(|record| matches!(record.event, Event::TimerFired { .. })).count()
}

fn wake(bench: &mut Bench) {
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
}

fn patch(bench: &mut Bench, open: Vec<Open>) -> (Commit, u64) {
    let (commit, hash) = bench.next_commit(vec![], Then::Continue { open: Some(open) });
    (Commit { patches: vec!["new way".into()], ..commit }, hash)
}

#[test]
fn what_an_earlier_activation_waited_for_happens_only_after_the_first_report_of_the_next() {
    let mut bench = patched_meanwhile();
    bench.pass(500);
    assert_eq!(bench.run.next_due(), None, "an alarm for it would fire again and again");
    wake(&mut bench);
    assert_eq!(fired(&bench), 0);
    // The program still waits for one of them.
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 100)]) }).expect("in turn");
    bench.pass(1);
    assert!(bench.run.next_due().is_some_and(|due| due <= bench.now));
    wake(&mut bench);
    assert_eq!(fired(&bench), 1);
}

#[test]
fn a_sleep_of_the_old_way_never_fires_once_a_patch_has_led_elsewhere() {
    let mut bench = patched_meanwhile();
    let (commit, hash) = patch(&mut bench, vec![]);
    bench.pass(500);
    wake(&mut bench);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    bench.pass(500);
    wake(&mut bench);
    assert_eq!(fired(&bench), 0);
}

#[test]
fn nor_does_it_if_something_else_came_before_the_patch_was_reported() {
    let mut bench = patched_meanwhile();
    let (commit, hash) = patch(&mut bench, vec![sleep(1, 200)]);
    bench.signal("other", None).expect("it is kept");
    let until = bench.run.open.iter().find(|open| open.op.occurrence == 1).and_then(|open| open.until);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    // It says once more what it waits for; meanwhile only what both ways wait for is left, with its time.
    assert_eq!(bench.run.open.len(), 1);
    assert_eq!(bench.run.open[0].until, until);
    bench.pass(150);
    wake(&mut bench);
    assert_eq!(fired(&bench), 0);
    bench.pass(50);
    wake(&mut bench);
    assert_eq!(fired(&bench), 1);
}

#[test]
fn a_run_that_has_not_reported_still_times_out() {
    let mut bench = Bench::start_for(Some(SLOT), Some(1_000));
    bench.pass(1_000);
    wake(&mut bench);
    assert_eq!(bench.run.status(), Status::Failed);
}
