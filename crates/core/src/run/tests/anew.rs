//! Runs that begin anew: what of them goes over into the next life, and what does not.

use super::*;

fn anew(keeps: &[u32]) -> Then {
    let keeps: Vec<_> = keeps.iter().copied().map(Seq).collect();
    let keeps_bytes = 4 * keeps.len() as u64;
    Then::Anew { input: Payload::encode(&"next").expect("a text"), keeps, keeps_bytes }
}

fn counted(bench: &Bench) -> Vec<u32> {
    bench.counted().map(|record| record.seq.0).collect()
}

fn life(bench: &Bench) -> u32 {
    bench.run.life.map_or(1, |life| life.number)
}

/// A run in its second life, which has begun with nothing.
fn second_life() -> Bench {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], anew(&[])).expect("in turn");
    bench.activate(SLOT);
    bench
}

#[test]
fn the_next_life_begins_with_nothing_and_behind_those_who_wait() {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    let (commit, hash) = bench.next_commit(vec![succeeded("b")], anew(&[]));
    let decision = bench.give(Input::Commit { commit, hash, homes: Vec::new() }).expect("in turn");
    assert_eq!((decision.reply, decision.effects), (Reply::Stop, vec![Effect::Enqueue]));
    assert_eq!(bench.run.phase, Phase::Pending { not_before: bench.now });
    assert_eq!((life(&bench), counted(&bench)), (2, vec![]));
    assert_eq!((bench.run.last_counted(), bench.run.head), (Seq(0), Seq(2)));
    assert_eq!(bench.run.remains, Some(Seq(2)), "what the first life left behind is to be deleted");
    assert_eq!(bench.run.input_bytes, 6);
    bench.activate(SLOT);
    assert_eq!(bench.commit(vec![succeeded("a")], go_on()), Ok(Reply::Go));
    assert_eq!(counted(&bench), [3]);
}

#[test]
fn a_cell_that_dies_at_any_time_after_it_reads_the_same_life() {
    for slot in [SLOT, TOKEN] {
        let mut bench = Bench::running();
        bench.signal("s", None).expect("it is kept");
        bench.commit(vec![succeeded("a")], anew(&[1])).expect("in turn");
        // All that does not count is deleted, the last event with it: see `Bench::check`.
        bench.journal.retain(|record| bench.run.counts(record.seq));
        bench.crash();
        assert_eq!((life(&bench), bench.run.head, counted(&bench)), (2, Seq(2), vec![1]));
        bench.activate(slot);
        bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
        bench.crash();
        assert_eq!(counted(&bench), [1, 3]);
    }
}

#[test]
fn signals_that_nobody_took_count_in_the_next_life_and_in_no_other_way_twice() {
    let mut bench = Bench::running();
    for _ in 0..4 {
        bench.signal("s", None).expect("it is kept");
    }
    assert_eq!(bench.run.inbox.unread, 4);
    bench.commit(vec![succeeded("a")], anew(&[2, 4])).expect("in turn");
    assert_eq!(counted(&bench), [2, 4]);
    assert_eq!(bench.run.inbox, Inbox { unread: 2, bytes: 8 });
    // The next one takes one of them, and a third comes.
    bench.activate(SLOT);
    bench.signal("s", None).expect("it is kept");
    bench.commit(vec![], anew(&[4, 6])).expect("in turn");
    assert_eq!((life(&bench), counted(&bench)), (3, vec![4, 6]));
    assert_eq!(bench.run.trouble, Trouble::default(), "a signal that was taken is something done");
}

#[test]
fn a_program_that_has_not_seen_all_looks_before_it_begins_anew() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], anew(&[]));
    bench.signal("s", None).expect("it is kept");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    assert_eq!((life(&bench), counted(&bench)), (1, vec![1, 2]), "what it did is on record");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go), "its repeat is known");
    assert_eq!(bench.commit(vec![], anew(&[1])), Ok(Reply::Stop));
    assert_eq!((life(&bench), counted(&bench)), (2, vec![1]));
}

#[test]
fn what_was_foreseen_and_did_not_come_does_not_begin_a_life() {
    let mut bench = Bench::running();
    let (mut commit, hash) = bench.next_commit(vec![succeeded("a")], anew(&[]));
    commit.foresees = Some(bench.now);
    bench.signal("s", None).expect("it is kept");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!((life(&bench), counted(&bench)), (1, vec![1, 2]));
    let mut bench = Bench::running();
    let (mut commit, hash) = bench.next_commit(vec![succeeded("a")], anew(&[]));
    commit.foresees = Some(bench.now);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!(life(&bench), 2);
}

#[test]
fn nobody_of_the_life_before_may_write_into_the_next() {
    let mut bench = Bench::running();
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    let (late, hash_of_late) = bench.next_commit(vec![succeeded("b")], go_on());
    let (last, hash) = bench.next_commit(vec![succeeded("c")], anew(&[]));
    bench.send(&last, hash).expect("in turn");
    let before = bench.run.clone();
    assert_eq!(bench.send(&last, hash), Ok(Reply::Stop), "its repeat is known");
    assert_eq!(bench.refused(&late, hash_of_late), Code::StaleEpoch);
    bench.activate(SLOT);
    assert_eq!(bench.send(&last, hash), Ok(Reply::Stop), "and is known when the next one is at work");
    assert_eq!(bench.refused(&late, hash_of_late), Code::StaleEpoch);
    assert_eq!(bench.run.epoch, before.epoch.next());
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    assert_eq!(bench.refused(&last, hash), Code::StaleEpoch);
    bench
        .give(Input::ActivationEnded { epoch: Epoch(1), end: CallEnd::Threw("late".into()) })
        .expect("never");
    assert!(bench.run.is_held_by(Epoch(2)), "the end of the old call is nothing to it");
}

#[test]
fn what_people_know_a_run_by_stays_and_what_its_program_has_said_does_not() {
    let mut bench = Bench::running();
    bench.run.tags = vec!["t".into()];
    let (mut commit, hash) =
        bench.next_commit(vec![failed("a", 1, Failure::new("no"), &Retry::default())], go_on());
    commit.patches = vec!["p".into()];
    commit.progress = Some(Box::new(Progress { percent: 50.0, ..Progress::default() }));
    commit.attributes = [("customer".to_owned(), "7".to_owned())].into();
    bench.send(&commit, hash).expect("in turn");
    let (before, rows) = (bench.run.clone(), bench.run.spent.rows);
    bench.commit(vec![], anew(&[])).expect("in turn");
    let Run { tags, attributes, patches, progress, last_error, open, seed, created_at, id, spent, .. } =
        bench.run.clone();
    assert_eq!((tags, id, created_at), (vec!["t".to_owned()], before.id, before.created_at));
    assert_eq!(attributes.len(), 1);
    assert_eq!((patches.len(), progress, last_error, open.len()), (0, None, None, 0));
    assert_ne!(seed, before.seed, "the same steps draw other numbers");
    assert!(spent.rows >= rows);
}

#[test]
fn every_life_has_as_much_time_as_the_first() {
    let mut bench = Bench::start_for(Some(SLOT), Some(1_000));
    bench.pass(900);
    bench.commit(vec![succeeded("a")], anew(&[])).expect("in turn");
    assert_eq!(bench.run.deadline, Some(bench.now.plus_millis(1_000)));
    bench.activate(SLOT);
    bench.pass(1_000);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn a_life_that_took_too_long_has_no_next() {
    let mut bench = Bench::start_for(Some(SLOT), Some(1_000));
    bench.pass(1_000);
    bench.commit(vec![succeeded("a")], anew(&[])).expect("in turn");
    assert_eq!((bench.run.status(), life(&bench)), (Status::Failed, 1));
}

#[test]
fn lives_that_do_nothing_are_further_and_further_apart_and_end() {
    let mut bench = Bench::running();
    bench.signal("s", None).expect("it is kept");
    for strikes in 1..STRIKES_MAX {
        let began = bench.now;
        bench.commit(vec![], anew(&[1])).expect("in turn");
        assert_eq!((bench.run.trouble.strikes, life(&bench)), (strikes, strikes + 1));
        assert!(bench.run.wake_at() > Some(began), "the next one has to wait");
        bench.activate(SLOT);
    }
    let mut other = bench.clone();
    bench.commit(vec![], anew(&[1])).expect("in turn");
    assert_eq!((bench.run.status(), life(&bench)), (Status::Failed, STRIKES_MAX));
    // One that does something is as good as any other.
    other.commit(vec![], anew(&[])).expect("in turn");
    assert_eq!((other.run.trouble, other.run.status()), (Trouble::default(), Status::Pending));
}

#[test]
fn what_is_not_there_cannot_be_kept() {
    for keeps in [&[0][..], &[1], &[2, 2], &[3, 2], &[9]] {
        let mut bench = second_life();
        bench.signal("s", None).expect("it is kept");
        bench.signal("s", None).expect("it is kept");
        bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
        let (commit, hash) = bench.next_commit(vec![], anew(keeps));
        assert_eq!(bench.refused(&commit, hash), Code::InvalidRequest, "{keeps:?}");
    }
}

#[test]
fn the_input_of_a_life_is_bounded_like_that_of_a_run() {
    let text = |bytes: usize| Payload::encode(&"x".repeat(bytes - 2)).expect("a text");
    let then = |input| Then::Anew { input, keeps: vec![], keeps_bytes: 0 };
    let most = stepwell_protocol::program::PAYLOAD_BYTES_MAX;
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], then(text(most + 1)));
    assert_eq!(bench.refused(&commit, hash), Code::PayloadTooLarge);
    assert_eq!(bench.commit(vec![succeeded("a")], then(text(most))), Ok(Reply::Stop));
    assert_eq!(life(&bench), 2);
    // Beside it there is no room for what a life waits for, as in any run.
    bench.activate(SLOT);
    let waits = (0..400).map(|n| sleep(n, 1_000)).collect();
    bench.commit(vec![], Then::Suspend { open: waits }).expect("in turn");
    assert_eq!(bench.run.status(), Status::Failed);
}

#[test]
fn a_life_that_does_not_fit_into_its_row_is_none() {
    let mut bench = Bench::running();
    for _ in 0..2_000 {
        bench.signal("s", None).expect("it is kept");
    }
    let most = stepwell_protocol::program::PAYLOAD_BYTES_MAX;
    let input = Payload::encode(&"x".repeat(most - 2)).expect("a text");
    // Every second one is kept: a thousand gaps do not fit beside such an input.
    let keeps: Vec<_> = (1..=1_000).map(|n| Seq(2 * n)).collect();
    let commit = |bench: &mut Bench, input| {
        let then = Then::Anew { input, keeps: keeps.clone(), keeps_bytes: 0 };
        bench.commit(vec![], then).expect("in turn");
    };
    let mut small = bench.clone();
    commit(&mut bench, input);
    assert_eq!((bench.run.status(), life(&bench)), (Status::Failed, 1));
    assert_eq!(counted(&bench).len(), 2_000, "nothing is lost");
    commit(&mut small, Payload::null());
    assert_eq!((life(&small), counted(&small).len()), (2, 1_000));
}

#[test]
fn a_paused_run_begins_anew_when_it_is_resumed() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], anew(&[]));
    bench.give(Input::Pause).expect("it has not ended");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!((life(&bench), counted(&bench)), (1, vec![1]));
    bench.give(Input::Resume { slot: Some(SLOT) }).expect("it is paused");
    bench.commit(vec![], anew(&[])).expect("in turn");
    assert_eq!(life(&bench), 2);
}

#[test]
fn a_run_that_is_taken_back_begins_its_present_life_again() {
    let mut bench = second_life();
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    bench.commit(vec![], Then::Fail { failure: Failure::new("no") }).expect("in turn");
    let cut = Cut { after: Seq(1), through: bench.run.head };
    let restart = Input::Restart {
        cuts: vec![cut],
        signals: vec![],
        dropped: None,
        keeps_progress: false,
        slot: Some(SLOT),
    };
    bench.give(restart).expect("it is at rest");
    assert_eq!((life(&bench), counted(&bench)), (2, vec![]));
    assert_eq!(bench.commit(vec![succeeded("a")], go_on()), Ok(Reply::Go));
}

#[test]
fn what_a_program_has_not_taken_is_counted_without_what_was_cut() {
    let mut bench = second_life();
    bench.signal("s", None).expect("it is kept");
    bench.signal("s", None).expect("it is kept");
    assert_eq!(bench.run.inbox.unread, 2);
    // It knows of nothing yet: only the two signals are behind its base, not what the life before has left there.
    let (mut commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    commit.base = Seq(0);
    bench.send(&commit, hash).expect("in turn");
    assert_eq!(bench.run.inbox.unread, 2);
    let (mut commit, hash) = bench.next_commit(vec![succeeded("b")], go_on());
    commit.unread = 1;
    bench.send(&commit, hash).expect("in turn");
    assert_eq!(bench.run.inbox.unread, 1);
}
