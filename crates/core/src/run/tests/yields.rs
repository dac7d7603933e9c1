//! Activations that end because their budget is used up.

use super::*;

fn later() -> Then {
    Then::Yield { open: None }
}

#[test]
fn a_run_that_yields_is_due_at_once_and_nothing_is_held_against_it() {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    let (commit, hash) = bench.next_commit(vec![], later());
    let decision = bench.give(Input::Commit { commit, hash, homes: Vec::new() }).expect("in turn");
    assert_eq!((decision.reply, decision.effects), (Reply::Stop, vec![Effect::Enqueue]));
    assert_eq!(bench.run.phase, Phase::Pending { not_before: bench.now });
    assert_eq!(bench.run.trouble, Trouble::default());
    bench.activate(SLOT);
    assert_eq!(bench.run.epoch, Epoch(2));
}

#[test]
fn what_comes_with_a_yield_is_recorded() {
    let mut bench = Bench::running();
    assert_eq!(bench.commit(vec![succeeded("a")], later()), Ok(Reply::Stop));
    assert_eq!((bench.events().len(), bench.run.status()), (1, Status::Pending));
    assert_eq!(bench.run.trouble, Trouble::default());
}

#[test]
fn a_program_that_yields_and_has_done_nothing_is_failed_in_the_end() {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], later()).expect("in turn");
    for strikes in 1..STRIKES_MAX {
        bench.activate(SLOT);
        let began = bench.now;
        // That it says what it waits for is nothing done either.
        bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 1_000_000)]) }).expect("in turn");
        assert_eq!(bench.commit(vec![], later()), Ok(Reply::Stop));
        assert_eq!(bench.run.trouble.strikes, strikes);
        assert!(bench.run.wake_at() > Some(began), "the next one has to wait");
    }
    bench.activate(SLOT);
    bench.commit(vec![], later()).expect("in turn");
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn a_yield_after_something_came_from_outside_is_progress() {
    let mut bench = Bench::running();
    bench.signal("s", None).expect("it is kept");
    bench.commit(vec![], later()).expect("in turn");
    assert_eq!((bench.run.trouble, bench.run.status()), (Trouble::default(), Status::Pending));
}

#[test]
fn a_yield_that_has_not_seen_all_need_not_look() {
    let mut bench = Bench::running();
    let (commit, hash) =
        bench.next_commit(vec![succeeded("a")], Then::Yield { open: Some(vec![sleep(0, 5)]) });
    bench.signal("s", None).expect("it is kept");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(bench.run.open, [], "the signal may have answered that");
    assert_eq!(bench.events().len(), 2);
}

#[test]
fn a_sleep_goes_on_while_its_run_changes_programs() {
    let mut bench = Bench::running();
    let open = vec![sleep(0, 1_000)];
    bench.commit(vec![succeeded("a")], Then::Yield { open: Some(open.clone()) }).expect("in turn");
    let until = bench.run.open[0].until;
    bench.pass(400);
    bench.activate(SLOT);
    bench.commit(vec![succeeded("b")], Then::Continue { open: Some(open) }).expect("in turn");
    assert_eq!(bench.run.open[0].until, until);
    bench.pass(600);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert!(matches!(bench.events()[..], [.., Event::TimerFired { .. }]));
}

#[test]
fn a_repeated_yield_is_known_until_the_next_program_has_written() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], later());
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    bench.activate(SLOT);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    bench.commit(vec![succeeded("b")], go_on()).expect("in turn");
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
}

#[test]
fn a_row_without_a_beginning_is_one_of_a_release_that_had_no_budgets() {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], later()).expect("in turn");
    bench.activate(SLOT);
    assert!(bench.row.state.contains("\"began_at\":1,"), "{}", bench.row.state);
    bench.row.state = bench.row.state.replace("\"began_at\":1,", "");
    assert_eq!(bench.reloaded().began_at, Seq(0));
}
