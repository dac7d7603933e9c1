//! A cell on rows in memory: activations of one run that overlap.

use std::{cell::RefCell, collections::BTreeMap, convert::Infallible};

use stepwell_core::{
    cell::{Cell, KeyRow, NewRun, Order, Rows, StoredRun},
    run::{CallEnd, Entry, Run},
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Place, Record, RunId, Seq, Timestamp,
    program::{Answer, Commit, Open, RawPage, RawRecord, Then},
};

#[derive(Default)]
struct Memory(RefCell<BTreeMap<u64, (Run, Vec<Record>)>>);

impl Rows for Memory {
    type Error = Infallible;

    fn run(&self, number: u64) -> Result<Option<Run>, Infallible> {
        Ok(self.0.borrow().get(&number).map(|(run, _)| run.clone()))
    }

    fn last_number(&self) -> Result<u64, Infallible> {
        Ok(self.0.borrow().keys().last().copied().unwrap_or_default())
    }

    fn insert(&self, run: &Run, _: &Payload, _: Option<&KeyRow>) -> Result<(), Infallible> {
        self.0.borrow_mut().insert(run.id.number, (run.clone(), Vec::new()));
        Ok(())
    }

    fn commit(&self, run: &Run, _: Option<Timestamp>, entries: &[Entry]) -> Result<(), Infallible> {
        let mut rows = self.0.borrow_mut();
        let (stored, journal) = rows.get_mut(&run.id.number).expect("it was inserted");
        *stored = run.clone();
        for entry in entries {
            if let Entry::Recorded { record, .. } = entry {
                journal.push(record.clone());
            }
        }
        Ok(())
    }

    fn key(&self, _: &str) -> Result<Option<StoredRun>, Infallible> {
        Ok(None)
    }

    fn has_signal(&self, _: u64, _: &str) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn input(&self, _: u64) -> Result<Payload, Infallible> {
        Ok(Payload::null())
    }

    fn page(&self, number: u64, after: Seq) -> Result<RawPage, Infallible> {
        let records = self.records(number, after, Seq(u32::MAX))?.into_iter().map(|record| RawRecord {
            seq: record.seq,
            at: record.at,
            event: Payload::encode(&record.event).expect("events are JSON"),
        });
        Ok(RawPage { events: records.collect(), more: false })
    }

    fn records(&self, number: u64, after: Seq, through: Seq) -> Result<Vec<Record>, Infallible> {
        let rows = self.0.borrow();
        let journal = rows.get(&number).map(|(_, journal)| journal.as_slice()).unwrap_or_default();
        Ok(journal.iter().filter(|record| record.seq > after && record.seq <= through).cloned().collect())
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Infallible> {
        let rows = self.0.borrow();
        let mut due: Vec<_> =
            rows.iter().filter_map(|(number, (run, _))| Some((run.wake_at()?, *number))).collect();
        due.retain(|&place| place > after && place.0 <= now);
        due.sort_unstable();
        due.truncate(limit);
        Ok(due)
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Infallible> {
        Ok(self.due(after, Timestamp::MAX, 1)?.first().map(|&(at, _)| at))
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

#[test]
fn the_late_end_of_an_earlier_call_does_not_orphan_the_present_one() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let new = NewRun {
        place: Place { pool: "default".into(), generation: 1, cell: 0 },
        suffix: RunId::suffix_from(7),
        seed: 1,
        workflow: "w".into(),
        input: Payload::null(),
        key: None,
    };
    let run = cell.start(&rows, at(0), new).expect("it is accepted").run;
    // Its first program waits for a signal, which comes before that program's call is seen to be over.
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait { op, signal: "s".into(), timeout_ms: None }];
    let commit = Commit { epoch: Epoch(1), base: Seq(0), commands: vec![], then: Then::Suspend { open } };
    let answer = cell.commit(&rows, at(10), 1, Epoch(1), commit, 1).expect("it is accepted");
    assert_eq!(answer, Answer::Stop);
    cell.signal(&rows, at(11), &run.id, "s".into(), None, Payload::null()).expect("it is kept");
    assert!(cell.take_orders().contains(&Order::Call { number: 1, epoch: Epoch(2) }));
    cell.call_ended(&rows, at(12), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(cell.calls(), 1, "the second call is under way");
    cell.alarm(&rows, at(20_000)).expect("the rows can be read");
    let run = rows.run(1).expect("it is there").expect("it is there");
    assert!(run.is_held_by(Epoch(2)), "{:?}", run.phase);
    assert_eq!(run.trouble.suspicion, 0);
}
