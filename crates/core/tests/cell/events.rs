//! Events that runs emit and wait for: what topics are told, and what an event does to whoever waits for it.

use serde_json::json;
use stepwell_core::{
    cell::{Action, Cell, NewRun, TokenAnswer},
    object::{Fault, Hosted as _, Machine as _, Message, Receipt},
    run::{End, Phase, Signal},
};
use stepwell_protocol::{
    Code, Epoch, Event, Op, OpKind, Outcome, Payload, Problem, RunId, Seq, Shape,
    program::{Answer, Command, Open, Then},
    topic::{EventView, EventWait, LOOK_BACK_MS, NewEvent, Triggered, Waiter},
    wait_token::{NewToken, WaitToken},
};

use super::{Memory, at, new_run, said, step};

const ON: &str = "order/paid";

fn op(occurrence: u32) -> Op {
    Op { kind: OpKind::Wait, name: format!("event:{ON}"), occurrence }
}

fn wait_of(occurrence: u32, timeout_ms: Option<u64>, when: Option<&str>) -> Open {
    let event =
        EventWait { on: ON.into(), when: when.map(Into::into), looking_back_ms: None, cancels: false };
    let (signal, shape) = (format!("event:{ON}"), Shape::Any);
    Open::Wait { op: op(occurrence), signal, timeout_ms, shape, asked: None, event: Some(Box::new(event)) }
}

fn wait(occurrence: u32) -> Open {
    wait_of(occurrence, None, None)
}

fn event(number: u64) -> EventView {
    EventView {
        id: format!("evt-{number}"),
        name: ON.into(),
        at: at(5),
        data: Payload::encode(&json!({ "id": number })).expect("it is JSON"),
        tag: Triggered::tag("order", number),
        source: None,
        waits: Vec::new(),
    }
}

fn refusal<T, E>(answer: Result<T, Fault<E>>) -> Problem {
    match answer {
        Err(Fault::Rejected(problem)) => problem,
        Ok(_) | Err(_) => panic!("it is refused"),
    }
}

/// What topics were told, in order.
fn told(rows: &Memory) -> Vec<Message> {
    let letters = rows.letters.borrow();
    letters.values().flat_map(|(letter, _)| letter.envelopes.iter().map(|one| one.message.clone())).collect()
}

fn waiters(rows: &Memory) -> Vec<Waiter> {
    let told = told(rows).into_iter();
    told.filter_map(|message| if let Message::Waits { waiter } = message { Some(*waiter) } else { None })
        .collect()
}

/// A run that sleeps until something in this list happens.
fn waiting(open: Vec<Open>) -> (Memory, Cell, RunId) {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let input = Payload::encode(&json!({ "id": 7, "other": "x" })).expect("it is JSON");
    let run = cell.start(&rows, at(0), NewRun { input, ..new_run(None) }).expect("it is accepted").run;
    let commit = said(Seq(0), vec![], Then::Suspend { open });
    assert_eq!(cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect("it is taken"), Answer::Stop);
    (rows, cell, run.id)
}

fn received(rows: &Memory) -> usize {
    rows.journal(1).iter().filter(|record| matches!(record.event, Event::SignalReceived { .. })).count()
}

#[test]
fn an_emitted_event_is_a_step_on_record_and_a_letter_to_its_topic_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    let step = Op { kind: OpKind::Step, name: "emit order/paid".into(), occurrence: 0 };
    let event = NewEvent::of_run(&run.id, 1, &step, ON.into(), Payload::null());
    let commands = vec![Command::Emitted { op: step, event: Box::new(event.clone()) }];
    let commit = said(Seq(0), commands, Then::Continue { open: None });
    for _ in 0..2 {
        cell.commit(&rows, at(10), 1, Epoch(1), commit.clone(), 1).expect("it is taken");
    }
    let events: Vec<_> = rows.journal(1).into_iter().map(|record| record.event).collect();
    let [Event::StepFinished { outcome: Outcome::Ok(id), attempt: 1, .. }] = &events[..] else {
        panic!("one step is on record")
    };
    assert_eq!(id.decode::<String>().ok(), event.id);
    assert_eq!(told(&rows), [Message::Emitted { run: run.id, event: Box::new(event) }]);
}

#[test]
fn an_event_without_two_parts_in_its_name_is_refused() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let event = NewEvent { name: "paid".into(), id: Some("x".into()), data: Payload::null() };
    let op = Op { kind: OpKind::Step, name: "emit paid".into(), occurrence: 0 };
    let commands = vec![Command::Emitted { op, event: Box::new(event) }];
    let commit = said(Seq(0), commands, Then::Continue { open: None });
    cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect_err("it is refused");
    assert!(told(&rows).is_empty());
}

#[test]
fn a_topic_is_told_of_a_wait_once_with_as_much_of_the_input_as_it_needs() {
    let (rows, mut cell, run) = waiting(vec![wait_of(0, Some(60_000), Some("event.data.id == input.id"))]);
    let expected = Waiter {
        run: run.clone(),
        life: 1,
        op: op(0),
        epoch: Epoch(1),
        on: ON.into(),
        when: Some("event.data.id == input.id".into()),
        input: Payload::encode(&json!({ "id": 7 })).expect("it is JSON"),
        from: stepwell_protocol::Timestamp::from_millis(at(10).as_millis() - LOOK_BACK_MS),
        until: Some(at(60_010)),
        except: None,
        cancels: false,
    };
    assert_eq!(waiters(&rows), [expected]);
    // A signal wakes it, and it goes on waiting for the same.
    let signal = Signal::new("other", Payload::null());
    cell.signal(&rows, at(11), &run, signal).expect("it is kept");
    cell.act(&rows, at(12), &run, "ada", Action::Pause).expect("it is paused");
    cell.act(&rows, at(13), &run, "ada", Action::Resume).expect("it goes on");
    let open = vec![wait_of(0, Some(60_000), Some("event.data.id == input.id")), wait(1)];
    let commit = said(rows.get(1).head, vec![], Then::Suspend { open });
    cell.commit(&rows, at(20), 1, Epoch(2), commit, 2).expect("it is taken");
    assert_eq!(waiters(&rows).len(), 2, "only the second one is new");
}

#[test]
fn a_condition_that_cannot_be_read_is_refused() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let open = vec![wait_of(0, None, Some("event.data.id =="))];
    let refused = cell.commit(&rows, at(10), 1, Epoch(1), said(Seq(0), vec![], Then::Suspend { open }), 1);
    let text = refused.expect_err("it is refused").to_string();
    assert!(text.contains("order/paid"), "{text}");
}

#[test]
fn an_event_wakes_whoever_waits_for_it_and_the_next_one_is_told_that_it_is_gone() {
    let (rows, mut cell, _) = waiting(vec![wait(0)]);
    let waits = waiters(&rows);
    assert_eq!(cell.meet(&rows, at(20), &event(1), waits.clone()), [Receipt::Taken]);
    assert_eq!(received(&rows), 1);
    assert!(matches!(rows.get(1).phase, Phase::Running { .. }));
    // The answer was lost; and another event.
    assert_eq!(cell.meet(&rows, at(21), &event(1), waits.clone()), [Receipt::Taken]);
    assert_eq!(cell.meet(&rows, at(22), &event(2), waits), [Receipt::Gone]);
    assert_eq!(received(&rows), 1);
}

#[test]
fn an_answer_that_ends_a_wait_leaves_only_with_a_write() {
    let (rows, mut cell, _) = waiting(vec![wait(0)]);
    let waits = waiters(&rows);
    assert_eq!(cell.meet(&rows, at(20), &event(1), waits.clone()), [Receipt::Taken]);
    // An instance that was superseded takes a later wait for this one. Its answer must not reach the topic, which would
    // forget that wait.
    for (number, receipt) in [(1, Receipt::Taken), (2, Receipt::Gone)] {
        drop(cell.take_orders());
        assert_eq!(cell.meet(&rows, at(21), &event(number), waits.clone()), [receipt]);
        assert!(cell.take_orders().arm.is_some(), "the answer waits for a write");
    }
}

#[test]
fn a_run_that_has_ended_still_says_that_it_had_an_event() {
    let (rows, mut cell, _) = waiting(vec![wait(0)]);
    let waiters = waiters(&rows);
    assert_eq!(cell.meet(&rows, at(20), &event(1), waiters.clone()), [Receipt::Taken]);
    let seq = rows.journal(1).last().map(|record| record.seq).expect("it has the event");
    let commit = said(seq, vec![], Then::Complete { output: Payload::null() });
    cell.commit(&rows, at(30), 1, Epoch(2), commit, 1).expect("it is taken");
    // The topic has died before it could write that down, and asks again.
    assert_eq!(cell.meet(&rows, at(40), &event(1), waiters.clone()), [Receipt::Taken]);
    assert_eq!(cell.meet(&rows, at(40), &event(2), waiters), [Receipt::Gone]);
}

#[test]
fn an_event_counts_once_while_the_program_is_at_work() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let commit = said(Seq(0), vec![step("a")], Then::Continue { open: Some(vec![wait(0)]) });
    cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect("it is taken");
    let waits = waiters(&rows);
    assert_eq!(cell.meet(&rows, at(20), &event(1), waits.clone()), [Receipt::Taken]);
    assert_eq!(cell.meet(&rows, at(21), &event(2), waits.clone()), [Receipt::Gone]);
    // Neither does an instance that knows only the rows.
    let mut cell = Cell::new(4);
    assert_eq!(cell.meet(&rows, at(22), &event(2), waits), [Receipt::Gone]);
    assert_eq!(received(&rows), 1);
}

#[test]
fn the_next_wait_of_a_loop_does_not_get_the_same_event_again() {
    let (rows, mut cell, _) = waiting(vec![wait(0)]);
    cell.meet(&rows, at(20), &event(1), waiters(&rows));
    let commit = said(rows.get(1).head, vec![], Then::Suspend { open: vec![wait(1)] });
    cell.commit(&rows, at(30), 1, Epoch(2), commit, 2).expect("it is taken");
    let second = vec![waiters(&rows).pop().expect("it is registered")];
    assert_eq!(cell.meet(&rows, at(31), &event(1), second.clone()), [Receipt::Passed]);
    assert_eq!(cell.meet(&rows, at(32), &event(2), second), [Receipt::Taken]);
    assert_eq!(received(&rows), 2);
}

#[test]
fn between_an_event_and_the_end_of_the_wait_the_first_one_wins() {
    let (rows, mut cell, _) = waiting(vec![wait_of(0, Some(1_000), None)]);
    let waits = waiters(&rows);
    cell.alarm(&rows, at(1_010)).expect("the rows can be read");
    assert_eq!(cell.meet(&rows, at(1_010), &event(1), waits), [Receipt::Gone]);
    assert_eq!(received(&rows), 0);

    let (rows, mut cell, _) = waiting(vec![wait_of(0, Some(1_000), None)]);
    assert_eq!(cell.meet(&rows, at(1_009), &event(1), waiters(&rows)), [Receipt::Taken]);
    cell.alarm(&rows, at(1_010)).expect("the rows can be read");
    assert!(!rows.journal(1).iter().any(|record| matches!(record.event, Event::TimerFired { .. })));
}

/// The waits that topics were told are over, with the activation.
fn lapsed(rows: &Memory) -> Vec<(Op, Epoch)> {
    let told = told(rows).into_iter();
    let over = told.filter_map(|message| match message {
        Message::WaitOver { op, epoch, .. } => Some((op, epoch)),
        Message::Start { .. }
        | Message::Ended { .. }
        | Message::TickEnded { .. }
        | Message::Emitted { .. }
        | Message::Waits { .. }
        | Message::Cancel { .. }
        | Message::TicketOver { .. }
        | Message::Job { .. }
        | Message::Callback { .. }
        | Message::Unbind { .. } => None,
    });
    over.collect()
}

#[test]
fn a_topic_is_told_of_waits_that_end_without_an_event_unless_their_time_is_over_soon() {
    let day_ms = 86_400_000;
    let open = vec![wait(0), wait_of(1, Some(60_000), None), wait_of(2, Some(2 * day_ms), None), wait(3)];
    let (rows, mut cell, run) = waiting(open);
    // The last one gets an event, the first one is left behind; then the run ends with the others.
    let last = waiters(&rows).pop().expect("it is registered");
    assert_eq!(cell.meet(&rows, at(20), &event(1), vec![last]), [Receipt::Taken]);
    assert_eq!(lapsed(&rows), []);
    let open = vec![wait_of(1, Some(60_000), None), wait_of(2, Some(2 * day_ms), None)];
    let commit = said(rows.get(1).head, vec![], Then::Suspend { open });
    cell.commit(&rows, at(30), 1, Epoch(2), commit, 2).expect("it is taken");
    assert_eq!(lapsed(&rows), [(op(0), Epoch(2))]);
    cell.act(&rows, at(40), &run, "ada", Action::Cancel).expect("it is cancelled");
    assert_eq!(lapsed(&rows), [(op(0), Epoch(2)), (op(2), Epoch(2))]);
}

#[test]
fn a_wait_that_begins_again_after_a_restart_is_of_a_later_activation_than_its_end() {
    let (rows, mut cell, run) = waiting(vec![wait(0)]);
    cell.act(&rows, at(20), &run, "ada", Action::Cancel).expect("it is cancelled");
    let restart = Action::Restart { from: None };
    cell.act(&rows, at(30), &run, "ada", restart).expect("it is restarted");
    let head = rows.get(1).head;
    let epoch = rows.get(1).epoch;
    let commit = said(head, vec![], Then::Suspend { open: vec![wait(0)] });
    cell.commit(&rows, at(40), 1, epoch, commit, epoch.0.into()).expect("it is taken");
    let (over, begins) = (lapsed(&rows), waiters(&rows));
    assert_eq!(over, [(op(0), Epoch(1))]);
    assert!(begins.iter().map(|waiter| waiter.epoch).eq([Epoch(1), epoch]) && epoch > Epoch(1));
}

#[test]
fn an_event_that_cancels_ends_the_run_and_says_so() {
    let cancels = EventWait { on: ON.into(), when: None, looking_back_ms: None, cancels: true };
    let Open::Wait { op, signal, shape, .. } = wait(0) else { panic!("it is a wait") };
    let event_wait = Some(Box::new(cancels));
    let cancel = Open::Wait { op, signal, timeout_ms: None, shape, asked: None, event: event_wait };
    let sleep = Open::Sleep { op: Op { kind: OpKind::Sleep, name: "s".into(), occurrence: 0 }, ms: 60_000 };
    let (rows, mut cell, _) = waiting(vec![sleep, cancel]);
    assert_eq!(rows.get(1).status().as_str(), "sleeping");
    let waits = waiters(&rows);
    assert_eq!(waits[0].from.as_millis(), at(0).as_millis() - LOOK_BACK_MS, "since the run began");
    assert_eq!(cell.meet(&rows, at(20), &event(1), waits.clone()), [Receipt::Taken]);
    let run = rows.get(1);
    assert!(matches!(run.phase, Phase::Ended { how: End::Cancelled, .. }), "{:?}", run.phase);
    assert_eq!(run.acts[0].by, "event:order/1");
    assert_eq!(cell.meet(&rows, at(21), &event(2), waits), [Receipt::Gone]);
}

#[test]
fn a_wait_for_an_event_is_met_by_no_signal_and_by_no_link() {
    let (rows, mut cell, run) = waiting(vec![wait(0)]);
    let forged = Signal::new(format!("event:{ON}"), Payload::encode(&event(1)).expect("it is JSON"));
    let addressed = Signal { to: Some(0), by: Some("token".into()), ..forged.clone() };
    for signal in [forged, addressed] {
        let refused = refusal(cell.signal(&rows, at(20), &run, signal));
        assert_eq!(refused.code, Code::InvalidRequest);
        assert!(refused.detail.contains("Send the event instead"), "{}", refused.detail);
    }
    for occurrence in [None, Some(0), Some(1)] {
        let new = NewToken { name: format!("event:{ON}"), occurrence, expires_ms: None };
        assert_eq!(refusal(cell.new_token(&rows, at(21), &run, new)).code, Code::InvalidRequest);
    }
    let token = WaitToken {
        namespace: "default".into(),
        run,
        life: 1,
        name: format!("event:{ON}"),
        occurrence: 0,
        expires_at: at(60_000),
    };
    let answer = TokenAnswer::Payload(Payload::encode(&event(1)).expect("it is JSON"));
    let refused = refusal(cell.complete_token(&rows, at(22), &token, answer));
    assert_eq!(refused.code, Code::InvalidRequest);
    assert_eq!(received(&rows), 0);
    assert_eq!(cell.meet(&rows, at(23), &event(1), waiters(&rows)), [Receipt::Taken]);
}

#[test]
fn no_id_of_a_signal_keeps_an_event_from_a_run() {
    let (rows, mut cell, run) = waiting(vec![wait(0)]);
    let known_by = format!("event:order/1/event:{ON}");
    let signal = Signal { id: Some(known_by), ..Signal::new("other", Payload::null()) };
    cell.signal(&rows, at(20), &run, signal).expect("it is kept");
    assert_eq!(cell.meet(&rows, at(21), &event(1), waiters(&rows)), [Receipt::Taken]);
    let mut ids = rows.journal(1).into_iter().filter_map(|record| Signal::of(&record.event)?.id);
    // No header can bring what it begins with.
    assert_eq!(ids.next_back().as_deref(), Some("\nevent:order/1/event:order/paid"));
}

#[test]
fn only_waits_for_events_have_names_of_events() {
    let plain = |name: &str| {
        let op = Op { kind: OpKind::Wait, name: name.into(), occurrence: 0 };
        let (signal, shape) = (name.to_owned(), Shape::Any);
        Open::Wait { op, signal, timeout_ms: None, shape, asked: None, event: None }
    };
    let mut misnamed = wait(0);
    if let Open::Wait { op, signal, .. } = &mut misnamed {
        (op.name, *signal) = ("approval".into(), "approval".into());
    }
    let mut elsewhere = wait(0);
    if let Open::Wait { signal, .. } = &mut elsewhere {
        *signal = "approval".into();
    }
    for open in [plain("event:order/paid"), plain("event:"), misnamed, elsewhere] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
        let commit = said(Seq(0), vec![], Then::Suspend { open: vec![open] });
        let refused = refusal(cell.commit(&rows, at(10), 1, Epoch(1), commit, 1));
        assert_eq!(refused.code, Code::InvalidRequest);
    }
}

#[test]
fn whoever_sends_a_signal_that_nobody_waits_for_is_told_of_events_as_events() {
    let (rows, _, _) = waiting(vec![wait(0)]);
    let warning = rows.get(1).warning_about("other").expect("nobody waits for it");
    assert!(warning.ends_with("It waits for: event order/paid."), "{warning}");
}

#[test]
fn why_says_what_a_run_waits_for_and_since_when() {
    let (rows, _, _) = waiting(vec![wait_of(0, Some(60_000), Some("event.data.id == input.id"))]);
    let why = rows.get(1).why(at(20));
    assert_eq!(why.because, "It waits for event 'order/paid'.");
    let [waits_for] = &why.waits_for[..] else { panic!("it waits for one thing") };
    assert_eq!((waits_for.kind.as_str(), waits_for.name.as_str()), ("event", ON));
    assert_eq!((waits_for.since, waits_for.until), (Some(at(10)), Some(at(60_010))));
    assert_eq!(waits_for.when.as_deref(), Some("event.data.id == input.id"));
}
