//! Sleeps, waits and signals: nothing early, nothing twice, nothing lost.

use stepwell_protocol::rest::RunView;

use super::*;

fn timer_fired(bench: &Bench) -> Vec<String> {
    let fired = bench.events().into_iter().filter_map(|event| match event {
        Event::TimerFired { op, .. } => Some(op.to_string()),
        Event::StepFinished { .. }
        | Event::StepRetrying { .. }
        | Event::StepBegun { .. }
        | Event::StepLetIn { .. }
        | Event::SignalReceived { .. }
        | Event::ChildInvoked { .. }
        | Event::ChildStarted { .. }
        | Event::ChildFinished { .. } => None,
    });
    fired.collect()
}

#[test]
fn a_sleep_ends_at_its_time_and_not_before() {
    let mut bench = Bench::suspended(vec![sleep(0, 100)]);
    assert_eq!(bench.run.wake_at(), Some(bench.now.plus_millis(100)));
    bench.pass(99);
    let early = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert_eq!(early, Decision::default());
    bench.pass(1);
    let due = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert_eq!(due.effects, [Effect::Activate { epoch: Epoch(2) }]);
    assert_eq!(timer_fired(&bench), ["sleep:0:sleep"]);
}

#[test]
fn a_sleep_fires_once_however_often_the_cell_looks() {
    let mut bench = Bench::suspended(vec![sleep(0, 100), sleep(1, 200)]);
    for _ in 0..5 {
        bench.pass(100);
        bench.give(Input::Wake { slot: None }).expect("it is never refused");
        bench.crash();
    }
    bench.activate(SLOT);
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(1, 200)]) }).expect("in turn");
    for _ in 0..2 {
        bench.pass(1);
        bench.give(Input::Wake { slot: None }).expect("it is never refused");
    }
    assert_eq!(timer_fired(&bench), ["sleep:0:sleep", "sleep:1:sleep"]);
}

#[test]
fn a_sleep_keeps_its_end_when_the_program_names_it_again() {
    let mut bench = Bench::running();
    let end = bench.now.plus_millis(100);
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 100)]) }).expect("in turn");
    bench.pass(40);
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }).expect("in turn");
    assert_eq!(bench.run.wake_at(), Some(end));
}

#[test]
fn a_sleep_of_no_time_is_over_in_the_next_millisecond() {
    let bench = Bench::suspended(vec![sleep(0, 0)]);
    assert_eq!(bench.run.wake_at(), Some(bench.now.plus_millis(1)));
}

#[test]
fn a_sleep_that_was_due_while_the_run_was_queued_is_not_forgotten() {
    let mut bench = Bench::suspended(vec![wait("s", 0, None), sleep(0, 100)]);
    bench.signal("s", None).expect("it is open");
    // Too many runs before it: its sleep is over before it is activated.
    bench.pass(500);
    bench.activate(SLOT);
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }).expect("in turn");
    bench.pass(1);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert_eq!(timer_fired(&bench), ["sleep:0:sleep"]);
}

#[test]
fn a_sleep_that_ended_while_the_program_was_speaking_does_not_begin_again() {
    let mut bench = Bench::running();
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 100)]) }).expect("in turn");
    // The program has not heard of its end when it sends this.
    let open = Some(vec![sleep(0, 100), wait("s", 0, None)]);
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], Then::Continue { open });
    bench.pass(100);
    let decision = bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert_eq!(decision.effects, [Effect::TellProgram]);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    bench.pass(100);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert_eq!(timer_fired(&bench), ["sleep:0:sleep"]);
}

#[test]
fn the_time_of_a_next_attempt_wakes_the_run_without_an_event() {
    let at = Timestamp::from_millis(1_000_500);
    let mut bench = Bench::suspended(vec![Open::Retry { op: op(OpKind::Step, "a", 0), at }]);
    assert_eq!(bench.run.wake_at(), Some(at));
    bench.pass(500);
    let decision = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert_eq!(decision.effects, [Effect::Activate { epoch: Epoch(2) }]);
    assert!(bench.journal.is_empty());
}

#[test]
fn a_step_waits_for_its_next_attempt_until_that_is_under_way() {
    let retry = |name: &str, ms: u64| Open::Retry {
        op: op(OpKind::Step, name, 0),
        at: Timestamp::from_millis(1_000_000 + ms),
    };
    let mut bench = Bench::suspended(vec![retry("a", 500), retry("b", 90_000)]);
    assert_eq!(RunView::from(&bench.run).retrying, ["a", "b"]);
    bench.pass(500);
    bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert_eq!(RunView::from(&bench.run).retrying, ["b"]);
}

#[test]
fn a_program_that_suspends_without_having_seen_a_signal_is_told_to_go_on() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![], Then::Suspend { open: vec![wait("s", 0, None)] });
    let decision = bench.signal("s", None).expect("it is kept");
    assert_eq!(decision.effects, [Effect::TellProgram]);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    assert!(bench.run.is_held_by(Epoch(1)));
    assert_eq!(bench.run.open, [], "what it waits for, it will say again");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go), "and so is its repeat");
}

#[test]
fn a_program_that_suspends_and_reports_is_told_to_go_on() {
    let mut bench = Bench::running();
    let reply = bench.commit(vec![succeeded("a")], Then::Suspend { open: vec![sleep(0, 5)] });
    assert_eq!(reply, Ok(Reply::Go));
    assert!(bench.run.is_held_by(Epoch(1)));
    assert_eq!(bench.journal.len(), 1);
    assert_eq!(bench.run.open, []);
}

#[test]
fn a_signal_wakes_the_oldest_wait_for_it_and_no_other() {
    let waits = vec![wait("other", 0, None), wait("s", 0, Some(500)), wait("s", 1, None)];
    let mut bench = Bench::suspended(waits);
    let decision = bench.signal("s", Some(SLOT)).expect("it is open");
    assert_eq!(decision.effects, [Effect::Activate { epoch: Epoch(2) }]);
    let open: Vec<_> = bench.run.open.iter().map(|open| open.op.to_string()).collect();
    assert_eq!(open, ["wait:0:other", "wait:1:s"]);
}

#[test]
fn a_wait_that_was_answered_does_not_time_out() {
    let mut bench = Bench::suspended(vec![wait("s", 0, Some(500)), sleep(0, 900)]);
    bench.signal("s", None).expect("it is open");
    bench.pass(1_000);
    bench.activate(SLOT);
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 900)]) }).expect("in turn");
    bench.pass(1);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert_eq!(timer_fired(&bench), ["sleep:0:sleep"]);
}

#[test]
fn a_wait_that_timed_out_is_not_answered() {
    let mut bench = Bench::suspended(vec![wait("s", 0, Some(500)), wait("t", 0, None)]);
    bench.pass(500);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert_eq!(timer_fired(&bench), ["wait:0:s"]);
    bench.activate(SLOT);
    bench.commit(vec![], Then::Suspend { open: vec![wait("t", 0, None)] }).expect("in turn");
    let decision = bench.signal("s", Some(SLOT)).expect("it is kept");
    assert_eq!(decision.effects, [], "nobody waits for it");
}

#[test]
fn a_signal_that_nobody_waits_for_is_kept_in_the_journal() {
    let benches = [
        Bench::start(None),
        Bench::running(),
        Bench::suspended(vec![wait("other", 0, None)]),
        Bench::suspended(vec![sleep(0, 1_000)]),
    ];
    for mut bench in benches {
        let (phase, wake_at) = (bench.run.phase.clone(), bench.run.wake_at());
        bench.signal("s", Some(SLOT)).expect("it is kept");
        assert!(matches!(bench.events()[..], [Event::SignalReceived { name, .. }] if name == "s"));
        assert_eq!((&bench.run.phase, bench.run.wake_at()), (&phase, wake_at), "it goes on as before");
    }
}

#[test]
fn a_wait_without_a_time_out_needs_no_alarm() {
    let bench = Bench::suspended(vec![wait("s", 0, None)]);
    assert_eq!(bench.run.wake_at(), None);
    assert_eq!(bench.run.status(), Status::Waiting);
}

#[test]
fn what_is_due_while_the_program_works_is_told_to_it() {
    let mut bench = Bench::running();
    let open = vec![sleep(0, 100), wait("s", 0, Some(100)), wait("s", 1, None)];
    bench.commit(vec![], Then::Continue { open: Some(open) }).expect("in turn");
    bench.pass(100);
    let decision = bench.give(Input::Wake { slot: Some(SLOT) }).expect("it is never refused");
    assert_eq!(decision.effects, [Effect::TellProgram]);
    assert_eq!(timer_fired(&bench), ["sleep:0:sleep", "wait:0:s"]);
    assert_eq!(bench.run.open.len(), 1);
}

fn wait_for(shape: Shape) -> Open {
    Open::Wait {
        op: op(OpKind::Wait, "s", 0),
        signal: "s".into(),
        timeout_ms: None,
        shape,
        asked: None,
        event: None,
    }
}

fn sent(bench: &mut Bench, payload: &str) -> Result<Decision, Rejection> {
    let payload = Payload::from_text(payload.to_owned()).expect("it is JSON");
    bench.give(Input::Signal { signal: Signal::new("s", payload), slot: None })
}

#[test]
fn a_signal_that_does_not_fit_is_refused_and_the_run_goes_on_waiting() {
    let mut bench = Bench::suspended(vec![wait_for(Shape::Bool)]);
    bench.crash();
    let problem = sent(&mut bench, "null").expect_err("null is no boolean");
    assert_eq!(problem.code, Code::SignalMismatch);
    assert_eq!(
        problem.detail,
        "The run waits for signal 's' with true or false, and the payload is null instead of true or false. \
         Nothing was sent: send it with a payload that fits."
    );
    assert_eq!((bench.run.status(), bench.events().len()), (Status::Waiting, 0));
    assert_eq!(bench.run.why(bench.now).waits_for[0].expects.as_deref(), Some("true or false"));
    sent(&mut bench, "false").expect("it fits");
    assert_eq!(bench.run.status(), Status::Pending);
}

#[test]
fn a_signal_that_nobody_waits_for_yet_is_kept_whatever_it_is() {
    let mut bench = Bench::running();
    bench.commit(vec![], Then::Continue { open: Some(vec![wait_for(Shape::Bool)]) }).expect("in turn");
    sent(&mut bench, "null").expect("the program may be past that wait");
    assert_eq!(bench.events().len(), 1);
}

#[test]
fn a_sender_is_warned_of_a_name_that_nobody_waits_for() {
    let bench = Bench::suspended(vec![wait_for(Shape::Bool)]);
    assert_eq!(bench.run.warning_about("s"), None);
    assert_eq!(
        bench.run.warning_about("t").as_deref(),
        Some("The run does not wait for signal 't' yet. The signal is kept until it does. It waits for: s.")
    );
    let warning = Bench::running().run.warning_about("t");
    assert!(warning.is_some_and(|text| text.ends_with("kept until it does.")));
}

#[test]
fn a_signal_with_a_slip_in_its_name_is_seen_beside_what_the_run_waits_for() {
    let mut bench = Bench::suspended(vec![wait_for(Shape::Any)]);
    assert_eq!(bench.run.why(bench.now).because, "It waits for signal 's'.");
    let slip = Signal::new("ss", Payload::null());
    bench.give(Input::Signal { signal: slip, slot: None }).expect("it is kept");
    let because = bench.run.why(bench.now).because;
    assert_eq!(because, "It waits for signal 's'. It has received one signal that it has not taken.");
}

#[test]
fn many_waits_are_few_words() {
    let waits = |names: &[&str]| {
        let open = names.iter().enumerate().map(|(n, name)| wait(name, u32::try_from(n).expect("few"), None));
        Bench::suspended(open.collect()).run.why(Timestamp::from_millis(0)).because
    };
    assert_eq!(waits(&["s", "s"]), "It waits for signal 's'.");
    assert_eq!(waits(&["t", "s", "s", "u"]), "It waits for 3 signals, 's' among them.");
    let mut bench = Bench::suspended(vec![wait_for(Shape::Any), sleep(0, 100)]);
    assert_eq!(bench.run.why(bench.now).because, "It waits for signal 's' or for a time.");
    bench.crash();
    assert_eq!(bench.run.why(bench.now).because, "It waits for signal 's' or for a time.");
}

#[test]
fn a_shape_that_is_too_large_to_be_kept_takes_anything() {
    let names = vec!["x".repeat(100); 100];
    let mut bench = Bench::suspended(vec![wait_for(Shape::OneOf { names })]);
    assert!(bench.run.open[0].shape.is_any());
    sent(&mut bench, "null").expect("it takes anything");
}
