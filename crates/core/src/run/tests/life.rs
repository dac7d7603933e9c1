//! Start, activation, cancellation, and the end that nothing changes.

use stepwell_protocol::program::PAYLOAD_BYTES_MAX;

use super::*;

fn every_unfinished() -> Vec<Bench> {
    let mut paused = Bench::running();
    paused.commit(vec![], Then::Pause { problem: problem() }).expect("in turn");
    let mut orphaned = Bench::start(Some(TOKEN));
    orphaned.crash();
    vec![
        Bench::start(None),
        Bench::running(),
        orphaned,
        Bench::suspended(vec![sleep(0, 100), wait("s", 0, None)]),
        paused,
    ]
}

#[test]
fn a_run_with_a_slot_is_activated_in_the_commit_that_starts_it() {
    let bench = Bench::start(Some(SLOT));
    assert!(bench.run.is_held_by(Epoch(1)));
    assert_eq!(bench.row.status, "running");
}

#[test]
fn a_run_without_a_slot_is_due_at_once() {
    let bench = Bench::start(None);
    assert_eq!(bench.row.wake_at, Some(bench.now));
    assert_eq!(bench.row.status, "pending");
}

#[test]
fn a_second_grant_does_not_activate_twice() {
    let mut bench = Bench::start(None);
    bench.activate(SLOT);
    let decision = bench.give(Input::Activate(SLOT)).expect("it is never refused");
    assert_eq!(decision, Decision { reply: Reply::Unchanged, ..Decision::default() });
    assert_eq!(bench.run.epoch, Epoch(1));
}

#[test]
fn a_cancel_ends_a_run_wherever_it_stands() {
    for mut bench in every_unfinished() {
        let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
        let is_at_work = matches!(bench.run.phase, Phase::Running { .. }) || bench.run.draining;
        let decision = bench.give(Input::Cancel).expect("it has not ended");
        // A host would wait for ever for a program that is not there to hear of it.
        let tells = decision.effects.contains(&Effect::TellProgram);
        assert_eq!((tells, decision.effects.last()), (is_at_work, Some(&Effect::TellEnd)));
        assert_eq!(bench.run.status(), Status::Cancelled);
        assert_eq!(bench.run.wake_at(), None);
        assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
        let again = bench.give(Input::Cancel).expect("it may be said twice");
        assert_eq!(again, Decision { reply: Reply::Unchanged, ..Decision::default() });
    }
}

#[test]
fn the_repeat_of_a_commit_after_a_cancel_is_refused() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.send(&commit, hash).expect("it continues the journal");
    bench.give(Input::Cancel).expect("it has not ended");
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
}

#[test]
fn a_paused_run_stays_so_and_keeps_its_signals() {
    let mut bench = Bench::running();
    bench.commit(vec![], Then::Pause { problem: problem() }).expect("in turn");
    bench.pass(1_000_000);
    bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    bench.signal("s", Some(SLOT)).expect("it is kept");
    bench.crash();
    assert_eq!(bench.run.phase, Phase::Paused { why: PauseWhy::Problem(problem()) });
    assert_eq!(bench.journal.len(), 1);
}

#[test]
fn a_signal_that_is_too_large_is_refused() {
    let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
    let payload = Payload::from_text(text).expect("a string is JSON");
    for mut bench in every_unfinished() {
        let input = Input::Signal { signal: Signal::new("s", payload.clone()), slot: None };
        assert_eq!(bench.give(input).expect_err("it is too large").code, Code::PayloadTooLarge);
        assert!(bench.journal.is_empty());
    }
}

#[test]
fn a_record_alone_does_not_write_the_run_row() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    let decision = bench.give(Input::Commit { commit, hash, homes: Vec::new() }).expect("in turn");
    assert_eq!(decision.entries.len(), 1);
    assert!(!decision.entries[0].changes_row());
}

#[test]
fn state_that_cannot_be_read_is_reported_with_the_number_of_its_run() {
    let bench = Bench::running();
    let Run { id, workflow, created_at, .. } = bench.run;
    let error = Run::from_row(id, workflow, created_at, "{}", Tail::default()).expect_err("it lacks all");
    assert!(error.to_string().contains("run 1"), "{error}");
}
