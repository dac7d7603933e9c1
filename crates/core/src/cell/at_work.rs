//! The steps that programs are at work on, as far as they have said so. For people alone: no row has them, and they are
//! forgotten with the next commit of their run, and with the instance.

use stepwell_protocol::{
    Epoch, OpKind, Timestamp,
    program::{Beat, StepAtWork},
    rest::CurrentStep,
};

use super::Cell;
use crate::run::{Run, check_op};

/// The steps of one run.
#[derive(Clone, Debug)]
pub(super) struct AtWork {
    epoch: Epoch,
    /// When the program has said so, in the order of all that readers are shown.
    pub stamp: u64,
    steps: Vec<StepAtWork>,
}

impl AtWork {
    /// The steps, if this activation still works on them. The one that began first comes first.
    pub fn of(&self, run: &Run) -> &[StepAtWork] {
        if run.is_held_by(self.epoch) { &self.steps } else { &[] }
    }
}

impl Cell {
    pub(super) fn note_steps(&mut self, now: Timestamp, number: u64, epoch: Epoch, beat: Beat) {
        let mut steps = beat.steps;
        steps.truncate(Beat::STEPS_MAX);
        steps.retain(|step| step.op.kind == OpKind::Step && check_op(&step.op).is_ok());
        // A list that was long keeps its memory otherwise.
        steps.shrink_to_fit();
        if self.runs.get(&number).is_some_and(|run| run.is_held_by(epoch)) && !steps.is_empty() {
            if self.steps.get(&number).is_some_and(|known| known.epoch == epoch && known.steps == steps) {
                return;
            }
            let stamp = self.watching.stamp_work(now);
            self.steps.insert(number, AtWork { epoch, stamp, steps });
            self.watching.tell(number, &mut self.object);
        } else {
            self.steps.remove(&number);
        }
    }

    /// The steps that a run's program is at work on, as far as it has said so. The one that began first comes first.
    pub fn working(&self, run: &Run) -> &[StepAtWork] {
        self.steps.get(&run.id.number).map(|known| known.of(run)).unwrap_or_default()
    }

    /// The first of them, for people.
    pub fn current_step(&self, run: &Run) -> Option<CurrentStep> {
        let steps = self.working(run);
        let first = steps.first()?;
        Some(CurrentStep {
            name: first.op.name.clone(),
            occurrence: first.op.occurrence,
            attempt: first.attempt,
            since: first.since,
            beside: u32::try_from(steps.len() - 1).unwrap_or(u32::MAX),
        })
    }
}
