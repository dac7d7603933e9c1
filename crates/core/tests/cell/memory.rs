//! Rows in memory.

use std::{cell::RefCell, collections::BTreeMap, convert::Infallible};

use stepwell_core::{
    cell::{KeyRow, Rows, StoredRun},
    run::{Entry, Mark, Run, RunRow, Tail},
};
use stepwell_protocol::{
    Payload, Record, Seq, Timestamp,
    program::{RawPage, RawRecord},
};

/// The rows of a cell. Runs are read back from what is stored of them, as after a crash.
#[derive(Default)]
pub struct Memory(RefCell<BTreeMap<u64, Stored>>);

struct Stored {
    run: Run,
    row: RunRow,
    journal: Vec<(Record, Option<Mark>)>,
}

/// How many events go into a page.
const PAGE_SIZE: usize = 2;

impl Memory {
    /// A run that is there.
    pub fn get(&self, number: u64) -> Run {
        let Ok(run) = self.run(number);
        run.expect("it was inserted")
    }

    /// Every event of a run that was ever recorded.
    pub fn history(&self, number: u64) -> Vec<Record> {
        let Ok(records) = self.records(number, Seq(0), Seq(u32::MAX));
        records
    }
}

impl Rows for Memory {
    type Error = Infallible;

    fn run(&self, number: u64) -> Result<Option<Run>, Infallible> {
        Ok(self.0.borrow().get(&number).map(|Stored { run, row, journal }| {
            let tail = Tail {
                head: journal.last().map_or(Seq(0), |(record, _)| record.seq),
                mark: journal.iter().rev().find_map(|(_, mark)| *mark),
            };
            let Run { id, workflow, created_at, .. } = run.clone();
            Run::from_row(id, workflow, created_at, &row.state, tail).expect("it was written by a run")
        }))
    }

    fn last_number(&self) -> Result<u64, Infallible> {
        Ok(self.0.borrow().keys().last().copied().unwrap_or_default())
    }

    fn insert(&self, run: &Run, _: &Payload, _: Option<&KeyRow>) -> Result<(), Infallible> {
        let stored = Stored { run: run.clone(), row: run.to_row(), journal: Vec::new() };
        self.0.borrow_mut().insert(run.id.number, stored);
        Ok(())
    }

    fn commit(&self, run: &Run, _: Option<Timestamp>, entries: &[Entry]) -> Result<(), Infallible> {
        let mut rows = self.0.borrow_mut();
        let stored = rows.get_mut(&run.id.number).expect("it was inserted");
        for entry in entries {
            if let Entry::Recorded { record, mark } = entry {
                stored.journal.push((record.clone(), *mark));
            }
        }
        if entries.iter().any(Entry::changes_row) {
            stored.row = run.to_row();
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
        let mut records = self.records(number, after, Seq(u32::MAX))?;
        let more = records.len() > PAGE_SIZE;
        records.truncate(PAGE_SIZE);
        let records = records.into_iter().map(|record| RawRecord {
            seq: record.seq,
            at: record.at,
            event: Payload::encode(&record.event).expect("events are JSON"),
        });
        Ok(RawPage { events: records.collect(), more })
    }

    fn records(&self, number: u64, after: Seq, through: Seq) -> Result<Vec<Record>, Infallible> {
        let rows = self.0.borrow();
        let journal = rows.get(&number).map(|stored| stored.journal.as_slice()).unwrap_or_default();
        let records = journal.iter().map(|(record, _)| record);
        Ok(records.filter(|record| record.seq > after && record.seq <= through).cloned().collect())
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Infallible> {
        let rows = self.0.borrow();
        let mut due: Vec<_> =
            rows.iter().filter_map(|(number, stored)| Some((stored.row.wake_at?, *number))).collect();
        due.retain(|&place| place > after && place.0 <= now);
        due.sort_unstable();
        due.truncate(limit);
        Ok(due)
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Infallible> {
        Ok(self.due(after, Timestamp::MAX, 1)?.first().map(|&(at, _)| at))
    }
}
