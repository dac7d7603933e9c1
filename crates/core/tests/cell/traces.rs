//! What runs have done is told once to whoever collects traces, and of each run in one place.

use std::collections::BTreeSet;

use stepwell_core::{
    cell::{Action, Cell, NewRun, Order, SPAN_LINGER_MS, SPANS_MAX, Sampling, Span},
    object::{Hosted as _, Machine as _},
    run::{CallEnd, Signal},
};
use stepwell_protocol::{
    Failure, Op, OpKind, Payload, RunId, Seq, Timestamp,
    program::{Command, Open, Retry, Then},
    trace::{SpanId, TraceParent},
};

use crate::{at, memory::Memory, new_run, said};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn op(kind: OpKind, name: &str) -> Op {
    Op { kind, name: name.into(), occurrence: 0 }
}

fn traced(ratio: f64) -> (Memory, Cell) {
    let mut cell = Cell::new(2);
    cell.trace(Sampling { ratio, by_caller: true });
    (Memory::default(), cell)
}

fn start(rows: &Memory, cell: &mut Cell, ms: u64, parent: Option<&str>) -> RunId {
    let trace = parent.map(|text| text.parse().expect("a traceparent"));
    cell.start(rows, at(ms), NewRun { trace, ..new_run(None) }).expect("it is accepted").run.id
}

/// A program's results, each in a commit that it goes on after, and what it says last.
fn commit(rows: &Memory, cell: &mut Cell, ms: u64, id: &RunId, commands: Vec<Command>, then: Then) {
    if !commands.is_empty() {
        let epoch = rows.get(id.number).epoch;
        let base = rows.get(id.number).mark.map_or(Seq(0), |mark| mark.through);
        cell.commit(rows, at(ms), id.number, epoch, said(base, commands, Then::Continue { open: None }), 1)
            .expect("in turn");
    }
    let run = rows.get(id.number);
    let base = run.mark.map_or(Seq(0), |mark| mark.through);
    cell.commit(rows, at(ms), id.number, run.epoch, said(base, Vec::new(), then), 2).expect("in turn");
    cell.call_ended(rows, at(ms), id.number, run.epoch, CallEnd::Returned).expect("it is recorded");
    cell.begin();
}

fn failed(name: &str) -> Command {
    Command::StepFailed {
        op: op(OpKind::Step, name),
        attempt: 1,
        failure: Failure::new("busy"),
        retry: Retry::default(),
        retry_after_ms: Some(0),
        took_ms: Some(20),
    }
}

fn done(name: &str, attempt: u32) -> Command {
    let op = op(OpKind::Step, name);
    Command::StepSucceeded { op, attempt, output: Payload::null(), took_ms: Some(30) }
}

fn complete() -> Then {
    Then::Complete { output: Payload::null() }
}

fn told(spans: &[Span]) -> Vec<(&'static str, &str, u32, u64, u64)> {
    let mut told = Vec::new();
    for span in spans {
        let what = if span.failure.is_some() { "failed" } else { span.what };
        let name = if span.what == "run" { span.ended.unwrap_or_default() } else { span.name.as_str() };
        let since = |time: Timestamp| time.as_millis() - at(0).as_millis();
        told.push((what, name, span.attempt, since(span.from), since(span.to)));
    }
    told
}

#[test]
fn attempts_sleeps_and_the_run_itself_are_spans_within_what_it_came_with() {
    let (rows, mut cell) = traced(1.0);
    let id = start(&rows, &mut cell, 1_000, Some(PARENT));
    let sleep = Open::Sleep { op: op(OpKind::Sleep, "rest"), ms: 500 };
    commit(
        &rows,
        &mut cell,
        1_100,
        &id,
        vec![failed("charge"), done("charge", 2)],
        Then::Suspend { open: vec![sleep] },
    );
    cell.due(&rows, at(1_600)).expect("the alarm goes");
    commit(&rows, &mut cell, 1_650, &id, Vec::new(), complete());
    let spans = cell.take_spans().spans;
    assert_eq!(
        told(&spans),
        [
            ("failed", "charge", 1, 1_080, 1_100),
            ("step", "charge", 2, 1_070, 1_100),
            ("sleep", "rest", 0, 1_100, 1_600),
            ("run", "completed", 0, 1_000, 1_650),
        ]
    );
    let parent: TraceParent = PARENT.parse().expect("a traceparent");
    assert!(spans.iter().all(|span| span.trace == parent.trace));
    let run = SpanId::of_run(&id, 0);
    let within: Vec<_> = spans.iter().map(|span| span.parent).collect();
    assert_eq!(within, [Some(run), Some(run), Some(run), Some(parent.span)]);
    assert_eq!(spans[1].id, SpanId::of_op(&id, 0, &op(OpKind::Step, "charge"), 2), "as its program has it");
    assert_eq!(cell.take_spans().spans, [], "each is told once");
}

#[test]
fn what_is_done_again_has_spans_of_its_own_and_signals_are_told_once() {
    let (rows, mut cell) = traced(1.0);
    let id = start(&rows, &mut cell, 0, None);
    let signal = Signal::new("go", Payload::null());
    cell.signal(&rows, at(50), &id, signal).expect("it is taken");
    commit(&rows, &mut cell, 100, &id, vec![done("a", 1)], complete());
    for round in 1..4 {
        let ms = round * 1_000;
        cell.act(&rows, at(ms), &id, "root", Action::Restart { from: None }).expect("it goes back");
        cell.due(&rows, at(ms)).expect("the alarm goes");
        commit(&rows, &mut cell, ms + 100, &id, vec![done("a", 1)], complete());
    }
    let spans = cell.take_spans().spans;
    let ids: BTreeSet<_> = spans.iter().map(|span| span.id).collect();
    assert_eq!((spans.len(), ids.len()), (9, 9), "no two have the same id: {spans:?}");
    assert_eq!(spans.iter().filter(|span| span.what == "signal").count(), 1);
    for span in spans.iter().filter(|span| span.what == "step") {
        assert!(spans.iter().any(|run| Some(run.id) == span.parent), "{span:?} has no run");
    }
    let runs: Vec<_> = told(&spans).into_iter().filter(|told| told.0 == "run").collect();
    let wanted = [0, 1_000, 2_000, 3_000].map(|ms| ("run", "completed", 0, ms, ms + 100));
    assert_eq!(runs, wanted, "each begins where it was taken up");
    let traces: BTreeSet<_> = spans.iter().map(|span| span.trace).collect();
    assert_eq!(traces.len(), 1);
}

#[test]
fn who_wants_none_gets_none_and_says_so_to_others() {
    let unsampled = PARENT.replace("-01", "-00");
    // How many spans there are, and the flag that the program passes on.
    let sent = |sampling: Option<Sampling>, parent: Option<&str>| {
        let (rows, mut cell) = (Memory::default(), Cell::new(2));
        if let Some(sampling) = sampling {
            cell.trace(sampling);
        }
        let id = start(&rows, &mut cell, 0, parent);
        let epoch = rows.get(id.number).epoch;
        let told = cell.activation(&rows, at(10), id.number, epoch).expect("its program is called").trace;
        commit(&rows, &mut cell, 100, &id, vec![done("a", 1)], complete());
        (cell.take_spans().spans.len(), told.map(|traced| traced.parent.sampled))
    };
    let by = |ratio: f64, by_caller: bool| Some(Sampling { ratio, by_caller });
    assert_eq!(sent(by(1.0, true), None), (2, Some(true)));
    assert_eq!(sent(by(0.0, true), None), (0, Some(false)));
    // Somebody else has decided about these.
    assert_eq!(sent(by(1.0, true), Some(&unsampled)), (0, Some(false)));
    assert_eq!(sent(by(0.0, true), Some(PARENT)), (2, Some(true)));
    // A deployment that does not listen to that.
    assert_eq!(sent(by(1.0, false), Some(&unsampled)), (2, Some(true)));
    assert_eq!(sent(by(0.0, false), Some(PARENT)), (0, Some(false)));
    // One without a collector passes on what it got.
    assert_eq!(sent(None, Some(PARENT)), (0, Some(true)));
    assert_eq!(sent(None, None), (0, None));
}

#[test]
fn long_messages_are_cut_between_characters() {
    let (rows, mut cell) = traced(1.0);
    let id = start(&rows, &mut cell, 0, None);
    let failure = Failure::terminal("é".repeat(1_000));
    commit(&rows, &mut cell, 100, &id, Vec::new(), Then::Fail { failure });
    let spans = cell.take_spans().spans;
    let message = spans[0].failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
    assert_eq!(message, "é".repeat(256));
}

#[test]
fn the_host_is_told_once_and_what_is_too_much_is_counted() {
    let (rows, mut cell) = traced(1.0);
    let sends = |cell: &mut Cell| {
        let orders = cell.take_orders().own.into_iter();
        orders.filter(|order| matches!(order, Order::SendSpansAt(_))).collect::<Vec<_>>()
    };
    let id = start(&rows, &mut cell, 0, None);
    let yields = || Then::Suspend { open: vec![Open::Sleep { op: op(OpKind::Sleep, "s"), ms: 1_000_000 }] };
    commit(&rows, &mut cell, 100, &id, vec![done("a", 1)], yields());
    assert_eq!(sends(&mut cell), [Order::SendSpansAt(at(100 + SPAN_LINGER_MS))]);
    for number in 0..SPANS_MAX as u64 {
        let id = start(&rows, &mut cell, 200, None);
        commit(&rows, &mut cell, 300 + number, &id, vec![done("a", 1)], complete());
    }
    assert_eq!(sends(&mut cell).len(), 1, "many wait no longer");
    let told = cell.take_spans();
    assert_eq!((told.spans.len(), told.left_out), (SPANS_MAX, SPANS_MAX as u64 + 1));
}
