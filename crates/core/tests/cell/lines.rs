//! What the log is told of runs: once for each thing that is stored, as loud as it is, and never what a run holds.

use stepwell_core::{
    cell::{Action, Cell, Level, Line, NewRun, Order},
    object::Hosted as _,
    run::{CallEnd, Signal},
};
use stepwell_protocol::{
    Code, Epoch, Failure, Op, OpKind, Payload, Problem, RunId, Seq,
    program::{Command, Open, Retry, Then},
};

use crate::{at, memory::Memory, new_run, said};

/// What people put into runs. It is in no line.
const SECRET: &str = "canary-4711";

fn logged(level: Level) -> (Memory, Cell, RunId) {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    cell.log(level);
    let new = NewRun { input: secret(), ..new_run(None) };
    let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
    (rows, cell, id)
}

fn secret() -> Payload {
    Payload::encode(&SECRET).expect("it is JSON")
}

fn lines(cell: &mut Cell) -> Vec<Line> {
    let orders = cell.take_orders().own.into_iter();
    let lines: Vec<_> =
        orders.flat_map(|order| if let Order::Log(lines) = order { lines } else { vec![] }).collect();
    assert!(!format!("{lines:?}").contains(SECRET), "{lines:?}");
    lines
}

fn told(cell: &mut Cell) -> Vec<(Level, &'static str)> {
    lines(cell).iter().map(|line| (line.level, line.event)).collect()
}

fn step(name: &str) -> Op {
    Op { kind: OpKind::Step, name: name.into(), occurrence: 0 }
}

fn failed(attempts_left: bool) -> Command {
    Command::StepFailed {
        op: step("charge"),
        attempt: 1,
        failure: Failure { terminal: !attempts_left, ..Failure::new(SECRET) },
        retry: Retry::default(),
        retry_after_ms: Some(0),
        took_ms: Some(20),
    }
}

fn commit(rows: &Memory, cell: &mut Cell, id: &RunId, base: u32, commands: Vec<Command>, then: Then) {
    let epoch = rows.get(id.number).epoch;
    cell.commit(rows, at(10), id.number, epoch, said(Seq(base), commands, then), base.into())
        .expect("in turn");
}

#[test]
fn each_thing_that_happens_to_a_run_is_one_line() {
    let (rows, mut cell, id) = logged(Level::Debug);
    assert_eq!(told(&mut cell), [(Level::Info, "run_started"), (Level::Debug, "run_activated")]);
    let done = Command::StepSucceeded { op: step("read"), attempt: 1, output: secret(), took_ms: None };
    let open = vec![Open::Wait {
        op: Op { kind: OpKind::Wait, name: "go".into(), occurrence: 0 },
        signal: "go".into(),
        timeout_ms: None,
        shape: stepwell_protocol::Shape::Any,
        asked: None,
        event: None,
    }];
    commit(&rows, &mut cell, &id, 0, vec![done], Then::Continue { open: None });
    commit(&rows, &mut cell, &id, 1, vec![], Then::Suspend { open });
    cell.call_ended(&rows, at(11), id.number, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(told(&mut cell), [(Level::Debug, "step_finished"), (Level::Debug, "run_suspended")]);
    cell.signal(&rows, at(12), &id, Signal::new("go", secret())).expect("it is kept");
    let signalled = lines(&mut cell);
    let events: Vec<_> = signalled.iter().map(|line| (line.event, line.name.as_deref())).collect();
    assert_eq!(events, [("signal_received", Some("go")), ("run_activated", None)]);
    assert_eq!(signalled[1].epoch, Epoch(2));
    commit(&rows, &mut cell, &id, 2, vec![], Then::Complete { output: secret() });
    assert_eq!(told(&mut cell), [(Level::Info, "run_completed")]);
}

#[test]
fn a_quiet_log_has_what_went_wrong_with_its_code_and_without_its_message() {
    let (rows, mut cell, id) = logged(Level::Warn);
    assert_eq!(told(&mut cell), []);
    commit(&rows, &mut cell, &id, 0, vec![failed(true)], Then::Continue { open: None });
    let [retrying] = &lines(&mut cell)[..] else { panic!("one line") };
    assert_eq!((retrying.level, retrying.event), (Level::Warn, "step_retrying"));
    assert_eq!((retrying.name.as_deref(), retrying.attempt), (Some("charge"), Some(1)));
    assert_eq!((&retrying.run, retrying.workflow.as_str()), (&id, "w"));
    let failure = Failure::coded(Code::StepTimedOut, SECRET);
    commit(&rows, &mut cell, &id, 1, vec![], Then::Fail { failure });
    let [failed] = &lines(&mut cell)[..] else { panic!("one line") };
    assert_eq!(
        (failed.level, failed.event, failed.code),
        (Level::Error, "run_failed", Some(Code::StepTimedOut))
    );
}

#[test]
fn a_problem_that_pauses_a_run_is_an_error_and_what_people_do_names_them() {
    let (rows, mut cell, id) = logged(Level::Info);
    let problem = Problem::new(Code::Diverged, SECRET);
    commit(&rows, &mut cell, &id, 0, vec![], Then::Pause { problem });
    let [started, paused] = &lines(&mut cell)[..] else { panic!("two lines") };
    assert_eq!(
        (started.event, paused.event, paused.code),
        ("run_started", "run_paused", Some(Code::Diverged))
    );
    assert_eq!(paused.level, Level::Error);
    cell.act(&rows, at(20), &id, "key:abc", Action::Cancel).expect("it may");
    let [cancelled] = &lines(&mut cell)[..] else { panic!("one line") };
    assert_eq!((cancelled.event, cancelled.by.as_deref()), ("run_cancelled", Some("key:abc")));
}

#[test]
fn a_log_that_is_off_is_told_nothing() {
    let (rows, mut cell, id) = logged(Level::Off);
    commit(&rows, &mut cell, &id, 0, vec![failed(false)], Then::Fail { failure: Failure::new(SECRET) });
    assert_eq!(told(&mut cell), []);
}

#[test]
fn what_is_not_stored_is_not_told() {
    let (rows, mut cell, id) = logged(Level::Debug);
    lines(&mut cell);
    let again = said(Seq(7), vec![failed(true)], Then::Continue { open: None });
    let _ = cell.commit(&rows, at(10), id.number, Epoch(9), again, 1);
    assert_eq!(told(&mut cell), [], "a commit of an activation that is not the latest is refused");
}
