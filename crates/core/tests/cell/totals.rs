//! What has happened is counted once, stored seldom, and never goes back.

use stepwell_core::{
    cell::{Action, Cell, MINUTES_KEPT, NewRun},
    object::{Hosted as _, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{
    Code, Epoch, Failure, Op, OpKind, Payload, Problem, Seq,
    program::{Command, Commit, Open, Retry, Then},
    schedule::{TickId, Ticked},
    totals::Totals,
};

use crate::{at, memory::Memory, new_run, said};

const MINUTE: u64 = 60_000;

fn step(name: &str) -> Op {
    Op { kind: OpKind::Step, name: name.into(), occurrence: 0 }
}

/// A run of one step that is retried once, and completes at once.
fn run_through(rows: &Memory, cell: &mut Cell, ms: u64, workflow: &str) {
    let new = NewRun { workflow: workflow.into(), ..new_run(None) };
    let id = cell.start(rows, at(ms), new).expect("it is accepted").run.id;
    let epoch = rows.get(id.number).epoch;
    let failure = Failure::new("no");
    let failed = Command::StepFailed {
        op: step("a"),
        attempt: 1,
        failure,
        retry: Retry::default(),
        retry_after_ms: Some(0),
        took_ms: Some(20),
    };
    let done =
        Command::StepSucceeded { op: step("a"), attempt: 2, output: Payload::null(), took_ms: Some(400_000) };
    let end = Then::Complete { output: Payload::null() };
    let commit = said(Seq(0), vec![failed, done], end);
    cell.commit(rows, at(ms + 50), id.number, epoch, commit, 1).expect("in turn");
    cell.call_ended(rows, at(ms + 50), id.number, epoch, CallEnd::Returned).expect("it is recorded");
    // Each is a request of its own.
    cell.begin();
}

fn totals(rows: &Memory, cell: &Cell, workflow: &str) -> Totals {
    cell.totals(rows).expect("they can be read").get(workflow).cloned().unwrap_or_default()
}

#[test]
fn a_lone_run_is_counted_with_its_end_by_one_write() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    run_through(&rows, &mut cell, 0, "a");
    assert_eq!(rows.minute_writes.get(), 1);
    let counted = totals(&rows, &cell, "a");
    assert_eq!((counted.started, counted.completed, counted.failed, counted.activations), (1, 1, 0, 1));
    assert_eq!((counted.steps, counted.retries, counted.steps_failed), (1, 1, 0));
    assert_eq!((counted.run_ms.counts[0], counted.run_ms.sum_ms), (1, 50));
    assert_eq!((counted.step_ms.counts[1], counted.step_ms.counts[8]), (1, 1));
    assert_eq!(totals(&rows, &cell, "b"), Totals::default());
}

#[test]
fn what_is_late_breaks_off_or_costs_is_counted_by_its_reason() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let ticked = Ticked { schedule: "nightly".into(), tick: TickId::At(at(0)), tells: None };
    let new = NewRun { ticked: Some(ticked), ..new_run(None) };
    cell.start(&rows, at(2_000), new).expect("it is accepted");
    let open = vec![Open::Sleep { op: Op { kind: OpKind::Sleep, ..step("nap") }, ms: 1_000 }];
    let sleeps = said(Seq(0), vec![], Then::Suspend { open });
    cell.commit(&rows, at(2_000), 1, Epoch(1), sleeps, 1).expect("in turn");
    cell.call_ended(&rows, at(2_000), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    // Its alarm is seven seconds late.
    cell.due(&rows, at(10_000)).expect("the alarm goes");
    let epoch = || rows.get(1).epoch;
    for (end, ms) in [(CallEnd::Threw("no".into()), 10_100), (CallEnd::Lost("gone".into()), 20_000)] {
        let epoch = epoch();
        cell.call_ended(&rows, at(ms), 1, epoch, end).expect("it is recorded");
        cell.due(&rows, at(ms + 5_000)).expect("the alarm goes");
    }
    let problem = Problem::new(Code::Diverged, "other steps");
    let pause = said(Seq(1), vec![], Then::Pause { problem });
    let now = epoch();
    cell.commit(&rows, at(26_000), 1, now, Commit { epoch: now, ..pause }, 2).expect("in turn");
    cell.due(&rows, at(100_000)).expect("the alarm goes");
    let counted = totals(&rows, &cell, "w");
    assert_eq!((counted.deaths, counted.losses), (1, 1), "{counted:?}");
    assert_eq!((counted.paused, counted.diverged, counted.stopped), (1, 1, 0));
    assert_eq!((counted.tick_late_ms.sum_ms, counted.tick_late_ms.counts[2]), (2_000, 1));
    assert_eq!((counted.timer_late_ms.sum_ms, counted.timer_late_ms.counts[3]), (7_000, 1));
    assert_eq!(counted.rows, u64::from(rows.get(1).meter().rows_written), "all of them, and once");
}

#[test]
fn many_runs_are_stored_once_a_minute_and_the_rest_when_the_cell_rests() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    for number in 0..100 {
        run_through(&rows, &mut cell, number * 100, "a");
    }
    assert_eq!((rows.minute_writes.get(), totals(&rows, &cell, "a").completed), (1, 1));
    // The instance that dies now takes 99 with it.
    let died = Cell::new(2);
    assert_eq!(totals(&rows, &died, "a").completed, 1);
    let next = cell.due(&rows, at(15_000)).expect("the alarm goes");
    assert_eq!(
        (rows.minute_writes.get(), next),
        (1, Some(at(20_050))),
        "a cell at rest stores every 20 s at the most"
    );
    cell.due(&rows, at(20_050)).expect("the alarm goes");
    assert_eq!((rows.minute_writes.get(), totals(&rows, &cell, "a").completed), (2, 100));
    assert_eq!(cell.due(&rows, at(60_000)).expect("the alarm goes"), None, "nothing has happened");
    assert_eq!(rows.minute_writes.get(), 2);
}

#[test]
fn a_busy_cell_stores_once_a_minute() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    run_through(&rows, &mut cell, 0, "a");
    let id = cell.start(&rows, at(100), new_run(None)).expect("it is accepted").run.id;
    cell.due(&rows, at(5_000)).expect("the alarm goes");
    assert_eq!(rows.minute_writes.get(), 1, "a run is at work");
    cell.due(&rows, at(MINUTE + 100)).expect("the alarm goes");
    assert_eq!((rows.minute_writes.get(), totals(&rows, &cell, "w").started), (2, 1));
    cell.act(&rows, at(MINUTE + 200), &id, "root", Action::Cancel).expect("it can be cancelled");
    cell.due(&rows, at(2 * MINUTE + 300)).expect("the alarm goes");
    assert_eq!(totals(&rows, &cell, "w").cancelled, 1);
}

#[test]
fn what_could_not_be_stored_is_stored_later_and_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    rows.refuses_minutes.set(true);
    run_through(&rows, &mut cell, 0, "a");
    assert_eq!(totals(&rows, &cell, "a").completed, 0);
    rows.refuses_minutes.set(false);
    cell.due(&rows, at(25_000)).expect("the alarm goes");
    assert_eq!(totals(&rows, &cell, "a").completed, 1);
}

#[test]
fn what_calls_no_program_is_stored_by_an_alarm_of_its_own() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let later = || NewRun { starts_at: Some(at(86_400_000)), ..new_run(None) };
    let first = cell.start(&rows, at(0), later()).expect("it is accepted").run.id;
    assert_eq!(totals(&rows, &cell, "w").started, 1, "with its own commit");
    let mut ids = vec![first];
    for _ in 0..10 {
        ids.push(cell.start(&rows, at(10), later()).expect("it is accepted").run.id);
    }
    for id in &ids {
        cell.act(&rows, at(20), id, "root", Action::Cancel).expect("it can be cancelled");
    }
    assert_eq!(totals(&rows, &cell, "w").cancelled, 0);
    let armed = cell.take_orders().arm.expect("there is an alarm");
    assert!(armed <= at(5_020), "{armed:?}");
    let next = cell.due(&rows, armed).expect("the alarm goes").expect("another one follows");
    cell.due(&rows, next).expect("the alarm goes");
    let counted = totals(&rows, &cell, "w");
    assert_eq!((counted.started, counted.cancelled), (11, 11));
    // A run that was cancelled before its time has taken none.
    assert_eq!(counted.run_ms.sum_ms, 0);
}

#[test]
fn what_is_not_counted_is_not_stored() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    run_through(&rows, &mut cell, 0, "a");
    let new = NewRun { retention_ms: Some(1_000), ..new_run(None) };
    let id = cell.start(&rows, at(70_000), new).expect("it is accepted").run.id;
    cell.act(&rows, at(70_010), &id, "root", Action::Cancel).expect("it can be cancelled");
    let mut next = cell.due(&rows, at(100_000)).expect("the alarm goes");
    let writes = rows.minute_writes.get();
    for _ in 0..20 {
        let Some(at) = next else { break };
        next = cell.due(&rows, at).expect("the alarm goes");
    }
    assert_eq!(rows.minute_writes.get(), writes, "a deletion is no news");
}

#[test]
fn minutes_are_added_up_and_forgotten_after_a_day_while_totals_stay() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let days = 3;
    let mut last = 0;
    for minute in (0..days * MINUTES_KEPT).step_by(7) {
        // An instance that is made anew knows what the rows say.
        if minute % 91 == 0 {
            cell = Cell::new(2);
        }
        run_through(&rows, &mut cell, minute * MINUTE, "a");
        let completed = totals(&rows, &cell, "a").completed;
        assert_eq!(completed, last + 1, "in minute {minute}");
        last = completed;
        let kept = rows.minutes.borrow().len() as u64;
        assert!(kept <= MINUTES_KEPT / 7 + 10, "{kept} minutes are kept");
    }
    let hour = cell.minutes(&rows, at((days * MINUTES_KEPT - 60) * MINUTE), None).expect("they can be read");
    assert!((8..=9).contains(&hour.len()), "{hour:?}");
    // A clock that goes back loses nothing.
    let mut early = Cell::new(2);
    run_through(&rows, &mut early, 0, "a");
    assert_eq!(totals(&rows, &early, "a").completed, last + 1);
}

#[test]
fn workflows_beyond_a_number_are_counted_together() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    for number in 0..300 {
        run_through(&rows, &mut cell, number, &format!("w{number}"));
    }
    cell.due(&rows, at(25_000)).expect("the alarm goes");
    let all = cell.totals(&rows).expect("they can be read");
    assert!(all.len() <= 202, "{}", all.len());
    assert_eq!(all.values().map(|totals| totals.completed).sum::<u64>(), 300);
}
