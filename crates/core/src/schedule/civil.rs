//! Dates and times of a wall clock: arithmetic without any zone.
//!
//! A wall clock's time is a number of seconds since it showed 1970-01-01 00:00:00. What it means elsewhere is a matter
//! of [`super::zone`].

use stepwell_protocol::Timestamp;

/// The seconds of a day.
pub const DAY_S: i64 = 86_400;

/// The time of a wall clock, in seconds since it showed the beginning of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil(pub i64);

impl Civil {
    /// A date at a second of its day.
    pub fn new(date: Date, second: u32) -> Self {
        Self(date.days() * DAY_S + i64::from(second))
    }

    /// Its date.
    pub fn date(self) -> Date {
        Date::of_days(self.0.div_euclid(DAY_S))
    }

    /// The second of its day.
    pub fn second(self) -> u32 {
        u32::try_from(self.0.rem_euclid(DAY_S)).unwrap_or_default()
    }

    /// The same clock after so many seconds.
    #[must_use]
    pub fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// The year.
    pub year: i64,
    /// The month, from 1.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
}

impl Date {
    /// A date, if the calendar has it.
    pub fn new(year: i64, month: u32, day: u32) -> Option<Self> {
        let is_there = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
        is_there.then_some(Self { year, month, day })
    }

    /// Reads a date such as 2026-12-01.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length)?;
            if part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse::<u32>().ok() } else { None }
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        if parts.next().is_some() { None } else { Self::new(i64::from(year), month, day) }
    }

    /// Days since 1970-01-01. Years begin in March here, so that the leap day is the last of its year.
    pub fn days(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month = i64::from((self.month + 9) % 12);
        let of_year = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    /// The date so many days after 1970-01-01.
    pub fn of_days(days: i64) -> Self {
        let days = days + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let small = |number: i64| u32::try_from(number).unwrap_or_default();
        let day = small(of_year - (153 * from_march + 2) / 5 + 1);
        let month = small(if from_march < 10 { from_march + 3 } else { from_march - 9 });
        Self { year: year + era * 400 + i64::from(month <= 2), month, day }
    }

    /// The day of the week, from 0 for Sunday.
    pub fn weekday(self) -> u32 {
        u32::try_from((self.days() + 4).rem_euclid(7)).unwrap_or_default()
    }
}

/// An instant as people read it, in UTC and to the second.
pub fn shown(at: Timestamp) -> String {
    let civil = Civil(i64::try_from(at.as_millis() / 1_000).unwrap_or(i64::MAX));
    let (Date { year, month, day }, second) = (civil.date(), civil.second());
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// How many days a month has.
pub fn days_of_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_hundred_years_follows_the_one_before() {
        let mut date = Date { year: 1900, month: 1, day: 1 };
        assert_eq!(date.weekday(), 1, "1900 began on a Monday");
        for days in date.days()..date.days() + 146_097 {
            assert_eq!((Date::of_days(days), date.days()), (date, days));
            let next = Date { day: date.day + 1, ..date };
            let first =
                Date { day: 1, month: date.month % 12 + 1, year: date.year + i64::from(date.month == 12) };
            date = if next.day > days_of_month(date.year, date.month) { first } else { next };
        }
        assert_eq!(date, Date { year: 2300, month: 1, day: 1 });
    }

    #[test]
    fn an_instant_is_shown_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_794_733_445_999, "2026-11-15T09:04:05Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(shown(Timestamp::from_millis(ms)), text);
        }
    }

    #[test]
    fn what_the_calendar_does_not_have_is_no_date() {
        for text in [
            "2026-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-1-01",
            "2026-01-32",
            "2026-01-01-",
            "",
            "+026-01-01",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(Date::parse("2028-02-29"), Some(Date { year: 2028, month: 2, day: 29 }));
    }
}
