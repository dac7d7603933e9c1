//! Times, lengths of time, statuses and people's data, in words for a terminal.

use anstyle::{AnsiColor, Style};
use jiff::{SpanRelativeTo, Timestamp as Instant, Unit};
use stepwell_protocol::{Life, Payload, Timestamp, rest::Status, text::is_hidden};

/// Text that others wrote, without what a terminal would take for a command.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Who has done something, to be said after it; nothing, if it was nobody in particular.
pub fn by(who: Option<&str>) -> String {
    who.map(|who| format!(", by {}", plain(who))).unwrap_or_default()
}

/// A JSON value on one line, cut where the line would get too long.
pub fn short(payload: &Payload, characters_max: usize) -> String {
    cut(&plain(payload.text()), characters_max)
}

/// A text without keys and tokens that it may hold: only the ids are left, by which they are known.
pub fn without_keys(text: &str) -> String {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("sw_") {
        let (before, key) = rest.split_at(at);
        let (key, after) = key.split_at(key.find(|c| !is_of_key(c)).unwrap_or(key.len()));
        kept.push_str(before);
        // An id is eight characters long, and what comes after it is secret.
        let secret = key.rfind('_').map_or(0, |last| last + 1) + 8;
        match key.get(..secret).filter(|_| key.matches('_').count() >= 3 && key.len() > secret) {
            Some(public) => {
                kept.push_str(public);
                kept.push('…');
            }
            None => kept.push_str(key),
        }
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// At most so many characters.
pub fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// So many of something.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// What people type to run this program: npx leaves it out of the PATH.
pub fn own_name() -> &'static str {
    let is_npx = std::env::var_os("npm_lifecycle_event").is_some_and(|event| event == "npx");
    if is_npx { "npx stepwell" } else { "stepwell" }
}

/// How long something took.
pub fn length(ms: u64) -> String {
    let (seconds, minutes, hours, days) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{seconds}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{minutes} m {} s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours} h {} m", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// From one time to another; nothing if they are the other way round.
pub fn between(from: Timestamp, to: Timestamp) -> u64 {
    to.as_millis().saturating_sub(from.as_millis())
}

/// What the clock of this machine says.
pub fn now() -> Timestamp {
    Timestamp::from_millis(Instant::now().as_millisecond().try_into().unwrap_or_default())
}

/// A date and a time of day, in UTC.
pub fn date(at: Timestamp) -> String {
    let at = Instant::from_millisecond(at.as_millis().try_into().unwrap_or(i64::MAX));
    at.map_or_else(|_| "far away".into(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// The same with milliseconds, for what happens in quick succession.
pub fn moment(at: Timestamp) -> String {
    let at = Instant::from_millisecond(at.as_millis().try_into().unwrap_or(i64::MAX));
    at.map_or_else(|_| "far away".into(), |at| at.strftime("%Y-%m-%d %H:%M:%S.%3f UTC").to_string())
}

/// How long ago, or how far ahead.
pub fn distance(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", length(between(now, at)))
    } else {
        format!("{} ago", length(between(at, now)))
    }
}

/// Which life a run is in, and since when.
pub fn life(life: &Life, now: Timestamp) -> String {
    format!("{}, began {}, {}", life.number, date(life.began_at), distance(life.began_at, now))
}

/// A point in time that a person gave: `2026-11-15`, `2026-11-15T08:00:00Z`, milliseconds since 1970, or how long ago,
/// such as `90m` or `2d`.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(ms) = text.parse::<u64>() {
        return Ok(Timestamp::from_millis(ms));
    }
    let at = if let Ok(at) = text.parse::<Instant>() {
        at.as_millisecond()
    } else if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let at = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| error.to_string())?;
        at.timestamp().as_millisecond()
    } else {
        let ago = parse_length(text).map_err(|_| {
            "expected a time such as 2026-11-15T08:00:00Z or 2026-11-15, or how long ago, such as 90m or 2d"
        })?;
        i64::try_from(between(Timestamp::from_millis(ago), now())).unwrap_or_default()
    };
    u64::try_from(at).map(Timestamp::from_millis).map_err(|_| "expected a time after 1970".into())
}

/// A point in time to come that a person gave: as above, but a length is how far ahead.
pub fn parse_end(text: &str) -> Result<Timestamp, String> {
    let end = match parse_length(text) {
        Ok(ahead) => Timestamp::from_millis(now().as_millis().saturating_add(ahead)),
        Err(_) => parse_time(text).map_err(|_| {
            "expected a time such as 2026-11-15T08:00:00Z or 2026-11-15, or how long from now, such as 12h or 30d"
        })?,
    };
    if end > now() { Ok(end) } else { Err("that is in the past".into()) }
}

/// A length of time that a person gave, in milliseconds.
pub fn parse_length(text: &str) -> Result<u64, String> {
    let wrong = || "expected a length of time, such as 30s, 5m or 2h".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let total = span.total((Unit::Millisecond, SpanRelativeTo::days_are_24_hours())).map_err(|_| wrong())?;
    if total < 0.0 {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and whole")]
    Ok(total as u64)
}

/// The colour of a status.
pub fn status_style(status: Status) -> Style {
    match status {
        Status::Completed => AnsiColor::Green.on_default(),
        Status::Failed => AnsiColor::Red.on_default(),
        Status::Cancelled => Style::new().dimmed(),
        Status::Paused => AnsiColor::Yellow.on_default(),
        Status::Pending | Status::Running => AnsiColor::Cyan.on_default(),
        Status::Sleeping | Status::Waiting => AnsiColor::Blue.on_default(),
    }
}

/// A status in its colour.
pub fn status(status: Status) -> String {
    let style = status_style(status);
    format!("{style}{}{style:#}", status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_two_units_at_the_most() {
        let lengths = [0, 999, 1_000, 10_070, 59_999, 61_000, 3_723_000, 90_000_000];
        let words = lengths.map(length);
        assert_eq!(words, ["0 ms", "999 ms", "1.0 s", "10.0 s", "59.9 s", "1 m 1 s", "1 h 2 m", "1 d 1 h"]);
    }

    #[test]
    fn what_others_wrote_cannot_command_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\u{9b}c\n"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn of_a_key_only_the_id_is_left() {
        let key = "sw_live_acme_00jmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12";
        let text = format!("'{key}', twice: {key}");
        assert_eq!(without_keys(&text), "'sw_live_acme_00jmmvwm…', twice: sw_live_acme_00jmmvwm…");
        let cut = &key[..40];
        assert_eq!(without_keys(cut), "sw_live_acme_00jmmvwm…", "a part of one is as secret");
        for plain in ["sw_live_acme_00jmmvwm", "sw_live_<namespace>_<47 characters>", "sw_", "cows_milk"] {
            assert_eq!(without_keys(plain), plain);
        }
    }

    #[test]
    fn an_end_lies_ahead() {
        let before = now();
        let day = between(before, parse_end("1d").expect("a day from now"));
        assert!((86_400_000..86_460_000).contains(&day), "{day}");
        assert!(parse_end("2001-01-01").is_err() && parse_end("soon").is_err());
    }

    #[test]
    fn times_are_read_in_several_forms() {
        let day = parse_time("2026-11-15").expect("a date");
        assert_eq!(date(day), "2026-11-15 00:00:00 UTC");
        assert_eq!(parse_time("2026-11-15T00:00:00Z"), Ok(day));
        assert_eq!(parse_time(&day.as_millis().to_string()), Ok(day));
        let hour = between(parse_time("1h").expect("an hour ago"), now());
        assert!((3_600_000..3_660_000).contains(&hour), "{hour}");
        assert!(parse_time("yesterday").is_err());
        assert_eq!(parse_length("1d"), Ok(86_400_000));
        assert!(parse_length("-5s").is_err());
    }
}
