//! What happens to a tick while the run of an earlier one has not ended.

use stepwell_protocol::{
    rest::Status,
    schedule::{Overlap, ScheduleSpec},
};

use super::{
    at, spec,
    station::{Bench, tick},
};
use crate::{object::Receipt, schedule::TickStart};

/// An hourly schedule whose run of 9:00 does not end.
fn busy(overlap: Overlap) -> (Bench, TickStart) {
    let hourly = ScheduleSpec { overlap, ..spec("0 * * * *") };
    let mut bench = Bench::new("2026-11-13T08:30:00Z").with(hourly);
    bench.fire();
    let first = bench.asked[0].clone();
    bench.answer_all();
    (bench, first)
}

#[test]
fn allow_starts_runs_beside_each_other_and_hears_nothing_of_their_ends() {
    let (mut bench, first) = busy(Overlap::Allow);
    assert_eq!(first.ticked.tells, None, "no letter is written for it");
    bench.live_until("2026-11-13T11:30:00Z");
    assert_eq!(bench.runs.len(), 3);
}

#[test]
fn skip_leaves_ticks_out_until_the_run_has_ended() {
    let (mut bench, first) = busy(Overlap::Skip);
    bench.live_until("2026-11-13T11:30:00Z");
    assert_eq!((bench.runs.len(), bench.view().counts.skipped), (1, 2));
    assert_eq!(bench.end(&first, Status::Completed), Receipt::Taken);
    assert_eq!(bench.end(&first, Status::Completed), Receipt::Gone);
    bench.live_until("2026-11-13T12:00:01Z");
    assert_eq!((bench.runs.len(), bench.view().counts.skipped), (2, 2));
}

#[test]
fn queue_one_starts_the_latest_that_has_waited() {
    let (mut bench, first) = busy(Overlap::QueueOne);
    bench.live_until("2026-11-13T12:30:00Z");
    assert_eq!(bench.runs.len(), 1);
    bench.end(&first, Status::Completed);
    bench.live_until("2026-11-13T12:30:01Z");
    let view = bench.view();
    assert_eq!((bench.runs.len(), view.counts.skipped + view.counts.missed), (2, 2));
    assert_eq!(view.last.expect("two").tick, at("2026-11-13T12:00:00Z"));
}

#[test]
fn queue_all_starts_each_that_has_waited_one_after_the_other() {
    let (mut bench, mut last) = busy(Overlap::QueueAll);
    bench.live_until("2026-11-13T12:30:00Z");
    for due in ["2026-11-13T10:00:00Z", "2026-11-13T11:00:00Z", "2026-11-13T12:00:00Z"] {
        bench.end(&last, Status::Completed);
        bench.crash();
        while bench.asked.is_empty() {
            bench.fire();
        }
        last = bench.asked[0].clone();
        assert_eq!(last.ticked.tick, tick(due));
        bench.answer_all();
        bench.live_until("2026-11-13T12:30:30Z");
    }
    assert_eq!((bench.runs.len(), bench.view().counts.missed), (4, 0));
}

#[test]
fn cancel_ends_the_run_before_it_starts_the_next() {
    let (mut bench, first) = busy(Overlap::Cancel);
    bench.live_until("2026-11-13T10:00:00Z");
    let run = bench.start(&first);
    assert_eq!(bench.cancelled, std::slice::from_ref(&run));
    assert_eq!(bench.runs.len(), 1, "it has not ended yet");
    // Nobody has heard of its end: it is cancelled again.
    bench.live_until("2026-11-13T10:00:06Z");
    assert_eq!(bench.cancelled, [run.clone(), run]);
    bench.end(&first, Status::Cancelled);
    bench.live_until("2026-11-13T10:00:07Z");
    assert_eq!(bench.view().last.expect("two").tick, at("2026-11-13T10:00:00Z"));
}

#[test]
fn a_run_that_nobody_knows_any_more_holds_up_nothing() {
    let (mut bench, first) = busy(Overlap::Cancel);
    bench.live_until("2026-11-13T10:00:00Z");
    let run = bench.start(&first);
    bench.machine.run_gone(&bench.rows, bench.now, "nightly", &run).expect("it is stored");
    bench.perform();
    bench.live_until("2026-11-13T10:00:01Z");
    assert_eq!(bench.runs.len(), 2);
}

#[test]
fn what_a_schedule_waits_for_survives_its_instance() {
    let (mut bench, first) = busy(Overlap::Skip);
    bench.crash();
    bench.live_until("2026-11-13T10:30:00Z");
    assert_eq!((bench.runs.len(), bench.view().running.len()), (1, 1));
    bench.end(&first, Status::Completed);
    assert!(bench.view().running.is_empty());
}
