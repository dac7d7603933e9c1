//! When a schedule ticks, as people write it.

use stepwell_protocol::schedule::ScheduleSpec;

use super::{Jiff, at, spec, ticks};
use crate::schedule::{Effort, Next, PASSED_MAX, Plan};

#[test]
fn natural_forms_mean_what_they_say() {
    let after = "2026-11-13T12:00:00Z"; // a Friday
    for (when, first) in [
        ("every 5 minutes", ["2026-11-13T12:05:00Z", "2026-11-13T12:10:00Z"]),
        ("every minute", ["2026-11-13T12:01:00Z", "2026-11-13T12:02:00Z"]),
        ("every 90s", ["2026-11-13T12:01:30Z", "2026-11-13T12:03:00Z"]),
        ("Every 2 Hours", ["2026-11-13T14:00:00Z", "2026-11-13T16:00:00Z"]),
        ("every day", ["2026-11-14T00:00:00Z", "2026-11-15T00:00:00Z"]),
        ("every day at 9:00 and 17:00", ["2026-11-13T17:00:00Z", "2026-11-14T09:00:00Z"]),
        ("every weekday at 9:00 in Europe/Berlin", ["2026-11-16T08:00:00Z", "2026-11-17T08:00:00Z"]),
        ("every monday, wednesday and fri at 6:30pm", ["2026-11-13T18:30:00Z", "2026-11-16T18:30:00Z"]),
        ("every weekend at noon", ["2026-11-14T12:00:00Z", "2026-11-15T12:00:00Z"]),
        ("every month at 12am", ["2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"]),
        ("every day at 9:00:30", ["2026-11-14T09:00:30Z", "2026-11-15T09:00:30Z"]),
    ] {
        assert_eq!(ticks(&spec(when), after, 2), first, "{when}");
    }
}

#[test]
fn a_schedule_that_ticks_once_does_so_once() {
    for (when, once) in [
        ("at 2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
        ("at 2026-12-01T09:00:00.123Z", "2026-12-01T09:00:00Z"),
        ("at 2026-12-01T09:00+01:00", "2026-12-01T08:00:00Z"),
        ("at 2026-12-01 09:00 in Europe/Berlin", "2026-12-01T08:00:00Z"),
        // The clock skips this time, and shows that one twice.
        ("at 2027-03-28 02:30 in Europe/Berlin", "2027-03-28T01:00:00Z"),
        ("at 2027-10-31 02:30 in Europe/Berlin", "2027-10-31T00:30:00Z"),
    ] {
        assert_eq!(ticks(&spec(when), "2026-11-13T12:00:00Z", 3), [once], "{when}");
        assert_eq!(ticks(&spec(when), once, 3), [""; 0], "{when}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_and_says_why() {
    let zones = Jiff::default();
    for (when, why) in [
        ("every", "1 fields"),
        ("every now and then", "cannot be read"),
        ("every week", "cannot be read"),
        ("every monday at 9", "cannot be read"),
        ("every day at 9:00 and 17:30", "different minutes"),
        ("every day at 25:00", "cannot be read"),
        ("every day at 13pm", "cannot be read"),
        ("every 0 minutes", "between a second and a year"),
        ("every 99999999999999999999 minutes", "cannot be read"),
        ("every 400 days", "between a second and a year"),
        ("every day at 9:00 in Mars/Olympus", "no time zone 'Mars/Olympus'"),
        ("every day at 9:00 in +02:00", "no time zone '+02:00'"),
        ("at tomorrow", "is no time"),
        ("at 2026-02-30T00:00:00Z", "is no time"),
        ("at 2026-12-01T09:00:00+1:00", "is no time"),
        ("at 2026-12-01T9", "is no time"),
    ] {
        let error = Plan::read(&spec(when), &zones).expect_err(when).to_string();
        assert!(error.contains(why), "{when}: {error}");
    }
    let two = ScheduleSpec { zone: Some("UTC".into()), ..spec("every day at 9:00 in Europe/Berlin") };
    assert!(Plan::read(&two, &zones).expect_err("two zones").to_string().contains("two zones"));
    let long = ScheduleSpec { zone: Some("A".repeat(10_000)), ..spec("every day") };
    assert!(Plan::read(&long, &zones).expect_err("no zone").to_string().len() < 300);
}

#[test]
fn intervals_go_by_elapsed_time_whatever_clocks_show() {
    let hourly = ScheduleSpec { zone: Some("Europe/Berlin".into()), ..spec("every hour") };
    let found = ticks(&hourly, "2026-10-24T23:30:00Z", 3);
    assert_eq!(found, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]);
    // By the clock, the hour that is shown twice counts once.
    let by_clock = ScheduleSpec { zone: Some("Europe/Berlin".into()), ..spec("0 * * * *") };
    let found = ticks(&by_clock, "2026-10-24T23:30:00Z", 3);
    assert_eq!(found, ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"]);
}

#[test]
fn intervals_count_from_the_start_if_there_is_one() {
    let from = ScheduleSpec { starts_at: Some(at("2026-11-13T12:01:30Z")), ..spec("every 10 minutes") };
    let found = ticks(&from, "2026-11-01T00:00:00Z", 2);
    assert_eq!(found, ["2026-11-13T12:01:30Z", "2026-11-13T12:11:30Z"]);
}

#[test]
fn a_day_that_a_zone_skips_is_made_up_for_at_its_end() {
    // Samoa went from 29 to 31 December.
    let daily = ScheduleSpec { zone: Some("Pacific/Apia".into()), ..spec("0 12 * * *") };
    let found = ticks(&daily, "2011-12-29T00:00:00Z", 4);
    let expected =
        ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"];
    assert_eq!(found, expected);
}

#[test]
fn nothing_ticks_before_the_start_or_after_the_end() {
    let bounded = ScheduleSpec {
        starts_at: Some(at("2026-11-13T09:00:00Z")),
        ends_at: Some(at("2026-11-15T09:00:00Z")),
        ..spec("0 9 * * *")
    };
    let found = ticks(&bounded, "2026-01-01T00:00:00Z", 9);
    assert_eq!(found, ["2026-11-13T09:00:00Z", "2026-11-14T09:00:00Z", "2026-11-15T09:00:00Z"]);
}

#[test]
fn exclusions_are_days_of_the_zone_or_times_of_its_clock() {
    let except = ["2026-12-25".to_owned(), "* 12 * * *".to_owned()];
    let zone = Some("America/New_York".to_owned());
    let hourly = ScheduleSpec { except: except.into(), zone, ..spec("0 11-13 * * *") };
    let found = ticks(&hourly, "2026-12-24T15:00:00Z", 4);
    let expected =
        ["2026-12-24T16:00:00Z", "2026-12-24T18:00:00Z", "2026-12-26T16:00:00Z", "2026-12-26T18:00:00Z"];
    assert_eq!(found, expected);
}

#[test]
fn a_search_through_what_is_left_out_ends_and_goes_on_later() {
    let zones = Jiff::default();
    let except = vec!["0-29 * * * * MON-SAT".to_owned(), "30-59 * * * * MON-SAT".to_owned()];
    let plan = Plan::read(&ScheduleSpec { except, ..spec("every second") }, &zones).expect("it can be read");
    let monday = at("2026-11-16T00:00:00Z");
    let found = plan.next_after(&zones, &Effort::default(), monday).expect("UTC is known");
    assert_eq!(found, Next::NotUpTo(monday.plus_millis(u64::from(PASSED_MAX) * 1_000)));
}

#[test]
fn whole_minutes_hours_and_days_that_are_left_out_are_passed_over_at_once() {
    let zones = Jiff::default();
    let after = at("2026-11-16T00:00:00Z");
    for (except, first) in [
        ("* 0-4 * * * *", "2026-11-16T00:05:00Z"),
        ("* * 0-8 * * *", "2026-11-16T09:00:00Z"),
        ("* 0-8 * * *", "2026-11-16T09:00:00Z"),
        ("* * * * MON-SAT", "2026-11-22T00:00:00Z"),
        ("* * * 1-12/2 *", "2026-12-01T00:00:00Z"),
    ] {
        let every = ScheduleSpec { except: vec![except.into()], ..spec("* * * * * *") };
        let plan = Plan::read(&every, &zones).expect("it can be read");
        let found = plan.next_after(&zones, &Effort::default(), after).expect("UTC is known");
        assert_eq!(found, Next::At(at(first)), "{except}");
    }
    // The hour from two to three comes twice: an interval ticks in both, and neither counts if that hour is left out.
    let zone = Some("Europe/Berlin".to_owned());
    let often = ScheduleSpec { except: vec!["* 2 * * *".into()], zone, ..spec("every 30 minutes") };
    let expected = ["2026-10-24T23:30:00Z", "2026-10-25T02:00:00Z"];
    assert_eq!(ticks(&often, "2026-10-24T23:15:00Z", 2), expected);
    // The second quarter past one is no part of the hour that is left out.
    let zone = Some("Australia/Lord_Howe".to_owned());
    let often = ScheduleSpec { except: vec!["* 2 * * *".into()], zone, ..spec("every 15 minutes") };
    let expected = ["2026-04-04T14:45:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:15:00Z"];
    assert_eq!(ticks(&often, "2026-04-04T14:40:00Z", 4)[..3], expected);
}
