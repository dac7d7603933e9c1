//! Runs that events start.

use stepwell_core::{
    cell::{Cell, Chance, TriggeredRun},
    object::{Machine as _, Receipt},
    run::{CallEnd, INVOCATION_KEPT_MS},
};
use stepwell_protocol::{
    Epoch, Payload, RunId,
    program::{Dispatch, Then},
    topic::Triggered,
};

use super::{at, children::place, memory::Memory, said};

fn triggered(event: u64, input: u32) -> TriggeredRun {
    TriggeredRun {
        callback: None,
        flow: None,
        joins: None,
        triggered: Triggered { topic: "order".into(), trigger: "charge".into(), event },
        workflow: "charge".into(),
        input: Payload::encode(&input).expect("JSON"),
        tags: vec!["event:order/9".into()],
        spare: None,
        dispatch: Dispatch::Direct,
        timeout_ms: None,
        retention_ms: Some(1_000),
        retention_is_default: false,
    }
}

fn start(cell: &mut Cell, rows: &Memory, ms: u64, drawn: u64, run: TriggeredRun) -> RunId {
    let chance = Chance { suffix: RunId::suffix_from(drawn), seed: drawn };
    let receipt = cell.start_triggered(rows, at(ms), place(0), chance, run).expect("it is accepted");
    let Receipt::Started { run } = receipt else { panic!("{receipt:?}") };
    run
}

#[test]
fn an_event_that_comes_twice_starts_one_run_whatever_it_is_started_with() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let first = start(&mut cell, &rows, 0, 1, triggered(9, 1));
    let mut fresh = Cell::new(4);
    assert_eq!(start(&mut fresh, &rows, 1, 2, triggered(9, 2)), first);
    assert_ne!(start(&mut cell, &rows, 2, 3, triggered(10, 1)), first, "another event is another run");
    let run = rows.get(first.number);
    assert_eq!(run.started_by.as_deref(), Some("trigger:order/charge"));
    assert_eq!(run.triggered.map(|triggered| triggered.event), Some(9));
}

#[test]
fn an_event_is_known_for_a_week_however_short_its_run_is_kept() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let first = start(&mut cell, &rows, 0, 1, triggered(9, 1));
    let commit = said(rows.get(first.number).head, vec![], Then::Complete { output: Payload::null() });
    cell.commit(&rows, at(1), first.number, Epoch(1), commit, 1).expect("in turn");
    cell.call_ended(&rows, at(1), first.number, Epoch(1), CallEnd::Returned).expect("it is recorded");
    for ms in [100_000, 200_000] {
        cell.alarm(&rows, at(ms)).expect("the rows can be read");
    }
    assert!(rows.get(first.number).emptied, "its time is over");
    assert_eq!(start(&mut cell, &rows, INVOCATION_KEPT_MS - 1, 2, triggered(9, 1)), first);
}

#[test]
fn the_run_of_an_event_goes_to_another_cell_for_good_if_its_own_is_full() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_storage(100));
    rows.bytes.set(90);
    let chance = || Chance { suffix: RunId::suffix_from(1), seed: 1 };
    let refused = cell.start_triggered(&rows, at(0), place(0), chance(), triggered(9, 1));
    assert!(refused.is_err(), "there is no other one");
    let with_spare = TriggeredRun { spare: Some(place(1)), ..triggered(9, 1) };
    let moved = Receipt::Moved { to: place(1) };
    let first = cell.start_triggered(&rows, at(0), place(0), chance(), with_spare);
    assert_eq!(first.expect("it is answered"), moved);
    let again = Cell::new(4).start_triggered(&rows, at(1), place(0), chance(), triggered(9, 1));
    assert_eq!(again.expect("it is answered"), moved);
    assert_eq!(rows.unbound.borrow().len(), 1, "it is forgotten in a week");
}
