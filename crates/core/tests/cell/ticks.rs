//! Runs that schedules start, and what their cell tells a schedule of their ends.

use stepwell_core::{
    cell::{Cell, Chance, StoredKey, TickRun},
    object::{Address, Delivery, Hosted as _, Machine as _, Message, Receipt},
    run::{CallEnd, INVOCATION_KEPT_MS},
};
use stepwell_protocol::{
    Epoch, Payload, RunId, Timestamp,
    program::{Dispatch, Then},
    rest::Status,
    schedule::{TickId, Ticked},
};

use super::{at, calls, children::place, memory::Memory, said};

fn tick(tells: bool, at_ms: u64, input: u32) -> TickRun {
    let tells = tells.then(|| "0".to_owned());
    TickRun {
        callback: None,
        flow: None,
        joins: None,
        ticked: Ticked { schedule: "nightly".into(), tick: TickId::At(Timestamp::from_millis(at_ms)), tells },
        workflow: "report".into(),
        input: Payload::encode(&input).expect("JSON"),
        tags: vec!["daily".into()],
        given_up: false,
        spare: None,
        dispatch: Dispatch::Direct,
        timeout_ms: None,
        retention_ms: Some(1_000),
        retention_is_default: false,
    }
}

fn start(cell: &mut Cell, rows: &Memory, ms: u64, drawn: u64, tick: TickRun) -> RunId {
    let chance = Chance { suffix: RunId::suffix_from(drawn), seed: drawn };
    let receipt = cell.start_tick(rows, at(ms), place(0), chance, tick).expect("it is accepted");
    let Receipt::Started { run } = receipt else { panic!("{receipt:?}") };
    run
}

fn end(cell: &mut Cell, rows: &Memory, ms: u64, number: u64) {
    let commit = said(rows.get(number).head, vec![], Then::Complete { output: Payload::null() });
    cell.commit(rows, at(ms), number, Epoch(1), commit, ms).expect("in turn");
    cell.call_ended(rows, at(ms), number, Epoch(1), CallEnd::Returned).expect("it is recorded");
}

#[test]
fn a_tick_that_comes_twice_starts_one_run_whatever_it_is_started_with() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let first = start(&mut cell, &rows, 0, 1, tick(false, 9, 1));
    let mut fresh = Cell::new(4);
    assert_eq!(start(&mut fresh, &rows, 1, 2, tick(false, 9, 2)), first);
    let other = start(&mut cell, &rows, 2, 3, tick(false, 10, 1));
    assert_ne!(other, first, "another instant is another tick");
    let run = rows.get(first.number);
    assert_eq!(
        (run.started_by.as_deref(), run.tags.as_slice()),
        (Some("schedule:nightly"), &["daily".into()][..])
    );
}

#[test]
fn a_tick_that_was_given_up_starts_no_run_when_its_question_comes_late() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let chance = || Chance { suffix: RunId::suffix_from(1), seed: 1 };
    let give_up = TickRun { given_up: true, ..tick(false, 9, 1) };
    let answer = cell.start_tick(&rows, at(0), place(0), chance(), give_up);
    assert_eq!(answer.expect("it is answered"), Receipt::Gone);
    let late = cell.start_tick(&rows, at(1), place(0), chance(), tick(false, 9, 1));
    assert_eq!(late.expect("it is answered"), Receipt::Gone);
    assert_eq!(rows.keys.borrow().values().next(), Some(&StoredKey::GivenUp));
    assert!(rows.keys.borrow().len() == 1 && rows.unbound.borrow().len() == 1);
    // One that has a run keeps it.
    let run = start(&mut cell, &rows, 2, 2, tick(false, 10, 1));
    let give_up = TickRun { given_up: true, ..tick(false, 10, 1) };
    assert_eq!(
        cell.start_tick(&rows, at(3), place(0), chance(), give_up).expect("it is answered"),
        Receipt::Started { run }
    );
}

#[test]
fn a_tick_is_known_for_a_week_however_short_its_run_is_kept() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let first = start(&mut cell, &rows, 0, 1, tick(false, 9, 1));
    end(&mut cell, &rows, 1, first.number);
    for ms in [100_000, 200_000] {
        cell.alarm(&rows, at(ms)).expect("the rows can be read");
    }
    assert!(rows.get(first.number).emptied, "its time is over");
    assert_eq!(start(&mut cell, &rows, INVOCATION_KEPT_MS - 1, 2, tick(false, 9, 1)), first);
}

#[test]
fn a_schedule_is_told_of_an_end_if_it_wants_to_hear_of_it() {
    for tells in [true, false] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let run = start(&mut cell, &rows, 0, 1, tick(tells, 9, 1));
        assert_eq!(calls(&mut cell), [(run.number, Epoch(1))]);
        end(&mut cell, &rows, 1, run.number);
        let sends = cell.take_orders().send;
        assert_eq!(sends.len(), usize::from(tells));
        for sending in sends {
            assert_eq!(sending.to, Address::schedules("default", "0"));
            let ticked = tick(tells, 9, 1).ticked;
            assert_eq!(
                sending.message,
                Message::TickEnded { ticked, run: run.clone(), how: Status::Completed }
            );
            cell.delivered(&rows, at(2), &sending, Delivery::Arrived(Receipt::Taken)).expect("recorded");
        }
        cell.alarm(&rows, at(60)).expect("the rows can be read");
        assert!(cell.take_orders().send.is_empty(), "it has arrived");
    }
}

#[test]
fn a_tick_of_a_full_cell_goes_to_another_one_for_good() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_storage(100));
    rows.bytes.set(90);
    let chance = || Chance { suffix: RunId::suffix_from(1), seed: 1 };
    let with_spare = TickRun { spare: Some(place(1)), ..tick(false, 9, 1) };
    let moved = Receipt::Moved { to: place(1) };
    assert_eq!(cell.start_tick(&rows, at(0), place(0), chance(), with_spare).expect("it is answered"), moved);
    // Whatever comes later, also when there is room again: only the other one starts it, or gives it up.
    let mut fresh = Cell::new(4);
    for given_up in [false, true] {
        let later = TickRun { given_up, ..tick(false, 9, 1) };
        assert_eq!(fresh.start_tick(&rows, at(1), place(0), chance(), later).expect("it is answered"), moved);
    }
    assert_eq!(rows.unbound.borrow().len(), 1, "it is forgotten in a week");
    fresh.alarm(&rows, at(INVOCATION_KEPT_MS)).expect("the rows can be read");
    assert_eq!(rows.keys.borrow().len(), 0);
}
