//! A run that somebody has paused: what was under way is kept, nothing new begins, nothing is lost.

use std::collections::BTreeMap;

use stepwell_protocol::program::Attributes;

use super::*;

fn pause(bench: &mut Bench) -> Decision {
    bench.give(Input::Pause).expect("it has not ended")
}

fn resume(bench: &mut Bench) {
    bench.give(Input::Resume { slot: Some(SLOT) }).expect("it has not ended");
    assert!(bench.run.is_held_by(bench.run.epoch));
}

fn begun(name: &str) -> Command {
    Command::StepBegun { op: op(OpKind::Step, name, 0) }
}

#[test]
fn what_was_under_way_when_a_run_was_paused_is_recorded_once() {
    let ends = [
        go_on(),
        Then::Continue { open: Some(vec![sleep(0, 5)]) },
        Then::Suspend { open: vec![sleep(0, 5)] },
        Then::Complete { output: Payload::null() },
        Then::Fail { failure: Failure::new("no") },
        Then::Pause { problem: problem() },
    ];
    for then in ends {
        let mut bench = Bench::running();
        pause(&mut bench);
        let (commit, hash) = bench.next_commit(vec![succeeded("a")], then);
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop), "{:?}", commit.then);
        assert_eq!(bench.run.phase, Phase::Paused { why: PauseWhy::Request });
        bench.run = bench.reloaded();
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop), "its repeat too: {:?}", commit.then);
        assert_eq!(bench.journal.len(), 1);
        resume(&mut bench);
        assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
        assert_eq!(bench.commit(vec![succeeded("b")], go_on()), Ok(Reply::Go));
    }
}

#[test]
fn a_program_whose_answer_was_lost_is_told_to_stop_if_its_run_was_paused_since() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    pause(&mut bench);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(bench.journal.len(), 1);
}

#[test]
fn a_step_that_must_not_run_twice_does_not_begin_while_its_run_is_paused() {
    let mut bench = Bench::running();
    pause(&mut bench);
    let (commit, hash) = bench.next_commit(vec![succeeded("a"), begun("b")], go_on());
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop), "its repeat is known");
    // On record, it would look like one that was cut short.
    assert!(matches!(bench.events()[..], [Event::StepFinished { .. }]), "{:?}", bench.events());
    resume(&mut bench);
    assert_eq!(bench.commit(vec![begun("b")], go_on()), Ok(Reply::Go));
}

#[test]
fn only_what_was_at_work_when_the_run_was_paused_may_still_speak() {
    let pending_again = |slot: Slot| {
        let mut bench = Bench::start(Some(slot));
        bench
            .give(Input::ActivationEnded { epoch: Epoch(1), end: CallEnd::Lost("gone".into()) })
            .expect("never");
        bench
    };
    for mut bench in [pending_again(SLOT), pending_again(TOKEN), Bench::suspended(vec![sleep(0, 100)])] {
        let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
        pause(&mut bench);
        assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
        bench.run = bench.reloaded();
        assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
    }
}

#[test]
fn a_program_that_was_paused_twice_over_cannot_write_into_what_came_since() {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    let (late, hash) = bench.next_commit(vec![succeeded("b")], go_on());
    pause(&mut bench);
    // No slot is free: it is pending, still at the old epoch, and paused again before its turn comes.
    let cuts = vec![Cut { after: Seq(0), through: Seq(1) }];
    bench
        .give(Input::Restart { cuts, signals: vec![], dropped: None, keeps_progress: false, slot: None })
        .expect("it is at rest");
    pause(&mut bench);
    assert_eq!(bench.refused(&late, hash), Code::StaleEpoch);
}

#[test]
fn a_paused_sleep_is_over_after_the_run_goes_on() {
    let mut bench = Bench::suspended(vec![sleep(0, 100)]);
    pause(&mut bench);
    assert_eq!(bench.run.wake_at(), None);
    bench.pass(1_000);
    assert_eq!(bench.give(Input::Wake { slot: Some(SLOT) }), Ok(Decision::default()));
    bench.crash();
    resume(&mut bench);
    assert_eq!(bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }), Ok(Reply::Stop));
    bench.pass(1);
    bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert!(matches!(bench.events()[..], [Event::TimerFired { .. }]));
}

#[test]
fn a_sleep_that_is_not_over_when_its_run_goes_on_keeps_its_end() {
    let mut bench = Bench::suspended(vec![sleep(0, 100)]);
    let end = bench.run.wake_at();
    pause(&mut bench);
    bench.pass(50);
    resume(&mut bench);
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }).expect("in turn");
    assert_eq!(bench.run.wake_at(), end);
}

#[test]
fn signals_to_a_paused_run_are_kept_for_when_it_goes_on() {
    let mut bench = Bench::suspended(vec![wait("s", 0, None)]);
    pause(&mut bench);
    let decision = bench.signal("s", Some(SLOT)).expect("it is kept");
    assert_eq!(decision.effects, []);
    bench.crash();
    resume(&mut bench);
    // The program has seen the signal, so it waits for the next.
    assert_eq!(bench.commit(vec![], Then::Suspend { open: vec![wait("s", 1, None)] }), Ok(Reply::Stop));
    assert_eq!(bench.journal.len(), 1);
}

#[test]
fn a_run_that_is_not_paused_is_not_changed_by_resuming_it() {
    let mut orphan = Bench::start(Some(TOKEN));
    orphan.crash();
    let benches = [Bench::start(None), Bench::running(), orphan, Bench::suspended(vec![sleep(0, 100)])];
    for mut bench in benches {
        let before = bench.run.clone();
        let decision = bench.give(Input::Resume { slot: Some(SLOT) }).expect("it has not ended");
        assert_eq!(decision, Decision { reply: Reply::Unchanged, ..Decision::default() });
        assert_eq!(bench.run, before);
    }
}

#[test]
fn a_pause_is_said_once_and_what_stopped_a_run_stays_its_reason() {
    let mut bench = Bench::running();
    bench.commit(vec![], Then::Pause { problem: problem() }).expect("in turn");
    assert_eq!(pause(&mut bench).reply, Reply::Unchanged);
    assert_eq!(bench.run.phase, Phase::Paused { why: PauseWhy::Problem(problem()) });
    resume(&mut bench);
    assert_eq!(pause(&mut bench).reply, Reply::Done);
    assert_eq!(pause(&mut bench).reply, Reply::Unchanged);
}

#[test]
fn the_end_of_the_call_of_a_paused_run_is_no_trouble() {
    for end in [CallEnd::Returned, CallEnd::Threw("no".into()), CallEnd::Lost("gone".into())] {
        let mut bench = Bench::running();
        pause(&mut bench);
        bench.give(Input::ActivationEnded { epoch: Epoch(1), end }).expect("it is never refused");
        assert_eq!(bench.run.trouble, Trouble::default());
        assert_eq!(bench.run.phase, Phase::Paused { why: PauseWhy::Request });
    }
}

#[test]
fn a_person_who_resumes_a_run_forgives_its_troubles() {
    let mut bench = Bench::running();
    for _ in 1..STRIKES_MAX {
        let epoch = bench.run.epoch;
        bench.give(Input::ActivationEnded { epoch, end: CallEnd::Threw("no".into()) }).expect("never");
        bench.activate(SLOT);
    }
    pause(&mut bench);
    resume(&mut bench);
    let epoch = bench.run.epoch;
    bench.give(Input::ActivationEnded { epoch, end: CallEnd::Threw("no".into()) }).expect("never");
    assert_eq!(bench.run.trouble.strikes, 1);
}

#[test]
fn a_paused_run_can_be_cancelled_and_its_program_is_refused_then() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    pause(&mut bench);
    bench.give(Input::Cancel).expect("it has not ended");
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
}

#[test]
fn patches_and_progress_of_a_paused_program_are_kept() {
    let mut bench = Bench::running();
    pause(&mut bench);
    let (mut commit, hash) = bench.next_commit(vec![], go_on());
    commit.patches = vec!["p".into()];
    commit.progress = Some(Box::new(Progress { percent: 10.0, message: "a".into(), ..Progress::default() }));
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(bench.run.patches, ["p"]);
    let said = bench.run.progress.map(|progress| (progress.percent, progress.message));
    assert_eq!(said, Some((10.0, "a".into())));
}

#[test]
fn a_patch_is_on_record_once_however_often_it_is_said() {
    let mut bench = Bench::running();
    // There is news, so nothing but the patch is recorded, and no commit is remembered.
    let open = Some(vec![sleep(0, 5)]);
    let (mut commit, hash) = bench.next_commit(vec![], Then::Continue { open });
    commit.patches = vec!["p".into(), "p".into()];
    bench.signal("s", None).expect("it is kept");
    for _ in 0..3 {
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    }
    assert_eq!(bench.run.patches, ["p"]);
}

#[test]
fn patches_and_progress_that_could_not_be_stored_are_refused() {
    let long = "x".repeat(5_000);
    let cases = [
        (vec![String::new()], None),
        (vec![long.clone()], None),
        ((0..2_000).map(|n| n.to_string()).collect(), None),
        (vec![], Some(Box::new(Progress { percent: 1.0, message: long, ..Progress::default() }))),
    ];
    for (patches, progress) in cases {
        let mut bench = Bench::running();
        let (mut commit, hash) = bench.next_commit(vec![], go_on());
        (commit.patches, commit.progress) = (patches, progress);
        assert_eq!(bench.refused(&commit, hash), Code::InvalidRequest);
    }
}

#[test]
fn an_attribute_is_recorded_once_and_remembers_what_it_was() {
    let mut bench = Bench::running();
    let set = |bench: &mut Bench, value: &str| {
        let (mut commit, hash) = bench.next_commit(vec![], go_on());
        commit.attributes = [("customer".to_owned(), value.to_owned())].into();
        let decision =
            bench.run.decide(bench.now, Input::Commit { commit, hash, homes: Vec::new() }).expect("in turn");
        let entries = decision.entries.clone();
        bench.run.apply_all(&entries);
        entries
    };
    let (name, acme, other) = ("customer".to_owned(), "acme".to_owned(), "other".to_owned());
    let first = Entry::Attributed { name: name.clone(), value: acme.clone(), before: None };
    assert!(set(&mut bench, "acme").contains(&first));
    let again = set(&mut bench, "acme");
    assert!(!again.iter().any(|entry| matches!(entry, Entry::Attributed { .. })), "{again:?}");
    let changed = Entry::Attributed { name, value: other, before: Some(acme) };
    assert!(set(&mut bench, "other").contains(&changed));
    assert_eq!(bench.run.attributes["customer"], "other");
    bench.crash();
}

#[test]
fn attributes_of_a_paused_program_are_kept() {
    let mut bench = Bench::running();
    pause(&mut bench);
    let (mut commit, hash) = bench.next_commit(vec![], go_on());
    commit.attributes = [("a".to_owned(), "b".to_owned())].into();
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    bench.crash();
    assert_eq!(bench.run.attributes["a"], "b");
}

#[test]
fn attributes_that_could_not_be_stored_are_refused() {
    let of = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let many = (0..=Attributes::MAX).map(|n| (n.to_string(), String::new())).collect();
    let long = "x".repeat(Attributes::NAME_LENGTH_MAX + 1);
    let longer = "x".repeat(Attributes::VALUE_LENGTH_MAX + 1);
    for attributes in
        [of("", "v"), of("a:b", "v"), of("a\u{1f}b", "v"), of(&long, "v"), of("a", &longer), many]
    {
        let mut bench = Bench::running();
        let (mut commit, hash) = bench.next_commit(vec![], go_on());
        commit.attributes = attributes;
        assert_eq!(bench.refused(&commit, hash), Code::InvalidRequest);
    }
}
