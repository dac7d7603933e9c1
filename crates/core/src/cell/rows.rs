//! What a cell needs of its storage.

use stepwell_protocol::{Event, Op, Outcome, Payload, Place, Record, Seq, Timestamp, program::RawPage};

use super::{FailureRows, Happened, Mail, Tally};
use crate::{
    run::{Cut, Entry, Run},
    stream::{PublishedMark, PublishedPage, PublishedRow, Walked},
};

/// The rows of one cell. Every method that writes is one transaction: all of it or nothing.
pub trait Rows: FailureRows {
    /// Whether an error says that what is stored of one run cannot be read. To try again would not help, and other
    /// runs are not affected; any other error is the storage's.
    fn is_unreadable(error: &Self::Error) -> bool;

    /// Takes a run that cannot be read out of everyone's way until then: its status is paused, and that is its wake
    /// time. No other row has both. One statement that reads and changes nothing else of the row.
    fn quarantine(&self, number: u64, error: &Self::Error, until: Timestamp) -> Result<(), Self::Error>;

    /// Undoes that for a run that can be read again: its status and its wake time are those of its state.
    fn release(&self, run: &Run) -> Result<(), Self::Error>;

    /// A run's state, from its row and its journal's tail.
    fn run(&self, number: u64) -> Result<Option<Run>, Self::Error>;

    /// The largest number of any run that there is or was; 0 if there was none.
    fn last_number(&self) -> Result<u64, Self::Error>;

    /// The latest runs, newest first: their numbers and the random parts of their ids. At most so many.
    fn latest(&self, limit: usize) -> Result<Vec<(u64, String)>, Self::Error>;

    /// Stores a new run with its input, its key if it has one, and by what other starts find it ([`Run::found_by`]).
    fn insert(&self, run: &Run, input: &Payload, key: Option<&KeyRow>) -> Result<(), Self::Error>;

    /// Stores entries: a journal row for each record, and the run row if any of them changes it, with the input of a new
    /// life. `run` is the
    /// state after them, `wake_before` its wake time before. The last of the journal rows has the run's trailer
    /// ([`Run::trailer`]) beside it.
    /// And what it writes to other objects, and the end of a letter that has arrived.
    fn commit(
        &self,
        run: &Run,
        wake_before: Option<Timestamp>,
        entries: &[Entry],
        mail: &Mail,
    ) -> Result<(), Self::Error>;

    /// The namespace of this cell.
    fn namespace(&self) -> Result<String, Self::Error>;

    /// The run that a start with this key has become part of.
    fn joined(&self, key: &str) -> Result<Option<JoinedRun>, Self::Error>;

    /// What has become of a key.
    fn key(&self, key: &str) -> Result<Option<StoredKey>, Self::Error>;

    /// Stores that a key has gone to another cell.
    fn reserve(&self, key: &str, to: &Place) -> Result<(), Self::Error>;

    /// Stores that a key is given up, and is forgotten at this time.
    fn give_up(&self, key: &str, until: Timestamp) -> Result<(), Self::Error>;

    /// Stores that a key which has gone to another cell is forgotten at this time, unless that was stored before.
    fn unbind(&self, key: &str, until: Timestamp) -> Result<(), Self::Error>;

    /// When the first of those keys is forgotten, or the first of those by which parts of runs are known.
    fn first_lapse(&self) -> Result<Option<Timestamp>, Self::Error>;

    /// Deletes those keys whose time is over, the oldest first and at most so many.
    fn forget_lapsed(&self, now: Timestamp, limit: usize) -> Result<(), Self::Error>;

    /// How many bytes the events of a run have, without what it has published.
    fn weight(&self, number: u64) -> Result<u64, Self::Error>;

    /// Deletes the first events of a run's journal, then what it has published, then ids of its signals: as much as
    /// fits, and at least one row, if there is one.
    fn trim(&self, number: u64, room: Slice) -> Result<Trimmed, Self::Error>;

    /// Where the first events of a part of a journal are, and how many bytes each has; at most so many.
    fn sizes(&self, number: u64, part: Cut, limit: usize) -> Result<Vec<(Seq, u64)>, Self::Error>;

    /// Deletes the events of a part of a journal. Says how many rows it were.
    fn erase(&self, number: u64, part: Cut) -> Result<usize, Self::Error>;

    /// Deletes a run and all that belongs to it. Its number is never used again. Says how many rows it were.
    fn remove(&self, run: &Run) -> Result<usize, Self::Error>;

    /// Counts the runs before a number, the newest first and up to so many.
    fn tally(&self, before: u64, limit: usize) -> Result<Tally, Self::Error>;

    /// Adds what has happened to what is stored of a minute: see [`super::add_happened`].
    fn add_minute(&self, minute: u64, happened: &Happened) -> Result<(), Self::Error>;

    /// Gives what is stored of each minute from this one on, in order. Never all of it is in memory.
    fn each_minute(&self, from: u64, each: &mut dyn FnMut(u64, Happened)) -> Result<(), Self::Error>;

    /// All that happened before a minute, and that minute; 0 and nothing, if that was never added up.
    fn totals(&self) -> Result<(u64, Happened), Self::Error>;

    /// Stores all that happened before a minute, and forgets what is stored of minutes before another one.
    fn add_up(&self, before: u64, all: &Happened, forget_before: u64) -> Result<(), Self::Error>;

    /// How many bytes are stored.
    fn bytes(&self) -> Result<u64, Self::Error>;

    /// Whether a run has received a signal of this id.
    fn has_signal(&self, number: u64, id: &str) -> Result<bool, Self::Error>;

    /// What a run, or its present life, was started with.
    fn input(&self, number: u64) -> Result<Payload, Self::Error>;

    /// The journal after a position, as much as goes into a page; at least one event, if there is one.
    fn page(&self, number: u64, after: Seq) -> Result<RawPage, Self::Error>;

    /// Some of the journal's events of one kind after a position, in order; none, if there are no more. A journal may
    /// be larger than memory: only what is asked for is read.
    fn find(&self, number: u64, what: &Sought<'_>, after: Seq) -> Result<Vec<Record>, Self::Error>;

    /// Runs that are due by `now`, by wake time and number, after a place in that order.
    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Self::Error>;

    /// The same for the runs of one workflow.
    fn due_of(
        &self,
        workflow: &str,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Self::Error>;

    /// The earliest wake time after a place in that order.
    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Self::Error>;

    /// Stores what a run has published.
    fn tell(&self, number: u64, row: &PublishedRow) -> Result<(), Self::Error>;

    /// The number of the last item that a run has published, and its row's mark.
    fn told_last(&self, number: u64) -> Result<Option<(u32, PublishedMark)>, Self::Error>;

    /// What a run has published after the item of this number, as much as goes into a page; at least one row, if
    /// there is one. The first row may begin before.
    fn told(&self, number: u64, after: u32) -> Result<PublishedPage, Self::Error>;

    /// How many rows that is, and how many bytes.
    fn told_weight(&self, number: u64) -> Result<Slice, Self::Error>;

    /// The runs after a number that have changed their status since a stamp, by number. Looks at so many runs: for
    /// readers that come back, not for those that follow.
    fn changed(&self, after: u64, from: u64, limit: usize) -> Result<Walked, Self::Error>;
}

/// A kind of events that is looked for in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought<'a> {
    /// Whatever there is.
    Any,
    /// Steps that failed for good, and children that failed.
    FailedSteps,
    /// All about one operation.
    Of(&'a Op),
    /// Signals.
    Signals,
    /// All about children.
    Children,
    /// Whatever there is up to a position.
    Through(Seq),
}

impl Sought<'_> {
    /// The last position at which it is looked for.
    pub fn through(&self) -> Seq {
        if let Self::Through(last) = self { *last } else { Seq(u32::MAX) }
    }

    /// Whether an event is of this kind.
    pub fn fits(&self, event: &Event) -> bool {
        match self {
            Self::Any | Self::Through(_) => true,
            Self::FailedSteps => matches!(
                event,
                Event::StepFinished { outcome: Outcome::Err(_), .. }
                    | Event::ChildFinished { outcome: Outcome::Err(_), .. }
            ),
            Self::Of(op) => op_of(event) == Some(*op),
            Self::Signals => matches!(event, Event::SignalReceived { .. }),
            Self::Children => matches!(
                event,
                Event::ChildInvoked { .. } | Event::ChildStarted { .. } | Event::ChildFinished { .. }
            ),
        }
    }
}

/// The step, sleep, wait or child that an event is about.
pub(super) fn op_of(event: &Event) -> Option<&Op> {
    match event {
        Event::StepFinished { op, .. }
        | Event::StepBegun { op }
        | Event::StepRetrying { op, .. }
        | Event::StepLetIn { op, .. }
        | Event::TimerFired { op, .. }
        | Event::ChildInvoked { op, .. }
        | Event::ChildStarted { op, .. }
        | Event::ChildFinished { op, .. } => Some(op),
        Event::SignalReceived { .. } => None,
    }
}

/// How much may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Rows.
    pub rows: usize,
    /// Bytes of events.
    pub bytes: u64,
}

/// What was deleted of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Rows.
    pub rows: usize,
    /// Whether nothing is left but what [`Rows::remove`] deletes besides.
    pub is_all: bool,
}

/// An idempotency key and a hash of what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The key.
    pub key: String,
    /// A hash of what was asked for.
    pub fingerprint: String,
}

/// What has become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredKey {
    /// It has started a run.
    Run(StoredRun),
    /// It has gone to another cell, which alone may start its run.
    Moved(Place),
    /// Whoever has it wants no run any more: none is started.
    GivenUp,
}

/// The run that a start has become part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedRun {
    /// Its number.
    pub number: u64,
    /// The random part of its id.
    pub suffix: String,
    /// A hash of what was asked for.
    pub fingerprint: String,
}

/// The run that a key has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// Its number.
    pub number: u64,
    /// A hash of what was asked for.
    pub fingerprint: String,
}
