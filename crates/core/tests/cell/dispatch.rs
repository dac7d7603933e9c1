//! Many runs that are due at once: what memory holds of them, what they cost, and who waits for whom.

use std::time::{Duration, Instant};

use stepwell_core::{
    cell::{Cell, LIVE_MAX, LIVE_OF_WORKFLOW_MAX, NewRun, Order},
    object::{DEAD_MAN_MS, Hosted as _, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Seq, Timestamp,
    lane::{Flow, LimitSpec, Standing},
    program::{Open, Then},
    rest::Status,
};

use crate::{Memory, at, new_run, said};

fn new_run_of(workflow: &str) -> NewRun {
    NewRun { workflow: workflow.into(), ..new_run(None) }
}

/// A cell and its rows, its alarm, and the calls that it has ordered.
struct Bench {
    rows: Memory,
    cell: Cell,
    now: Timestamp,
    alarm: Option<Timestamp>,
    called: Vec<(u64, Epoch)>,
    alarms: usize,
}

impl Bench {
    fn new(window: usize) -> Self {
        let (rows, cell) = (Memory::default(), Cell::new(window));
        Self { rows, cell, now: at(0), alarm: None, called: Vec::new(), alarms: 0 }
    }

    fn start(&mut self, workflow: &str) -> u64 {
        let started = self.cell.start(&self.rows, self.now, new_run_of(workflow)).expect("it is accepted");
        self.perform();
        started.run.id.number
    }

    fn perform(&mut self) {
        let orders = self.cell.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        for order in orders.own {
            match order {
                Order::Call { number, epoch } => self.called.push((number, epoch)),
                Order::GiveUp { number, epoch } => self.called.retain(|call| *call != (number, epoch)),
                Order::Nudge { .. }
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

    /// Time passes; the alarm fires if its time has come.
    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus_millis(ms);
        while let Some(at) = self.alarm.filter(|at| *at <= self.now) {
            self.alarm = None;
            self.alarms += 1;
            self.cell.alarm(&self.rows, at.max(self.now)).expect("the rows can be read");
            self.perform();
        }
    }

    /// The program of a call completes its run.
    fn complete(&mut self, (number, epoch): (u64, Epoch)) {
        let commit = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
        self.cell.commit(&self.rows, self.now, number, epoch, commit, number).expect("in turn");
        self.cell.call_ended(&self.rows, self.now, number, epoch, CallEnd::Returned).expect("it is recorded");
        self.perform();
    }

    /// All programs complete their runs, again and again, until nothing is due any more. Gives the most runs that waited
    /// in memory at any time.
    fn drain(&mut self) -> usize {
        let mut most = self.cell.pending_in_memory();
        loop {
            while let Some(called) = self.called.pop() {
                self.complete(called);
                most = most.max(self.cell.pending_in_memory());
            }
            self.pass(1);
            most = most.max(self.cell.pending_in_memory());
            if self.called.is_empty() && self.alarm.is_none_or(|at| at > self.now.plus_millis(2)) {
                return most;
            }
        }
    }

    /// The instance dies; the next one is loaded for the alarm.
    fn crash(&mut self, window: usize) {
        self.cell = Cell::new(window);
        self.called.clear();
        self.alarm = Some(self.now.plus_millis(1));
        self.pass(1);
    }

    fn completed(&self) -> usize {
        let runs = 1..=self.rows.runs() as u64;
        runs.filter(|number| self.rows.get(*number).status() == Status::Completed).count()
    }
}

#[test]
fn starts_into_a_full_window_wake_nobody() {
    let mut bench = Bench::new(2);
    for _ in 0..1_000 {
        bench.start("w");
        bench.pass(10);
    }
    let looks = 10_000_usize.div_ceil(usize::try_from(DEAD_MAN_MS).expect("small"));
    assert!(bench.alarms <= 2 * looks, "{} alarms in ten seconds", bench.alarms);
}

#[test]
fn memory_holds_a_bounded_part_of_the_runs_that_are_due_and_all_of_them_are_called() {
    let mut bench = Bench::new(12);
    let runs = 3 * LIVE_OF_WORKFLOW_MAX;
    for _ in 0..runs {
        bench.start("w");
    }
    assert_eq!(bench.cell.pending_in_memory(), LIVE_OF_WORKFLOW_MAX);
    let most = bench.drain();
    assert!(most <= LIVE_OF_WORKFLOW_MAX, "{most} waited in memory");
    assert_eq!(bench.completed(), runs);
}

#[test]
fn a_backlog_survives_a_crash_in_its_middle() {
    let mut bench = Bench::new(12);
    let runs = 2 * LIVE_OF_WORKFLOW_MAX;
    for _ in 0..runs {
        bench.start("w");
    }
    for _ in 0..500 {
        let called = bench.called.remove(0);
        bench.complete(called);
        bench.pass(1);
    }
    bench.crash(12);
    let most = bench.drain();
    assert!(most <= LIVE_OF_WORKFLOW_MAX, "{most} waited in memory");
    assert_eq!(bench.completed(), runs);
}

#[test]
fn a_backlog_of_one_workflow_hides_no_run_of_another() {
    let mut bench = Bench::new(12);
    for _ in 0..3 * LIVE_OF_WORKFLOW_MAX {
        bench.start("slow");
    }
    let other = bench.start("other");
    assert!(bench.called.contains(&(other, Epoch(1))), "it has a place beside the backlog");
    // After a crash the rows of the backlog come first.
    bench.crash(12);
    for _ in 0..20 {
        bench.pass(1);
    }
    let is_called = bench.called.iter().any(|(number, _)| *number == other);
    assert!(is_called, "it is found behind {} rows", bench.rows.runs());
}

#[test]
fn more_workflows_than_memory_has_shares_for_all_get_their_turn() {
    let mut bench = Bench::new(12);
    let names: Vec<_> = (0..8).map(|n| format!("w{n}")).collect();
    for name in &names {
        for _ in 0..=LIVE_OF_WORKFLOW_MAX {
            bench.start(name);
        }
    }
    let most = bench.drain();
    assert!(most <= LIVE_MAX + names.len(), "{most} waited in memory");
    assert_eq!(bench.completed(), names.len() * (LIVE_OF_WORKFLOW_MAX + 1));
}

#[test]
fn runs_that_wake_while_memory_is_full_are_called_later() {
    let mut bench = Bench::new(1);
    for _ in 0..8 {
        let number = bench.start("w");
        let called = bench.called.pop().expect("there is a place");
        assert_eq!(called.0, number);
        let op = Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence: 0 };
        let sleeps = said(Seq(0), vec![], Then::Suspend { open: vec![Open::Sleep { op, ms: 500 }] });
        bench.cell.commit(&bench.rows, bench.now, number, called.1, sleeps, 1).expect("in turn");
        bench.cell.call_ended(&bench.rows, bench.now, number, called.1, CallEnd::Returned).expect("in turn");
        bench.perform();
    }
    for _ in 0..LIVE_OF_WORKFLOW_MAX + 10 {
        bench.start("w");
    }
    (0..20).for_each(|_| bench.pass(100));
    for number in 1..=8 {
        assert_eq!(bench.rows.get(number).status(), Status::Pending);
    }
    let mut ended = 0;
    for _ in 0..20 * LIVE_OF_WORKFLOW_MAX {
        for (number, epoch) in std::mem::take(&mut bench.called) {
            let base = bench.rows.get(number).head;
            let commit = said(base, vec![], Then::Complete { output: Payload::null() });
            bench.cell.commit(&bench.rows, bench.now, number, epoch, commit, 7).expect("in turn");
            let end = CallEnd::Returned;
            bench.cell.call_ended(&bench.rows, bench.now, number, epoch, end).expect("it is recorded");
            bench.perform();
            ended += 1;
        }
        bench.pass(1);
    }
    assert_eq!(ended, LIVE_OF_WORKFLOW_MAX + 18);
}

/// What fifty thousand due runs cost a fresh instance, beside their own transactions.
#[test]
fn a_backlog_is_read_once_and_in_a_time_that_grows_with_its_length() {
    let mut bench = Bench::new(12);
    for n in 0..50_000 {
        bench.start(["a", "b", "c", "d", "e"][n % 5]);
    }
    bench.rows.reads.set(0);
    let began = Instant::now();
    bench.crash(12);
    bench.drain();
    let took = began.elapsed();
    assert_eq!(bench.completed(), 50_000);
    let reads = bench.rows.reads.get() - 50_000;
    assert!(reads <= 2 * 50_000 + 5_000, "{reads} reads for 50,000 runs");
    assert!(took < Duration::from_secs(60), "it took {took:?}");
    println!("50,000 due runs: {reads} reads, {took:?}");
}

#[test]
fn of_the_runs_that_wait_for_a_place_the_one_with_the_higher_priority_is_next() {
    let mut bench = Bench::new(1);
    let first = bench.start("w");
    let limit = LimitSpec { max: 10, key: None, per_ms: None, drop: false, max_by: None };
    let priority = Some("input.urgent ? 30 : 0".into());
    let flow = Flow { limits: vec![limit], priority, ..Flow::default() };
    for is_urgent in [false, true] {
        let input = Payload::encode(&serde_json::json!({ "urgent": is_urgent })).expect("JSON");
        let new = NewRun { flow: Some(Box::new(flow.clone())), input, ..new_run_of("w") };
        bench.cell.start(&bench.rows, bench.now, new).expect("it is accepted");
    }
    let mut let_in = 0;
    while let_in < 2 {
        let question = bench
            .cell
            .take_orders()
            .own
            .into_iter()
            .find_map(|order| if let Order::AskLane(question) = order { Some(question) } else { None });
        let question = question.expect("the lane is asked for both");
        let standings = vec![Standing::In; question.asks.len()];
        let answered = bench.cell.lane_answered(&bench.rows, at(1), "w", question.flight, Some(&standings));
        answered.expect("it is stored");
        let_in += standings.len();
    }
    bench.perform();
    assert_eq!(bench.called, [(first, Epoch(1))], "the window has one place");
    bench.cell.call_ended(&bench.rows, at(2), first, Epoch(1), CallEnd::Returned).expect("it is recorded");
    bench.perform();
    assert_eq!(bench.called, [(first, Epoch(1)), (first + 2, Epoch(1))]);
}
