//! Makes the state follow what was recorded. Total: whatever was stored can be applied.

use super::{End, Entry, Phase, Run, Trouble};

impl Run {
    /// Follows one entry.
    pub fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Recorded { record, mark } => {
                self.head = record.seq;
                self.mark = mark.or(self.mark);
            }
            Entry::Marked(mark) => self.mark = Some(*mark),
            Entry::OpenChanged(open) => self.open.clone_from(open),
            Entry::Troubled(trouble) => self.trouble = *trouble,
            Entry::Queued { not_before } => self.phase = Phase::Pending { not_before: *not_before },
            Entry::Activated { epoch, at, slot } => {
                self.epoch = *epoch;
                self.phase = Phase::Running {
                    since: *at,
                    session: slot.session,
                    alone: slot.alone,
                    orphaned_until: None,
                };
            }
            Entry::Orphaned { until } => {
                if let Phase::Running { orphaned_until, .. } = &mut self.phase {
                    *orphaned_until = Some(*until);
                }
            }
            Entry::Suspended => {
                self.phase = Phase::Suspended;
                self.trouble = Trouble::default();
            }
            Entry::Paused(problem) => self.phase = Phase::Paused { problem: problem.clone() },
            Entry::Completed { at, .. } => self.end(End::Completed, *at),
            Entry::Failed { at, .. } => self.end(End::Failed, *at),
            Entry::Cancelled { at } => self.end(End::Cancelled, *at),
        }
    }

    /// Follows all entries of a decision, in order.
    pub fn apply_all(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.apply(entry);
        }
    }

    fn end(&mut self, how: End, at: stepwell_protocol::Timestamp) {
        self.phase = Phase::Ended { how, at };
        self.open.clear();
        self.trouble = Trouble::default();
    }
}
