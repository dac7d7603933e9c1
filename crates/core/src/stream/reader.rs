//! A reader of a stream: what it is shown next, and how much may be under way to it.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Payload, RunId, Timestamp,
    program::{RawPage, RawRecord, StepAtWork},
    rest::RunView,
    stream::{Item, Kind, StatusView, StoredItem, StreamEvent, Working},
};

use super::{CellCursor, Change, Cursor, Kinds, Only, PublishedPage, PublishedRow, Walk, Walked, time_of};
use crate::{run::Run, sorting::sort};

/// How much is sent to a reader that says nothing, in bytes. A socket takes whatever it is given, and what its other
/// end does not take would lie in memory; so a reader is asked now and then whether it follows.
pub const WINDOW_BYTES: usize = 512 << 10;

/// The largest event that a stream shows whole, in bytes. Of a larger one it shows where to find it.
pub const EVENT_BYTES_MAX: usize = 256 << 10;

/// How much is under way to a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes that were sent since it was last heard of.
    sent: usize,
    /// Whether it was asked to say that it follows, and has not said so yet.
    asked: bool,
}

impl Flow {
    /// The reader was heard of: it has all that was sent before it was asked.
    pub fn heard(&mut self) {
        *self = Self::default();
    }

    /// Whether nothing may be sent before it is heard of.
    pub fn is_closed(&self) -> bool {
        self.asked
    }

    /// So much is sent. Says whether the reader is to be asked now.
    pub fn send(&mut self, bytes: usize) -> bool {
        self.sent += bytes;
        self.asked = self.sent >= WINDOW_BYTES;
        self.asked
    }
}

/// A reader of one run. What is kept of it while nobody is at work is this, as JSON, beside its socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reader {
    /// The run.
    pub run: RunId,
    /// Where it is.
    pub cursor: Cursor,
    /// What it wants.
    #[serde(default)]
    pub kinds: Kinds,
    /// How much is under way to it.
    #[serde(default)]
    pub flow: Flow,
    /// Whether it leaves once it has seen all that is there, and does not wait for the run's end.
    #[serde(default)]
    pub leaves: bool,
}

/// What there is for a reader of one run, after its cursor.
pub struct Source<'a> {
    /// The run as it stands.
    pub run: &'a Run,
    /// Its journal.
    pub journal: RawPage,
    /// What it has published.
    pub told: PublishedPage,
    /// The steps that its program is at work on, and the stamp of that.
    pub at_work: Option<(u64, &'a [StepAtWork])>,
}

/// What a reader is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// In this order.
    pub events: Vec<StreamEvent>,
    /// Whether there is more to read at once.
    pub more: bool,
    /// Whether the reader has seen all of it: the run has ended, or nobody wants to see what comes later.
    pub ends: bool,
}

/// Why a batch is over before there is nothing left.
struct Full;

impl Reader {
    /// A reader that has come so far.
    pub fn new(run: RunId, cursor: Cursor, kinds: Kinds) -> Self {
        Self { run, cursor, kinds, flow: Flow::default(), leaves: false }
    }

    /// The same, but for the time after: it leaves once it has seen all that is there.
    #[must_use]
    pub fn leaving(self, leaves: bool) -> Self {
        Self { leaves, ..self }
    }

    /// What comes next. The reader is where it will be once it has all of it.
    pub fn read(&mut self, source: Source<'_>) -> Batch {
        let mut batch = Batch::default();
        if self.flow.is_closed() {
            return batch;
        }
        match self.fill(&mut batch, source) {
            Ok(()) => {}
            Err(Full) => {
                batch.more = false;
                batch.ends = false;
                batch.events.push(StreamEvent {
                    id: self.cursor.to_string(),
                    kind: Kind::Ack,
                    at: batch.events.last().map_or_else(Timestamp::default, |event| event.at),
                    data: Payload::null(),
                });
            }
        }
        batch
    }

    fn fill(&mut self, batch: &mut Batch, source: Source<'_>) -> Result<(), Full> {
        let Source { run, journal, told, at_work } = source;
        // Rows of which nobody knows yet come after these.
        let known_through = told.more.then(|| told.rows.last().map(|row| row.after)).flatten();
        let mut rows = told.rows.into_iter().peekable();
        let last = journal.events.last().map(|record| record.seq);
        for record in journal.events {
            while let Some(row) = rows.next_if(|row| row.after < record.seq) {
                self.show_row(batch, row)?;
            }
            if known_through.is_some_and(|through| through < record.seq) {
                batch.more = true;
                return Ok(());
            }
            self.show_record(batch, &record)?;
        }
        // Events of which nobody knows yet come after the last one of the page.
        let is_next = |row: &PublishedRow| !journal.more || last.is_some_and(|last| row.after <= last);
        while let Some(row) = rows.next_if(is_next) {
            self.show_row(batch, row)?;
        }
        if journal.more || told.more {
            batch.more = true;
            return Ok(());
        }
        self.show_states(batch, run, at_work.filter(|(_, steps)| !steps.is_empty()))?;
        batch.ends = self.leaves || run.status().is_terminal();
        Ok(())
    }

    fn show_record(&mut self, batch: &mut Batch, record: &RawRecord) -> Result<(), Full> {
        self.cursor.journal = record.seq;
        let kind = kind_of(record.event.text());
        if record.event.size() > EVENT_BYTES_MAX {
            #[derive(Serialize)]
            struct TooLarge {
                seq: stepwell_protocol::Seq,
                at: Timestamp,
                left_out_bytes: usize,
            }
            let large = TooLarge { seq: record.seq, at: record.at, left_out_bytes: record.event.size() };
            return self.show(batch, kind, record.at, &large);
        }
        self.show(batch, kind, record.at, record)
    }

    fn show_row(&mut self, batch: &mut Batch, row: PublishedRow) -> Result<(), Full> {
        let first = (row.last + 1).saturating_sub(u32::try_from(row.items.len()).unwrap_or(u32::MAX));
        for (number, StoredItem { at, item }) in (first..).zip(row.items) {
            // The reader may have left in the middle of a row.
            if number <= self.cursor.told {
                continue;
            }
            self.cursor.told = number;
            match item {
                Item::Log(line) => self.show(batch, Kind::Log, at, &line)?,
                Item::Chunk(chunk) => self.show(batch, Kind::Chunk, at, &chunk)?,
                // Whoever wants logs or chunks wants to know that some are missing.
                Item::LeftOut { .. } => {
                    let kind = if self.kinds.has(Kind::Chunk) { Kind::Chunk } else { Kind::Log };
                    self.show(batch, kind, at, &item)?;
                }
            }
        }
        Ok(())
    }

    fn show_states(
        &mut self,
        batch: &mut Batch,
        run: &Run,
        at_work: Option<(u64, &[StepAtWork])>,
    ) -> Result<(), Full> {
        let mut latest = vec![(run.stamps.status, Kind::Status)];
        latest.extend(run.progress.as_ref().map(|_| (run.stamps.progress, Kind::Progress)));
        latest.extend(at_work.map(|(stamp, _)| (stamp, Kind::Working)));
        latest.retain(|(stamp, _)| *stamp >= self.cursor.states);
        sort(&mut latest);
        for (stamp, kind) in latest {
            self.cursor.states = stamp + 1;
            if kind == Kind::Progress {
                self.show(batch, kind, time_of(stamp), &run.progress)?;
            } else if let Some((_, steps)) = at_work.filter(|_| kind == Kind::Working) {
                self.show(batch, kind, time_of(stamp), &Working { steps: steps.to_vec() })?;
            } else {
                let RunView { id, workflow, status, .. } = RunView::from(run);
                self.show(batch, kind, time_of(stamp), &StatusView { id, workflow, status })?;
            }
        }
        Ok(())
    }

    fn show<T: Serialize + ?Sized>(
        &mut self,
        batch: &mut Batch,
        kind: Kind,
        at: Timestamp,
        data: &T,
    ) -> Result<(), Full> {
        if !self.kinds.has(kind) {
            return Ok(());
        }
        let data = Payload::encode(data).expect("what a stream shows holds only what JSON can say");
        let bytes = data.size();
        batch.events.push(StreamEvent { id: self.cursor.to_string(), kind, at, data });
        if self.flow.send(bytes) { Err(Full) } else { Ok(()) }
    }
}

/// A reader of the statuses of all runs of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellReader {
    /// It has seen all changes before this stamp.
    pub from: u64,
    /// Where it is in a walk through the runs that have changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk: Option<Walk>,
    /// Which of them it wants to see.
    #[serde(default)]
    pub only: Only,
    /// How much is under way to it.
    #[serde(default)]
    pub flow: Flow,
}

impl CellReader {
    /// How many changes it is shown at once while it follows.
    pub const CHANGES_MAX: usize = 256;

    /// A reader that has come so far.
    pub fn new(CellCursor { from, walk }: CellCursor, only: Only) -> Self {
        Self { from, walk, only, flow: Flow::default() }
    }

    /// Where it is.
    pub fn cursor(&self) -> CellCursor {
        CellCursor { from: self.from, walk: self.walk }
    }

    /// Shows a part of a walk. When it was the last one, the reader follows from there on.
    pub fn read_walk(&mut self, walk: Walk, walked: Walked) -> Batch {
        let mut batch = Batch::default();
        for change in walked.changes {
            let after = change.id.number;
            self.walk = Some(Walk { after, ..walk });
            // What has changed since the walk began comes after it.
            if change.stamp < walk.until && self.show(&mut batch, change) {
                return batch;
            }
        }
        match walked.through {
            Some(after) => self.walk = Some(Walk { after, ..walk }),
            None => (self.from, self.walk) = (walk.until, None),
        }
        batch.more = true;
        batch
    }

    /// What comes next; `is_all` says whether nothing is left from before `through`.
    pub fn read(&mut self, changes: Vec<Change>, is_all: bool, through: u64) -> Batch {
        let mut batch = Batch::default();
        for change in changes {
            self.from = change.stamp + 1;
            if self.show(&mut batch, change) {
                return batch;
            }
        }
        if is_all {
            self.from = self.from.max(through);
        }
        batch.more = !is_all;
        batch
    }

    /// Shows a change, if the reader wants to see it. Says whether it is to be heard of before it is shown more.
    fn show(&mut self, batch: &mut Batch, change: Change) -> bool {
        if !self.only.has(&change) {
            return false;
        }
        let Change { stamp, id, workflow, status } = change;
        let data = Payload::encode(&StatusView { id, workflow, status }).expect("a status is JSON");
        let (bytes, at, cursor) = (data.size(), time_of(stamp), self.cursor().to_string());
        batch.events.push(StreamEvent { id: cursor.clone(), kind: Kind::Status, at, data });
        let asks = self.flow.send(bytes);
        if asks {
            batch.events.push(StreamEvent { id: cursor, kind: Kind::Ack, at, data: Payload::null() });
        }
        asks
    }
}

/// The kind of a stored event, by the name that its text begins with.
fn kind_of(event: &str) -> Kind {
    match event.split('"').nth(1) {
        Some("timer_fired") => Kind::Timer,
        Some("signal_received") => Kind::Signal,
        Some(_) | None => Kind::Step,
    }
}
