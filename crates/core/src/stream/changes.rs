//! Changes of the status of any run of a cell: what a reader of the whole cell is shown.
//!
//! While somebody reads, the latest changes are kept in memory, so that each of them costs no look at the rows. A
//! reader that comes back from before that is shown what the rows say: the latest status of each run that has
//! changed since. It walks through the runs by number, a bounded part of them at a time, and then follows from where
//! the changes stood when the walk began. No index is needed for that, which would cost a row for each change.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use stepwell_protocol::{RunId, rest::Status};

/// How many changes are kept in memory for readers that follow.
pub const RECENT_MAX: usize = 8_192;

/// How many runs are looked at for one part of a walk.
pub const WALKED_MAX: usize = 2_000;

/// A run has changed its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, in the order of all changes of its cell.
    pub stamp: u64,
    /// The run.
    pub id: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Where it stands since.
    pub status: Status,
}

/// What a part of a walk has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// The runs that have changed, by number.
    pub changes: Vec<Change>,
    /// The number of the last run that was looked at; nothing, if there are no more after these.
    pub through: Option<u64>,
}

/// Which changes a reader wants to see: all, or those to runs of one workflow, or to one status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Only {
    /// The workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl Only {
    /// Whether it wants to see this one.
    pub fn has(&self, change: &Change) -> bool {
        self.workflow.as_ref().is_none_or(|workflow| *workflow == change.workflow)
            && self.status.is_none_or(|status| status == change.status)
    }
}

/// The latest changes.
#[derive(Clone, Debug)]
pub struct Changes {
    /// All changes from this stamp on are here.
    from: u64,
    recent: VecDeque<Change>,
}

impl Changes {
    /// Keeps all that happens from this stamp on.
    pub fn new(from: u64) -> Self {
        Self { from, recent: VecDeque::new() }
    }

    /// Keeps a change; the oldest goes if there are too many.
    pub fn keep(&mut self, change: Change) {
        if self.recent.len() >= RECENT_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.from = oldest.stamp + 1;
        }
        self.recent.push_back(change);
    }

    /// Whether all changes from a stamp on are here.
    pub fn knows(&self, from: u64) -> bool {
        from >= self.from
    }

    /// The changes from a stamp on, as many as are asked for; nothing, if not all of them are here.
    pub fn since(&self, from: u64, limit: usize) -> Option<Vec<Change>> {
        // They are in the order of their stamps.
        let first = self.recent.partition_point(|change| change.stamp < from);
        self.knows(from).then(|| self.recent.iter().skip(first).take(limit).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::Place;

    use super::*;

    fn change(stamp: u64) -> Change {
        let place = Place { pool: "default".into(), generation: 1, cell: 0 };
        let id = RunId { place, number: stamp, suffix: RunId::suffix_from(stamp) };
        Change { stamp, id, workflow: "w".into(), status: Status::Running }
    }

    #[test]
    fn what_is_not_all_there_is_not_given() {
        let mut changes = Changes::new(10);
        assert_eq!(changes.since(9, 5), None);
        assert_eq!(changes.since(10, 5), Some(vec![]));
        changes.keep(change(10));
        changes.keep(change(12));
        assert_eq!(changes.since(10, 5), Some(vec![change(10), change(12)]));
        assert_eq!(changes.since(11, 5), Some(vec![change(12)]));
        assert_eq!(changes.since(10, 1), Some(vec![change(10)]));
    }

    #[test]
    fn a_change_is_wanted_if_workflow_and_status_fit() {
        let only = |workflow: Option<&str>, status| Only { workflow: workflow.map(str::to_owned), status };
        assert!(Only::default().has(&change(1)));
        assert!(only(Some("w"), None).has(&change(1)));
        assert!(only(Some("w"), Some(Status::Running)).has(&change(1)));
        assert!(!only(Some("v"), Some(Status::Running)).has(&change(1)));
        assert!(!only(Some("w"), Some(Status::Failed)).has(&change(1)));
    }

    #[test]
    fn the_oldest_goes_and_nobody_misses_it_unknowingly() {
        let mut changes = Changes::new(0);
        let count = RECENT_MAX as u64 + 3;
        (0..count).for_each(|stamp| changes.keep(change(stamp)));
        assert_eq!(changes.since(2, 1), None);
        assert_eq!(changes.since(3, 1), Some(vec![change(3)]));
    }
}
