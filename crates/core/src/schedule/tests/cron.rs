//! Cron expressions, against another implementation of the same.

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds};
use proptest::prelude::*;

use crate::schedule::{
    civil::{Civil, Date},
    cron::Cron,
};

/// The next times of an expression, as this crate finds them and as croner does.
fn both(text: &str, from_s: i64, count: usize) -> (Vec<i64>, Vec<i64>) {
    let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let parser = CronParser::builder().seconds(Seconds::Optional).build();
    let other = parser.parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut from = Civil(from_s);
    let mut then: DateTime<Utc> = DateTime::from_timestamp(from_s, 0).expect("a time");
    for _ in 0..count {
        let found = cron.first_from(from.plus(1)).expect("it comes");
        ours.push(found.0);
        from = found;
        then = other.find_next_occurrence(&then, false).expect("it comes");
        theirs.push(then.timestamp());
    }
    (ours, theirs)
}

#[test]
fn the_extras_mean_what_they_mean_elsewhere() {
    for text in [
        "0 0 L * *",
        "0 12 L 2 *",
        "0 0 15W * *",
        "0 0 1W * *",
        "30 6 31W * *",
        "0 0 * * FRI#1",
        "0 0 * * MON#5",
        "0 0 * * 5L",
        "0 0 * * SUNL",
        "0 0 13 * FRI",
        "*/7 */5 * * *",
        "5-59/10 8-18 * * MON-FRI",
        "0 0 29 2 *",
        "0 0 1 JAN,JUL *",
        "10 5/6 * * *",
        "*/20 * * * * *",
        "15,45 59 23 * * SAT",
        "0 0 0 1 1 *",
        "0 0 ? * 7",
        "@hourly",
        "@weekly",
    ] {
        for from_s in [0, 951_782_399, 1_700_000_001, 1_772_323_199, 4_102_444_799] {
            let (ours, theirs) = both(text, from_s, 12);
            assert_eq!(ours, theirs, "{text} from {from_s}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_an_expression_is_its_times_are_those_of_another_reader(
        second in field(0, 59),
        minute in field(0, 59),
        hour in field(0, 23),
        day in field(1, 28),
        month in field(1, 12),
        weekday in field(0, 6),
        from_s in 0..4_000_000_000_i64,
    ) {
        let text = format!("{second} {minute} {hour} {day} {month} {weekday}");
        let (ours, theirs) = both(&text, from_s, 5);
        prop_assert_eq!(ours, theirs, "{}", text);
    }

    #[test]
    fn no_text_is_too_strange_to_be_refused(text in "[0-9a-zL#W*?/, -]{0,40}") {
        let _ = Cron::parse(&text);
    }
}

/// A field: any, a number, a range, a range with a step, a list.
fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    let one = min..=max;
    prop_oneof![
        2 => Just("*".to_owned()),
        1 => one.clone().prop_map(|one| one.to_string()),
        1 => (one.clone(), one.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (one.clone(), one.clone(), 1..5_u32).prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
        1 => (one.clone(), one).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

#[test]
fn what_is_no_expression_is_refused_and_says_why() {
    for (text, why) in [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("60 * * * *", "'60' is no minute"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * 32 * *", "'32' is no day of the month"),
        ("* * * 13 *", "'13' is no month"),
        ("* * * * 8", "'8' is no day of the week"),
        ("* * * * MON#6", "'mon#6' is no day of the week"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("5-1 * * * *", "'5-1' is no minute"),
        ("-5 * * * *", "'-5' is no minute"),
        ("1e1 * * * *", "'1e1' is no minute"),
        ("99999999999 * * * *", "is no minute"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("0 0 L-31 * *", "'l-31' is no day of the month"),
    ] {
        let error = Cron::parse(text).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn the_last_weekday_of_a_month_is_never_on_a_weekend() {
    let cron = Cron::parse("0 0 LW * *").expect("it can be read");
    let mut from = Civil::new(Date { year: 2026, month: 1, day: 1 }, 0);
    for day in [30, 27, 31, 30, 29, 30, 31, 31, 30, 30, 30, 31] {
        from = cron.first_from(from.plus(1)).expect("it comes");
        assert_eq!(from.date().day, day, "{:?}", from.date());
    }
}

#[test]
fn a_week_goes_on_after_saturday() {
    assert_eq!(Cron::parse("0 0 * * FRI-MON"), Cron::parse("0 0 * * 0,1,5,6"));
    assert_eq!(Cron::parse("0 0 * * 5-7"), Cron::parse("0 0 * * FRI,SAT,SUN"));
}
