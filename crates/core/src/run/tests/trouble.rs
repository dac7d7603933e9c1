//! Programs and cells that die.

use stepwell_protocol::rest::{RunView, Status};

use super::*;

fn dies(bench: &mut Bench, end: CallEnd) {
    let epoch = bench.run.epoch;
    bench.give(Input::ActivationEnded { epoch, end }).expect("it is never refused");
}

fn threw() -> CallEnd {
    CallEnd::Threw("out of memory".into())
}

#[test]
fn an_orphan_with_a_capability_is_queued_again_at_once() {
    let mut bench = Bench::running();
    bench.crash();
    assert_eq!(bench.run.phase, Phase::Pending { not_before: bench.now });
    assert_eq!(bench.run.trouble, Trouble { suspicion: 1, ..Trouble::default() });
}

#[test]
fn a_token_outlives_its_cell_for_as_long_as_something_is_heard_of_it() {
    let mut bench = Bench::start(Some(TOKEN));
    let epoch = bench.run.epoch;
    for round in 0..3 {
        bench.crash();
        bench.pass(LEASE_MS - 1);
        wakes(&mut bench);
        match round {
            0 => assert_eq!(bench.commit(vec![succeeded("a")], go_on()), Ok(Reply::Go)),
            1 => drop(bench.give(Input::Heard { epoch }).expect("it is at work")),
            _ => {
                let (again, hash) = bench.next_commit(vec![], go_on());
                assert_eq!(bench.send(&again, hash), Ok(Reply::Go));
                bench.pass(1);
                assert_eq!(bench.send(&again, hash), Ok(Reply::Go), "a repeat is a word, too");
            }
        }
        bench.pass(LEASE_MS - 1);
        wakes(&mut bench);
        assert!(bench.run.is_held_by(epoch), "round {round}: {:?}", bench.run.phase);
    }
    let (late, hash) = bench.next_commit(vec![succeeded("b")], go_on());
    bench.pass(1);
    wakes(&mut bench);
    assert!(matches!(bench.run.phase, Phase::Pending { not_before } if not_before > bench.now));
    assert_eq!(bench.refused(&late, hash), Code::StaleEpoch);
    assert!(bench.give(Input::Heard { epoch }).is_err(), "it need not go on");
}

fn wakes(bench: &mut Bench) {
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
}

#[test]
fn a_lease_that_ends_is_a_loss_and_makes_suspicious() {
    let mut bench = Bench::start(Some(TOKEN));
    bench.pass(LEASE_MS);
    wakes(&mut bench);
    let expected = Trouble { suspicion: 1, losses: 1, ..Trouble::default() };
    assert_eq!(bench.run.trouble, expected);
}

#[test]
fn a_run_whose_consumers_die_while_they_have_nothing_else_is_failed() {
    let mut bench = Bench::start(Some(TOKEN));
    let mut deaths = 0;
    while !matches!(bench.run.phase, Phase::Ended { .. }) {
        bench.pass(LEASE_MS);
        wakes(&mut bench);
        deaths += 1;
        if let Phase::Pending { .. } = bench.run.phase {
            bench.activate(Slot { alone: true, ..TOKEN });
        }
    }
    assert_eq!(deaths, SUSPICION_ALONE + STRIKES_MAX);
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn what_waits_is_not_troubled_by_a_crash() {
    let paused = {
        let mut bench = Bench::running();
        bench.commit(vec![], Then::Pause { problem: problem() }).expect("in turn");
        bench
    };
    for mut bench in [Bench::start(None), Bench::suspended(vec![sleep(0, 100)]), paused] {
        let before = bench.run.clone();
        let decision = bench.give(Input::Reload).expect("it is never refused");
        assert_eq!((decision, &bench.run), (Decision::default(), &before));
    }
}

#[test]
fn a_run_under_suspicion_is_activated_alone() {
    let mut bench = Bench::running();
    for _ in 0..SUSPICION_ALONE {
        assert!(!bench.run.wants_to_be_alone());
        bench.crash();
        bench.give(Input::Activate(SLOT)).expect("it is never refused");
    }
    assert!(bench.run.wants_to_be_alone());
    assert!(matches!(bench.run.phase, Phase::Pending { .. }), "it waits for an empty window");
    bench.activate(ALONE);
}

#[test]
fn a_signal_does_not_bring_a_suspicious_run_beside_others() {
    let mut bench = Bench::running();
    for _ in 0..SUSPICION_ALONE {
        bench.crash();
        bench.activate(ALONE);
    }
    bench.crash();
    bench.signal("s", Some(SLOT)).expect("it is kept");
    bench.pass(TROUBLE_BACKOFF_MS_MAX);
    let decision = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert_eq!(decision.effects, [Effect::Enqueue]);
}

#[test]
fn resets_beside_others_never_fail_a_run() {
    let mut bench = Bench::running();
    for _ in 0..5 * STRIKES_MAX {
        bench.crash();
        assert_eq!(bench.run.trouble.strikes, 0);
        // Not what the window does, but only a death alone may count.
        bench.run.trouble.suspicion = 0;
        bench.row = bench.run.to_row();
        bench.activate(SLOT);
    }
}

#[test]
fn only_a_run_that_dies_alone_and_under_suspicion_is_failed() {
    let mut bench = Bench::running();
    let mut deaths = 0;
    while !matches!(bench.run.phase, Phase::Ended { .. }) {
        bench.crash();
        deaths += 1;
        if let Phase::Pending { .. } = bench.run.phase {
            bench.activate(ALONE);
        }
    }
    assert_eq!(deaths, SUSPICION_ALONE + STRIKES_MAX);
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn a_program_that_throws_again_and_again_is_failed() {
    for end in [threw(), CallEnd::Returned] {
        let mut bench = Bench::running();
        for strikes in 1..STRIKES_MAX {
            dies(&mut bench, end.clone());
            assert_eq!(bench.run.trouble.strikes, strikes);
            bench.activate(SLOT);
        }
        dies(&mut bench, end);
        assert_eq!(bench.run.status(), Status::Failed);
    }
}

#[test]
fn a_program_that_cannot_be_reached_is_tried_for_ever() {
    let mut bench = Bench::running();
    for _ in 0..100 {
        dies(&mut bench, CallEnd::Lost("connection refused".into()));
        bench.activate(SLOT);
    }
    assert_eq!(bench.run.trouble.strikes, 0);
}

#[test]
fn a_program_that_refuses_to_be_called_keeps_its_run_waiting_with_the_reason() {
    let mut bench = Bench::running();
    for _ in 0..100 {
        dies(&mut bench, refused());
        let view = RunView::from(&bench.run);
        assert_eq!(view.status, Status::Pending);
        assert_eq!(view.problem.map(|problem| problem.code), Some(Code::AppKeyMissing));
        assert!(bench.run.why(bench.now).because.contains("STEPWELL_APP_KEY"));
        bench.activate(SLOT);
    }
    assert_eq!(bench.run.trouble.strikes, 0);

    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    dies(&mut bench, CallEnd::Lost("connection refused".into()));
    assert_eq!(RunView::from(&bench.run).problem, None, "that was before");
}

#[test]
fn the_pause_between_activations_grows_up_to_a_limit() {
    let mut bench = Bench::running();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let before = bench.now;
        dies(&mut bench, CallEnd::Lost("connection refused".into()));
        let Phase::Pending { not_before } = bench.run.phase else { panic!("{:?}", bench.run.phase) };
        pauses.push(not_before.as_millis() - before.as_millis());
        let early = bench.give(Input::Activate(SLOT)).expect("it is never refused");
        assert_eq!(early.reply, Reply::Unchanged, "not before its time");
        bench.activate(SLOT);
    }
    assert_eq!(pauses[..3], [100, 200, 400]);
    assert_eq!(pauses[11], TROUBLE_BACKOFF_MS_MAX);
    assert!(pauses.is_sorted());
}

#[test]
fn progress_voids_all_trouble() {
    let mut bench = Bench::running();
    for round in 0..3 * STRIKES_MAX {
        dies(&mut bench, threw());
        assert_eq!(bench.run.trouble.strikes, 1, "round {round}");
        bench.activate(SLOT);
        bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
        bench.crash();
        bench.activate(SLOT);
        bench.commit(vec![succeeded("b")], go_on()).expect("in turn");
        assert!(!bench.run.wants_to_be_alone());
    }
}

#[test]
fn news_from_outside_is_no_progress() {
    let mut bench = Bench::running();
    for _ in 1..STRIKES_MAX {
        dies(&mut bench, threw());
        bench.signal("s", None).expect("it is kept");
        bench.activate(SLOT);
    }
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 9)]) }).expect("in turn");
    dies(&mut bench, threw());
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn the_end_of_a_superseded_call_means_nothing() {
    let mut bench = Bench::running();
    bench.crash();
    bench.activate(SLOT);
    let before = bench.run.clone();
    for end in [CallEnd::Returned, threw(), CallEnd::Lost("gone".into())] {
        let decision = bench.give(Input::ActivationEnded { epoch: Epoch(1), end }).expect("never refused");
        assert_eq!(decision, Decision { reply: Reply::Unchanged, ..Decision::default() });
    }
    assert_eq!(bench.run, before);
}

#[test]
fn the_call_of_a_suspended_run_ends_without_a_strike() {
    let mut bench = Bench::suspended(vec![sleep(0, 100)]);
    dies(&mut bench, CallEnd::Returned);
    assert_eq!(bench.run.trouble, Trouble::default());
    assert_eq!(bench.run.phase, Phase::Suspended);
}

fn died() -> CallEnd {
    CallEnd::Died("the instance was stopped".into())
}

#[test]
fn a_program_that_dies_beside_others_is_only_suspected() {
    let mut bench = Bench::running();
    for suspicion in 1..=SUSPICION_ALONE {
        dies(&mut bench, died());
        assert_eq!(bench.run.trouble, Trouble { suspicion, ..Trouble::default() });
        bench.activate(ALONE);
    }
    for strikes in 1..STRIKES_MAX {
        dies(&mut bench, died());
        assert_eq!(bench.run.trouble.strikes, strikes);
        bench.activate(ALONE);
    }
    dies(&mut bench, died());
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn two_runs_that_die_together_are_not_called_together_again() {
    let pauses = |seed: u64| {
        let mut bench = Bench::running();
        bench.run.seed = seed;
        bench.row = bench.run.to_row();
        let mut pauses = Vec::new();
        for _ in 0..SUSPICION_ALONE + STRIKES_MAX - 1 {
            bench.crash();
            let Phase::Pending { not_before } = bench.run.phase else { panic!("{:?}", bench.run.phase) };
            pauses.push(not_before.as_millis() - bench.now.as_millis());
            bench.activate(ALONE);
        }
        pauses
    };
    let (one, other) = (pauses(1), pauses(2));
    assert!(one.iter().all(|pause| *pause <= 2 * TROUBLE_BACKOFF_MS_MAX), "{one:?}");
    let apart = one.iter().zip(&other).filter(|(one, other)| one.abs_diff(**other) > 50).count();
    assert!(apart >= 6, "{one:?} {other:?}");
}
