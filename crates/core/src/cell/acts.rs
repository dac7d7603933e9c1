//! What people do to a run: end it, stop it for a while, take it back. The run remembers who it was.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Event, Op, OpKind, Problem, Record, RunId, Seq, Timestamp,
    rest::{Act, Deed, Status, StepName},
};

use super::{Cell, Rows, Sought, mail::is_detached, rows::op_of};
use crate::{
    object::{Fault, Hosted as _},
    ordered::OrdMap,
    run::{Cut, Input, Run, Signal},
};

/// What somebody wants to be done to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// End it.
    Cancel,
    /// Stop it for a while.
    Pause,
    /// Let it go on, after it was paused.
    Resume,
    /// Let it go on from the step that failed.
    Retry,
    /// Take it back to before a step, and let it go on from there.
    Restart {
        /// Before which step; before all of it, if none is named.
        from: Option<StepName>,
    },
    /// Take it back to before a signal, and let it go on as if that one had never come.
    DropSignal {
        /// The signal's position in the journal.
        seq: Seq,
    },
}

impl Action {
    /// Whether it lets a run that stands here live again, which then counts as one more that has not ended.
    pub fn revives(&self, status: Status) -> bool {
        match self {
            Self::Cancel | Self::Pause | Self::Resume => false,
            Self::Retry | Self::Restart { .. } | Self::DropSignal { .. } => status.is_terminal(),
        }
    }

    fn deed(&self) -> Deed {
        match self {
            Self::Cancel => Deed::Cancel,
            Self::Pause => Deed::Pause,
            Self::Resume => Deed::Resume,
            Self::Retry => Deed::Retry,
            Self::Restart { .. } | Self::DropSignal { .. } => Deed::Restart,
        }
    }
}

impl Cell {
    /// Does something to a run, on somebody's behalf. What changes nothing is not remembered.
    pub fn act<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &RunId,
        by: &str,
        action: Action,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.find(rows, id)?;
        let (number, act) = (id.number, Act { at: now, by: by.to_owned(), what: action.deed() });
        match action {
            Action::Cancel => drop(self.drive_by(rows, now, number, Some(act), |_| Input::Cancel)?),
            Action::Pause => drop(self.drive_by(rows, now, number, Some(act), |_| Input::Pause)?),
            Action::Resume => {
                drop(self.drive_by(rows, now, number, Some(act), |slot| Input::Resume { slot })?);
            }
            Action::Retry => {
                self.check_alone(rows, &run)?;
                self.retry(rows, &run, act)?;
            }
            Action::Restart { from } => {
                self.check_alone(rows, &run)?;
                let op = from.map(|StepName { step: name, occurrence }| Op {
                    kind: OpKind::Step,
                    name,
                    occurrence,
                });
                self.restart(rows, &run, op.as_ref(), act)?;
            }
            Action::DropSignal { seq } => self.drop_signal(rows, &run, seq, act)?,
        }
        self.dispatch(rows, now);
        Ok(())
    }

    /// Back to the step that failed, or to the steps that failed side by side, with all their attempts; or to where it
    /// was, if no step did.
    fn retry<R: Rows>(&mut self, rows: &R, run: &Run, act: Act) -> Result<(), Fault<R::Error>> {
        if run.status() != Status::Failed {
            let detail = format!("The run is {}. Only a failed run can be retried.", run.status().as_str());
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        // Steps that failed side by side are all taken back: otherwise the workflow meets the other failures again.
        let is_beside = |seq: Seq| run.failed_since.is_some_and(|since| since <= seq);
        let (mut failed, mut cuts) = (OrdMap::new(), Vec::new());
        let (mut last, mut detached) = (None, Ok(false));
        each(rows, run, Sought::FailedSteps, Seq(0), |record| {
            // Its failure is none of the run's.
            if let Event::ChildFinished { invoked, .. } = &record.event {
                if detached.is_err() {
                    return;
                }
                detached = is_detached(rows, run, *invoked);
                if !matches!(detached, Ok(false)) {
                    return;
                }
            }
            if let Event::StepFinished { op, .. } | Event::ChildFinished { op, .. } = record.event {
                if !last.is_some_and(is_beside) {
                    failed.clear();
                }
                failed.insert(op, record.seq);
                last = Some(record.seq);
            }
        })?;
        detached?;
        // Their earlier attempts too, one by one: what happened beside them still counts.
        let mut cut = |record: Record| {
            if op_of(&record.event).and_then(|op| failed.get(op)).is_some_and(|seq| record.seq <= *seq) {
                cuts.push(Cut::only(record.seq));
            }
        };
        match failed.first_key_value() {
            Some((op, _)) if failed.len() == 1 => each(rows, run, Sought::Of(op), Seq(0), &mut cut)?,
            Some(_) => each(rows, run, Sought::Any, Seq(0), &mut cut)?,
            None => {}
        }
        if let Some(last) = last {
            cuts.push(Cut { after: Seq(last.0 - 1), through: run.head });
        }
        self.take_back(rows, run, cuts, true, act)
    }

    /// Back to before a step, if the run has ended or is paused; to its beginning, if no step is named.
    fn restart<R: Rows>(
        &mut self,
        rows: &R,
        run: &Run,
        from: Option<&Op>,
        act: Act,
    ) -> Result<(), Fault<R::Error>> {
        let first = first(rows, run, from.map_or(Sought::Any, Sought::Of))?;
        if let (None, Some(op)) = (first, from) {
            let detail = format!(
                "The run's journal has no step '{}', or fewer than {} with that name. Its history lists its steps.",
                op.name,
                op.occurrence.saturating_add(1)
            );
            return Err(Problem::new(Code::StepNotFound, detail).into());
        }
        let cuts = first.map(|seq| Cut { after: Seq(seq.0 - 1), through: run.head }).into_iter().collect();
        self.take_back(rows, run, cuts, false, act)
    }

    /// Back to before a signal, and on without it. What was recorded after it may have followed from it, so that goes
    /// too; nobody but the program knows whether it did.
    fn drop_signal<R: Rows>(
        &mut self,
        rows: &R,
        run: &Run,
        seq: Seq,
        act: Act,
    ) -> Result<(), Fault<R::Error>> {
        let before = Seq(seq.0.saturating_sub(1));
        let found = rows.find(run.id.number, &Sought::Signals, before).map_err(Fault::Storage)?;
        let found = found.into_iter().next().filter(|record| record.seq == seq && run.counts(seq));
        let Some(found) = found else {
            let detail = format!(
                "The run's journal has no signal at position {}, or has gone back to before it. Its history shows the \
                 ones it has.",
                seq.0
            );
            return Err(Problem::new(Code::SignalNotFound, detail).into());
        };
        let cuts = vec![Cut { after: before, through: run.head }];
        self.take_back_without(rows, run, cuts, Some(&found), false, act)
    }

    fn take_back<R: Rows>(
        &mut self,
        rows: &R,
        run: &Run,
        cuts: Vec<Cut>,
        keeps_progress: bool,
        act: Act,
    ) -> Result<(), Fault<R::Error>> {
        self.take_back_without(rows, run, cuts, None, keeps_progress, act)
    }

    /// Signals in a cut are received again, but for the one that is dropped.
    fn take_back_without<R: Rows>(
        &mut self,
        rows: &R,
        run: &Run,
        cuts: Vec<Cut>,
        dropped: Option<&Record>,
        keeps_progress: bool,
        act: Act,
    ) -> Result<(), Fault<R::Error>> {
        let mut cuts = cuts;
        cuts.extend(lost_invocations(rows, run, &cuts)?);
        let mut signals = Vec::new();
        let seq = dropped.map(|record| record.seq);
        if let Some(after) = cuts.iter().map(|cut| cut.after).min() {
            each(rows, run, Sought::Signals, after, |record| {
                let is_cut = cuts.iter().any(|cut| cut.after < record.seq && record.seq <= cut.through);
                signals.extend(Signal::of(&record.event).filter(|_| is_cut && seq != Some(record.seq)));
            })?;
        }
        let dropped = dropped.and_then(|record| run.answer_id(&record.event));
        let restart = |slot| Input::Restart { cuts, signals, dropped, keeps_progress, slot };
        self.drive_by(rows, act.at, run.id.number, Some(act), restart).map(drop)
    }
}

/// The invocations before these cuts that nothing would come of any more: what their children gave is cut, or the run has let
/// go of them at its end. They are made once more.
fn lost_invocations<R: Rows>(rows: &R, run: &Run, cuts: &[Cut]) -> Result<Vec<Cut>, Fault<R::Error>> {
    let is_cut = |seq: Seq| cuts.iter().any(|cut| cut.after < seq && seq <= cut.through);
    // Each one, and whether what it waits for has come, was cut, or may still come.
    let mut invocations: OrdMap<Seq, (bool, bool)> = OrdMap::new();
    each(rows, run, Sought::Children, Seq(0), |record| {
        if let Event::ChildInvoked { detached, .. } = record.event {
            if !is_cut(record.seq) {
                invocations.insert(record.seq, (detached, run.children.contains(record.seq)));
            }
        } else if let Event::ChildStarted { invoked, .. } | Event::ChildFinished { invoked, .. } =
            record.event
            && let Some((detached, stands)) = invocations.get_mut(&invoked)
        {
            let is_answer = *detached == matches!(record.event, Event::ChildStarted { .. })
                || matches!(record.event, Event::ChildFinished { .. }) && !*stands;
            if is_answer {
                *stands = !is_cut(record.seq);
            }
        }
    })?;
    Ok(invocations.into_iter().filter(|(_, (_, stands))| !stands).map(|(seq, _)| Cut::only(seq)).collect())
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
