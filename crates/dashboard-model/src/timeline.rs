//! A run's timeline as rows, with an axis that collapses idle time.

mod axis;

use std::{collections::BTreeSet, sync::Arc};

use stepwell_protocol::{
    Timestamp,
    rest::{HistoryEvent, RunView, Why},
    timeline::{self, Bar, Moving},
};

pub use self::axis::{Axis, Tick};
use crate::{shown, when};

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What tells it apart from all others, also in an address.
    pub key: String,
    /// Its name for people.
    pub label: String,
    /// An error, or what it waits for.
    pub note: String,
    /// What it shows.
    pub bar: Bar,
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
    told: timeline::Recording,
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
        let mut told = timeline::Recording::of(run);
        for event in events {
            told.take(event.seq, event.at, &event.event, event.cut);
        }
        let mut keys = BTreeSet::new();
        let mut row = |bar: &Bar| Arc::new(Row::new(key(bar, &mut keys), bar.clone(), told.edge));
        let rows = told.bars.iter().map(&mut row).collect();
        Self { told, rows }
    }

    /// The timeline at this time. Shares all rows that do not move with the clock.
    pub fn until(&self, run: &RunView, why: Option<&Why>, now: Timestamp) -> Timeline {
        let ends = self.told.ends(run, now);
        let mut rows = self.rows.clone();
        for Moving { instead_of, bar } in self.told.moving(run, why, now) {
            if let Some(row) = instead_of.and_then(|place| rows.get_mut(place)) {
                *row = Arc::new(Row::new(row.key.clone(), bar, ends));
            } else {
                rows.push(Arc::new(Row::new(format!("~{}", rows.len()), bar, ends)));
            }
        }
        Timeline { begins: self.told.begins, ends, rows }
    }
}

impl Row {
    fn new(key: String, bar: Bar, now: Timestamp) -> Self {
        Self { key, label: shown::line(&bar.label()), note: note(&bar, now), bar }
    }
}

/// A key that no other row has. An operation can have several rows: a child that was started without waiting for it, and
/// what was taken back.
fn key(bar: &Bar, keys: &mut BTreeSet<String>) -> String {
    let first = bar.events.first().map_or(0, |seq| seq.0);
    let mut key = match &bar.op {
        Some(op) if !bar.is_cut => op.to_string(),
        Some(_) | None => format!("@{first}"),
    };
    if !keys.insert(key.clone()) {
        key = format!("{key}@{first}");
        keys.insert(key.clone());
    }
    key
}

fn note(bar: &Bar, now: Timestamp) -> String {
    let waiting = bar.waiting(|until| when::relative(until, now));
    let failed = bar.failure.as_ref().map(|failure| shown::line(&failure.message));
    match (waiting, failed) {
        (Some(waiting), Some(failed)) => format!("{waiting}: {failed}"),
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) if bar.mark == timeline::Mark::TimedOut => "timed out".to_owned(),
        (None, None) => bar.by.as_ref().map_or_else(String::new, |by| format!("by {}", shown::line(by))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use stepwell_protocol::timeline::{Kind, Mark, Part, Thing};

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
        let begins: Vec<_> = timeline.rows.iter().map(|row| row.bar.parts[0].from.as_millis()).collect();
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
        let kinds: Vec<_> = row.bar.parts.iter().map(|part| part.kind).collect();
        assert_eq!(kinds, [Kind::Failed, Kind::Rest, Kind::Work]);
        assert_eq!((row.bar.mark, row.bar.took_ms(), row.bar.events.len()), (Mark::Done, 150, 2));
        let timeline = drawn(&run("sleeping", None), &list[..1]);
        assert_eq!(timeline.rows[0].bar.mark, Mark::Retrying);
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
        let why = json!({"status": "waiting", "because": "It waits for signal 'decision'.",
            "waits_for": [{"kind": "wait", "name": "decision", "until": 70_000}]});
        let why: Why = serde_json::from_value(why).expect("why");
        let timeline = of(&run("waiting", None), [].iter(), Some(&why), at(10_000));
        let [row] = timeline.rows.as_slice() else { panic!("{timeline:?}") };
        assert_eq!((row.bar.thing, row.note.as_str()), (Thing::Wait, "times out in 1 min"));
        assert_eq!(row.bar.parts, [Part { from: at(1_000), to: at(10_000), kind: Kind::Rest }]);
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
        assert_eq!((one.rows.len(), one.rows[2].bar.took_ms(), other.rows[2].bar.took_ms()), (3, 800, 1_800));
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
                let mut bar = Bar::new(Thing::Step, "", Mark::Done);
                bar.parts.push(Part { from: at(*from), to: at(from + took), kind: Kind::Work });
                Arc::new(Row::new(String::new(), bar, at(0)))
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
