//! Which schedule is due when, in memory: a copy of one column of all rows, so that no index has to be written with each
//! tick.
//!
//! A schedule for which something is under way is not due. One that could not be served is due later than its row says.

use stepwell_protocol::Timestamp;

use crate::ordered::{OrdMap, OrdSet};

/// The schedules of a station, by when they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    /// All of them, and when each is due.
    schedules: OrdMap<String, Option<Timestamp>>,
    due: OrdSet<(Timestamp, String)>,
}

impl Agenda {
    /// How many schedules there are.
    pub fn count(&self) -> usize {
        self.schedules.len()
    }

    /// Whether there is a schedule of this id.
    pub fn has(&self, id: &str) -> bool {
        self.schedules.contains_key(id)
    }

    /// A schedule is due then, or not before somebody says so.
    pub fn set(&mut self, id: &str, at: Option<Timestamp>) {
        self.remove(id);
        self.schedules.insert(id.to_owned(), at);
        if let Some(at) = at {
            self.due.insert((at, id.to_owned()));
        }
    }

    /// There is no such schedule any more.
    pub fn remove(&mut self, id: &str) {
        if let Some(Some(at)) = self.schedules.remove(id) {
            self.due.remove(&(at, id.to_owned()));
        }
    }

    /// When the first one is due.
    pub fn first(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the first one that is due by now: it is not due any more.
    pub fn take(&mut self, now: Timestamp) -> Option<String> {
        let id = self.due.first().filter(|(at, _)| *at <= now).map(|(_, id)| id.clone())?;
        self.set(&id, None);
        Some(id)
    }
}
