//! Runs that are deleted when they have been kept for long enough.

use stepwell_core::{
    cell::{Action, Cell, DELETE_SLICE, KeyRow, NewRun},
    object::{Fault, Hosted as _, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{
    Code, Epoch, Op, OpKind, Payload, RunId, Seq, Timestamp,
    program::{Command, Then},
};

use super::{at, memory::Memory, new_run, said};

const KEPT_MS: u64 = 10_000;

struct Bench {
    rows: Memory,
    cell: Cell,
}

impl Bench {
    fn new() -> Self {
        Self { rows: Memory::default(), cell: Cell::new(4) }
    }

    fn start(&mut self, ms: u64, retention_ms: Option<u64>, key: Option<&str>) -> RunId {
        let key = key.map(|key| KeyRow { key: key.into(), fingerprint: "f".into() });
        let new = NewRun { retention_ms, key, ..new_run(None) };
        // As with every request.
        self.cell.repair(&self.rows, at(ms)).expect("the rows can be read");
        self.cell.start(&self.rows, at(ms), new).expect("it is accepted").run.id
    }

    /// A run that has ended at a time, with so many events.
    fn ended(&mut self, ms: u64, events: u32, retention_ms: Option<u64>, key: Option<&str>) -> RunId {
        let id = self.start(ms, retention_ms, key);
        let steps = (0..events).map(|occurrence| Command::StepSucceeded {
            op: Op { kind: OpKind::Step, name: "s".into(), occurrence },
            attempt: 1,
            output: Payload::null(),
            took_ms: None,
        });
        let then = Then::Complete { output: Payload::null() };
        let commit = said(Seq(0), steps.collect(), then);
        self.cell.commit(&self.rows, at(ms), id.number, Epoch(1), commit, 1).expect("it is accepted");
        let _late = self.cell.call_ended(&self.rows, at(ms), id.number, Epoch(1), CallEnd::Returned);
        id
    }

    fn found(&self, key: &str) -> Option<u64> {
        self.cell.find_key(&self.rows, key).expect("the rows can be read")
    }

    fn is_there(&self, id: &RunId) -> bool {
        match self.cell.find(&self.rows, id) {
            Ok(_) => true,
            Err(Fault::Rejected(problem)) => {
                assert_eq!(problem.code, Code::RunNotFound);
                false
            }
            Err(Fault::Storage(error)) => panic!("{error:?}"),
            Err(Fault::Moved(place)) => panic!("it is at {place}"),
        }
    }

    /// Lets the alarm fire, and says when the next one does.
    fn alarm(&mut self, ms: u64) -> Option<Timestamp> {
        self.rows.deleted.set(0);
        let _before = self.cell.take_orders();
        self.cell.alarm(&self.rows, at(ms)).expect("the rows can be read");
        self.cell.take_orders().arm
    }
}

#[test]
fn a_run_is_deleted_when_its_time_is_over_and_not_before() {
    let mut bench = Bench::new();
    let kept = bench.ended(0, 3, None, None);
    let run = bench.ended(0, 3, Some(KEPT_MS), None);
    assert_eq!(bench.rows.get(run.number).wake_at(), Some(at(KEPT_MS)));
    assert_eq!(bench.alarm(KEPT_MS - 1), Some(at(KEPT_MS)), "the alarm is set for it");
    assert!(bench.is_there(&run));
    let counts = bench.alarm(KEPT_MS).expect("what has happened is stored a little later");
    assert!(!bench.is_there(&run));
    let later = counts.as_millis() - at(0).as_millis();
    assert_eq!(bench.alarm(later), None, "nothing is left to be done");
    assert_eq!((bench.rows.runs(), bench.rows.events(run.number)), (1, 0));
    assert!(bench.is_there(&kept), "what is kept for ever stays");
    assert_eq!(bench.rows.events(kept.number), 3);
}

#[test]
fn a_long_run_is_deleted_in_slices_and_is_gone_from_the_first_on() {
    let mut bench = Bench::new();
    let events = u32::try_from(3 * DELETE_SLICE.rows + 7).expect("small");
    let (long, short) =
        (bench.ended(0, events, Some(KEPT_MS), Some("k")), bench.ended(0, 1, Some(KEPT_MS), None));
    let mut alarms = 0;
    let mut now = KEPT_MS;
    while bench.rows.runs() > 0 {
        let next = bench.alarm(now);
        alarms += 1;
        let deleted = bench.rows.deleted.get();
        assert!(deleted <= DELETE_SLICE.rows, "{deleted} rows at once");
        assert!(!bench.is_there(&long));
        assert!(
            bench.cell.act(&bench.rows, at(now), &long, "root", Action::Restart { from: None }).is_err(),
            "it cannot be taken back"
        );
        if bench.rows.runs() > 0 {
            now += 1;
            assert_eq!(next, Some(at(now)), "the next slice follows at once");
        }
        // Whoever takes over goes on.
        if alarms == 2 {
            bench.cell = Cell::new(4);
        }
        assert!(alarms < 20, "it never ends");
    }
    assert_eq!(alarms, 4);
    assert!(!bench.is_there(&short));
    assert_eq!(bench.rows.events(long.number), 0);
}

#[test]
fn a_key_is_free_again_when_its_run_is_gone_even_while_that_is_being_deleted() {
    let mut bench = Bench::new();
    let events = u32::try_from(2 * DELETE_SLICE.rows).expect("small");
    let old = bench.ended(0, events, Some(KEPT_MS), Some("k"));
    assert_eq!(bench.start(5, None, Some("k")), old);
    assert_eq!(bench.found("k"), Some(old.number));
    bench.alarm(KEPT_MS);
    assert_eq!((bench.rows.runs(), bench.found("k")), (1, None), "nobody finds it by its key either");
    let new = bench.start(KEPT_MS, None, Some("k"));
    assert_ne!(new, old);
    assert_eq!(bench.found("k"), Some(new.number));
    let mut now = KEPT_MS;
    while bench.rows.runs() > 1 {
        now += 1;
        bench.alarm(now);
        assert!(now < KEPT_MS + 20, "it never ends");
    }
    assert_eq!(bench.start(now, None, Some("k")), new, "the key is the new run's");
}

#[test]
fn a_run_that_is_taken_back_in_time_lives() {
    let mut bench = Bench::new();
    let run = bench.ended(0, 3, Some(KEPT_MS), None);
    bench
        .cell
        .act(&bench.rows, at(KEPT_MS - 1), &run, "root", Action::Restart { from: None })
        .expect("it has ended");
    bench.alarm(KEPT_MS + 1);
    assert!(bench.is_there(&run));
    let stored = bench.rows.get(run.number);
    assert!(stored.is_held_by(Epoch(2)) && stored.expires_at().is_none());
    // Its time begins anew with its next end.
    bench.cell.act(&bench.rows, at(KEPT_MS + 5), &run, "root", Action::Cancel).expect("it is at work");
    assert_eq!(bench.rows.get(run.number).wake_at(), Some(at(2 * KEPT_MS + 10)));
}

#[test]
fn a_number_is_never_used_again() {
    let mut bench = Bench::new();
    let run = bench.ended(0, 1, Some(KEPT_MS), None);
    bench.alarm(KEPT_MS);
    assert_eq!(bench.rows.runs(), 0);
    bench.cell = Cell::new(4);
    assert_eq!(bench.start(KEPT_MS, None, None).number, run.number + 1);
}

#[test]
fn many_runs_that_expire_at_once_are_deleted_in_slices_too() {
    let mut bench = Bench::new();
    for _ in 0..200 {
        bench.ended(0, 10, Some(KEPT_MS), None);
    }
    let mut now = KEPT_MS;
    while bench.rows.runs() > 0 {
        bench.alarm(now);
        let deleted = bench.rows.deleted.get();
        assert!((1..=DELETE_SLICE.rows).contains(&deleted), "{deleted} rows at once");
        now += 1;
        assert!(now < KEPT_MS + 50, "it never ends");
    }
    assert!(now > KEPT_MS + 2, "2,200 rows are more than one slice");
}

#[test]
fn runs_that_end_within_a_minute_of_each_other_expire_at_the_same_time() {
    let mut bench = Bench::new();
    let month_ms = 30 * 86_400_000;
    let times: std::collections::BTreeSet<_> = (0..60_u64)
        .map(|second| {
            let id = bench.ended(second * 1_000, 0, Some(month_ms), None);
            let run = bench.rows.get(id.number);
            let over = at(second * 1_000 + month_ms);
            let expires_at = run.expires_at().expect("it has ended");
            assert!(expires_at >= over && expires_at < over.plus_millis(60_000));
            expires_at
        })
        .collect();
    assert!(times.len() <= 2, "{times:?}");
}

#[test]
fn large_events_are_deleted_a_few_at_a_time() {
    let mut bench = Bench::new();
    bench.rows.event_bytes.set(DELETE_SLICE.bytes / 4);
    for events in [3, 3, 10] {
        bench.ended(0, events, Some(KEPT_MS), None);
    }
    let mut deleted = Vec::new();
    let mut now = KEPT_MS;
    while bench.rows.runs() > 0 {
        bench.alarm(now);
        deleted.push(bench.rows.deleted.get());
        now += 1;
        assert!(now < KEPT_MS + 20, "it never ends");
    }
    // A run of three events and its row; another one does not fit beside it. Then four events at a time.
    assert_eq!(deleted, [4, 4 + 1, 4, 4, 2]);
}
