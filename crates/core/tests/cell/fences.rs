//! A program that should have stopped is shown nothing of its journal.

use stepwell_core::{
    cell::{Action, Cell, NewRun, Slice},
    object::{Fault, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{Code, Epoch, Seq, program::Then};

use super::{at, memory::Memory, new_run, said, step};

/// How many events of the journal a program is shown, or why it is shown none.
fn page(cell: &Cell, rows: &Memory, epoch: u32) -> Result<usize, Code> {
    match cell.page(rows, 1, Epoch(epoch), Seq(0)) {
        Ok(page) => Ok(page.events.len()),
        Err(Fault::Rejected(problem)) => Err(problem.code),
        Err(Fault::Storage(unreadable)) => panic!("{unreadable:?}"),
        Err(Fault::Moved(place)) => panic!("it has no key that could be at {place}"),
    }
}

/// A run whose program has recorded two steps and goes on.
fn at_work(cell: &mut Cell, rows: &Memory, retention_ms: Option<u64>) {
    cell.start(rows, at(0), NewRun { retention_ms, ..new_run(None) }).expect("it is accepted");
    let commit = said(Seq(0), vec![step("a"), step("b")], Then::Continue { open: None });
    cell.commit(rows, at(1), 1, Epoch(1), commit, 1).expect("it is in turn");
}

#[test]
fn a_program_that_was_replaced_is_shown_nothing() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    at_work(&mut cell, &rows, None);
    assert_eq!(page(&cell, &rows, 1), Ok(2));
    cell.call_ended(&rows, at(2), 1, Epoch(1), CallEnd::Lost("gone".into())).expect("it is recorded");
    cell.alarm(&rows, at(60_000)).expect("the rows can be read");
    assert_eq!(page(&cell, &rows, 1), Err(Code::StaleEpoch));
    assert_eq!(page(&cell, &rows, 2), Ok(2));
}

#[test]
fn a_program_of_a_run_that_is_being_deleted_is_shown_nothing() {
    let rows = Memory::default();
    let mut cell = Cell::new(4).with_delete_slice(Slice { rows: 1, bytes: 1 << 20 });
    at_work(&mut cell, &rows, Some(1_000));
    let id = rows.get(1).id;
    cell.act(&rows, at(2), &id, "root", Action::Cancel).expect("it is cancelled");
    assert_eq!(page(&cell, &rows, 1), Err(Code::StaleEpoch));
    cell.alarm(&rows, at(600_000)).expect("the rows can be read");
    // One of its events is gone, and the other is not.
    assert!(rows.get(1).deleting);
    assert_eq!(rows.events(1), 1);
    assert_eq!(page(&cell, &rows, 1), Err(Code::StaleEpoch));
}

#[test]
fn a_program_at_work_when_its_run_is_paused_may_read_on() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    at_work(&mut cell, &rows, None);
    let id = rows.get(1).id;
    cell.act(&rows, at(2), &id, "root", Action::Pause).expect("it is paused");
    assert_eq!(page(&cell, &rows, 1), Ok(2));
    cell.act(&rows, at(3), &id, "root", Action::Resume).expect("it goes on");
    assert_eq!(page(&cell, &rows, 1), Err(Code::StaleEpoch));
}

#[test]
fn a_call_is_not_made_for_an_activation_that_is_over() {
    for action in [Action::Cancel, Action::Pause] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        at_work(&mut cell, &rows, None);
        let id = rows.get(1).id;
        assert!(cell.activation(&rows, at(2), 1, Epoch(1)).is_ok());
        cell.act(&rows, at(2), &id, "root", action).expect("it is done");
        assert!(cell.activation(&rows, at(3), 1, Epoch(1)).is_err());
    }
}
