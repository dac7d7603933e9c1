//! A storage that does not take what is written: rows that are too large, and runs that it takes nothing of.

use stepwell_core::{
    cell::{Action, Cell, NewRun},
    object::{DEAD_MAN_MS, Fault, Hosted as _, Machine as _},
    run::{CallEnd, Signal, UNSTORED_MAX},
};
use stepwell_protocol::{
    Code, Epoch, Event, Op, OpKind, Payload, Record, Seq, Timestamp,
    program::{Command, Open, Then},
    rest::{RunView, Status},
};

use crate::{Memory, at, calls, memory::Failed, new_run, said, step};

/// A row of the platform's storage.
const ROW_BYTES: usize = 2_000_000;

fn text(bytes: usize) -> Payload {
    Payload::from_text(format!("\"{}\"", "x".repeat(bytes - 2))).expect("a string is JSON")
}

/// Calls a program again and again that runs a step and commits this; says how often the step has run.
fn runs_until_it_stops(rows: &Memory, cell: &mut Cell, commands: &[Command], then: &Then) -> u32 {
    let (mut now, mut runs) = (at(0), 0);
    for _ in 0..200 {
        for (number, epoch) in calls(cell) {
            cell.activation(rows, now, number, epoch).expect("it is there");
            runs += 1;
            cell.heard_from(now, number, epoch);
            let commit = said(rows.get(number).head, commands.to_vec(), then.clone());
            let committed = cell.commit(rows, now, number, epoch, commit, 1);
            let end = match committed {
                Ok(_) => CallEnd::Returned,
                Err(Fault::Storage(Failed::Refused)) => CallEnd::Lost("the storage failed".into()),
                Err(fault) => panic!("{fault:?}"),
            };
            cell.call_ended(rows, now, number, epoch, end).expect("it is recorded");
        }
        now = now.plus_millis(40_000);
        cell.alarm(rows, now).expect("the rows can be read");
    }
    runs
}

#[test]
fn an_output_that_does_not_fit_beside_the_input_fails_the_run_and_its_step_runs_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    rows.row_bytes_max.set(Some(ROW_BYTES));
    let new = NewRun { input: text(1_200_000), ..new_run(None) };
    cell.start(&rows, at(0), new).expect("it is accepted");
    let then = Then::Complete { output: text(1_200_000) };
    let runs = runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then);
    assert_eq!(runs, 1, "the step's side effect");
    assert_eq!(rows.get(1).status(), Status::Failed);
    let result = rows.result(1);
    assert!(result.contains("payload_too_large") && result.contains("79"), "{result}");
    assert_eq!(rows.events(1), 1, "what the step gave is on record");
}

#[test]
fn a_run_whose_commits_the_storage_never_takes_is_paused_and_says_so() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id;
    // A row that the machine takes for small: whatever the reason, the storage takes no output of this size.
    rows.row_bytes_max.set(Some(10_000));
    let then = Then::Complete { output: text(20_000) };
    let runs = runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then);
    assert_eq!(runs, UNSTORED_MAX);
    let run = rows.get(1);
    let view = RunView::from(&run);
    let problem = view.problem.expect("it says why");
    assert!(view.status == Status::Paused && problem.detail.contains("storage"), "{problem:?}");
    assert_eq!(problem.code, Code::Internal);
    // A person has mended the storage.
    rows.row_bytes_max.set(None);
    cell.act(&rows, at(9_000_000), &id, "root", Action::Resume).expect("it goes on");
    assert_eq!(runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then), 1);
    assert_eq!(rows.get(1).status(), Status::Completed);
}

#[test]
fn an_outage_of_the_whole_storage_pauses_nobody() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    assert_eq!(calls(&mut cell), [(1, Epoch(1))]);
    // Nothing is taken, for longer than many activations take: no program is called, so nothing runs twice.
    rows.refused.borrow_mut().insert(1);
    let then = Then::Complete { output: Payload::null() };
    let commit = said(Seq(0), vec![step("charge")], then.clone());
    assert!(cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).is_err());
    assert!(cell.call_ended(&rows, at(2), 1, Epoch(1), CallEnd::Returned).is_err());
    for minute in 1..100 {
        cell.alarm(&rows, at(minute * 60_000)).expect("the rows can be read");
        assert_eq!(calls(&mut cell), []);
    }
    rows.refused.borrow_mut().clear();
    cell.alarm(&rows, at(6_000_000)).expect("the rows can be read");
    assert_eq!(runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then), 1);
    assert_eq!(rows.get(1).status(), Status::Completed);
}

/// How long each run sleeps.
const NAP_MS: u64 = 1_000;

/// A cell's rows with so many sleeping runs.
fn asleep(count: u64) -> Memory {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    for number in 1..=count {
        cell.repair(&rows, at(0)).expect("the rows can be read");
        cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
        let op = Op { kind: OpKind::Sleep, name: "nap".into(), occurrence: 0 };
        let then = Then::Suspend { open: vec![Open::Sleep { op, ms: NAP_MS }] };
        cell.commit(&rows, at(0), number, Epoch(1), said(Seq(0), vec![], then), 1).expect("in turn");
        cell.call_ended(&rows, at(0), number, Epoch(1), CallEnd::Returned).expect("it is recorded");
    }
    rows
}

/// When the alarm is set for after these orders.
fn armed(cell: &mut Cell) -> Option<Timestamp> {
    cell.take_orders().arm
}

#[test]
fn runs_that_the_storage_refuses_keep_no_timer_waiting_and_cost_a_bounded_number_of_tries() {
    let rows = asleep(10);
    rows.refused.borrow_mut().extend(1..=9);
    let mut cell = Cell::new(4);
    let mut now = at(NAP_MS + 10);
    cell.alarm(&rows, now).expect("one run is not the storage");
    assert_eq!(rows.get(10).head, Seq(1), "its timer has fired");
    // Ten minutes of alarms, each when it is set for.
    let until = now.plus_millis(600_000);
    let mut alarms = 0;
    while now < until {
        now = armed(&mut cell).expect("there is more to do");
        cell.alarm(&rows, now).expect("one run is not the storage");
        alarms += 1;
    }
    assert!(rows.refusals.get() < 9 * 140, "{} tries", rows.refusals.get());
    assert!(alarms < 500, "{alarms} alarms");
    // The storage has recovered.
    rows.refused.borrow_mut().clear();
    while now < until.plus_millis(2 * DEAD_MAN_MS) {
        now = armed(&mut cell).expect("there is more to do");
        cell.alarm(&rows, now).expect("the rows can be read");
    }
    let late: Vec<_> = (1..=10).filter(|number| rows.get(*number).head == Seq(0)).collect();
    assert!(late.is_empty(), "their timers have not fired: {late:?}");
}

/// What the storage takes next of a run need not be what is due.
#[test]
fn a_run_whose_timer_was_refused_still_wakes_after_something_else_of_it_was_stored() {
    for name in ["other", "go"] {
        let rows = asleep(2);
        rows.refused.borrow_mut().extend([1, 2]);
        let mut cell = Cell::new(4);
        let mut now = at(NAP_MS + 10);
        cell.alarm(&rows, now).expect("one run is not the storage");
        rows.refused.borrow_mut().clear();
        let id = rows.get(1).id;
        cell.signal(&rows, now, &id, Signal::new(name, Payload::null())).expect("it is kept");
        let until = now.plus_millis(2 * DEAD_MAN_MS);
        while now < until {
            now = armed(&mut cell).expect("there is more to do");
            cell.alarm(&rows, now).expect("the rows can be read");
        }
        for number in [1, 2] {
            let fired = |record: &Record| matches!(record.event, Event::TimerFired { .. });
            assert!(rows.history(number).iter().any(fired), "the timer of run {number} has not fired");
        }
    }
}

#[test]
fn more_refused_runs_than_a_cell_remembers_are_all_tried_again() {
    let count = 1_500;
    let rows = asleep(count);
    rows.refused.borrow_mut().extend(1..count);
    let mut cell = Cell::new(4);
    let mut now = at(NAP_MS + 10);
    cell.alarm(&rows, now).expect("one run is not the storage");
    for _ in 0..20 {
        now = armed(&mut cell).expect("there is more to do");
        cell.alarm(&rows, now).expect("one run is not the storage");
    }
    assert_eq!(rows.get(count).head, Seq(1), "its timer has fired");
    rows.refused.borrow_mut().clear();
    let until = now.plus_millis(3 * DEAD_MAN_MS);
    while now < until {
        now = armed(&mut cell).expect("there is more to do");
        cell.alarm(&rows, now).expect("the rows can be read");
    }
    let late = (1..=count).filter(|number| rows.get(*number).head == Seq(0)).count();
    assert_eq!(late, 0, "timers that have not fired");
}

#[test]
fn an_expired_run_that_cannot_be_deleted_keeps_no_other_from_it() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    for number in 1..=3 {
        let new = NewRun { retention_ms: Some(1_000), ..new_run(None) };
        cell.start(&rows, at(0), new).expect("it is accepted");
        let commit = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
        cell.commit(&rows, at(1), number, Epoch(1), commit, 1).expect("in turn");
        cell.call_ended(&rows, at(1), number, Epoch(1), CallEnd::Returned).expect("it is recorded");
    }
    rows.refused.borrow_mut().insert(1);
    let mut now = at(10_000);
    cell.alarm(&rows, now).expect("one run is not the storage");
    assert_eq!(rows.runs(), 1, "the others are deleted");
    while now < at(610_000) {
        now = armed(&mut cell).expect("there is more to do");
        cell.alarm(&rows, now).expect("one run is not the storage");
    }
    assert!(rows.refusals.get() < 140, "{} tries", rows.refusals.get());
    rows.refused.borrow_mut().clear();
    cell.alarm(&rows, now.plus_millis(2 * DEAD_MAN_MS)).expect("the rows can be read");
    assert_eq!(rows.runs(), 0);
}

#[test]
fn an_alarm_that_cannot_read_the_rows_says_so_and_sets_the_next_one() {
    let rows = asleep(1);
    rows.hides_due.set(true);
    let mut cell = Cell::new(4);
    let (mut now, mut alarms) = (at(NAP_MS + 10), 0);
    while now < at(600_000) {
        assert!(matches!(cell.alarm(&rows, now), Err(Fault::Storage(Failed::Refused))));
        now = armed(&mut cell).expect("there is more to do");
        alarms += 1;
    }
    assert!(alarms < 140, "{alarms} alarms");
    rows.hides_due.set(false);
    cell.alarm(&rows, now).expect("the rows can be read");
    assert_eq!(rows.get(1).head, Seq(1), "its timer has fired");
}

#[test]
fn a_run_that_is_due_at_the_beginning_of_time_is_no_trouble() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, Timestamp::default(), new_run(None)).expect("it is accepted");
    let mut fresh = Cell::new(4);
    fresh.found_alarm(Some(Timestamp::default()));
    fresh.repair(&rows, at(0)).expect("the rows can be read");
    assert_eq!(fresh.take_orders().arm, Some(at(1)));
}
