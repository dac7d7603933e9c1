//! A topic through everything that can go wrong around it, by chance and from a seed: crashes, lost and late answers, cells
//! that decline, a storage that refuses, a pool that grows. Whatever happens, an accepted event has one run for each
//! trigger in the end. And that what would break this is noticed: each planted bug is found.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use stepwell_protocol::{
    Code, Place, Problem, RunId, Timestamp,
    topic::{AcceptedStatus, NewEvent},
};

use super::{Bug, Memory, event, on, start_of};
use crate::{
    object::{Hosted as _, Machine as _},
    pools::Pool,
    topic::{EventStart, StartEnd, Topic, event_key},
};

/// How many worlds are tried.
const SEEDS: u64 = 150;

/// How many things happen in one.
const STEPS: u32 = 60;

struct Chaos {
    rows: Memory,
    topic: Topic,
    pool: &'static str,
    now: Timestamp,
    alarm: Option<Timestamp>,
    /// What cells are asked, and have not answered.
    asked: Vec<EventStart>,
    /// Answers that are late.
    late: Vec<(EventStart, StartEnd)>,
    /// The runs of each cell.
    runs: BTreeMap<(Place, String), u32>,
    /// The data of the events that were accepted, by their ids.
    accepted: BTreeMap<String, u64>,
    sent: u64,
    random: u64,
}

impl Chaos {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let rows = Memory::default();
        rows.bug.set(bug);
        rows.generation.set(1);
        let mut chaos = Self {
            rows,
            topic: load("4"),
            pool: "4",
            now: Timestamp::from_millis(1_000_000_000),
            alarm: None,
            asked: Vec::new(),
            late: Vec::new(),
            runs: BTreeMap::new(),
            accepted: BTreeMap::new(),
            sent: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for (id, when) in [("all", None), ("odd", Some("event.data.is_odd"))] {
            chaos
                .topic
                .put_trigger(&chaos.rows, chaos.now, "ada", id, on("order/*", when))
                .expect("a trigger");
        }
        chaos
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn step(&mut self) {
        match self.below(16) {
            0..4 => self.send(),
            4..8 => {
                if let Some(start) = self.pick() {
                    let run = self.start(&start);
                    self.answer(&start, StartEnd::Started(run));
                }
            }
            8 => {
                // The cell starts the run, and its answer is lost.
                if let Some(start) = self.pick() {
                    self.start(&start);
                    self.answer(&start, StartEnd::Failed);
                }
            }
            9 => {
                if let Some(start) = self.pick() {
                    let run = self.start(&start);
                    self.late.push((start, StartEnd::Started(run)));
                }
            }
            10 => {
                if let Some((start, end)) = self.late.pop() {
                    self.answer(&start, end);
                }
            }
            11 => self.decline(),
            12 => self.crash(),
            13 => self.rows.is_full.set(!self.rows.is_full.get()),
            14 => self.rows.loses_events.set(true),
            _ => {
                let ms = [10, 600, 6_000, 40_000][usize::try_from(self.below(4)).expect("small")];
                self.pass(ms);
            }
        }
        self.take_orders();
    }

    fn send(&mut self) {
        let count = self.below(3) + 1;
        let mut events: Vec<NewEvent> = Vec::new();
        for _ in 0..count {
            self.sent += 1;
            // Some ids come again.
            let id = match self.below(3) {
                0 => None,
                1 => Some(format!("id-{}", self.below(6))),
                _ => Some(format!("own-{}", self.sent)),
            };
            let data = json!({ "is_odd": self.sent % 2 == 1, "number": self.sent });
            events.push(event("order/paid", id.as_deref(), &data));
        }
        let (mark, first) = (format!("m{}", self.sent), self.sent + 1 - count);
        let Ok(answers) = self.topic.accept(&self.rows, self.now, &mark, None, events) else { return };
        for (number, answer) in (first..).zip(answers) {
            let id = answer.id.expect("it has an id");
            match answer.status {
                AcceptedStatus::Accepted => {
                    self.accepted.insert(id, number);
                }
                AcceptedStatus::Duplicate => {
                    self.accepted.entry(id).or_insert(number);
                }
                AcceptedStatus::Refused => panic!("a topic refuses no single event"),
            }
        }
    }

    fn pick(&mut self) -> Option<EventStart> {
        let count = u64::try_from(self.asked.len()).expect("few");
        let at = (count > 0).then(|| self.below(count))?;
        Some(self.asked.swap_remove(usize::try_from(at).expect("few")))
    }

    /// All cells say no for a while: long enough for a start to be parked.
    fn decline(&mut self) {
        for _ in 0..8 {
            while let Some(start) = self.pick() {
                let full = Problem::new(Code::LimitReached, "There are too many runs.");
                self.answer(&start, StartEnd::Declined(full));
            }
            self.pass(4_000);
        }
    }

    /// A cell starts a run, unless it knows its key.
    fn start(&mut self, start: &EventStart) -> RunId {
        let count = self.runs.entry((start.to.clone(), event_key(&start.triggered))).or_default();
        if *count == 0 || self.rows.has(Bug::StartWithoutKey) {
            *count += 1;
        }
        RunId { place: start.to.clone(), number: 1, suffix: RunId::suffix_from(1) }
    }

    fn answer(&mut self, start: &EventStart, end: StartEnd) {
        let _ = self.topic.answered(&self.rows, self.now, start, end);
        self.take_orders();
    }

    fn take_orders(&mut self) {
        let orders = self.topic.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        self.asked.extend(orders.own.into_iter().filter_map(start_of));
    }

    /// The instance dies. Its questions may have arrived. The next one is loaded by a request, or by the alarm.
    fn crash(&mut self) {
        for start in std::mem::take(&mut self.asked) {
            if self.below(2) == 0 {
                self.start(&start);
            }
        }
        self.late.clear();
        if self.below(4) == 0 {
            self.pool = "4,16";
            self.rows.generation.set(2);
        }
        self.topic = load(self.pool);
        if self.below(2) == 0 {
            let _ = self.topic.repair(&self.rows, self.now);
        }
        self.take_orders();
    }

    /// Time passes, and the alarm fires when it is due.
    fn pass(&mut self, ms: u64) {
        let until = self.now.plus_millis(ms);
        for _ in 0..200 {
            let Some(at) = self.alarm.filter(|at| *at <= until) else { break };
            self.alarm = None;
            self.now = self.now.max(at);
            let _ = self.topic.alarm(&self.rows, self.now);
            self.take_orders();
        }
        self.now = self.now.max(until);
    }

    /// Nothing goes wrong any more, for long enough. Says what is not as it should be.
    fn verdict(mut self) -> Option<String> {
        self.rows.is_full.set(false);
        let _ = self.topic.repair(&self.rows, self.now);
        self.take_orders();
        for _ in 0..600 {
            while let Some(start) = self.pick() {
                let run = self.start(&start);
                self.answer(&start, StartEnd::Started(run));
            }
            self.pass(500);
        }
        let events = self.rows.events.borrow();
        let stored: BTreeSet<_> = events.values().map(|event| event.id.clone()).collect();
        if stored.len() != events.len() {
            return Some("an id is stored twice".into());
        }
        if let Some(lost) = self.accepted.keys().find(|id| !stored.contains(*id)) {
            return Some(format!("{lost} was accepted, and is not there"));
        }
        let mut wanted = BTreeSet::new();
        for event in events.values() {
            let data: serde_json::Value = event.data.decode().expect("it is JSON");
            let triggers = if data["is_odd"] == true { &["all", "odd"][..] } else { &["all"] };
            wanted.extend(
                triggers.iter().map(|trigger| format!("\nevent\norder\n{trigger}\n{}", event.number)),
            );
        }
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for ((_, key), count) in &self.runs {
            *counts.entry(key).or_default() += count;
        }
        if let Some((key, count)) = counts.iter().find(|(_, count)| **count != 1) {
            return Some(format!("{key:?} has {count} runs"));
        }
        let started: BTreeSet<_> = counts.keys().map(|key| (*key).to_owned()).collect();
        (started != wanted)
            .then(|| format!("{:?}", wanted.symmetric_difference(&started).collect::<Vec<_>>()))
    }
}

fn load(pool: &str) -> Topic {
    Topic::new("order".into(), Pool::parse("default", pool).expect("a pool"))
}

fn first_violation(bug: Option<Bug>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let mut chaos = Chaos::new(seed, bug);
        for _ in 0..STEPS {
            chaos.step();
        }
        chaos.verdict().map(|why| (seed, why))
    })
}

#[test]
fn whatever_goes_wrong_each_accepted_event_starts_its_runs_once() {
    assert_eq!(first_violation(None), None);
}

#[test]
fn each_planted_bug_is_found() {
    for bug in [
        Bug::AckBeforeStored,
        Bug::ForgetIds,
        Bug::WatermarkAhead,
        Bug::ForgetParked,
        Bug::StartWithoutKey,
        Bug::ForgetGeneration,
    ] {
        assert!(first_violation(Some(bug)).is_some(), "{bug:?} was not noticed");
    }
}
