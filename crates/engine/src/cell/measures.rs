//! What a cell has and what has happened in it, in numbers.

use std::rc::Rc;

use stepwell_core::{
    alert::Span,
    cell::{Happened, NO_WORKFLOW, Rows as _},
};
use stepwell_protocol::{Timestamp, totals::Totals};

use super::Host;
use crate::{
    calls::figures::{CountedRuns, ListedFailures, ListedMinutes, Measured, Summed, Totalled},
    object::{Answered, Fault},
    remains::{Leaves, inherit},
};

impl Leaves for Host {
    fn left(&self) -> Option<String> {
        let machine = self.machine.try_borrow().ok()?;
        let unstored = machine.unstored();
        if unstored.is_empty() { None } else { serde_json::to_string(unstored).ok() }
    }
}

impl Host {
    /// Takes over what was counted before a panic stopped the instance.
    pub(super) fn inherit_counts(self: &Rc<Self>) {
        let heir: Rc<dyn Leaves> = self.clone();
        if let Some(unstored) = inherit::<Happened>(self.state.id().to_string(), Rc::downgrade(&heir)) {
            self.machine.borrow_mut().inherit_unstored(&unstored);
        }
    }

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
        // Until all runs are counted, the same question comes again.
        let (streams, streams_behind) = if counted.is_all { self.count_streams()? } else { (0, 0) };
        let measured = self.turn(|machine, store, now| {
            let (due_since, at_work) = machine.workload(now);
            Ok(Measured {
                counted,
                totals: machine.totals(store)?,
                bytes: store.bytes()?,
                bytes_max: self.settings.cell_bytes,
                at_work: at_work as u64,
                due_since,
                posted_since: store.letters_wait_since()?,
                streams,
                streams_behind,
                answers: store.answers()?,
            })
        })?;
        Ok(Answered::new(200, &measured))
    }

    /// What alert rules look at, by one look at the minutes.
    pub(super) fn sum(self: &Rc<Self>, wanted: &[Span]) -> Result<Answered, Fault> {
        let summed = self.turn(|machine, store, now| {
            let minute = now.as_millis() / 60_000;
            let longest = wanted.iter().map(|(_, minutes)| *minutes).max().unwrap_or_default();
            let mut spans = vec![Totals::default(); wanted.len()];
            store.each_minute(minute.saturating_sub(longest), &mut |at, happened| {
                for (span, (workflow, minutes)) in spans.iter_mut().zip(wanted) {
                    if at + minutes < minute {
                        continue;
                    }
                    let of =
                        happened.iter().filter(|(name, _)| workflow.as_ref().is_none_or(|it| it == *name));
                    of.for_each(|(_, totals)| span.add(totals));
                }
            })?;
            let (due_since, _) = machine.workload(now);
            let dead_letters = store.count_letters()?.dead;
            let (bytes, bytes_max) = (store.bytes()?, self.settings.cell_bytes);
            Ok(Summed { spans, dead_letters, bytes, bytes_max, due_since })
        })?;
        Ok(Answered::new(200, &summed))
    }

    /// What has happened to the runs of each workflow.
    pub(super) fn total(
        self: &Rc<Self>,
        since: Option<Timestamp>,
        workflow: Option<&str>,
    ) -> Result<Answered, Fault> {
        let mut totals = self.turn(|machine, store, _| {
            Ok(match since {
                Some(since) => machine.totals_since(store, since)?,
                None => machine.totals(store)?,
            })
        })?;
        totals.retain(|name, _| match workflow {
            Some(wanted) => wanted == name,
            None => name != NO_WORKFLOW,
        });
        Ok(Answered::new(200, &Totalled { totals }))
    }

    /// Groups of failed runs, of one workflow or of all.
    pub(super) fn list_failures(self: &Rc<Self>, workflow: Option<&str>) -> Result<Answered, Fault> {
        let failures = self.turn(|machine, store, now| Ok(machine.failures(store, now, workflow)?))?;
        Ok(Answered::new(200, &ListedFailures { failures }))
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
