//! Which due runs a cell keeps in memory. The rows are the queue; memory holds the head of it.
//!
//! A due run that finds no room stays a row, and its workflow's *cursor* says where to read on. Each workflow has a
//! cursor of its own, so a backlog of one workflow hides no run of another, and a backlog is read once, not again for
//! each run that leaves it.
//!
//! Invariant: of a workflow without a cursor, every due row that the cell has looked at is in memory; with one, every
//! such row up to the cursor is.

use std::rc::Rc;

use stepwell_protocol::Timestamp;

use super::{ALARM_SLICE, Cell, Rows};
use crate::{
    object::Fault,
    ordered::OrdMap,
    run::{Phase, Run},
};

/// How many runs that wait for a place a cell keeps in memory. A workflow that has none there may always have one, so
/// the number of the app's workflows comes on top.
pub const LIVE_MAX: usize = 4_096;

/// How many of them may be of one workflow.
pub const LIVE_OF_WORKFLOW_MAX: usize = 1_024;

/// How many pending runs are in memory, and where to read on for the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    total: usize,
    of: OrdMap<String, usize>,
    /// For each workflow with due runs that are not in memory: the last place, by wake time and number, before the
    /// first of them.
    cursors: OrdMap<String, (Timestamp, u64)>,
}

impl Live {
    /// How many more runs of a workflow there is room for.
    fn room(&self, workflow: &str) -> usize {
        let mine = self.of.get(workflow).copied().unwrap_or_default();
        let room = LIVE_OF_WORKFLOW_MAX.saturating_sub(mine).min(LIVE_MAX.saturating_sub(self.total));
        room.max(usize::from(mine == 0))
    }

    fn enter(&mut self, workflow: &str) {
        self.total += 1;
        if let Some(count) = self.of.get_mut(workflow) {
            *count += 1;
        } else {
            self.of.insert(workflow.to_owned(), 1);
        }
    }

    fn leave(&mut self, workflow: &str) {
        if let Some(count) = self.of.get_mut(workflow) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.of.remove(workflow);
            }
        }
    }

    /// A due run stays a row.
    fn leave_out(&mut self, workflow: &str, wake_at: Timestamp, number: u64) {
        let before = (wake_at, number.saturating_sub(1));
        match self.cursors.get_mut(workflow) {
            Some(cursor) => *cursor = before.min(*cursor),
            None => drop(self.cursors.insert(workflow.to_owned(), before)),
        }
    }

    /// A workflow whose rows should be read on: at least half of its room is free, or it has nobody here.
    fn hungry(&self) -> Option<(String, (Timestamp, u64))> {
        let hungry = self.cursors.iter().find(|(workflow, _)| {
            let mine = self.of.get(*workflow).copied().unwrap_or_default();
            mine == 0 || mine <= LIVE_OF_WORKFLOW_MAX / 2 && self.total <= LIVE_MAX / 2
        });
        hungry.map(|(workflow, cursor)| (workflow.clone(), *cursor))
    }
}

impl Cell {
    /// How many runs that wait for a place are in memory.
    pub fn pending_in_memory(&self) -> usize {
        self.live.total
    }

    /// Keeps a run in memory while its program is at work, and while it is due and there is room; the rest is read again
    /// when somebody asks.
    pub(super) fn keep(&mut self, now: Timestamp, run: &Rc<Run>) {
        let number = run.id.number;
        let was_pending =
            self.runs.get(&number).is_some_and(|known| matches!(known.phase, Phase::Pending { .. }));
        if was_pending {
            self.live.leave(&run.workflow);
        }
        let keeps = match run.phase {
            Phase::Running { .. } => true,
            Phase::Pending { not_before } if not_before <= now => {
                let fits = self.live.room(&run.workflow) > 0;
                if fits {
                    self.live.enter(&run.workflow);
                } else {
                    self.live.leave_out(&run.workflow, not_before, number);
                }
                fits
            }
            // One that is not due yet is found by its row when it is.
            Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => false,
        };
        if keeps {
            self.runs.insert(number, run.clone());
        } else {
            self.runs.remove(&number);
            self.steps.remove(&number);
        }
    }

    /// Reads on where runs were left out, as far as there is room, one slice at the most.
    pub(super) fn refill<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let mut left = ALARM_SLICE;
        while left > 0
            && let Some((workflow, cursor)) = self.live.hungry()
        {
            let limit = self.live.room(&workflow).min(left);
            let due = rows.due_of(&workflow, cursor, now, limit).map_err(Fault::Storage)?;
            left -= due.len().max(1);
            // Whoever finds no room after all sets it anew.
            self.live.cursors.remove(&workflow);
            if due.len() == limit
                && let Some(&last) = due.last()
            {
                self.live.cursors.insert(workflow, last);
            }
            // One run that the storage fails for must not keep those behind it waiting.
            let mut taken = Ok(());
            for (_, number) in due {
                taken = taken.and(self.take_up(rows, now, number));
            }
            taken?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_workflow_with_nobody_in_memory_always_has_room_for_one() {
        let mut live = Live::default();
        for workflow in ["a", "b", "c", "d"] {
            (0..LIVE_OF_WORKFLOW_MAX).for_each(|_| live.enter(workflow));
        }
        assert_eq!(live.total, LIVE_MAX);
        assert_eq!((live.room("a"), live.room("e")), (0, 1));
        live.enter("e");
        assert_eq!(live.room("e"), 0);
        live.leave("e");
        assert_eq!(live.room("e"), 1);
    }

    #[test]
    fn a_cursor_stands_before_the_first_run_that_was_left_out() {
        let mut live = Live::default();
        live.leave_out("a", at(9), 4);
        live.leave_out("a", at(7), 8);
        live.leave_out("a", at(8), 1);
        assert_eq!(live.hungry(), Some(("a".into(), (at(7), 7))));
        (0..=LIVE_OF_WORKFLOW_MAX / 2).for_each(|_| live.enter("a"));
        assert_eq!(live.hungry(), None);
    }
}
