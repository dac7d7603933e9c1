//! A run's timeline as a drawing: one line for each thing, a bar for the time that it took.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use stepwell_protocol::{
    Event, Op, OpKind, Outcome, Record, Timestamp,
    rest::{RunView, Why},
    timeline::{Bar, Kind, Mark, Moving, Recording, Thing},
};

use crate::words;

/// How wide the names may get.
const LABEL_MAX: usize = 28;

/// How wide the bars get when nobody says how wide the terminal is.
pub const WIDTH: usize = 80;

/// What stands right of the bars.
const RIGHT: usize = 26;

/// A run's history as lines.
#[derive(Debug)]
pub struct Timeline {
    begins: Timestamp,
    ends: Timestamp,
    lines: Vec<Line>,
}

/// A bar, and what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    bar: Bar,
    note: String,
}

impl Timeline {
    /// The lines of a run, as it stands at this time.
    pub fn new(run: &RunView, events: &[Record], why: Option<&Why>, now: Timestamp) -> Self {
        let mut recording = Recording::of(run);
        for Record { seq, at, event } in events {
            recording.take(*seq, *at, event, false);
        }
        let (begins, ends) = (recording.begins, recording.ends(run, now));
        let moving = recording.moving(run, why, now);
        let mut bars = recording.bars;
        for Moving { instead_of, bar } in moving {
            match instead_of.and_then(|place| bars.get_mut(place)) {
                Some(recorded) => *recorded = bar,
                None => bars.push(bar),
            }
        }
        let lines = bars.into_iter().map(|bar| Line { note: note(&bar, events, ends), bar }).collect();
        Self { begins, ends, lines }
    }

    /// The drawing, this wide.
    pub fn draw(&self, width: usize) -> Vec<String> {
        let label_width = self
            .lines
            .iter()
            .map(|line| label(&line.bar).chars().count())
            .max()
            .unwrap_or(0)
            .clamp(5, LABEL_MAX);
        let cells = width.saturating_sub(label_width + RIGHT).clamp(10, 100);
        self.lines.iter().map(|line| self.draw_line(line, label_width, cells)).collect()
    }

    fn draw_line(&self, Line { bar, note }: &Line, label_width: usize, cells: usize) -> String {
        let (symbol, style) = drawn_mark(bar.mark);
        let mut filled = vec![None; cells];
        for part in &bar.parts {
            let (from, to) = (self.cell(part.from, cells), self.cell(part.to, cells));
            for cell in &mut filled[from..=to.max(from)] {
                // Work shows over rest: a short attempt beside a long pause is what one looks for.
                if part.kind != Kind::Rest || cell.is_none() {
                    *cell = Some(part.kind);
                }
            }
        }
        let mut drawn = String::new();
        for cell in filled {
            match cell {
                None => drawn.push(' '),
                Some(kind) => {
                    let (symbol, style) = drawn_kind(kind);
                    let _ = write!(drawn, "{style}{symbol}{style:#}");
                }
            }
        }
        let attempts = if bar.attempts > 1 { format!("attempt {}", bar.attempts) } else { String::new() };
        let extra: Vec<_> = [attempts.as_str(), note].into_iter().filter(|part| !part.is_empty()).collect();
        let label = words::cut(&label(bar), label_width);
        let took = words::length(bar.took_ms());
        let text = format!(
            "{style}{symbol}{style:#} {label:label_width$} │{drawn}│ {took:>9}  {}",
            extra.join(", ")
        );
        text.trim_end().to_owned()
    }

    fn cell(&self, at: Timestamp, cells: usize) -> usize {
        let all = words::between(self.begins, self.ends).max(1);
        let at = words::between(self.begins, at).min(all);
        let cell = u128::from(at) * (cells as u128 - 1) / u128::from(all);
        usize::try_from(cell).unwrap_or(0).min(cells - 1)
    }
}

fn label(bar: &Bar) -> String {
    let name = words::plain(&bar.label());
    match bar.thing {
        Thing::Step | Thing::Sleep => name,
        Thing::Wait | Thing::Event | Thing::Token | Thing::Child | Thing::Signal => {
            format!("{} {name}", bar.thing.as_str())
        }
    }
}

/// What stands beside a bar: what it waits for, what went wrong, which run it invoked, what the signal said.
fn note(bar: &Bar, events: &[Record], now: Timestamp) -> String {
    let waiting = bar.waiting(|until| words::distance(until, now));
    let failed = bar.failure.as_ref().map(|failure| words::plain(&failure.message));
    let child = bar.child.as_ref().map(ToString::to_string);
    if let (Some(waiting), Some(failed)) = (&waiting, &failed) {
        return format!("{waiting}: {failed}");
    }
    let signal = || {
        let seq = bar.events.first()?;
        let place = events.binary_search_by_key(seq, |record| record.seq).ok()?;
        let Event::SignalReceived { payload, by, .. } = &events.get(place)?.event else { return None };
        Some(format!("{}{}", words::short(payload, LABEL_MAX), words::by(by.as_deref())))
    };
    let timed_out = (bar.mark == Mark::TimedOut).then(|| "timed out".to_owned());
    let signal = if bar.thing == Thing::Signal { signal() } else { None };
    let said = [child, failed, waiting, timed_out, signal];
    said.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn drawn_mark(mark: Mark) -> (char, Style) {
    match mark {
        Mark::Done => ('✓', AnsiColor::Green.on_default()),
        Mark::Failed => ('✗', AnsiColor::Red.on_default()),
        Mark::Slept | Mark::TimedOut => ('☾', AnsiColor::Blue.on_default()),
        Mark::Signal => ('◆', AnsiColor::Magenta.on_default()),
        Mark::Open | Mark::Retrying => ('▸', AnsiColor::Cyan.on_default()),
    }
}

fn drawn_kind(kind: Kind) -> (char, Style) {
    match kind {
        Kind::Work => ('█', AnsiColor::Green.on_default()),
        Kind::Failed => ('▓', AnsiColor::Red.on_default()),
        Kind::Rest => ('░', AnsiColor::Blue.on_default()),
    }
}

/// One event in words, for `watch`.
pub fn tell(record: &Record) -> (char, Style, String) {
    let named = |op: &Op| match op.kind {
        OpKind::Step | OpKind::Sleep => words::plain(&op.name),
        OpKind::Wait => format!("wait {}", words::plain(&op.name)),
        OpKind::Child => format!("child {}", words::plain(&op.name)),
    };
    let (mark, text) = match &record.event {
        Event::StepFinished { op, attempt, outcome, .. } => {
            let tries = if *attempt > 1 { format!(" at attempt {attempt}") } else { String::new() };
            match outcome {
                Outcome::Ok(value) if value.text() == "null" => {
                    (Mark::Done, format!("{} done{tries}", named(op)))
                }
                Outcome::Ok(value) => {
                    (Mark::Done, format!("{} done{tries}: {}", named(op), words::short(value, 60)))
                }
                Outcome::Err(failure) => {
                    (Mark::Failed, format!("{} failed{tries}: {}", named(op), words::plain(&failure.message)))
                }
            }
        }
        Event::StepRetrying { op, attempt, failure, retry_at, .. } => {
            let pause = words::length(words::between(record.at, *retry_at));
            let why = words::plain(&failure.message);
            (Mark::Open, format!("{} failed at attempt {attempt}, again in {pause}: {why}", named(op)))
        }
        Event::StepBegun { op } => (Mark::Open, format!("{} begun, to run at most once", named(op))),
        Event::StepLetIn { op, lane, since, .. } => {
            let waited =
                since.map(|since| format!(" after {}", words::length(words::between(since, record.at))));
            let (lane, waited) = (words::plain(lane), waited.unwrap_or_default());
            (Mark::Open, format!("{} let in by lane {lane}{waited}", named(op)))
        }
        Event::TimerFired { op, .. } if op.kind == OpKind::Wait => {
            (Mark::Slept, format!("{} timed out", named(op)))
        }
        Event::TimerFired { op, .. } => (Mark::Slept, format!("{} is over", named(op))),
        Event::ChildInvoked { op, workflow, .. } => {
            (Mark::Open, format!("{} invoked: {}", named(op), words::plain(workflow)))
        }
        Event::ChildStarted { op, run, .. } => (Mark::Done, format!("{} started: {run}", named(op))),
        Event::ChildFinished { op, run, outcome, .. } => {
            let id = run.as_ref().map(|run| format!(" ({run})")).unwrap_or_default();
            match outcome {
                Outcome::Ok(value) => {
                    (Mark::Done, format!("{} done{id}: {}", named(op), words::short(value, 60)))
                }
                Outcome::Err(failure) => {
                    (Mark::Failed, format!("{} failed{id}: {}", named(op), words::plain(&failure.message)))
                }
            }
        }
        Event::SignalReceived { name, payload, by, .. } => {
            let (name, payload) = (words::plain(name), words::short(payload, 60));
            (Mark::Signal, format!("signal {name}: {payload}{}", words::by(by.as_deref())))
        }
    };
    let (symbol, style) = drawn_mark(mark);
    (symbol, style, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drawn(
        run: serde_json::Value,
        events: serde_json::Value,
        why: serde_json::Value,
        now: u64,
    ) -> Vec<String> {
        let run: RunView = serde_json::from_value(run).expect("a run");
        let events: Vec<Record> = serde_json::from_value(events).expect("events");
        let why: Option<Why> = serde_json::from_value(why).expect("a reason");
        let timeline = Timeline::new(&run, &events, why.as_ref(), Timestamp::from_millis(now));
        timeline.draw(60).iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn each_thing_has_a_line_and_a_bar() {
        let run = json!({"id": "default-1-3-1-bvyaw3bemryy", "workflow": "greet", "status": "completed",
            "created_at": 1_000, "ended_at": 21_000, "head": 4, "activations": 2});
        let events = json!([
            {"seq": 1, "at": 3_000, "event": {"step_retrying": {"op": "step:0:compose", "attempt": 1,
                "failure": {"message": "no"}, "retry_at": 5_000}}},
            {"seq": 2, "at": 7_000, "event": {"step_finished": {"op": "step:0:compose", "attempt": 2,
                "outcome": {"ok": "Hello"}}}},
            {"seq": 3, "at": 17_000, "event": {"timer_fired": {"op": "sleep:0:sleep"}}},
            {"seq": 4, "at": 21_000, "event": {"step_finished": {"op": "step:1:compose", "attempt": 1,
                "outcome": {"err": {"message": "no more"}}}}},
        ]);
        assert_eq!(
            drawn(run, events, json!(null), 99_000),
            [
                "✓ compose    │▓▓▓░███                 │     4.0 s  attempt 2",
                "☾ sleep      │      ░░░░░░░░░░░░░     │    10.0 s",
                "✗ compose #2 │                  ▓▓▓▓▓▓│     4.0 s  no more",
            ]
        );
    }

    #[test]
    fn bars_of_steps_side_by_side_begin_where_the_steps_did() {
        let run = json!({"id": "default-1-3-1-bvyaw3bemryy", "workflow": "greet", "status": "completed",
            "created_at": 0, "ended_at": 20_000, "head": 4, "activations": 2});
        let step = |seq: u32, at: u64, name: &str, took_ms: u64| {
            json!({"seq": seq, "at": at, "event": {"step_finished": {"op": format!("step:0:{name}"),
                "attempt": 1, "outcome": {"ok": null}, "took_ms": took_ms}}})
        };
        let events = json!([
            step(1, 9_000, "quick", 9_000),
            step(2, 10_000, "slow", 10_000),
            {"seq": 3, "at": 20_000, "event": {"signal_received": {"name": "go", "payload": 1, "since": 10_000}}},
            {"seq": 4, "at": 20_000, "event": {"signal_received": {"name": "early", "payload": 2}}},
        ]);
        assert_eq!(
            drawn(run, events, json!(null), 20_000),
            [
                "✓ quick        │██████████            │     9.0 s",
                "✓ slow         │███████████           │    10.0 s",
                "◆ signal go    │          ░░░░░░░░░░░░│    10.0 s  1",
                "◆ signal early │                     ░│      0 ms  2",
            ]
        );
    }

    #[test]
    fn the_pauses_between_attempts_are_no_work() {
        let run = json!({"id": "default-1-3-1-bvyaw3bemryy", "workflow": "greet", "status": "completed",
            "created_at": 0, "ended_at": 660_000, "head": 2, "activations": 2});
        let events = json!([
            {"seq": 1, "at": 1_000, "event": {"step_retrying": {"op": "step:0:ask", "attempt": 1,
                "failure": {"message": "busy"}, "retry_at": 659_000, "took_ms": 500}}},
            {"seq": 2, "at": 660_000, "event": {"step_finished": {"op": "step:0:ask", "attempt": 2,
                "outcome": {"ok": null}, "took_ms": 700}}},
        ]);
        let lines = drawn(run, events, json!(null), 660_000);
        assert!(lines[0].contains("│     1.2 s  attempt 2"), "{lines:?}");
    }

    #[test]
    fn what_is_under_way_says_when_it_goes_on() {
        let run = json!({"id": "default-1-3-1-bvyaw3bemryy", "workflow": "approval", "status": "waiting",
            "created_at": 1_000, "head": 0, "activations": 1});
        let why = json!({"status": "waiting", "because": "It waits for signal 'decision'.",
            "waits_for": [{"kind": "wait", "name": "decision", "until": 64_000}]});
        let lines = drawn(run, json!([]), why, 4_000);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("▸ wait decision │░░░░"), "{}", lines[0]);
        assert!(lines[0].ends_with("3.0 s  times out in 1 m 0 s"), "{}", lines[0]);
    }
}
