//! What is lost: calls of programs that cannot be reached or kill what they run in, and alarms.

use stepwell_core::{
    cell::Cell,
    object::{DEAD_MAN_MS, Hosted as _, Machine as _, Orders},
    run::CallEnd,
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Seq, Timestamp,
    program::{Open, Then},
    rest::Status,
};

use crate::{Memory, at, new_run, said};

fn lost() -> CallEnd {
    CallEnd::Lost("Network connection lost.".into())
}

/// Calls a program again and again whose connection breaks each time; says how often, and the run's status then.
fn breaks_again_and_again(says_something: bool) -> (u32, Status) {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    for activation in 1..60 {
        let now = at(u64::from(activation) * 100_000);
        let activated = cell.activation(&rows, now, 1, Epoch(activation)).expect("it is there");
        // One that was lost before has to fetch its journal, which is how it is heard of.
        if says_something && activated.journal.more {
            cell.heard_from(now, 1, Epoch(activation));
            assert!(!cell.page(&rows, 1, Epoch(activation), Seq(0)).expect("it can be read").more);
        }
        cell.call_ended(&rows, now, 1, Epoch(activation), lost()).expect("it is recorded");
        if rows.get(1).status() != Status::Pending {
            return (activation, rows.get(1).status());
        }
        cell.alarm(&rows, now.plus_millis(90_000)).expect("the rows can be read");
    }
    (60, rows.get(1).status())
}

#[test]
fn a_program_that_is_never_heard_of_is_called_for_ever() {
    assert_eq!(breaks_again_and_again(false).0, 60);
}

#[test]
fn a_program_that_is_heard_of_and_then_gone_each_time_is_failed() {
    let (activations, status) = breaks_again_and_again(true);
    assert_eq!((activations, status), (13, Status::Failed));
}

#[test]
fn only_an_alarm_that_the_platform_has_lost_is_reported_as_missing() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
    let commit = said(Seq(0), vec![], Then::Suspend { open: vec![Open::Sleep { op, ms: 60_000 }] });
    cell.commit(&rows, at(0), 1, Epoch(1), commit, 1).expect("it is accepted");
    for (found, is_missing) in [(None, true), (Some(60_000), false), (Some(5), false), (Some(90_000), false)]
    {
        let mut fresh = Cell::new(4);
        fresh.found_alarm(found.map(at));
        fresh.repair(&rows, at(10)).expect("the rows can be read");
        assert_eq!(fresh.alarm_was_missing(), is_missing, "{found:?}");
        assert!(!fresh.alarm_was_missing(), "it is said once");
    }
    let mut overdue = Cell::new(4);
    overdue.found_alarm(Some(at(60_000)));
    overdue.repair(&rows, at(120_000)).expect("the rows can be read");
    assert!(overdue.alarm_was_missing(), "it should have come a minute ago");
    let mut empty = Cell::new(4);
    empty.repair(&Memory::default(), at(10)).expect("the rows can be read");
    assert!(!empty.alarm_was_missing());
}

#[test]
fn an_alarm_that_the_platform_believes_to_be_set_is_set_for_another_time() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
    let commit = said(Seq(0), vec![], Then::Suspend { open: vec![Open::Sleep { op, ms: 60_000 }] });
    cell.commit(&rows, at(0), 1, Epoch(1), commit, 1).expect("it is accepted");
    for (found, armed) in [(None, 60_000), (Some(60_000), 59_999), (Some(59_999), 60_000), (Some(5), 60_000)]
    {
        let mut fresh = Cell::new(4);
        assert!(fresh.wants_repair());
        fresh.found_alarm(found.map(at));
        fresh.repair(&rows, at(10)).expect("the rows can be read");
        assert_eq!(
            fresh.take_orders(),
            Orders { arm: Some(at(armed)), send: Vec::new(), own: Vec::new() },
            "found {found:?}"
        );
        assert!(!fresh.wants_repair());
        // A moment early, nothing is due yet: it is set for the right time.
        fresh.alarm(&rows, at(59_999)).expect("the rows can be read");
        assert_eq!(fresh.take_orders().arm, Some(at(60_000)));
    }
}

fn sleeps(ms: u64) -> Then {
    let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
    Then::Suspend { open: vec![Open::Sleep { op, ms }] }
}

/// A cell that lives on, and whose alarm was set for 5,000 and never came.
fn with_a_lost_alarm(rows: &Memory) -> Cell {
    let mut cell = Cell::new(4);
    cell.start(rows, at(0), new_run(None)).expect("it is accepted");
    assert_eq!(cell.take_orders().arm, Some(at(DEAD_MAN_MS)));
    cell
}

fn armed(cell: &mut Cell) -> Option<Timestamp> {
    cell.take_orders().arm
}

#[test]
fn a_cell_whose_alarm_never_came_sets_another_for_a_run_that_goes_to_sleep() {
    let rows = Memory::default();
    let mut cell = with_a_lost_alarm(&rows);
    let now = at(2 * DEAD_MAN_MS);
    cell.commit(&rows, now, 1, Epoch(1), said(Seq(0), vec![], sleeps(60_000)), 1).expect("it is accepted");
    // At once: it does not know what else was to be looked at.
    assert_eq!(armed(&mut cell), Some(now.plus_millis(1)));
    cell.call_ended(&rows, now, 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    cell.alarm(&rows, now.plus_millis(1)).expect("the rows can be read");
    assert_eq!(armed(&mut cell), Some(now.plus_millis(60_000)));
}

#[test]
fn a_cell_whose_alarm_never_came_sets_another_at_the_next_request() {
    let rows = Memory::default();
    let mut cell = with_a_lost_alarm(&rows);
    cell.repair(&rows, at(1)).expect("the rows can be read");
    let _ = cell.take_orders();
    let now = at(2 * DEAD_MAN_MS);
    cell.repair(&rows, now).expect("the rows can be read");
    assert_eq!(armed(&mut cell), Some(now.plus_millis(1)));
    cell.repair(&rows, now.plus_millis(1)).expect("the rows can be read");
    assert_eq!(armed(&mut cell), None, "once is enough");
}

#[test]
fn an_alarm_that_is_only_late_is_not_put_off_by_whatever_comes_before_it() {
    let rows = Memory::default();
    let mut cell = with_a_lost_alarm(&rows);
    let now = at(2 * DEAD_MAN_MS - 1);
    cell.repair(&rows, now).expect("the rows can be read");
    let _ = cell.take_orders();
    cell.commit(&rows, now, 1, Epoch(1), said(Seq(0), vec![], sleeps(60_000)), 1).expect("it is accepted");
    assert_eq!(armed(&mut cell), None);
}
