//! What a cell tells the address that a run names, at each of its ends.

use stepwell_core::{
    cell::{Action, Cell, KeyRow, NewRun, scoped_key},
    object::{Address, Delivery, Hosted as _, Machine as _, Message, Receipt, Sending},
    run::CallEnd,
};
use stepwell_protocol::{
    Failure, Payload,
    callback::{Callback, RESULT_BYTES_MAX},
    program::Then,
    rest::Status,
};

use super::{at, memory::Memory, new_run, said};

const URL: &str = "https://example.com/done";

fn with_callback() -> NewRun {
    NewRun { callback: Some(URL.into()), ..new_run(Some(60_000)) }
}

fn end(cell: &mut Cell, rows: &Memory, ms: u64, number: u64, then: Then) {
    let run = rows.get(number);
    cell.commit(rows, at(ms), number, run.epoch, said(run.head, vec![], then), ms).expect("in turn");
    cell.call_ended(rows, at(ms), number, run.epoch, CallEnd::Returned).expect("it is recorded");
}

fn completes(output: &Payload) -> Then {
    Then::Complete { output: output.clone() }
}

/// The one message that goes out: what it is known by, and what it says.
fn told(cell: &mut Cell) -> (Sending, String, Callback) {
    let mut sends = cell.take_orders().send;
    assert_eq!(sends.len(), 1, "{sends:?}");
    let sending = sends.remove(0);
    assert_eq!(sending.to, Address::queue("default", "stepwell.webhooks", 0));
    let Message::Callback { id, url, body, .. } = sending.message.clone() else { panic!("{sending:?}") };
    assert_eq!(url, URL);
    (sending, id, body.decode().expect("it is a callback"))
}

#[test]
fn a_run_without_an_address_writes_no_letter_and_no_field() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    assert!(!run.to_row().state.contains("callback"));
    end(&mut cell, &rows, 1, run.id.number, completes(&Payload::null()));
    assert!(rows.letters.borrow().is_empty() && cell.take_orders().send.is_empty());
}

#[test]
fn an_end_is_told_once_with_what_the_run_gave() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let key = KeyRow { key: scoped_key("w", "order-7"), fingerprint: "f".into() };
    let new = NewRun { key: Some(key), tags: vec!["eu".into()], ..with_callback() };
    let run = cell.start(&rows, at(0), new).expect("it is accepted").run;
    let output = Payload::from_text(r#"{"total":3}"#.into()).expect("JSON");
    end(&mut cell, &rows, 1, run.id.number, completes(&output));
    let (sending, id, callback) = told(&mut cell);
    let told_of = &callback.data;
    assert_eq!(
        (callback.kind.as_str(), callback.timestamp.as_str()),
        ("run.completed", "2023-11-14T22:13:20Z")
    );
    assert_eq!((&told_of.run, told_of.status, told_of.workflow.as_str()), (&run.id, Status::Completed, "w"));
    assert_eq!((told_of.key.as_deref(), &told_of.tags), (Some("order-7"), &vec!["eu".to_owned()]));
    assert_eq!((&told_of.result, told_of.result_bytes, &told_of.error), (&Some(output), None, &None));
    // An instance that knows only the rows sends the same again, until it has arrived.
    let mut fresh = Cell::new(4);
    fresh.alarm(&rows, at(10_000)).expect("the rows can be read");
    let (again, same, _) = told(&mut fresh);
    assert_eq!((same, again.message == sending.message), (id, true));
    fresh.delivered(&rows, at(10_001), &again, Delivery::Arrived(Receipt::Taken)).expect("it is recorded");
    assert!(rows.letters.borrow().is_empty());
}

#[test]
fn a_result_that_is_too_large_is_only_counted() {
    for (bytes, is_sent) in [(RESULT_BYTES_MAX, true), (RESULT_BYTES_MAX + 1, false)] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let run = cell.start(&rows, at(0), with_callback()).expect("it is accepted").run;
        let output = Payload::from_text(format!("\"{}\"", "x".repeat(bytes - 2))).expect("JSON");
        end(&mut cell, &rows, 1, run.id.number, completes(&output));
        let (_, _, callback) = told(&mut cell);
        assert_eq!(callback.data.result.is_some(), is_sent);
        assert_eq!(callback.data.result_bytes, (!is_sent).then_some(bytes));
    }
}

#[test]
fn failures_cancels_and_times_that_are_over_are_told_too() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let failed = cell.start(&rows, at(0), with_callback()).expect("it is accepted").run.id;
    end(&mut cell, &rows, 1, failed.number, Then::Fail { failure: Failure::new("no stock") });
    let (sending, _, callback) = told(&mut cell);
    cell.delivered(&rows, at(1), &sending, Delivery::Arrived(Receipt::Taken)).expect("it is recorded");
    assert_eq!((callback.kind.as_str(), callback.data.status), ("run.failed", Status::Failed));
    assert_eq!(callback.data.error.map(|error| error.message), Some("no stock".into()));
    let cancelled = cell.start(&rows, at(2), with_callback()).expect("it is accepted").run.id;
    cell.act(&rows, at(3), &cancelled, "root", Action::Cancel).expect("it is cancelled");
    let (sending, _, callback) = told(&mut cell);
    cell.delivered(&rows, at(3), &sending, Delivery::Arrived(Receipt::Taken)).expect("it is recorded");
    assert_eq!((callback.kind.as_str(), callback.data.error), ("run.cancelled", None));
    let slow = cell.start(&rows, at(4), with_callback()).expect("it is accepted").run.id;
    let _ = cell.take_orders();
    cell.alarm(&rows, at(60_005)).expect("the rows can be read");
    let sends = cell.take_orders().send.into_iter();
    let callbacks = sends.filter_map(|sending| {
        let Message::Callback { run, body, .. } = sending.message else { return None };
        body.decode::<Callback>().ok().filter(|_| run == slow)
    });
    let codes: Vec<_> = callbacks.filter_map(|callback| callback.data.error?.code).collect();
    assert_eq!(codes, [stepwell_protocol::Code::RunTimedOut]);
}

#[test]
fn each_end_of_a_run_is_told_by_itself_also_within_a_millisecond() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), with_callback()).expect("it is accepted").run.id;
    let mut ids = Vec::new();
    for round in 0..3 {
        cell.act(&rows, at(1), &run, "root", Action::Cancel).expect("it is cancelled");
        let (sending, id, _) = told(&mut cell);
        cell.delivered(&rows, at(1), &sending, Delivery::Arrived(Receipt::Taken)).expect("recorded");
        assert!(!ids.contains(&id), "round {round}: {id} again");
        ids.push(id);
        cell.act(&rows, at(1), &run, "root", Action::Restart { from: None }).expect("it is restarted");
        let _ = cell.take_orders();
    }
    assert_eq!(ids.len(), 3);
}
