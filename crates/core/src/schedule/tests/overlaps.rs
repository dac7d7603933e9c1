//! What happens to a tick while the run of an earlier one has not ended.

use stepwell_protocol::{
    rest::Status,
    schedule::{Overlap, ScheduleSpec, TickId},
};

use super::{
    at, spec,
    station::{Bench, tick},
};
use crate::{
    object::Receipt,
    schedule::{Seen, StartEnd, TickStart},
};

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
    bench
        .machine
        .run_seen(&bench.rows, bench.now, "nightly", &run, Seen::Over(Status::Cancelled))
        .expect("it is stored");
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

#[test]
fn a_run_whose_end_nobody_tells_is_asked_and_holds_up_nothing_for_ever() {
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll] {
        let (mut bench, first) = busy(overlap);
        let run = bench.start(&first);
        bench.live_until("2026-11-13T10:00:01Z");
        assert_eq!(bench.looked, std::slice::from_ref(&run), "{overlap:?}: it is older than ten minutes");
        // Nobody answers, and the station dies: it is asked again, and not all the time.
        bench.crash();
        bench.live_until("2026-11-13T12:00:01Z");
        assert!((2..=15).contains(&bench.looked.len()), "{overlap:?}: {}", bench.looked.len());
        assert_eq!(bench.runs.len(), 1, "{overlap:?}");
        bench
            .machine
            .run_seen(&bench.rows, bench.now, "nightly", &run, Seen::Over(Status::Completed))
            .expect("it is stored");
        bench.perform();
        bench.live_until("2026-11-13T13:00:01Z");
        assert!(bench.runs.len() >= 2, "{overlap:?}: it ticks again");
        assert_eq!(
            bench.end(&first, Status::Completed),
            Receipt::Gone,
            "{overlap:?}: the letter comes after all"
        );
    }
}

#[test]
fn a_run_that_is_young_is_not_asked() {
    let mut bench =
        Bench::new("2026-11-13T08:30:00Z").with(ScheduleSpec { overlap: Overlap::Skip, ..spec("* * * * *") });
    bench.live_until("2026-11-13T08:40:30Z");
    assert_eq!((bench.runs.len(), bench.looked.len()), (1, 0));
    bench.live_until("2026-11-13T08:50:30Z");
    assert_eq!((bench.runs.len(), bench.looked.len()), (1, 1));
}

#[test]
fn a_tick_that_nobody_has_answered_is_asked_again_however_late_it_is() {
    let minutely = ScheduleSpec { overlap: Overlap::Skip, ..spec("* * * * *") };
    let mut bench = Bench::new("2026-11-13T08:30:30Z").with(minutely);
    bench.fire();
    let first = bench.asked.remove(0);
    let run = bench.start(&first);
    // The cell has started the run, and its answers are lost for five minutes, in which the station dies as well.
    for turn in 0..60 {
        bench.now = bench.now.plus_millis(5_000);
        if turn % 7 == 6 {
            bench.crash();
        }
        bench.fire_now();
        assert!(bench.asked.iter().all(|asked| asked.ticked.tick == first.ticked.tick), "{:?}", bench.asked);
    }
    bench.answer_all();
    assert_eq!((bench.view().running, bench.view().counts.started, bench.runs.len()), (vec![run], 1, 1));
}

#[test]
fn a_tick_that_has_no_run_is_given_up_by_its_cell_before_it_is_passed_over() {
    let minutely = ScheduleSpec { overlap: Overlap::Skip, ..spec("* * * * *") };
    let mut bench = Bench::new("2026-11-13T08:30:30Z").with(minutely);
    // An instance before this one may have asked: it has died, and nothing was heard for ten minutes.
    bench.crash();
    bench.now = at("2026-11-13T08:41:10Z");
    bench.fire_now();
    let asked = bench.asked.remove(0);
    assert!(asked.given_up && bench.asked.is_empty(), "{asked:?}");
    bench.answer(&asked, StartEnd::Never);
    assert_eq!(
        bench.view().counts.missed,
        10,
        "those after it were never asked for: no cell is asked about them"
    );
    let latest = bench.asked.remove(0);
    assert_eq!((latest.given_up, latest.ticked.tick), (false, TickId::At(at("2026-11-13T08:41:00Z"))));
}

#[test]
fn a_tick_that_was_given_up_is_over_even_if_it_could_start_by_now() {
    let (mut bench, first) = busy(Overlap::Skip);
    bench.crash();
    bench.now = at("2026-11-13T10:00:01Z");
    bench.fire_now();
    let asked = bench.asked.remove(0);
    assert!(asked.given_up, "{asked:?}");
    bench.end(&first, Status::Completed);
    bench.answer(&asked, StartEnd::Never);
    assert_eq!((bench.view().counts.skipped, bench.asked.len()), (1, 0));
    bench.live_until("2026-11-13T11:00:01Z");
    assert_eq!(bench.runs.len(), 2, "the next one starts");
}

#[test]
fn a_clock_that_jumps_is_no_silence() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 * * * *"));
    bench.fire();
    let first = bench.asked.pop().expect("it is asked");
    bench.answer(&first, StartEnd::Failed);
    // The cell has started the run, and its answer was lost.
    bench.start(&first);
    bench.now = bench.now.plus_millis(2 * 3_600_000);
    bench.fire_now();
    for asked in &bench.asked {
        assert_eq!(asked.ticked.tick, first.ticked.tick, "what became of the first one is not known yet");
    }
}

#[test]
fn a_cell_that_is_silent_for_long_does_not_stop_a_schedule() {
    let minutely = ScheduleSpec { overlap: Overlap::Skip, ..spec("* * * * *") };
    let mut bench = Bench::new("2026-11-13T08:30:30Z").with(minutely);
    bench.fire();
    let silent = bench.asked[0].to.clone();
    // It answers nothing, whatever it is asked; all others do.
    for _ in 0..300 {
        bench.now = bench.now.plus_millis(5_000);
        bench.fire_now();
        bench.asked.retain(|asked| asked.to != silent);
        bench.answer_all();
    }
    assert!(bench.view().counts.started > 0, "{:?}", bench.view().counts);
}

#[test]
fn a_tick_that_may_have_a_run_is_not_passed_over_when_its_schedule_is_resumed() {
    let mut hourly = spec("0 * * * *");
    hourly.overlap = Overlap::Skip;
    for has_run in [true, false] {
        let mut bench = Bench::new("2026-11-13T08:30:00Z").with(hourly.clone());
        bench.live_until("2026-11-13T08:59:59Z");
        bench.fire();
        let asked = bench.asked.pop().expect("it is asked");
        if has_run {
            bench.start(&asked);
        }
        // Its answer is lost, and the schedule is paused and resumed meanwhile.
        bench.answer(&asked, StartEnd::Failed);
        bench.machine.pause(&bench.rows, bench.now, "ada", "nightly").expect("it is stored");
        bench.perform();
        bench.now = at("2026-11-13T11:30:00Z");
        bench.machine.resume(&bench.rows, bench.now, "nightly").expect("it is stored");
        bench.perform();
        bench.answer_all();
        let view = bench.view();
        assert_eq!(view.next_tick, Some(at("2026-11-13T12:00:00Z")));
        assert_eq!((view.counts.missed, view.counts.skipped), (0, 0), "what is left out is not counted");
        assert_eq!(view.counts.started, u64::from(has_run));
        bench.live_until("2026-11-13T12:01:00Z");
        // The run of before holds up the next one.
        assert_eq!((bench.runs.len(), bench.view().counts.skipped), (1, u64::from(has_run)));
    }
}

#[test]
fn a_cell_that_hangs_is_not_asked_ever_more_often_to_cancel_a_run() {
    let (mut bench, _) = busy(Overlap::Cancel);
    bench.hangs = true;
    while bench.cancelled.is_empty() {
        bench.fire();
    }
    let start = bench.now;
    while bench.now.as_millis() < start.as_millis() + 600_000 {
        bench.fire();
    }
    let count = bench.cancelled.len();
    assert!((5..=20).contains(&count), "{count} in ten minutes");
}
