//! Rules that fire once, are told of once, and lose nothing when an instance dies.

use std::{
    cell::{Cell as Slot, RefCell},
    collections::BTreeMap,
};

use stepwell_protocol::{
    Timestamp,
    alert::{AlertSpec, AlertState, Watched},
    totals::{LATE_BOUNDS_MS, Totals},
};

use super::*;
use crate::object::Machine as _;

#[derive(Default)]
struct Memory {
    rules: RefCell<BTreeMap<String, Rule>>,
    refuses: Slot<bool>,
}

impl Rows for Memory {
    type Error = ();

    fn rules(&self) -> Result<Vec<(String, Option<Rule>)>, ()> {
        Ok(self.rules.borrow().iter().map(|(id, rule)| (id.clone(), Some(rule.clone()))).collect())
    }

    fn put(&self, id: &str, rule: &Rule) -> Result<(), ()> {
        if self.refuses.get() {
            return Err(());
        }
        self.rules.borrow_mut().insert(id.to_owned(), rule.clone());
        Ok(())
    }

    fn delete(&self, id: &str) -> Result<(), ()> {
        self.rules.borrow_mut().remove(id);
        Ok(())
    }
}

const MINUTE: u64 = 60_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn dead_letters(for_minutes: u64) -> AlertSpec {
    AlertSpec { watched: Watched::DeadLetters { above: 2 }, url: "https://a.example".into(), for_minutes }
}

fn figures(dead: u64) -> Figures {
    Figures { dead_letters: Some(dead), ..Figures::default() }
}

/// The alarm goes, and the host says what it has found. Gives the notices that go out.
fn minute(alerts: &mut Alerts, rows: &Memory, ms: u64, found: &Figures) -> Vec<Notice> {
    alerts.due(rows, at(ms)).expect("the alarm goes");
    let mut notices = Vec::new();
    let mut orders = alerts.take_orders().own;
    while let Some(order) = orders.pop() {
        match order {
            Order::Look { flight, .. } => {
                // What the storage refuses comes again.
                let _ = alerts.looked(rows, at(ms), "acme", flight, found);
                orders.append(&mut alerts.take_orders().own);
            }
            Order::Tell(notice) => notices.push(*notice),
        }
    }
    notices
}

fn kind(notice: &Notice) -> String {
    notice.body.decode::<serde_json::Value>().expect("it is JSON")["type"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_rule_fires_and_resolves_once_each() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    let (view, is_new) =
        alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(0)).expect("it is good");
    assert!(is_new && view.state == AlertState::Quiet);
    assert_eq!(minute(&mut alerts, &rows, 1, &figures(2)), []);
    let fired = minute(&mut alerts, &rows, MINUTE + 1, &figures(3));
    assert_eq!(fired.iter().map(kind).collect::<Vec<_>>(), ["alert.fired"]);
    alerts.told(&rows, at(MINUTE + 2), &fired[0], true).expect("it is stored");
    let view = alerts.get(&rows, "letters").expect("it is there");
    assert_eq!((view.state, view.value, view.since), (AlertState::Firing, Some(3), at(MINUTE + 1)));
    for later in 2..10 {
        assert_eq!(minute(&mut alerts, &rows, later * MINUTE + 1, &figures(9)), [], "it fires already");
    }
    let over = minute(&mut alerts, &rows, 11 * MINUTE, &figures(0));
    assert_eq!(over.iter().map(kind).collect::<Vec<_>>(), ["alert.resolved"]);
    assert_ne!(over[0].id, fired[0].id);
    let waits = minute(&mut alerts, &rows, 13 * MINUTE, &figures(5));
    assert_eq!(waits, over, "nothing overtakes it");
    alerts.told(&rows, at(13 * MINUTE + 1), &over[0], true).expect("it is stored");
    let again = minute(&mut alerts, &rows, 15 * MINUTE, &figures(5));
    assert_eq!(again.iter().map(kind).collect::<Vec<_>>(), ["alert.fired"]);
    assert_ne!(again[0].id, fired[0].id, "another time");
}

#[test]
fn it_waits_until_something_has_been_wrong_for_a_while() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(2)).expect("it is good");
    assert_eq!(minute(&mut alerts, &rows, 1, &figures(3)), []);
    assert_eq!(alerts.get(&rows, "letters").expect("it is there").state, AlertState::Pending);
    // An instance that is made anew waits no longer for that.
    let mut alerts = Alerts::default();
    assert_eq!(minute(&mut alerts, &rows, MINUTE + 1, &figures(3)), []);
    assert_eq!(minute(&mut alerts, &rows, 2 * MINUTE + 1, &figures(3)).len(), 1);
    // What was over in time was never wrong.
    let mut short = Alerts::default();
    let rows = Memory::default();
    short.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(2)).expect("it is good");
    minute(&mut short, &rows, 1, &figures(3));
    assert_eq!(minute(&mut short, &rows, MINUTE + 1, &figures(0)), []);
    assert_eq!(short.get(&rows, "letters").expect("it is there").state, AlertState::Quiet);
}

#[test]
fn a_notice_goes_out_until_the_queue_has_it_and_by_the_same_id() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(0)).expect("it is good");
    let fired = minute(&mut alerts, &rows, 1, &figures(3));
    alerts.told(&rows, at(2), &fired[0], false).expect("it is noted");
    let again = minute(&mut alerts, &rows, MINUTE + 1, &figures(3));
    assert_eq!(again, fired);
    // So does the next instance.
    let mut alerts = Alerts::default();
    assert_eq!(minute(&mut alerts, &rows, 2 * MINUTE, &figures(3)), fired);
    alerts.told(&rows, at(2 * MINUTE + 1), &fired[0], true).expect("it is stored");
    assert_eq!(minute(&mut Alerts::default(), &rows, 4 * MINUTE, &figures(3)), []);
}

#[test]
fn what_nobody_could_find_out_changes_nothing_and_is_asked_for_again() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(0)).expect("it is good");
    let fired = minute(&mut alerts, &rows, 1, &figures(3));
    alerts.told(&rows, at(2), &fired[0], true).expect("it is stored");
    assert_eq!(minute(&mut alerts, &rows, MINUTE + 1, &Figures::default()), []);
    let view = alerts.get(&rows, "letters").expect("it is there");
    assert_eq!((view.state, view.value), (AlertState::Firing, None));
    // A look that gets no answer at all is given up.
    alerts.due(&rows, at(2 * MINUTE + 1)).expect("the alarm goes");
    assert_eq!(alerts.take_orders().own.len(), 1);
    assert_eq!(minute(&mut alerts, &rows, 3 * MINUTE + 2, &figures(0)).len(), 1);
}

#[test]
fn what_could_not_be_stored_fires_the_next_time() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(0)).expect("it is good");
    rows.refuses.set(true);
    assert_eq!(minute(&mut alerts, &rows, 1, &figures(3)), []);
    rows.refuses.set(false);
    assert_eq!(minute(&mut alerts, &rows, MINUTE + 1, &figures(3)).len(), 1);
}

#[test]
fn a_few_failures_are_no_part_of_anything() {
    let watched = Watched::Failures { workflow: None, above_percent: 10, at_least: 5, minutes: 10 };
    let figures =
        |failed, ended| within_ten(Totals { failed, completed: ended - failed, ..Totals::default() });
    assert_eq!(figures(4, 4).of(&watched), Some(0));
    assert_eq!(figures(5, 10).of(&watched), Some(50));
    assert_eq!(Figures::default().of(&watched), None);
    assert_eq!(Wanted::of([&watched].into_iter()).spans.len(), 1);
    let watched = Watched::Retries { workflow: None, above_percent: 100, at_least: 20, minutes: 10 };
    let figures = |retries, steps| within_ten(Totals { retries, steps, ..Totals::default() });
    assert_eq!(figures(19, 1).of(&watched), Some(0));
    assert_eq!(figures(30, 20).of(&watched), Some(150));
    assert_eq!(figures(30, 0).of(&watched), Some(3_000), "nothing is divided by nothing");
}

fn within_ten(totals: Totals) -> Figures {
    Figures { spans: [((None, 10), totals)].into_iter().collect(), ..Figures::default() }
}

#[test]
fn what_has_happened_is_summed_by_kind() {
    let (workflow, minutes) = (None, 10);
    let pauses = Watched::Pauses { workflow: workflow.clone(), above: 0, minutes };
    let broken = Watched::BrokenCalls { workflow: workflow.clone(), above: 10, minutes };
    let rows = Watched::Rows { workflow: workflow.clone(), above: 50, minutes };
    let late = Watched::Late { workflow, above_seconds: 15, minutes };
    let mut totals =
        Totals { paused: 9, diverged: 2, stopped: 1, deaths: 3, losses: 4, rows: 105, ..Totals::default() };
    let of = |totals: &Totals, watched| within_ten(totals.clone()).of(watched);
    assert_eq!((of(&totals, &pauses), of(&totals, &broken)), (Some(3), Some(7)));
    assert_eq!(of(&totals, &rows), Some(0), "nobody knows what a run takes where none has ended");
    (totals.completed, totals.cancelled) = (1, 1);
    assert_eq!(of(&totals, &rows), Some(52));
    assert_eq!(of(&totals, &late), Some(0));
    let is_wrong = |totals: &Totals| of(totals, &late) > Some(rule::bound(&late));
    for (ms, is) in [(15_000, false), (15_001, true), (100, true)] {
        totals.tick_late_ms.note(&LATE_BOUNDS_MS, ms);
        assert_eq!(is_wrong(&totals), is, "{ms}");
    }
    totals.timer_late_ms.note(&LATE_BOUNDS_MS, 4_000_000);
    assert_eq!(of(&totals, &late), Some(3_600));
    let unreached = Watched::Unreached { above: 0 };
    assert_eq!(Figures { unreached: Some(2), ..Figures::default() }.of(&unreached), Some(2));
    assert!(Wanted::of([&unreached].into_iter()).cells);
}

#[test]
fn a_namespace_without_rules_does_nothing() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    assert_eq!(alerts.due(&rows, at(0)).expect("the alarm goes"), None);
    alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(0)).expect("it is good");
    assert!(alerts.due(&rows, at(1)).expect("the alarm goes").is_some());
    alerts.delete(&rows, at(2), "letters").expect("it is there");
    assert_eq!(alerts.due(&rows, at(3)).expect("the alarm goes"), None);
    assert!(alerts.delete(&rows, at(4), "letters").is_err());
}

#[test]
fn a_rule_that_is_set_during_a_look_waits_for_its_end_without_a_storm_of_alarms() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    alerts.put(&rows, at(0), ("acme", "root"), "a", dead_letters(0)).expect("it is good");
    let next = alerts.due(&rows, at(1)).expect("the alarm goes");
    assert_eq!(next, Some(at(1 + CHECK_MS)), "one alarm a minute");
    alerts.put(&rows, at(2), ("acme", "root"), "b", dead_letters(0)).expect("it is good");
    let next = alerts.due(&rows, at(3)).expect("the alarm goes").expect("another one follows");
    assert!(next >= at(1 + ANSWER_MS), "{next:?}");
}

#[test]
fn a_firing_rule_that_is_changed_is_over_for_whom_it_has_told() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    alerts.put(&rows, at(0), ("acme", "root"), "letters", dead_letters(0)).expect("it is good");
    let fired = minute(&mut alerts, &rows, 1, &figures(3));
    alerts.told(&rows, at(2), &fired[0], true).expect("it is stored");
    // It waits longer the next time, and fires on.
    alerts.put(&rows, at(3), ("acme", "root"), "letters", dead_letters(5)).expect("it is good");
    assert_eq!(alerts.get(&rows, "letters").expect("it is there").state, AlertState::Firing);
    let other = AlertSpec { url: "https://b.example".into(), ..dead_letters(5) };
    alerts.put(&rows, at(4), ("acme", "root"), "letters", other).expect("it is good");
    let over = minute(&mut alerts, &rows, 5, &Figures::default());
    assert_eq!(over.iter().map(kind).collect::<Vec<_>>(), ["alert.resolved"]);
    assert_eq!(over[0].url, "https://a.example", "who was told that it fires");
}

#[test]
fn rules_are_bounded_and_checked() {
    let (rows, mut alerts) = (Memory::default(), Alerts::default());
    for number in 0..ALERTS_MAX {
        alerts
            .put(&rows, at(0), ("acme", "root"), &number.to_string(), dead_letters(0))
            .expect("there is room");
    }
    assert!(alerts.put(&rows, at(0), ("acme", "root"), "more", dead_letters(0)).is_err());
    let (_, is_new) = alerts.put(&rows, at(0), ("acme", "root"), "7", dead_letters(1)).expect("it is there");
    assert!(!is_new);
    let with = |watched| AlertSpec { watched, ..dead_letters(0) };
    for bad in [
        AlertSpec { url: String::new(), ..dead_letters(0) },
        AlertSpec { for_minutes: 1_441, ..dead_letters(0) },
        with(Watched::CellFill { above_percent: 100 }),
        with(Watched::Late { workflow: None, above_seconds: 14, minutes: 10 }),
        with(Watched::Pauses { workflow: Some(String::new()), above: 0, minutes: 10 }),
        with(Watched::Rows { workflow: None, above: 9, minutes: 0 }),
        with(Watched::Retries { workflow: None, above_percent: 200, at_least: 0, minutes: 10 }),
        with(Watched::Backlog { queue: "Mails/eu ".into(), above: 1 }),
        with(Watched::Failures {
            workflow: Some("w".repeat(200)),
            above_percent: 1,
            at_least: 1,
            minutes: 1,
        }),
        with(Watched::Failures { workflow: None, above_percent: 100, at_least: 1, minutes: 1 }),
        with(Watched::Failures { workflow: None, above_percent: 1, at_least: 0, minutes: 1 }),
        with(Watched::Failures { workflow: None, above_percent: 1, at_least: 1, minutes: 0 }),
    ] {
        assert!(check_alert(&bad).is_err(), "{bad:?}");
    }
}
