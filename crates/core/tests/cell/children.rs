//! Parents and children on two cells, with a post between them that loses, doubles and delays.

use stepwell_core::{
    cell::{Action, Cell, Chance, Rows as _, child_key},
    object::{Delivery, Fault, Hosted as _, Machine as _, Message, Receipt, Sending},
    pools::Pool,
    run::{CallEnd, End, INVOCATION_KEPT_MS, Phase, Run},
};
use stepwell_protocol::{
    Awaits, Code, Epoch, Event, Invocation, OnClose, Op, OpKind, Outcome, Payload, Place, RunId, Seq,
    Timestamp,
    program::{Command, Dispatch, Open, Then},
    rest::Status,
};

use super::{
    at, calls,
    memory::{Failed, Memory},
    new_run, said,
};

/// Two cells of a pool: the parent is in the first.
pub(super) struct Two {
    pub(super) now: u64,
    pub(super) rows: [Memory; 2],
    pub(super) cells: [Cell; 2],
    drawn: u64,
}

pub(super) fn place(cell: u32) -> Place {
    Place { pool: "default".into(), generation: 1, cell }
}

fn fresh() -> Cell {
    Cell::new(4).with_pool(Pool::parse("default", "2").expect("a pool"), None)
}

fn op(occurrence: u32) -> Op {
    Op { kind: OpKind::Child, name: "c".into(), occurrence }
}

pub(super) fn invocation() -> Invocation {
    Invocation {
        workflow: "child".into(),
        input: Payload::encode(&7).expect("JSON"),
        detached: false,
        on_close: OnClose::Cancel,
        timeout_ms: None,
        retention_ms: None,
        dispatch: Dispatch::Direct,
        callback: None,
        flow: None,
    }
}

pub(super) fn invoke(occurrence: u32, invocation: Invocation) -> Command {
    Command::ChildInvoked { op: op(occurrence), invocation: Box::new(invocation) }
}

pub(super) fn waits(occurrence: u32, invoked: u32) -> Open {
    Open::Child { op: op(occurrence), invoked: Seq(invoked), awaits: Awaits::Finished, timeout_ms: None }
}

impl Two {
    pub(super) fn new() -> Self {
        Self { now: 0, rows: [Memory::default(), Memory::default()], cells: [fresh(), fresh()], drawn: 100 }
    }

    pub(super) fn clock(&self) -> Timestamp {
        at(self.now)
    }

    /// A parent whose program is at work.
    pub(super) fn parent(&mut self) -> Run {
        let clock = self.clock();
        let run = self.cells[0].start(&self.rows[0], clock, new_run(None)).expect("it is accepted").run;
        assert_eq!(calls(&mut self.cells[0]), [(run.id.number, Epoch(1))]);
        run
    }

    /// A program's report; the journal's head is its base.
    pub(super) fn report(
        &mut self,
        cell: usize,
        number: u64,
        commands: Vec<Command>,
        then: Then,
    ) -> Vec<Sending> {
        self.now += 1;
        let (clock, run) = (self.clock(), self.rows[cell].get(number));
        let hash = self.now;
        let commit = said(run.head, commands, then);
        self.cells[cell].commit(&self.rows[cell], clock, number, run.epoch, commit, hash).expect("in turn");
        if !matches!(self.rows[cell].get(number).phase, Phase::Running { .. }) {
            self.cells[cell]
                .call_ended(&self.rows[cell], clock, number, run.epoch, CallEnd::Returned)
                .expect("it is recorded");
        }
        self.sends(cell)
    }

    /// One more parent, which invokes a child.
    pub(super) fn invoke_in_another_run(&mut self) {
        let clock = self.clock();
        let run = self.cells[0].start(&self.rows[0], clock, new_run(None)).expect("it is accepted").run;
        self.report(0, run.id.number, vec![invoke(0, invocation())], Then::Continue { open: None });
    }

    pub(super) fn sends(&mut self, cell: usize) -> Vec<Sending> {
        self.cells[cell].take_orders().send
    }

    pub(super) fn arrive(&mut self, sending: &Sending) -> Receipt {
        self.hand_over(sending).expect("it is taken")
    }

    /// The same, if it may be refused.
    pub(super) fn hand_over(&mut self, sending: &Sending) -> Result<Receipt, Fault<Failed>> {
        self.now += 1;
        self.drawn += 1;
        let place: Place = sending.to.name.parse().expect("a cell");
        let to = place.cell as usize;
        let chance = Chance { suffix: RunId::suffix_from(self.drawn), seed: self.drawn };
        let clock = self.clock();
        self.cells[to].receive(&self.rows[to], clock, place, chance, sending.message.clone())
    }

    pub(super) fn answer(&mut self, from: usize, sending: &Sending, delivery: Delivery) {
        self.now += 1;
        let clock = self.clock();
        self.cells[from].delivered(&self.rows[from], clock, sending, delivery).expect("it is recorded");
    }

    /// Carries everything until nothing is left; the answers come, too.
    pub(super) fn post(&mut self, first: Vec<Sending>, from: usize) {
        let mut under_way: Vec<_> = first.into_iter().map(|sending| (from, sending)).collect();
        for _ in 0..1_000 {
            for cell in 0..2 {
                under_way.extend(self.sends(cell).into_iter().map(|sending| (cell, sending)));
            }
            if under_way.is_empty() {
                return;
            }
            let (from, sending) = under_way.remove(0);
            let receipt = self.arrive(&sending);
            self.answer(from, &sending, Delivery::Arrived(receipt));
        }
        panic!("the post does not come to rest");
    }

    /// The cell has no room for new runs.
    pub(super) fn fill(&mut self, cell: usize) {
        self.cells[cell] = fresh().with_storage(100);
        self.rows[cell].bytes.set(90);
    }

    /// The cell's instance dies.
    pub(super) fn crash(&mut self, cell: usize) {
        self.cells[cell] = fresh();
    }

    pub(super) fn alarm(&mut self, cell: usize, after_ms: u64) -> Vec<Sending> {
        self.now += after_ms;
        let clock = self.clock();
        self.cells[cell].alarm(&self.rows[cell], clock).expect("the rows can be read");
        self.sends(cell)
    }

    /// Where the child of an invocation is.
    pub(super) fn child(&self, parent: &RunId, invoked: u32) -> Option<(usize, Run)> {
        let key = child_key(parent, Seq(invoked));
        (0..2).find_map(|cell| match self.rows[cell].key(&key).expect("readable")? {
            stepwell_core::cell::StoredKey::Run(run) => Some((cell, self.rows[cell].get(run.number))),
            stepwell_core::cell::StoredKey::Moved(_) | stepwell_core::cell::StoredKey::GivenUp => None,
        })
    }

    pub(super) fn finished(&self, number: u64) -> Vec<(Seq, Outcome)> {
        let history = self.rows[0].history(number).into_iter();
        history
            .filter_map(|record| {
                if let Event::ChildFinished { invoked, outcome, .. } = record.event {
                    Some((invoked, outcome))
                } else {
                    None
                }
            })
            .collect()
    }

    pub(super) fn letters(&self) -> usize {
        self.rows.iter().map(|rows| rows.letters.borrow().len()).sum()
    }

    pub(super) fn runs(&self) -> usize {
        self.rows.iter().map(Memory::runs).sum()
    }
}

pub(super) fn done(value: u32) -> Then {
    Then::Complete { output: Payload::encode(&value).expect("JSON") }
}

/// A parent that waits for one child, whose start is under way.
pub(super) fn waiting(invocation: Invocation) -> (Two, Run, Vec<Sending>) {
    let mut two = Two::new();
    let parent = two.parent();
    let sends = two.report(0, parent.id.number, vec![invoke(0, invocation)], Then::Continue { open: None });
    assert_eq!(sends.len(), 1, "{sends:?}");
    assert!(two.report(0, parent.id.number, vec![], Then::Suspend { open: vec![waits(0, 1)] }).is_empty());
    (two, parent, sends)
}

#[test]
fn a_parent_gets_what_its_child_gives_and_nothing_is_left_behind() {
    let (mut two, parent, sends) = waiting(invocation());
    assert_eq!(two.rows[0].get(1).status(), Status::Waiting);
    two.post(sends, 0);
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    assert_eq!(child.parent.as_ref().map(|parent| parent.run.clone()), Some(parent.id.clone()));
    assert_eq!(child.started_by, Some(format!("run:{}", parent.id)));
    assert_eq!(two.letters(), 0, "its start has arrived");
    let sends = two.report(cell, child.id.number, vec![], done(9));
    two.post(sends, cell);
    assert_eq!(two.finished(1), [(Seq(1), Outcome::Ok(Payload::encode(&9).expect("JSON")))]);
    assert!(matches!(two.rows[0].get(1).phase, Phase::Running { .. }), "it goes on");
    assert!(two.rows[0].get(1).children.is_empty());
    assert_eq!((two.letters(), two.runs()), (0, 2));
}

#[test]
fn a_start_that_comes_twice_and_late_starts_one_run() {
    let (mut two, parent, sends) = waiting(invocation());
    let first = two.arrive(&sends[0]);
    assert_eq!(two.arrive(&sends[0]), first, "the same run");
    two.answer(0, &sends[0], Delivery::Failed);
    // Nobody knows that it has arrived, so it is sent again: from the row, by another instance.
    two.crash(0);
    let again = two.alarm(0, 5_000);
    assert_eq!(again.len(), 1);
    two.post(again, 0);
    assert_eq!((two.letters(), two.runs()), (0, 2));
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    // Its end comes twice as well.
    let ended = two.report(cell, child.id.number, vec![], done(1));
    assert_eq!(two.arrive(&ended[0]), Receipt::Taken);
    assert_eq!(two.arrive(&ended[0]), Receipt::Gone);
    two.crash(0);
    assert_eq!(two.arrive(&ended[0]), Receipt::Gone);
    assert_eq!(two.finished(1).len(), 1);
}

#[test]
fn an_answer_that_never_comes_is_waited_for_and_then_the_message_goes_out_again() {
    let (mut two, _, _) = waiting(invocation());
    let mut again = Vec::new();
    let mut waited = 0;
    while again.is_empty() && waited < 60_000 {
        again = two.alarm(0, 5_000);
        waited += 5_000;
    }
    assert_eq!((again.len(), waited), (1, 30_000 + 5_000), "after the time for an answer, and a pause");
}

#[test]
fn a_parent_that_is_cancelled_cancels_its_children() {
    let (mut two, parent, sends) = waiting(invocation());
    two.post(sends, 0);
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    let cancels = two.sends(0);
    assert_eq!(cancels.len(), 1);
    two.post(cancels, 0);
    let (_, child) = two.child(&parent.id, 1).expect("it was started");
    assert_eq!(child.status(), Status::Cancelled);
    assert_eq!(child.acts[0].by, format!("run:{}", parent.id));
    // The child tells its parent, which has ended and does not wait for it.
    assert_eq!((two.letters(), two.finished(1).len()), (0, 0));
}

#[test]
fn a_child_that_is_abandoned_goes_on_without_its_parent() {
    let (mut two, parent, sends) = waiting(Invocation { on_close: OnClose::Abandon, ..invocation() });
    two.post(sends, 0);
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    assert!(two.sends(0).is_empty());
    let (cell, child) = two.child(&parent.id, 1).expect("it was started");
    assert_eq!(child.status(), Status::Running);
    // What it gives is kept: whoever takes the parent back goes on from there.
    let ended = two.report(cell, child.id.number, vec![], done(3));
    two.post(ended, cell);
    assert_eq!(two.finished(1).len(), 1);
    assert_eq!(two.rows[0].get(1).status(), Status::Cancelled);
}

#[test]
fn a_detached_child_is_known_by_its_id_and_its_parent_goes_on() {
    for on_close in [OnClose::Abandon, OnClose::Cancel] {
        let mut two = Two::new();
        let parent = two.parent();
        let invocation = Invocation { detached: true, on_close, ..invocation() };
        let sends = two.report(0, 1, vec![invoke(0, invocation)], Then::Continue { open: None });
        let open = Open::Child { op: op(0), invoked: Seq(1), awaits: Awaits::Started, timeout_ms: None };
        two.report(0, 1, vec![], Then::Suspend { open: vec![open] });
        two.post(sends, 0);
        let (cell, child) = two.child(&parent.id, 1).expect("it is started");
        let started = two.rows[0].history(1).into_iter().find_map(|record| {
            if let Event::ChildStarted { run, abandoned, .. } = record.event {
                Some((run, abandoned))
            } else {
                None
            }
        });
        assert_eq!(started, Some((child.id.clone(), on_close == OnClose::Abandon)));
        assert!(matches!(two.rows[0].get(1).phase, Phase::Running { .. }), "it goes on");
        assert_eq!(two.letters(), 0);
        // Its parent ends first.
        let sends = two.report(0, 1, vec![], done(0));
        two.post(sends, 0);
        let is_cancelled = two.rows[cell].get(child.id.number).status() == Status::Cancelled;
        assert_eq!(is_cancelled, on_close == OnClose::Cancel);
        assert_eq!(two.letters(), 0);
    }
}

#[test]
fn a_child_that_takes_too_long_is_cancelled_and_its_parent_goes_on() {
    let mut two = Two::new();
    let parent = two.parent();
    let sends = two.report(0, 1, vec![invoke(0, invocation())], Then::Continue { open: None });
    let open = Open::Child { op: op(0), invoked: Seq(1), awaits: Awaits::Finished, timeout_ms: Some(1_000) };
    two.report(0, 1, vec![], Then::Suspend { open: vec![open] });
    two.post(sends, 0);
    let sends = two.alarm(0, 1_001);
    two.post(sends, 0);
    let [(Seq(1), Outcome::Err(failure))] = &two.finished(1)[..] else { panic!("{:?}", two.finished(1)) };
    assert_eq!(failure.code, Some(Code::ChildTimedOut));
    let (_, child) = two.child(&parent.id, 1).expect("it was started");
    assert_eq!(child.status(), Status::Cancelled);
    assert_eq!((two.letters(), two.finished(1).len()), (0, 1));
}

#[test]
fn a_child_is_let_go_of_without_a_search_through_the_journal_behind_it() {
    for times_out in [true, false] {
        let mut two = Two::new();
        let parent = two.parent();
        let sends = two.report(0, 1, vec![invoke(0, invocation())], Then::Continue { open: None });
        two.post(sends, 0);
        for step in 0..2_000 {
            two.report(0, 1, vec![super::step(&format!("s{step}"))], Then::Continue { open: None });
        }
        let sends = two.report(0, 1, vec![invoke(1, invocation())], Then::Continue { open: None });
        two.post(sends, 0);
        let timeout_ms = Some(1_000);
        let open = Open::Child { op: op(0), invoked: Seq(1), awaits: Awaits::Finished, timeout_ms };
        two.report(0, 1, vec![], Then::Suspend { open: vec![open] });
        two.rows[0].looked_at.set(0);
        let sends = if times_out {
            two.alarm(0, 1_001)
        } else {
            let clock = two.clock();
            two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
            two.sends(0)
        };
        two.post(sends, 0);
        for invoked in if times_out { &[1][..] } else { &[1, 2_002] } {
            let (_, child) = two.child(&parent.id, *invoked).expect("it was started");
            assert_eq!(child.status(), Status::Cancelled, "{invoked}");
        }
        let looked_at = two.rows[0].looked_at.get();
        assert!(looked_at <= 10, "{looked_at} events");
    }
}

#[test]
fn what_is_taken_back_is_another_child_the_next_time() {
    let (mut two, parent, sends) = waiting(invocation());
    two.post(sends, 0);
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Pause).expect("it can be");
    two.cells[0]
        .act(&two.rows[0], clock, &parent.id, "me", Action::Restart { from: None })
        .expect("it is paused");
    let orders = two.cells[0].take_orders();
    two.post(orders.send, 0);
    let (cell, first) = two.child(&parent.id, 1).expect("it was started");
    assert_eq!(first.status(), Status::Cancelled, "nobody waits for the first one");
    let number = parent.id.number;
    let epoch = two.rows[0].get(number).epoch;
    let commit = said(Seq(0), vec![invoke(0, invocation())], Then::Continue { open: None });
    let clock = two.clock();
    two.cells[0].commit(&two.rows[0], clock, number, epoch, commit, 99).expect("in turn");
    let sends = two.sends(0);
    two.post(sends, 0);
    let invoked = two.rows[0].get(number).children.iter().last().expect("it is open");
    let (_, second) = two.child(&parent.id, invoked.0).expect("it is started");
    assert_ne!(second.id, first.id);
    // The end of the first one comes late, and is none of the second.
    let late = Message::Ended {
        parent: first.parent.clone().expect("a child"),
        run: first.id.clone(),
        outcome: Outcome::Ok(Payload::null()),
    };
    let chance = Chance { suffix: RunId::suffix_from(5), seed: 5 };
    let clock = two.clock();
    let receipt = two.cells[0].receive(&two.rows[0], clock, place(0), chance, late).expect("it is answered");
    assert_eq!((receipt, two.finished(number).len()), (Receipt::Gone, 0), "in cell {cell}");
}

#[test]
fn a_retry_invokes_the_child_that_failed_again_and_leaves_detached_ones_alone() {
    let mut two = Two::new();
    let parent = two.parent();
    let detached = Invocation { detached: true, ..invocation() };
    let commands = vec![invoke(1, detached), invoke(0, invocation())];
    let sends = two.report(0, 1, commands, Then::Continue { open: None });
    two.post(sends, 0);
    // The detached one fails last.
    for invoked in [2, 1] {
        let (cell, child) = two.child(&parent.id, invoked).expect("it is started");
        let failure = stepwell_protocol::Failure::terminal("no");
        let ended = two.report(cell, child.id.number, vec![], Then::Fail { failure });
        two.post(ended, cell);
    }
    assert_eq!(two.finished(1).len(), 2);
    two.report(0, 1, vec![], Then::Fail { failure: stepwell_protocol::Failure::terminal("no") });
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Retry).expect("it has failed");
    let run = two.rows[0].get(1);
    assert!(!run.counts(Seq(2)), "the child that failed is invoked again");
    assert!(run.counts(Seq(1)), "the other is not");
}

/// A parent with two children that has failed, and was retried.
fn retried(ends: &[(u32, bool)]) -> Run {
    let mut two = Two::new();
    let parent = two.parent();
    let commands = vec![invoke(0, invocation()), invoke(1, invocation())];
    let sends = two.report(0, 1, commands, Then::Continue { open: None });
    two.post(sends, 0);
    for &(invoked, succeeds) in ends {
        let (cell, child) = two.child(&parent.id, invoked).expect("it is started");
        let failure = stepwell_protocol::Failure::terminal("no");
        let then = if succeeds { done(1) } else { Then::Fail { failure } };
        let ended = two.report(cell, child.id.number, vec![], then);
        two.post(ended, cell);
    }
    let sends = two.report(0, 1, vec![], Then::Fail { failure: stepwell_protocol::Failure::terminal("no") });
    two.post(sends, 0);
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Retry).expect("it has failed");
    two.rows[0].get(1)
}

#[test]
fn a_run_that_is_retried_waits_for_no_child_that_it_never_hears_of() {
    for (ends, counted) in [
        // One fails, and the other is cancelled with the run.
        (&[(1, false)][..], [false, false]),
        // What the other gave comes after the failure, and is taken back with it.
        (&[(1, false), (2, true)], [false, false]),
        // What the other gave comes before it.
        (&[(2, true), (1, false)], [false, true]),
        // None has failed: both are cancelled with the run.
        (&[], [false, false]),
        (&[(1, true)], [true, false]),
    ] {
        let run = retried(ends);
        assert_eq!([run.counts(Seq(1)), run.counts(Seq(2))], counted, "{ends:?}");
        assert!(run.children.is_empty());
    }
}

#[test]
fn a_start_that_comes_after_its_child_was_deleted_starts_no_second_run() {
    let (mut two, parent, sends) = waiting(Invocation { retention_ms: Some(1_000), ..invocation() });
    let start = sends[0].clone();
    two.post(sends, 0);
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    let ended = two.report(cell, child.id.number, vec![], done(1));
    two.post(ended, cell);
    for _ in 0..5 {
        two.alarm(cell, 2_000);
    }
    let row = two.rows[cell].get(child.id.number);
    assert!(
        row.deleting && row.emptied && two.rows[cell].events(child.id.number) == 0,
        "it is gone for everybody"
    );
    assert_eq!(two.arrive(&start), Receipt::Started { run: child.id.clone() });
    two.crash(cell);
    assert_eq!(two.arrive(&start), Receipt::Started { run: child.id.clone() });
    let runs = two.runs();
    for _ in 0..3 {
        two.alarm(cell, INVOCATION_KEPT_MS);
    }
    assert_eq!(two.runs(), runs - 1, "after a week its row goes as well");
}

#[test]
fn a_start_that_is_refused_for_good_fails_the_invocation() {
    let (mut two, _, sends) = waiting(invocation());
    let problem = stepwell_protocol::Problem::new(Code::PayloadTooLarge, "It does not fit.");
    two.answer(0, &sends[0], Delivery::Refused(problem));
    let [(Seq(1), Outcome::Err(failure))] = &two.finished(1)[..] else { panic!("{:?}", two.finished(1)) };
    assert_eq!(failure.code, Some(Code::PayloadTooLarge));
    assert_eq!(two.letters(), 0);
}

#[test]
fn a_workflow_whose_starts_are_not_each_a_run_cannot_be_invoked() {
    let rule = stepwell_protocol::lane::StartRule::Singleton { key: None, cancel: false };
    let flow = stepwell_protocol::lane::Flow { starts: Some(rule), ..Default::default() };
    let (mut two, _, sends) = waiting(Invocation { flow: Some(Box::new(flow)), ..invocation() });
    let Err(Fault::Rejected(problem)) = two.hand_over(&sends[0]) else { panic!("it is refused") };
    two.answer(0, &sends[0], Delivery::refused(problem));
    let [(Seq(1), Outcome::Err(failure))] = &two.finished(1)[..] else { panic!("{:?}", two.finished(1)) };
    assert_eq!((failure.code, two.runs()), (Some(Code::InvalidRequest), 1));
}

#[test]
fn a_child_too_many_fails_at_once_and_the_others_are_started() {
    let mut two = Two::new();
    two.parent();
    let count = Invocation::OPEN_MAX + 2;
    let commands = (0..count).map(|occurrence| invoke(occurrence, invocation())).collect();
    let sends = two.report(0, 1, commands, Then::Continue { open: None });
    two.post(sends, 0);
    for _ in 0..count {
        let sends = two.alarm(0, 1);
        two.post(sends, 0);
    }
    assert_eq!(two.rows[0].get(1).children.count(), Invocation::OPEN_MAX);
    let failed = two.finished(1);
    assert_eq!(failed.iter().map(|(seq, _)| seq.0).collect::<Vec<_>>(), [count - 1, count]);
    assert_eq!(two.runs(), 1 + Invocation::OPEN_MAX as usize);
    assert_eq!(two.letters(), 0);
}

#[test]
fn the_end_of_an_end_is_no_end() {
    // A child of a child: the middle one is cancelled with the first, and the last with the middle one.
    let (mut two, parent, sends) = waiting(invocation());
    two.post(sends, 0);
    let (cell, middle) = two.child(&parent.id, 1).expect("it is started");
    let number = middle.id.number;
    let sends = two.report(cell, number, vec![invoke(0, invocation())], Then::Continue { open: None });
    two.post(sends, cell);
    two.report(cell, number, vec![], Then::Suspend { open: vec![waits(0, 1)] });
    let (_, last) = two.child(&middle.id, 1).expect("it is started");
    assert_eq!(last.depth(), 2);
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    let sends = two.sends(0);
    two.post(sends, 0);
    let (_, last) = two.child(&middle.id, 1).expect("it is there");
    assert!(matches!(last.phase, Phase::Ended { how: End::Cancelled, .. }));
    assert_eq!(two.letters(), 0);
}

#[test]
fn an_end_that_an_instance_knows_nothing_of_is_answered_only_with_a_write() {
    let (mut two, parent, sends) = waiting(invocation());
    two.post(sends, 0);
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    let ended = two.report(cell, child.id.number, vec![], done(1));
    // An instance that was superseded before the invocation: its answer would let the child's cell forget the letter.
    let (mut older, rows) = (fresh(), Memory::default());
    let chance = Chance { suffix: RunId::suffix_from(9), seed: 9 };
    let (clock, message) = (two.clock(), ended[0].message.clone());
    let receipt = older.receive(&rows, clock, place(0), chance, message).expect("it is answered");
    assert_eq!(receipt, Receipt::Gone);
    assert!(older.take_orders().arm.is_some(), "the answer waits for a write");
    // Whoever has heard of it knows that, and need not write.
    assert_eq!(two.arrive(&ended[0]), Receipt::Taken);
    drop(two.cells[0].take_orders());
    assert_eq!(two.arrive(&ended[0]), Receipt::Gone);
    assert_eq!(two.cells[0].take_orders().arm, None);
}

#[test]
fn a_start_that_comes_again_after_its_child_was_deleted_is_answered_with_its_id() {
    let mut two = Two::new();
    let parent = two.parent();
    let invocation = Invocation { detached: true, on_close: OnClose::Abandon, ..invocation() };
    let sends = two.report(0, 1, vec![invoke(0, invocation)], Then::Continue { open: None });
    let first = two.arrive(&sends[0]);
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    assert_eq!(first, Receipt::Started { run: child.id.clone() });
    two.report(cell, child.id.number, vec![], done(1));
    two.rows[cell].lose_run(child.id.number);
    two.crash(cell);
    assert_eq!(two.arrive(&sends[0]), first, "its parent waits for this answer");
}
