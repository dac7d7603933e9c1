//! A run that is taken back: what was cut does not count, what was not cut does, and what comes after is as in
//! any other run.

use super::*;

fn ended(then: Then) -> Bench {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    bench.signal("s", None).expect("it is kept");
    bench.commit(vec![succeeded("b")], then).expect("in turn");
    bench
}

fn failed_run() -> Bench {
    ended(Then::Fail { failure: Failure::new("no") })
}

fn back_to(bench: &mut Bench, after: u32, slot: Option<Slot>) {
    let cut = Cut { after: Seq(after), through: bench.run.head };
    let signals = bench
        .counted()
        .filter(|record| record.seq > cut.after)
        .filter_map(|record| Signal::of(&record.event));
    let signals = signals.collect();
    bench
        .give(Input::Restart { cuts: vec![cut], signals, dropped: None, keeps_progress: false, slot })
        .expect("it is at rest");
}

fn counted(bench: &Bench) -> Vec<u32> {
    bench.counted().map(|record| record.seq.0).collect()
}

#[test]
fn a_restarted_run_goes_on_from_before_what_was_cut() {
    let benches = [
        failed_run(),
        ended(Then::Complete { output: Payload::null() }),
        ended(Then::Pause { problem: problem() }),
    ];
    for mut bench in benches {
        back_to(&mut bench, 1, Some(SLOT));
        assert!(bench.run.is_held_by(Epoch(2)));
        // The signal was acknowledged: it is received again, after the cut.
        assert_eq!(counted(&bench), [1, 4]);
        assert_eq!(bench.commit(vec![succeeded("b")], go_on()), Ok(Reply::Go));
        assert_eq!(counted(&bench), [1, 4, 5]);
    }
}

#[test]
fn a_cell_that_dies_right_after_a_restart_reads_the_same_run() {
    // `Bench::check` compares rows and memory after every transition; here the run goes on from rows alone.
    for after in 0..=3 {
        for slot in [None, Some(SLOT), Some(TOKEN)] {
            let mut bench = failed_run();
            back_to(&mut bench, after, slot);
            let kept = counted(&bench);
            bench.crash();
            if let Phase::Pending { .. } = bench.run.phase {
                bench.activate(ALONE);
            }
            assert_eq!(counted(&bench), kept);
            assert_eq!(bench.commit(vec![succeeded("c")], go_on()), Ok(Reply::Go));
            bench.crash();
            assert_eq!(counted(&bench).len(), kept.len() + 1);
        }
    }
}

#[test]
fn a_run_that_was_taken_back_before_its_first_event_begins_at_nothing() {
    let mut bench = failed_run();
    bench.journal.iter().for_each(|record| assert!(record.seq <= Seq(3)));
    let cut = Cut { after: Seq(0), through: Seq(3) };
    bench
        .give(Input::Restart {
            cuts: vec![cut],
            signals: vec![],
            dropped: None,
            keeps_progress: false,
            slot: Some(SLOT),
        })
        .expect("at rest");
    assert_eq!(bench.run.last_counted(), Seq(0));
    // What a program that knows nothing says is not news to it.
    assert_eq!(bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 9)] }), Ok(Reply::Stop));
    assert_eq!(bench.run.phase, Phase::Suspended);
}

#[test]
fn a_base_within_what_was_cut_is_refused() {
    let mut bench = failed_run();
    back_to(&mut bench, 1, Some(SLOT));
    for base in [2, 3] {
        let (mut commit, hash) = bench.next_commit(vec![succeeded("x")], go_on());
        commit.base = Seq(base);
        assert_eq!(bench.refused(&commit, hash), Code::BaseMismatch);
    }
    for base in [1, 4] {
        let mut bench = bench.clone();
        let (mut commit, hash) = bench.next_commit(vec![succeeded("x")], go_on());
        commit.base = Seq(base);
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    }
}

#[test]
fn the_program_of_before_a_restart_is_refused() {
    for slot in [None, Some(SLOT)] {
        let mut bench = Bench::running();
        bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
        let (late, hash) = bench.next_commit(vec![succeeded("b")], go_on());
        bench.give(Input::Cancel).expect("it has not ended");
        back_to(&mut bench, 0, slot);
        assert_eq!(bench.refused(&late, hash), Code::StaleEpoch);
    }
}

#[test]
fn the_repeat_of_a_commit_that_was_cut_is_not_taken_for_one_that_counts() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.send(&commit, hash).expect("it continues the journal");
    bench.give(Input::Pause).expect("it has not ended");
    back_to(&mut bench, 0, None);
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
}

#[test]
fn a_run_may_be_taken_back_again_and_again() {
    let mut bench = failed_run();
    for round in 0..5 {
        back_to(&mut bench, 1, Some(SLOT));
        let kept = counted(&bench);
        assert_eq!(kept.len(), 2, "round {round}: step and signal");
        bench.commit(vec![succeeded("b")], go_on()).expect("in turn");
        bench.commit(vec![succeeded("c")], Then::Fail { failure: Failure::new("no") }).expect("in turn");
        assert_eq!(bench.run.status(), Status::Failed);
    }
    back_to(&mut bench, 0, Some(SLOT));
    assert_eq!(counted(&bench).len(), 1, "the one signal");
}

#[test]
fn sleeps_begin_anew_in_a_restarted_run() {
    let mut bench = Bench::suspended(vec![sleep(0, 100)]);
    bench.give(Input::Pause).expect("it has not ended");
    bench.pass(80);
    back_to(&mut bench, 0, Some(SLOT));
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }).expect("in turn");
    assert_eq!(bench.run.wake_at(), Some(bench.now.plus_millis(100)));
}

#[test]
fn a_restart_that_cuts_nothing_goes_on_with_all_there_is() {
    let mut bench = failed_run();
    bench.give(RESTART).expect("it is at rest");
    assert_eq!(counted(&bench), [1, 2, 3]);
    assert_eq!(bench.commit(vec![succeeded("c")], go_on()), Ok(Reply::Go));
}

#[test]
fn trouble_and_suspicion_do_not_follow_a_run_into_its_restart() {
    let mut bench = Bench::running();
    while !matches!(bench.run.phase, Phase::Ended { .. }) {
        bench.crash();
        if let Phase::Pending { .. } = bench.run.phase {
            bench.activate(ALONE);
        }
    }
    back_to(&mut bench, 0, None);
    assert_eq!(bench.run.trouble, Trouble::default());
    assert!(!bench.run.wants_to_be_alone());
}

#[test]
fn a_journal_is_cut_in_a_bounded_number_of_places() {
    let every_second =
        |count: usize| (0..count).map(|n| Cut::only(Seq(u32::try_from(2 * n + 1).expect("few"))));
    let restart = |cuts| Input::Restart {
        cuts,
        signals: vec![],
        dropped: None,
        keeps_progress: false,
        slot: Some(SLOT),
    };
    let mut bench = failed_run();
    let before = bench.run.clone();
    let refused = bench.give(restart(every_second(CUTS_MAX + 1).collect())).expect_err("these are too many");
    assert_eq!(refused.code, Code::TooMany);
    assert_eq!(bench.run, before);
    // Cuts that touch are one.
    let through = Seq(bench.run.head.0);
    let all = Cut { after: Seq(0), through };
    bench.give(restart(vec![Cut::only(Seq(2)), Cut::only(Seq(1)), all])).expect("it is at rest");
    assert_eq!(bench.run.cuts, [all]);
}
