//! When a schedule ticks, as people write it: a cron expression, a natural form such as `every weekday at 9:00`, or one
//! instant.
//!
//! Owns: reading it, and what is said about what cannot be read. When it ticks next is in [`super::next`].

use stepwell_protocol::{Timestamp, schedule::ScheduleSpec};

use super::{
    BadSpec,
    civil::{Civil, Date},
    cron::{Cron, Days, Weekdays, weekday},
    zone::{Clock, UTC, Zones},
};

/// The longest text that says when.
pub const WHEN_LENGTH_MAX: usize = 256;

/// The most exclusions of a schedule.
pub const EXCEPT_MAX: usize = 100;

/// The longest interval, and the longest jitter: a year.
pub const SPAN_MS_MAX: u64 = 366 * 86_400_000;

/// When a schedule ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) when: When,
    /// The zone whose clocks it goes by.
    pub(super) zone: String,
    pub(super) starts_at: Option<Timestamp>,
    pub(super) ends_at: Option<Timestamp>,
    pub(super) except: Vec<Except>,
}

/// What a schedule's ticks are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Whenever the clock shows one of these times.
    Clock(Box<Cron>),
    /// Whenever so much time has passed, whatever clocks show.
    Every { ms: u64 },
    /// Once.
    Once(Moment),
}

/// The one time of a schedule that ticks once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// An instant, the same for everybody.
    Instant(Timestamp),
    /// The first time that the clock shows this.
    Shown(Civil),
}

/// What is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Except {
    /// A whole day.
    Day(Date),
    /// Whenever the clock shows one of these times.
    Clock(Box<Cron>),
}

impl Plan {
    /// Reads when a schedule ticks.
    pub fn read(spec: &ScheduleSpec, zones: &dyn Zones) -> Result<Self, BadSpec> {
        let (when, said) = read_when(&spec.when)?;
        let zone = match (said, &spec.zone) {
            (Some(said), Some(zone)) if said != *zone => {
                let detail = format!("'{}' and `zone` name two zones: {said} and {zone}.", spec.when);
                return Err(BadSpec(detail));
            }
            (Some(said), _) => said,
            (None, Some(zone)) => zone.clone(),
            (None, None) => UTC.to_owned(),
        };
        Clock::new(zones, &zone).map_err(|error| BadSpec(error.to_string()))?;
        if spec.except.len() > EXCEPT_MAX {
            return Err(BadSpec(format!("A schedule has at most {EXCEPT_MAX} exclusions.")));
        }
        if spec.jitter_ms > SPAN_MS_MAX {
            return Err(BadSpec("The jitter is longer than a year.".into()));
        }
        if let (Some(start), Some(end)) = (spec.starts_at, spec.ends_at)
            && end < start
        {
            return Err(BadSpec("`ends_at` is before `starts_at`.".into()));
        }
        let except = spec.except.iter().map(|text| read_except(text)).collect::<Result<_, _>>()?;
        Ok(Self { when, zone, starts_at: spec.starts_at, ends_at: spec.ends_at, except })
    }
}

fn read_except(text: &str) -> Result<Except, BadSpec> {
    match Date::parse(text.trim()) {
        Some(date) => Ok(Except::Day(date)),
        None => Ok(Except::Clock(Box::new(Cron::parse(text)?))),
    }
}

/// What a text means, and the zone that it names.
fn read_when(text: &str) -> Result<(When, Option<String>), BadSpec> {
    if text.len() > WHEN_LENGTH_MAX {
        return Err(BadSpec(format!("`when` has at most {WHEN_LENGTH_MAX} characters.")));
    }
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let is_natural = ["every ", "at "].iter().any(|word| lower.starts_with(word));
    if !is_natural {
        return Ok((When::Clock(Box::new(Cron::parse(text)?)), None));
    }
    // Names of zones are as they are written; everything else is not.
    let (said, zone) = match lower.rfind(" in ") {
        Some(at) => {
            let zone = text.get(at + 4..).unwrap_or_default().trim();
            (lower.get(..at).unwrap_or_default(), Some(zone.to_owned()))
        }
        None => (lower.as_str(), None),
    };
    let when = match said.strip_prefix("at ") {
        Some(moment) => When::Once(read_moment(moment.trim()).ok_or_else(|| not_a_moment(text))?),
        None => read_every(said.strip_prefix("every ").unwrap_or_default(), text)?,
    };
    Ok((when, zone))
}

fn not_a_moment(text: &str) -> BadSpec {
    BadSpec(format!(
        "'{text}' is no time. Write `at 2026-12-01T09:00:00Z`, or `at 2026-12-01 09:00 in Europe/Berlin`."
    ))
}

fn unclear(text: &str) -> BadSpec {
    BadSpec(format!(
        "'{text}' cannot be read. Write `every 5 minutes`, `every weekday at 9:00 in Europe/Berlin`, \
         `every monday and thursday at 18:30`, `at 2026-12-01T09:00:00Z`, or a cron expression."
    ))
}

/// What stands behind `every`: an interval, or days and a time.
fn read_every(rest: &str, text: &str) -> Result<When, BadSpec> {
    let (what, time) = match rest.split_once(" at ") {
        Some((what, time)) => (what.trim(), Some(time)),
        None => (rest.trim(), None),
    };
    if time.is_none()
        && let Some(ms) = interval_ms(what)
    {
        return if (1_000..=SPAN_MS_MAX).contains(&ms) {
            Ok(When::Every { ms })
        } else {
            Err(BadSpec(format!("'{text}': an interval is between a second and a year.")))
        };
    }
    let (hours, minute, second) = read_times(time.unwrap_or("0:00"), text)?;
    let mut cron = Cron::daily(hours, minute, second);
    match what {
        "day" => {}
        "month" => cron.days = Some(Days { named: 1 << 1, ..Days::default() }),
        _ => {
            let mut all = 0;
            for day in words(what) {
                all |= days_named(day).ok_or_else(|| unclear(text))?;
            }
            if all == 0 {
                return Err(unclear(text));
            }
            cron.weekdays = Some(Weekdays { all, ..Weekdays::default() });
        }
    }
    Ok(When::Clock(Box::new(cron)))
}

/// The items of a list such as `monday, tuesday and friday`.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and")
}

fn days_named(word: &str) -> Option<u64> {
    if matches!(word, "weekday" | "weekdays") {
        return Some(0b011_1110);
    }
    if matches!(word, "weekend" | "weekends") {
        return Some(0b100_0001);
    }
    let short = word.get(..3)?;
    let full = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    let is_name = word == short || full.iter().any(|day| word.strip_suffix('s').unwrap_or(word) == *day);
    if is_name { weekday(short).map(|day| 1 << day) } else { None }
}

/// `5 minutes`, `minute`, `90s`.
fn interval_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim();
    let unit_ms = match unit {
        "second" | "seconds" | "sec" | "s" => 1_000,
        "minute" | "minutes" | "min" | "m" => 60_000,
        "hour" | "hours" | "h" => 3_600_000,
        // One day is a matter of the calendar.
        "day" | "days" | "d" if !count.is_empty() => 86_400_000,
        "week" | "weeks" | "w" if !count.is_empty() => 7 * 86_400_000,
        _ => return None,
    };
    let count = if count.is_empty() { 1 } else { count.parse().ok()? };
    u64::checked_mul(count, unit_ms)
}

/// Hours, and the minute and second that they share.
fn read_times(list: &str, text: &str) -> Result<(u64, u32, u32), BadSpec> {
    let (mut hours, mut rest) = (0, None);
    for word in words(list) {
        let (hour, minute, second) = read_time(word).ok_or_else(|| unclear(text))?;
        hours |= 1 << hour;
        if *rest.get_or_insert((minute, second)) != (minute, second) {
            let detail = format!(
                "'{text}' names times with different minutes. Make a schedule for each, or write a cron expression."
            );
            return Err(BadSpec(detail));
        }
    }
    let (minute, second) = rest.ok_or_else(|| unclear(text))?;
    Ok((hours, minute, second))
}

/// `9:00`, `09:00:30`, `9am`, `6:30pm`, `noon`, `midnight`.
fn read_time(word: &str) -> Option<(u32, u32, u32)> {
    if word == "noon" || word == "midnight" {
        return Some((if word == "noon" { 12 } else { 0 }, 0, 0));
    }
    let (word, half) = match (word.strip_suffix("am"), word.strip_suffix("pm")) {
        (Some(word), _) => (word, Some(0)),
        (_, Some(word)) => (word, Some(12)),
        (None, None) => (word, None),
    };
    let mut parts = word.split(':');
    let mut part = |max: u32| {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { part.parse::<u32>().ok().filter(|number| *number <= max) } else { None }
    };
    let hour = part(23)?;
    let has_minutes = word.contains(':');
    // '9' alone may be anything.
    if half.is_none() && !has_minutes {
        return None;
    }
    let minute = if has_minutes { part(59)? } else { 0 };
    let second = if word.matches(':').count() == 2 { part(59)? } else { 0 };
    let hour = match half {
        None => hour,
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
    };
    parts.next().is_none().then_some((hour, minute, second))
}

/// `2026-12-01t09:00:00z`, `2026-12-01t09:00+01:00`, `2026-12-01 09:00`.
pub(super) fn read_moment(text: &str) -> Option<Moment> {
    let date = Date::parse(text.get(..10)?)?;
    let rest = text.get(10..)?.strip_prefix(['t', ' '])?;
    let (time, offset_s) = if let Some(time) = rest.strip_suffix('z') {
        (time, Some(0))
    } else if let Some(at) = rest.rfind(['+', '-']) {
        let (time, offset) = rest.split_at(at);
        let (hours, minutes) = offset.get(1..)?.split_once(':')?;
        let is_two = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_two(hours) || !is_two(minutes) {
            return None;
        }
        let seconds = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
        (time, Some(if offset.starts_with('-') { -seconds } else { seconds }))
    } else {
        (rest, None)
    };
    // Fractions of a second are of no use to anybody here.
    let (hour, minute, second) = read_time(time.split_once('.').map_or(time, |(time, _)| time))?;
    let civil = Civil::new(date, hour * 3_600 + minute * 60 + second);
    Some(match offset_s {
        None => Moment::Shown(civil),
        Some(offset_s) => {
            let at_s = u64::try_from(civil.0 - offset_s).ok()?;
            Moment::Instant(Timestamp::from_millis(at_s.saturating_mul(1_000)))
        }
    })
}
