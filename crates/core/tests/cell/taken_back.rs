//! Pause, resume, retry and restart, as clients ask for them.

use stepwell_core::{
    cell::{Action, Cell, Order, Rows as _},
    object::{Fault, Hosted as _, Machine as _},
    run::{ACTS_MAX, CallEnd, Phase, Signal},
};
use stepwell_protocol::{
    Code, Epoch, Event, Failure, Op, OpKind, Payload, RunId, Seq,
    program::{Answer, Command, Commit, Open, Progress, Retry, Then},
    rest::{Deed, Status, StepName},
};

use crate::{Memory, at, new_run, said};

/// A cell with one run, and the program that it has called.
struct Bench {
    rows: Memory,
    cell: Cell,
    now_ms: u64,
    hashes: u64,
    id: RunId,
}

impl Bench {
    fn start(timeout_ms: Option<u64>) -> Self {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        let id = cell.start(&rows, at(0), new_run(timeout_ms)).expect("it is accepted").run.id;
        Self { rows, cell, now_ms: 0, hashes: 0, id }
    }

    /// What the program knows: all that counts.
    fn events(&self) -> Vec<(u32, Event)> {
        let (mut events, mut after) = (Vec::new(), Seq(0));
        loop {
            let page = self.rows.page(1, after).expect("it can be read");
            for record in &page.events {
                let event = serde_json::from_str(record.event.text()).expect("it is an event");
                if self.rows.get(1).counts(record.seq) {
                    events.push((record.seq.0, event));
                }
                after = record.seq;
            }
            if !page.more {
                return events;
            }
        }
    }

    /// The positions of what counts.
    fn counted(&self) -> Vec<u32> {
        self.events().iter().map(|(seq, _)| *seq).collect()
    }

    fn commit(&mut self, commands: Vec<Command>, then: Then) -> Answer {
        let base = Seq(self.counted().last().copied().unwrap_or_default());
        self.now_ms += 1;
        self.hashes += 1;
        let epoch = self.rows.get(1).epoch;
        let commit = said(base, commands, then);
        self.cell.commit(&self.rows, at(self.now_ms), 1, epoch, commit, self.hashes).expect("it is in turn")
    }

    fn fail(&mut self) {
        assert_eq!(self.commit(vec![], Then::Fail { failure: Failure::new("no") }), Answer::Stop);
        let epoch = self.rows.get(1).epoch;
        self.cell.call_ended(&self.rows, at(self.now_ms), 1, epoch, CallEnd::Returned).expect("it is known");
        let _ = self.cell.take_orders();
    }

    fn fail_since(&mut self, failed_since: Option<Seq>) {
        let base = Seq(self.counted().last().copied().unwrap_or_default());
        let epoch = self.rows.get(1).epoch;
        let commit = said(base, vec![], Then::Fail { failure: Failure::new("no") });
        let commit = Commit { failed_since, ..commit };
        self.cell.commit(&self.rows, at(self.now_ms), 1, epoch, commit, 99).expect("it is in turn");
        self.cell.call_ended(&self.rows, at(self.now_ms), 1, epoch, CallEnd::Returned).expect("it is known");
        let _ = self.cell.take_orders();
    }

    fn signal(&mut self, name: &str) {
        let (now, payload) = (at(self.now_ms), Payload::null());
        self.cell.signal(&self.rows, now, &self.id, Signal::new(name, payload)).expect("it is kept");
    }

    fn alarm_at(&mut self, ms: u64) {
        self.now_ms = ms;
        self.cell.alarm(&self.rows, at(ms)).expect("the rows can be read");
    }

    fn retry(&mut self) -> Result<(), Code> {
        code(self.cell.act(&self.rows, at(self.now_ms), &self.id, "root", Action::Retry))
    }

    fn restart(&mut self, from: Option<&Op>) -> Result<(), Code> {
        let from = from.cloned().map(|Op { name: step, occurrence, .. }| StepName { step, occurrence });
        code(self.cell.act(&self.rows, at(self.now_ms), &self.id, "root", Action::Restart { from }))
    }

    fn drop_signal(&mut self, seq: u32) -> Result<(), Code> {
        let action = Action::DropSignal { seq: Seq(seq) };
        code(self.cell.act(&self.rows, at(self.now_ms), &self.id, "root", action))
    }

    /// The cell dies: the next one knows only rows.
    fn crash(&mut self) {
        self.cell = Cell::new(4);
        self.alarm_at(self.now_ms + 10);
    }

    fn is_called(&mut self) -> bool {
        self.cell.take_orders().own.iter().any(|order| matches!(order, Order::Call { .. }))
    }
}

fn code(result: Result<(), Fault<crate::memory::Failed>>) -> Result<(), Code> {
    result.map_err(|fault| match fault {
        Fault::Rejected(problem) => problem.code,
        Fault::Storage(error) => panic!("{error:?}"),
        Fault::Moved(place) => panic!("it has no key that could be at {place}"),
    })
}

fn step(name: &str) -> Op {
    Op { kind: OpKind::Step, name: name.into(), occurrence: 0 }
}

fn ok(name: &str) -> Command {
    Command::StepSucceeded { op: step(name), attempt: 1, output: Payload::null(), took_ms: None }
}

fn no(name: &str, attempt: u32) -> Command {
    let retry = Retry { attempts: 2, ..Retry::default() };
    Command::StepFailed {
        op: step(name),
        attempt,
        failure: Failure::new("no"),
        retry,
        retry_after_ms: None,
        took_ms: None,
    }
}

fn go_on() -> Then {
    Then::Continue { open: None }
}

fn sleep() -> Then {
    let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
    Then::Suspend { open: vec![Open::Sleep { op, ms: 1_000 }] }
}

/// Fails at `charge`, which was tried twice; `stock` ran beside it.
fn failed_run() -> Bench {
    let mut bench = Bench::start(None);
    bench.commit(vec![ok("price")], go_on());
    bench.signal("early");
    bench.commit(vec![no("charge", 1)], go_on());
    bench.commit(vec![ok("stock")], go_on());
    bench.commit(vec![no("charge", 2)], go_on());
    bench.signal("late");
    bench.fail();
    assert_eq!(bench.counted(), [1, 2, 3, 4, 5, 6]);
    bench
}

#[test]
fn a_retried_run_forgets_the_attempts_of_its_failed_step_and_nothing_beside_them() {
    for crashes in [false, true] {
        let mut bench = failed_run();
        bench.retry().expect("it has failed");
        assert!(bench.is_called(), "its program is called at once");
        if crashes {
            bench.crash();
        }
        // The price, the early signal, the stock; and the late signal once more.
        assert_eq!(bench.counted(), [1, 2, 4, 7]);
        assert!(matches!(&bench.events()[3].1, Event::SignalReceived { name, .. } if name == "late"));
        assert!(
            matches!(bench.commit(vec![ok("charge")], go_on()), Answer::Go { news, .. } if news.len() == 1)
        );
        assert_eq!(bench.rows.history(1).len(), 8, "the history keeps all of it");
    }
}

/// Fails because `left` and `right` did, side by side; `lost` had failed before, and the run went on without it.
fn failed_side_by_side(failed_since: Option<Seq>) -> Bench {
    let mut bench = Bench::start(None);
    bench.commit(vec![no("lost", 2)], go_on());
    bench.commit(vec![ok("price")], go_on());
    bench.commit(vec![no("left", 1)], go_on());
    bench.commit(vec![no("right", 1)], go_on());
    bench.commit(vec![no("left", 2)], go_on());
    bench.commit(vec![ok("middle")], go_on());
    bench.commit(vec![no("right", 2)], go_on());
    bench.fail_since(failed_since);
    bench
}

#[test]
fn a_retry_takes_back_all_steps_that_failed_side_by_side() {
    let mut bench = failed_side_by_side(Some(Seq(5)));
    bench.retry().expect("it has failed");
    bench.crash();
    // The failure that it went on without, the price, the middle: none of them is run again.
    assert_eq!(bench.counted(), [1, 2, 6]);
    // It fails in the same way, and is retried again.
    for name in ["left", "right"] {
        bench.commit(vec![no(name, 2)], go_on());
    }
    bench.fail_since(Some(Seq(8)));
    bench.retry().expect("it has failed");
    assert_eq!(bench.counted(), [1, 2, 6]);
}

#[test]
fn a_retry_takes_back_the_last_failed_step_if_the_program_does_not_say_more() {
    let mut bench = failed_side_by_side(None);
    bench.retry().expect("it has failed");
    assert_eq!(bench.counted(), [1, 2, 3, 5, 6]);
}

#[test]
fn a_restarted_run_forgets_its_progress_and_a_retried_one_does_not() {
    for forgets in [false, true] {
        let mut bench = Bench::start(None);
        let progress = Some(Box::new(Progress { percent: 50.0, ..Progress::default() }));
        let commit = Commit { progress, ..said(Seq(0), vec![ok("price"), no("charge", 2)], go_on()) };
        bench.cell.commit(&bench.rows, at(1), 1, Epoch(1), commit, 77).expect("it is in turn");
        bench.fail();
        if forgets {
            bench.restart(Some(&step("charge"))).expect("it has ended");
        } else {
            bench.retry().expect("it has failed");
        }
        bench.crash();
        assert_eq!(bench.rows.get(1).progress.is_none(), forgets);
    }
}

#[test]
fn a_run_may_be_retried_as_often_as_it_fails() {
    let mut bench = failed_run();
    for _ in 0..3 {
        bench.retry().expect("it has failed");
        bench.commit(vec![no("charge", 1)], go_on());
        bench.commit(vec![no("charge", 2)], go_on());
        bench.fail();
    }
    bench.retry().expect("it has failed");
    let names: Vec<_> = bench.events().into_iter().map(|(_, event)| event).collect();
    assert_eq!(names.len(), 4, "price, early, stock, late: {names:?}");
}

#[test]
fn a_run_that_failed_without_a_failed_step_goes_on_from_where_it_was() {
    let mut bench = Bench::start(None);
    bench.commit(vec![ok("price")], go_on());
    bench.fail();
    bench.retry().expect("it has failed");
    assert_eq!(bench.counted(), [1]);
    assert!(bench.is_called());
}

#[test]
fn only_a_failed_run_can_be_retried() {
    let mut bench = Bench::start(None);
    assert_eq!(bench.retry(), Err(Code::WrongStatus));
    bench.commit(vec![], Then::Complete { output: Payload::null() });
    assert_eq!(bench.retry(), Err(Code::WrongStatus));
}

#[test]
fn a_step_that_must_not_run_twice_begins_anew_when_a_person_retries_it() {
    let mut bench = Bench::start(None);
    bench.commit(vec![Command::StepBegun { op: step("pay") }], go_on());
    let retry = Retry { attempts: 1, ..Retry::default() };
    let failure = Failure::coded(Code::StepInterrupted, "it was cut short");
    bench.commit(
        vec![Command::StepFailed {
            op: step("pay"),
            attempt: 1,
            failure,
            retry,
            retry_after_ms: None,
            took_ms: None,
        }],
        go_on(),
    );
    bench.fail();
    bench.retry().expect("it has failed");
    assert!(bench.counted().is_empty(), "it does not look as if it had begun");
}

#[test]
fn a_run_is_restarted_before_the_step_that_was_named() {
    for (from, kept) in [("price", vec![]), ("charge", vec![1, 2]), ("stock", vec![1, 2, 3])] {
        let mut bench = failed_run();
        bench.restart(Some(&step(from))).expect("it has ended");
        bench.crash();
        let signals = if from == "price" { 2 } else { 1 };
        let again: Vec<_> = (7..7 + signals).collect();
        assert_eq!(bench.counted(), [kept, again].concat(), "from {from}");
    }
}

#[test]
fn a_run_is_restarted_from_its_beginning_with_its_signals() {
    let mut bench = failed_run();
    bench.restart(None).expect("it has ended");
    bench.restart(None).expect_err("it is not at rest");
    let names: Vec<_> = bench
        .events()
        .into_iter()
        .map(|(_, event)| if let Event::SignalReceived { name, .. } = event { name } else { "?".into() })
        .collect();
    assert_eq!(names, ["early", "late"]);
}

#[test]
fn a_run_goes_on_as_if_a_dropped_signal_had_never_come() {
    let mut bench = failed_run();
    let signals =
        |bench: &Bench| -> Vec<_> {
            let events = bench.events().into_iter();
            events
                .filter_map(|(seq, event)| {
                    if let Event::SignalReceived { name, .. } = event { Some((seq, name)) } else { None }
                })
                .collect()
        };
    let (seq, before) = (signals(&bench)[0].0, bench.rows.get(1));
    for nothing in [0, seq + 1, u32::MAX] {
        assert_eq!(bench.drop_signal(nothing), Err(Code::SignalNotFound));
    }
    assert_eq!(bench.rows.get(1), before);
    let earlier: Vec<_> = bench.events().into_iter().take_while(|(at, _)| *at < seq).collect();
    bench.drop_signal(seq).expect("it has ended");
    let left: Vec<_> = bench.events();
    assert_eq!(left[..earlier.len()], earlier, "what came before it stays");
    assert_eq!(left.len(), earlier.len() + 1, "what may have followed from it is gone: {left:?}");
    assert_eq!(signals(&bench)[0].1, "late", "the others are kept");
    assert!(bench.is_called());
    assert_eq!(bench.drop_signal(seq), Err(Code::SignalNotFound), "it was dropped before");
    bench.crash();
    assert_eq!(bench.events(), left);
}

#[test]
fn a_run_may_be_restarted_twice_in_a_row() {
    let mut bench = failed_run();
    bench.restart(None).expect("it has ended");
    bench.commit(vec![ok("price")], go_on());
    bench.fail();
    bench.restart(None).expect("it has ended");
    bench.crash();
    assert_eq!(bench.events().len(), 2, "two signals, once each: {:?}", bench.events());
    bench.commit(vec![ok("price")], Then::Complete { output: Payload::null() });
    assert_eq!(bench.rows.get(1).status(), Status::Completed);
}

#[test]
fn a_step_that_the_journal_does_not_have_is_no_place_to_go_back_to() {
    let mut bench = failed_run();
    let before = bench.rows.get(1);
    let second = Op { occurrence: 1, ..step("charge") };
    for from in [step("nothing"), second] {
        assert_eq!(bench.restart(Some(&from)), Err(Code::StepNotFound));
    }
    assert_eq!(bench.rows.get(1), before);
    bench.restart(Some(&step("charge"))).expect("it has ended");
    bench.fail();
    assert_eq!(bench.restart(Some(&step("charge"))), Err(Code::StepNotFound), "what was cut is gone");
}

#[test]
fn a_run_that_is_at_work_cannot_be_restarted() {
    let mut bench = Bench::start(None);
    assert_eq!(bench.restart(None), Err(Code::WrongStatus));
    bench.commit(vec![], sleep());
    assert_eq!(bench.restart(None), Err(Code::WrongStatus));
}

#[test]
fn a_paused_sleep_fires_by_the_alarm_after_the_run_goes_on() {
    let mut bench = Bench::start(None);
    bench.commit(vec![], sleep());
    bench.cell.act(&bench.rows, at(10), &bench.id, "root", Action::Pause).expect("it has not ended");
    bench.alarm_at(5_000);
    assert_eq!(bench.rows.get(1).status(), Status::Paused);
    bench.cell.act(&bench.rows, at(6_000), &bench.id, "root", Action::Resume).expect("it is paused");
    bench.now_ms = 6_000;
    assert_eq!(bench.commit(vec![], sleep()), Answer::Stop);
    bench.alarm_at(6_100);
    assert!(matches!(&bench.events()[..], [(1, Event::TimerFired { .. })]));
}

#[test]
fn a_run_that_was_paused_beyond_its_limit_is_not_lost_when_it_goes_on() {
    let mut bench = Bench::start(Some(1_000));
    bench.cell.act(&bench.rows, at(10), &bench.id, "root", Action::Pause).expect("it has not ended");
    // The alarm has looked at all that is due by then.
    bench.alarm_at(5_000);
    bench.cell.act(&bench.rows, at(5_000), &bench.id, "root", Action::Resume).expect("it is paused");
    bench.now_ms = 5_000;
    bench.commit(vec![], sleep());
    bench.alarm_at(5_100);
    bench.alarm_at(10_000);
    assert_eq!(bench.rows.get(1).status(), Status::Failed);
}

#[test]
fn what_a_paused_program_was_doing_is_recorded_and_its_call_ends_without_trouble() {
    let mut bench = Bench::start(None);
    bench.cell.act(&bench.rows, at(10), &bench.id, "root", Action::Pause).expect("it has not ended");
    assert_eq!(bench.commit(vec![ok("price")], go_on()), Answer::Stop);
    bench.cell.call_ended(&bench.rows, at(20), 1, Epoch(1), CallEnd::Returned).expect("it is known");
    assert_eq!(bench.cell.calls(), 0);
    bench.cell.act(&bench.rows, at(30), &bench.id, "root", Action::Resume).expect("it is paused");
    assert!(matches!(bench.rows.get(1).phase, Phase::Running { .. }));
    assert_eq!(bench.counted(), [1]);
}

#[test]
fn a_run_remembers_who_did_what_to_it_and_nothing_that_changed_nothing() {
    let mut bench = Bench::start(None);
    let acts = |bench: &Bench| {
        let run = bench.rows.get(1);
        run.acts.into_iter().map(|act| (act.by, act.what, act.at)).collect::<Vec<_>>()
    };
    let mut done = Vec::new();
    for (ms, by, action, deed) in [
        (10, "key:a", Action::Pause, Some(Deed::Pause)),
        (20, "key:b", Action::Pause, None),
        (30, "session:c", Action::Resume, Some(Deed::Resume)),
        (40, "key:b", Action::Retry, None),
        (50, "bulk:d", Action::Cancel, Some(Deed::Cancel)),
        (60, "key:b", Action::Cancel, None),
        (70, "root", Action::Restart { from: None }, Some(Deed::Restart)),
    ] {
        let _ = bench.cell.act(&bench.rows, at(ms), &bench.id, by, action);
        done.extend(deed.map(|deed| (by.to_owned(), deed, at(ms))));
        assert_eq!(acts(&bench), done);
    }
    for ms in 100..200 {
        let action = if ms % 2 == 0 { Action::Pause } else { Action::Resume };
        bench.cell.act(&bench.rows, at(ms), &bench.id, "root", action).expect("it can be");
    }
    let why =
        |bench: &mut Bench| bench.cell.why(&bench.rows, at(200), &bench.id).expect("it is there").because;
    bench.cell.act(&bench.rows, at(200), &bench.id, "key:a", Action::Pause).expect("it can be");
    assert!(why(&mut bench).starts_with("key:a paused it."));
    bench.cell.act(&bench.rows, at(200), &bench.id, "key:a", Action::Resume).expect("it can be");
    bench.cell.act(&bench.rows, at(200), &bench.id, "root", Action::Pause).expect("it can be");
    assert!(why(&mut bench).starts_with("Someone paused it."), "it was not key:a this time");
    let latest = acts(&bench);
    assert_eq!(latest.len(), ACTS_MAX);
    assert_eq!(latest.last(), Some(&("root".into(), Deed::Pause, at(200))));
}

#[test]
fn a_signal_that_is_received_again_is_still_from_whoever_sent_it() {
    let mut bench = Bench::start(None);
    let by = Some("key:a".to_owned());
    let signal = Signal { by: by.clone(), id: Some("1".into()), ..Signal::new("s", Payload::null()) };
    bench.cell.signal(&bench.rows, at(5), &bench.id, signal).expect("it is kept");
    bench.cell.act(&bench.rows, at(6), &bench.id, "root", Action::Cancel).expect("it has not ended");
    bench.restart(None).expect("it has ended");
    let signals: Vec<_> = bench.events().into_iter().filter_map(|(_, event)| Signal::of(&event)).collect();
    assert_eq!(signals, [Signal { by, ..Signal::new("s", Payload::null()) }]);
}
