//! Cron expressions: five fields, or six with seconds first, and the extras of Quartz (`L`, `W`, `#`, `?`).
//!
//! Owns: which times of a wall clock an expression means. It goes from month to month and from bit to bit, never from
//! second to second, so the next time of any expression is found in microseconds.

use super::{
    BadSpec,
    civil::{Civil, DAY_S, Date, days_of_month},
};

/// The longest expression.
pub const CRON_LENGTH_MAX: usize = 256;

/// How far ahead the next time is looked for: a Monday that is 29 February may be 40 years away.
const MONTHS_MAX: u32 = 12 * 50;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// What a day of the week is called, by its first three letters; from 0 for Sunday.
pub fn weekday(name: &str) -> Option<u32> {
    WEEKDAYS.iter().position(|day| *day == name).and_then(|day| u32::try_from(day).ok())
}

/// Times of a wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    /// Bits from 0 to 59, as for minutes; hours have bits from 0 to 23, months from 1 to 12.
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) months: u64,
    /// Days of the month; nothing, if any will do.
    pub(super) days: Option<Days>,
    /// Days of the week; nothing, if any will do.
    pub(super) weekdays: Option<Weekdays>,
    /// Whether it names seconds.
    has_seconds: bool,
}

/// Days of the month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    /// Bits from 1 to 31.
    pub(super) named: u64,
    /// So many days before the last: bits from 0 to 30.
    pub(super) before_last: u64,
    /// The weekdays nearest to these days.
    pub(super) nearest: u64,
    /// The last weekday.
    pub(super) last_weekday: bool,
}

/// Days of the week.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Weekdays {
    /// Bits from 0, for Sunday, to 6.
    pub(super) all: u64,
    /// The last one of the month.
    pub(super) last: u64,
    /// The first to the fifth of the month.
    pub(super) nth: [u64; 5],
}

/// A field, for reading it and for what is said about it.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Field = Field { name: "day of the month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field { name: "month", min: 1, max: 12, names: &MONTHS };
// Sunday is 0 and 7.
const WEEKDAY: Field = Field { name: "day of the week", min: 0, max: 7, names: &WEEKDAYS };

impl Cron {
    /// Every day at these hours and minutes.
    pub(super) fn daily(hours: u64, minute: u32, second: u32) -> Self {
        let (seconds, minutes) = (1 << second, 1 << minute);
        Self { seconds, minutes, hours, months: 0x1ffe, days: None, weekdays: None, has_seconds: true }
    }

    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, BadSpec> {
        if text.len() > CRON_LENGTH_MAX {
            return Err(BadSpec(format!("A cron expression has at most {CRON_LENGTH_MAX} characters.")));
        }
        let text = text.trim().to_ascii_lowercase();
        let text = match text.as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<_> = text.split_ascii_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields.as_slice() {
            [minute, hour, day, month, weekday] => (None, [*minute, *hour, *day, *month, *weekday]),
            [second, minute, hour, day, month, weekday] => {
                (Some(*second), [*minute, *hour, *day, *month, *weekday])
            }
            other => {
                let count = other.len();
                let detail = format!(
                    "'{text}' has {count} fields. A cron expression has five (minute, hour, day of the month, month, \
                     day of the week), or six with seconds first."
                );
                return Err(BadSpec(detail));
            }
        };
        let cron = Self {
            seconds: second.map_or(Ok(1), |second| SECOND.parse(second))?,
            minutes: MINUTE.parse(minute)?,
            hours: HOUR.parse(hour)?,
            months: MONTH.parse(month)?,
            days: if is_any(day) { None } else { Some(Days::parse(day)?) },
            weekdays: if is_any(weekday) { None } else { Some(Weekdays::parse(weekday)?) },
            has_seconds: second.is_some(),
        };
        if cron.first_from(Civil(0)).is_none() {
            return Err(BadSpec(format!("'{text}' never comes: no year has such a day.")));
        }
        Ok(cron)
    }

    /// Whether this time is one of its times; whatever the second, if it names none.
    pub fn includes(&self, civil: Civil) -> bool {
        let Date { year, month, day } = civil.date();
        let second = civil.second();
        has(self.months, month)
            && has(self.days_of(year, month), day)
            && has(self.hours, second / 3_600)
            && has(self.minutes, second / 60 % 60)
            && (!self.has_seconds || has(self.seconds, second % 60))
    }

    /// How many seconds, from a full minute, hour or day on, are all among its times if one of them is.
    pub fn span_s(&self) -> i64 {
        const ALL_60: u64 = (1 << 60) - 1;
        const ALL_24: u64 = (1 << 24) - 1;
        if self.has_seconds && self.seconds != ALL_60 {
            1
        } else if self.minutes != ALL_60 {
            60
        } else if self.hours != ALL_24 {
            3_600
        } else {
            DAY_S
        }
    }

    /// Its first time that is not before this one; nothing, if there is none within 50 years.
    pub fn first_from(&self, from: Civil) -> Option<Civil> {
        let start = from.date();
        let today = self.time_from(from.second());
        let (mut year, mut month) = (start.year, start.month);
        let mut first_day = if today.is_some() { start.day } else { start.day + 1 };
        for _ in 0..=MONTHS_MAX {
            if has(self.months, month)
                && let Some(day) = next_bit(self.days_of(year, month), first_day)
            {
                let date = Date { year, month, day };
                let time = if date == start { today } else { self.time_from(0) };
                return time.map(|second| Civil::new(date, second));
            }
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            first_day = 1;
        }
        None
    }

    /// The first time of a day that is not before this second of it.
    fn time_from(&self, second: u32) -> Option<u32> {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let (first_minute, first_second) = (next_bit(self.minutes, 0)?, next_bit(self.seconds, 0)?);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = next_bit(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + first_second);
            }
        }
        next_bit(self.hours, hour + 1).map(|hour| hour * 3_600 + first_minute * 60 + first_second)
    }

    /// Its days of a month, as bits. Either field will do if both name days.
    fn days_of(&self, year: i64, month: u32) -> u64 {
        let length = days_of_month(year, month);
        let first = Date { year, month, day: 1 }.weekday();
        let all = (1 << (length + 1)) - 2;
        all & match (&self.days, &self.weekdays) {
            (None, None) => all,
            (Some(days), None) => days.of_month(length, first),
            (None, Some(weekdays)) => weekdays.of_month(length, first),
            (Some(days), Some(weekdays)) => days.of_month(length, first) | weekdays.of_month(length, first),
        }
    }
}

impl Field {
    fn wrong(&self, text: &str) -> BadSpec {
        let Self { name, min, max, .. } = self;
        BadSpec(format!(
            "'{text}' is no {name} in a cron expression: write numbers from {min} to {max}, lists, ranges or steps."
        ))
    }

    fn parse(&self, text: &str) -> Result<u64, BadSpec> {
        let mut all = 0;
        for item in text.split(',') {
            all |= self.item(item)?;
        }
        Ok(all)
    }

    /// `*`, `5`, `1-5`, and each with `/2` behind it.
    fn item(&self, item: &str) -> Result<u64, BadSpec> {
        let wrong = || self.wrong(item);
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0).ok_or_else(wrong)?)),
            None => (item, None),
        };
        // Sunday would be twice in a week.
        let last = if self.max == 7 { 6 } else { self.max };
        let (from, to) = if is_any(range) {
            (self.min, last)
        } else if let Some((from, to)) = range.split_once('-') {
            (self.value(from).ok_or_else(wrong)?, self.value(to).ok_or_else(wrong)?)
        } else {
            let from = self.value(range).ok_or_else(wrong)?;
            (from, if step.is_some() { last.max(from) } else { from })
        };
        // A week goes on after Saturday; nothing else goes round.
        let to = if to < from && self.max == 7 { to + 7 } else { to };
        if to < from {
            return Err(wrong());
        }
        let step = usize::try_from(step.unwrap_or(1)).map_err(|_| wrong())?;
        Ok((from..=to).step_by(step).fold(0, |all, value| {
            let value = if self.max == 7 { value % 7 } else { value };
            all | 1 << value
        }))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| *name == text).and_then(|at| u32::try_from(at).ok());
        let named = named.map(|at| at + if self.max == 7 { 0 } else { self.min });
        named.or_else(|| number(text)).filter(|value| (self.min..=self.max).contains(value))
    }
}

impl Days {
    fn parse(text: &str) -> Result<Self, BadSpec> {
        let mut days = Self::default();
        for item in text.split(',') {
            if item == "l" {
                days.before_last |= 1;
            } else if item == "lw" || item == "wl" {
                days.last_weekday = true;
            } else if let Some(before) = item.strip_prefix("l-") {
                let before = number(before).filter(|before| *before <= 30).ok_or_else(|| DAY.wrong(item))?;
                days.before_last |= 1 << before;
            } else if let Some(day) = item.strip_suffix('w') {
                days.nearest |= 1 << DAY.value(day).ok_or_else(|| DAY.wrong(item))?;
            } else {
                days.named |= DAY.item(item)?;
            }
        }
        Ok(days)
    }

    /// Its days of a month of this length, whose first day is this day of the week.
    fn of_month(&self, length: u32, first: u32) -> u64 {
        let mut all = self.named;
        for before in bits(self.before_last).filter(|before| *before < length) {
            all |= 1 << (length - before);
        }
        for day in bits(self.nearest).filter(|day| *day <= length) {
            all |= 1 << nearest_weekday(day, length, first);
        }
        if self.last_weekday {
            all |= 1 << nearest_weekday(length, length, first);
        }
        all
    }
}

/// The day from Monday to Friday that is nearest to a day, in the same month.
fn nearest_weekday(day: u32, length: u32, first: u32) -> u32 {
    match (first + day - 1) % 7 {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == length => day - 2,
        0 => day + 1,
        _ => day,
    }
}

impl Weekdays {
    fn parse(text: &str) -> Result<Self, BadSpec> {
        let mut weekdays = Self::default();
        for item in text.split(',') {
            let wrong = || WEEKDAY.wrong(item);
            if let Some((day, nth)) = item.split_once('#') {
                let day = WEEKDAY.value(day).ok_or_else(wrong)? % 7;
                let nth = number(nth).and_then(|nth| usize::try_from(nth).ok()?.checked_sub(1));
                let nth = nth.and_then(|nth| weekdays.nth.get_mut(nth)).ok_or_else(wrong)?;
                *nth |= 1 << day;
            } else if item == "l" {
                // As in Quartz: the last day of the week.
                weekdays.all |= 1 << 6;
            } else if let Some(day) = item.strip_suffix('l') {
                weekdays.last |= 1 << (WEEKDAY.value(day).ok_or_else(wrong)? % 7);
            } else {
                weekdays.all |= WEEKDAY.item(item)?;
            }
        }
        Ok(weekdays)
    }

    fn of_month(&self, length: u32, first: u32) -> u64 {
        let is_in = |day: &u32| {
            let weekday = (first + day - 1) % 7;
            let nth = usize::try_from((day - 1) / 7).ok().and_then(|nth| self.nth.get(nth)).copied();
            has(self.all, weekday)
                || nth.is_some_and(|nth| has(nth, weekday))
                || (day + 7 > length && has(self.last, weekday))
        };
        (1..=length).filter(is_in).fold(0, |all, day| all | 1 << day)
    }
}

fn is_any(text: &str) -> bool {
    text == "*" || text == "?"
}

/// A number as it stands in a field: digits, and not many of them.
fn number(text: &str) -> Option<u32> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn has(set: u64, bit: u32) -> bool {
    bit < u64::BITS && set & (1 << bit) != 0
}

/// The first bit from this one on.
fn next_bit(set: u64, from: u32) -> Option<u32> {
    let left = set & u64::MAX.checked_shl(from).unwrap_or_default();
    (left != 0).then(|| left.trailing_zeros())
}

fn bits(set: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |bit| has(set, *bit))
}
