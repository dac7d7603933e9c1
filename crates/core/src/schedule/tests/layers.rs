//! Schedules that are declared in code: what a deploy changes, and what it leaves alone.

use stepwell_protocol::{Code, Problem, manifest::ScheduleDescription, schedule::ScheduleSpec};

use super::{at, spec, station::Bench};
use crate::{
    object::Fault,
    schedule::{RETIRED_MS, Rows as _},
};

impl Bench {
    /// The catalog says what the code declares.
    fn declare(&mut self, revision: u64, schedules: &[(&str, ScheduleSpec)]) {
        let schedules: Vec<_> = schedules
            .iter()
            .map(|(name, spec)| ScheduleDescription { name: (*name).into(), spec: spec.clone() })
            .collect();
        self.machine.declare(&self.rows, self.now, revision, &schedules).expect("it is stored");
        self.perform();
    }
}

fn hourly() -> ScheduleSpec {
    spec("0 * * * *")
}

#[test]
fn what_the_code_declares_ticks_and_what_leaves_it_stops() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(1, &[("nightly", hourly())]);
    bench.live_until("2026-11-13T10:30:00Z");
    assert_eq!(bench.runs.len(), 2);
    bench.declare(2, &[]);
    bench.crash();
    bench.live_until("2026-11-13T20:30:00Z");
    assert_eq!(bench.runs.len(), 2, "it is retired");
    let view = bench.view();
    assert_eq!(view.next_tick, None);
    assert_eq!(view.declared.expect("it is kept").retired_at, Some(at("2026-11-13T10:30:00Z")));
    let refused = bench.machine.trigger(&bench.rows, bench.now, "nightly", "m".into());
    assert!(matches!(refused, Err(Fault::Rejected(problem)) if problem.code == Code::WrongStatus));
    bench.now = at("2026-11-13T10:30:00Z").plus_millis(RETIRED_MS);
    bench.fire_now();
    assert_eq!(bench.rows.get("nightly"), Ok(None), "it is deleted 30 days later");
    assert_eq!(bench.runs.len(), 2);
}

#[test]
fn what_is_declared_again_ticks_again() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(1, &[("nightly", hourly())]);
    bench.declare(2, &[]);
    bench.declare(3, &[("nightly", hourly())]);
    bench.live_until("2026-11-13T10:30:00Z");
    assert_eq!(bench.runs.len(), 2);
}

#[test]
fn a_word_that_comes_late_or_twice_changes_nothing() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(7, &[("nightly", hourly())]);
    let written = *bench.rows.written.borrow();
    bench.declare(7, &[("nightly", hourly())]);
    bench.declare(3, &[]);
    assert_eq!(*bench.rows.written.borrow(), written);
    assert!(bench.view().next_tick.is_some());
}

#[test]
fn a_deploy_never_resumes_what_a_person_has_paused() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(1, &[("nightly", hourly())]);
    bench.machine.pause(&bench.rows, bench.now, "key:1", "nightly").expect("it is paused");
    bench.perform();
    bench.declare(2, &[("nightly", spec("*/10 * * * *"))]);
    bench.declare(3, &[]);
    bench.declare(4, &[("nightly", hourly())]);
    bench.live_until("2026-11-13T12:30:00Z");
    assert_eq!(bench.runs.len(), 0);
    assert_eq!(bench.view().paused.expect("it is paused").by, "key:1");
}

#[test]
fn a_deploy_does_not_take_the_place_of_what_an_operator_has_set() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(1, &[("nightly", hourly())]);
    bench.put("nightly", spec("30 * * * *"));
    bench.declare(2, &[("nightly", spec("*/10 * * * *"))]);
    let view = bench.view();
    let declared = view.declared.expect("it is declared");
    assert_eq!((view.spec.when.as_str(), declared.spec.when.as_str()), ("30 * * * *", "*/10 * * * *"));
    assert!(declared.changed);
    // Whoever sets what the code declares has changed nothing any more.
    bench.put("nightly", spec("*/10 * * * *"));
    bench.declare(3, &[("nightly", hourly())]);
    assert_eq!(bench.view().spec.when, "0 * * * *");
}

#[test]
fn what_is_declared_is_not_deleted_by_hand() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(1, &[("nightly", hourly())]);
    let refused = bench.machine.delete(&bench.rows, bench.now, "nightly");
    assert!(matches!(refused, Err(Fault::Rejected(problem)) if problem.code == Code::WrongStatus));
    bench.declare(2, &[]);
    bench.machine.delete(&bench.rows, bench.now, "nightly").expect("it was retired");
    assert_eq!(bench.rows.get("nightly"), Ok(None));
}

#[test]
fn one_whose_time_is_over_keeps_no_other_from_ticking() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    bench.declare(1, &[("nightly", hourly()), ("once", spec("at 2020-01-01T00:00:00Z"))]);
    bench.live_until("2026-11-13T09:30:00Z");
    assert_eq!(bench.runs.len(), 1);
    let once = bench.machine.get(&bench.rows, "once").expect("it is shown");
    assert!(once.paused.and_then(|paused| paused.why).is_some_and(|why| why.contains("never comes")));
}

#[test]
fn a_row_that_cannot_be_read_keeps_no_other_from_what_the_code_declares() {
    let mut bench = Bench::new("2026-11-14T08:30:00Z");
    bench.declare(1, &[("broken", hourly()), ("gone", hourly()), ("well", hourly())]);
    for id in ["broken", "gone"] {
        bench.rows.rows.borrow_mut().insert(id.into(), (None, "{".into()));
    }
    let daily = spec("every day at 9:00");
    bench.declare(2, &[("broken", daily.clone()), ("new", hourly()), ("well", daily.clone())]);
    let list = bench.machine.list(&bench.rows, "", 2).expect("a page");
    assert_eq!((list.schedules.len(), list.unreadable.len(), list.next.as_deref()), (0, 2, Some("gone")));
    let list = bench.machine.list(&bench.rows, "gone", 2).expect("a page");
    assert_eq!(list.schedules.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["new", "well"]);
    assert_eq!(list.schedules[1].spec, daily, "the deploy took effect");
    assert!(bench.reported.contains(&"broken".to_owned()));
    assert!(bench.rows.heard.borrow().names.contains("gone"), "it is retired when it can be read");
    // A person can mend both.
    let unread = bench.machine.get(&bench.rows, "broken");
    assert!(matches!(unread, Err(Fault::Rejected(Problem { code: Code::WrongStatus, .. }))));
    bench.put("broken", hourly());
    assert_eq!(bench.machine.get(&bench.rows, "broken").expect("it can be read").spec, hourly());
    bench.machine.delete(&bench.rows, bench.now, "gone").expect("it is deleted");
    assert!(!bench.rows.rows.borrow().contains_key("gone"));
}
