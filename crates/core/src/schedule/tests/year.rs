//! A year of ticks, minute by minute, through every change of the clocks: against a walk that looks at each minute of the
//! year and knows nothing of how ticks are found.

use jiff::{ToSpan as _, civil::DateTime, tz::TimeZone};
use stepwell_protocol::Timestamp;

use super::{Jiff, at, spec, text};
use crate::schedule::{Effort, Next, Plan};

type Fits = fn(DateTime) -> bool;

/// Expressions, and whether a minute is one of theirs.
const CASES: [(&str, Fits); 9] = [
    ("* 0-3 * * SUN", |shown| shown.hour() <= 3 && shown.weekday() == jiff::civil::Weekday::Sunday),
    ("*/15 * * * *", |shown| shown.minute() % 15 == 0),
    ("30 2 * * *", |shown| (shown.hour(), shown.minute()) == (2, 30)),
    ("0 * * * *", |shown| shown.minute() == 0),
    ("5,45 0-3 * * *", |shown| shown.hour() <= 3 && matches!(shown.minute(), 5 | 45)),
    ("15 1,2,3 * * SUN", |shown| {
        matches!(shown.hour(), 1..=3)
            && shown.minute() == 15
            && shown.weekday() == jiff::civil::Weekday::Sunday
    }),
    ("0 9 * * MON-FRI", |shown| {
        let day = shown.weekday().to_monday_zero_offset();
        (shown.hour(), shown.minute()) == (9, 0) && day < 5
    }),
    ("0 0 L * *", |shown| {
        (shown.hour(), shown.minute()) == (0, 0) && shown.day() == shown.date().days_in_month()
    }),
    ("45 23 * * FRI#2", |shown| {
        let is_second = (8..=14).contains(&shown.day());
        (shown.hour(), shown.minute()) == (23, 45)
            && is_second
            && shown.weekday() == jiff::civil::Weekday::Friday
    }),
];

/// Every minute of a year, and what the clock shows then.
fn year(zone: &TimeZone, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, DateTime)> {
    let mut at = from;
    let mut minutes = Vec::new();
    while at < to {
        let millis = i64::try_from(at.as_millis()).expect("small");
        minutes.push((at, zone.to_datetime(jiff::Timestamp::from_millisecond(millis).expect("a time"))));
        at = at.plus_millis(60_000);
    }
    minutes
}

/// The ticks of a year: each minute that the clock shows for the first time and that fits; and the end of each gap that
/// has swallowed one that fits.
fn walked(minutes: &[(Timestamp, DateTime)], fits: Fits) -> Vec<Timestamp> {
    let mut ticks = Vec::new();
    let mut latest = minutes[0].1;
    for (at, shown) in &minutes[1..] {
        if *shown <= latest {
            continue;
        }
        let mut skipped = latest.checked_add(1.minute()).expect("a minute later");
        let mut is_due = fits(*shown);
        while skipped < *shown {
            is_due |= fits(skipped);
            skipped = skipped.checked_add(1.minute()).expect("a minute later");
        }
        latest = *shown;
        if is_due {
            ticks.push(*at);
        }
    }
    ticks
}

fn a_year_of_ticks_in(name: &str, changes: usize) {
    ticks_in(name, at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"), changes);
}

fn ticks_in(name: &str, from: Timestamp, to: Timestamp, changes: usize) {
    let zones = Jiff::default();
    let zone = TimeZone::get(name).expect("a zone");
    let minutes = year(&zone, from, to);
    let seen =
        minutes.windows(2).filter(|pair| pair[0].1.checked_add(1.minute()).ok() != Some(pair[1].1)).count();
    assert!(seen >= changes, "the clocks of {name} change {seen} times");
    for (when, fits) in CASES {
        let plan = Plan::read(
            &stepwell_protocol::schedule::ScheduleSpec { zone: Some(name.into()), ..spec(when) },
            &zones,
        )
        .expect("it can be read");
        let expected = walked(&minutes, fits);
        let (mut after, mut found) = (from, Vec::new());
        while let Next::At(tick) =
            plan.next_after(&zones, &Effort::default(), after).expect("the zone is known")
            && tick < to
        {
            found.push(tick);
            after = tick;
        }
        let differ = expected.iter().zip(&found).find(|(expected, found)| expected != found);
        if let Some((expected, found)) = differ {
            panic!("{when} in {name}: {} instead of {}", text(*found), text(*expected));
        }
        assert_eq!(found.len(), expected.len(), "{when} in {name}");
    }
}

#[test]
#[ignore = "takes long without optimization: `just schedules-year` runs it"]
fn a_year_in_berlin() {
    a_year_of_ticks_in("Europe/Berlin", 2);
}

#[test]
#[ignore = "takes long without optimization: `just schedules-year` runs it"]
fn a_year_in_new_york() {
    a_year_of_ticks_in("America/New_York", 2);
}

#[test]
#[ignore = "takes long without optimization: `just schedules-year` runs it"]
fn a_year_on_lord_howe_where_clocks_change_by_half_an_hour() {
    a_year_of_ticks_in("Australia/Lord_Howe", 2);
}

#[test]
#[ignore = "takes long without optimization: `just schedules-year` runs it"]
fn a_year_in_casablanca_where_clocks_change_for_ramadan() {
    a_year_of_ticks_in("Africa/Casablanca", 2);
}

#[test]
#[ignore = "takes long without optimization: `just schedules-year` runs it"]
fn a_year_in_santiago_where_clocks_change_at_midnight() {
    a_year_of_ticks_in("America/Santiago", 2);
}

#[test]
#[ignore = "takes long without optimization: `just schedules-year` runs it"]
fn a_year_in_kathmandu_where_clocks_never_change() {
    a_year_of_ticks_in("Asia/Kathmandu", 0);
}

#[test]
fn the_days_on_which_clocks_change() {
    for (name, day) in [
        ("Europe/Berlin", "2026-03-29"),
        ("Europe/Berlin", "2026-10-25"),
        ("Australia/Lord_Howe", "2026-04-04"),
        ("Australia/Lord_Howe", "2026-10-03"),
        ("America/New_York", "2026-03-08"),
        ("America/New_York", "2026-11-01"),
    ] {
        let noon = at(&format!("{day}T12:00:00Z"));
        let from = Timestamp::from_millis(noon.as_millis() - 36 * 3_600_000);
        ticks_in(name, from, noon.plus_millis(36 * 3_600_000), 1);
    }
}
