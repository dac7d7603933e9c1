//! A run's history as bars: what it did, and from when to when.
//!
//! Owns the reading of a history, so that all who draw one draw the same: the command line, the dashboard. Does
//! not own how it looks: names and messages are as the program gave them, and whoever shows them makes them harmless.
//!
//! The journal records ends and durations. Where it does not say how long something took, as in journals of older
//! releases, a part begins where the event before it ended, or where an attempt could begin.

use std::collections::BTreeMap;

use crate::{
    Event, Failure, Op, OpKind, Outcome, RunId, Seq, Timestamp,
    program::StepAtWork,
    rest::{RunView, Status, WaitsFor, Why},
};

/// What kind of thing a bar is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A step.
    Step,
    /// A sleep.
    Sleep,
    /// A wait for a signal.
    Wait,
    /// A wait for an event.
    Event,
    /// A wait for an answer to a link.
    Token,
    /// Another run.
    Child,
    /// A signal.
    Signal,
}

impl Thing {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Sleep => "sleep",
            Self::Wait => "wait",
            Self::Event => "event",
            Self::Token => "token",
            Self::Child => "child",
            Self::Signal => "signal",
        }
    }

    const fn of(kind: OpKind) -> Self {
        match kind {
            OpKind::Step => Self::Step,
            OpKind::Sleep => Self::Sleep,
            OpKind::Wait => Self::Wait,
            OpKind::Child => Self::Child,
        }
    }

    fn awaited(kind: &str) -> Self {
        match kind {
            "sleep" => Self::Sleep,
            "event" => Self::Event,
            "token" => Self::Token,
            "child" => Self::Child,
            "step" | "lane" => Self::Step,
            _ => Self::Wait,
        }
    }
}

/// How a bar stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It ended well.
    Done,
    /// It failed.
    Failed,
    /// An attempt failed, and another follows.
    Retrying,
    /// A sleep that is over.
    Slept,
    /// A wait that timed out.
    TimedOut,
    /// A signal.
    Signal,
    /// It has not ended.
    Open,
}

impl Mark {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Retrying => "retrying",
            Self::Slept | Self::TimedOut => "rested",
            Self::Signal => "signal",
            Self::Open => "open",
        }
    }
}

/// What a part of a bar stands for.
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
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Failed => "failed",
            Self::Rest => "rest",
        }
    }
}

/// A part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// What it stands for.
    pub kind: Kind,
}

impl Part {
    const fn rest(from: Timestamp, to: Timestamp) -> Self {
        Self { from, to, kind: Kind::Rest }
    }

    /// How long it is.
    pub fn ms(&self) -> u64 {
        self.to.as_millis().saturating_sub(self.from.as_millis())
    }
}

/// A bar: one operation, one signal, or what the run waits for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// What kind of thing it is about.
    pub thing: Thing,
    /// Its name.
    pub name: String,
    /// The operation; signals, and what has not been recorded yet, have none.
    pub op: Option<Op>,
    /// How it stands.
    pub mark: Mark,
    /// What it is made of.
    pub parts: Vec<Part>,
    /// The latest attempt, from 1; 0 if it has none.
    pub attempts: u32,
    /// What went wrong last, unless it ended well since.
    pub failure: Option<Failure>,
    /// The run that it invoked.
    pub child: Option<RunId>,
    /// Who sent the signal, if that is known.
    pub by: Option<String>,
    /// What it waits for now.
    pub waits: Option<WaitsFor>,
    /// Its events, by position.
    pub events: Vec<Seq>,
    /// Whether it no longer counts, because the run was taken back.
    pub is_cut: bool,
    /// From when on it can continue.
    resumes: Option<Timestamp>,
}

impl Bar {
    /// One without parts.
    pub fn new(thing: Thing, name: &str, mark: Mark) -> Self {
        Self {
            thing,
            name: name.to_owned(),
            op: None,
            mark,
            parts: Vec::new(),
            attempts: 0,
            failure: None,
            child: None,
            by: None,
            waits: None,
            events: Vec::new(),
            is_cut: false,
            resumes: None,
        }
    }

    fn of(op: &Op) -> Self {
        Self { op: Some(op.clone()), ..Self::new(Thing::of(op.kind), &op.name, Mark::Open) }
    }

    /// Its name; of the second operation with that name on, with a number.
    pub fn label(&self) -> String {
        match &self.op {
            Some(op) if op.occurrence > 0 => format!("{} #{}", self.name, op.occurrence + 1),
            Some(_) | None => self.name.clone(),
        }
    }

    /// How long it worked; if it never did, how long it rested.
    pub fn took_ms(&self) -> u64 {
        let works = self.parts.iter().any(|part| part.kind != Kind::Rest);
        let counted = self.parts.iter().filter(|part| !works || part.kind != Kind::Rest);
        counted.map(Part::ms).sum()
    }

    /// What it waits for, in words; `until` says when that ends.
    pub fn waiting(&self, until: impl FnOnce(Timestamp) -> String) -> Option<String> {
        let waits = self.waits.as_ref()?;
        let until = waits.until.map(until);
        Some(match (self.mark, waits.kind.as_str(), until) {
            (Mark::Retrying, _, Some(until)) | (_, "step", Some(until)) => format!("next attempt {until}"),
            (_, "lane", _) => "waits to be let in".to_owned(),
            (_, "sleep", Some(until)) => format!("wakes {until}"),
            (_, "token", Some(until)) => format!("expires {until}"),
            (_, _, Some(until)) => format!("times out {until}"),
            (_, _, None) => "waits".to_owned(),
        })
    }

    /// Takes an event; gives whether it was the last one. `edge` is when the event before it was recorded.
    fn take(&mut self, event: &Event, at: Timestamp, edge: Timestamp) -> bool {
        match event {
            Event::StepBegun { .. } | Event::ChildInvoked { .. } => self.resumes = Some(at),
            Event::StepLetIn { since, .. } => {
                self.parts.push(Part::rest(since.unwrap_or(edge), at));
                self.resumes = Some(at);
            }
            Event::StepRetrying { attempt, failure, retry_at, took_ms, .. } => {
                let from = self.began(at, *took_ms, edge);
                self.parts.push(Part { from, to: at, kind: Kind::Failed });
                self.parts.push(Part::rest(at, *retry_at));
                (self.resumes, self.attempts, self.mark) = (Some(*retry_at), *attempt, Mark::Retrying);
                self.failure = Some(failure.clone());
            }
            Event::StepFinished { attempt, outcome, took_ms, .. } => {
                let from = self.began(at, *took_ms, edge);
                // A person may have cut the pause before it short.
                for part in &mut self.parts {
                    part.to = part.to.min(at);
                }
                self.attempts = *attempt;
                let kind = self.end(outcome, Kind::Work);
                self.parts.push(Part { from, to: at, kind });
                return true;
            }
            Event::TimerFired { op, since } => {
                self.parts.push(Part::rest(since.unwrap_or(edge), at));
                self.mark = if op.kind == OpKind::Wait { Mark::TimedOut } else { Mark::Slept };
                return true;
            }
            Event::ChildStarted { run, .. } => {
                self.parts.push(Part::rest(self.resumes.unwrap_or(at), at));
                (self.child, self.mark) = (Some(run.clone()), Mark::Done);
                return true;
            }
            Event::ChildFinished { run, outcome, .. } => {
                self.parts.push(Part::rest(self.resumes.unwrap_or(edge).min(at), at));
                self.child.clone_from(run);
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
                (self.mark, self.failure) = (Mark::Done, None);
                worked
            }
            Outcome::Err(failure) => {
                (self.mark, self.failure) = (Mark::Failed, Some(failure.clone()));
                Kind::Failed
            }
        }
    }

    fn began(&self, ended: Timestamp, took_ms: Option<u64>, edge: Timestamp) -> Timestamp {
        took_ms.map_or_else(
            || self.resumes.unwrap_or(edge).min(ended),
            |ms| Timestamp::from_millis(ended.as_millis().saturating_sub(ms)),
        )
    }
}

/// A bar that moves with the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// The place of the recorded bar that it stands for; a new one has none.
    pub instead_of: Option<usize>,
    /// As it is now.
    pub bar: Bar,
}

/// What a history tells, whatever the time is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// When it begins.
    pub begins: Timestamp,
    /// When the last event was recorded.
    pub edge: Timestamp,
    /// In the order in which the history first tells of them.
    pub bars: Vec<Bar>,
    /// The places of those that have not ended.
    open: BTreeMap<Op, usize>,
}

impl Recording {
    /// One without events.
    pub fn of(run: &RunView) -> Self {
        let begins = run.life.map_or(run.created_at, |life| life.began_at);
        Self { begins, edge: begins, bars: Vec::new(), open: BTreeMap::new() }
    }

    /// Takes the next event of the history. One that is `cut` no longer counts.
    pub fn take(&mut self, seq: Seq, at: Timestamp, event: &Event, is_cut: bool) {
        // A life begins with the signals that the one before it has not taken.
        self.begins = self.begins.min(at);
        let edge = self.edge;
        self.edge = edge.max(at);
        let op = match event {
            Event::StepFinished { op, .. }
            | Event::StepRetrying { op, .. }
            | Event::StepBegun { op }
            | Event::StepLetIn { op, .. }
            | Event::TimerFired { op, .. }
            | Event::ChildInvoked { op, .. }
            | Event::ChildStarted { op, .. }
            | Event::ChildFinished { op, .. } => op,
            Event::SignalReceived { name, since, by, .. } => {
                let mut bar = Bar::new(Thing::Signal, name, Mark::Signal);
                // Nothing waited for it unless the journal says so.
                bar.parts.push(Part::rest(since.unwrap_or(at), at));
                (bar.by, bar.is_cut, bar.events) = (by.clone(), is_cut, vec![seq]);
                self.bars.push(bar);
                return;
            }
        };
        let bars = &mut self.bars;
        let place = *self.open.entry(op.clone()).or_insert_with(|| {
            bars.push(Bar::of(op));
            bars.len() - 1
        });
        let Some(bar) = bars.get_mut(place) else { return };
        bar.events.push(seq);
        bar.is_cut = is_cut;
        if bar.take(event, at, edge) {
            self.open.remove(op);
        }
    }

    /// When it ends, or how far it has come.
    pub fn ends(&self, run: &RunView, now: Timestamp) -> Timestamp {
        run.ended_at.unwrap_or(now).max(self.edge)
    }

    /// What the run does, or waits for, at this moment.
    pub fn moving(&self, run: &RunView, why: Option<&Why>, now: Timestamp) -> Vec<Moving> {
        if run.status.is_terminal() {
            return Vec::new();
        }
        let now = self.ends(run, now);
        let waits = why.map(|why| why.waits_for.as_slice()).unwrap_or_default();
        // An event that cancels is waited for as long as the run lives.
        let shown = waits.iter().filter(|wait| wait.kind != "cancel_on");
        let mut moving: Vec<Moving> = shown.map(|wait| self.waiting(wait, now)).collect();
        if run.status == Status::Running {
            // The history may know already that a step has ended that was still under way when the run was read.
            let working = run.working.iter().filter(|step| self.is_open(&step.op));
            moving.extend(working.map(|step| self.working(step, now)));
        }
        if moving.is_empty() && run.status == Status::Running {
            let mut bar = Bar::new(Thing::Step, "at work", Mark::Open);
            bar.parts.push(Part { from: self.edge, to: now, kind: Kind::Work });
            moving.push(Moving { instead_of: None, bar });
        }
        moving
    }

    fn is_open(&self, op: &Op) -> bool {
        self.open.contains_key(op) || !self.bars.iter().any(|bar| !bar.is_cut && bar.op.as_ref() == Some(op))
    }

    fn working(&self, step: &StepAtWork, now: Timestamp) -> Moving {
        let known = self.open.get(&step.op).and_then(|place| Some((*place, self.bars.get(*place)?)));
        let (instead_of, mut bar) = match known {
            Some((place, bar)) => (Some(place), bar.clone()),
            None => (None, Bar::of(&step.op)),
        };
        // A person may have cut the pause before it short.
        for part in &mut bar.parts {
            part.to = part.to.min(step.since);
        }
        (bar.mark, bar.attempts) = (Mark::Open, step.attempt);
        bar.parts.push(Part { from: step.since, to: now.max(step.since), kind: Kind::Work });
        Moving { instead_of, bar }
    }

    fn waiting(&self, wait: &WaitsFor, now: Timestamp) -> Moving {
        let is_it = |op: &Op| op.kind.as_str() == wait.kind && op.name == wait.name;
        let known = self.open.iter().filter(|(op, _)| is_it(op)).map(|(_, place)| *place).max();
        if let Some((place, bar)) = known.and_then(|place| Some((place, self.bars.get(place)?))) {
            let mut bar = bar.clone();
            bar.waits = Some(wait.clone());
            if bar.mark != Mark::Retrying {
                bar.parts.push(Part::rest(bar.resumes.unwrap_or(self.edge), now));
            }
            return Moving { instead_of: Some(place), bar };
        }
        let mut bar = Bar::new(Thing::awaited(&wait.kind), &wait.name, Mark::Open);
        bar.waits = Some(wait.clone());
        bar.parts.push(Part::rest(wait.since.unwrap_or(self.edge), now));
        Moving { instead_of: None, bar }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(status: &str) -> RunView {
        let view = json!({
            "id": "default-1-3-1-bvyaw3bemryy", "workflow": "greet", "status": status,
            "created_at": 1_000, "head": 0, "activations": 1,
        });
        serde_json::from_value(view).expect("a run")
    }

    fn recording(list: &[(u64, Value)]) -> Recording {
        let mut recording = Recording::of(&run("running"));
        for (seq, (at, event)) in (1..).zip(list) {
            let event: Event = serde_json::from_value(event.clone()).expect("an event");
            recording.take(Seq(seq), Timestamp::from_millis(*at), &event, false);
        }
        recording
    }

    fn retrying() -> Value {
        json!({"step_retrying": {"op": "step:0:charge", "attempt": 1, "took_ms": 100,
            "failure": {"message": "declined"}, "retry_at": 3_000}})
    }

    fn finished(op: &str, took_ms: Option<u64>) -> Value {
        json!({"step_finished": {"op": op, "attempt": 1, "outcome": {"ok": 1}, "took_ms": took_ms}})
    }

    fn spans(bar: &Bar) -> Vec<(u64, u64, Kind)> {
        bar.parts.iter().map(|part| (part.from.as_millis(), part.to.as_millis(), part.kind)).collect()
    }

    #[test]
    fn steps_under_way_are_bars_until_the_history_says_that_they_have_ended() {
        let mut run = run("running");
        let names = |run: &RunView, recording: &Recording| -> Vec<_> {
            let moving = recording.moving(run, None, Timestamp::from_millis(9_000));
            moving.into_iter().map(|it| (it.instead_of, it.bar.name.clone(), it.bar.took_ms())).collect()
        };
        assert_eq!(names(&run, &recording(&[])), [(None, "at work".to_owned(), 8_000)]);
        let working = json!([{"op": "step:0:a", "attempt": 1, "since": 8_000},
            {"op": "step:0:charge", "attempt": 2, "since": 5_000}]);
        run.working = serde_json::from_value(working).expect("steps");
        let charge = |place| (place, "charge".to_owned(), 4_000);
        assert_eq!(names(&run, &recording(&[])), [(None, "a".to_owned(), 1_000), charge(None)]);
        // It goes on where its first attempt has failed, which took 100 ms.
        let told = recording(&[(2_000, retrying()), (8_500, finished("step:0:a", Some(500)))]);
        assert_eq!(names(&run, &told), [(Some(0), "charge".to_owned(), 4_100)]);
    }

    #[test]
    fn a_retried_step_is_one_bar_whose_pause_ends_with_the_next_attempt() {
        // A person had it tried before its time.
        let recording = recording(&[(1_200, retrying()), (2_050, finished("step:0:charge", Some(50)))]);
        let [bar] = recording.bars.as_slice() else { panic!("{recording:?}") };
        let wanted = [(1_100, 1_200, Kind::Failed), (1_200, 2_050, Kind::Rest), (2_000, 2_050, Kind::Work)];
        assert_eq!(spans(bar), wanted);
        assert_eq!((bar.mark, bar.took_ms(), &bar.failure), (Mark::Done, 150, &None));
    }

    #[test]
    fn a_journal_without_durations_is_drawn_from_event_to_event() {
        let list = [(1_200, finished("step:0:a", None)), (1_500, finished("step:0:b", None))];
        let recording = recording(&list);
        let drawn: Vec<_> = recording.bars.iter().map(spans).collect();
        assert_eq!(drawn, [[(1_000, 1_200, Kind::Work)], [(1_200, 1_500, Kind::Work)]]);
    }

    #[test]
    fn what_a_run_waits_for_continues_its_bar_or_is_a_new_one() {
        let recording = recording(&[(1_200, retrying())]);
        let why = json!({"status": "sleeping", "because": "…", "waits_for": [
            {"kind": "step", "name": "charge", "until": 3_000},
            {"kind": "wait", "name": "decision", "until": 9_000, "since": 1_100},
            {"kind": "cancel_on", "name": "order/cancelled"},
        ]});
        let why: Why = serde_json::from_value(why).expect("why");
        let moving = recording.moving(&run("sleeping"), Some(&why), Timestamp::from_millis(2_000));
        let said: Vec<_> = moving
            .iter()
            .map(|moving| {
                (moving.instead_of, moving.bar.waiting(|until| format!("at {}", until.as_millis())))
            })
            .collect();
        assert_eq!(
            said,
            [(Some(0), Some("next attempt at 3000".into())), (None, Some("times out at 9000".into()))]
        );
        assert_eq!(spans(&moving[1].bar), [(1_100, 2_000, Kind::Rest)]);
    }

    #[test]
    fn a_run_at_work_has_a_bar_until_now_and_one_that_ended_has_none() {
        let recording = recording(&[(1_200, finished("step:0:a", Some(10)))]);
        let now = Timestamp::from_millis(5_000);
        let moving = recording.moving(&run("running"), None, now);
        let [Moving { instead_of: None, bar }] = moving.as_slice() else { panic!("{moving:?}") };
        assert_eq!((bar.name.as_str(), spans(bar)), ("at work", vec![(1_200, 5_000, Kind::Work)]));
        assert_eq!(recording.moving(&run("completed"), None, now), []);
    }

    #[test]
    fn what_was_taken_back_and_done_again_is_two_bars() {
        let mut recording = Recording::of(&run("running"));
        let event: Event = serde_json::from_value(finished("step:0:a", Some(10))).expect("an event");
        recording.take(Seq(1), Timestamp::from_millis(1_100), &event, true);
        recording.take(Seq(2), Timestamp::from_millis(1_200), &event, false);
        let cut: Vec<_> = recording.bars.iter().map(|bar| bar.is_cut).collect();
        assert_eq!(cut, [true, false]);
    }
}
