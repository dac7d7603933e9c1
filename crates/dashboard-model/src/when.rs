//! Times as people read them: an instant in a zone, how long ago, how long.

use stepwell_protocol::Timestamp;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// An instant as a date and a time of day, in a zone that is so many minutes before UTC (as browsers count them: an
/// hour east of Greenwich is -60).
pub fn absolute(at: Timestamp, minutes_behind: i32) -> String {
    let ms = i128::from(at.as_millis()) - i128::from(minutes_behind) * i128::from(MINUTE);
    let ms = u64::try_from(ms).unwrap_or(0);
    let (year, month, day) = civil(ms / DAY);
    let (hour, minute, second) = (ms % DAY / HOUR, ms % HOUR / MINUTE, ms % MINUTE / SECOND);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}", ms % SECOND)
}

/// How long ago, or in how long.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.as_millis(), now.as_millis());
    let distance = at.abs_diff(now);
    if distance < 5 * SECOND && at <= now {
        return "just now".into();
    }
    let (unit, name) = match distance {
        0..MINUTE => (SECOND, "s"),
        MINUTE..HOUR => (MINUTE, "min"),
        HOUR..DAY => (HOUR, "h"),
        DAY.. => (DAY, "d"),
    };
    let count = (distance / unit).max(1);
    if at > now { format!("in {count} {name}") } else { format!("{count} {name} ago") }
}

/// A length of time, with about three digits.
pub fn length(ms: u64) -> String {
    match ms {
        0..SECOND => format!("{ms} ms"),
        SECOND..10_000 => format!("{}.{:02} s", ms / SECOND, ms % SECOND / 10),
        10_000..MINUTE => format!("{}.{} s", ms / SECOND, ms % SECOND / 100),
        MINUTE..HOUR => format!("{} m {:02} s", ms / MINUTE, ms % MINUTE / SECOND),
        HOUR..DAY => format!("{} h {:02} m", ms / HOUR, ms % HOUR / MINUTE),
        DAY.. => format!("{} d {:02} h", ms / DAY, ms % DAY / HOUR),
    }
}

/// How long something took from one instant to another.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    length(to.as_millis().saturating_sub(from.as_millis()))
}

/// The instant of a text such as `2026-12-01`, `2026-12-01T09:00` or `2026-12-01T09:00:00Z`, all in UTC.
pub fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.strip_suffix('Z').unwrap_or(text).split_once('T') {
        Some((date, time)) => (date, time),
        None if !text.ends_with('Z') => (text, "00:00"),
        None => return None,
    };
    let numbers = |text: &str, between: char| -> Option<Vec<u64>> {
        let is_number =
            |part: &str| (2..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        text.split(between).map(|part| is_number(part).then(|| part.parse().ok()).flatten()).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let &[year, month, day] = date.as_slice() else { return None };
    let (hour, minute, second) = match *time.as_slice() {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    let days = days(year, month, day).filter(|_| is_time)?;
    Some(Timestamp::from_millis(days * DAY + hour * HOUR + minute * MINUTE + second * SECOND))
}

/// The date of a day since 1970, by the calendar of eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The day since 1970 of a date that exists.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn an_instant_is_shown_in_the_zone_of_its_reader() {
        let instant = at(1_794_000_000_123);
        assert_eq!(absolute(instant, 0), "2026-11-06 21:20:00.123");
        // Kathmandu is 5 h 45 min ahead, New York five hours behind.
        assert_eq!(absolute(instant, -345), "2026-11-07 03:05:00.123");
        assert_eq!(absolute(instant, 300), "2026-11-06 16:20:00.123");
        assert_eq!(absolute(at(0), 300), "1970-01-01 00:00:00.000");
        assert_eq!(absolute(Timestamp::MAX, 0), "9999-12-31 23:59:59.999");
    }

    #[test]
    fn distances_have_one_unit_and_lengths_three_digits() {
        let now = at(1_000_000_000);
        for (ms, said) in [
            (1_000_000_000, "just now"),
            (999_990_000, "10 s ago"),
            (999_000_000, "16 min ago"),
            (1_000_010_000, "in 10 s"),
            (1_000_000_500, "in 1 s"),
            (800_000_000, "2 d ago"),
        ] {
            assert_eq!(relative(at(ms), now), said);
        }
        for (ms, said) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_240, "1.24 s"),
            (59_990, "59.9 s"),
            (61_000, "1 m 01 s"),
            (3_660_000, "1 h 01 m"),
            (90_000_000, "1 d 01 h"),
        ] {
            assert_eq!(length(ms), said);
        }
    }

    #[test]
    fn what_is_read_is_what_was_shown() {
        for day in (0..2_900_000_u64).step_by(97) {
            let instant = at(day * DAY + 34_215_000);
            let text = absolute(instant, 0);
            let text = text.split('.').next().expect("a part").replace(' ', "T");
            assert_eq!(parse(&text), Some(instant), "{text}");
        }
        for text in
            ["", "2026", "2026-13-01", "2026-02-30", "2026-01-01T24:00", "2026-01-01Z", "2026-1-1", "x"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("2026-11-06"), parse("2026-11-06T00:00:00Z"));
    }
}
