//! The time that a whole run may take.

use super::*;

const LIMIT_MS: u64 = 1_000;

/// A run in each phase in which its time can be over.
fn every_phase() -> Vec<Bench> {
    let start = |slot| Bench::start_for(slot, Some(LIMIT_MS));
    let suspended = |open| {
        let mut bench = start(Some(SLOT));
        bench.commit(vec![], Then::Suspend { open }).expect("in turn");
        bench
    };
    let mut orphan = start(Some(TOKEN));
    orphan.crash();
    vec![
        start(None),
        start(Some(SLOT)),
        orphan,
        suspended(vec![sleep(0, 50_000)]),
        suspended(vec![wait("s", 0, None)]),
    ]
}

fn timed_out(bench: &Bench, decision: &Decision) -> bool {
    let failed = decision.entries.iter().any(
        |entry| matches!(entry, Entry::Failed { failure, .. } if failure.code == Some(Code::RunTimedOut)),
    );
    assert_eq!(failed, bench.run.status() == Status::Failed);
    failed
}

#[test]
fn a_run_fails_when_its_time_is_over_and_not_before() {
    for mut bench in every_phase() {
        bench.pass(LIMIT_MS - 1);
        let mut early = bench.clone();
        let decision = early.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
        assert!(!timed_out(&early, &decision));
        bench.pass(1);
        let decision = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
        assert!(timed_out(&bench, &decision), "{:?}", bench.run.phase);
        assert!(decision.effects.contains(&Effect::TellEnd));
        let again = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
        assert_eq!(again, Decision::default(), "once");
        bench.crash();
        assert_eq!(bench.run.wake_at(), None);
    }
}

#[test]
fn a_suspended_run_is_looked_at_when_its_time_is_over() {
    for bench in every_phase().into_iter().filter(|bench| bench.run.phase == Phase::Suspended) {
        assert_eq!(bench.run.wake_at(), bench.run.deadline);
    }
}

#[test]
fn a_sleep_that_ends_before_the_limit_ends_as_ever() {
    let mut bench = Bench::start_for(Some(SLOT), Some(LIMIT_MS));
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }).expect("in turn");
    assert_eq!(bench.run.wake_at(), Some(bench.now.plus_millis(100)));
}

#[test]
fn a_run_whose_time_is_over_is_not_activated() {
    let mut bench = Bench::start_for(None, Some(LIMIT_MS));
    bench.pass(LIMIT_MS);
    let decision = bench.give(Input::Activate(SLOT)).expect("it is never refused");
    assert!(timed_out(&bench, &decision));
    assert_eq!(bench.run.epoch, Epoch(0));
}

#[test]
fn a_program_is_refused_once_the_time_of_its_run_is_over() {
    let mut bench = Bench::start_for(Some(SLOT), Some(LIMIT_MS));
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.pass(LIMIT_MS);
    let decision = bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert!(decision.effects.contains(&Effect::TellProgram));
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
}

#[test]
fn a_paused_run_does_not_time_out_until_it_goes_on() {
    for mut bench in every_phase() {
        bench.give(Input::Pause).expect("it has not ended");
        bench.pass(5 * LIMIT_MS);
        bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
        bench.crash();
        assert_eq!(bench.run.status(), Status::Paused);
        assert_eq!(bench.run.wake_at(), None);
        bench.give(Input::Resume { slot: Some(SLOT) }).expect("it has not ended");
        let decision = bench.give(Input::Wake { slot: None }).expect("it is never refused");
        assert!(timed_out(&bench, &decision));
    }
}

#[test]
fn a_run_whose_time_is_over_does_not_go_to_sleep() {
    // Its row would be due at a time that the cell has looked at: nobody would look there again.
    let mut bench = Bench::start_for(Some(SLOT), Some(LIMIT_MS));
    bench.give(Input::Pause).expect("it has not ended");
    bench.pass(2 * LIMIT_MS);
    bench.give(Input::Resume { slot: Some(SLOT) }).expect("it has not ended");
    let (commit, hash) = bench.next_commit(vec![], Then::Suspend { open: vec![sleep(0, 50_000)] });
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(bench.run.status(), Status::Failed);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop), "and so is its repeat");
}

#[test]
fn a_run_that_completes_in_its_last_moment_has_completed() {
    let mut bench = Bench::start_for(Some(SLOT), Some(LIMIT_MS));
    bench.pass(LIMIT_MS);
    bench.commit(vec![], Then::Complete { output: Payload::null() }).expect("nobody has looked yet");
    assert_eq!(bench.run.status(), Status::Completed);
}

#[test]
fn a_restarted_run_gets_as_much_time_as_it_had_at_first() {
    let mut bench = Bench::start_for(Some(SLOT), Some(LIMIT_MS));
    for _ in 0..3 {
        bench.pass(LIMIT_MS);
        bench.give(Input::Wake { slot: None }).expect("it is never refused");
        assert_eq!(bench.run.status(), Status::Failed);
        bench.pass(10 * LIMIT_MS);
        bench.give(RESTART).expect("at rest");
        assert_eq!(bench.run.deadline, Some(bench.now.plus_millis(LIMIT_MS)));
    }
}

#[test]
fn a_limit_of_no_time_still_lets_a_run_begin() {
    let bench = Bench::start_for(Some(SLOT), Some(0));
    assert!(bench.run.deadline > Some(bench.now));
}
