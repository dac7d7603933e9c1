//! What one turn may spend on looking for ticks, however much is left out; and how a backfill ends before its range does.

use std::{cell::Cell, rc::Rc};

use stepwell_protocol::{
    Code, Problem,
    schedule::{Backfill, ScheduleSpec},
};

use super::{Jiff, at, spec, station::Bench};
use crate::{
    object::Fault,
    pools::Pool,
    schedule::{BACKFILL_TICKS_MAX, Schedules, Zones},
};

/// How often a turn may ask for the rules of a zone.
const LOOKUPS_MAX: u64 = 40_000;

/// Zones that count how often they are asked.
#[derive(Default)]
struct Counted {
    rules: Jiff,
    asked: Rc<Cell<u64>>,
}

impl Zones for Counted {
    fn offset_s(&self, zone: &str, at_s: i64) -> Option<i32> {
        self.asked.set(self.asked.get() + 1);
        self.rules.offset_s(zone, at_s)
    }
}

/// A bench whose zones count how often they are asked.
fn bench(now: &str) -> (Bench, Rc<Cell<u64>>) {
    let counted = Counted::default();
    let asked = counted.asked.clone();
    let mut bench = Bench::new(now);
    bench.machine =
        Schedules::new("0".into(), Rc::new(counted), Pool::parse("default", "16").expect("a pool"));
    (bench, asked)
}

/// Every second of a zone, of which all but one in a minute are left out, each by itself.
fn sparse() -> ScheduleSpec {
    let except = (0..59).map(|second| format!("{second} * * * * *"));
    ScheduleSpec { except: except.collect(), zone: Some("Europe/Berlin".into()), ..spec("* * * * * *") }
}

/// The same without the one.
fn none() -> ScheduleSpec {
    let except = vec!["0-29 * * * * *".into(), "30-59 * * * * *".into()];
    ScheduleSpec { except, ..sparse() }
}

fn refusal<T>(result: Result<T, Fault<super::station::Broken>>) -> Problem {
    match result {
        Err(Fault::Rejected(problem)) => problem,
        Err(_) | Ok(_) => panic!("it is refused"),
    }
}

#[test]
fn what_leaves_out_everything_is_refused() {
    let (mut bench, asked) = bench("2026-11-13T12:30:00Z");
    let all = ScheduleSpec { except: vec!["* * * * * *".into()], ..sparse() };
    for everything in [none(), all] {
        let before = asked.get();
        let refused = refusal(bench.machine.put(&bench.rows, bench.now, "key:1", "nightly", everything));
        assert!(refused.detail.contains("leaves out") || refused.detail.contains("left out"), "{refused:?}");
        assert!(asked.get() - before < LOOKUPS_MAX, "{} lookups", asked.get() - before);
    }
}

#[test]
fn a_turn_looks_up_only_so_much_however_much_is_left_out() {
    let (mut bench, asked) = bench("2026-11-13T12:30:00Z");
    for number in 0..20 {
        bench.put(&format!("s{number}"), ScheduleSpec { starts_at: None, ..sparse() });
    }
    // Everything was away for a day.
    bench.now = at("2026-11-14T12:30:00Z");
    let mut most = 0;
    for _ in 0..5 {
        let before = asked.get();
        bench.fire_now();
        most = most.max(asked.get() - before);
        bench.asked.clear();
    }
    assert!(most > 0 && most < LOOKUPS_MAX, "{most} lookups");
    let before = asked.get();
    let next = bench.machine.next_ticks(&bench.rows, bench.now, "s1").expect("it is there").ticks;
    assert!(next.len() <= 10 && asked.get() - before < LOOKUPS_MAX, "{} lookups", asked.get() - before);
}

#[test]
fn what_is_found_does_not_depend_on_what_is_left_to_spend() {
    let (mut bench, _) = bench("2026-11-13T12:30:30Z");
    bench.put("nightly", sparse());
    bench.live_until("2026-11-13T12:40:00Z");
    assert_eq!((bench.view().counts.started, bench.view().counts.missed), (10, 0));
    let range = Backfill { from: at("2026-11-13T11:00:00Z"), to: at("2026-11-13T12:00:00Z") };
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    bench.perform();
    bench.live_until("2026-11-13T12:40:30Z");
    assert_eq!((bench.view().counts.started, bench.view().backfill), (70, None));
}

#[test]
fn a_backfill_goes_over_a_year_and_so_many_ticks_at_the_most() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 9 * * *"));
    for from in ["1970-01-01T00:00:00Z", "2025-11-12T00:00:00Z"] {
        let range = Backfill { from: at(from), to: bench.now };
        let refused = refusal(bench.machine.backfill(&bench.rows, bench.now, "nightly", range));
        assert_eq!(refused.code, Code::InvalidRequest);
    }
    bench.put("nightly", spec("every second"));
    let range = Backfill { from: at("2026-11-12T00:00:00Z"), to: at("2026-11-13T00:00:00Z") };
    let ends = ScheduleSpec { ends_at: Some(bench.now.plus_millis(1_000)), ..spec("every second") };
    bench.put("nightly", ends);
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    // Most of them are done.
    let row = bench.rows.rows.borrow_mut().get_mut("nightly").map(|(_, text)| {
        let all = format!("\"left\":{BACKFILL_TICKS_MAX}");
        assert!(text.contains(&all), "{text}");
        *text = text.replace(&all, "\"left\":7");
    });
    assert!(row.is_some());
    bench.crash();
    bench.live_until("2026-11-13T13:00:00Z");
    assert_eq!((bench.view().backfill, bench.view().counts.started), (None, 7 + 1));
}

#[test]
fn a_pause_holds_a_backfill_and_another_plan_drops_it() {
    let mut bench = Bench::new("2026-11-13T12:30:00Z").with(spec("0 * * * *"));
    let range = Backfill { from: at("2026-11-12T00:00:00Z"), to: at("2026-11-12T23:30:00Z") };
    bench.machine.backfill(&bench.rows, bench.now, "nightly", range).expect("it is stored");
    bench.perform();
    let first = bench.asked.remove(0);
    bench.machine.pause(&bench.rows, bench.now, "key:1", "nightly").expect("it is paused");
    let run = bench.start(&first);
    bench.answer(&first, crate::schedule::StartEnd::Started(run));
    bench.live_until("2026-11-13T12:40:00Z");
    assert_eq!((bench.runs.len(), bench.view().backfill), (1, Some(range)), "it is held");
    bench.machine.resume(&bench.rows, bench.now, "nightly").expect("it is resumed");
    bench.perform();
    // What it runs, and with what, may change meanwhile.
    bench.put("nightly", ScheduleSpec { workflow: "another".into(), ..spec("0 * * * *") });
    assert_eq!(bench.view().backfill, Some(range));
    bench.put("nightly", spec("30 * * * *"));
    assert_eq!(bench.view().backfill, None);
    bench.live_until("2026-11-13T12:50:00Z");
    assert!(bench.runs.len() <= 3, "{} runs", bench.runs.len());
}
