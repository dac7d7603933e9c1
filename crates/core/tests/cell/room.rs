//! A cell that is nearly full.

use stepwell_core::{
    cell::{Cell, KeyRow, NewRun, Reserved},
    object::Fault,
    run::Signal,
};
use stepwell_protocol::{
    Code, Epoch, Op, OpKind, Payload, Place, RunId, Seq,
    program::{Open, Then},
};

use super::{at, memory::Memory, new_run, said};

const LIMIT: u64 = 1_000_000;

/// Starts a run, or says with which code it was refused.
fn start(cell: &mut Cell, rows: &Memory, key: Option<&str>) -> Result<RunId, Code> {
    let key = key.map(|key| KeyRow { key: key.into(), fingerprint: "f".into() });
    cell.start(rows, at(0), NewRun { key, ..new_run(None) }).map(|started| started.run.id).map_err(|fault| {
        match fault {
            Fault::Rejected(problem) => problem.code,
            Fault::Storage(error) => panic!("{error:?}"),
            Fault::Moved(place) => panic!("it has gone to {place}"),
        }
    })
}

#[test]
fn a_cell_takes_no_new_runs_from_four_fifths_of_its_storage_on() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_storage(LIMIT));
    rows.bytes.set(LIMIT / 10 * 8 - 1);
    let known = start(&mut cell, &rows, Some("k")).expect("there is room");
    rows.bytes.set(LIMIT / 10 * 8);
    let mut accepted = 0;
    let refused = loop {
        match start(&mut cell, &rows, None) {
            Ok(_) => accepted += 1,
            Err(code) => break code,
        }
        assert!(accepted < 20, "it never looks at its storage");
    };
    assert_eq!(refused, Code::CellFull);
    assert_eq!(
        start(&mut cell, &rows, Some("new")),
        Err(Code::CellFull),
        "it looks each time while it is full"
    );
    assert_eq!(start(&mut cell, &rows, Some("k")), Ok(known), "a key that is known starts nothing");
    // A key whose home is elsewhere by now can be sent there: growth is the way out.
    let (next, moving) = (Place { pool: "default".into(), generation: 2, cell: 7 }, "moving".to_owned());
    let reserved = cell.reserve(&rows, &KeyRow { key: moving, fingerprint: "f".into() }, &next);
    assert!(matches!(reserved, Ok(Reserved::Moved(place)) if place == next));
    rows.bytes.set(LIMIT / 2);
    assert!(start(&mut cell, &rows, None).is_ok(), "once there is room again, it takes runs again");
}

#[test]
fn the_runs_of_a_full_cell_go_on() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_storage(LIMIT));
    let run = start(&mut cell, &rows, None).expect("there is room");
    rows.bytes.set(LIMIT);
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait {
        op,
        signal: "s".into(),
        timeout_ms: None,
        shape: stepwell_protocol::Shape::Any,
        asked: None,
        event: None,
    }];
    cell.commit(&rows, at(1), 1, Epoch(1), said(Seq(0), vec![], Then::Suspend { open }), 1)
        .expect("a commit is accepted");
    let new = cell.signal(&rows, at(2), &run, Signal::new("s", Payload::null())).expect("a signal is kept");
    assert!(new);
    let done = said(Seq(1), vec![], Then::Complete { output: Payload::null() });
    cell.commit(&rows, at(3), 1, Epoch(2), done, 2).expect("its end is recorded");
    assert!(rows.get(1).status().is_terminal());
}

#[test]
fn the_last_fifth_takes_no_signals_that_nobody_waits_for() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_storage(LIMIT));
    let run = start(&mut cell, &rows, None).expect("there is room");
    rows.bytes.set(LIMIT / 10 * 8);
    let mut taken = 0;
    let refused = loop {
        match cell.signal(&rows, at(2), &run, Signal::new("other", Payload::null())) {
            Ok(_) => taken += 1,
            Err(Fault::Rejected(problem)) => break problem.code,
            Err(fault) => panic!("{fault:?}"),
        }
        assert!(taken < 20, "it never looks at its storage");
    };
    assert_eq!(refused, Code::CellFull);
    // What its steps give is recorded to the last byte.
    rows.bytes.set(LIMIT);
    let head = rows.get(1).head;
    cell.commit(
        &rows,
        at(3),
        1,
        Epoch(1),
        said(head, vec![super::step("a")], Then::Continue { open: None }),
        1,
    )
    .expect("a result is recorded");
}
