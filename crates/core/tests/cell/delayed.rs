//! Runs that begin later than they are started.

use stepwell_core::{
    cell::{Action, Cell, NewRun},
    object::{Hosted as _, Machine as _},
};
use stepwell_protocol::{RunId, rest::Status};

use crate::{Memory, at, calls, new_run};

fn delayed(rows: &Memory, cell: &mut Cell, ms: u64) -> RunId {
    let new = NewRun { starts_at: Some(at(ms)), ..new_run(Some(500)) };
    cell.start(rows, at(0), new).expect("it is started").run.id
}

#[test]
fn a_delayed_run_is_stored_and_called_at_its_time() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = delayed(&rows, &mut cell, 7_200_000);
    let orders = cell.take_orders();
    assert_eq!((orders.arm, orders.own.len()), (Some(at(7_200_000)), 0));
    let run = cell.find(&rows, &id).expect("it is stored");
    assert_eq!((run.status(), run.begins_at()), (Status::Pending, Some(at(7_200_000))));
    assert_eq!(run.deadline, Some(at(7_200_500)), "the time that it may take begins with it");
    let why = cell.why(&rows, at(1), &id).expect("it is stored");
    assert_eq!(
        (why.because.as_str(), why.next_wake),
        ("It starts at 2023-11-15T00:13:20Z.", Some(at(7_200_000)))
    );
    // The alarm is early, and another instance gets it.
    let mut cell = Cell::new(4);
    cell.alarm(&rows, at(7_199_999)).expect("nothing is due");
    assert_eq!(calls(&mut cell).len(), 0);
    cell.alarm(&rows, at(7_200_000)).expect("it is due");
    assert_eq!(calls(&mut cell).len(), 1);
    let run = cell.find(&rows, &id).expect("it is stored");
    assert_eq!((run.status(), run.begins_at()), (Status::Running, None));
}

#[test]
fn a_delayed_run_can_be_cancelled_before_it_begins() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = delayed(&rows, &mut cell, 60_000);
    cell.act(&rows, at(1), &id, "ada", Action::Cancel).expect("it is cancelled");
    cell.alarm(&rows, at(60_000)).expect("nothing is due");
    assert_eq!(calls(&mut cell).len(), 0);
    assert_eq!(cell.find(&rows, &id).expect("it is kept").status(), Status::Cancelled);
}

#[test]
fn a_pause_does_not_make_a_delayed_run_begin_early() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = delayed(&rows, &mut cell, 60_000);
    for action in [Action::Pause, Action::Resume] {
        cell.act(&rows, at(1), &id, "ada", action).expect("it is done");
    }
    assert_eq!(calls(&mut cell).len(), 0);
    assert_eq!(cell.find(&rows, &id).expect("it is stored").begins_at(), Some(at(60_000)));
    cell.alarm(&rows, at(60_000)).expect("it is due");
    assert_eq!(calls(&mut cell).len(), 1);
}

#[test]
fn a_time_that_is_over_is_now() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(5), NewRun { starts_at: Some(at(5)), ..new_run(None) });
    assert_eq!(run.expect("it is started").run.status(), Status::Running);
    assert_eq!(calls(&mut cell).len(), 1);
}

#[test]
fn a_delayed_run_that_has_begun_is_not_put_off_again_by_a_clock_that_is_behind() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = delayed(&rows, &mut cell, 60_000);
    cell.alarm(&rows, at(60_000)).expect("it is due");
    assert_eq!(calls(&mut cell).len(), 1);
    // Another instance, elsewhere.
    let mut cell = Cell::new(4);
    for action in [Action::Pause, Action::Resume] {
        cell.act(&rows, at(55_000), &id, "ada", action).expect("it is done");
    }
    assert_eq!(calls(&mut cell).len(), 1);
}
