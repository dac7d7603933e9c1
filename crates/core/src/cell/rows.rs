//! What a cell needs of its storage.

use stepwell_protocol::{Payload, Problem, Record, Seq, Timestamp, program::RawPage};

use crate::run::{Entry, Run};

/// The rows of one cell. Every method that writes is one transaction: all of it or nothing.
pub trait Rows {
    /// Why the storage failed.
    type Error;

    /// A run's state, from its row and its journal's tail.
    fn run(&self, number: u64) -> Result<Option<Run>, Self::Error>;

    /// The largest number of any run; 0 if there is none.
    fn last_number(&self) -> Result<u64, Self::Error>;

    /// Stores a new run with its input, and its key if it has one.
    fn insert(&self, run: &Run, input: &Payload, key: Option<&KeyRow>) -> Result<(), Self::Error>;

    /// Stores entries: a journal row for each record, and the run row if any of them changes it. `run` is the
    /// state after them, `wake_before` its wake time before.
    fn commit(&self, run: &Run, wake_before: Option<Timestamp>, entries: &[Entry])
    -> Result<(), Self::Error>;

    /// What a key has started.
    fn key(&self, key: &str) -> Result<Option<StoredRun>, Self::Error>;

    /// Whether a run has received a signal of this id.
    fn has_signal(&self, number: u64, id: &str) -> Result<bool, Self::Error>;

    /// What a run was started with.
    fn input(&self, number: u64) -> Result<Payload, Self::Error>;

    /// The journal after a position, as much as goes into a page; at least one event, if there is one.
    fn page(&self, number: u64, after: Seq) -> Result<RawPage, Self::Error>;

    /// The journal after one position up to another.
    fn records(&self, number: u64, after: Seq, through: Seq) -> Result<Vec<Record>, Self::Error>;

    /// Runs that are due by `now`, by wake time and number, after a place in that order.
    fn due(
        &self,
        after: (Timestamp, u64),
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, u64)>, Self::Error>;

    /// The earliest wake time after a place in that order.
    fn wake_after(&self, after: (Timestamp, u64)) -> Result<Option<Timestamp>, Self::Error>;
}

/// An idempotency key and a hash of what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The key.
    pub key: String,
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

/// Why a cell did not do what it was asked. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum Fault<E> {
    /// The caller's fault.
    #[error(transparent)]
    Rejected(#[from] Problem),
    /// The storage's.
    #[error("the storage failed")]
    Storage(E),
}
