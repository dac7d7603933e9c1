//! A run's history as bars: a row for each operation, pieces for the time that it worked or rested, and an axis that
//! collapses idle time.
//!
//! The journal records ends and durations. Where it does not say how long something took, a piece begins where the event
//! before it ended, or where an attempt could begin.

mod axis;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use stepwell_protocol::{
    Event, Op, OpKind, Outcome, Seq, Timestamp,
    rest::{HistoryEvent, RunView, Status, Why},
};

pub use self::axis::{Axis, Tick};
use crate::{shown, when};

/// How a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It ended well.
    Done,
    /// It failed.
    Failed,
    /// An attempt failed, and another follows.
    Retrying,
    /// A sleep or wait that ended.
    Rested,
    /// A signal.
    Signal,
    /// It has not ended.
    Open,
}

impl Mark {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Retrying => "retrying",
            Self::Rested => "rested",
            Self::Signal => "signal",
            Self::Open => "open",
        }
    }
}

/// What a piece of a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code ran.
    Work,
    /// Code ran and failed.
    Failed,
    /// Nothing ran: a sleep, a wait, the pause before the next attempt.
    Rest,
}

impl Kind {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Failed => "failed",
            Self::Rest => "rest",
        }
    }
}

/// A piece of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// What it stands for.
    pub kind: Kind,
}

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What tells it apart from all others, also in an address.
    pub key: String,
    /// The operation; signals and what is under way may have none.
    pub op: Option<Op>,
    /// Its name for people.
    pub label: String,
    /// What kind of thing it is, in a word.
    pub what: &'static str,
    /// How it stands.
    pub mark: Mark,
    /// Its bar.
    pub pieces: Vec<Piece>,
    /// The latest attempt, from 1; 0 if it has none.
    pub attempts: u32,
    /// An error, or what it waits for.
    pub note: String,
    /// The child that it invoked.
    pub child: Option<String>,
    /// Its events, by position.
    pub events: Vec<Seq>,
    /// Whether it no longer counts, because the run was taken back.
    pub is_cut: bool,
    goes_on: Option<Timestamp>,
}

impl Row {
    /// How long it worked; if it never did, how long it rested.
    pub fn took_ms(&self) -> u64 {
        let works = self.pieces.iter().any(|piece| piece.kind != Kind::Rest);
        let counted = self.pieces.iter().filter(|piece| !works || piece.kind != Kind::Rest);
        counted.map(|piece| piece.to.as_millis().saturating_sub(piece.from.as_millis())).sum()
    }
}

/// A run's history as rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When it begins.
    pub begins: Timestamp,
    /// When it ends, or how far it has come.
    pub ends: Timestamp,
    /// Its rows, in the order in which the history first tells of them.
    pub rows: Vec<Arc<Row>>,
}

/// What a history tells, whatever the time is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    begins: Timestamp,
    /// When the last event was recorded.
    edge: Timestamp,
    rows: Vec<Arc<Row>>,
}

/// The timeline of a run, as it stands at this time.
pub fn of<'a>(
    run: &RunView,
    events: impl Iterator<Item = &'a HistoryEvent>,
    why: Option<&Why>,
    now: Timestamp,
) -> Timeline {
    Recording::of(run, events).until(run, why, now)
}

impl Recording {
    /// Reads the events of a run, in their order.
    pub fn of<'a>(run: &RunView, events: impl Iterator<Item = &'a HistoryEvent>) -> Self {
        let began = run.life.map_or(run.created_at, |life| life.began_at);
        let mut recording = Self { begins: began, edge: began, rows: Vec::new() };
        let (mut rows, mut open) = (Vec::new(), BTreeMap::new());
        for event in events {
            recording.begins = recording.begins.min(event.at);
            add(&mut rows, event, recording.edge, &mut open);
            recording.edge = recording.edge.max(event.at);
        }
        let mut keys = BTreeSet::new();
        for row in &mut rows {
            row.name(&mut keys);
        }
        recording.rows = rows.into_iter().map(Arc::new).collect();
        recording
    }

    /// The timeline at this time. Shares all rows that do not move with the clock.
    pub fn until(&self, run: &RunView, why: Option<&Why>, now: Timestamp) -> Timeline {
        let ends = run.ended_at.unwrap_or(now);
        let mut timeline = Timeline { begins: self.begins, ends, rows: self.rows.clone() };
        if !run.status.is_terminal() {
            timeline.add_open(run, why, self.edge);
        }
        timeline.ends = timeline.ends.max(self.edge);
        timeline
    }
}

fn add(rows: &mut Vec<Row>, recorded: &HistoryEvent, edge: Timestamp, open: &mut BTreeMap<Op, usize>) {
    let at = recorded.at;
    let op = match &recorded.event {
        Event::StepFinished { op, .. }
        | Event::StepRetrying { op, .. }
        | Event::StepBegun { op }
        | Event::StepLetIn { op, .. }
        | Event::TimerFired { op, .. }
        | Event::ChildInvoked { op, .. }
        | Event::ChildStarted { op, .. }
        | Event::ChildFinished { op, .. } => op,
        Event::SignalReceived { name, since, by, .. } => {
            let note = by.as_ref().map_or_else(String::new, |by| format!("by {}", shown::line(by)));
            let pieces = vec![Piece { from: since.unwrap_or(at), to: at, kind: Kind::Rest }];
            let mut row = Row::new(None, shown::line(name), "signal", Mark::Signal, pieces);
            (row.note, row.is_cut) = (note, recorded.cut);
            row.events.push(recorded.seq);
            rows.push(row);
            return;
        }
    };
    let index = *open.entry(op.clone()).or_insert_with(|| {
        rows.push(Row::of(op));
        rows.len() - 1
    });
    let Some(row) = rows.get_mut(index) else { return };
    row.events.push(recorded.seq);
    row.is_cut = recorded.cut;
    if row.take(&recorded.event, at, edge) {
        open.remove(op);
    }
}

impl Timeline {
    /// What the run does, or waits for, at this moment.
    fn add_open(&mut self, run: &RunView, why: Option<&Why>, edge: Timestamp) {
        let now = self.ends;
        let waits = why.map(|why| why.waits_for.as_slice()).unwrap_or_default();
        for wait in waits.iter().filter(|wait| wait.kind != "cancel_on") {
            let until = wait.until.map(|until| when::relative(until, now)).unwrap_or_default();
            let known = self.rows.iter_mut().rev().find(|row| {
                let is_it = |op: &Op| op.kind.as_str() == wait.kind && op.name == wait.name;
                matches!(row.mark, Mark::Open | Mark::Retrying) && row.op.as_ref().is_some_and(is_it)
            });
            if let Some(row) = known.map(Arc::make_mut) {
                if row.mark == Mark::Retrying {
                    row.note = format!("next attempt {until}: {}", row.note);
                } else {
                    row.pieces.push(Piece { from: row.goes_on.unwrap_or(edge), to: now, kind: Kind::Rest });
                }
                continue;
            }
            let what = match wait.kind.as_str() {
                "sleep" => "sleep",
                "event" => "event",
                "token" => "token",
                "child" => "child",
                "step" | "lane" => "step",
                _ => "wait",
            };
            let pieces = vec![Piece { from: wait.since.unwrap_or(edge), to: now, kind: Kind::Rest }];
            let mut row = Row::new(None, shown::line(&wait.name), what, Mark::Open, pieces);
            row.note = match (what, until.is_empty()) {
                _ if wait.kind == "lane" => "waits to be let in".into(),
                (_, true) => "waits".into(),
                ("sleep", false) => format!("wakes {until}"),
                (_, false) => format!("times out {until}"),
            };
            self.push_open(row);
        }
        if waits.is_empty() && run.status == Status::Running {
            let current = run.current_step.as_ref();
            let label = current.map_or_else(|| "at work".into(), |step| shown::line(&step.name));
            let from = current.map_or(edge, |step| step.since);
            let pieces = vec![Piece { from, to: now.max(from), kind: Kind::Work }];
            self.push_open(Row::new(None, label, "step", Mark::Open, pieces));
        }
    }

    fn push_open(&mut self, mut row: Row) {
        row.key = format!("~{}", self.rows.len());
        self.rows.push(Arc::new(row));
    }
}

impl Row {
    fn new(op: Option<Op>, label: String, what: &'static str, mark: Mark, pieces: Vec<Piece>) -> Self {
        Self {
            key: String::new(),
            op,
            label,
            what,
            mark,
            pieces,
            attempts: 0,
            note: String::new(),
            child: None,
            events: Vec::new(),
            is_cut: false,
            goes_on: None,
        }
    }

    fn of(op: &Op) -> Self {
        let name = shown::line(&op.name);
        let label = if op.occurrence == 0 { name } else { format!("{name} #{}", op.occurrence + 1) };
        let what = match op.kind {
            OpKind::Step => "step",
            OpKind::Sleep => "sleep",
            OpKind::Wait => "wait",
            OpKind::Child => "child",
        };
        Self::new(Some(op.clone()), label, what, Mark::Open, Vec::new())
    }

    /// Gives it a key that no other row has. An operation can have several rows: a child that was started without
    /// waiting for it, and what was taken back.
    fn name(&mut self, keys: &mut BTreeSet<String>) {
        let first = self.events.first().map_or(0, |seq| seq.0);
        self.key = match &self.op {
            Some(op) if !self.is_cut => op.to_string(),
            Some(_) | None => format!("@{first}"),
        };
        if !keys.insert(self.key.clone()) {
            self.key = format!("{}@{first}", self.key);
            keys.insert(self.key.clone());
        }
    }

    /// Takes an event; gives whether it was the last one.
    fn take(&mut self, event: &Event, at: Timestamp, edge: Timestamp) -> bool {
        match event {
            Event::StepBegun { .. } | Event::ChildInvoked { .. } => self.goes_on = Some(at),
            Event::StepLetIn { since, .. } => {
                self.pieces.push(Piece { from: since.unwrap_or(edge), to: at, kind: Kind::Rest });
                self.goes_on = Some(at);
            }
            Event::StepRetrying { attempt, failure, retry_at, took_ms, .. } => {
                let from = self.began(at, *took_ms, edge);
                self.pieces.push(Piece { from, to: at, kind: Kind::Failed });
                self.pieces.push(Piece { from: at, to: *retry_at, kind: Kind::Rest });
                (self.goes_on, self.attempts, self.mark) = (Some(*retry_at), *attempt, Mark::Retrying);
                self.note = shown::line(&failure.message);
            }
            Event::StepFinished { attempt, outcome, took_ms, .. } => {
                let from = self.began(at, *took_ms, edge);
                // A person may have cut the pause before it short.
                for piece in &mut self.pieces {
                    piece.to = piece.to.min(at);
                }
                self.attempts = *attempt;
                let kind = self.end(outcome, Kind::Work);
                self.pieces.push(Piece { from, to: at, kind });
                return true;
            }
            Event::TimerFired { op, since } => {
                self.pieces.push(Piece { from: since.unwrap_or(edge), to: at, kind: Kind::Rest });
                self.mark = Mark::Rested;
                if op.kind == OpKind::Wait {
                    self.note = "timed out".into();
                }
                return true;
            }
            Event::ChildStarted { run, .. } => {
                self.pieces.push(Piece { from: self.goes_on.unwrap_or(at), to: at, kind: Kind::Rest });
                (self.child, self.mark) = (Some(run.to_string()), Mark::Done);
                return true;
            }
            Event::ChildFinished { run, outcome, .. } => {
                self.pieces.push(Piece {
                    from: self.goes_on.unwrap_or(edge).min(at),
                    to: at,
                    kind: Kind::Rest,
                });
                self.child = run.as_ref().map(ToString::to_string);
                self.end(outcome, Kind::Rest);
                return true;
            }
            Event::SignalReceived { .. } => {}
        }
        false
    }

    fn end(&mut self, outcome: &Outcome, worked: Kind) -> Kind {
        match outcome {
            Outcome::Ok(_) => {
                self.mark = Mark::Done;
                self.note.clear();
                worked
            }
            Outcome::Err(failure) => {
                self.mark = Mark::Failed;
                self.note = shown::line(&failure.message);
                Kind::Failed
            }
        }
    }

    fn began(&self, ended: Timestamp, took_ms: Option<u64>, edge: Timestamp) -> Timestamp {
        took_ms.map_or_else(
            || self.goes_on.unwrap_or(edge).min(ended),
            |ms| Timestamp::from_millis(ended.as_millis().saturating_sub(ms)),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn run(status: &str, ended_at: Option<u64>) -> RunView {
        let view = json!({
            "id": "default-1-3-1-bvyaw3bemryy", "workflow": "greet", "status": status,
            "created_at": 1_000, "ended_at": ended_at, "head": 0, "activations": 1,
        });
        serde_json::from_value(view).expect("a run")
    }

    fn events(list: &[(u64, Value)]) -> Vec<HistoryEvent> {
        let numbered = (1_u64..).zip(list);
        let read = |(seq, (at, event)): (u64, &(u64, Value))| {
            serde_json::from_value(json!({ "seq": seq, "at": at, "event": event })).expect("an event")
        };
        numbered.map(read).collect()
    }

    fn drawn(run: &RunView, list: &[(u64, Value)]) -> Timeline {
        of(run, events(list).iter(), None, at(10_000))
    }

    fn finished(op: &str, took_ms: u64) -> Value {
        json!({"step_finished": {"op": op, "attempt": 1, "outcome": {"ok": 1}, "took_ms": took_ms}})
    }

    #[test]
    fn parallel_steps_begin_where_each_of_them_began() {
        let list = [(1_300, finished("step:0:a", 300)), (1_300, finished("step:0:b", 200))];
        let timeline = drawn(&run("completed", Some(1_400)), &list);
        let begins: Vec<_> = timeline.rows.iter().map(|row| row.pieces[0].from.as_millis()).collect();
        assert_eq!(begins, [1_000, 1_100]);
        assert_eq!(timeline.ends, at(1_400));
    }

    #[test]
    fn a_retried_step_is_one_row_with_its_attempts_and_pauses() {
        let retrying = json!({"step_retrying": {"op": "step:0:charge", "attempt": 1, "took_ms": 100,
            "failure": {"message": "card\u{202e} declined"}, "retry_at": 3_000}});
        let list = [(1_200, retrying), (3_050, finished("step:0:charge", 50))];
        let timeline = drawn(&run("completed", Some(3_100)), &list);
        let [row] = timeline.rows.as_slice() else { panic!("{timeline:?}") };
        let kinds: Vec<_> = row.pieces.iter().map(|piece| piece.kind).collect();
        assert_eq!(kinds, [Kind::Failed, Kind::Rest, Kind::Work]);
        assert_eq!((row.mark, row.took_ms(), row.events.len()), (Mark::Done, 150, 2));
        let timeline = drawn(&run("sleeping", None), &list[..1]);
        assert_eq!(timeline.rows[0].mark, Mark::Retrying);
        assert_eq!(timeline.rows[0].note, "card\\u{202e} declined");
    }

    #[test]
    fn a_long_sleep_is_collapsed_and_work_keeps_its_room() {
        let three_days = 3 * 86_400_000;
        let list = [
            (1_500, finished("step:0:a", 500)),
            (1_500 + three_days, json!({"timer_fired": {"op": "sleep:0:rest", "since": 1_500}})),
            (2_000 + three_days, finished("step:0:b", 500)),
        ];
        let timeline = drawn(&run("completed", Some(2_000 + three_days)), &list);
        let axis = Axis::of(&timeline);
        let pauses = axis.pauses();
        assert_eq!(pauses.len(), 1, "{axis:?}");
        assert_eq!(pauses[0].2, three_days);
        let a = axis.place(at(1_500)) - axis.place(at(1_000));
        assert!((0.45..0.5).contains(&a), "{a}");
        assert!(axis.ticks(0.12).len() > 4, "{:?}", axis.ticks(0.12));
    }

    #[test]
    fn what_a_run_waits_for_is_a_row_until_now() {
        let why = json!({"status": "waiting", "because": "It waits for a signal.",
            "waits_for": [{"kind": "wait", "name": "decision", "until": 70_000}]});
        let why: Why = serde_json::from_value(why).expect("why");
        let timeline = of(&run("waiting", None), [].iter(), Some(&why), at(10_000));
        let [row] = timeline.rows.as_slice() else { panic!("{timeline:?}") };
        assert_eq!((row.what, row.note.as_str()), ("wait", "times out in 1 min"));
        assert_eq!(row.pieces, [Piece { from: at(1_000), to: at(10_000), kind: Kind::Rest }]);
        // Nothing works, so nothing is collapsed.
        assert_eq!(Axis::of(&timeline).pauses(), []);
    }

    #[test]
    fn no_two_rows_have_the_same_key() {
        let list = [
            (1_100, finished("step:0:a", 10)),
            (1_200, finished("step:0:a", 10)),
            (1_300, json!({"signal_received": {"name": "go", "payload": 1}})),
            (1_400, finished("step:0:b", 10)),
        ];
        let timeline = drawn(&run("running", None), &list);
        let keys: Vec<_> = timeline.rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["step:0:a", "step:0:a@2", "@3", "step:0:b", "~4"]);
    }

    #[test]
    fn rows_that_do_not_move_with_the_clock_are_shared() {
        let list = events(&[(1_100, finished("step:0:a", 10)), (1_200, finished("step:0:b", 10))]);
        let run = run("running", None);
        let recording = Recording::of(&run, list.iter());
        let (one, other) = (recording.until(&run, None, at(2_000)), recording.until(&run, None, at(3_000)));
        assert!(Arc::ptr_eq(&one.rows[1], &other.rows[1]));
        assert_eq!((one.rows.len(), one.rows[2].took_ms(), other.rows[2].took_ms()), (3, 800, 1_800));
        assert_eq!(one, of(&run, list.iter(), None, at(2_000)));
    }

    proptest! {
        #[test]
        fn an_axis_never_goes_back(
            begins in 0..1_000_u64,
            steps in proptest::collection::vec((0..10_000_000_u64, 0..5_000_u64), 0..40),
            places in proptest::collection::vec(0..50_000_000_u64, 2..40),
        ) {
            let rows = steps.iter().map(|(from, took)| {
                let piece = Piece { from: at(*from), to: at(from + took), kind: Kind::Work };
                Arc::new(Row::new(None, String::new(), "step", Mark::Done, vec![piece]))
            });
            let timeline = Timeline { begins: at(begins), ends: at(20_000_000), rows: rows.collect() };
            let axis = Axis::of(&timeline);
            let mut places = places;
            places.sort_unstable();
            for pair in places.windows(2) {
                let (one, other) = (axis.place(at(pair[0])), axis.place(at(pair[1])));
                prop_assert!((0.0..=1.0).contains(&one) && one <= other, "{one} {other} {axis:?}");
            }
            prop_assert!(axis.ticks(0.1).len() <= 11);
        }
    }
}
