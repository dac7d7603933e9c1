//! What clients ask of a cell.

use stepwell_protocol::{
    Code, Event, Op, Outcome, Payload, Place, Problem, Record, RunId, Seq, Timestamp,
    rest::{Status, Why},
};

use super::{Cell, Fault, KeyRow, Rows, drive::no_such_run};
use crate::run::{Cut, Input, Run, Signal, Start};

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
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// What people call it by.
    pub tags: Vec<String>,
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
            timeout_ms: new.timeout_ms,
            tags: new.tags,
        };
        let (mut run, decision) = Run::start(now, start);
        run.apply_all(&decision.entries);
        run.spend_start(new.key.is_some());
        rows.insert(&run, &new.input, new.key.as_ref()).map_err(Fault::Storage)?;
        self.settle(now, &run, &decision);
        if self.window.holds(number, run.epoch) {
            self.inputs.insert(number, new.input);
        }
        self.dispatch(rows, now);
        Ok(Started { run, created: true })
    }

    /// A run, if this is its id.
    pub fn find<R: Rows>(&self, rows: &R, id: &RunId) -> Result<Run, Fault<R::Error>> {
        let run = self.run(rows, id.number)?;
        if run.id == *id { Ok(run) } else { Err(no_such_run()) }
    }

    /// Why a run is where it is.
    pub fn why<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<Why, Fault<R::Error>> {
        let now = self.now(clock);
        Ok(self.find(rows, id)?.why(now))
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

    /// Stops a run for a while.
    pub fn pause<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.find(rows, id)?;
        self.drive(rows, now, id.number, |_| Input::Pause).map(drop)
    }

    /// Lets a paused run go on.
    pub fn resume<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.find(rows, id)?;
        self.drive(rows, now, id.number, |slot| Input::Resume { slot })?;
        self.dispatch(rows, now);
        Ok(())
    }

    /// Lets a failed run go on from the step that failed, with all its attempts; or from where it was, if no
    /// step did.
    pub fn retry<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<(), Fault<R::Error>> {
        let run = self.find(rows, id)?;
        if run.status() != Status::Failed {
            let detail = format!("The run is {}. Only a failed run can be retried.", run.status().as_str());
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        let journal = counted(rows, &run)?;
        let failed = journal.iter().rev().find_map(|record| match &record.event {
            Event::StepFinished { op, outcome: Outcome::Err(_), .. } => Some((op.clone(), record.seq)),
            Event::StepFinished { .. }
            | Event::StepBegun { .. }
            | Event::StepRetrying { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. } => None,
        });
        let cuts = failed.map_or_else(Vec::new, |(op, seq)| {
            // Its earlier attempts too, one by one: what happened beside them still counts.
            let attempts =
                journal.iter().filter(|record| record.seq < seq && op_of(&record.event) == Some(&op));
            let mut cuts: Vec<_> = attempts.map(|record| Cut::only(record.seq)).collect();
            cuts.push(Cut { after: Seq(seq.0 - 1), through: run.head });
            cuts
        });
        self.take_back(rows, clock, id, &journal, cuts)
    }

    /// Takes a run that has ended or is paused back to before a step, and lets it go on from there; from its
    /// beginning, if no step is named.
    pub fn restart<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &RunId,
        from: Option<&Op>,
    ) -> Result<(), Fault<R::Error>> {
        let run = self.find(rows, id)?;
        let journal = counted(rows, &run)?;
        let first = match from {
            None => journal.first().map(|record| record.seq),
            Some(op) => {
                let found = journal.iter().find(|record| op_of(&record.event) == Some(op));
                let Some(record) = found else {
                    let detail = format!(
                        "The run's journal has no step '{}' (occurrence {}). Its history shows the ones it has.",
                        op.name, op.occurrence
                    );
                    return Err(Problem::new(Code::StepNotFound, detail).into());
                };
                Some(record.seq)
            }
        };
        let cuts = first.map(|seq| Cut { after: Seq(seq.0 - 1), through: run.head }).into_iter().collect();
        self.take_back(rows, clock, id, &journal, cuts)
    }

    fn take_back<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &RunId,
        journal: &[Record],
        cuts: Vec<Cut>,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let signals = journal
            .iter()
            .filter(|record| cuts.iter().any(|cut| cut.after < record.seq && record.seq <= cut.through))
            .filter_map(|record| match &record.event {
                Event::SignalReceived { name, payload, .. } => {
                    Some(Signal { name: name.clone(), payload: payload.clone() })
                }
                Event::StepFinished { .. }
                | Event::StepBegun { .. }
                | Event::StepRetrying { .. }
                | Event::TimerFired { .. } => None,
            })
            .collect();
        self.drive(rows, now, id.number, |slot| Input::Restart { cuts, signals, slot })?;
        self.dispatch(rows, now);
        Ok(())
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

/// All of a run's journal that counts. For what people do by hand, not for the hot path.
fn counted<R: Rows>(rows: &R, run: &Run) -> Result<Vec<Record>, Fault<R::Error>> {
    let mut journal = rows.records(run.id.number, Seq(0), run.head).map_err(Fault::Storage)?;
    journal.retain(|record| run.counts(record.seq));
    Ok(journal)
}

/// The step, sleep or wait that an event is about.
fn op_of(event: &Event) -> Option<&Op> {
    match event {
        Event::StepFinished { op, .. }
        | Event::StepBegun { op }
        | Event::StepRetrying { op, .. }
        | Event::TimerFired { op } => Some(op),
        Event::SignalReceived { .. } => None,
    }
}
