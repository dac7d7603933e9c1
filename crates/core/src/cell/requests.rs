//! What clients ask of a cell.

use std::rc::Rc;

use stepwell_protocol::{
    Code, Parent, Payload, Place, RunId, Timestamp,
    lane::{Flow, StartRule},
    program::Dispatch,
    rest::{RunView, Why},
    schedule::Ticked,
    topic::Triggered,
    trace::TraceParent,
};

use super::{
    Cell, Joins, KeyRow, Rows, counts::counts_as, drive::no_such_run, totals::Before,
    unreadable::why_unreadable,
};
use crate::{
    object::{Fault, Hosted as _},
    run::{Gathering, InLane, Input, Run, Signal, Start, list_of},
};

/// A run to be started.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Where this cell is.
    pub place: Place,
    /// The random part of the run's id. A start without a key is known by it when it is delivered again.
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
    /// Who starts it; nobody in particular, if that is not said.
    pub by: Option<String>,
    /// Who has invoked it, if it is a child.
    pub parent: Option<Parent>,
    /// What has started it, if a schedule has.
    pub ticked: Option<Ticked>,
    /// It does not begin before; at once, if that is not said.
    pub starts_at: Option<Timestamp>,
    /// What has started it, if an event has.
    pub triggered: Option<Triggered>,
    /// The address that is called when it ends, if somebody has named one.
    pub callback: Option<String>,
    /// The span that it happens within, if whoever starts it has named one.
    pub trace: Option<TraceParent>,
    /// The limits of its workflow, if it has any.
    pub flow: Option<Box<Flow>>,
    /// Which starts it may become one run with.
    pub joins: Option<Joins>,
}

/// A run that was started, now or before.
#[derive(Clone, Debug)]
pub struct Started {
    /// The run.
    pub run: Run,
    /// What has become of this request.
    pub how: StartedAs,
}

/// What has become of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedAs {
    /// A run. Also so if the request was delivered before, and nobody got the answer.
    New,
    /// Nothing: its key has started that run before.
    Before,
    /// Part of a run that others have started.
    Joined,
    /// Nothing: its workflow does not want another run now.
    Skipped,
}

impl Cell {
    /// Starts a run, unless its key has started one, or this very request has.
    pub fn start<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        mut new: NewRun,
    ) -> Result<Started, Fault<R::Error>> {
        let now = self.now(clock);
        let before = match &new.key {
            Some(key) => self.keyed(rows, key)?,
            None => self.started_by_nonce(rows, &new.suffix)?,
        };
        if let Some(run) = before {
            let how = if new.key.is_none() { StartedAs::New } else { StartedAs::Before };
            return Ok(Started { run, how });
        }
        match new.joins.take() {
            Some(joins) => self.join_or_begin(rows, now, new, joins),
            None => self.begin(rows, now, new, None),
        }
    }

    /// Starts a run.
    pub(super) fn begin<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        new: NewRun,
        gathering: Option<Box<Gathering>>,
    ) -> Result<Started, Fault<R::Error>> {
        self.check_room(rows, new.input.size(), "new runs")?;
        let number = self.next_number(rows)?;
        let lane = new.flow.as_deref().and_then(|flow| InLane::new(flow, &new.input));
        let is_batch =
            new.flow.as_deref().is_some_and(|flow| matches!(flow.starts, Some(StartRule::Batch { .. })));
        let input = if gathering.is_some() && is_batch { list_of(&new.input) } else { new.input };
        let slot = self.slot(now, &new.workflow, new.dispatch).filter(|_| lane.is_none());
        let start = Start {
            id: RunId { place: new.place, number, suffix: new.suffix },
            slot,
            lane,
            dispatch: new.dispatch,
            workflow: new.workflow,
            seed: new.seed,
            input_bytes: input.size(),
            timeout_ms: new.timeout_ms,
            retention_ms: new.retention_ms,
            key: new.key.as_ref().map(|key| key.key.clone()),
            tags: new.tags,
            started_by: new.by,
            parent: new.parent,
            ticked: new.ticked,
            starts_at: new.starts_at,
            triggered: new.triggered,
            gathering,
            callback: new.callback,
            trace: new.trace,
        };
        let (mut run, decision) = Run::start(now, start);
        run.apply_all(&decision.entries);
        run.spend_start(new.key.is_some());
        self.watching.stamp_start(now, &mut run);
        rows.insert(&run, &input, new.key.as_ref()).map_err(|error| self.lose_count(error))?;
        self.note_start(&run.id);
        self.recount(&run, None, counts_as(&run));
        self.count_start(&run);
        self.count_entries(&Before::of(&run, &[]), &run, &decision.entries);
        self.tell_lines_of_start(&run, &decision.entries);
        self.store_totals_beside(rows, now, &run);
        self.tell_start(&run);
        let run = Rc::new(run);
        self.settle(now, &run, &decision);
        if self.window.holds(number, run.epoch) {
            self.inputs.insert(number, input);
        }
        self.dispatch(rows, now);
        Ok(Started { run: Rc::unwrap_or_clone(run), how: StartedAs::New })
    }

    /// A run, if this is its id.
    pub fn find<R: Rows>(&self, rows: &R, id: &RunId) -> Result<Run, Fault<R::Error>> {
        let run = self.run(rows, id.number)?;
        if run.id == *id && !run.deleting { Ok(Rc::unwrap_or_clone(run)) } else { Err(no_such_run()) }
    }

    /// A run as people see it, without its result, which is in the row.
    pub fn view(&self, run: &Run) -> RunView {
        RunView {
            current_step: self.current_step(run),
            working: self.working(run).to_vec(),
            ..RunView::from(run)
        }
    }

    /// Why a run is where it is.
    pub fn why<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &RunId) -> Result<Why, Fault<R::Error>> {
        let now = self.now(clock);
        let run = match self.find(rows, id) {
            Ok(run) => run,
            Err(Fault::Rejected(problem)) if problem.code == Code::RunUnreadable => {
                return Ok(why_unreadable(problem));
            }
            Err(fault) => return Err(fault),
        };
        let mut why = run.why(now);
        if let Some(because) = self.waits_for_a_consumer(now, &run) {
            why.because = because;
        }
        if let Some(because) = self.waits_for_its_lane(&run) {
            (why.because, why.lane) = (because, Some(run.lane_name().to_owned()));
        } else if let Some(lane) = run.visits_lane() {
            why.lane = Some(lane.to_owned());
        }
        if let Some(step) = self.current_step(&run) {
            why.because = step.because(now);
            why.current_step = Some(step);
        }
        Ok(why)
    }

    /// Sends a run a signal. Says whether its sender sends it for the first time: a request that is delivered again is
    /// known by its nonce, and changes nothing.
    pub fn signal<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        to: &RunId,
        signal: Signal,
    ) -> Result<bool, Fault<R::Error>> {
        self.signal_with_warning(rows, clock, to, signal).map(|(is_new, _)| is_new)
    }

    /// The same; and what to tell whoever has sent a signal that the run did not wait for.
    pub fn signal_with_warning<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        to: &RunId,
        signal: Signal,
    ) -> Result<(bool, Option<String>), Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.find(rows, to)?;
        signal.check_sender()?;
        if let Some(id) = signal.known_by()
            && rows.has_signal(to.number, id).map_err(Fault::Storage)?
        {
            let is_new = signal.id.is_none();
            return Ok((is_new, run.warning_about(&signal.name).filter(|_| is_new)));
        }
        let warning = run.warning_about(&signal.name);
        // One that a run waits for lets it go on, and perhaps end.
        if !run.waits_for(&signal.name) {
            self.check_room(rows, signal.payload.size(), "signals that nobody waits for")?;
            run.check_inbox(self.signal_limits, signal.payload.size() as u64).map_err(Fault::Rejected)?;
        }
        self.drive_run(rows, now, run.into(), None, |slot| Input::Signal { signal, slot })?;
        self.dispatch(rows, now);
        Ok((true, warning))
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
