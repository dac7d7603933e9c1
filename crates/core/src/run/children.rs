//! The children of a run: which it has invoked, and which of them it still hears of.
//!
//! Owns: the set of open invocations, and when a child's news is taken. Does not own: the messages that start, cancel
//! and end children, which its cell writes with the same commit (`cell/mail.rs`).
//!
//! Invariant: an invocation is in the set from its event on, until its child's end is recorded or the run has let go of
//! it. So a child's end is recorded once, whatever comes twice or late.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Awaits, Code, Event, Failure, Invocation, Op, Outcome, Place, Problem, RunId, Seq, Timestamp,
    program::{Command, PAYLOAD_BYTES_MAX},
};

use super::{
    Decision, Effect, Entry, OpenOp, Phase, Rejection, Run, Slot,
    decide::{check_op, too_large},
    retry::mix,
};

/// The invocations of a run whose children have not ended, by their positions in its journal: those next to each other
/// as one stretch, so that a thousand of them take little room beside each event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Children(Vec<(Seq, Seq)>);

impl Children {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|(first, last)| last.0 - first.0 + 1).sum()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Seq> + '_ {
        self.0.iter().flat_map(|(first, last)| (first.0..=last.0).map(Seq))
    }

    /// Whether the invocation at a position is among them.
    pub fn contains(&self, seq: Seq) -> bool {
        let next = self.0.partition_point(|(_, last)| *last < seq);
        self.0.get(next).is_some_and(|(first, _)| *first <= seq)
    }

    /// Adds the latest one.
    fn push(&mut self, seq: Seq) {
        match self.0.last_mut() {
            Some((_, last)) if last.next() == seq => *last = seq,
            Some(_) | None => self.0.push((seq, seq)),
        }
    }

    fn remove(&mut self, seq: Seq) {
        let at = self.0.partition_point(|(_, last)| *last < seq);
        let Some(&(first, last)) = self.0.get(at).filter(|(first, _)| *first <= seq) else { return };
        let before = (first < seq).then(|| (first, Seq(seq.0 - 1)));
        let after = (seq < last).then(|| (seq.next(), last));
        self.0.splice(at..=at, before.into_iter().chain(after));
    }

    /// Keeps only those that fit.
    pub(super) fn retain(&mut self, fits: impl Fn(Seq) -> bool) {
        let gone: Vec<_> = self.iter().filter(|seq| !fits(*seq)).collect();
        for seq in gone {
            self.remove(seq);
        }
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a run waits for of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenChild {
    /// Where the invocation is in the journal.
    pub invoked: Seq,
    /// What of it.
    #[serde(default, skip_serializing_if = "Awaits::is_finished")]
    pub awaits: Awaits,
}

impl Run {
    /// What the invocation of a child becomes in the journal, at this position. One too many has failed at once: to
    /// refuse the whole commit would run its steps again.
    pub(super) fn invoke(&self, op: Op, invocation: &Invocation, to: Place, at: Seq, open: u32) -> Event {
        let detail = if open >= Invocation::OPEN_MAX {
            format!(
                "the run has {open} children that have not ended; the most is {}. Wait for some of them first.",
                Invocation::OPEN_MAX
            )
        } else if self.depth() >= Invocation::DEPTH_MAX {
            format!(
                "the run stands below {} others already; the most is {}",
                self.depth(),
                Invocation::DEPTH_MAX
            )
        } else {
            let Invocation { detached, on_close, ref workflow, .. } = *invocation;
            return Event::ChildInvoked { op, workflow: workflow.clone(), to, detached, on_close };
        };
        let message = format!("{}: {detail}", Code::TooManyChildren.title());
        let outcome = Outcome::Err(Failure::coded(Code::TooManyChildren, message));
        Event::ChildFinished { op, invoked: at, run: None, outcome }
    }

    /// A number for the choice of a child's cell: the same again if its commit is repeated.
    pub(crate) fn draw_for_child(&self, index: usize) -> u64 {
        mix(self.seed ^ mix(u64::from(self.head.0) << 32 | index as u64))
    }

    /// How many runs there are above it.
    pub fn depth(&self) -> u32 {
        self.parent.as_ref().map_or(0, |parent| parent.depth)
    }

    /// Follows what an event says about children.
    pub(super) fn follow_children(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::ChildInvoked { .. } => self.children.push(seq),
            Event::ChildFinished { invoked, .. } | Event::ChildStarted { invoked, abandoned: true, .. } => {
                self.children.remove(*invoked);
            }
            Event::ChildStarted { .. }
            | Event::StepFinished { .. }
            | Event::StepRetrying { .. }
            | Event::StepLetIn { .. }
            | Event::StepBegun { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. } => {}
        }
    }

    /// It has let go of these.
    pub(super) fn let_go(&mut self, children: &[Seq]) {
        for seq in children {
            self.children.remove(*seq);
        }
    }

    /// A child that the run does not wait for is started.
    pub(super) fn child_started(
        &self,
        now: Timestamp,
        (op, invoked): (Op, Seq),
        run: RunId,
        abandoned: bool,
        slot: Option<Slot>,
    ) -> Decision {
        if !self.children.contains(invoked) {
            return Decision::default();
        }
        let is_over = |open: &OpenOp| open.child.is_some_and(|child| child.awaits == Awaits::Started);
        self.hear_of_child(now, Event::ChildStarted { op, invoked, run, abandoned }, invoked, is_over, slot)
    }

    /// A child has ended, or could not be started. Also taken after the run's own end: whoever retries it goes on from
    /// there.
    pub(super) fn child_finished(
        &self,
        now: Timestamp,
        (op, invoked): (Op, Seq),
        run: Option<RunId>,
        outcome: Outcome,
        slot: Option<Slot>,
    ) -> Decision {
        if !self.children.contains(invoked) {
            return Decision::default();
        }
        self.hear_of_child(now, Event::ChildFinished { op, invoked, run, outcome }, invoked, |_| true, slot)
    }

    fn hear_of_child(
        &self,
        now: Timestamp,
        event: Event,
        invoked: Seq,
        is_over: impl Fn(&OpenOp) -> bool,
        slot: Option<Slot>,
    ) -> Decision {
        let record = self.next_record(now, event);
        let mut decision =
            Decision { entries: vec![Entry::Recorded { record, mark: None }], ..Decision::default() };
        let waits = |open: &OpenOp| open.child.is_some_and(|child| child.invoked == invoked) && is_over(open);
        match &self.phase {
            Phase::Suspended if self.open.iter().any(waits) => {
                let open = self.open.iter().filter(|open| !waits(open)).cloned().collect();
                decision.entries.push(Entry::OpenChanged(open));
                decision.extend(self.activate(now, slot));
            }
            Phase::Running { .. } => decision.effects.push(Effect::TellProgram),
            // Kept in the journal until its program looks.
            Phase::Suspended | Phase::Pending { .. } | Phase::Paused { .. } | Phase::Ended { .. } => {}
        }
        decision
    }

    /// What a wait for a child that has taken too long becomes in the journal.
    pub(super) fn child_timed_out(op: Op, child: OpenChild) -> Event {
        let message = format!("{}: '{}' had not ended in time", Code::ChildTimedOut.title(), op.name);
        let outcome = Outcome::Err(Failure::coded(Code::ChildTimedOut, message));
        Event::ChildFinished { op, invoked: child.invoked, run: None, outcome }
    }
}

/// Refuses an invocation that could not be stored.
pub(super) fn check_invocation(op: &Op, invocation: &Invocation) -> Result<(), Rejection> {
    check_op(op)?;
    let workflow = &invocation.workflow;
    if workflow.is_empty() || workflow.len() > Op::NAME_LENGTH_MAX || workflow.contains(char::is_control) {
        let detail = format!(
            "The name of a workflow takes 1 to {} bytes, without control characters.",
            Op::NAME_LENGTH_MAX
        );
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    if stepwell_protocol::program::is_reserved(workflow) {
        let detail = format!("The workflow '{workflow}' is started by Stepwell itself.");
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    if invocation.input.size() > PAYLOAD_BYTES_MAX {
        return Err(too_large(&format!("The input of child '{}'", op.name), invocation.input.size()));
    }
    Ok(())
}

/// How many children a commit invokes.
pub(crate) fn invocations(commands: &[Command]) -> usize {
    commands.iter().filter(|command| matches!(command, Command::ChildInvoked { .. })).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_there_from_their_invocation_to_their_end() {
        let mut children = Children::default();
        for seq in [3, 4, 5, 9, 10] {
            children.push(Seq(seq));
        }
        assert_eq!(serde_json::to_string(&children).expect("JSON"), "[[3,5],[9,10]]");
        for (gone, left) in [(4, vec![3, 5, 9, 10]), (10, vec![3, 5, 9]), (4, vec![3, 5, 9]), (3, vec![5, 9])]
        {
            children.remove(Seq(gone));
            assert_eq!(children.iter().map(|seq| seq.0).collect::<Vec<_>>(), left, "without {gone}");
            assert!(!children.contains(Seq(gone)));
            assert_eq!(children.count() as usize, left.len());
        }
    }
}
