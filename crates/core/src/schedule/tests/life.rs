//! What becomes of ticks: caught up with, missed, triggered, started again; and of schedules: changed, paused, deleted.

use stepwell_protocol::{
    Code,
    rest::Status,
    schedule::{Backfill, CatchUp, ScheduleSpec},
};

use super::{
    at, spec,
    station::{Bench, tick},
};
use crate::{object::Fault, schedule::StartEnd};

/// A station that was away between two times.
fn away(spec: ScheduleSpec, from: &str, to: &str) -> Bench {
    let mut bench = Bench::new(from).with(spec);
    bench.now = at(to);
    bench.crash();
    bench.live_until(to);
    bench.fire_until_idle();
    bench
}

impl Bench {
    /// Lets everything happen that is due now.
    fn fire_until_idle(&mut self) {
        for _ in 0..10_000 {
            self.answer_all();
            match self.alarm {
                Some(due) if due <= self.now.plus_millis(1) => self.fire(),
                Some(_) | None => return,
            }
        }
        panic!("it goes on for ever");
    }
}

#[test]
fn of_the_ticks_that_were_missed_the_latest_is_started() {
    let bench = away(spec("0 * * * *"), "2026-11-13T08:30:00Z", "2026-11-13T12:20:00Z");
    let view = bench.view();
    assert_eq!((view.counts.started, view.counts.missed), (1, 3));
    assert_eq!(view.last.expect("one").tick, at("2026-11-13T12:00:00Z"));
    assert_eq!(view.next_tick, Some(at("2026-11-13T13:00:00Z")));
}

#[test]
fn a_schedule_that_catches_up_with_all_starts_each() {
    let all = ScheduleSpec { catch_up: CatchUp::All, ..spec("0 * * * *") };
    let view = away(all, "2026-11-13T08:30:00Z", "2026-11-13T12:20:00Z").view();
    assert_eq!((view.counts.started, view.counts.missed), (4, 0));
}

#[test]
fn what_is_older_than_the_window_is_missed() {
    let window = ScheduleSpec { catch_up: CatchUp::All, catch_up_ms: 2 * 3_600_000, ..spec("0 * * * *") };
    let view = away(window, "2026-11-13T08:30:00Z", "2026-11-13T12:20:00Z").view();
    // 9:00 and 10:00 are more than two hours late.
    assert_eq!((view.counts.started, view.counts.missed), (2, 2));
}

#[test]
fn a_long_absence_is_worked_off_in_slices_and_counted() {
    let bench = away(spec("every 10 seconds"), "2026-11-12T12:00:00Z", "2026-11-13T12:00:00Z");
    let view = bench.view();
    assert_eq!(view.counts.started + view.counts.missed, 8_640);
    assert!(view.counts.started <= 7, "{:?}", view.counts);
    assert!(*bench.rows.written.borrow() < 30, "{} rows", bench.rows.written.borrow());
}

#[test]
fn a_tick_that_is_only_slow_is_not_missed() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("every 10 seconds"));
    bench.fire();
    let first = bench.asked.pop().expect("it is asked");
    bench.now = bench.now.plus_millis(25_000);
    let run = bench.start(&first);
    bench.answer(&first, StartEnd::Started(run));
    bench.fire_until_idle();
    assert_eq!((bench.view().counts.started, bench.view().counts.missed), (3, 0));
}

#[test]
fn jitter_is_always_the_same_for_an_id() {
    let jittered = ScheduleSpec { jitter_ms: 3_600_000, ..spec("0 9 * * *") };
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(jittered.clone());
    let view = bench.view();
    let (tick, start) = (view.next_tick.expect("it ticks"), view.next_start.expect("it starts"));
    assert_eq!(tick, at("2026-11-14T09:00:00Z"));
    assert!(start > tick && start < at("2026-11-14T10:00:00Z"), "{start:?}");
    bench.fire();
    assert_eq!(bench.now, start);
    bench.answer_all();
    assert_eq!(bench.view().next_start, Some(start.plus_millis(86_400_000)));
    bench.put("another", jittered);
    let other = bench.machine.get(&bench.rows, "another").expect("it is there").next_start;
    assert_ne!(other, bench.view().next_start);
}

#[test]
fn a_paused_schedule_does_not_tick_and_does_not_catch_up_with_it() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 * * * *"));
    bench.machine.pause(&bench.rows, bench.now, "key:1", "nightly").expect("it is paused");
    bench.perform();
    bench.live_until("2026-11-13T15:30:00Z");
    assert!(bench.runs.is_empty());
    assert_eq!(bench.view().paused.expect("it is paused").by, "key:1");
    bench.machine.resume(&bench.rows, bench.now, "nightly").expect("it is resumed");
    bench.perform();
    bench.live_until("2026-11-13T16:00:01Z");
    let view = bench.view();
    assert_eq!((view.counts.started, view.counts.missed, view.paused), (1, 0, None));
    assert_eq!(view.last.expect("one").tick, at("2026-11-13T16:00:00Z"));
}

#[test]
fn a_pause_while_a_cell_is_asked_does_not_lose_the_answer() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 * * * *"));
    bench.fire();
    bench.machine.pause(&bench.rows, bench.now, "key:1", "nightly").expect("it is paused");
    bench.answer_all();
    assert_eq!(bench.view().counts.started, 1);
    bench.live_until("2026-11-13T18:00:00Z");
    assert_eq!(bench.runs.len(), 1);
}

#[test]
fn a_schedule_is_paused_after_so_many_failures_in_a_row() {
    let careful = ScheduleSpec { pause_after_failures: Some(2), ..spec("0 * * * *") };
    let mut bench = Bench::new("2026-11-13T08:30:00Z").with(careful);
    for (how, failures) in [
        (Status::Failed, 1),
        (Status::Completed, 0),
        (Status::Failed, 1),
        (Status::Cancelled, 1),
        (Status::Failed, 2),
    ] {
        while bench.asked.is_empty() {
            bench.fire();
        }
        let asked = bench.asked[0].clone();
        assert_eq!(asked.ticked.tells.as_deref(), Some("0"));
        bench.answer_all();
        bench.end(&asked, how);
        bench.end(&asked, how);
        assert_eq!(bench.view().counts.failures, failures, "what comes twice counts once");
    }
    let view = bench.view();
    assert_eq!(view.paused.expect("it is paused").why.as_deref(), Some("2 runs in a row have failed."));
    bench.live_until("2026-11-14T09:00:00Z");
    assert_eq!(bench.runs.len(), 5);
    bench.machine.resume(&bench.rows, bench.now, "nightly").expect("it is resumed");
    assert_eq!(bench.view().counts.failures, 0);
}

#[test]
fn an_end_that_is_heard_of_before_the_start_counts_as_both() {
    let careful = ScheduleSpec { pause_after_failures: Some(1), ..spec("0 * * * *") };
    let mut bench = Bench::new("2026-11-13T08:30:00Z").with(careful);
    bench.fire();
    let asked = bench.asked[0].clone();
    bench.end(&asked, Status::Failed);
    bench.answer_all();
    let view = bench.view();
    assert_eq!((view.counts.started, view.counts.failures, view.running.len()), (1, 1, 0));
    assert!(view.paused.is_some());
}

#[test]
fn a_run_is_triggered_once_for_each_request_even_while_the_schedule_is_paused() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    bench.machine.pause(&bench.rows, bench.now, "key:1", "nightly").expect("it is paused");
    for mark in ["one", "one", "two"] {
        bench.machine.trigger(&bench.rows, bench.now, "nightly", mark.into()).expect("it is stored");
        bench.perform();
    }
    assert_eq!(bench.asked.len(), 1, "one thing at a time");
    bench.crash();
    bench.live_until("2026-11-13T12:31:00Z");
    bench.machine.trigger(&bench.rows, bench.now, "nightly", "one".into()).expect("it is known");
    bench.perform();
    bench.answer_all();
    assert_eq!(bench.ticks(), ["triggered-one", "triggered-two"]);
    assert_eq!(bench.view().next_tick, None, "it is paused");
}

#[test]
fn a_range_of_ticks_is_started_again() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    bench.live_until("2026-11-15T12:00:00Z");
    assert_eq!(bench.runs.len(), 2);
    let range = Backfill { from: at("2026-11-12T09:00:00Z"), to: at("2026-11-15T09:00:00Z") };
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    bench.perform();
    let again = bench.machine.backfill(&bench.rows, bench.now, "nightly", range);
    let Err(Fault::Rejected(problem)) = again else { panic!("one at a time") };
    assert_eq!(problem.code, Code::WrongStatus);
    bench.crash();
    bench.live_until("2026-11-15T12:01:00Z");
    let view = bench.view();
    assert_eq!((view.counts.started, bench.runs.len(), view.backfill), (6, 6, None));
    assert_eq!(view.next_tick, Some(at("2026-11-16T09:00:00Z")));
    // The same range once more is another one.
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    bench.perform();
    bench.live_until("2026-11-15T12:02:00Z");
    assert_eq!(bench.runs.len(), 10);
}

#[test]
fn a_range_without_ticks_or_in_the_future_is_refused() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    for (from, to) in [
        ("2026-11-13T10:00:00Z", "2026-11-13T11:00:00Z"),
        ("2026-11-13T11:00:00Z", "2026-11-13T10:00:00Z"),
        ("2026-11-13T10:00:00Z", "2026-11-15T10:00:00Z"),
    ] {
        let range = Backfill { from: at(from), to: at(to) };
        let refused = bench.machine.backfill(&bench.rows, bench.now, "nightly", range);
        assert!(matches!(refused, Err(Fault::Rejected(_))), "{from} to {to}");
    }
}

#[test]
fn a_change_takes_effect_at_once_but_a_tick_that_is_due_stays() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    bench.put("nightly", spec("0 10 * * *"));
    assert_eq!(bench.view().next_tick, Some(at("2026-11-14T10:00:00Z")));
    while bench.asked.is_empty() {
        bench.fire();
    }
    bench.put("nightly", spec("0 11 * * *"));
    assert!(bench.asked[0].ticked.tick == tick("2026-11-14T10:00:00Z"));
    bench.answer_all();
    let view = bench.view();
    assert_eq!((view.counts.started, view.next_tick), (1, Some(at("2026-11-14T11:00:00Z"))));
}

#[test]
fn the_same_again_writes_nothing() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    let written = *bench.rows.written.borrow();
    bench.put("nightly", spec("0 9 * * *"));
    assert_eq!(*bench.rows.written.borrow(), written);
}

#[test]
fn a_deleted_schedule_does_not_tick_whatever_is_under_way() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    bench.fire();
    bench.machine.delete(&bench.rows, bench.now, "nightly").expect("it is deleted");
    bench.answer_all();
    bench.live_until("2026-11-20T00:00:00Z");
    assert_eq!(bench.runs.len(), 1);
}

#[test]
fn a_schedule_that_never_ticks_is_refused() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z");
    for over in [
        spec("at 2026-11-13T12:30:00Z"),
        ScheduleSpec { ends_at: Some(at("2026-11-13T13:00:00Z")), ..spec("0 9 * * *") },
    ] {
        let refused = bench.machine.put(&bench.rows, bench.now, "key:1", "nightly", over);
        let Err(Fault::Rejected(problem)) = refused else { panic!("it is refused") };
        assert!(problem.detail.contains("never comes"), "{}", problem.detail);
    }
}

#[test]
fn the_next_ticks_are_those_that_come() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    let shown = bench.machine.next_ticks(&bench.rows, bench.now, "nightly").expect("it is there").ticks;
    assert_eq!(shown.len(), 10);
    for expected in shown {
        while bench.asked.is_empty() {
            bench.fire();
        }
        assert_eq!(bench.asked[0].ticked.tick, stepwell_protocol::schedule::TickId::At(expected));
        bench.answer_all();
    }
}

#[test]
fn a_backfill_of_a_schedule_that_was_deleted_and_made_again_starts_runs() {
    let mut bench = Bench::new("2026-11-14T08:30:00Z").with(spec("0 * * * *"));
    let range = Backfill { from: at("2026-11-13T00:00:00Z"), to: at("2026-11-13T02:30:00Z") };
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    bench.perform();
    bench.live_until("2026-11-14T08:40:00Z");
    assert_eq!(bench.runs.len(), 3);
    bench.machine.delete(&bench.rows, bench.now, "nightly").expect("it is deleted");
    bench.put("nightly", spec("0 * * * *"));
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    bench.perform();
    bench.live_until("2026-11-14T08:50:00Z");
    assert_eq!(bench.runs.len(), 6, "the cells know those of before by other keys");
}
