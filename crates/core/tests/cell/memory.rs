//! Rows in memory.

use std::{
    cell::{Cell as Slot, RefCell},
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use stepwell_core::{
    cell::{
        Happened, JoinedRun, KeyRow, Mail, Rows, Slice, Sought, StoredKey, StoredRun, Tally, Trimmed,
        add_happened,
    },
    object::{Discarded, Letter, Letters, Slip},
    run::{Cut, Entry, KnownJoin, Run, RunRow, Tail, Trailer},
    stream::{Change, PublishedMark, PublishedPage, PublishedRow, Walked},
};
use stepwell_protocol::{
    Event, Payload, Place, Record, Seq, Timestamp,
    program::{RawPage, RawRecord},
};

#[path = "failure_rows.rs"]
mod failure_rows;

use failure_rows::Failures;

/// Why the storage failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// What is stored of a run cannot be read.
    Unreadable,
    /// It does not take what is written.
    Refused,
}

/// The rows of a cell. Runs are read back from what is stored of them, as after a crash.
#[derive(Default)]
pub struct Memory {
    rows: RefCell<BTreeMap<u64, Stored>>,
    /// The runs that have a wake time, in its order.
    by_wake: RefCell<BTreeSet<(Timestamp, u64)>>,
    /// How many runs were read.
    pub reads: Slot<usize>,
    /// How many rows were found when it looked for those that are due.
    pub scanned: Slot<usize>,
    /// How many events it looked at to find others.
    pub looked_at: Slot<usize>,
    pub keys: RefCell<BTreeMap<String, StoredKey>>,
    /// What has happened in each minute, and before one of them.
    pub minutes: RefCell<BTreeMap<u64, Happened>>,
    pub added_up: RefCell<(u64, Happened)>,
    /// How often that was written.
    pub minute_writes: Slot<usize>,
    /// Whether it takes none of that.
    pub refuses_minutes: Slot<bool>,
    pub failures: Failures,
    signals: RefCell<BTreeSet<(u64, String)>>,
    last_number: Slot<u64>,
    /// How many bytes each event has.
    pub event_bytes: Slot<u64>,
    /// How many bytes it says that it has.
    pub bytes: Slot<u64>,
    /// The most rows that were deleted between two looks at it.
    pub deleted: Slot<usize>,
    /// Runs whose rows cannot be read.
    pub damaged: RefCell<BTreeSet<u64>>,
    /// Runs that were set aside for that, and until when.
    pub quarantined: RefCell<BTreeMap<u64, Timestamp>>,
    /// How often a damaged row was read.
    pub stumbled: Slot<usize>,
    /// How many bytes a run's row takes; any number, if that is not said.
    pub row_bytes_max: Slot<Option<usize>>,
    /// Whether nobody is told which runs are due.
    pub hides_due: Slot<bool>,
    /// Runs that it takes no commits of.
    pub refused: RefCell<BTreeSet<u64>>,
    /// How many commits it did not take.
    pub refusals: Slot<usize>,
    /// Whether it takes no change of a letter.
    pub refuses_letters: Slot<bool>,
    /// Whether no run is stored or changed.
    pub fails: Slot<bool>,
    /// Whether it forgets no key.
    pub keeps_keys: Slot<bool>,
    /// Runs of which it cannot be read what they have published last.
    pub untold: RefCell<BTreeSet<u64>>,
    /// Keys that have gone to another cell, and when they are forgotten.
    pub unbound: RefCell<BTreeMap<String, Timestamp>>,
    /// The runs that starts with these keys have become part of, and when that is forgotten.
    pub joined: RefCell<BTreeMap<String, (JoinedRun, Timestamp)>>,
    /// Letters, and whether they are dead.
    pub letters: RefCell<BTreeMap<u64, (Letter, bool)>>,
}

struct Stored {
    run: Run,
    row: RunRow,
    input: Payload,
    /// What it gave or failed with, as JSON.
    result: String,
    journal: Vec<Record>,
    /// What its last event says besides.
    trailer: Trailer,
    told: Vec<PublishedRow>,
}

/// How many events go into a page.
const PAGE_SIZE: usize = 2;

impl Memory {
    /// A run that is there.
    /// The journal of a run.
    pub fn journal(&self, number: u64) -> Vec<Record> {
        self.rows.borrow().get(&number).map(|stored| stored.journal.clone()).unwrap_or_default()
    }

    pub fn get(&self, number: u64) -> Run {
        self.run(number).expect("it can be read").expect("it was inserted")
    }

    /// What a run gave or failed with, as JSON.
    pub fn result(&self, number: u64) -> String {
        self.rows.borrow().get(&number).map(|stored| stored.result.clone()).unwrap_or_default()
    }

    /// Deletes a run and leaves its key, as is done with children.
    pub fn lose_run(&self, number: u64) {
        let stored = self.rows.borrow_mut().remove(&number).expect("it was inserted");
        if let Some(at) = stored.row.wake_at {
            self.by_wake.borrow_mut().remove(&(at, number));
        }
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

    /// How many bytes the items of those have.
    pub fn told_bytes(&self, number: u64) -> u64 {
        let rows = self.rows.borrow();
        let told = rows.get(&number).map(|stored| stored.told.as_slice()).unwrap_or_default();
        told.iter().flat_map(|row| &row.items).map(|told| told.item.size() as u64).sum()
    }

    /// Every event of a run that was ever recorded.
    pub fn history(&self, number: u64) -> Vec<Record> {
        self.records(number, Seq(0), Seq(u32::MAX))
    }

    /// The journal after one position up to another.
    fn records(&self, number: u64, after: Seq, through: Seq) -> Vec<Record> {
        let rows = self.rows.borrow();
        let journal = rows.get(&number).map(|stored| stored.journal.as_slice()).unwrap_or_default();
        journal.iter().filter(|record| record.seq > after && record.seq <= through).cloned().collect()
    }
}

impl Letters for Memory {
    type Error = Failed;

    fn last_letter(&self) -> Result<u64, Failed> {
        Ok(self.letters.borrow().keys().last().copied().unwrap_or_default())
    }

    fn letters(&self, after: u64, limit: usize) -> Result<Vec<Slip>, Failed> {
        let letters = self.letters.borrow();
        let alive = letters.range(after + 1..).filter(|(_, (_, is_dead))| !is_dead);
        Ok(alive.take(limit).map(|(_, (letter, _))| letter.into()).collect())
    }

    fn letter(&self, id: u64) -> Result<Option<Letter>, Failed> {
        Ok(self.letters.borrow().get(&id).filter(|(_, is_dead)| !is_dead).map(|(letter, _)| letter.clone()))
    }

    fn forget_letter(&self, id: u64) -> Result<(), Failed> {
        if self.refuses_letters.get() {
            return Err(Failed::Refused);
        }
        self.letters.borrow_mut().remove(&id);
        Ok(())
    }

    fn revive_letter(&self, id: u64, now: Timestamp) -> Result<Option<bool>, Failed> {
        Ok(self.letters.borrow_mut().get_mut(&id).map(|(letter, is_dead)| {
            if *is_dead {
                letter.revive(now);
            }
            std::mem::take(is_dead)
        }))
    }

    fn discard_letter(&self, id: u64) -> Result<Option<Discarded>, Failed> {
        let mut letters = self.letters.borrow_mut();
        let Some((letter, is_dead)) = letters.get(&id).cloned() else { return Ok(None) };
        if !is_dead {
            return Ok(Some(Discarded::Alive));
        }
        letters.remove(&id);
        let heads = letter.envelopes.iter().map(|envelope| envelope.message.head(&envelope.to));
        Ok(Some(Discarded::Dead(heads.collect())))
    }

    fn split_letter(&self, id: u64, dead: &Letter, rest: Option<&Letter>) -> Result<(), Failed> {
        self.forget_letter(id)?;
        let mut letters = self.letters.borrow_mut();
        letters.insert(dead.id, (dead.clone(), true));
        letters.extend(rest.map(|rest| (rest.id, (rest.clone(), false))));
        Ok(())
    }

    fn bury_letter(&self, id: u64) -> Result<(), Failed> {
        if self.refuses_letters.get() {
            return Err(Failed::Refused);
        }
        if let Some((_, is_dead)) = self.letters.borrow_mut().get_mut(&id) {
            *is_dead = true;
        }
        Ok(())
    }
}

impl Rows for Memory {
    fn is_unreadable(error: &Failed) -> bool {
        *error == Failed::Unreadable
    }

    fn quarantine(&self, number: u64, _: &Failed, until: Timestamp) -> Result<(), Failed> {
        self.quarantined.borrow_mut().insert(number, until);
        Ok(())
    }

    fn release(&self, run: &Run) -> Result<(), Failed> {
        self.quarantined.borrow_mut().remove(&run.id.number);
        Ok(())
    }

    fn run(&self, number: u64) -> Result<Option<Run>, Failed> {
        self.reads.set(self.reads.get() + 1);
        if self.damaged.borrow().contains(&number) {
            self.stumbled.set(self.stumbled.get() + 1);
            return Err(Failed::Unreadable);
        }
        Ok(self.rows.borrow().get(&number).map(|Stored { run, row, journal, trailer, .. }| {
            let head = journal.last().map_or(Seq(0), |record| record.seq);
            let quarantined = self.quarantined.borrow().contains_key(&number);
            let tail = Tail { head, trailer: trailer.clone(), quarantined };
            let Run { id, workflow, created_at, .. } = run.clone();
            Run::from_row(id, workflow, created_at, &row.state, tail).expect("it was written by a run")
        }))
    }

    fn last_number(&self) -> Result<u64, Failed> {
        Ok(self.rows.borrow().keys().last().copied().unwrap_or_default().max(self.last_number.get()))
    }

    fn latest(&self, limit: usize) -> Result<Vec<(u64, String)>, Failed> {
        let rows = self.rows.borrow();
        let runs = rows.iter().rev().take(limit);
        Ok(runs.map(|(number, stored)| (*number, stored.run.id.suffix.clone())).collect())
    }

    fn insert(&self, run: &Run, input: &Payload, key: Option<&KeyRow>) -> Result<(), Failed> {
        if self.fails.get() {
            return Err(Failed::Refused);
        }
        if let Some(KeyRow { key, fingerprint }) = key.cloned() {
            let stored = StoredRun { number: run.id.number, fingerprint };
            self.keys.borrow_mut().insert(key, StoredKey::Run(stored));
        }
        if let Some(key) = run.found_by() {
            let stored = StoredRun { number: run.id.number, fingerprint: run.id.suffix.clone() };
            self.keys.borrow_mut().insert(key.to_owned(), StoredKey::Run(stored));
        }
        let stored = Stored {
            run: run.clone(),
            row: run.to_row(),
            input: input.clone(),
            result: String::new(),
            journal: Vec::new(),
            trailer: Trailer::default(),
            told: Vec::new(),
        };
        self.by_wake.borrow_mut().extend(stored.row.wake_at.map(|at| (at, run.id.number)));
        self.rows.borrow_mut().insert(run.id.number, stored);
        Ok(())
    }

    fn namespace(&self) -> Result<String, Failed> {
        Ok("default".into())
    }

    fn commit(&self, run: &Run, _: Option<Timestamp>, entries: &[Entry], mail: &Mail) -> Result<(), Failed> {
        let mut rows = self.rows.borrow_mut();
        let stored = rows.get_mut(&run.id.number).expect("it was inserted");
        let result = entries.iter().find_map(result).unwrap_or_else(|| stored.result.clone());
        let mut anew = entries.iter().filter_map(Entry::input);
        let row_bytes = anew.next().unwrap_or(&stored.input).size() + run.to_row().state.len() + result.len();
        let is_too_large = self.row_bytes_max.get().is_some_and(|most| row_bytes > most);
        if self.fails.get() || is_too_large || self.refused.borrow().contains(&run.id.number) {
            self.refusals.set(self.refusals.get() + 1);
            return Err(Failed::Refused);
        }
        stored.result = result;
        let mut letters = self.letters.borrow_mut();
        letters.extend(mail.post.iter().map(|letter| (letter.id, (letter.clone(), false))));
        if let Some(done) = mail.done {
            letters.remove(&done);
        }
        for entry in entries {
            if let Entry::Recorded { record, .. } = entry {
                stored.journal.push(record.clone());
                stored.trailer = run.trailer();
                if let Event::SignalReceived { id: Some(id), .. } = &record.event {
                    self.signals.borrow_mut().insert((run.id.number, id.clone()));
                }
            } else if let Entry::SignalNoted(nonce) = entry {
                self.signals.borrow_mut().insert((run.id.number, nonce.clone()));
            } else if let Entry::SignalForgotten(id) = entry {
                self.signals.borrow_mut().remove(&(run.id.number, id.clone()));
            } else if let Some(input) = entry.input() {
                stored.input = input.clone();
            }
            if let Some(KnownJoin { key, fingerprint, until }) = entry.known_join().cloned() {
                let (number, suffix) = (run.id.number, run.id.suffix.clone());
                self.joined.borrow_mut().insert(key, (JoinedRun { number, suffix, fingerprint }, until));
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

    fn joined(&self, key: &str) -> Result<Option<JoinedRun>, Failed> {
        Ok(self.joined.borrow().get(key).map(|(run, _)| run.clone()))
    }

    fn key(&self, key: &str) -> Result<Option<StoredKey>, Failed> {
        Ok(self.keys.borrow().get(key).cloned())
    }

    fn reserve(&self, key: &str, to: &Place) -> Result<(), Failed> {
        self.keys.borrow_mut().insert(key.to_owned(), StoredKey::Moved(to.clone()));
        Ok(())
    }

    fn give_up(&self, key: &str, until: Timestamp) -> Result<(), Failed> {
        self.keys.borrow_mut().insert(key.to_owned(), StoredKey::GivenUp);
        self.unbind(key, until)
    }

    fn unbind(&self, key: &str, until: Timestamp) -> Result<(), Failed> {
        self.unbound.borrow_mut().entry(key.to_owned()).or_insert(until);
        Ok(())
    }

    fn add_minute(&self, minute: u64, happened: &Happened) -> Result<(), Failed> {
        if self.refuses_minutes.get() {
            return Err(Failed::Refused);
        }
        self.minute_writes.set(self.minute_writes.get() + 1);
        let mut minutes = self.minutes.borrow_mut();
        add_happened(minutes.entry(minute).or_default(), happened);
        Ok(())
    }

    fn each_minute(&self, from: u64, each: &mut dyn FnMut(u64, Happened)) -> Result<(), Failed> {
        self.minutes.borrow().range(from..).for_each(|(minute, it)| each(*minute, it.clone()));
        Ok(())
    }

    fn totals(&self) -> Result<(u64, Happened), Failed> {
        Ok(self.added_up.borrow().clone())
    }

    fn add_up(&self, before: u64, all: &Happened, forget_before: u64) -> Result<(), Failed> {
        *self.added_up.borrow_mut() = (before, all.clone());
        self.minutes.borrow_mut().retain(|minute, _| *minute >= forget_before);
        Ok(())
    }

    fn first_lapse(&self) -> Result<Option<Timestamp>, Failed> {
        let joined = self.joined.borrow().values().map(|(_, until)| *until).min();
        Ok(self.unbound.borrow().values().min().copied().into_iter().chain(joined).min())
    }

    fn forget_lapsed(&self, now: Timestamp, limit: usize) -> Result<(), Failed> {
        if self.keeps_keys.get() {
            return Err(Failed::Refused);
        }
        self.joined.borrow_mut().retain(|_, (_, until)| *until > now);
        let mut unbound = self.unbound.borrow_mut();
        let over: Vec<_> = unbound.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in over.into_iter().take(limit) {
            unbound.remove(&key);
            let mut keys = self.keys.borrow_mut();
            if matches!(keys.get(&key), Some(StoredKey::Moved(_) | StoredKey::GivenUp)) {
                keys.remove(&key);
            }
        }
        Ok(())
    }

    fn weight(&self, number: u64) -> Result<u64, Failed> {
        Ok(self.events(number) as u64 * self.event_bytes.get())
    }

    fn trim(&self, number: u64, room: Slice) -> Result<Trimmed, Failed> {
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

    fn sizes(&self, number: u64, part: Cut, limit: usize) -> Result<Vec<(Seq, u64)>, Failed> {
        let records = self.records(number, part.after, part.through);
        Ok(records.iter().take(limit).map(|record| (record.seq, self.event_bytes.get())).collect())
    }

    fn erase(&self, number: u64, part: Cut) -> Result<usize, Failed> {
        if self.refused.borrow().contains(&number) {
            self.refusals.set(self.refusals.get() + 1);
            return Err(Failed::Refused);
        }
        let mut rows = self.rows.borrow_mut();
        let journal = &mut rows.get_mut(&number).expect("it was inserted").journal;
        let before = journal.len();
        journal.retain(|record| record.seq <= part.after || record.seq > part.through);
        self.deleted.set(self.deleted.get() + before - journal.len());
        Ok(before - journal.len())
    }

    fn remove(&self, run: &Run) -> Result<usize, Failed> {
        let number = run.id.number;
        if self.refused.borrow().contains(&number) {
            self.refusals.set(self.refusals.get() + 1);
            return Err(Failed::Refused);
        }
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

    fn tally(&self, before: u64, limit: usize) -> Result<Tally, Failed> {
        let numbers: Vec<_> = self.rows.borrow().range(..before).rev().map(|(number, _)| *number).collect();
        let looked_at = &numbers[..numbers.len().min(limit)];
        let runs = looked_at.iter().map(|number| self.get(*number)).filter(|run| !run.deleting);
        Ok(Tally {
            counts: runs.map(|run| (run.workflow.clone(), run.status(), 1)).collect(),
            more_before: looked_at.last().copied().filter(|_| numbers.len() > limit),
        })
    }

    fn bytes(&self) -> Result<u64, Failed> {
        Ok(self.bytes.get())
    }

    fn has_signal(&self, number: u64, id: &str) -> Result<bool, Failed> {
        Ok(self.signals.borrow().contains(&(number, id.to_owned())))
    }

    fn input(&self, number: u64) -> Result<Payload, Failed> {
        Ok(self.rows.borrow().get(&number).map_or_else(Payload::null, |stored| stored.input.clone()))
    }

    fn page(&self, number: u64, after: Seq) -> Result<RawPage, Failed> {
        let mut records = self.records(number, after, Seq(u32::MAX));
        let more = records.len() > PAGE_SIZE;
        records.truncate(PAGE_SIZE);
        let records = records.into_iter().map(|record| RawRecord {
            seq: record.seq,
            at: record.at,
            event: Payload::encode(&record.event).expect("events are JSON"),
        });
        Ok(RawPage { events: records.collect(), more })
    }

    fn find(&self, number: u64, what: &Sought<'_>, after: Seq) -> Result<Vec<Record>, Failed> {
        let records = self.records(number, after, what.through()).into_iter();
        let records = records.inspect(|_| self.looked_at.set(self.looked_at.get() + 1));
        Ok(records.filter(|record| what.fits(&record.event)).take(PAGE_SIZE).collect())
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Failed> {
        if self.hides_due.get() {
            return Err(Failed::Refused);
        }
        let (by_wake, quarantined) = (self.by_wake.borrow(), self.quarantined.borrow());
        let due = by_wake.range((Bound::Excluded(after), Bound::Unbounded));
        let due = due.filter(|(_, number)| !quarantined.contains_key(number));
        let mut due: Vec<_> = due.take_while(|(at, _)| *at <= now).take(limit).copied().collect();
        let set_aside = quarantined.iter().map(|(number, at)| (*at, *number));
        due.extend(set_aside.filter(|wake| *wake > after && wake.0 <= now));
        due.sort_unstable();
        due.truncate(limit);
        self.scanned.set(self.scanned.get() + due.len());
        Ok(due)
    }

    fn due_of(
        &self,
        workflow: &str,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Failed> {
        let (rows, by_wake, quarantined) =
            (self.rows.borrow(), self.by_wake.borrow(), self.quarantined.borrow());
        let due = by_wake.range((Bound::Excluded(after), Bound::Unbounded));
        let due = due.filter(|(_, number)| !quarantined.contains_key(number));
        let due = due.take_while(|(at, _)| *at <= now);
        let due = due.filter(|(_, number)| rows.get(number).is_some_and(|row| row.run.workflow == workflow));
        let due: Vec<_> = due.take(limit).copied().collect();
        self.scanned.set(self.scanned.get() + due.len());
        Ok(due)
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Failed> {
        Ok(self.due(after, Timestamp::MAX, 1)?.first().map(|&(at, _)| at))
    }

    fn tell(&self, number: u64, row: &PublishedRow) -> Result<(), Failed> {
        let mut rows = self.rows.borrow_mut();
        rows.get_mut(&number).expect("it was inserted").told.push(row.clone());
        Ok(())
    }

    fn told_last(&self, number: u64) -> Result<Option<(u32, PublishedMark)>, Failed> {
        if self.untold.borrow().contains(&number) {
            return Err(Failed::Unreadable);
        }
        let rows = self.rows.borrow();
        Ok(rows.get(&number).and_then(|stored| stored.told.last()).map(|row| (row.last, row.mark)))
    }

    fn told(&self, number: u64, after: u32) -> Result<PublishedPage, Failed> {
        let rows = self.rows.borrow();
        let told = rows.get(&number).map(|stored| stored.told.as_slice()).unwrap_or_default();
        let mut rows: Vec<_> = told.iter().filter(|row| row.last > after).cloned().collect();
        let more = rows.len() > PAGE_SIZE;
        rows.truncate(PAGE_SIZE);
        Ok(PublishedPage { rows, more })
    }

    fn told_weight(&self, number: u64) -> Result<Slice, Failed> {
        let rows = self.rows.borrow().get(&number).map_or(0, |stored| stored.told.len());
        Ok(Slice { rows, bytes: 0 })
    }

    fn changed(&self, after: u64, from: u64, limit: usize) -> Result<Walked, Failed> {
        let numbers: Vec<_> = self.rows.borrow().keys().copied().filter(|number| *number > after).collect();
        let looked_at = &numbers[..numbers.len().min(limit)];
        let runs = looked_at.iter().map(|number| self.get(*number)).filter(|run| run.stamps.status >= from);
        let change = |run: Run| Change {
            stamp: run.stamps.status,
            status: run.status(),
            id: run.id,
            workflow: run.workflow,
        };
        let through = looked_at.last().copied().filter(|_| looked_at.len() == limit);
        Ok(Walked { changes: runs.map(change).collect(), through })
    }
}

/// What a run gives or fails with, if this is its end.
fn result(entry: &Entry) -> Option<String> {
    if let Entry::Completed { output, .. } = entry {
        Some(output.text().to_owned())
    } else if let Entry::Failed { failure, .. } = entry {
        Some(serde_json::to_string(failure).expect("a failure is JSON"))
    } else if let Entry::Reopened { .. } = entry {
        Some(String::new())
    } else {
        None
    }
}
