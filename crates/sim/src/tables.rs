//! The tables of one cell, as they are on disk: rows, journal, keys, signals.
//!
//! What the engine's SQL does, in maps. A [`Write`] is one transaction.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use stepwell_core::{
    cell::{KeyRow, Mail, StoredRun},
    object::{Letter, Message},
    run::{Cut, Entry, Run, Tail, Trailer},
};
use stepwell_protocol::{Epoch, Event, Payload, Place, Record, RunId, Seq, Timestamp};

use crate::host::{self, Disk};

/// A run row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The random part of the run's id.
    pub suffix: Rc<str>,
    /// Its workflow.
    pub workflow: Rc<str>,
    /// Its status, in the word that people see.
    pub status: &'static str,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its cell must look at it.
    pub wake_at: Option<Timestamp>,
    /// The rest, as JSON.
    pub state: Rc<str>,
    /// What it was started with.
    pub input: Rc<Payload>,
    /// What it gave.
    pub result: Option<Rc<str>>,
    /// What its text was last read as.
    pub reading: Reading,
}

impl Row {
    /// The latest activation, as the text says.
    pub fn epoch(&self) -> Option<Epoch> {
        let state: serde_json::Value = serde_json::from_str(&self.state).ok()?;
        state.get("epoch").and_then(|epoch| serde_json::from_value(epoch.clone()).ok())
    }
}

/// What a row's text was last read as, for all who have a copy of the row. Who reads the same text again, with the same
/// end of the journal, gets the same.
#[derive(Clone, Debug, Default)]
pub struct Reading(Rc<RefCell<Option<Read>>>);

#[derive(Clone, Debug)]
struct Read {
    state: Rc<str>,
    last: Option<Rc<str>>,
    run: Rc<Run>,
}

impl Reading {
    /// The run that this text says, with the journal's last event.
    fn of(&self, state: &Rc<str>, last: Option<&Rc<str>>, read: impl FnOnce() -> Run) -> Rc<Run> {
        let mut known = self.0.borrow_mut();
        let is_last = |of: &Option<Rc<str>>| match (of, last) {
            (Some(of), Some(last)) => Rc::ptr_eq(of, last),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_it = |known: &&mut Read| Rc::ptr_eq(&known.state, state) && is_last(&known.last);
        if let Some(known) = known.as_mut().filter(is_it) {
            return known.run.clone();
        }
        let run = Rc::new(read());
        *known = Some(Read { state: state.clone(), last: last.cloned(), run: run.clone() });
        run
    }
}

/// A row of a journal.
#[derive(Clone, Debug)]
pub struct JournalRow {
    /// Its position.
    pub seq: Seq,
    /// When it was recorded.
    pub at: Timestamp,
    /// The text of the event.
    pub event: Rc<str>,
    /// What the last event of what was decided says besides itself.
    pub trailer: Option<Trailer>,
    /// What the text was read as.
    read: Rc<OnceCell<Event>>,
}

impl JournalRow {
    /// The row of an event.
    pub fn new(record: &Record) -> Self {
        let event = serde_json::to_string(&record.event).expect("an event is JSON");
        Self { seq: record.seq, at: record.at, event: event.into(), trailer: None, read: Rc::default() }
    }

    /// What the text says.
    pub fn says(&self) -> &Event {
        self.read.get_or_init(|| serde_json::from_str(&self.event).expect("only events are written here"))
    }

    /// The event with its place.
    pub fn record(&self) -> Record {
        Record { seq: self.seq, at: self.at, event: self.says().clone() }
    }
}

/// What a transaction deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// So many of the first rows of the journal, and after those of the ids of signals.
    Trimmed(usize),
    /// A part of its journal, which an earlier life has left behind.
    Erased(Cut),
    /// The run, and whatever is left of it.
    Removed,
    /// The run's row alone: what a planted bug does.
    OnlyRow,
}

/// What becomes of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterChange {
    /// It has arrived.
    Forgotten(u64),
    /// It is dead.
    Buried(u64),
}

/// One transaction.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// The run.
    pub number: u64,
    /// Its whole row, when that is new or changed.
    pub row: Option<Row>,
    /// Whether the row is new.
    pub is_new: bool,
    /// What is added to its journal.
    pub records: Vec<JournalRow>,
    /// The ids of signals among that.
    pub signal_ids: Vec<String>,
    /// An idempotency key.
    pub key: Option<KeyRow>,
    /// A key that is given up.
    pub given_up: Option<String>,
    /// What is deleted.
    pub deleted: Option<Deleted>,
    /// What is written to other objects, and which letter has arrived with it.
    pub mail: Mail,
    /// What becomes of a letter besides.
    pub letter: Option<LetterChange>,
    /// What the machine had decided, for whoever checks.
    pub entries: Vec<Entry>,
}

/// What one turn has written.
pub type Batch = host::Batch<Write>;

/// The tables of one cell.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Runs by number.
    pub runs: BTreeMap<u64, Row>,
    /// Journals by run.
    pub journal: BTreeMap<u64, Rc<Vec<JournalRow>>>,
    /// The last position of each journal that was erased.
    pub erased: BTreeMap<u64, Seq>,
    /// Keys and what they have started.
    pub keys: BTreeMap<String, StoredRun>,
    /// Keys that start nothing any more.
    pub given_up: BTreeSet<String>,
    /// Ids of signals by run.
    pub signals: BTreeSet<(u64, String)>,
    /// What was written to others and has not arrived, and whether it is dead.
    pub letters: BTreeMap<u64, (Letter, bool)>,
    /// The largest number of a run that was deleted.
    pub last_number: u64,
    /// Runs by when they are due.
    pub by_wake: BTreeSet<(Timestamp, u64)>,
}

impl Disk for Tables {
    type Write = Write;

    fn apply(&mut self, write: &Write) -> Result<(), String> {
        let mut refused = None;
        if let Some(row) = &write.row {
            if write.is_new && self.runs.contains_key(&write.number) {
                refused = Some(format!("run {} is inserted twice", write.number));
            }
            if let Some(wake_at) = self.runs.get(&write.number).and_then(|row| row.wake_at) {
                self.by_wake.remove(&(wake_at, write.number));
            }
            if let Some(wake_at) = row.wake_at {
                self.by_wake.insert((wake_at, write.number));
            }
            self.runs.insert(write.number, row.clone());
        }
        if let Some(key) = &write.key {
            let stored = StoredRun { number: write.number, fingerprint: key.fingerprint.clone() };
            let before = self.keys.insert(key.key.clone(), stored);
            // A key is free again when its run is being deleted.
            let is_live = |run: &StoredRun| {
                self.runs.get(&run.number).is_some_and(|row| !row.state.contains("\"deleting\":true"))
            };
            if before.is_some_and(|run| is_live(&run)) {
                refused = Some(format!("key {} is inserted twice", key.key));
            }
        }
        self.given_up.extend(write.given_up.clone());
        if !write.records.is_empty() {
            let journal = Rc::make_mut(self.journal.entry(write.number).or_default());
            for record in &write.records {
                // What was deleted leaves its position behind: none is used twice.
                let last = journal.last().map_or(Seq(0), |last| last.seq);
                let next = last.max(self.erased.get(&write.number).copied().unwrap_or_default()).next();
                if record.seq != next {
                    refused = Some(format!(
                        "the journal of run {} goes on with {} and not with {}",
                        write.number, record.seq.0, next.0
                    ));
                }
                journal.push(record.clone());
            }
        }
        for id in &write.signal_ids {
            self.signals.insert((write.number, id.clone()));
        }
        for entry in &write.entries {
            if let Entry::SignalForgotten(id) = entry {
                self.signals.remove(&(write.number, id.clone()));
            }
        }
        match write.deleted {
            Some(Deleted::Trimmed(limit)) => self.trim(write.number, limit),
            Some(Deleted::Erased(part)) => {
                let journal = Rc::make_mut(self.journal.entry(write.number).or_default());
                journal.retain(|row| row.seq <= part.after || row.seq > part.through);
                let erased = self.erased.entry(write.number).or_default();
                *erased = part.through.max(*erased);
            }
            Some(Deleted::Removed) => self.remove(write.number),
            Some(Deleted::OnlyRow) => self.remove_row(write.number),
            None => {}
        }
        for letter in &write.mail.post {
            if self.letters.insert(letter.id, (letter.clone(), false)).is_some() {
                refused = Some(format!("letter {} is inserted twice", letter.id));
            }
        }
        if let Some(letter) = write.mail.done {
            self.letters.remove(&letter);
        }
        match write.letter {
            Some(LetterChange::Forgotten(letter)) => drop(self.letters.remove(&letter)),
            Some(LetterChange::Buried(letter)) => {
                if let Some((_, is_dead)) = self.letters.get_mut(&letter) {
                    *is_dead = true;
                }
            }
            None => {}
        }
        refused.map_or(Ok(()), Err)
    }
}

impl Tables {
    /// How many rows belong to a run besides its own.
    pub fn belongings(&self, number: u64) -> usize {
        self.journal(number).len() + self.signal_ids(number).len()
    }

    fn signal_ids(&self, number: u64) -> Vec<(u64, String)> {
        self.signals.iter().filter(|(of, _)| *of == number).cloned().collect()
    }

    fn trim(&mut self, number: u64, limit: usize) {
        let journal = Rc::make_mut(self.journal.entry(number).or_default());
        let trimmed = journal.len().min(limit);
        journal.drain(..trimmed);
        for id in self.signal_ids(number).into_iter().take(limit - trimmed) {
            self.signals.remove(&id);
        }
    }

    fn remove_row(&mut self, number: u64) {
        if let Some(wake_at) = self.runs.remove(&number).and_then(|row| row.wake_at) {
            self.by_wake.remove(&(wake_at, number));
        }
        self.last_number = self.last_number.max(number);
    }

    fn remove(&mut self, number: u64) {
        self.remove_row(number);
        self.journal.remove(&number);
        self.signals.retain(|(of, _)| *of != number);
        self.keys.retain(|_, stored| stored.number != number);
    }

    /// Whether a dead letter is about this invocation.
    pub fn has_dead_letter_about(&self, parent: &RunId, invoked: Seq) -> bool {
        let is_about = |message: &Message| match message {
            Message::Start { parent: of, .. } | Message::Ended { parent: of, .. } => {
                of.run == *parent && of.invoked == invoked
            }
            Message::Cancel { parent: of, invoked: at } => of == parent && *at == invoked,
            Message::TickEnded { .. }
            | Message::Emitted { .. }
            | Message::Waits { .. }
            | Message::WaitOver { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. }
            | Message::Unbind { .. } => false,
        };
        let dead = self.letters.values().filter(|(_, is_dead)| *is_dead);
        dead.flat_map(|(letter, _)| &letter.envelopes).any(|envelope| is_about(&envelope.message))
    }

    /// A run's journal.
    pub fn journal(&self, number: u64) -> &[JournalRow] {
        self.journal.get(&number).map(|rows| rows.as_slice()).unwrap_or_default()
    }

    /// What of a run's journal comes after a position. A journal that is being deleted does not begin with 1.
    pub fn journal_after(&self, number: u64, after: Seq) -> &[JournalRow] {
        let journal = self.journal(number);
        &journal[journal.partition_point(|row| row.seq <= after)..]
    }

    /// A run's state, as a fresh instance would read it.
    pub fn run(&self, place: &Place, number: u64) -> Option<Rc<Run>> {
        let row = self.runs.get(&number)?;
        let last = self.journal(number).last();
        Some(row.reading.of(&row.state, last.map(|last| &last.event), || {
            let tail = Tail {
                head: last.map_or(Seq(0), |last| last.seq),
                trailer: last.and_then(|last| last.trailer.clone()).unwrap_or_default(),
                quarantined: false,
            };
            let id = RunId { place: place.clone(), number, suffix: row.suffix.to_string() };
            let run = Run::from_row(id, row.workflow.to_string(), row.created_at, &row.state, tail);
            run.expect("only states are written here")
        }))
    }
}
