//! What clients ask of a cell.

use stepwell_protocol::{Code, Payload, Place, Problem, RunId, Timestamp};

use super::{Cell, Fault, KeyRow, Rows, drive::no_such_run};
use crate::run::{Input, Run, Start};

/// A run to be started.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Where this cell is.
    pub place: Place,
    /// The random part of the run's id.
    pub suffix: String,
    /// Where its random numbers will come from.
    pub seed: u64,
    /// The workflow to run.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// Its idempotency key.
    pub key: Option<KeyRow>,
}

/// A run that was started, now or before.
#[derive(Clone, Debug)]
pub struct Started {
    /// The run.
    pub run: Run,
    /// Whether it is new.
    pub created: bool,
}

impl Cell {
    /// Starts a run, unless its key has started one.
    pub fn start<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        new: NewRun,
    ) -> Result<Started, Fault<R::Error>> {
        let now = self.now(clock);
        if let Some(key) = &new.key
            && let Some(stored) = rows.key(&key.key).map_err(Fault::Storage)?
        {
            if stored.fingerprint != key.fingerprint {
                let detail = "This Idempotency-Key has started a run with another workflow or input. Use a new \
                              key for a new request.";
                return Err(Problem::new(Code::IdempotencyKeyReused, detail).into());
            }
            return Ok(Started { run: self.run(rows, stored.number)?, created: false });
        }
        let number = self.next_number(rows)?;
        let start = Start {
            id: RunId { place: new.place, number, suffix: new.suffix },
            slot: self.slot(&new.workflow),
            workflow: new.workflow,
            seed: new.seed,
        };
        let (mut run, decision) = Run::start(now, start);
        run.apply_all(&decision.entries);
        rows.insert(&run, &new.input, new.key.as_ref()).map_err(Fault::Storage)?;
        self.settle(now, &run, &decision.effects);
        self.dispatch(rows, now);
        Ok(Started { run, created: true })
    }

    /// A run, if this is its id.
    pub fn find<R: Rows>(&self, rows: &R, id: &RunId) -> Result<Run, Fault<R::Error>> {
        let run = self.run(rows, id.number)?;
        if run.id == *id { Ok(run) } else { Err(no_such_run()) }
    }

    /// Sends a run a signal. Says whether it was new.
    pub fn signal<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        to: &RunId,
        name: String,
        id: Option<String>,
        payload: Payload,
    ) -> Result<bool, Fault<R::Error>> {
        let now = self.now(clock);
        self.find(rows, to)?;
        if let Some(id) = &id
            && rows.has_signal(to.number, id).map_err(Fault::Storage)?
        {
            return Ok(false);
        }
        self.drive(rows, now, to.number, |slot| Input::Signal { name, id, payload, slot })?;
        self.dispatch(rows, now);
        Ok(true)
    }

    /// Cancels a run.
    pub fn cancel<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.find(rows, id)?;
        self.drive(rows, now, id.number, |_| Input::Cancel).map(drop)
    }

    /// A number for a new run. One that is not used leaves a hole, which does no harm.
    fn next_number<R: Rows>(&mut self, rows: &R) -> Result<u64, Fault<R::Error>> {
        let last = match self.last_number {
            Some(last) => last,
            None => rows.last_number().map_err(Fault::Storage)?,
        };
        self.last_number = Some(last + 1);
        Ok(last + 1)
    }
}
