//! The queue: who is nudged and when, who may claim, and what becomes of a lease.

use std::collections::VecDeque;

use stepwell_core::{
    cell::{Cell, Claim, NUDGE_AGAIN_MS, NewRun, OVERFLOW_MS, Order, QUEUED_MAX},
    object::{Hosted as _, Machine as _},
    run::{LEASE_MS, Phase, SUSPICION_ALONE},
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Seq,
    program::{Answer, Command, Dispatch, Open, Then},
    rest::Status,
};

use crate::{Memory, at, new_run, said};

struct Bench {
    rows: Memory,
    cell: Cell,
    now_ms: u64,
}

impl Bench {
    /// A cell of two places: one for each workflow.
    fn new() -> Self {
        Self { rows: Memory::default(), cell: Cell::new(2).with_queue(true), now_ms: 0 }
    }

    fn start(&mut self, dispatch: Dispatch) -> u64 {
        let new = NewRun { dispatch, ..new_run(None) };
        self.cell.start(&self.rows, at(self.now_ms), new).expect("it is accepted").run.id.number
    }

    fn alarm_after(&mut self, ms: u64) {
        self.now_ms += ms;
        self.cell.alarm(&self.rows, at(self.now_ms)).expect("the rows can be read");
    }

    /// The cell dies: the next one knows only rows.
    fn crash(&mut self) {
        self.cell = Cell::new(2).with_queue(true);
        self.alarm_after(1);
    }

    fn claim(&mut self, number: u64, alone: bool) -> Claim {
        self.cell.claim(&self.rows, at(self.now_ms), number, alone).expect("the rows can be read")
    }

    /// Claims a run that is there to be claimed.
    fn claimed(&mut self, number: u64) -> Epoch {
        match self.claim(number, true) {
            Claim::Yours(activation) => activation.epoch,
            other @ (Claim::Nothing | Claim::Alone) => panic!("{other:?}"),
        }
    }

    /// The runs for which a message is sent, and those whose program is called.
    fn orders(&mut self) -> (Vec<u64>, Vec<u64>) {
        let (mut nudged, mut called) = (Vec::new(), Vec::new());
        for order in self.cell.take_orders().own {
            match order {
                Order::Nudge { number } => nudged.push(number),
                Order::Call { number, .. } => called.push(number),
                Order::GiveUp { .. }
                | Order::TellProgram(_)
                | Order::TellEnd(_)
                | Order::TellAt(_)
                | Order::SendSpansAt(_)
                | Order::Log(_)
                | Order::TellReaders(_)
                | Order::AskLane(_)
                | Order::TellCellReaders => {}
            }
        }
        (nudged, called)
    }

    fn because(&mut self, number: u64) -> String {
        let id = self.rows.get(number).id;
        self.cell.why(&self.rows, at(self.now_ms), &id).expect("it is there").because
    }
}

#[test]
fn a_queued_run_is_nudged_at_once_and_called_by_whoever_claims_it() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    assert_eq!(bench.orders(), (vec![run], vec![]));
    assert!(bench.because(run).contains("waits for a consumer of the queue"), "{}", bench.because(run));
    let epoch = bench.claimed(run);
    assert_eq!(bench.orders(), (vec![], vec![]), "the consumer calls it");
    assert!(bench.because(run).contains("called by a consumer"), "{}", bench.because(run));
    assert!(matches!(bench.claim(run, true), Claim::Nothing), "one has it");
    bench.cell.renew(&bench.rows, at(1), run, epoch).expect("it is at work");
    let done = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    let answer = bench.cell.commit(&bench.rows, at(1), run, epoch, done, 1).expect("it is held");
    assert_eq!(answer, Answer::Stop);
    assert_eq!(bench.rows.get(run).meter().requests, 4, "a start, a claim, a beat, a commit");
    assert!(matches!(bench.claim(run, true), Claim::Nothing), "a message that comes late does no harm");
    assert_eq!(bench.rows.get(run).status(), Status::Completed);
}

#[test]
fn without_a_queue_every_run_is_called_directly() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    cell.start(&rows, at(0), NewRun { dispatch: Dispatch::Queued, ..new_run(None) }).expect("it is accepted");
    assert!(cell.take_orders().own.contains(&Order::Call { number: 1, epoch: Epoch(1) }));
}

#[test]
fn a_run_that_finds_no_place_for_a_while_is_offered_to_the_queue() {
    let mut bench = Bench::new();
    let (first, second) = (bench.start(Dispatch::Direct), bench.start(Dispatch::Direct));
    assert_eq!(bench.orders(), (vec![], vec![first]), "its workflow's share is one place");
    bench.alarm_after(OVERFLOW_MS - 1);
    assert_eq!(bench.orders(), (vec![], vec![]));
    bench.alarm_after(1);
    assert_eq!(bench.orders(), (vec![second], vec![]));
    assert!(bench.because(second).contains("or for a consumer"), "{}", bench.because(second));
    let epoch = bench.claimed(second);
    assert!(bench.rows.get(second).is_held_by(epoch));
    // Its place in the window's queue is given up: the next one has the next place.
    let third = bench.start(Dispatch::Direct);
    let ended = stepwell_core::run::CallEnd::Returned;
    let done = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    bench.cell.commit(&bench.rows, at(bench.now_ms), first, Epoch(1), done, 1).expect("it is held");
    bench.cell.call_ended(&bench.rows, at(bench.now_ms), first, Epoch(1), ended).expect("it is known");
    assert_eq!(bench.orders(), (vec![], vec![third]));
    assert!(matches!(bench.claim(third, true), Claim::Nothing), "the cell calls it");
}

#[test]
fn a_message_that_nobody_follows_is_sent_again_less_and_less_often() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    let mut sent = vec![];
    while bench.now_ms < 16 * NUDGE_AGAIN_MS {
        if bench.orders().0.contains(&run) {
            sent.push(bench.now_ms / NUDGE_AGAIN_MS);
        }
        bench.alarm_after(NUDGE_AGAIN_MS / 2);
    }
    assert_eq!(sent, [0, 1, 3, 7, 11, 15]);
}

#[test]
fn after_a_crash_what_is_due_is_nudged_again() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    assert_eq!(bench.orders().0, [run]);
    bench.crash();
    assert_eq!(bench.orders().0, [run]);
}

#[test]
fn more_runs_than_may_wait_are_nudged_when_there_is_room() {
    let mut bench = Bench::new();
    let runs: Vec<_> = (0..=QUEUED_MAX).map(|_| bench.start(Dispatch::Queued)).collect();
    assert_eq!(bench.orders().0, runs[..QUEUED_MAX]);
    for &run in &runs[..QUEUED_MAX] {
        bench.claimed(run);
    }
    for _ in 0..8 {
        bench.alarm_after(100);
    }
    assert_eq!(bench.orders().0, runs[QUEUED_MAX..]);
}

/// Lets consumers follow 50 messages every 10 ms, and programs that are called directly end at once, until nothing is
/// due any more. The alarm fires when it is set for.
fn consume(Bench { rows, cell, now_ms }: &mut Bench) {
    let (mut messages, mut alarm_ms) = (VecDeque::new(), Some(*now_ms));
    let complete = |cell: &mut Cell, now_ms, number, epoch| {
        let done = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
        cell.commit(rows, at(now_ms), number, epoch, done, number).expect("it is held");
    };
    while alarm_ms.is_some() || !messages.is_empty() {
        *now_ms += 1;
        if alarm_ms.take_if(|due_ms| *due_ms <= *now_ms).is_some() {
            cell.alarm(rows, at(*now_ms)).expect("the rows can be read");
        }
        let followed = if now_ms.is_multiple_of(10) { messages.len().min(50) } else { 0 };
        for number in messages.drain(..followed) {
            if let Claim::Yours(activation) =
                cell.claim(rows, at(*now_ms), number, true).expect("it is there")
            {
                complete(cell, *now_ms, number, activation.epoch);
            }
        }
        let orders = cell.take_orders();
        alarm_ms = orders.arm.map(|due| due.as_millis() - at(0).as_millis()).or(alarm_ms);
        for order in orders.own {
            match order {
                Order::Nudge { number } => messages.push_back(number),
                Order::Call { number, epoch } => {
                    complete(cell, *now_ms, number, epoch);
                    let end = stepwell_core::run::CallEnd::Returned;
                    cell.call_ended(rows, at(*now_ms), number, epoch, end).expect("it is known");
                }
                Order::GiveUp { .. }
                | Order::TellProgram(_)
                | Order::TellEnd(_)
                | Order::TellAt(_)
                | Order::SendSpansAt(_)
                | Order::Log(_)
                | Order::TellReaders(_)
                | Order::AskLane(_)
                | Order::TellCellReaders => {}
            }
        }
    }
}

/// Memory holds more due runs than may wait for a consumer, and the rows hold more than memory.
#[test]
fn a_backlog_is_read_once_on_a_host_with_a_queue() {
    const RUNS: usize = 20_000;
    for dispatch in [Dispatch::Queued, Dispatch::Direct] {
        let mut bench = Bench::new();
        for _ in 0..RUNS {
            bench.start(dispatch);
        }
        bench.rows.reads.set(0);
        bench.rows.scanned.set(0);
        consume(&mut bench);
        let (reads, scanned) = (bench.rows.reads.get(), bench.rows.scanned.get());
        println!("{RUNS} runs, {dispatch:?}: {reads} reads, {scanned} rows scanned, {} ms", bench.now_ms);
        // Once to find that they are due, once when there is room for them.
        assert!(reads <= 2 * RUNS + 2_000, "{dispatch:?}: {reads} reads");
        assert!(scanned <= 2 * RUNS + 2_000, "{dispatch:?}: {scanned} rows scanned");
        for number in 1..=RUNS as u64 {
            assert_eq!(bench.rows.get(number).status(), Status::Completed, "{dispatch:?}");
        }
    }
}

#[test]
fn a_consumer_that_falls_silent_is_replaced_and_refused() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    let first = bench.claimed(run);
    bench.alarm_after(LEASE_MS - 1);
    bench.cell.renew(&bench.rows, at(bench.now_ms), run, first).expect("it is at work");
    bench.alarm_after(LEASE_MS - 1);
    assert!(bench.rows.get(run).is_held_by(first));
    bench.alarm_after(1);
    assert!(matches!(bench.rows.get(run).phase, Phase::Pending { .. }));
    let _ = bench.orders();
    bench.alarm_after(1_000);
    assert_eq!(bench.orders().0, [run], "after a pause it is offered again");
    let second = bench.claimed(run);
    let late = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    assert!(bench.cell.commit(&bench.rows, at(bench.now_ms), run, first, late, 1).is_err());
    assert!(bench.cell.renew(&bench.rows, at(bench.now_ms), run, first).is_err());
    assert!(bench.rows.get(run).is_held_by(second));
}

#[test]
fn a_consumer_has_another_lease_to_be_heard_of_when_the_machine_stood_still() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    let epoch = bench.claimed(run);
    bench.alarm_after(120_000);
    assert!(bench.rows.get(run).is_held_by(epoch), "its beat is still on the way");
    bench.cell.renew(&bench.rows, at(bench.now_ms), run, epoch).expect("it is at work");
    bench.alarm_after(LEASE_MS);
    assert!(matches!(bench.rows.get(run).phase, Phase::Pending { .. }), "one that is gone is replaced");
}

#[test]
fn an_activation_outlives_its_cell() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    let epoch = bench.claimed(run);
    bench.crash();
    assert_eq!(bench.orders(), (vec![], vec![]), "somebody has it");
    let op = Op { kind: OpKind::Step, name: "a".into(), occurrence: 0 };
    let done = vec![Command::StepSucceeded { op, attempt: 1, output: Payload::null(), took_ms: None }];
    let commit = said(Seq(0), done, Then::Continue { open: None });
    bench.now_ms += LEASE_MS - 2;
    bench.cell.commit(&bench.rows, at(bench.now_ms), run, epoch, commit, 1).expect("it is still its own");
    bench.alarm_after(LEASE_MS - 1);
    assert!(bench.rows.get(run).is_held_by(epoch), "the word has renewed the lease");
    bench.alarm_after(1);
    assert!(!bench.rows.get(run).is_held_by(epoch));
}

#[test]
fn a_run_under_suspicion_goes_the_way_of_its_workflow_and_alone() {
    for dispatch in [Dispatch::Queued, Dispatch::Direct] {
        let mut bench = Bench::new();
        if dispatch == Dispatch::Direct {
            // Somebody has the place.
            bench.start(Dispatch::Direct);
        }
        let run = bench.start(dispatch);
        for _ in 0..SUSPICION_ALONE {
            bench.alarm_after(OVERFLOW_MS);
            bench.claimed(run);
            bench.alarm_after(LEASE_MS);
            bench.alarm_after(1_000);
        }
        bench.alarm_after(OVERFLOW_MS);
        if dispatch == Dispatch::Queued {
            assert!(matches!(bench.claim(run, false), Claim::Alone));
            bench.claimed(run);
        } else {
            assert!(matches!(bench.claim(run, true), Claim::Nothing), "it waits for an empty window");
        }
    }
}

#[test]
fn a_run_that_sleeps_is_nudged_when_it_wakes() {
    let mut bench = Bench::new();
    let run = bench.start(Dispatch::Queued);
    let epoch = bench.claimed(run);
    let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
    let sleeps = said(Seq(0), vec![], Then::Suspend { open: vec![Open::Sleep { op, ms: 60_000 }] });
    bench.cell.commit(&bench.rows, at(0), run, epoch, sleeps, 1).expect("it is held");
    let _ = bench.orders();
    bench.alarm_after(59_999);
    assert!(bench.orders().0.is_empty());
    bench.alarm_after(1);
    assert_eq!(bench.orders().0, [run]);
    assert_eq!(bench.claimed(run), epoch.next());
}
