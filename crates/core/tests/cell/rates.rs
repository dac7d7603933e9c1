//! Runs under rates.

use stepwell_core::{
    cell::{Cell, LaneQuestion, NewRun, Order},
    object::{Hosted as _, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Seq,
    lane::{Flow, LimitSpec, Standing},
    program::{Open, Then},
    rest::Status,
};

use crate::{Memory, at, new_run, said};

#[test]
fn a_rate_counts_the_beginning_of_a_run_and_not_each_time_that_it_wakes() {
    let per_minute = LimitSpec { max: 100, key: None, per_ms: Some(60_000), drop: false, max_by: None };
    for (limits, asks_again) in [
        (vec![per_minute.clone()], false),
        (vec![per_minute, LimitSpec { max: 1, key: None, per_ms: None, drop: false, max_by: None }], true),
    ] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let flow = Flow { limits, ..Flow::default() };
        let new = NewRun { flow: Some(Box::new(flow)), ..new_run(None) };
        let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
        let first = lane_questions(&mut cell).remove(0);
        assert!(first.asks[0].limits.iter().any(|limit| limit.per_ms.is_some()));
        let why = cell.why(&rows, at(1), &id).expect("it is there").because;
        assert!(why.contains("100 in 1 minute for all runs of 'w'"), "{why}");
        cell.lane_answered(&rows, at(5), "w", first.flight, Some(&[Standing::In])).expect("it is stored");
        let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
        let commit = said(Seq(0), vec![], Then::Suspend { open: vec![Open::Sleep { op, ms: 1_000 }] });
        cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect("it is taken");
        cell.call_ended(&rows, at(11), 1, Epoch(1), CallEnd::Returned).expect("it is stored");
        let over = lane_questions(&mut cell).remove(0);
        assert_eq!(over.over.len(), 1, "its first ticket is over");
        cell.lane_answered(&rows, at(12), "w", over.flight, Some(&[])).expect("it is stored");
        cell.alarm(&rows, at(1_020)).expect("the rows can be read");
        let asked = lane_questions(&mut cell);
        let limits: Vec<_> =
            asked.iter().flat_map(|question| &question.asks).flat_map(|ask| &ask.limits).collect();
        assert_eq!(limits.len(), usize::from(asks_again), "{limits:?}");
        assert!(limits.iter().all(|limit| limit.per_ms.is_none()));
        let status = if asks_again { Status::Pending } else { Status::Running };
        assert_eq!(rows.get(1).status(), status);
    }
}

fn lane_questions(cell: &mut Cell) -> Vec<LaneQuestion> {
    let orders = cell.take_orders().own.into_iter();
    orders
        .filter_map(|order| if let Order::AskLane(question) = order { Some(*question) } else { None })
        .collect()
}
