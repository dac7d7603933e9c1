//! A run's history as a drawing: one line for each thing, a bar for the time that it took.
//!
//! A journal records when things end and how long they took. Where it does not say how long, as in journals of older
//! releases, a bar begins where the thing before it ended, or where an attempt could begin.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use stepwell_protocol::{
    Event, Op, OpKind, Outcome, Record, Timestamp,
    rest::{RunView, Status, Why},
};

use crate::words;

/// How wide the names may get.
const LABEL_MAX: usize = 28;

/// How wide the bars get when nobody says how wide the terminal is.
pub const WIDTH: usize = 80;

/// What stands right of the bars.
const RIGHT: usize = 26;

/// How something on a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Done,
    Failed,
    Slept,
    Signalled,
    UnderWay,
}

/// What a piece of a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Work,
    FailedWork,
    Rest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// What it is about; signals have none.
    op: Option<Op>,
    label: String,
    mark: Mark,
    pieces: Vec<(Timestamp, Timestamp, Piece)>,
    attempts: u32,
    note: String,
    /// When it may go on, after an attempt that failed.
    goes_on: Option<Timestamp>,
    is_over: bool,
}

/// A run's history as lines.
#[derive(Debug)]
pub struct Timeline {
    begins: Timestamp,
    ends: Timestamp,
    lines: Vec<Line>,
}

impl Timeline {
    /// The lines of a run, as it stands at this time.
    pub fn new(run: &RunView, events: &[Record], why: Option<&Why>, now: Timestamp) -> Self {
        // A life begins with the signals that the one before it has not taken.
        let began = run.life.map_or(run.created_at, |life| life.began_at);
        let begins = events.first().map_or(began, |record| record.at.min(began));
        let mut timeline = Self { begins, ends: run.ended_at.unwrap_or(now), lines: Vec::new() };
        let mut edge = begins;
        for record in events {
            timeline.add(record, edge);
            edge = edge.max(record.at);
        }
        if !run.status.is_terminal() {
            timeline.add_open(run, why, edge);
        }
        timeline.ends = timeline.ends.max(edge);
        timeline
    }

    fn add(&mut self, record: &Record, edge: Timestamp) {
        let at = record.at;
        match &record.event {
            Event::StepBegun { op } => {
                let line = self.line(op);
                line.goes_on = Some(at);
            }
            Event::StepLetIn { op, since, .. } => {
                let line = self.line(op);
                line.pieces.push((since.unwrap_or(edge), at, Piece::Rest));
                line.goes_on = Some(at);
            }
            Event::StepRetrying { op, attempt, failure, retry_at, took_ms } => {
                let line = self.line(op);
                let from = began(at, *took_ms).unwrap_or_else(|| line.goes_on.unwrap_or(edge));
                line.pieces.push((from, at, Piece::FailedWork));
                line.pieces.push((at, *retry_at, Piece::Rest));
                line.goes_on = Some(*retry_at);
                line.attempts = *attempt;
                line.note = words::plain(&failure.message);
            }
            Event::StepFinished { op, attempt, outcome, took_ms } => {
                let line = self.line(op);
                let from = began(at, *took_ms).unwrap_or_else(|| line.goes_on.unwrap_or(edge).min(at));
                // The pause before it may have been cut short by a person.
                line.pieces.retain_mut(|piece| {
                    piece.1 = piece.1.min(at);
                    true
                });
                line.attempts = *attempt;
                line.is_over = true;
                let piece = match outcome {
                    Outcome::Ok(_) => {
                        line.mark = Mark::Done;
                        line.note.clear();
                        Piece::Work
                    }
                    Outcome::Err(failure) => {
                        line.mark = Mark::Failed;
                        line.note = words::plain(&failure.message);
                        Piece::FailedWork
                    }
                };
                line.pieces.push((from, at, piece));
            }
            Event::TimerFired { op, since } => {
                let line = self.line(op);
                line.pieces.push((since.unwrap_or(edge), at, Piece::Rest));
                line.is_over = true;
                line.mark = Mark::Slept;
                if op.kind == OpKind::Wait {
                    line.note = "timed out".into();
                }
            }
            Event::ChildInvoked { op, .. } => {
                let line = self.line(op);
                line.goes_on = Some(at);
                line.pieces.push((at, at, Piece::Rest));
            }
            Event::ChildStarted { op, run, .. } => {
                let line = self.line(op);
                line.note = run.to_string();
                line.mark = Mark::Done;
                line.is_over = true;
            }
            Event::ChildFinished { op, run, outcome, .. } => {
                let line = self.line(op);
                let from = line.goes_on.unwrap_or(edge).min(at);
                line.pieces.push((from, at, Piece::Rest));
                line.is_over = true;
                let id = run.as_ref().map(ToString::to_string).unwrap_or_default();
                (line.mark, line.note) = match outcome {
                    Outcome::Ok(_) => (Mark::Done, id),
                    Outcome::Err(failure) => {
                        (Mark::Failed, format!("{id} {}", words::plain(&failure.message)))
                    }
                };
            }
            Event::SignalReceived { name, payload, by, since, .. } => self.lines.push(Line {
                op: None,
                label: format!("signal {}", words::plain(name)),
                mark: Mark::Signalled,
                // Nobody waited for it unless the journal says so.
                pieces: vec![(since.unwrap_or(at), at, Piece::Rest)],
                attempts: 0,
                note: format!("{}{}", words::short(payload, LABEL_MAX), words::by(by.as_deref())),
                goes_on: None,
                is_over: true,
            }),
        }
    }

    /// What the run does, or waits for, at this moment.
    fn add_open(&mut self, run: &RunView, why: Option<&Why>, edge: Timestamp) {
        let now = self.ends;
        let waits = why.map(|why| why.waits_for.as_slice()).unwrap_or_default();
        for waits_for in waits {
            let until = waits_for.until.map(|until| words::distance(until, now)).unwrap_or_default();
            let retried = self.lines.iter_mut().rev().find(|line| {
                let is_it = |op: &Op| op.kind.as_str() == waits_for.kind && op.name == waits_for.name;
                !line.is_over && line.op.as_ref().is_some_and(is_it)
            });
            if let Some(line) = retried {
                line.note = if waits_for.kind == "child" {
                    format!("waits {until}").trim_end().to_owned()
                } else {
                    format!("next attempt {until}: {}", line.note)
                };
                continue;
            }
            let (label, note) = match waits_for.kind.as_str() {
                kind @ ("wait" | "event") => {
                    let note = if until.is_empty() { "waits".into() } else { format!("times out {until}") };
                    (format!("{kind} {}", waits_for.name), note)
                }
                // It waits for as long as the run does.
                "cancel_on" => continue,
                "token" => (format!("token {}", waits_for.name), format!("expires {until}")),
                "sleep" => (waits_for.name.clone(), format!("wakes {until}")),
                "child" => {
                    (format!("child {}", waits_for.name), format!("waits {until}").trim_end().to_owned())
                }
                _ => (waits_for.name.clone(), until),
            };
            self.lines.push(Line::under_way(&label, edge, now, Piece::Rest, &note));
        }
        if waits.is_empty() && matches!(run.status, Status::Running) {
            self.lines.push(Line::under_way("…", edge, now, Piece::Work, "at work"));
        }
    }

    /// The line of an operation; a new one if there is none, or if the run was taken back since.
    fn line(&mut self, op: &Op) -> &mut Line {
        let found = self.lines.iter().rposition(|line| line.op.as_ref() == Some(op) && !line.is_over);
        let at = found.unwrap_or_else(|| {
            let label = match op.kind {
                OpKind::Step | OpKind::Sleep => words::plain(&op.name),
                OpKind::Wait => format!("wait {}", words::plain(&op.name)),
                OpKind::Child => format!("child {}", words::plain(&op.name)),
            };
            let label = if op.occurrence == 0 { label } else { format!("{label} #{}", op.occurrence + 1) };
            self.lines.push(Line {
                op: Some(op.clone()),
                label,
                mark: Mark::UnderWay,
                pieces: Vec::new(),
                attempts: 0,
                note: String::new(),
                goes_on: None,
                is_over: false,
            });
            self.lines.len() - 1
        });
        &mut self.lines[at]
    }

    /// The drawing, this wide.
    pub fn draw(&self, width: usize) -> Vec<String> {
        let label_width =
            self.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0).clamp(5, LABEL_MAX);
        let cells = width.saturating_sub(label_width + RIGHT).clamp(10, 100);
        self.lines.iter().map(|line| self.draw_line(line, label_width, cells)).collect()
    }

    fn draw_line(&self, line: &Line, label_width: usize, cells: usize) -> String {
        let (symbol, style) = line.mark.drawn();
        let mut bar = vec![None; cells];
        for (from, to, piece) in &line.pieces {
            let (from, to) = (self.cell(*from, cells), self.cell(*to, cells));
            for cell in &mut bar[from..=to.max(from)] {
                // Work shows over rest: a short attempt beside a long pause is what one looks for.
                if *piece != Piece::Rest || cell.is_none() {
                    *cell = Some(*piece);
                }
            }
        }
        let mut drawn = String::new();
        for cell in bar {
            match cell {
                None => drawn.push(' '),
                Some(piece) => {
                    let (symbol, style) = piece.drawn();
                    let _ = write!(drawn, "{style}{symbol}{style:#}");
                }
            }
        }
        // The pauses between a step's attempts are no work.
        let works = line.pieces.iter().any(|(_, _, piece)| *piece != Piece::Rest);
        let counted = line.pieces.iter().filter(|(_, _, piece)| !works || *piece != Piece::Rest);
        let took = counted.map(|(from, to, _)| words::between(*from, *to)).sum();
        let attempts = if line.attempts > 1 { format!("attempt {}", line.attempts) } else { String::new() };
        let extra = [attempts, line.note.clone()];
        let extra: Vec<_> = extra.iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
        let label = words::cut(&line.label, label_width);
        let took = words::length(took);
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

/// When an attempt began that ended at this time.
fn began(ended: Timestamp, took_ms: Option<u64>) -> Option<Timestamp> {
    took_ms.map(|ms| Timestamp::from_millis(ended.as_millis().saturating_sub(ms)))
}

impl Line {
    fn under_way(label: &str, from: Timestamp, to: Timestamp, piece: Piece, note: &str) -> Self {
        Self {
            op: None,
            label: words::plain(label),
            mark: Mark::UnderWay,
            pieces: vec![(from, to, piece)],
            attempts: 0,
            note: words::plain(note),
            goes_on: None,
            is_over: false,
        }
    }
}

impl Mark {
    fn drawn(self) -> (char, Style) {
        match self {
            Self::Done => ('✓', AnsiColor::Green.on_default()),
            Self::Failed => ('✗', AnsiColor::Red.on_default()),
            Self::Slept => ('☾', AnsiColor::Blue.on_default()),
            Self::Signalled => ('◆', AnsiColor::Magenta.on_default()),
            Self::UnderWay => ('▸', AnsiColor::Cyan.on_default()),
        }
    }
}

impl Piece {
    fn drawn(self) -> (char, Style) {
        match self {
            Self::Work => ('█', AnsiColor::Green.on_default()),
            Self::FailedWork => ('▓', AnsiColor::Red.on_default()),
            Self::Rest => ('░', AnsiColor::Blue.on_default()),
        }
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
            (Mark::UnderWay, format!("{} failed at attempt {attempt}, again in {pause}: {why}", named(op)))
        }
        Event::StepBegun { op } => (Mark::UnderWay, format!("{} begun, to run at most once", named(op))),
        Event::StepLetIn { op, lane, since, .. } => {
            let waited =
                since.map(|since| format!(" after {}", words::length(words::between(since, record.at))));
            let (lane, waited) = (words::plain(lane), waited.unwrap_or_default());
            (Mark::UnderWay, format!("{} let in by lane {lane}{waited}", named(op)))
        }
        Event::TimerFired { op, .. } if op.kind == OpKind::Wait => {
            (Mark::Slept, format!("{} timed out", named(op)))
        }
        Event::TimerFired { op, .. } => (Mark::Slept, format!("{} is over", named(op))),
        Event::ChildInvoked { op, workflow, .. } => {
            (Mark::UnderWay, format!("{} invoked: {}", named(op), words::plain(workflow)))
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
            (Mark::Signalled, format!("signal {name}: {payload}{}", words::by(by.as_deref())))
        }
    };
    let (symbol, style) = mark.drawn();
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
        let why = json!({"status": "waiting", "because": "It waits for a signal.",
            "waits_for": [{"kind": "wait", "name": "decision", "until": 64_000}]});
        let lines = drawn(run, json!([]), why, 4_000);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("▸ wait decision │░░░░"), "{}", lines[0]);
        assert!(lines[0].ends_with("3.0 s  times out in 1 m 0 s"), "{}", lines[0]);
    }
}
