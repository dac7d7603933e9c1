//! Many signals to one run: what a cell reads of them, and how many it takes.

use stepwell_core::{
    cell::Cell,
    object::Fault,
    run::{Signal, SignalLimits},
};
use stepwell_protocol::{
    Code, Epoch, Event, Op, OpKind, Outcome, Payload, RunId, Seq, Shape,
    program::{Answer, Commit, News, Open, Then},
};

use crate::{Memory, at, memory::Failed, new_run, said, step};

/// A run that waits for the signal `go`.
fn waiting(cell: &mut Cell, rows: &Memory) -> RunId {
    let run = cell.start(rows, at(0), new_run(None)).expect("it is accepted").run;
    let op = Op { kind: OpKind::Wait, name: "go".into(), occurrence: 0 };
    let open = vec![Open::Wait {
        op,
        signal: "go".into(),
        timeout_ms: None,
        shape: Shape::Any,
        asked: None,
        event: None,
    }];
    cell.commit(rows, at(1), run.id.number, Epoch(1), said(Seq(0), vec![], Then::Suspend { open }), 1)
        .expect("in turn");
    run.id
}

fn send(cell: &mut Cell, rows: &Memory, to: &RunId, name: &str) -> Result<bool, Fault<Failed>> {
    cell.signal(rows, at(2), to, Signal::new(name, Payload::null()))
}

fn code(refused: Result<bool, Fault<Failed>>) -> Code {
    match refused {
        Err(Fault::Rejected(problem)) => problem.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_keeps_only_so_many_signals_that_nobody_takes_and_still_hears_what_it_waits_for() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = waiting(&mut cell, &rows);
    for _ in 0..SignalLimits::default().unread {
        send(&mut cell, &rows, &id, "other").expect("there is room");
    }
    assert_eq!(code(send(&mut cell, &rows, &id, "other")), Code::TooManySignals);
    // Whoever comes back knows it from the last event alone.
    assert_eq!(code(send(&mut Cell::new(4), &rows, &id, "other")), Code::TooManySignals);
    assert!(send(&mut cell, &rows, &id, "go").expect("it waits for it"));
    // Its program takes all but three of them.
    let head = rows.get(1).head;
    let commit = Commit { unread: 3, ..said(head, vec![step("a")], Then::Continue { open: None }) };
    cell.commit(&rows, at(3), 1, Epoch(2), commit, 2).expect("in turn");
    assert_eq!(rows.get(1).inbox.unread, 3);
    send(&mut cell, &rows, &id, "other").expect("there is room again");
    assert_eq!(rows.get(1).inbox.unread, 4);
}

#[test]
fn the_limits_of_signals_are_those_of_the_deployment() {
    let limits = SignalLimits { unread: 2, bytes: 9 };
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_signal_limits(limits));
    let id = waiting(&mut cell, &rows);
    for _ in 0..2 {
        send(&mut cell, &rows, &id, "other").expect("there is room");
    }
    assert_eq!(code(send(&mut cell, &rows, &id, "other")), Code::TooManySignals, "two are unread");
    let mut cell = Cell::new(4).with_signal_limits(SignalLimits { unread: 3, ..limits });
    assert_eq!(
        code(send(&mut cell, &rows, &id, "other")),
        Code::TooManySignals,
        "eight bytes, and four more"
    );
}

#[test]
fn the_bytes_of_all_signals_of_a_run_are_bounded() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = waiting(&mut cell, &rows);
    let payload = Payload::encode(&"x".repeat(1_900_000)).expect("a text");
    let most = SignalLimits::default().bytes / payload.size() as u64;
    let mut taken = 0;
    let refused = loop {
        match cell.signal(&rows, at(2), &id, Signal::new("other", payload.clone())) {
            Ok(_) => taken += 1,
            refused => break refused,
        }
        assert!(taken <= most, "nobody counts");
    };
    assert_eq!((code(refused), taken), (Code::TooManySignals, most));
}

#[test]
fn a_repeated_commit_is_known_however_many_signals_came_after_it() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    let commit = said(Seq(0), vec![step("a")], Then::Continue { open: None });
    cell.commit(&rows, at(1), 1, Epoch(1), commit.clone(), 7).expect("in turn");
    for _ in 0..3 {
        send(&mut cell, &rows, &run.id, "other").expect("there is room");
    }
    let reloaded = rows.get(1);
    assert_eq!(reloaded.mark, cell.find(&rows, &run.id).expect("it is there").mark);
    cell.commit(&rows, at(2), 1, Epoch(1), commit, 7).expect("it is known");
    assert_eq!(rows.events(1), 4, "nothing was recorded twice");
}

#[test]
fn an_answer_holds_a_page_of_news_and_says_that_there_is_more() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    // Its program is at work meanwhile. A page has two events here.
    for _ in 0..5 {
        send(&mut cell, &rows, &run.id, "other").expect("there is room");
    }
    let Ok(Answer::Go { news, .. }) = cell.news(&rows, at(3), 1, Epoch(1), Seq(0)) else {
        panic!("it is at work")
    };
    assert!(matches!(&news[..], [News::Record(_), News::Record(_), News::More]), "{news:?}");
    let commit = said(Seq(0), vec![step("a")], Then::Continue { open: None });
    let Ok(Answer::Go { news, .. }) = cell.commit(&rows, at(4), 1, Epoch(1), commit, 1) else {
        panic!("in turn")
    };
    assert!(matches!(&news[..], [News::Record(_), News::Record(_), News::More]), "{news:?}");
    // By pages it comes to its own result too.
    let mut after = Seq(2);
    let own = loop {
        let page = cell.page(&rows, 1, Epoch(1), after).expect("it can be read");
        after = page.events.last().expect("there is more").seq;
        if !page.more {
            break page.events.last().expect("it is not empty").event.decode::<Event>().expect("an event");
        }
    };
    assert!(matches!(own, Event::StepFinished { outcome: Outcome::Ok(_), .. }), "{own:?}");
}
