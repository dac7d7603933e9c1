//! A cell on rows in memory: activations of one run that overlap, and runs that are stopped and taken back.

mod anew;
mod callbacks;
mod children;
mod counts;
mod delayed;
mod dispatch;
mod events;
mod failures;
mod fences;
mod given_up;
mod growth;
mod jobs;
mod joins;
mod lanes;
mod letters;
mod lines;
mod lost;
mod memory;
mod queued;
mod rates;
mod refused;
mod repeats;
mod retention;
mod room;
mod rules;
mod signals;
mod silence;
mod step_lanes;
mod streams;
mod taken_back;
mod ticks;
mod tokens;
mod totals;
mod traces;
mod triggered;
mod unreadable;

use std::sync::atomic::{AtomicU64, Ordering};

use stepwell_core::run::{CallEnd, Signal, Trouble};
use stepwell_core::{
    cell::{CALLS_MAX, Cell, NewRun, Order},
    object::{Hosted as _, Machine as _},
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Place, RunId, Seq, Timestamp,
    program::{Answer, Command, Commit, Dispatch, Open, Then},
};

use memory::Memory;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

/// Each is a request of its own.
fn new_run(timeout_ms: Option<u64>) -> NewRun {
    static REQUESTS: AtomicU64 = AtomicU64::new(7);
    NewRun {
        place: Place { pool: "default".into(), generation: 1, cell: 0 },
        suffix: RunId::suffix_from(REQUESTS.fetch_add(1, Ordering::Relaxed)),
        seed: 1,
        workflow: "w".into(),
        input: Payload::null(),
        dispatch: Dispatch::Direct,
        timeout_ms,
        retention_ms: None,
        tags: vec![],
        key: None,
        by: None,
        parent: None,
        ticked: None,
        starts_at: None,
        triggered: None,
        trace: None,
        callback: None,
        flow: None,
        joins: None,
    }
}

/// A commit of whichever activation sends it.
fn said(base: Seq, commands: Vec<Command>, then: Then) -> Commit {
    Commit::new(Epoch(0), base, commands, then)
}

#[test]
fn the_late_end_of_an_earlier_call_does_not_orphan_the_present_one() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    // Its first program waits for a signal, which comes before that program's call is seen to be over.
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait {
        op,
        signal: "s".into(),
        timeout_ms: None,
        shape: stepwell_protocol::Shape::Any,
        asked: None,
        event: None,
    }];
    let commit = said(Seq(0), vec![], Then::Suspend { open });
    let answer = cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect("it is accepted");
    assert_eq!(answer, Answer::Stop);
    cell.signal(&rows, at(11), &run.id, Signal::new("s", Payload::null())).expect("it is kept");
    assert!(cell.take_orders().own.contains(&Order::Call { number: 1, epoch: Epoch(2) }));
    cell.call_ended(&rows, at(12), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(cell.calls(), 1, "the second call is under way");
    cell.alarm(&rows, at(20_000)).expect("the rows can be read");
    let run = rows.get(1);
    assert!(run.is_held_by(Epoch(2)), "{:?}", run.phase);
    assert_eq!(run.trouble.suspicion, 0);
}

/// The calls among what the host has to do.
fn calls(cell: &mut Cell) -> Vec<(u64, Epoch)> {
    let orders = cell.take_orders().own.into_iter();
    orders
        .filter_map(
            |order| if let Order::Call { number, epoch } = order { Some((number, epoch)) } else { None },
        )
        .collect()
}

fn step(name: &str) -> Command {
    let op = Op { kind: OpKind::Step, name: name.into(), occurrence: 0 };
    Command::StepSucceeded { op, attempt: 1, output: Payload::null(), took_ms: None }
}

#[test]
fn a_run_that_yields_goes_behind_those_who_wait() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    for _ in 0..3 {
        cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    }
    assert_eq!(calls(&mut cell), [(1, Epoch(1))]);
    let commit = said(Seq(0), vec![step("a")], Then::Yield { open: None });
    assert_eq!(cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).expect("in turn"), Answer::Stop);
    let mut order = Vec::new();
    let mut at_work = (1, Epoch(1));
    for ms in 2..5 {
        cell.call_ended(&rows, at(ms), at_work.0, at_work.1, CallEnd::Returned).expect("it is recorded");
        at_work = calls(&mut cell)[0];
        order.push(at_work);
        let commit = said(rows.get(at_work.0).head, vec![], Then::Complete { output: Payload::null() });
        cell.commit(&rows, at(ms), at_work.0, at_work.1, commit, ms).expect("in turn");
    }
    assert_eq!(order, [(2, Epoch(1)), (3, Epoch(1)), (1, Epoch(2))]);
    assert_eq!(rows.get(1).trouble, Trouble::default());
}

#[test]
fn one_invocation_calls_only_so_many_programs_and_the_alarm_goes_on() {
    let most = CALLS_MAX as usize;
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    for _ in 0..2 * most {
        cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    }
    // Each call ends at once, and makes room for the next: all of it in the invocation of the last start.
    let mut called = calls(&mut cell);
    let mut ended = 0;
    while let Some(&(number, epoch)) = called.get(ended) {
        let commit = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
        cell.commit(&rows, at(1), number, epoch, commit, number).expect("in turn");
        cell.call_ended(&rows, at(1), number, epoch, CallEnd::Returned).expect("it is recorded");
        called.extend(calls(&mut cell));
        ended += 1;
    }
    assert_eq!(called.len(), most);
    cell.alarm(&rows, at(2)).expect("the rows can be read");
    assert_eq!(calls(&mut cell).len(), 2, "as many as one workflow may have of four places");
}
