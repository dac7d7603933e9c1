//! Stopping a run for a while, letting it go on, and taking it back.

use stepwell_protocol::{Code, Problem, Record, Seq, Timestamp};

use super::{
    CUTS_MAX, Cut, Decision, Entry, PauseWhy, Phase, Rejection, Reply, Run, Signal, Slot, Trouble,
    decide::deadline,
};
use crate::cell::unreadable_journal;

impl Run {
    /// Nothing new is begun. What its program is doing at this moment may still be recorded.
    pub(super) fn pause(&self) -> Result<Decision, Rejection> {
        match self.phase {
            Phase::Paused { .. } => Ok(Decision { reply: Reply::Unchanged, ..Decision::default() }),
            Phase::Ended { .. } => Err(self.ended("be paused")),
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended => Ok(Decision {
                entries: vec![Entry::Paused(PauseWhy::Request)],
                effects: vec![],
                reply: Reply::Done,
                ..Decision::default()
            }),
        }
    }

    /// What its program would be given cannot be read: it stops until somebody has mended that.
    pub(super) fn set_aside(&self) -> Decision {
        match self.phase {
            Phase::Paused { .. } | Phase::Ended { .. } => {
                Decision { reply: Reply::Unchanged, ..Decision::default() }
            }
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended => Decision {
                entries: vec![Entry::Paused(PauseWhy::Problem(unreadable_journal()))],
                effects: vec![],
                reply: Reply::Done,
                ..Decision::default()
            },
        }
    }

    /// Goes on: its program is called and finds out what there is to do. What became due meanwhile happens
    /// then.
    pub(super) fn resume(&self, now: Timestamp, slot: Option<Slot>) -> Result<Decision, Rejection> {
        match self.phase {
            Phase::Ended { .. } => Err(self.ended("be resumed")),
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended => {
                Ok(Decision { reply: Reply::Unchanged, ..Decision::default() })
            }
            Phase::Paused { .. } => {
                let mut decision = Decision {
                    // Whatever was held against it, a person has looked at it.
                    entries: vec![Entry::Troubled(Trouble::default())],
                    // A program that was at work when it was paused and listens would hold its place for ever.
                    effects: self.tell_whoever_is_at_work().collect(),
                    reply: Reply::Done,
                    ..Decision::default()
                };
                decision.extend(self.activate(now, slot));
                Ok(decision)
            }
        }
    }

    /// Goes back to a position and on from there. Only a run that is at rest can be taken back.
    pub(super) fn restart(
        &self,
        now: Timestamp,
        cuts: Vec<Cut>,
        signals: Vec<Signal>,
        keeps_progress: bool,
        slot: Option<Slot>,
    ) -> Result<Decision, Rejection> {
        match self.phase {
            Phase::Ended { .. } | Phase::Paused { .. } => {}
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended => {
                let detail = format!(
                    "The run is {}. Pause or cancel it first, then restart it.",
                    self.status().as_str()
                );
                return Err(Problem::new(Code::WrongStatus, detail));
            }
        }
        let parts = Cut::joined(self.cuts.iter().chain(&cuts).copied().collect()).len();
        if parts > CUTS_MAX {
            let detail = format!(
                "The journal would be cut in {parts} places; the most is {CUTS_MAX}. Restart the run from an earlier \
                 step, or from its beginning."
            );
            return Err(Problem::new(Code::TooMany, detail));
        }
        // Whoever was at work when it was paused must hear that it is over.
        let effects = self.tell_whoever_is_at_work().collect();
        let mut decision = Decision { effects, ..Decision::default() };
        if !cuts.is_empty() {
            decision.entries.push(Entry::Rewound(cuts));
        }
        // A signal that was acknowledged is kept, whatever becomes of the steps after it.
        for (signal, seq) in signals.into_iter().zip(self.head.0 + 1..) {
            // Its id is on record already.
            let event = Signal { id: None, ..signal }.received(None);
            let record = Record { seq: Seq(seq), at: now, event };
            decision.entries.push(Entry::Recorded { record, mark: None });
        }
        if !keeps_progress && self.progress.is_some() {
            decision.entries.push(Entry::ProgressForgotten);
        }
        decision.entries.push(Entry::OpenChanged(Vec::new()));
        decision.entries.push(Entry::Troubled(Trouble::default()));
        // It gets as much time as it had at first.
        decision.entries.push(Entry::Reopened {
            at: now,
            deadline: deadline(self.starts_at.unwrap_or(now).max(now), self.timeout_ms),
        });
        decision.extend(self.activate(now, slot));
        self.check_row(&decision.entries)?;
        Ok(decision)
    }
}
