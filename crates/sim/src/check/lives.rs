//! What must hold of runs that begin anew: every step belongs to one life, and signals pass from one to the next.

use stepwell_core::run::{Cut, Run};
use stepwell_protocol::{Event, Op, rest::Status};

use super::{AtEnd, Checked, Checker, Known};
use crate::{
    flows::{Job, LIVES},
    tables::{JournalRow, Row},
};

const RULE: &str = "15 no signal is lost or doubled between lives";

/// Which life a run is in.
pub(super) fn number(run: Option<&Run>) -> u32 {
    run.and_then(|run| run.life).map_or(1, |life| life.number)
}

/// What a step passes to whatever it calls.
pub(super) fn key(run: &str, life: u32, op: &Op) -> String {
    if life == 1 { format!("{run}/{op}") } else { format!("{run}/{life}/{op}") }
}

/// The life and the operation of such a key.
pub(super) fn op_of(key: &str) -> Option<(u32, Op)> {
    let (_, rest) = key.split_once('/')?;
    match rest.split_once('/') {
        Some((life, op)) => Some((life.parse().ok()?, op.parse().ok()?)),
        None => Some((1, rest.parse().ok()?)),
    }
}

impl Checker {
    /// A part of a journal was erased: nothing in it counted.
    pub(super) fn erased(&mut self, cell: usize, before: &Run, part: Cut) -> Checked {
        let known = self.runs.entry((cell, before.id.number)).or_default();
        let is_within = |seq: &_| part.after < *seq && *seq <= part.through;
        if let Some(seq) = known.events.keys().find(|seq| is_within(seq) && before.counts(**seq)) {
            let text = format!("cell {cell}, run {}: event {} counts and is erased", before.id.number, seq.0);
            return Err(("29 nothing that counts is deleted", text));
        }
        known.events.retain(|seq, _| !is_within(seq));
        Ok(())
    }
}

impl Known {
    /// Signals have come. Those that a restart receives again have come before.
    pub(super) fn note_signals(&mut self, rows: &[JournalRow]) {
        for row in rows {
            if let Event::SignalReceived { name, payload, .. } = row.says() {
                self.received.push((name.clone(), payload.text().to_owned()));
            }
        }
    }

    /// What earlier lives have taken, and what counts in this one, are all signals there were, in their order.
    pub(super) fn nothing_is_lost_between_lives(
        &self,
        row: &Row,
        journal: &[JournalRow],
        run: &Run,
    ) -> Checked {
        let job: Job = row.input.decode().expect("every life is started with a job");
        let taken = job.taken.iter().map(|item| ("item".to_owned(), item.to_string()));
        let counted = journal.iter().filter(|row| run.counts(row.seq)).map(JournalRow::says);
        let counted = counted.filter_map(|event| match event {
            Event::SignalReceived { name, payload, .. } => Some((name.clone(), payload.text().to_owned())),
            Event::StepFinished { .. }
            | Event::StepBegun { .. }
            | Event::StepLetIn { .. }
            | Event::StepRetrying { .. }
            | Event::TimerFired { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => None,
        });
        let passed: Vec<_> = taken.chain(counted).collect();
        for name in ["item", "go"] {
            let of = |all: &[(String, String)]| {
                let of = all.iter().filter(|(of, _)| of == name).map(|(_, payload)| payload.clone());
                of.collect::<Vec<_>>()
            };
            let (sent, passed) = (of(&self.received), of(&passed));
            if sent != passed {
                let life = number(Some(run));
                return Err((RULE, format!("'{name}': {sent:?} were sent, life {life} knows of {passed:?}")));
            }
        }
        Ok(())
    }
}

/// The same at the end; and what the run gave is what it was sent, in that order.
pub(super) fn all_signals_are_there(at: &AtEnd<'_>, run: &Run, known: Option<&Known>) -> Checked {
    let (Some(known), LIVES, false) = (known, run.workflow.as_str(), run.deleting) else { return Ok(()) };
    let row = &at.disk.runs[&run.id.number];
    known.nothing_is_lost_between_lives(row, at.disk.journal(run.id.number), run)?;
    if run.status() != Status::Completed {
        return Ok(());
    }
    let result = row.result.as_deref().unwrap_or_default();
    let values: Vec<u64> = serde_json::from_str(result).unwrap_or_default();
    let items = known.received.iter().filter(|(name, _)| name == "item");
    let mut sent = items.map(|(_, payload)| payload.clone());
    if values.iter().all(|value| sent.next() == Some(value.to_string())) {
        return Ok(());
    }
    Err((RULE, format!("it gave {result} and was sent {:?}", known.received)))
}
