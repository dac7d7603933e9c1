//! What a cell knows of idempotency keys: the run that a key has started, where the key has gone, or that it starts
//! nothing any more.
//!
//! Invariant: a key that was sent on starts nothing here any more. So of all the cells that a key has ever
//! been at home in, at most one holds its run.

use stepwell_protocol::{Code, Place, Problem, RunId, Timestamp};

use super::{
    Cell, DELETE_SLICE, KeyRow, NewRun, Rows, Started, StartedAs, StoredKey, StoredRun, drive::no_such_run,
    joins::skipped,
};
use crate::{
    object::{Fault, Hosted as _, Receipt},
    run::{INVOCATION_KEPT_MS, Run},
};

/// An idempotency key as cells know it: it belongs to a workflow, so the same key starts another run of another one.
/// Names of workflows have no control characters, so no two pairs look the same.
pub fn scoped_key(workflow: &str, key: &str) -> String {
    format!("{workflow}\n{key}")
}

/// What a cell says of a key that is at home elsewhere by now.
#[derive(Clone, Debug)]
pub enum Reserved {
    /// It has started a run here, before.
    Run(Box<Run>),
    /// It has gone there, now or before.
    Moved(Place),
}

impl Cell {
    /// Sends a key on to its next home, unless it has started a run here.
    pub fn reserve<R: Rows>(
        &mut self,
        rows: &R,
        key: &KeyRow,
        to: &Place,
    ) -> Result<Reserved, Fault<R::Error>> {
        match self.keyed(rows, key) {
            Ok(Some(run)) => Ok(Reserved::Run(Box::new(run))),
            Ok(None) => {
                rows.reserve(&key.key, to).map_err(Fault::Storage)?;
                Ok(Reserved::Moved(to.clone()))
            }
            Err(Fault::Moved(place)) => Ok(Reserved::Moved(place)),
            Err(fault) => Err(fault),
        }
    }

    /// A child whose key was sent on has ended, and nobody cancels it any more. Its start may still come again for a while,
    /// and so may a cancellation; after that the key is forgotten. Where the key has gone, it may have been sent on once
    /// more.
    pub(super) fn unbind<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        key: &str,
    ) -> Result<Receipt, Fault<R::Error>> {
        match rows.key(key).map_err(Fault::Storage)? {
            Some(StoredKey::Moved(to)) => {
                self.forget_later(rows, now, key)?;
                Ok(Receipt::Moved { to })
            }
            Some(StoredKey::Run(_) | StoredKey::GivenUp) => Ok(Receipt::Taken),
            None => {
                // Only the instance that has the name knows that for certain: the answer waits for a write.
                self.object.arm_anew(now);
                Ok(Receipt::Gone)
            }
        }
    }

    /// A key starts nothing any more. A start that is under way may still come for a while; after that the key is forgotten.
    pub(super) fn give_up<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        key: &str,
    ) -> Result<(), Fault<R::Error>> {
        let until = self.kept_until(now);
        rows.give_up(key, until).map_err(Fault::Storage)
    }

    /// What a run that nobody waits for is known by: a start that comes again gets the same answer as the first one.
    /// Nothing, if it has none yet.
    pub(super) fn known_start<R: Rows>(
        rows: &R,
        place: &Place,
        key: &str,
    ) -> Result<Option<Receipt>, Fault<R::Error>> {
        if let Some(joined) = Self::known_join(rows, place, key)? {
            return Ok(Some(joined));
        }
        Ok(rows.key(key).map_err(Fault::Storage)?.map(|known| match known {
            StoredKey::Run(StoredRun { number, fingerprint: suffix }) => {
                Receipt::Started { run: RunId { place: place.clone(), number, suffix } }
            }
            StoredKey::Moved(to) => Receipt::Moved { to },
            StoredKey::GivenUp => Receipt::Gone,
        }))
    }

    /// Starts such a run. If this cell is full, its key goes to the spare one, for as long as it may be asked for.
    pub(super) fn start_or_move<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        new: NewRun,
        spare: Option<Place>,
    ) -> Result<Receipt, Fault<R::Error>> {
        let key = new.key.as_ref().map(|key| key.key.clone()).unwrap_or_default();
        // The spare one is not where its like meet.
        let spare = spare.filter(|_| new.joins.is_none());
        match (self.start(rows, clock, new), spare) {
            (Ok(Started { run, how: StartedAs::New | StartedAs::Before }), _) => {
                Ok(Receipt::Started { run: run.id })
            }
            (Ok(Started { run, how: StartedAs::Joined }), _) => Ok(Receipt::Joined { run: run.id }),
            (Ok(Started { run, how: StartedAs::Skipped }), _) => Err(skipped(&run).into()),
            (Err(Fault::Moved(to)), _) => Ok(Receipt::Moved { to }),
            (Err(Fault::Rejected(problem)), Some(to)) if problem.code == Code::CellFull => {
                let now = self.now(clock);
                rows.reserve(&key, &to).map_err(Fault::Storage)?;
                self.forget_later(rows, now, &key)?;
                Ok(Receipt::Moved { to })
            }
            (Err(fault), _) => Err(fault),
        }
    }

    /// A key that has no run here is forgotten when nobody asks for it any more.
    pub(super) fn forget_later<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        key: &str,
    ) -> Result<(), Fault<R::Error>> {
        let until = self.kept_until(now);
        rows.unbind(key, until).map_err(Fault::Storage)
    }

    /// How long a key without a run is kept from now on: the object wakes up then.
    fn kept_until(&mut self, now: Timestamp) -> Timestamp {
        let until = now.plus_millis(INVOCATION_KEPT_MS);
        self.object.arm_by(now, until);
        until
    }

    /// Forgets keys whose time is over, a slice at a time. Says when the next one's is.
    pub(super) fn forget_lapsed<R: Rows>(
        rows: &R,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let first = rows.first_lapse().map_err(Fault::Storage)?;
        if first.is_none_or(|at| at > now) {
            return Ok(first);
        }
        rows.forget_lapsed(now, DELETE_SLICE.rows).map_err(Fault::Storage)?;
        rows.first_lapse().map_err(Fault::Storage)
    }

    /// The number of the run that a key has started here, whatever the run was started with; nothing, if there is none.
    /// Writes nothing, so it decides nothing about the key.
    pub fn find_key<R: Rows>(&self, rows: &R, key: &str) -> Result<Option<u64>, Fault<R::Error>> {
        let number = match rows.key(key).map_err(Fault::Storage)? {
            None | Some(StoredKey::GivenUp) => return Ok(None),
            Some(StoredKey::Moved(place)) => return Err(Fault::Moved(place)),
            Some(StoredKey::Run(run)) => run.number,
        };
        match self.kept(rows, number) {
            Ok(run) => Ok(run.map(|_| number)),
            // It is there: whoever asks for it is told what is wrong with it.
            Err(Fault::Rejected(problem)) if problem.code == Code::RunUnreadable => Ok(Some(number)),
            Err(fault) => Err(fault),
        }
    }

    /// The run that a key has started here, if it was started with the same request. Writes nothing.
    pub fn keyed<R: Rows>(&self, rows: &R, key: &KeyRow) -> Result<Option<Run>, Fault<R::Error>> {
        let StoredRun { number, fingerprint } = match rows.key(&key.key).map_err(Fault::Storage)? {
            None => return Ok(None),
            Some(StoredKey::Moved(place)) => return Err(Fault::Moved(place)),
            // Only children and ticks are given up, and they are asked about before.
            Some(StoredKey::GivenUp) => return Err(no_such_run()),
            Some(StoredKey::Run(run)) => run,
        };
        // A key is known for as long as its run is.
        let Some(run) = self.kept(rows, number)? else { return Ok(None) };
        if fingerprint != key.fingerprint {
            return Err(reused_key().into());
        }
        Ok(Some(run))
    }

    /// A run, unless it is gone or being deleted.
    pub(super) fn kept<R: Rows>(&self, rows: &R, number: u64) -> Result<Option<Run>, Fault<R::Error>> {
        let run = match self.runs.get(&number) {
            Some(run) => Some(Run::clone(run)),
            None => Self::load(rows, number)?,
        };
        Ok(run.filter(|run| !run.deleting))
    }
}

/// What somebody is told whose key stands for another request.
pub(super) fn reused_key() -> Problem {
    let detail = "This Idempotency-Key has started a run of this workflow with another input. Use a new key for a new \
                  request.";
    Problem::new(Code::IdempotencyKeyReused, detail)
}
