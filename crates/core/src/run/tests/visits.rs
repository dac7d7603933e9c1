//! Steps that wait for a lane: let in once, by a ticket that is over when their attempt is on record or their run stops.

use stepwell_protocol::lane::{Limit, StepLane};

use super::*;

fn api() -> StepLane {
    let limit = Limit { by: "key".into(), key: "acme".into(), max: 2, per_ms: None, is_own: false };
    StepLane { lane: "api".into(), limits: vec![limit] }
}

fn lane(name: &str) -> Open {
    Open::Lane { op: op(OpKind::Step, name, 0), lane: Box::new(api()) }
}

fn let_in(ticket: u32) -> Input {
    Input::StepLetIn { ticket, slot: Some(SLOT) }
}

fn tickets(bench: &Bench) -> Vec<u32> {
    bench.run.step_tickets().map(|(_, ticket)| ticket).collect()
}

/// The tickets that an activation is told to hold.
fn places(bench: &Bench) -> Vec<u32> {
    let told = bench.run.told_of_places().expect("its steps have asked lanes");
    assert_eq!(told.through, bench.run.head);
    told.tickets
}

/// The steps that the journal says to be let in, as far as it counts.
fn admitted(bench: &Bench) -> Vec<String> {
    let events = bench.counted().map(|record| &record.event);
    let names =
        events.filter_map(
            |event| if let Event::StepLetIn { op, .. } = event { Some(op.name.clone()) } else { None },
        );
    names.collect()
}

#[test]
fn a_step_is_let_in_once_and_its_run_goes_on() {
    let mut bench = Bench::suspended(vec![lane("a"), lane("b")]);
    assert_eq!((bench.run.status(), tickets(&bench)), (Status::Waiting, vec![1, 2]));
    bench.give(let_in(2)).expect("it is never refused");
    assert!(matches!(bench.run.phase, Phase::Running { .. }));
    assert_eq!((admitted(&bench), tickets(&bench)), (vec!["b".into()], vec![1, 2]));
    // Doubled words do nothing, and neither do words about tickets that nobody has.
    for ticket in [2, 0, 7] {
        assert_eq!(bench.give(let_in(ticket)).expect("it is never refused").entries, []);
    }
    // While it works, the other one is let in, and its program is told.
    let told = bench.give(let_in(1)).expect("it is never refused");
    assert_eq!(told.effects, [Effect::TellProgram]);
    bench.commit(vec![succeeded("b")], go_on()).expect("in turn");
    assert_eq!(tickets(&bench), [1]);
    bench.crash();
    assert_eq!(tickets(&bench), [1], "the rows know who is let in");
    assert_eq!(places(&bench), [1]);
    bench.activate(SLOT);
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    assert!(tickets(&bench).is_empty());
}

#[test]
fn each_attempt_has_a_ticket_of_its_own() {
    let mut bench = Bench::suspended(vec![lane("a")]);
    bench.give(let_in(1)).expect("it is never refused");
    let failure = Failure::new("no");
    bench.commit(vec![failed("a", 1, failure, &Retry::default())], go_on()).expect("in turn");
    assert!(tickets(&bench).is_empty());
    bench.commit(vec![], Then::Suspend { open: vec![lane("a")] }).expect("in turn");
    assert_eq!(tickets(&bench), [2]);
    assert_eq!(bench.give(let_in(1)).expect("it is never refused").entries, []);
    bench.give(let_in(2)).expect("it is never refused");
    assert_eq!(admitted(&bench), ["a", "a"]);
}

#[test]
fn what_is_said_again_keeps_its_ticket_and_its_place_in_line() {
    let mut bench = Bench::suspended(vec![lane("a"), wait("s", 0, None)]);
    let until = bench.now.plus_millis(IN_LINE_MS);
    bench.give(Input::StepPutOff { ticket: 1, until }).expect("it is never refused");
    assert_eq!(bench.run.visits_to_ask().count(), 0);
    bench.signal("s", Some(SLOT)).expect("it is kept");
    bench.commit(vec![], Then::Suspend { open: vec![lane("a")] }).expect("in turn");
    assert_eq!((tickets(&bench), bench.run.visits_to_ask().count()), (vec![1], 0));
    assert_eq!(bench.run.wake_at(), Some(until));
}

#[test]
fn a_lane_that_does_not_answer_is_asked_again_without_calling_the_program() {
    let mut bench = Bench::suspended(vec![lane("a")]);
    for _ in 0..3 {
        bench.now = bench.run.wake_at().expect("it is asked again");
        let woken = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
        assert!(woken.effects.is_empty());
        assert_eq!(tickets(&bench), [1]);
        assert_eq!(bench.run.visits_to_ask().count(), 1);
        assert_eq!(bench.run.phase, Phase::Suspended);
    }
}

#[test]
fn a_run_that_stops_gives_back_what_it_has_and_its_steps_wait_anew() {
    let mut bench = Bench::suspended(vec![lane("a"), lane("b")]);
    bench.give(let_in(1)).expect("it is never refused");
    assert_eq!(places(&bench), [1]);
    bench.give(Input::Pause).expect("it can be");
    assert!(tickets(&bench).is_empty());
    for ticket in [1, 2] {
        assert_eq!(bench.give(let_in(ticket)).expect("it is never refused").entries, []);
    }
    bench.give(Input::Resume { slot: Some(SLOT) }).expect("it can be");
    assert!(places(&bench).is_empty() && tickets(&bench).is_empty(), "the journal's word does not hold");
    bench.commit(vec![], Then::Suspend { open: vec![lane("a"), lane("b")] }).expect("in turn");
    assert_eq!(tickets(&bench), [3, 4]);
}

#[test]
fn a_run_that_suspends_gives_back_what_nobody_has_used() {
    let mut bench = Bench::suspended(vec![lane("a"), wait("s", 0, None)]);
    bench.give(let_in(1)).expect("it is never refused");
    bench.commit(vec![], Then::Suspend { open: vec![wait("s", 0, None)] }).expect("in turn");
    assert!(tickets(&bench).is_empty());
    bench.signal("s", Some(SLOT)).expect("it is kept");
    assert!(places(&bench).is_empty());
}

#[test]
fn a_run_that_is_taken_up_again_after_its_end_waits_anew() {
    for end in [Input::Cancel, Input::Pause] {
        let mut bench = Bench::suspended(vec![lane("a"), lane("b")]);
        bench.give(let_in(1)).expect("it is never refused");
        bench.give(let_in(2)).expect("it is never refused");
        bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
        bench.give(end).expect("it can be");
        // What was recorded is taken back, and what it was let in by is not.
        let cuts = vec![Cut { after: Seq(2), through: Seq(3) }];
        let restart =
            Input::Restart { cuts, signals: vec![], dropped: None, keeps_progress: false, slot: Some(SLOT) };
        bench.give(restart).expect("it is at rest");
        assert_eq!(admitted(&bench), ["a", "b"]);
        assert!(places(&bench).is_empty() && tickets(&bench).is_empty());
        bench.commit(vec![], Then::Suspend { open: vec![lane("a")] }).expect("in turn");
        assert_eq!(tickets(&bench), [3]);
    }
}

#[test]
fn a_step_that_nobody_awaits_any_more_gives_its_place_back() {
    let mut bench = Bench::suspended(vec![lane("a"), lane("b")]);
    bench.give(let_in(1)).expect("it is never refused");
    // One that waits is gone when it is not named any more, and one that was let in when that is said.
    let (mut commit, hash) = bench.next_commit(vec![], Then::Continue { open: Some(vec![]) });
    bench.send(&commit, hash).expect("in turn");
    assert_eq!(tickets(&bench), [1]);
    (commit, _) = bench.next_commit(vec![], go_on());
    commit.over = vec![op(OpKind::Step, "a", 0)];
    bench.send(&commit, 77).expect("in turn");
    assert!(tickets(&bench).is_empty());
    bench.crash();
    assert!(tickets(&bench).is_empty());
}

#[test]
fn lanes_that_cannot_let_a_step_in_are_refused() {
    let mut bench = Bench::running();
    let with = |change: &dyn Fn(&mut StepLane)| {
        let mut lane = api();
        change(&mut lane);
        Open::Lane { op: op(OpKind::Step, "a", 0), lane: Box::new(lane) }
    };
    let many =
        || (0..51).map(|number| Open::Lane { op: op(OpKind::Step, "a", number), lane: Box::new(api()) });
    for open in [
        vec![with(&|lane| lane.lane.clear())],
        vec![with(&|lane| lane.lane = "x".repeat(65))],
        vec![with(&|lane| lane.lane = "x\ny".into())],
        vec![with(&|lane| lane.limits.clear())],
        vec![with(&|lane| lane.limits[0].max = 0)],
        vec![with(&|lane| lane.limits[0].per_ms = Some(1))],
        vec![with(&|lane| lane.limits.push(lane.limits[0].clone()))],
        vec![Open::Lane { op: op(OpKind::Sleep, "a", 0), lane: Box::new(api()) }],
        many().collect(),
    ] {
        let (commit, hash) = bench.next_commit(vec![], Then::Suspend { open });
        assert_eq!(bench.refused(&commit, hash), Code::InvalidRequest);
    }
    bench.commit(vec![], Then::Suspend { open: many().take(50).collect() }).expect("so many may be");
}
