//! What a cell has and what has happened in it, in numbers.

use std::rc::Rc;

use stepwell_core::cell::Rows as _;
use stepwell_protocol::Timestamp;

use super::Host;
use crate::{
    calls::cell::{CountedRuns, ListedMinutes, Measured},
    object::{Answered, Fault},
};

impl Host {
    /// Counts some more of the runs, if not all were, and says how many were counted.
    pub(super) fn count(self: &Rc<Self>) -> Result<CountedRuns, Fault> {
        self.turn(|machine, store, _| {
            let counted = machine.count(store)?;
            let (workflows, is_all) = (counted.workflows().clone(), counted.is_all());
            let letters = store.count_letters()?;
            Ok(CountedRuns { workflows, is_all, letters })
        })
    }

    /// What Prometheus is told.
    pub(super) fn measure(self: &Rc<Self>) -> Result<Answered, Fault> {
        let counted = self.count()?;
        let measured = self.turn(|machine, store, now| {
            let (due_since, at_work) = machine.workload(now);
            Ok(Measured {
                counted,
                totals: machine.totals(store)?,
                bytes: store.bytes()?,
                bytes_max: self.settings.cell_bytes,
                at_work: at_work as u64,
                due_since,
            })
        })?;
        Ok(Answered::new(200, &measured))
    }

    /// What has happened since a time, to the runs of one workflow or of all.
    pub(super) fn list_minutes(
        self: &Rc<Self>,
        since: Timestamp,
        workflow: Option<&str>,
    ) -> Result<Answered, Fault> {
        let minutes = self.turn(|machine, store, _| Ok(machine.minutes(store, since, workflow)?))?;
        Ok(Answered::new(200, &ListedMinutes { minutes }))
    }
}
