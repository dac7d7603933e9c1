//! Rows in memory.

use std::{
    cell::{Cell as Slot, RefCell},
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    ops::Bound,
};

use stepwell_core::{
    cell::{KeyRow, Rows, Slice, Sought, StoredKey, StoredRun, Tally, Trimmed},
    run::{Entry, Mark, Run, RunRow, Tail},
    stream::{Change, ToldMark, ToldPage, ToldRow},
};
use stepwell_protocol::{
    Event, Payload, Place, Record, Seq, Timestamp,
    program::{RawPage, RawRecord},
};

/// The rows of a cell. Runs are read back from what is stored of them, as after a crash.
#[derive(Default)]
pub struct Memory {
    rows: RefCell<BTreeMap<u64, Stored>>,
    /// The runs that have a wake time, in its order.
    by_wake: RefCell<BTreeSet<(Timestamp, u64)>>,
    /// How many runs were read.
    pub reads: Slot<usize>,
    keys: RefCell<BTreeMap<String, StoredKey>>,
    signals: RefCell<BTreeSet<(u64, String)>>,
    last_number: Slot<u64>,
    /// How many bytes each event has.
    pub event_bytes: Slot<u64>,
    /// How many bytes it says that it has.
    pub bytes: Slot<u64>,
    /// The most rows that were deleted between two looks at it.
    pub deleted: Slot<usize>,
}

struct Stored {
    run: Run,
    row: RunRow,
    journal: Vec<(Record, Option<Mark>)>,
    told: Vec<ToldRow>,
}

/// How many events go into a page.
const PAGE_SIZE: usize = 2;

impl Memory {
    /// A run that is there.
    pub fn get(&self, number: u64) -> Run {
        let Ok(run) = self.run(number);
        run.expect("it was inserted")
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.rows.borrow().len()
    }

    /// How many events of a run there are.
    pub fn events(&self, number: u64) -> usize {
        self.rows.borrow().get(&number).map_or(0, |stored| stored.journal.len())
    }

    /// How many rows there are of what a run has published.
    pub fn told_rows(&self, number: u64) -> usize {
        self.rows.borrow().get(&number).map_or(0, |stored| stored.told.len())
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
        self.reads.set(self.reads.get() + 1);
        Ok(self.rows.borrow().get(&number).map(|Stored { run, row, journal, .. }| {
            let tail = Tail {
                head: journal.last().map_or(Seq(0), |(record, _)| record.seq),
                mark: journal.iter().rev().find_map(|(_, mark)| *mark),
            };
            let Run { id, workflow, created_at, .. } = run.clone();
            Run::from_row(id, workflow, created_at, &row.state, tail).expect("it was written by a run")
        }))
    }

    fn last_number(&self) -> Result<u64, Infallible> {
        Ok(self.rows.borrow().keys().last().copied().unwrap_or_default().max(self.last_number.get()))
    }

    fn latest(&self, limit: usize) -> Result<Vec<(u64, String)>, Infallible> {
        let rows = self.rows.borrow();
        let runs = rows.iter().rev().take(limit);
        Ok(runs.map(|(number, stored)| (*number, stored.run.id.suffix.clone())).collect())
    }

    fn insert(&self, run: &Run, _: &Payload, key: Option<&KeyRow>) -> Result<(), Infallible> {
        if let Some(KeyRow { key, fingerprint }) = key.cloned() {
            let stored = StoredRun { number: run.id.number, fingerprint };
            self.keys.borrow_mut().insert(key, StoredKey::Run(stored));
        }
        let stored = Stored { run: run.clone(), row: run.to_row(), journal: Vec::new(), told: Vec::new() };
        self.by_wake.borrow_mut().extend(stored.row.wake_at.map(|at| (at, run.id.number)));
        self.rows.borrow_mut().insert(run.id.number, stored);
        Ok(())
    }

    fn commit(&self, run: &Run, _: Option<Timestamp>, entries: &[Entry]) -> Result<(), Infallible> {
        let mut rows = self.rows.borrow_mut();
        let stored = rows.get_mut(&run.id.number).expect("it was inserted");
        for entry in entries {
            if let Entry::Recorded { record, mark } = entry {
                stored.journal.push((record.clone(), *mark));
                if let Event::SignalReceived { id: Some(id), .. } = &record.event {
                    self.signals.borrow_mut().insert((run.id.number, id.clone()));
                }
            } else if let Entry::SignalNoted(nonce) = entry {
                self.signals.borrow_mut().insert((run.id.number, nonce.clone()));
            }
        }
        if entries.iter().any(Entry::changes_row) {
            let mut by_wake = self.by_wake.borrow_mut();
            if let Some(at) = stored.row.wake_at {
                by_wake.remove(&(at, run.id.number));
            }
            stored.row = run.to_row();
            by_wake.extend(stored.row.wake_at.map(|at| (at, run.id.number)));
        }
        Ok(())
    }

    fn key(&self, key: &str) -> Result<Option<StoredKey>, Infallible> {
        Ok(self.keys.borrow().get(key).cloned())
    }

    fn reserve(&self, key: &str, to: &Place) -> Result<(), Infallible> {
        self.keys.borrow_mut().insert(key.to_owned(), StoredKey::Moved(to.clone()));
        Ok(())
    }

    fn weight(&self, number: u64) -> Result<u64, Infallible> {
        Ok(self.events(number) as u64 * self.event_bytes.get())
    }

    fn trim(&self, number: u64, room: Slice) -> Result<Trimmed, Infallible> {
        let mut rows = self.rows.borrow_mut();
        let journal = &mut rows.get_mut(&number).expect("it was inserted").journal;
        let fit = room.bytes.checked_div(self.event_bytes.get());
        let fit = fit.and_then(|fit| usize::try_from(fit).ok()).unwrap_or(usize::MAX);
        let mut trimmed = journal.len().min(room.rows).min(fit.max(1));
        journal.drain(..trimmed);
        let is_all = journal.is_empty();
        let told = &mut rows.get_mut(&number).expect("it was inserted").told;
        if is_all {
            let told_trimmed = told.len().min(room.rows - trimmed);
            told.drain(..told_trimmed);
            trimmed += told_trimmed;
        }
        self.deleted.set(self.deleted.get() + trimmed);
        Ok(Trimmed { rows: trimmed, is_all: is_all && told.is_empty() && trimmed < room.rows })
    }

    fn remove(&self, run: &Run) -> Result<usize, Infallible> {
        let number = run.id.number;
        let stored = self.rows.borrow_mut().remove(&number).expect("it was inserted");
        if let Some(at) = stored.row.wake_at {
            self.by_wake.borrow_mut().remove(&(at, number));
        }
        self.last_number.set(self.last_number.get().max(number));
        self.keys.borrow_mut().retain(|_, key| !matches!(key, StoredKey::Run(run) if run.number == number));
        let removed = 1 + stored.journal.len() + stored.told.len() + usize::from(run.key.is_some());
        self.deleted.set(self.deleted.get() + removed);
        Ok(removed)
    }

    fn tally(&self, after: u64, limit: usize) -> Result<Tally, Infallible> {
        let numbers: Vec<_> = self.rows.borrow().keys().copied().filter(|number| *number > after).collect();
        let looked_at = &numbers[..numbers.len().min(limit)];
        let runs = looked_at.iter().map(|number| self.get(*number)).filter(|run| !run.deleting);
        Ok(Tally {
            counts: runs.map(|run| (run.workflow.clone(), run.status(), 1)).collect(),
            more_after: looked_at.last().copied().filter(|_| numbers.len() > limit),
        })
    }

    fn bytes(&self) -> Result<u64, Infallible> {
        Ok(self.bytes.get())
    }

    fn has_signal(&self, number: u64, id: &str) -> Result<bool, Infallible> {
        Ok(self.signals.borrow().contains(&(number, id.to_owned())))
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
        let rows = self.rows.borrow();
        let journal = rows.get(&number).map(|stored| stored.journal.as_slice()).unwrap_or_default();
        let records = journal.iter().map(|(record, _)| record);
        Ok(records.filter(|record| record.seq > after && record.seq <= through).cloned().collect())
    }

    fn find(&self, number: u64, what: &Sought<'_>, after: Seq) -> Result<Vec<Record>, Infallible> {
        let records = self.records(number, after, Seq(u32::MAX))?.into_iter();
        Ok(records.filter(|record| what.fits(&record.event)).take(PAGE_SIZE).collect())
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Infallible> {
        let by_wake = self.by_wake.borrow();
        let due = by_wake.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(due.take_while(|(at, _)| *at <= now).take(limit).copied().collect())
    }

    fn due_of(
        &self,
        workflow: &str,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Infallible> {
        let (rows, by_wake) = (self.rows.borrow(), self.by_wake.borrow());
        let due = by_wake.range((Bound::Excluded(after), Bound::Unbounded));
        let due = due.take_while(|(at, _)| *at <= now);
        let due = due.filter(|(_, number)| rows.get(number).is_some_and(|row| row.run.workflow == workflow));
        Ok(due.take(limit).copied().collect())
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Infallible> {
        Ok(self.due(after, Timestamp::MAX, 1)?.first().map(|&(at, _)| at))
    }

    fn tell(&self, number: u64, row: &ToldRow) -> Result<(), Infallible> {
        let mut rows = self.rows.borrow_mut();
        rows.get_mut(&number).expect("it was inserted").told.push(row.clone());
        Ok(())
    }

    fn told_last(&self, number: u64) -> Result<Option<(u32, ToldMark)>, Infallible> {
        let rows = self.rows.borrow();
        Ok(rows.get(&number).and_then(|stored| stored.told.last()).map(|row| (row.last, row.mark)))
    }

    fn told(&self, number: u64, after: u32) -> Result<ToldPage, Infallible> {
        let rows = self.rows.borrow();
        let told = rows.get(&number).map(|stored| stored.told.as_slice()).unwrap_or_default();
        let mut rows: Vec<_> = told.iter().filter(|row| row.last > after).cloned().collect();
        let more = rows.len() > PAGE_SIZE;
        rows.truncate(PAGE_SIZE);
        Ok(ToldPage { rows, more })
    }

    fn told_weight(&self, number: u64) -> Result<Slice, Infallible> {
        let rows = self.rows.borrow().get(&number).map_or(0, |stored| stored.told.len());
        Ok(Slice { rows, bytes: 0 })
    }

    fn changed(&self, from: u64, limit: usize) -> Result<Vec<Change>, Infallible> {
        let runs: Vec<_> = self.rows.borrow().keys().map(|number| self.get(*number)).collect();
        let mut changes: Vec<_> = runs
            .into_iter()
            .filter(|run| run.stamps.status >= from)
            .map(|run| Change {
                stamp: run.stamps.status,
                status: run.status(),
                id: run.id,
                workflow: run.workflow,
            })
            .collect();
        changes.sort_unstable_by_key(|change| change.stamp);
        changes.truncate(limit);
        Ok(changes)
    }
}
