//! The events of a run's stream in words, for whoever watches or reads its log.

use anstyle::{AnsiColor, Style};
use serde::Deserialize;
use stepwell_protocol::{
    Op, Record, Timestamp,
    program::{Progress, Units},
    stream::{Chunk, Kind, Level, LogLine},
};

use crate::{feed::Event, timeline, words};

/// How much of a chunk is shown among other things.
const CHUNK_MAX: usize = 60;

/// What a log or a chunk says.
#[derive(Debug)]
pub enum PublishedItem {
    /// A line of the log.
    Log(LogLine),
    /// A piece of something of the run's own.
    Chunk(Chunk),
    /// So many are missing, because there was too much at once.
    LeftOut(u32),
}

/// What is shown of an event that is too large for a stream.
#[derive(Deserialize)]
struct TooLarge {
    left_out_bytes: usize,
}

/// Reads a log or a chunk; nothing, if it is neither, or of a form that is not known yet.
pub fn item(event: &Event) -> Option<PublishedItem> {
    #[derive(Deserialize)]
    struct LeftOut {
        left_out: Count,
    }
    #[derive(Deserialize)]
    struct Count {
        count: u32,
    }
    if ![Some(Kind::Log), Some(Kind::Chunk)].contains(&event.kind) {
        return None;
    }
    let left_out =
        event.data.decode().ok().map(|missing: LeftOut| PublishedItem::LeftOut(missing.left_out.count));
    left_out
        .or_else(|| event.data.decode().ok().map(PublishedItem::Log))
        .or_else(|| event.data.decode().ok().map(PublishedItem::Chunk))
}

/// An event of the journal, a log or a chunk on one line. States, and what is not known, have none.
pub fn line(event: &Event, began: Timestamp) -> Option<String> {
    let (symbol, style, text) = match item(event) {
        Some(PublishedItem::Log(LogLine { level, message, op })) => {
            let style = level_style(level);
            let text = format!("{} {}{}", level_word(level), words::plain(&message), by(op.as_ref()));
            ('·', style, text)
        }
        Some(PublishedItem::Chunk(Chunk { name, value, op })) => {
            let text =
                format!("{}: {}{}", words::plain(&name), words::short(&value, CHUNK_MAX), by(op.as_ref()));
            ('»', AnsiColor::Cyan.on_default(), text)
        }
        Some(PublishedItem::LeftOut(count)) => ('…', Style::new().dimmed(), left_out(count)),
        None if [Some(Kind::Step), Some(Kind::Timer), Some(Kind::Signal)].contains(&event.kind) => {
            if let Ok(record) = event.data.decode::<Record>() {
                timeline::tell(&record)
            } else {
                let TooLarge { left_out_bytes } = event.data.decode().ok()?;
                let text = format!("something of {left_out_bytes} bytes, which `stepwell show` has");
                ('…', Style::new().dimmed(), text)
            }
        }
        None => return None,
    };
    let since = words::length(words::between(began, event.at));
    Some(format!("{since:>9}  {style}{symbol}{style:#} {text}"))
}

/// How far a run has come, without the percentage: what it does, how much of it, and how long it will take.
pub fn progress(progress: &Progress, now: Timestamp) -> String {
    let Progress { message, units, ends_at, .. } = progress;
    let units = units.map(|Units { done, total }| format!("{done} of {total}"));
    let ends = ends_at.filter(|ends| *ends > now);
    let left = ends.map(|ends| format!("about {} left", words::length(words::between(now, ends))));
    let message = Some(words::plain(message)).filter(|message| !message.is_empty());
    [message, units, left].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// That so many are missing.
pub fn left_out(count: u32) -> String {
    format!("{count} more left out: it was too much at once")
}

/// The step that says something.
pub fn by(op: Option<&Op>) -> String {
    let dim = Style::new().dimmed();
    op.map(|op| format!(" {dim}({}){dim:#}", words::plain(&op.name))).unwrap_or_default()
}

/// A level, always as long.
pub fn level_word(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info ",
        Level::Warn => "warn ",
        Level::Error => "error",
    }
}

/// The colour of a level.
pub fn level_style(level: Level) -> Style {
    match level {
        Level::Debug => Style::new().dimmed(),
        Level::Info => Style::new(),
        Level::Warn => AnsiColor::Yellow.on_default(),
        Level::Error => AnsiColor::Red.on_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepwell_protocol::Payload;

    use super::*;

    fn told_as(kind: Kind, data: &serde_json::Value) -> Option<String> {
        let data = Payload::encode(data).expect("it is JSON");
        let at = Timestamp::from_millis(3_500);
        let event = Event { text: String::new(), id: "1.0.1".into(), kind: Some(kind), at, data };
        let line = line(&event, Timestamp::from_millis(1_000))?;
        Some(anstream::adapter::strip_str(&line).to_string())
    }

    #[test]
    fn each_kind_has_its_line_and_states_have_none() {
        let record = json!({"seq": 1, "at": 3_500, "event": {"timer_fired": {"op": "sleep:0:sleep"}}});
        for (kind, data, wanted) in [
            (
                Kind::Log,
                json!({"level": "warn", "message": "hm\u{1b}", "op": "step:0:talk"}),
                "· warn  hm\u{fffd} (talk)",
            ),
            (Kind::Log, json!({"left_out": {"count": 3}}), "… 3 more left out: it was too much at once"),
            (Kind::Chunk, json!({"name": "tokens", "value": "so"}), "» tokens: \"so\""),
            (Kind::Timer, record, "☾ sleep is over"),
            (
                Kind::Step,
                json!({"seq": 1, "at": 1, "left_out_bytes": 300_000}),
                "… something of 300000 bytes, which `stepwell show` has",
            ),
        ] {
            assert_eq!(told_as(kind, &data), Some(format!("    2.5 s  {wanted}")));
        }
        assert_eq!(told_as(Kind::Status, &json!({})), None);
        assert_eq!(told_as(Kind::Step, &json!({"new": "form"})), None, "a form that is not known yet");
    }

    #[test]
    fn progress_says_what_how_much_and_how_long() {
        let text = |data: serde_json::Value| {
            progress(&serde_json::from_value(data).expect("it is progress"), Timestamp::from_millis(1_000))
        };
        let all = json!({"percent": 40.0, "message": "resizing", "units": {"done": 2, "total": 5},
            "ends_at": 13_000});
        assert_eq!(text(all), "resizing, 2 of 5, about 12.0 s left");
        assert_eq!(
            text(json!({"percent": 40.0, "ends_at": 900})),
            "",
            "an estimate that is over helps nobody"
        );
    }
}
