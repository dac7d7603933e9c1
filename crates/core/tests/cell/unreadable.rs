//! Runs whose rows cannot be read: set aside, in nobody's way.

use stepwell_core::{
    cell::{ALARM_SLICE, Action, Cell, KeyRow, LOOK_AT_UNREADABLE_MS, NewRun},
    object::{Fault, Hosted as _, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{
    Code, Epoch, Op, OpKind, RunId, Seq, Timestamp,
    program::{Open, Then},
    rest::Status,
};

use crate::{Memory, at, calls, memory::Failed, new_run, said};

/// How long each run sleeps.
const NAP_MS: u64 = 1_000;

/// A cell's rows with so many sleeping runs; gives their ids too.
pub(super) fn asleep(count: usize) -> (Memory, Vec<RunId>) {
    let (rows, mut cell) = (Memory::default(), Cell::new(count));
    let mut ids = Vec::new();
    for _ in 0..count {
        cell.repair(&rows, at(0)).expect("the rows can be read");
        ids.push(cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id);
        for (number, epoch) in calls(&mut cell) {
            let op = Op { kind: OpKind::Sleep, name: "nap".into(), occurrence: 0 };
            let then = Then::Suspend { open: vec![Open::Sleep { op, ms: NAP_MS }] };
            cell.commit(&rows, at(1), number, epoch, said(Seq(0), vec![], then), 1).expect("in turn");
            // Its place is for the next: one workflow gets half of the window.
            cell.call_ended(&rows, at(1), number, epoch, CallEnd::Returned).expect("it is recorded");
        }
    }
    (rows, ids)
}

fn code<T: std::fmt::Debug>(refused: Result<T, Fault<Failed>>) -> Code {
    match refused {
        Err(Fault::Rejected(problem)) => problem.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_alarm_reaches_every_run_behind_one_that_cannot_be_read() {
    let count = 2 * ALARM_SLICE;
    let (rows, _) = asleep(count);
    rows.damaged.borrow_mut().extend([1, 300]);
    // Whoever comes back after a crash, as often as it takes.
    let mut cell = Cell::new(count);
    for ms in 0..4 {
        cell.alarm(&rows, at(NAP_MS + 10 + ms)).expect("one row is not the storage");
    }
    let awake = (1..=count as u64).filter(|number| !rows.damaged.borrow().contains(number));
    let late: Vec<_> = awake.filter(|number| rows.get(*number).head == Seq(0)).collect();
    assert!(late.is_empty(), "their timers have not fired: {late:?}");
    assert_eq!(rows.stumbled.get(), 2, "each is read once and then left alone");
    assert!(rows.quarantined.borrow().keys().eq(&[1, 300]));
    // The next instance does not come across them at all.
    Cell::new(count).alarm(&rows, at(NAP_MS + 20)).expect("the rows can be read");
    assert_eq!(rows.stumbled.get(), 2);
}

#[test]
fn a_run_that_cannot_be_read_says_so_and_goes_on_once_it_can_be() {
    let (rows, ids) = asleep(2);
    let mut cell = Cell::new(4);
    rows.damaged.borrow_mut().insert(1);
    cell.alarm(&rows, at(NAP_MS + 10)).expect("one row is not the storage");
    assert_eq!(code(cell.find(&rows, &ids[0])), Code::RunUnreadable);
    assert_eq!(code(cell.act(&rows, at(2_000), &ids[0], "root", Action::Resume)), Code::RunUnreadable);
    let why = cell.why(&rows, at(2_000), &ids[0]).expect("it says why");
    assert!(why.status == Status::Paused && why.because.contains("log"), "{why:?}");
    // Somebody has restored it.
    rows.damaged.borrow_mut().clear();
    cell.act(&rows, at(3_000), &ids[0], "root", Action::Resume).expect("it can be read again");
    let _ = cell.take_orders();
    cell.alarm(&rows, at(4_000)).expect("the rows can be read");
    assert!(calls(&mut cell).contains(&(1, Epoch(2))), "{:?}", rows.get(1).phase);
}

/// Lets the alarm fire whenever it is set for, until a time.
fn alarms(cell: &mut Cell, rows: &Memory, mut now: Timestamp, until: Timestamp) {
    loop {
        cell.alarm(rows, now).expect("one row is not the storage");
        match cell.take_orders().arm {
            Some(at) if at <= until => now = at,
            Some(_) | None => return,
        }
    }
}

#[test]
fn runs_that_could_not_be_read_go_on_by_themselves_once_they_can_be() {
    let count = ALARM_SLICE + 10;
    let (rows, ids) = asleep(count);
    // A rollback: the release before this one reads none of them.
    rows.damaged.borrow_mut().extend(1..=count as u64);
    alarms(&mut Cell::new(count), &rows, at(NAP_MS + 10), at(300_000));
    assert_eq!(rows.quarantined.borrow().len(), count);
    // It is taken back.
    rows.damaged.borrow_mut().clear();
    let mut cell = Cell::new(count);
    cell.repair(&rows, at(300_000)).expect("the rows can be read");
    let why = cell.why(&rows, at(300_000), &ids[0]).expect("it can be read");
    assert!(why.status == Status::Paused && why.next_wake.is_none(), "it does not sleep: {why:?}");
    let view = cell.view(&cell.find(&rows, &ids[0]).expect("it can be read"));
    assert_eq!(view.problem.map(|problem| problem.code), Some(Code::RunUnreadable));
    let orders = cell.take_orders();
    let soon = at(NAP_MS + 20 + LOOK_AT_UNREADABLE_MS);
    assert!(orders.arm.is_some_and(|at| at <= soon) && orders.own.is_empty(), "{orders:?}");
    alarms(&mut cell, &rows, soon, soon.plus_millis(1_000));
    let late = (1..=count as u64).filter(|number| rows.get(*number).head == Seq(0)).count();
    assert_eq!(late, 0, "timers that have not fired");
    assert!(rows.quarantined.borrow().is_empty());
}

#[test]
fn a_row_that_stays_unreadable_is_read_once_an_hour() {
    let (rows, _) = asleep(2);
    rows.damaged.borrow_mut().insert(1);
    let day_ms = 24 * LOOK_AT_UNREADABLE_MS;
    alarms(&mut Cell::new(4), &rows, at(NAP_MS + 10), at(day_ms));
    assert_eq!(rows.stumbled.get(), 24);
}

#[test]
fn what_happens_to_a_run_that_can_be_read_again_does_not_wait_for_the_next_look() {
    let (rows, ids) = asleep(2);
    let mut cell = Cell::new(4);
    rows.damaged.borrow_mut().extend([1, 2]);
    cell.alarm(&rows, at(NAP_MS + 10)).expect("one row is not the storage");
    rows.damaged.borrow_mut().clear();
    cell.act(&rows, at(3_000), &ids[0], "root", Action::Cancel).expect("it can be read again");
    assert_eq!(rows.get(1).status(), Status::Cancelled);
    cell.act(&rows, at(3_000), &ids[1], "root", Action::Pause).expect("it can be read again");
    assert!(rows.quarantined.borrow().is_empty(), "its row has no wake time");
}

#[test]
fn an_expired_run_that_cannot_be_read_keeps_no_other_from_being_deleted() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    for _ in 0..3 {
        let new = stepwell_core::cell::NewRun { retention_ms: Some(1_000), ..new_run(None) };
        cell.start(&rows, at(0), new).expect("it is accepted");
        for (number, epoch) in calls(&mut cell) {
            let then = Then::Complete { output: stepwell_protocol::Payload::null() };
            cell.commit(&rows, at(1), number, epoch, said(Seq(0), vec![], then), 1).expect("in turn");
            cell.call_ended(&rows, at(1), number, epoch, stepwell_core::run::CallEnd::Returned)
                .expect("it is recorded");
        }
    }
    rows.damaged.borrow_mut().insert(1);
    cell.alarm(&rows, at(10_000)).expect("one row is not the storage");
    assert_eq!(rows.runs(), 1, "only the one that cannot be read is left");
}

#[test]
fn a_run_that_cannot_be_read_is_found_by_its_key() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    let key = KeyRow { key: "k".into(), fingerprint: "f".into() };
    let new = NewRun { key: Some(key), ..new_run(None) };
    let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
    rows.damaged.borrow_mut().insert(id.number);
    let fresh = Cell::new(1);
    assert_eq!(fresh.find_key(&rows, "k").expect("its key can be read"), Some(id.number));
    assert_eq!(code(fresh.find(&rows, &id)), Code::RunUnreadable);
}
