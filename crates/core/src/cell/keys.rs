//! What a cell knows of idempotency keys: the run that a key has started, or where the key has gone.
//!
//! Invariant: a key that was sent on starts nothing here any more. So of all the cells that a key has ever
//! been at home in, at most one holds its run.

use stepwell_protocol::{Code, Place, Problem};

use super::{Cell, KeyRow, Rows, StoredKey, StoredRun};
use crate::{object::Fault, run::Run};

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

    /// The number of the run that a key has started here, whatever the run was started with; nothing, if there is none.
    /// Writes nothing, so it decides nothing about the key.
    pub fn find_key<R: Rows>(&self, rows: &R, key: &str) -> Result<Option<u64>, Fault<R::Error>> {
        let number = match rows.key(key).map_err(Fault::Storage)? {
            None => return Ok(None),
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
            Some(StoredKey::Run(run)) => run,
        };
        // A key is known for as long as its run is.
        let Some(run) = self.kept(rows, number)? else { return Ok(None) };
        if fingerprint != key.fingerprint {
            let detail = "This Idempotency-Key has started a run of this workflow with another input. Use a new key \
                          for a new request.";
            return Err(Problem::new(Code::IdempotencyKeyReused, detail).into());
        }
        Ok(Some(run))
    }

    /// A run, unless it is gone or being deleted.
    pub(super) fn kept<R: Rows>(&self, rows: &R, number: u64) -> Result<Option<Run>, Fault<R::Error>> {
        let run = match self.runs.get(&number) {
            Some(run) => Some(run.clone()),
            None => Self::load(rows, number)?,
        };
        Ok(run.filter(|run| !run.deleting))
    }
}
