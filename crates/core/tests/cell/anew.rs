//! Runs that begin anew in a cell: what they are called with, what they cost, and how what they leave behind goes.

use stepwell_core::{
    cell::{Action, Cell, DELETE_SLICE, KeyRow, NewRun, Slice},
    object::Machine as _,
    run::{CallEnd, Signal},
};
use stepwell_protocol::{
    Epoch, Event, Op, OpKind, Payload, RunId, Seq,
    program::{Answer, Command, Then},
};

use super::{at, calls, memory::Memory, new_run, said, step};

fn anew(input: u32, keeps: Vec<Seq>) -> Then {
    Then::Anew { input: Payload::encode(&input).expect("a number"), keeps, keeps_bytes: 0 }
}

struct Bench {
    rows: Memory,
    cell: Cell,
    ms: u64,
}

impl Bench {
    fn new() -> (Self, RunId) {
        let mut bench = Self { rows: Memory::default(), cell: Cell::new(1), ms: 0 };
        let run = bench.cell.start(&bench.rows, at(0), new_run(None)).expect("it is accepted").run;
        (bench, run.id)
    }

    /// The present activation reports.
    fn commit(&mut self, commands: Vec<Command>, then: Then) -> Answer {
        self.ms += 1;
        let run = self.rows.get(1);
        let commit = said(run.last_counted(), commands, then);
        self.cell.commit(&self.rows, at(self.ms), 1, run.epoch, commit, self.ms).expect("in turn")
    }

    /// The call of an activation is over, and the next one begins.
    fn next(&mut self) -> Epoch {
        let epoch = self.rows.get(1).epoch;
        self.cell.call_ended(&self.rows, at(self.ms), 1, epoch, CallEnd::Returned).expect("it is recorded");
        let called = calls(&mut self.cell);
        assert_eq!(called.last(), Some(&(1, epoch.next())), "its program is called anew");
        epoch.next()
    }

    fn alarm(&mut self) {
        self.ms += 5_000;
        self.rows.deleted.set(0);
        self.cell.alarm(&self.rows, at(self.ms)).expect("the rows can be read");
    }
}

fn steps(count: usize) -> Vec<Command> {
    let step = |occurrence| Command::StepSucceeded {
        op: Op { kind: OpKind::Step, name: "s".into(), occurrence },
        attempt: 1,
        output: Payload::null(),
        took_ms: None,
    };
    (0..u32::try_from(count).expect("few")).map(step).collect()
}

#[test]
fn the_next_life_is_called_with_its_input_and_the_signals_that_nobody_took() {
    let (mut bench, id) = Bench::new();
    for n in 0..3 {
        let payload = Payload::encode(&n).expect("a number");
        bench.cell.signal(&bench.rows, at(0), &id, Signal::new("s", payload)).expect("it is kept");
    }
    assert_eq!(bench.commit(vec![step("a")], anew(7, vec![Seq(2), Seq(3)])), Answer::Stop);
    let epoch = bench.next();
    let activation = bench.cell.activation(&bench.rows, at(bench.ms), 1, epoch).expect("it is due");
    assert_eq!(activation.input.text(), "7");
    assert_eq!(activation.life.expect("it has begun anew").number, 2);
    assert!(activation.life.expect("it has begun anew").begins_with(epoch));
    let seqs: Vec<_> = activation.journal.events.iter().map(|record| record.seq.0).collect();
    assert_eq!(seqs, [2, 3]);
    // A fresh instance reads the same.
    bench.cell = Cell::new(1);
    let page = bench.cell.page(&bench.rows, 1, epoch, Seq(0)).expect("it is at work");
    assert_eq!(page.events, activation.journal.events);
}

#[test]
fn the_next_life_goes_behind_those_who_wait() {
    let (mut bench, _) = Bench::new();
    bench.cell.start(&bench.rows, at(0), new_run(None)).expect("it is accepted");
    bench.commit(vec![step("a")], anew(1, vec![]));
    bench.cell.call_ended(&bench.rows, at(2), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(calls(&mut bench.cell).last(), Some(&(2, Epoch(1))));
    let commit = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    bench.cell.commit(&bench.rows, at(3), 2, Epoch(1), commit, 3).expect("in turn");
    bench.cell.call_ended(&bench.rows, at(3), 2, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(calls(&mut bench.cell), [(1, Epoch(2))]);
}

#[test]
fn a_life_costs_two_rows_and_what_it_deletes() {
    let (mut bench, _) = Bench::new();
    bench.commit(steps(10), Then::Continue { open: None });
    let before = bench.rows.get(1).spent.rows;
    bench.commit(vec![], anew(1, vec![]));
    // Its row, and its entry in the index of what is due.
    assert_eq!(bench.rows.get(1).spent.rows, before + 2);
    bench.next();
    let before = bench.rows.get(1).spent.rows;
    bench.alarm();
    assert_eq!(bench.rows.deleted.get(), 10);
    bench.commit(vec![step("a")], Then::Complete { output: Payload::null() });
    // Ten deletions; the step, its row and no entry: it is kept for ever.
    assert_eq!(bench.rows.get(1).spent.rows, before + 10 + 2);
}

#[test]
fn what_a_life_leaves_behind_goes_in_slices_whatever_the_run_does_meanwhile() {
    let (mut bench, id) = Bench::new();
    bench.cell.signal(&bench.rows, at(0), &id, Signal::new("s", Payload::null())).expect("it is kept");
    bench.commit(steps(2 * DELETE_SLICE.rows + 7), anew(1, vec![Seq(1)]));
    bench.next();
    let mut alarms = 0;
    while bench.rows.get(1).remains.is_some() {
        bench.alarm();
        alarms += 1;
        assert!(bench.rows.deleted.get() <= DELETE_SLICE.rows);
        bench.commit(vec![step("b")], Then::Continue { open: Some(vec![]) });
        // Whoever takes over goes on.
        if alarms == 1 {
            bench.cell = Cell::new(1);
            bench.alarm();
            assert_eq!(bench.rows.deleted.get(), DELETE_SLICE.rows);
            let (_, epoch) = calls(&mut bench.cell)[0];
            assert_eq!(bench.rows.get(1).epoch, epoch);
        }
        assert!(alarms < 20, "it never ends");
    }
    assert_eq!(alarms, 2);
    let left: Vec<_> = bench.rows.history(1).into_iter().map(|record| record.event).collect();
    assert!(matches!(left[0], Event::SignalReceived { .. }), "{left:?}");
    assert_eq!(left.len(), 1 + alarms, "the signal, and the steps of this life");
}

#[test]
fn many_bytes_are_not_deleted_at_once_either() {
    let (mut bench, _) = Bench::new();
    bench.cell = Cell::new(1).with_delete_slice(Slice { rows: 100, bytes: 10 });
    bench.cell.alarm(&bench.rows, at(1)).expect("the rows can be read");
    bench.rows.event_bytes.set(4);
    bench.commit(steps(9), anew(1, vec![]));
    bench.alarm();
    assert_eq!(bench.rows.deleted.get(), 3);
}

#[test]
fn signals_that_are_kept_one_by_one_are_not_deleted_with_what_lies_between_them() {
    let (mut bench, id) = Bench::new();
    for _ in 0..9 {
        bench.cell.signal(&bench.rows, at(0), &id, Signal::new("s", Payload::null())).expect("it is kept");
    }
    let kept = vec![Seq(2), Seq(3), Seq(5), Seq(9)];
    bench.commit(vec![step("a")], anew(1, kept.clone()));
    bench.next();
    bench.alarm();
    let left: Vec<_> = bench.rows.history(1).iter().map(|record| record.seq).collect();
    assert_eq!(left, kept);
    // The next life takes them all, and leaves them behind.
    bench.commit(vec![step("a")], anew(2, vec![]));
    bench.next();
    bench.alarm();
    assert_eq!(bench.rows.events(1), 0);
    let run = bench.rows.get(1);
    assert_eq!((run.head, run.cuts.len()), (Seq(11), 1), "no position is used twice");
}

#[test]
fn a_storage_that_refuses_to_delete_keeps_no_run_from_going_on() {
    let (mut bench, _) = Bench::new();
    bench.commit(steps(3), anew(1, vec![]));
    bench.next();
    bench.rows.refused.borrow_mut().insert(1);
    bench.alarm();
    assert_eq!(bench.rows.events(1), 3);
    bench.rows.refused.borrow_mut().clear();
    bench.commit(vec![step("b")], Then::Continue { open: None });
    bench.alarm();
    bench.alarm();
    assert_eq!(bench.rows.events(1), 1, "it is tried again");
}

#[test]
fn a_run_that_sleeps_over_the_death_of_its_cell_is_tidied_up_when_it_wakes() {
    let (mut bench, id) = Bench::new();
    bench.commit(steps(3), anew(1, vec![]));
    bench.next();
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let shape = stepwell_protocol::Shape::Any;
    let open = vec![stepwell_protocol::program::Open::Wait {
        op,
        signal: "s".into(),
        timeout_ms: None,
        shape,
        asked: None,
        event: None,
    }];
    bench.commit(vec![], Then::Suspend { open });
    bench.cell = Cell::new(1);
    bench.alarm();
    assert_eq!(bench.rows.events(1), 3, "nobody knows of it");
    bench.cell.signal(&bench.rows, at(bench.ms), &id, Signal::new("s", Payload::null())).expect("it waits");
    bench.alarm();
    assert_eq!(bench.rows.events(1), 1, "the signal alone is left");
}

#[test]
fn a_run_with_lives_is_deleted_like_any_other() {
    let (mut bench, _) = Bench::new();
    bench.rows = Memory::default();
    bench.cell = Cell::new(1);
    let key = KeyRow { key: "k".into(), fingerprint: "f".into() };
    let new = NewRun { retention_ms: Some(1_000), key: Some(key), ..new_run(None) };
    bench.cell.start(&bench.rows, at(0), new).expect("it is accepted");
    bench.commit(steps(30), anew(1, vec![]));
    bench.next();
    let found = bench.cell.find_key(&bench.rows, "k").expect("the rows can be read");
    assert_eq!(found, Some(1), "its key is that of all its lives");
    bench.commit(steps(5), Then::Complete { output: Payload::null() });
    while bench.rows.runs() > 0 {
        bench.alarm();
        assert!(bench.ms < 100_000, "it never ends");
    }
}

#[test]
fn a_restart_begins_the_present_life_again_with_its_signals() {
    let (mut bench, id) = Bench::new();
    bench.cell.signal(&bench.rows, at(0), &id, Signal::new("s", Payload::null())).expect("it is kept");
    bench.commit(steps(3), anew(5, vec![Seq(1)]));
    bench.next();
    bench.commit(steps(2), Then::Fail { failure: stepwell_protocol::Failure::new("no") });
    bench
        .cell
        .act(&bench.rows, at(bench.ms), &id, "root", Action::Restart { from: None })
        .expect("it has ended");
    let run = bench.rows.get(1);
    let counted: Vec<_> = bench.rows.history(1).into_iter().filter(|record| run.counts(record.seq)).collect();
    assert!(
        matches!(counted[..], [ref one] if matches!(one.event, Event::SignalReceived { .. })),
        "{counted:?}"
    );
    assert_eq!(run.life.expect("it has begun anew").number, 2);
}
