//! A cell on rows in memory: activations of one run that overlap, and runs that are stopped and taken back.

mod memory;
mod taken_back;

use stepwell_core::cell::{Cell, NewRun, Order};
use stepwell_core::run::CallEnd;
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Place, RunId, Seq, Timestamp,
    program::{Answer, Command, Commit, Open, Then},
};

use memory::Memory;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn new_run(timeout_ms: Option<u64>) -> NewRun {
    NewRun {
        place: Place { pool: "default".into(), generation: 1, cell: 0 },
        suffix: RunId::suffix_from(7),
        seed: 1,
        workflow: "w".into(),
        input: Payload::null(),
        timeout_ms,
        tags: vec![],
        key: None,
    }
}

/// A commit of whichever activation sends it.
fn said(base: Seq, commands: Vec<Command>, then: Then) -> Commit {
    Commit { epoch: Epoch(0), base, commands, patches: vec![], progress: None, then }
}

#[test]
fn the_late_end_of_an_earlier_call_does_not_orphan_the_present_one() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    // Its first program waits for a signal, which comes before that program's call is seen to be over.
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait { op, signal: "s".into(), timeout_ms: None }];
    let commit = said(Seq(0), vec![], Then::Suspend { open });
    let answer = cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect("it is accepted");
    assert_eq!(answer, Answer::Stop);
    cell.signal(&rows, at(11), &run.id, "s".into(), None, Payload::null()).expect("it is kept");
    assert!(cell.take_orders().contains(&Order::Call { number: 1, epoch: Epoch(2) }));
    cell.call_ended(&rows, at(12), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(cell.calls(), 1, "the second call is under way");
    cell.alarm(&rows, at(20_000)).expect("the rows can be read");
    let run = rows.get(1);
    assert!(run.is_held_by(Epoch(2)), "{:?}", run.phase);
    assert_eq!(run.trouble.suspicion, 0);
}
