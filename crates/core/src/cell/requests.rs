//! What clients ask of a cell.

use stepwell_protocol::{
    Code, Event, Op, Payload, Place, Problem, Record, RunId, Seq, Timestamp,
    program::Dispatch,
    rest::{Status, Why},
};

use super::{Cell, Fault, KeyRow, Rows, Sought, counts::counts_as, drive::no_such_run};
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
    /// How its program is called.
    pub dispatch: Dispatch,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// How long it is kept after its end; for ever, if that is not said.
    pub retention_ms: Option<u64>,
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
            && let Some(run) = self.keyed(rows, key)?
        {
            return Ok(Started { run, created: false });
        }
        self.check_room(rows)?;
        let number = self.next_number(rows)?;
        let start = Start {
            id: RunId { place: new.place, number, suffix: new.suffix },
            slot: self.slot(now, &new.workflow, new.dispatch),
            dispatch: new.dispatch,
            workflow: new.workflow,
            seed: new.seed,
            timeout_ms: new.timeout_ms,
            retention_ms: new.retention_ms,
            key: new.key.as_ref().map(|key| key.key.clone()),
            tags: new.tags,
        };
        let (mut run, decision) = Run::start(now, start);
        run.apply_all(&decision.entries);
        run.spend_start(new.key.is_some());
        self.watching.stamp_start(now, &mut run);
        rows.insert(&run, &new.input, new.key.as_ref()).map_err(|error| self.lose_count(error))?;
        self.recount(&run, None, counts_as(&run));
        self.tell_start(&run);
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
        if run.id == *id && !run.deleting { Ok(run) } else { Err(no_such_run()) }
    }

    /// Why a run is where it is.
    pub fn why<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<Why, Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.find(rows, id)?;
        let mut why = run.why(now);
        if let Some(because) = self.waits_for_a_consumer(now, &run) {
            why.because = because;
        }
        Ok(why)
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
        let (mut failed, mut cuts) = (None, Vec::new());
        each(rows, &run, Sought::FailedSteps, Seq(0), |record| {
            if let Event::StepFinished { op, .. } = record.event {
                failed = Some((op, record.seq));
            }
        })?;
        if let Some((op, seq)) = failed {
            // Its earlier attempts too, one by one: what happened beside them still counts.
            each(rows, &run, Sought::Of(&op), Seq(0), |record| {
                if record.seq < seq {
                    cuts.push(Cut::only(record.seq));
                }
            })?;
            cuts.push(Cut { after: Seq(seq.0 - 1), through: run.head });
        }
        self.take_back(rows, clock, &run, cuts)
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
        let first = first(rows, &run, from.map_or(Sought::Any, Sought::Of))?;
        if let (None, Some(op)) = (first, from) {
            let detail = format!(
                "The run's journal has no step '{}' (occurrence {}). Its history shows the ones it has.",
                op.name, op.occurrence
            );
            return Err(Problem::new(Code::StepNotFound, detail).into());
        }
        let cuts = first.map(|seq| Cut { after: Seq(seq.0 - 1), through: run.head }).into_iter().collect();
        self.take_back(rows, clock, &run, cuts)
    }

    fn take_back<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        run: &Run,
        cuts: Vec<Cut>,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let mut signals = Vec::new();
        if let Some(after) = cuts.iter().map(|cut| cut.after).min() {
            each(rows, run, Sought::Signals, after, |record| {
                let is_cut = cuts.iter().any(|cut| cut.after < record.seq && record.seq <= cut.through);
                if let (true, Event::SignalReceived { name, payload, .. }) = (is_cut, record.event) {
                    signals.push(Signal { name, payload });
                }
            })?;
        }
        self.drive(rows, now, run.id.number, |slot| Input::Restart { cuts, signals, slot })?;
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

/// Looks at each event of a kind that counts. For what people do by hand, not for the hot path.
fn each<R: Rows>(
    rows: &R,
    run: &Run,
    what: Sought<'_>,
    after: Seq,
    mut look: impl FnMut(Record),
) -> Result<(), Fault<R::Error>> {
    let mut after = run.skip_cuts(after);
    loop {
        let found = rows.find(run.id.number, &what, after).map_err(Fault::Storage)?;
        let Some(last) = found.last().map(|record| record.seq) else { return Ok(()) };
        found.into_iter().filter(|record| run.counts(record.seq)).for_each(&mut look);
        after = run.skip_cuts(last);
    }
}

/// Where the first event of a kind is that counts.
fn first<R: Rows>(rows: &R, run: &Run, what: Sought<'_>) -> Result<Option<Seq>, Fault<R::Error>> {
    let mut after = run.skip_cuts(Seq(0));
    loop {
        let found = rows.find(run.id.number, &what, after).map_err(Fault::Storage)?;
        let Some(last) = found.last().map(|record| record.seq) else { return Ok(None) };
        if let Some(record) = found.iter().find(|record| run.counts(record.seq)) {
            return Ok(Some(record.seq));
        }
        after = run.skip_cuts(last);
    }
}
