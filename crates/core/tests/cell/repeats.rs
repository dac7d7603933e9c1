//! A request that the platform delivers again: it starts one run and sends one signal, in whichever instance it ends up.

use stepwell_core::{
    cell::{Action, Cell, LOOK_BACK, NewRun, Started, StartedAs},
    object::Machine as _,
    run::Signal,
};
use stepwell_protocol::{Event, Payload};

use super::{at, memory::Memory, new_run};

fn start(cell: &mut Cell, rows: &Memory, new: &NewRun) -> Started {
    cell.start(rows, at(0), new.clone()).expect("it is accepted")
}

#[test]
fn a_start_that_is_delivered_again_gives_the_same_run_and_the_same_answer() {
    let (rows, new) = (Memory::default(), new_run(None));
    let mut cell = Cell::new(4);
    let first = start(&mut cell, &rows, &new);
    // To this instance, or to one that knows only the rows.
    for mut cell in [cell, Cell::new(4)] {
        let again = start(&mut cell, &rows, &new);
        assert_eq!(again.run.id, first.run.id);
        assert_eq!(again.how, StartedAs::New, "whoever asks has not been told of it yet");
    }
    assert_eq!(rows.runs(), 1);
}

#[test]
fn each_request_starts_a_run_of_its_own() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    for _ in 0..3 {
        start(&mut cell, &rows, &new_run(None));
    }
    start(&mut Cell::new(4), &rows, &new_run(None));
    assert_eq!(rows.runs(), 4);
}

#[test]
fn a_fresh_instance_looks_back_over_many_starts() {
    let (rows, mut cell, new) = (Memory::default(), Cell::new(4), new_run(None));
    start(&mut cell, &rows, &new);
    for _ in 1..LOOK_BACK {
        start(&mut cell, &rows, &new_run(None));
    }
    start(&mut Cell::new(4), &rows, &new);
    assert_eq!(rows.runs(), LOOK_BACK);
}

#[test]
fn a_request_is_known_for_as_long_as_its_run_is_kept() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let new = NewRun { retention_ms: Some(1), ..new_run(None) };
    let first = start(&mut cell, &rows, &new).run.id;
    cell.act(&rows, at(1), &first, "root", Action::Cancel).expect("it is cancelled");
    cell.alarm(&rows, at(600_000)).expect("the rows can be read");
    assert_eq!(rows.runs(), 0);
    assert_ne!(start(&mut cell, &rows, &new).run.id, first);
}

#[test]
fn a_signal_that_is_delivered_again_counts_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = start(&mut cell, &rows, &new_run(None)).run.id;
    let signal = |nonce: &str| Signal { nonce: Some(nonce.into()), ..Signal::new("go", Payload::null()) };
    for (nonce, events) in [("one", 1), ("one", 1), ("two", 2)] {
        for mut cell in [Cell::new(4), Cell::new(4)] {
            let is_new = cell.signal(&rows, at(1), &id, signal(nonce)).expect("it is kept");
            assert!(is_new, "the sender has sent it once");
        }
        assert_eq!(rows.events(1), events);
    }
    // What the sender did not say is not in the history.
    let received = rows.history(1).remove(0).event;
    assert!(matches!(received, Event::SignalReceived { id: None, .. }), "{received:?}");
}
