//! The storage that an instance of a cell sees: what is on disk and what it has written since.
//!
//! Owns: what the engine's SQL does for a cell, on a [`View`] of tables in memory.

use std::{ops::Deref, rc::Rc};

use stepwell_core::{
    cell::{FailureRows, Happened, JoinedRun, KeyRow, Mail, Rows, Slice, Sought, StoredKey, Tally, Trimmed},
    object::{Discarded, Letter, Letters, Message, Slip},
    run::{Cut, Entry, Run},
    stream::{PublishedMark, PublishedPage, PublishedRow, Walked},
};
use stepwell_protocol::{
    Event, Payload, Place, Record, Seq, Timestamp,
    failures::FailureGroup,
    program::{RawPage, RawRecord},
};

use crate::{
    host::{Refused, View},
    sabotage::Sabotage,
    tables::{Deleted, JournalRow, LetterChange, Reading, Row, Tables, Write},
};

/// The namespace of all cells.
pub const NAMESPACE: &str = "default";

/// How the keys of children begin.
pub const CHILD_KEYS: &str = "\nchild";

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Store {
    place: Place,
    sabotage: Option<Sabotage>,
    /// How many events go into a page.
    page_events: usize,
    /// Whether another instance was there before.
    is_second: bool,
    view: View<Tables>,
}

impl Deref for Store {
    type Target = View<Tables>;

    fn deref(&self) -> &View<Tables> {
        &self.view
    }
}

impl Store {
    /// A store on what is on disk.
    pub fn new(
        place: Place,
        disk: Rc<Tables>,
        page_events: usize,
        is_second: bool,
        sabotage: Option<Sabotage>,
    ) -> Self {
        Self { place, sabotage, page_events, is_second, view: View::new(disk) }
    }

    /// A run as its rows say, past everything that could fail.
    pub fn peek(&self, number: u64) -> Option<Rc<Run>> {
        self.view.all().run(&self.place, number)
    }

    /// The runs that are due by a time.
    pub fn due_by(&self, clock: Timestamp) -> Vec<Rc<Run>> {
        let view = self.view.all();
        let due = view.by_wake.iter().take_while(|(at, _)| *at <= clock);
        due.filter_map(|(_, number)| view.run(&self.place, *number)).collect()
    }

    /// What a run gave.
    pub fn result(&self, number: u64) -> Option<Rc<str>> {
        self.view.all().runs.get(&number).and_then(|row| row.result.clone())
    }

    /// Writes past the machine: what a planted bug does.
    pub fn write_anyway(&self, number: u64, at: Timestamp, event: &Event) {
        let seq = self.view.all().journal(number).last().map_or(Seq(1), |last| last.seq.next());
        let record = JournalRow::new(&Record { seq, at, event: event.clone() });
        let write = Write { number, records: vec![record], ..Write::default() };
        // A bug that is planted does not care whether it succeeds.
        let _ = self.view.write(write);
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    fn row(&self, run: &Run, before: &Row, result: Option<Rc<str>>, entries: &[Entry]) -> Row {
        let columns = run.to_row();
        let mut state = columns.state;
        if self.is(Sabotage::NeighbourConvicted) {
            state = convict(&state);
        }
        if self.is(Sabotage::StrikesForgotten) {
            state = without_strikes(&state);
        }
        if self.is(Sabotage::PatchLost) {
            state = without_patches(&state);
        }
        let is_blamed = self.is(Sabotage::YieldIsAStrike) && is_yield(entries)
            || self.is(Sabotage::ResetIsAStrike) && is_suspected(entries);
        if is_blamed {
            state = with_a_strike(&state, run.mark.map_or(Seq(0), |mark| mark.through));
        }
        Row {
            status: columns.status,
            wake_at: if self.is(Sabotage::WakeTimeLost) { before.wake_at } else { columns.wake_at },
            state: state.into(),
            result: if columns.ended_at.is_some() { result } else { before.result.clone() },
            reading: Reading::default(),
            ..before.clone()
        }
    }

    /// Whether a planted bug keeps a key from the disk.
    fn loses(&self, key: &KeyRow) -> bool {
        let is_child = key.key.starts_with(CHILD_KEYS);
        self.is(Sabotage::KeyLost) && !is_child || self.is(Sabotage::MessageKeyless) && is_child
    }

    /// What is written to others, but for what a planted bug leaves out.
    fn posted(&self, mail: &Mail) -> Mail {
        let mut mail = mail.clone();
        if self.is(Sabotage::CancelNotSent) {
            for letter in &mut mail.post {
                letter.envelopes.retain(|envelope| !matches!(envelope.message, Message::Cancel { .. }));
            }
            mail.post.retain(|letter| !letter.envelopes.is_empty());
        }
        mail
    }

    /// What a planted bug keeps from the disk.
    fn is_lost(&self, entries: &[Entry]) -> bool {
        if self.is(Sabotage::YieldLost) && is_yield(entries) {
            return true;
        }
        entries.iter().any(|entry| {
            (self.is(Sabotage::CancelLost) && matches!(entry, Entry::Cancelled { .. }))
                || (self.is(Sabotage::IntentLost) && matches!(entry, Entry::Activated { .. }))
        })
    }
}

impl Letters for Store {
    type Error = Refused;

    fn last_letter(&self) -> Result<u64, Refused> {
        Ok(self.view.read()?.letters.last_key_value().map_or(0, |(id, _)| *id))
    }

    fn letters(&self, after: u64, limit: usize) -> Result<Vec<Slip>, Refused> {
        let view = self.view.read()?;
        if self.is(Sabotage::LettersForgotten) && self.is_second {
            return Ok(Vec::new());
        }
        let alive = view.letters.range(after + 1..).filter(|(_, (_, is_dead))| !is_dead);
        Ok(alive.take(limit).map(|(_, (letter, _))| letter.into()).collect())
    }

    fn letter(&self, id: u64) -> Result<Option<Letter>, Refused> {
        let view = self.view.read()?;
        Ok(view.letters.get(&id).filter(|(_, is_dead)| !is_dead).map(|(letter, _)| letter.clone()))
    }

    fn forget_letter(&self, id: u64) -> Result<(), Refused> {
        self.view.write(Write { letter: Some(LetterChange::Forgotten(id)), ..Write::default() })
    }

    fn revive_letter(&self, _: u64, _: Timestamp) -> Result<Option<bool>, Refused> {
        // Only people ask for it, and there are none in these worlds.
        Err(Refused)
    }

    fn discard_letter(&self, _: u64) -> Result<Option<Discarded>, Refused> {
        Err(Refused)
    }

    fn split_letter(&self, id: u64, dead: &Letter, rest: Option<&Letter>) -> Result<(), Refused> {
        let buried = (!self.is(Sabotage::DeadLetterHidden)).then_some(dead);
        let post = buried.into_iter().chain(rest).cloned().collect();
        let letter = buried.map(|dead| LetterChange::Buried(dead.id));
        self.view.write(Write { mail: Mail { post, done: Some(id) }, letter, ..Write::default() })
    }

    fn bury_letter(&self, id: u64) -> Result<(), Refused> {
        let hides = self.is(Sabotage::DeadLetterHidden);
        let change = if hides { LetterChange::Forgotten } else { LetterChange::Buried };
        self.view.write(Write { letter: Some(change(id)), ..Write::default() })
    }
}

impl FailureRows for Store {
    fn failure(&self, _: &str) -> Result<Option<FailureGroup>, Refused> {
        // Like what was counted: no run depends on it.
        Ok(None)
    }

    fn keep_failure(&self, _: &FailureGroup, _: Option<(Timestamp, usize)>) -> Result<(), Refused> {
        Ok(())
    }

    fn each_failure(&self, _: &mut dyn FnMut(FailureGroup)) -> Result<(), Refused> {
        Ok(())
    }
}

impl Rows for Store {
    fn is_unreadable(_: &Refused) -> bool {
        // Only the machine writes here: what a damaged row does is tested in core.
        false
    }

    fn quarantine(&self, _: u64, _: &Refused, _: Timestamp) -> Result<(), Refused> {
        Err(Refused)
    }

    fn release(&self, _: &Run) -> Result<(), Refused> {
        Err(Refused)
    }

    fn run(&self, number: u64) -> Result<Option<Run>, Refused> {
        let run = self.view.read()?.run(&self.place, number);
        self.view.note_read(number);
        Ok(run.map(|run| Run::clone(&run)))
    }

    fn last_number(&self) -> Result<u64, Refused> {
        let view = self.view.read()?;
        Ok(view.runs.last_key_value().map_or(0, |(number, _)| *number).max(view.last_number))
    }

    fn latest(&self, limit: usize) -> Result<Vec<(u64, String)>, Refused> {
        let view = self.view.read()?;
        if self.is(Sabotage::NonceForgotten) {
            return Ok(Vec::new());
        }
        let runs = view.runs.iter().rev().take(limit);
        Ok(runs.map(|(number, row)| (*number, row.suffix.to_string())).collect())
    }

    fn insert(&self, run: &Run, input: &Payload, key: Option<&KeyRow>) -> Result<(), Refused> {
        let columns = run.to_row();
        let row = Row {
            suffix: run.id.suffix.as_str().into(),
            workflow: run.workflow.as_str().into(),
            status: columns.status,
            created_at: run.created_at,
            wake_at: columns.wake_at,
            state: columns.state.into(),
            input: Rc::new(input.clone()),
            result: None,
            reading: Reading::default(),
        };
        self.view.write(Write {
            number: run.id.number,
            row: Some(row),
            is_new: true,
            key: key.filter(|key| !self.loses(key)).cloned(),
            ..Write::default()
        })
    }

    fn namespace(&self) -> Result<String, Refused> {
        self.view.read()?;
        // An object that has not stored its address does not know it in its next life.
        if self.is(Sabotage::IdentityLost) && self.is_second { Err(Refused) } else { Ok(NAMESPACE.into()) }
    }

    fn commit(&self, run: &Run, _: Option<Timestamp>, entries: &[Entry], mail: &Mail) -> Result<(), Refused> {
        let number = run.id.number;
        let (mut records, mut signal_ids, mut result) = (Vec::new(), Vec::new(), None);
        let mut anew = None;
        for entry in entries {
            if let Entry::Recorded { record, .. } = entry {
                records.push(JournalRow::new(record));
                if let Event::SignalReceived { id: Some(id), .. } = &record.event {
                    signal_ids.push(id.clone());
                }
            } else if let Entry::SignalNoted(nonce) = entry {
                signal_ids.push(nonce.clone());
            } else if let Entry::Completed { output, .. } = entry {
                result = Some(output.text().into());
            } else if let Entry::Failed { failure, .. } = entry {
                let failure = serde_json::to_string(failure).expect("a failure is JSON");
                result = Some(failure.into());
            } else if let Some(input) = entry.input() {
                anew = Some(Rc::new(input.clone()));
            }
        }
        if let Some(last) = records.last_mut()
            && !self.is(Sabotage::TrailerLost)
        {
            last.trailer = Some(run.trailer());
        }
        let changes_row = entries.iter().any(Entry::changes_row) && !self.is_lost(entries);
        let before = self.view.all().runs.get(&number).cloned();
        let row = changes_row.then(|| before.map(|row| self.row(run, &row, result, entries)));
        let mut row = row.flatten();
        if let (Some(row), Some(input)) = (&mut row, anew) {
            row.input = input;
        }
        if self.is(Sabotage::ChildKeyDropped) && entries.contains(&Entry::Emptied) {
            let deleted = Some(Deleted::Removed);
            return self.view.write(Write { number, deleted, ..Write::default() });
        }
        let (entries, mail) = (entries.to_vec(), self.posted(mail));
        self.view.write(Write { number, row, records, signal_ids, mail, entries, ..Write::default() })
    }

    fn joined(&self, _: &str) -> Result<Option<JoinedRun>, Refused> {
        // In the simulator, each start is a run: those that are not are tested in core.
        self.view.read().map(|_| None)
    }

    fn key(&self, key: &str) -> Result<Option<StoredKey>, Refused> {
        let view = self.view.read()?;
        if view.given_up.contains(key) {
            return Ok(Some(StoredKey::GivenUp));
        }
        Ok(view.keys.get(key).cloned().map(StoredKey::Run))
    }

    fn give_up(&self, key: &str, _: Timestamp) -> Result<(), Refused> {
        // No world lasts until it is forgotten.
        let given_up = Some(key.to_owned()).filter(|_| !self.is(Sabotage::GivenUpForgotten));
        self.view.write(Write { given_up, ..Write::default() })
    }

    fn reserve(&self, _: &str, _: &Place) -> Result<(), Refused> {
        // Pools do not grow in the simulator: the way of keys through the generations is tested in core.
        Err(Refused)
    }

    fn unbind(&self, _: &str, _: Timestamp) -> Result<(), Refused> {
        Err(Refused)
    }

    fn first_lapse(&self) -> Result<Option<Timestamp>, Refused> {
        Ok(None)
    }

    fn forget_lapsed(&self, _: Timestamp, _: usize) -> Result<(), Refused> {
        Err(Refused)
    }

    fn add_minute(&self, _: u64, _: &Happened) -> Result<(), Refused> {
        // What was counted is for people: no run depends on it.
        Ok(())
    }

    fn each_minute(&self, _: u64, _: &mut dyn FnMut(u64, Happened)) -> Result<(), Refused> {
        Ok(())
    }

    fn totals(&self) -> Result<(u64, Happened), Refused> {
        Ok((0, Happened::default()))
    }

    fn add_up(&self, _: u64, _: &Happened, _: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn tally(&self, before: u64, limit: usize) -> Result<Tally, Refused> {
        let view = self.view.read()?;
        let numbers = || view.runs.range(..before).rev().map(|(number, _)| *number);
        let runs = numbers().take(limit).filter_map(|number| view.run(&self.place, number));
        let runs = runs.filter(|run| !run.deleting);
        Ok(Tally {
            counts: runs.map(|run| (run.workflow.clone(), run.status(), 1)).collect(),
            more_before: numbers().nth(limit).and_then(|_| numbers().nth(limit - 1)),
        })
    }

    fn weight(&self, number: u64) -> Result<u64, Refused> {
        Ok(self.view.read()?.journal(number).iter().map(|row| row.event.len() as u64).sum())
    }

    fn trim(&self, number: u64, room: Slice) -> Result<Trimmed, Refused> {
        let all = self.view.all().belongings(number);
        let rows = all.min(room.rows);
        self.view.write(Write { number, deleted: Some(Deleted::Trimmed(rows)), ..Write::default() })?;
        Ok(Trimmed { rows, is_all: all < room.rows })
    }

    fn sizes(&self, number: u64, part: Cut, limit: usize) -> Result<Vec<(Seq, u64)>, Refused> {
        let view = self.view.read()?;
        let rows = view.journal_after(number, part.after).iter();
        let rows = rows.take_while(|row| row.seq <= part.through).take(limit);
        Ok(rows.map(|row| (row.seq, row.event.len() as u64)).collect())
    }

    fn erase(&self, number: u64, part: Cut) -> Result<usize, Refused> {
        let part = if self.is(Sabotage::KeptSignalErased) { Cut { after: Seq(0), ..part } } else { part };
        let erased = {
            let view = self.view.all();
            let rows = view.journal_after(number, part.after).iter();
            rows.take_while(|row| row.seq <= part.through).count()
        };
        self.view.write(Write { number, deleted: Some(Deleted::Erased(part)), ..Write::default() })?;
        Ok(erased)
    }

    fn remove(&self, run: &Run) -> Result<usize, Refused> {
        let number = run.id.number;
        let removed = self.view.all().belongings(number) + 1 + usize::from(run.key.is_some());
        let deleted = match self.sabotage {
            Some(Sabotage::RemainsLeft) => Deleted::OnlyRow,
            Some(_) | None => Deleted::Removed,
        };
        self.view.write(Write { number, deleted: Some(deleted), ..Write::default() })?;
        Ok(removed)
    }

    fn bytes(&self) -> Result<u64, Refused> {
        // No cell is full here: a storage that is, refuses what is written, which is a fault of its own.
        Ok(0)
    }

    fn has_signal(&self, number: u64, id: &str) -> Result<bool, Refused> {
        let known = self.view.read()?.signals.contains(&(number, id.to_owned()));
        Ok(known && !self.is(Sabotage::SignalIdLost))
    }

    fn input(&self, number: u64) -> Result<Payload, Refused> {
        let view = self.view.read()?;
        view.runs.get(&number).map(|row| Payload::clone(&row.input)).ok_or(Refused)
    }

    fn page(&self, number: u64, after: Seq) -> Result<RawPage, Refused> {
        let view = self.view.read()?;
        let skipped = usize::from(self.is(Sabotage::PageSkipped) && after.0 > 0);
        let rest = view.journal_after(number, after).get(skipped..).unwrap_or_default();
        let forgotten = match self.sabotage.filter(|_| self.is_second) {
            Some(Sabotage::AttemptsForgotten) => Some("step_retrying"),
            Some(Sabotage::BegunForgotten) => Some("step_begun"),
            Some(_) | None => None,
        };
        let events = rest.iter().take(self.page_events);
        let is_kept = |row: &&JournalRow| forgotten.is_none_or(|kind| !row.event.contains(kind));
        let events = events.filter(is_kept).map(|row| {
            let text =
                if self.is(Sabotage::ResultAltered) { altered(&row.event) } else { row.event.to_string() };
            let event = Payload::from_text(text).expect("only JSON is written here");
            RawRecord { seq: row.seq, at: row.at, event }
        });
        Ok(RawPage { events: events.collect(), more: rest.len() > self.page_events })
    }

    fn find(&self, number: u64, what: &Sought<'_>, after: Seq) -> Result<Vec<Record>, Refused> {
        let view = self.view.read()?;
        let rest = view.journal_after(number, after);
        let rest = rest.iter().take_while(|row| row.seq <= what.through());
        let found = rest.filter(|row| what.fits(row.says()));
        Ok(found.take(self.page_events).map(JournalRow::record).collect())
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Refused> {
        let view = self.view.read()?;
        let due = view.by_wake.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        Ok(due.take_while(|(at, _)| *at <= now).take(limit).copied().collect())
    }

    fn due_of(
        &self,
        workflow: &str,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Refused> {
        let mut due = self.due(after, now, usize::MAX)?;
        let view = self.view.all();
        due.retain(|(_, number)| view.runs.get(number).is_some_and(|row| *row.workflow == *workflow));
        due.truncate(limit);
        Ok(due)
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Refused> {
        let view = self.view.read()?;
        let mut due = view.by_wake.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        Ok(due.next().map(|(at, _)| *at))
    }

    fn tell(&self, _: u64, _: &PublishedRow) -> Result<(), Refused> {
        // The simulator's programs publish nothing: what becomes of that is tested in core.
        Err(Refused)
    }

    fn told_last(&self, _: u64) -> Result<Option<(u32, PublishedMark)>, Refused> {
        self.view.read().map(|_| None)
    }

    fn told(&self, _: u64, _: u32) -> Result<PublishedPage, Refused> {
        self.view.read().map(|_| PublishedPage::default())
    }

    fn told_weight(&self, _: u64) -> Result<Slice, Refused> {
        self.view.read().map(|_| Slice { rows: 0, bytes: 0 })
    }

    fn changed(&self, _: u64, _: u64, _: usize) -> Result<Walked, Refused> {
        // Nor does anybody follow its runs.
        Err(Refused)
    }
}

/// A state in which every suspicion is a strike.
fn convict(state: &str) -> String {
    edit_trouble(state, |trouble| {
        let suspicion = trouble.get("suspicion").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let strikes = trouble.get("strikes").and_then(serde_json::Value::as_u64).unwrap_or(0);
        trouble.insert("strikes".into(), suspicion.max(strikes).into());
    })
}

/// Whether a program has said that it wants to go on later.
fn is_yield(entries: &[Entry]) -> bool {
    let has = |fits: fn(&Entry) -> bool| entries.iter().any(fits);
    has(|entry| matches!(entry, Entry::Marked(_)))
        && has(|entry| matches!(entry, Entry::Queued { .. }))
        && !has(|entry| matches!(entry, Entry::Troubled(_)))
}

/// Its cell has died while it ran.
fn is_suspected(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| matches!(entry, Entry::Troubled(trouble) if trouble.suspicion > 0))
}

fn with_a_strike(state: &str, since: Seq) -> String {
    let mut state: serde_json::Value = serde_json::from_str(state).expect("a state is JSON");
    state["trouble"] = serde_json::json!({"since": since.0, "strikes": 1});
    state.to_string()
}

fn without_strikes(state: &str) -> String {
    edit_trouble(state, |trouble| {
        trouble.insert("strikes".into(), 0.into());
    })
}

fn without_patches(state: &str) -> String {
    let mut state: serde_json::Value = serde_json::from_str(state).expect("a state is JSON");
    if let Some(state) = state.as_object_mut() {
        state.remove("patches");
    }
    state.to_string()
}

fn edit_trouble(state: &str, edit: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) -> String {
    let mut state: serde_json::Value = serde_json::from_str(state).expect("a state is JSON");
    if let Some(trouble) = state.get_mut("trouble").and_then(serde_json::Value::as_object_mut) {
        edit(trouble);
    }
    state.to_string()
}

/// An event whose step gave something else: the same length, another digit.
fn altered(event: &str) -> String {
    match event.find("\"ok\":") {
        Some(at) if event[at + 5..].starts_with(|c: char| c.is_ascii_digit()) => {
            let digit = if event[at + 5..].starts_with('1') { '2' } else { '1' };
            format!("{}{digit}{}", &event[..at + 5], &event[at + 6..])
        }
        Some(_) | None => event.to_owned(),
    }
}
