//! Where a run stands with the limits of its workflow.
//!
//! A run that is under limits goes to work only with a ticket that its lane ([`crate::lane`]) has let in. Each time that it
//! becomes due it has another one, so a word about an earlier time cannot be taken for one about this.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Payload, Timestamp,
    lane::{Flow, Hold, Limit},
};

use super::{Decision, Entry, Phase, Run, Slot};
use crate::lane::{Let, let_in};

/// How long a run that is in line lets its lane be before it asks again. Its cell is told when it is let in: this is for a
/// lane that has lost its rows.
pub const IN_LINE_MS: u64 = 3_600_000;

/// The limits of a run, and its ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InLane {
    /// The limits, in the order in which they are passed.
    pub limits: Vec<Limit>,
    /// The lane, if the workflow shares one with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Its priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// Whose run it is, if they take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// For how long it counts.
    #[serde(default, skip_serializing_if = "Hold::is_work")]
    pub hold: Hold,
    /// The number of its latest ticket.
    pub ticket: u32,
    /// Whether it has gone to work with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_used: bool,
    /// The ticket by which it first went to work: rates count a run's beginning, and nothing after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i8) -> bool {
    *number == 0
}

impl InLane {
    /// Of a run with this input; nothing, if its workflow has no limits.
    pub fn new(flow: &Flow, input: &Payload) -> Option<Box<Self>> {
        let Let { limits, priority, share, hold } = let_in(flow, input)?;
        let shared = flow.lane.as_ref().map(|_| flow.lane_of(""));
        let (ticket, is_used, first) = (1, false, None);
        Some(Box::new(Self { limits, shared, priority, share, hold, ticket, is_used, first }))
    }

    /// The limits that its latest ticket is under.
    pub fn in_force(&self) -> impl Iterator<Item = &Limit> {
        let begins = self.first.is_none_or(|first| first == self.ticket);
        self.limits.iter().filter(move |limit| limit.per_ms.is_none() || begins)
    }

    /// Whether it has gone to work, and keeps its ticket to its end.
    pub fn keeps(&self) -> bool {
        self.is_used && self.hold == Hold::Run
    }
}

impl Run {
    /// The name of its lane, if it is under limits.
    pub fn lane_name(&self) -> &str {
        self.lane.as_ref().and_then(|lane| lane.shared.as_deref()).unwrap_or(&self.workflow)
    }

    /// The ticket that it holds or wants, if it is under limits.
    pub fn ticket(&self) -> Option<u32> {
        let lane = self.lane.as_ref()?;
        let goes = match self.phase {
            Phase::Pending { .. } | Phase::Running { .. } => true,
            Phase::Suspended | Phase::Paused { .. } => lane.keeps(),
            Phase::Ended { .. } => false,
        };
        (goes && lane.in_force().next().is_some()).then_some(lane.ticket)
    }

    /// Whether it has to be let in before it goes to work.
    pub fn needs_ticket(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| !lane.keeps() && lane.in_force().next().is_some())
    }

    /// It becomes due: by another ticket, unless it keeps the one it has.
    pub(super) fn want_ticket(&mut self) {
        if !matches!(self.phase, Phase::Pending { .. })
            && let Some(lane) = &mut self.lane
            && !lane.keeps()
        {
            lane.ticket = lane.ticket.wrapping_add(1);
            lane.is_used = false;
        }
    }

    /// Its lane has put it in line, and says so when it is let in.
    pub(super) fn in_line(&self, now: Timestamp) -> Decision {
        if self.is_overdue(now) {
            return self.time_out(now);
        }
        match self.phase {
            Phase::Pending { not_before } if not_before <= now => {
                let until = now.plus_millis(IN_LINE_MS);
                let not_before = self.deadline.map_or(until, |deadline| deadline.min(until));
                Decision { entries: vec![Entry::Queued { not_before }], ..Decision::default() }
            }
            Phase::Pending { .. }
            | Phase::Running { .. }
            | Phase::Suspended
            | Phase::Paused { .. }
            | Phase::Ended { .. } => Decision::default(),
        }
    }

    /// Its lane has let it in.
    pub(super) fn let_in(&self, now: Timestamp, slot: Option<Slot>) -> Decision {
        if self.is_overdue(now) {
            return self.time_out(now);
        }
        match self.phase {
            Phase::Pending { .. } => self.activate(now, slot),
            Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
                Decision::default()
            }
        }
    }
}
