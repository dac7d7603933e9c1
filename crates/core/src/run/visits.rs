//! Steps that wait to be let in by a lane, and those that were.
//!
//! A step's visit to a lane begins when its program says that the step waits for it, and ends when an attempt of the step
//! is on record. In between, the run's row has the visit: while it waits, with what the run waits for; once it was let in,
//! among what the run holds. Each visit has a ticket of its own, and no number is used twice.
//!
//! That a step was let in is in the journal, so its program hears of it like of anything else that comes from outside. A
//! run that stops or suspends has no code at work, and gives back what it holds. So each activation is told which of the
//! journal's words still hold: by the others, no code begins.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Event, Op, OpKind, Problem, Timestamp,
    lane::{Hold, LANE_LENGTH_MAX, LIMITS_MAX, Limit, RATE_MAX, RATE_MS, StepLane, VISITS_MAX, shared_name},
    program::{LetIn, Open},
    text::is_visible,
};

use super::{Decision, Effect, Entry, OpenOp, Phase, Rejection, Run, Slot};
use crate::lane::{narrow_first, short};

/// How long a lane has to answer before it is asked again, should its cell die meanwhile.
pub const VISIT_ASKED_MS: u64 = 5_000;

/// A step's wish to be let in by a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// The name of the lane's object.
    pub lane: String,
    /// The limits.
    pub limits: Vec<Limit>,
    /// The ticket by which it asks; none, if the run has stopped since, and the next time needs another.
    #[serde(default, skip_serializing_if = "is_none")]
    pub ticket: u32,
    /// Whether the lane has answered that it has to wait, and is not asked again before its time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_put_off: bool,
}

/// A step that was let in by a lane, and whose attempt is not on record yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The step.
    pub op: Op,
    /// The name of the lane's object.
    pub lane: String,
    /// The ticket.
    pub ticket: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(ticket: &u32) -> bool {
    *ticket == 0
}

impl OpenOp {
    /// Whether it waits for a lane by this ticket.
    fn asks_by(&self, ticket: u32) -> bool {
        self.visit.as_ref().is_some_and(|visit| ticket > 0 && visit.ticket == ticket)
    }
}

impl Run {
    /// Whether its steps may have tickets: one that has stopped has none.
    fn may_visit(&self) -> bool {
        match self.phase {
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended => true,
            Phase::Paused { .. } | Phase::Ended { .. } => false,
        }
    }

    /// The tickets that its steps hold or want, and the lanes that these are for.
    pub fn step_tickets(&self) -> impl Iterator<Item = (&str, u32)> {
        // A run may wait for thousands of things, and most have no step in a lane.
        let open = if self.visits > 0 && self.may_visit() { self.open.as_slice() } else { &[] };
        let held = if self.may_visit() { self.held.as_slice() } else { &[] };
        let wanted = open.iter().filter_map(|open| open.visit.as_deref()).filter(|visit| visit.ticket > 0);
        let wanted = wanted.map(|visit| (visit.lane.as_str(), visit.ticket));
        wanted.chain(held.iter().map(|held| (held.lane.as_str(), held.ticket)))
    }

    /// Whether a step holds this ticket.
    pub fn holds_step_ticket(&self, ticket: u32) -> bool {
        self.may_visit() && self.held.iter().any(|held| held.ticket == ticket)
    }

    /// The step that waits for its lane by this ticket.
    pub fn visit_by(&self, ticket: u32) -> Option<&Visit> {
        let open = self.open.iter().find(|open| open.asks_by(ticket)).filter(|_| self.may_visit())?;
        open.visit.as_deref()
    }

    /// The visits whose lanes are to be asked: of which steps, and since when they are wanted.
    pub fn visits_to_ask(&self) -> impl Iterator<Item = (&Op, &Visit, Option<Timestamp>)> {
        let visits = self.open.iter().filter_map(|open| Some((&open.op, open.visit.as_deref()?, open.since)));
        visits.filter(|(_, visit, _)| visit.ticket > 0 && !visit.is_put_off && self.may_visit())
    }

    /// The name of the object of a lane that one of its steps waits for, if it waits for nothing else.
    pub fn visits_lane(&self) -> Option<&str> {
        let waits_only =
            matches!(self.phase, Phase::Suspended) && self.open.iter().all(|open| open.visit.is_some());
        let first = self.open.first().filter(|_| waits_only)?;
        first.visit.as_deref().map(|visit| visit.lane.as_str())
    }

    /// A step's lane has let it in.
    pub(super) fn let_step_in(&self, now: Timestamp, ticket: u32, slot: Option<Slot>) -> Decision {
        if self.is_overdue(now) {
            return self.time_out(now);
        }
        let index = self.open.iter().position(|open| open.asks_by(ticket)).filter(|_| self.may_visit());
        let Some(index) = index else { return Decision::default() };
        let mut open = self.open.clone();
        let OpenOp { op, since, visit, .. } = open.remove(index);
        let lane = visit.map_or(String::new(), |visit| shared_name(&visit.lane).to_owned());
        let record = self.next_record(now, Event::StepLetIn { op, lane, ticket, since });
        let entries = vec![Entry::Recorded { record, mark: None }, Entry::OpenChanged(open)];
        let mut decision = Decision { entries, ..Decision::default() };
        match self.phase {
            Phase::Suspended => decision.extend(self.activate(now, slot)),
            Phase::Running { .. } => decision.effects.push(Effect::TellProgram),
            // It finds out when it is called.
            Phase::Pending { .. } | Phase::Paused { .. } | Phase::Ended { .. } => {}
        }
        decision
    }

    /// A step's lane has put it in line, or has no room for it: it is asked again at this time.
    pub(super) fn put_step_off(&self, ticket: u32, until: Timestamp) -> Decision {
        if self.visit_by(ticket).is_none_or(|visit| visit.is_put_off) {
            return Decision::default();
        }
        let mut open = self.open.clone();
        for open in &mut open {
            if open.asks_by(ticket)
                && let Some(visit) = &mut open.visit
            {
                visit.is_put_off = true;
                open.until = Some(until);
            }
        }
        Decision { entries: vec![Entry::OpenChanged(open)], ..Decision::default() }
    }

    /// The same visit, whose lane is to be asked again.
    pub(super) fn ask_again(now: Timestamp, open: OpenOp) -> OpenOp {
        let visit = open.visit.map(|visit| Box::new(Visit { is_put_off: false, ..*visit }));
        OpenOp { visit, until: Some(now.plus_millis(VISIT_ASKED_MS)), ..open }
    }

    /// What a program says of a step that waits for its lane. One that waits already keeps its ticket and its time.
    pub(super) fn visit_of(
        &self,
        now: Timestamp,
        op: Op,
        StepLane { lane, limits }: StepLane,
        next: u32,
    ) -> OpenOp {
        let lane = StepLane::object(&lane);
        let shortened = |limit: Limit| Limit { by: short(&limit.by), key: short(&limit.key), ..limit };
        let mut limits: Vec<_> = limits.into_iter().map(shortened).collect();
        narrow_first(&mut limits);
        let same = |visit: &Visit| visit.ticket > 0 && visit.lane == lane;
        let known = self.open.iter().find(|open| open.op == op && open.visit.as_deref().is_some_and(same));
        match known {
            // Later than now: see `merge_open`.
            Some(open) => {
                OpenOp { until: open.until.map(|until| until.max(now.plus_millis(1))), ..open.clone() }
            }
            None => {
                let visit = Some(Box::new(Visit { lane, limits, ticket: next, is_put_off: false }));
                Self::ask_again(now, OpenOp { since: Some(now), visit, ..OpenOp::plain(op) })
            }
        }
    }

    /// What it holds from here on, after something was recorded.
    pub(super) fn follow_visits(&mut self, event: &Event) {
        match event {
            Event::StepLetIn { op, lane, ticket, .. } => {
                self.held.push(Held { op: op.clone(), lane: StepLane::object(lane), ticket: *ticket });
            }
            Event::StepFinished { op, .. } | Event::StepRetrying { op, .. } => {
                self.held.retain(|held| held.op != *op);
            }
            Event::StepBegun { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => {}
        }
    }

    /// What it waits for has changed: no number of a ticket is used twice, and whoever asks anew holds nothing.
    pub(super) fn follow_open(&mut self, open: &[OpenOp]) {
        let visits = open.iter().filter_map(|open| Some((&open.op, open.visit.as_deref()?.ticket)));
        for (op, ticket) in visits {
            self.visits = self.visits.max(ticket);
            self.held.retain(|held| held.op != *op);
        }
        self.open = open.to_vec();
    }

    /// It stops: what its steps had or wanted, they want by another ticket when it goes on.
    pub(super) fn stop_visits(&mut self) {
        self.held.clear();
        for visit in self.open.iter_mut().filter_map(|open| open.visit.as_mut()) {
            (visit.ticket, visit.is_put_off) = (0, false);
        }
    }

    /// What its program is told of the places that its steps have.
    pub fn told_of_places(&self) -> Option<Box<LetIn>> {
        let tickets = self.held.iter().map(|held| held.ticket).collect();
        (self.visits > 0).then(|| Box::new(LetIn { tickets, through: self.head }))
    }

    /// Refuses steps whose lane could not let them in.
    pub(super) fn check_visits(&self, open: &[Open]) -> Result<(), Rejection> {
        let mut count = 0;
        for open in open {
            if let Open::Lane { op, lane } = open {
                count += 1;
                if count > VISITS_MAX {
                    let detail = format!("More than {VISITS_MAX} steps of the run wait for lanes at once.");
                    return Err(Problem::new(Code::InvalidRequest, detail));
                }
                check_lane(op, lane)?;
                // Another run of the lane may have a place in that of the step and wait for this one's.
                if self.lane.as_ref().is_some_and(|lane| lane.hold == Hold::Run && lane.shared.is_some()) {
                    let detail = format!(
                        "Step '{}' waits for a lane while its run keeps its place in another one that workflows share, with \
                         hold = \"run\": runs could wait for each other forever. Give the workflow limits of its own, or do \
                         without hold = \"run\".",
                        op.name
                    );
                    return Err(Problem::new(Code::InvalidRequest, detail));
                }
            }
        }
        Ok(())
    }

    /// Adds to what a commit says that nobody awaits these steps any more: their places are free.
    pub(super) fn leave_lanes(&self, over: &[Op], entries: &mut Vec<Entry>) {
        let is_held = |op: &&Op| op.kind == OpKind::Step && self.held.iter().any(|held| held.op == **op);
        let left: Vec<_> = over.iter().filter(is_held).cloned().collect();
        entries.extend((!left.is_empty()).then_some(Entry::Left(left)));
    }
}

fn check_lane(op: &Op, StepLane { lane, limits }: &StepLane) -> Result<(), Rejection> {
    let wrong = |what: String| Err(Problem::new(Code::InvalidRequest, format!("Step '{}': {what}", op.name)));
    if op.kind != OpKind::Step {
        return wrong("only a step waits for a lane.".into());
    }
    if lane.is_empty() || lane.len() > LANE_LENGTH_MAX || !is_visible(lane) {
        return wrong(format!(
            "the name of a lane has 1 to {LANE_LENGTH_MAX} bytes, without control or invisible characters."
        ));
    }
    if limits.is_empty() || limits.len() > LIMITS_MAX {
        return wrong(format!("a step has 1 to {LIMITS_MAX} limits."));
    }
    for Limit { max, per_ms, .. } in limits {
        if *max == 0 {
            return wrong("`.limit(0)` would never let it run. Use 1 or more.".into());
        }
        if per_ms.is_some_and(|per_ms| !RATE_MS.contains(&per_ms) || *max > RATE_MAX) {
            return wrong(format!(
                "a rate is 1 to {RATE_MAX} attempts, with `.per` from {} milliseconds to 1 day.",
                RATE_MS.start()
            ));
        }
    }
    let kinds = limits.iter().map(|limit| (limit.by.is_empty(), limit.per_ms));
    for (place, kind) in kinds.clone().enumerate() {
        if kinds.clone().take(place).any(|other| other == kind) {
            let detail = "its lane has two limits of the same kind. Use at most one with a key and one without; rates must \
                          differ in `.per`.";
            return wrong(detail.into());
        }
    }
    Ok(())
}
