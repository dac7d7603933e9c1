//! The storage that an instance of a cell sees: what is on disk and what it has written since.
//!
//! Everything that is written here is in the instance's own view at once, and in a [`Batch`] that the world
//! makes durable later, or never.

use std::{cell::RefCell, rc::Rc};

use stepwell_core::{
    cell::{KeyRow, Rows, Slice, Sought, StoredKey, Tally, Trimmed},
    run::{Cut, Entry, Run},
    stream::{ToldMark, ToldPage, ToldRow, Walked},
};
use stepwell_protocol::{
    Event, Payload, Place, Record, Seq, Timestamp,
    program::{RawPage, RawRecord},
};

use crate::{
    sabotage::Sabotage,
    tables::{Batch, Cause, Deleted, JournalRow, Row, Tables, Write},
};

/// The storage did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Store {
    place: Place,
    sabotage: Option<Sabotage>,
    /// How many events go into a page.
    page_events: usize,
    inner: RefCell<Inner>,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault of its own, and they go together in any way"
)]
struct Inner {
    view: Tables,
    batch: Batch,
    /// Nothing can be written for the time being.
    refuses: bool,
    /// The next write is done and answered with an error.
    fails_after: bool,
    /// Nothing can be done any more: the instance is to be reset.
    broken: bool,
    /// Runs whose rows were read in this turn.
    reads: Vec<u64>,
    /// Whether another instance was there before.
    is_second: bool,
}

impl Store {
    /// A store on what is on disk.
    pub fn new(
        place: Place,
        disk: Tables,
        page_events: usize,
        is_second: bool,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let batch = Batch { cause: Cause::Request, writes: Vec::new(), alarm: None };
        let inner = Inner {
            view: disk,
            batch,
            refuses: false,
            fails_after: false,
            broken: false,
            reads: Vec::new(),
            is_second,
        };
        Self { place, sabotage, page_events, inner: RefCell::new(inner) }
    }

    /// A turn begins.
    pub fn begin(&self, cause: Cause, refuses: bool) {
        let mut inner = self.inner.borrow_mut();
        inner.batch.cause = cause;
        inner.refuses = refuses;
        inner.reads.clear();
    }

    /// What was written since the last time, if anything was; and the runs that were read.
    pub fn take(&self) -> (Option<Batch>, Vec<u64>) {
        let mut inner = self.inner.borrow_mut();
        let reads = std::mem::take(&mut inner.reads);
        if inner.batch.writes.is_empty() && inner.batch.alarm.is_none() {
            return (None, reads);
        }
        let empty = Batch { cause: inner.batch.cause, writes: Vec::new(), alarm: None };
        (Some(std::mem::replace(&mut inner.batch, empty)), reads)
    }

    /// The next write is done and answered with an error, and the instance is lost with it.
    pub fn fail_after_next(&self) {
        self.inner.borrow_mut().fails_after = true;
    }

    /// Takes that back, if it has not happened. Says whether there was anything to take back.
    pub fn forget_failure(&self) -> bool {
        std::mem::take(&mut self.inner.borrow_mut().fails_after)
    }

    /// Whether the instance is to be reset.
    pub fn is_broken(&self) -> bool {
        self.inner.borrow().broken
    }

    /// Sets the alarm.
    pub fn set_alarm(&self, at: Timestamp) -> Result<(), Refused> {
        let mut inner = self.inner.borrow_mut();
        inner.may_write()?;
        inner.batch.alarm = Some(at);
        Ok(())
    }

    /// All that this instance sees.
    pub fn with_view<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.inner.borrow().view)
    }

    /// A run as its rows say, past everything that could fail.
    pub fn peek(&self, number: u64) -> Option<Run> {
        self.inner.borrow().view.run(&self.place, number)
    }

    /// The runs that are due by a time.
    pub fn due_by(&self, clock: Timestamp) -> Vec<Run> {
        let inner = self.inner.borrow();
        let due = inner.view.by_wake.iter().take_while(|(at, _)| *at <= clock);
        due.filter_map(|(_, number)| inner.view.run(&self.place, *number)).collect()
    }

    /// What a run gave.
    pub fn result(&self, number: u64) -> Option<Rc<str>> {
        self.inner.borrow().view.runs.get(&number).and_then(|row| row.result.clone())
    }

    /// Writes past the machine: what a planted bug does.
    pub fn write_anyway(&self, number: u64, at: Timestamp, event: &Event) {
        let seq = self.inner.borrow().view.journal(number).last().map_or(Seq(1), |last| last.seq.next());
        let record = journal_row(&Record { seq, at, event: event.clone() });
        let write = Write { number, records: vec![record], ..Write::default() };
        // A bug that is planted does not care whether it succeeds.
        let _ = self.inner.borrow_mut().write(write);
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    fn may_read(&self) -> Result<(), Refused> {
        if self.inner.borrow().broken { Err(Refused) } else { Ok(()) }
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
            ..before.clone()
        }
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

impl Inner {
    fn may_write(&self) -> Result<(), Refused> {
        if self.broken || self.refuses { Err(Refused) } else { Ok(()) }
    }

    fn write(&mut self, write: Write) -> Result<(), Refused> {
        self.may_write()?;
        // The machine alone writes here: what a constraint refuses shows when it reaches the disk.
        let _ = self.view.apply(&write);
        self.batch.writes.push(write);
        if std::mem::take(&mut self.fails_after) {
            self.broken = true;
            return Err(Refused);
        }
        Ok(())
    }
}

impl Rows for Store {
    type Error = Refused;

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
        self.may_read()?;
        self.inner.borrow_mut().reads.push(number);
        Ok(self.peek(number))
    }

    fn last_number(&self) -> Result<u64, Refused> {
        self.may_read()?;
        let view = &self.inner.borrow().view;
        Ok(view.runs.last_key_value().map_or(0, |(number, _)| *number).max(view.last_number))
    }

    fn latest(&self, limit: usize) -> Result<Vec<(u64, String)>, Refused> {
        self.may_read()?;
        if self.is(Sabotage::NonceForgotten) {
            return Ok(Vec::new());
        }
        let inner = self.inner.borrow();
        let runs = inner.view.runs.iter().rev().take(limit);
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
        };
        self.inner.borrow_mut().write(Write {
            number: run.id.number,
            row: Some(row),
            is_new: true,
            key: key.filter(|_| !self.is(Sabotage::KeyLost)).cloned(),
            ..Write::default()
        })
    }

    fn commit(&self, run: &Run, _: Option<Timestamp>, entries: &[Entry]) -> Result<(), Refused> {
        let number = run.id.number;
        let (mut records, mut signal_ids, mut result) = (Vec::new(), Vec::new(), None);
        let mut anew = None;
        for entry in entries {
            if let Entry::Recorded { record, .. } = entry {
                records.push(journal_row(record));
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
            } else if let Entry::BegunAnew { input, .. } = entry {
                anew = Some(Rc::new(input.clone()));
            }
        }
        if let Some(last) = records.last_mut()
            && !self.is(Sabotage::TrailerLost)
        {
            last.trailer = Some(run.trailer());
        }
        let changes_row = entries.iter().any(Entry::changes_row) && !self.is_lost(entries);
        let mut inner = self.inner.borrow_mut();
        let row =
            changes_row.then(|| inner.view.runs.get(&number).map(|row| self.row(run, row, result, entries)));
        let mut row = row.flatten();
        if let (Some(row), Some(input)) = (&mut row, anew) {
            row.input = input;
        }
        let entries = entries.to_vec();
        inner.write(Write { number, row, records, signal_ids, entries, ..Write::default() })
    }

    fn key(&self, key: &str) -> Result<Option<StoredKey>, Refused> {
        self.may_read()?;
        Ok(self.inner.borrow().view.keys.get(key).cloned().map(StoredKey::Run))
    }

    fn reserve(&self, _: &str, _: &Place) -> Result<(), Refused> {
        // Pools do not grow in the simulator: the way of keys through the generations is tested in core.
        Err(Refused)
    }

    fn tally(&self, before: u64, limit: usize) -> Result<Tally, Refused> {
        self.may_read()?;
        let inner = self.inner.borrow();
        let numbers = || inner.view.runs.range(..before).rev().map(|(number, _)| *number);
        let runs = numbers().take(limit).filter_map(|number| inner.view.run(&self.place, number));
        let runs = runs.filter(|run| !run.deleting);
        Ok(Tally {
            counts: runs.map(|run| (run.workflow.clone(), run.status(), 1)).collect(),
            more_before: numbers().nth(limit).and_then(|_| numbers().nth(limit - 1)),
        })
    }

    fn weight(&self, number: u64) -> Result<u64, Refused> {
        self.may_read()?;
        Ok(self.inner.borrow().view.journal(number).iter().map(|row| row.event.len() as u64).sum())
    }

    fn trim(&self, number: u64, room: Slice) -> Result<Trimmed, Refused> {
        let mut inner = self.inner.borrow_mut();
        let all = inner.view.belongings(number);
        let rows = all.min(room.rows);
        inner.write(Write { number, deleted: Some(Deleted::Trimmed(rows)), ..Write::default() })?;
        Ok(Trimmed { rows, is_all: all < room.rows })
    }

    fn sizes(&self, number: u64, part: Cut, limit: usize) -> Result<Vec<(Seq, u64)>, Refused> {
        self.may_read()?;
        let inner = self.inner.borrow();
        let rows = inner.view.journal_after(number, part.after).iter();
        let rows = rows.take_while(|row| row.seq <= part.through).take(limit);
        Ok(rows.map(|row| (row.seq, row.event.len() as u64)).collect())
    }

    fn erase(&self, number: u64, part: Cut) -> Result<usize, Refused> {
        let mut inner = self.inner.borrow_mut();
        let part = if self.is(Sabotage::KeptSignalErased) { Cut { after: Seq(0), ..part } } else { part };
        let rows = inner.view.journal_after(number, part.after).iter();
        let erased = rows.take_while(|row| row.seq <= part.through).count();
        inner.write(Write { number, deleted: Some(Deleted::Erased(part)), ..Write::default() })?;
        Ok(erased)
    }

    fn remove(&self, run: &Run) -> Result<usize, Refused> {
        let mut inner = self.inner.borrow_mut();
        let number = run.id.number;
        let removed = inner.view.belongings(number) + 1 + usize::from(run.key.is_some());
        let left_behind = self.is(Sabotage::RemainsLeft);
        let deleted = if left_behind { Deleted::OnlyRow } else { Deleted::Removed };
        inner.write(Write { number, deleted: Some(deleted), ..Write::default() })?;
        Ok(removed)
    }

    fn bytes(&self) -> Result<u64, Refused> {
        // No cell is full here: a storage that is, refuses what is written, which is a fault of its own.
        Ok(0)
    }

    fn has_signal(&self, number: u64, id: &str) -> Result<bool, Refused> {
        self.may_read()?;
        let known = self.inner.borrow().view.signals.contains(&(number, id.to_owned()));
        Ok(known && !self.is(Sabotage::SignalIdLost))
    }

    fn input(&self, number: u64) -> Result<Payload, Refused> {
        self.may_read()?;
        let inner = self.inner.borrow();
        inner.view.runs.get(&number).map(|row| Payload::clone(&row.input)).ok_or(Refused)
    }

    fn page(&self, number: u64, after: Seq) -> Result<RawPage, Refused> {
        self.may_read()?;
        let inner = self.inner.borrow();
        let skipped = usize::from(self.is(Sabotage::PageSkipped) && after.0 > 0);
        let rest = inner.view.journal_after(number, after).get(skipped..).unwrap_or_default();
        let forgotten = match self.sabotage.filter(|_| inner.is_second) {
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
        self.may_read()?;
        let inner = self.inner.borrow();
        let rest = inner.view.journal_after(number, after);
        let found = rest.iter().map(JournalRow::record).filter(|record| what.fits(&record.event));
        Ok(found.take(self.page_events).collect())
    }

    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Refused> {
        self.may_read()?;
        let inner = self.inner.borrow();
        let due = inner.view.by_wake.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
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
        let inner = self.inner.borrow();
        due.retain(|(_, number)| inner.view.runs.get(number).is_some_and(|row| *row.workflow == *workflow));
        due.truncate(limit);
        Ok(due)
    }

    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Refused> {
        self.may_read()?;
        let inner = self.inner.borrow();
        let mut due =
            inner.view.by_wake.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        Ok(due.next().map(|(at, _)| *at))
    }

    fn tell(&self, _: u64, _: &ToldRow) -> Result<(), Refused> {
        // The simulator's programs publish nothing: what becomes of that is tested in core.
        Err(Refused)
    }

    fn told_last(&self, _: u64) -> Result<Option<(u32, ToldMark)>, Refused> {
        self.may_read().map(|()| None)
    }

    fn told(&self, _: u64, _: u32) -> Result<ToldPage, Refused> {
        self.may_read().map(|()| ToldPage::default())
    }

    fn told_weight(&self, _: u64) -> Result<Slice, Refused> {
        self.may_read().map(|()| Slice { rows: 0, bytes: 0 })
    }

    fn changed(&self, _: u64, _: u64, _: usize) -> Result<Walked, Refused> {
        // Nor does anybody follow its runs.
        Err(Refused)
    }
}

fn journal_row(record: &Record) -> JournalRow {
    let event = serde_json::to_string(&record.event).expect("an event is JSON");
    JournalRow { seq: record.seq, at: record.at, event: event.into(), trailer: None }
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
