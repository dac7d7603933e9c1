//! Starts that do not each become a run: singleton, debounce and batch.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::{
    cell::{
        ALARM_SLICE, Action, Cell, Chance, Joins, KeyRow, NewRun, Rows as _, Started, StartedAs,
        TriggeredRun, joins_by,
    },
    object::{Fault, Hosted as _, Machine as _, Receipt},
    run::{CallEnd, INVOCATION_KEPT_MS, Run},
};
use stepwell_protocol::{
    Code, Epoch, Payload, Place, RunId, Seq,
    lane::{Flow, StartRule},
    program::{Dispatch, Then},
    rest::Status,
    topic::Triggered,
};

use crate::{Memory, at, calls, children::place, memory::Failed, new_run, said, unreadable::asleep};

const BATCH: StartRule = StartRule::Batch { key: None, max: 3, wait_ms: 1_000 };
const DEBOUNCE: StartRule =
    StartRule::Debounce { key: None, wait_ms: 1_000, max_ms: Some(2_500), leading: false };
const LEADING: StartRule = StartRule::Debounce { key: None, wait_ms: 1_000, max_ms: None, leading: true };
const SINGLETON: StartRule = StartRule::Singleton { key: None, cancel: false };
const REPLACED: StartRule = StartRule::Singleton { key: None, cancel: true };

fn flow(rule: StartRule) -> Box<Flow> {
    Box::new(Flow { starts: Some(rule), ..Flow::default() })
}

fn number(input: u64) -> Payload {
    Payload::encode(&input).expect("JSON")
}

fn new(rule: &StartRule, input: u64) -> NewRun {
    let (flow, input) = (Some(flow(rule.clone())), number(input));
    let key = joins_by("w", flow.as_deref(), &input).expect("it has a rule");
    NewRun { flow, input, joins: Some(Joins { key, to: None, asks: false }), ..new_run(None) }
}

fn start(cell: &mut Cell, rows: &Memory, ms: u64, new: NewRun) -> (StartedAs, RunId) {
    let Started { run, how } = cell.start(rows, at(ms), new).expect("it is accepted");
    (how, run.id)
}

fn input(rows: &Memory, run: &RunId) -> String {
    rows.input(run.number).expect("it is there").into_text()
}

/// A run whose program is called returns.
fn finish(cell: &mut Cell, rows: &Memory, ms: u64, number: u64) {
    let run = rows.get(number);
    let commit = said(run.head, vec![], Then::Complete { output: Payload::null() });
    cell.commit(rows, at(ms), number, run.epoch, commit, 1).expect("in turn");
    cell.call_ended(rows, at(ms), number, run.epoch, CallEnd::Returned).expect("it is recorded");
}

#[test]
fn a_batch_begins_when_it_is_full_or_its_time_has_come() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let (how, first) = start(&mut cell, &rows, 0, new(&BATCH, 1));
    assert_eq!((how, calls(&mut cell).len()), (StartedAs::New, 0));
    assert_eq!(start(&mut cell, &rows, 999, new(&BATCH, 2)), (StartedAs::Joined, first.clone()));
    assert_eq!(calls(&mut cell).len(), 0);
    // Another instance knows as much.
    let mut cell = Cell::new(4);
    cell.alarm(&rows, at(999)).expect("nothing is due");
    assert_eq!(start(&mut cell, &rows, 999, new(&BATCH, 3)), (StartedAs::Joined, first.clone()));
    assert_eq!(calls(&mut cell), [(first.number, Epoch(1))], "it is full");
    assert_eq!(input(&rows, &first), "[1,2,3]");
    let (how, second) = start(&mut cell, &rows, 1_000, new(&BATCH, 4));
    assert_eq!(how, StartedAs::New);
    assert_ne!(second, first);
    cell.alarm(&rows, at(2_000)).expect("it is due");
    assert_eq!(calls(&mut cell), [(second.number, Epoch(1))], "its time has come");
    assert_eq!(input(&rows, &second), "[4]");
    assert_eq!(start(&mut cell, &rows, 2_000, new(&BATCH, 5)).0, StartedAs::New);
}

#[test]
fn a_batch_that_would_not_fit_into_a_row_begins_another() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let big = |text: &str| NewRun {
        input: Payload::encode(&text.repeat(1_000_000)).expect("JSON"),
        ..new(&BATCH, 0)
    };
    let (_, first) = start(&mut cell, &rows, 0, big("a"));
    let (how, second) = start(&mut cell, &rows, 1, big("b"));
    assert_eq!(how, StartedAs::New);
    assert_eq!(start(&mut cell, &rows, 2, new(&BATCH, 1)), (StartedAs::Joined, second));
    cell.alarm(&rows, at(1_000)).expect("it is due");
    assert_eq!(calls(&mut cell), [(first.number, Epoch(1))]);
}

#[test]
fn a_debounced_run_begins_with_the_last_input_when_no_other_start_comes() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let new = |input| NewRun { timeout_ms: Some(500), ..new(&DEBOUNCE, input) };
    let (_, first) = start(&mut cell, &rows, 0, new(1));
    for (ms, input) in [(900, 2), (1_800, 3)] {
        assert_eq!(start(&mut cell, &rows, ms, new(input)), (StartedAs::Joined, first.clone()));
    }
    let run = rows.get(first.number);
    assert_eq!(run.begins_at(), Some(at(2_500)), "it does not wait for longer than that");
    assert_eq!(run.deadline, Some(at(3_000)));
    let why = cell.why(&rows, at(1_900), &first).expect("it is there");
    assert_eq!(why.because, "It starts at 2023-11-14T22:13:22Z, and has 3 starts so far.");
    cell.alarm(&rows, at(2_499)).expect("nothing is due");
    assert_eq!(calls(&mut cell).len(), 0);
    cell.alarm(&rows, at(2_500)).expect("it is due");
    assert_eq!(calls(&mut cell), [(first.number, Epoch(1))]);
    assert_eq!(input(&rows, &first), "3");
    assert_eq!(
        start(&mut cell, &rows, 2_501, new(4)).0,
        StartedAs::New,
        "while it works, the next one gathers"
    );
}

#[test]
fn a_run_that_was_cancelled_or_paused_while_it_gathers_takes_no_more_starts() {
    for action in [Action::Cancel, Action::Pause] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let (_, first) = start(&mut cell, &rows, 0, new(&BATCH, 1));
        cell.act(&rows, at(1), &first, "ada", action).expect("it is done");
        assert_eq!(start(&mut cell, &rows, 2, new(&BATCH, 2)).0, StartedAs::New);
    }
}

#[test]
fn a_leading_debounce_begins_at_once_and_skips_until_it_is_quiet() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let (_, first) = start(&mut cell, &rows, 0, new(&LEADING, 1));
    assert_eq!(calls(&mut cell), [(first.number, Epoch(1))]);
    finish(&mut cell, &rows, 10, first.number);
    for ms in [900, 1_800, 2_700] {
        assert_eq!(start(&mut cell, &rows, ms, new(&LEADING, 2)), (StartedAs::Skipped, first.clone()));
    }
    assert_eq!(rows.get(first.number).status(), Status::Completed);
    let (how, _) = start(&mut Cell::new(4), &rows, 3_700, new(&LEADING, 3));
    assert_eq!(how, StartedAs::New);
}

#[test]
fn of_a_singleton_there_is_one_run_until_it_ends() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let (_, first) = start(&mut cell, &rows, 0, NewRun { retention_ms: Some(1_000), ..new(&SINGLETON, 1) });
    assert_eq!(start(&mut Cell::new(4), &rows, 1, new(&SINGLETON, 2)), (StartedAs::Skipped, first.clone()));
    assert_eq!(input(&rows, &first), "1");
    finish(&mut cell, &rows, 2, first.number);
    let (how, second) = start(&mut cell, &rows, 3, new(&SINGLETON, 3));
    assert_eq!(how, StartedAs::New);
    // The key stays with the second one when the first one is deleted.
    for ms in [100_000, 200_000, 300_000] {
        cell.alarm(&rows, at(ms)).expect("the rows can be read");
    }
    assert_eq!(rows.run(first.number).map(|run| run.is_none()), Ok(true));
    assert_eq!(start(&mut cell, &rows, 300_001, new(&SINGLETON, 4)), (StartedAs::Skipped, second));
}

#[test]
fn a_start_that_replaces_cancels_the_run_of_before() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let (_, first) = start(&mut cell, &rows, 0, new(&REPLACED, 1));
    let (how, second) = start(&mut cell, &rows, 1, new(&REPLACED, 2));
    assert_eq!(how, StartedAs::New);
    assert_eq!(rows.get(first.number).status(), Status::Cancelled);
    assert_eq!(rows.get(second.number).status(), Status::Running);
}

#[test]
fn a_start_that_comes_again_counts_once() {
    for key in [None, Some("k")] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let keyed = |input: u64, key: Option<String>| {
            let key = key.map(|key| KeyRow { key, fingerprint: input.to_string() });
            NewRun { key, ..new(&BATCH, input) }
        };
        let first = keyed(1, key.map(|key| format!("{key}1")));
        let second = keyed(2, key.map(|key| format!("{key}2")));
        let (_, run) = start(&mut cell, &rows, 0, first.clone());
        start(&mut cell, &rows, 1, second.clone());
        for new in [first.clone(), second.clone()] {
            assert_eq!(start(&mut Cell::new(4), &rows, 2, new).1, run);
        }
        assert_eq!(input(&rows, &run), "[1,2]");
        if key.is_some() {
            let other = keyed(3, Some("k2".into()));
            let Err(Fault::Rejected(problem)) = cell.start(&rows, at(3), other) else {
                panic!("it is refused")
            };
            assert_eq!(problem.code, Code::IdempotencyKeyReused);
        }
    }
}

#[test]
fn where_starts_met_before_the_pool_grew_they_meet_until_there_is_no_run_to_join() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let next = Place { generation: 2, ..place(0) };
    let sent_on = |input| {
        let mut new = new(&BATCH, input);
        new.joins.as_mut().expect("it joins").to = Some(next.clone());
        new
    };
    let (_, first) = start(&mut cell, &rows, 0, new(&BATCH, 1));
    assert_eq!(start(&mut cell, &rows, 1, sent_on(2)), (StartedAs::Joined, first));
    for (ms, new) in [(1_000, sent_on(3)), (1_001, new(&BATCH, 4))] {
        let Err(Fault::Moved(to)) = cell.start(&rows, at(ms), new) else { panic!("it is sent on") };
        assert_eq!(to, next, "also by those who do not know that the pool has grown");
    }
}

#[test]
fn what_was_gathered_by_another_rule_is_left_as_it_is() {
    for (before, after) in [(BATCH, DEBOUNCE), (DEBOUNCE, BATCH), (BATCH, SINGLETON), (LEADING, DEBOUNCE)] {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let (_, first) = start(&mut cell, &rows, 0, new(&before, 1));
        let gathered = input(&rows, &first);
        let (how, second) = start(&mut cell, &rows, 1, new(&after, 2));
        assert_eq!(how, StartedAs::New, "{before:?} {after:?}");
        assert_ne!(first, second);
        assert_eq!(input(&rows, &first), gathered, "{before:?} {after:?}");
    }
}

#[test]
fn a_start_that_has_filled_a_batch_is_known_when_the_next_one_gathers() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let items: Vec<_> = (1..=3).map(|number| new(&BATCH, number)).collect();
    let (_, first) = start(&mut cell, &rows, 0, items[0].clone());
    for item in &items[1..] {
        start(&mut cell, &rows, 1, item.clone());
    }
    let (_, second) = start(&mut cell, &rows, 2, new(&BATCH, 4));
    let mut cell = Cell::new(4);
    start(&mut cell, &rows, 3, items[2].clone());
    assert_eq!((input(&rows, &first), input(&rows, &second)), ("[1,2,3]".into(), "[4]".into()));
}

#[test]
fn whoever_only_asks_starts_nothing() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let keyed = |number: u64, asks| {
        let mut new = new(&BATCH, number);
        new.joins.as_mut().expect("it joins").asks = asks;
        NewRun { key: Some(KeyRow { key: format!("k{number}"), fingerprint: "f".into() }), ..new }
    };
    let (_, first) = start(&mut cell, &rows, 0, keyed(1, false));
    start(&mut cell, &rows, 0, keyed(2, false));
    for number in [1, 2] {
        assert_eq!(start(&mut cell, &rows, 1, keyed(number, true)).1, first);
    }
    let Err(Fault::Rejected(problem)) = cell.start(&rows, at(1), keyed(3, true)) else {
        panic!("nothing is there")
    };
    assert_eq!(problem.code, Code::RunNotFound);
    assert_eq!((rows.runs(), input(&rows, &first)), (1, "[1,2]".into()));
}

#[test]
fn a_cell_that_has_no_room_for_the_new_run_does_not_cancel_the_one_of_before() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let (_, first) = start(&mut cell, &rows, 0, new(&REPLACED, 1));
    rows.bytes.set(1_000_000);
    let mut cell = Cell::new(4).with_storage(1_000_000);
    let Err(Fault::Rejected(problem)) = cell.start(&rows, at(1), new(&REPLACED, 2)) else {
        panic!("it is full")
    };
    assert_eq!((problem.code, rows.get(first.number).status()), (Code::CellFull, Status::Running));
}

#[test]
fn a_run_for_which_starts_are_skipped_is_kept_until_that_is_over() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let day = StartRule::Debounce { key: None, wait_ms: 86_400_000, max_ms: None, leading: true };
    let (_, first) = start(&mut cell, &rows, 0, NewRun { retention_ms: Some(1_000), ..new(&day, 1) });
    finish(&mut cell, &rows, 10, first.number);
    for ms in [100_000, 200_000, 300_000] {
        cell.alarm(&rows, at(ms)).expect("the rows can be read");
    }
    assert_eq!(start(&mut cell, &rows, 300_001, new(&day, 2)).0, StartedAs::Skipped);
}

#[test]
fn a_run_of_a_singleton_does_not_live_again_beside_another() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let (_, first) = start(&mut cell, &rows, 0, new(&REPLACED, 1));
    let (_, second) = start(&mut cell, &rows, 1, new(&REPLACED, 2));
    let restart = Action::Restart { from: None };
    let Err(Fault::Rejected(problem)) = cell.act(&rows, at(2), &first, "ada", restart.clone()) else {
        panic!("the other one lives")
    };
    assert_eq!(problem.code, Code::WrongStatus);
    finish(&mut cell, &rows, 3, second.number);
    cell.act(&rows, at(4), &first, "ada", restart).expect("it is alone");
}

fn of_event(rule: &StartRule, event: u64, key: &str) -> TriggeredRun {
    let input = Payload::from_text(format!(r#"{{"key":"{key}","event":{event}}}"#)).expect("JSON");
    let flow = Some(flow(rule.clone()));
    let joins = joins_by("w", flow.as_deref(), &input).map(|key| Joins { key, to: None, asks: false });
    TriggeredRun {
        callback: None,
        flow,
        joins,
        triggered: Triggered { topic: "order".into(), trigger: "w".into(), event },
        workflow: "w".into(),
        input,
        tags: vec![],
        spare: None,
        dispatch: Dispatch::Direct,
        timeout_ms: None,
        retention_ms: Some(1_000),
        retention_is_default: false,
    }
}

fn ask(
    cell: &mut Cell,
    rows: &Memory,
    ms: u64,
    rule: &StartRule,
    event: u64,
) -> Result<Receipt, Fault<Failed>> {
    let chance = Chance { suffix: RunId::suffix_from(event + 100 * ms), seed: 1 };
    cell.start_triggered(rows, at(ms), place(0), chance, of_event(rule, event, "a"))
}

#[test]
fn an_event_whose_start_is_skipped_is_refused_and_one_that_joins_is_known_for_a_week() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let Ok(Receipt::Started { run }) = ask(&mut cell, &rows, 0, &BATCH, 1) else { panic!("it is started") };
    assert_eq!(ask(&mut cell, &rows, 1, &BATCH, 2).ok(), Some(Receipt::Joined { run: run.clone() }));
    cell.alarm(&rows, at(1_000)).expect("it is due");
    finish(&mut cell, &rows, 1_001, run.number);
    let late = INVOCATION_KEPT_MS - 1;
    assert_eq!(ask(&mut cell, &rows, late, &BATCH, 2).ok(), Some(Receipt::Joined { run }));
    let started = ask(&mut cell, &rows, late + 1, &SINGLETON, 3);
    let Ok(Receipt::Started { run }) = started else { panic!("{started:?}") };
    drop(cell.take_orders());
    let Err(Fault::Rejected(problem)) = ask(&mut cell, &rows, late + 2, &SINGLETON, 4) else {
        panic!("it is skipped")
    };
    assert_eq!(problem.code, Code::StartSkipped);
    assert!(cell.take_orders().arm.is_some(), "only the instance that has the name may say so");
    assert!(problem.detail.contains(&run.to_string()), "{}", problem.detail);
}

/// Events of five keys, some of them several times, to a cell whose instance is replaced and whose storage fails at
/// random: each event is in one run, and that run has the events of one key only.
#[test]
fn each_event_is_in_exactly_one_run_however_often_it_comes_and_the_cell_dies() {
    let key = Some("input.key".to_owned());
    let batch = StartRule::Batch { key: key.clone(), max: 4, wait_ms: 500 };
    let debounce = StartRule::Debounce { key, wait_ms: 300, max_ms: Some(900), leading: false };
    for (seed, rule) in (0..20_u64).flat_map(|seed| [(seed, &batch), (seed, &debounce)]) {
        let mut state = (seed + 1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let mut answers: BTreeMap<u64, RunId> = BTreeMap::new();
        let mut asked: Vec<u64> = Vec::new();
        let mut ms = 0;
        for step in 0..200_u64 {
            ms += draw(60);
            if draw(12) == 0 {
                cell = Cell::new(4);
                cell.alarm(&rows, at(ms)).ok();
            }
            let is_broken = draw(12) == 0;
            rows.fails.set(is_broken);
            let again = usize::try_from(draw(1_000)).expect("small");
            let event = if draw(3) == 0 && !asked.is_empty() { asked[again % asked.len()] } else { step };
            if !asked.contains(&event) {
                asked.push(event);
            }
            let of_key = ["a", "b", "c", "d", "e"][usize::try_from(event % 5).expect("small")];
            let chance = Chance { suffix: RunId::suffix_from(step), seed: step };
            let run = of_event(rule, event, of_key);
            let receipt = cell.start_triggered(&rows, at(ms), place(0), chance, run);
            rows.fails.set(false);
            if let Ok(Receipt::Started { run } | Receipt::Joined { run }) = receipt {
                let known = answers.entry(event).or_insert_with(|| run.clone());
                assert_eq!(*known, run, "seed {seed}: event {event}");
            }
            if is_broken {
                // What the storage did not take, nothing in memory may have.
                cell = Cell::new(4);
            }
            cell.alarm(&rows, at(ms)).expect("the rows can be read");
        }
        cell.alarm(&rows, at(ms + 10_000)).expect("all are due");
        let mut seen = BTreeSet::new();
        for number in 1..=rows.last_number().expect("it works") {
            let Some(Run { id, .. }) = rows.run(number).expect("it can be read") else { continue };
            let text = input(&rows, &id);
            let mut events = BTreeSet::new();
            let items: Vec<serde_json::Value> = match rule {
                StartRule::Batch { .. } => serde_json::from_str(&text).expect("a list"),
                StartRule::Singleton { .. } | StartRule::Debounce { .. } => {
                    vec![serde_json::from_str(&text).expect("an input")]
                }
            };
            assert!((1..=4).contains(&items.len()), "seed {seed}: {text}");
            for item in &items {
                assert_eq!(item["key"], items[0]["key"], "seed {seed}: {text}");
                let event = item["event"].as_u64().expect("a number");
                assert!(events.insert(event) && seen.insert(event), "seed {seed}: {event} is in two runs");
                assert!(answers.get(&event).is_none_or(|run| *run == id), "seed {seed}: {event}");
            }
        }
        if let StartRule::Batch { .. } = rule {
            assert!(answers.keys().all(|event| seen.contains(event)), "seed {seed}: one is lost");
        }
    }
}

#[test]
fn keys_that_cannot_be_forgotten_hold_up_no_run() {
    let count = 2 * ALARM_SLICE;
    let (rows, _) = asleep(count);
    rows.unbound.borrow_mut().insert("a".into(), at(10));
    rows.keeps_keys.set(true);
    let mut cell = Cell::new(count);
    for ms in 0..4 {
        cell.alarm(&rows, at(5_000 + ms)).expect("a key is not the storage");
    }
    let late = (1..=count as u64).filter(|number| rows.get(*number).head == Seq(0)).count();
    assert_eq!(late, 0, "their timers have not fired");
    // It is tried again after a while, not at once.
    let next = cell.take_orders().arm.expect("it has much to do");
    assert!(next > at(5_003), "{next:?}");
    rows.keeps_keys.set(false);
    cell.alarm(&rows, at(20_000)).expect("the rows can be read");
    assert!(rows.unbound.borrow().is_empty());
}
