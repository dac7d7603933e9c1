//! The children that a workflow invokes: when the engine is told of them, and what the journal says of them.

use std::task::{Poll, Waker};

use stepwell_protocol::{
    Awaits, Invocation, Op, Outcome, Payload, RunId, Seq,
    program::{Command, PAGE_BYTES_MAX},
};

use super::{
    super::{
        slot::{Child, ChildStage, Concluded, What},
        words,
    },
    State,
};

/// How many children one commit invokes at the most, and how many bytes their inputs have before the last one of them:
/// a workflow that invokes a thousand at once says so in several commits.
const INVOKED_AT_ONCE_MAX: usize = 128;
const INVOKED_BYTES_MAX: usize = PAGE_BYTES_MAX;

impl State {
    /// What became of a child. `invocation` is taken when it is first polled.
    pub fn poll_child(
        &mut self,
        op: &Op,
        invocation: &mut Option<Box<Invocation>>,
        timeout_ms: Option<u64>,
        waker: &Waker,
    ) -> Poll<Concluded> {
        if let Some(invocation) = invocation.take() {
            let awaits = if invocation.detached { Awaits::Started } else { Awaits::Finished };
            let workflow = invocation.workflow.clone();
            let stage = ChildStage::Wanted(invocation);
            self.begin(op, || What::Child(Child { workflow, awaits, timeout_ms, stage }));
        }
        let (may_invoke, is_covered) = (self.may_invoke(), self.covers_invocation());
        let (mut report, mut held) = (None, None);
        let polled = self.change(op, |slot| {
            slot.waker = Some(waker.clone());
            let What::Child(Child { stage, .. }) = &mut slot.what else {
                unreachable!("an operation named a child is a child");
            };
            match std::mem::replace(stage, ChildStage::Taken) {
                ChildStage::Concluded(concluded) => return Poll::Ready(concluded),
                ChildStage::Wanted(invocation) if may_invoke && is_covered => {
                    report = Some((slot.order, Command::ChildInvoked { op: op.clone(), invocation }));
                    *stage = ChildStage::Asked;
                }
                wanted @ ChildStage::Wanted(_) => {
                    held = may_invoke.then_some(slot.order);
                    *stage = wanted;
                }
                other @ (ChildStage::Asked | ChildStage::Invoked(_) | ChildStage::Taken) => *stage = other,
            }
            Poll::Pending
        });
        self.held.extend(held);
        if let Some((order, command)) = report {
            self.held.remove(&order);
            self.outbox.push(command);
        }
        // One that could not be made has failed the run.
        polled.unwrap_or(Poll::Pending)
    }

    /// Wakes those that may be invoked now. Only if there is room: one that may not be would only leave its waker again,
    /// and be woken for ever.
    pub(super) fn wake_wanted_children(&mut self) {
        if !self.may_invoke() {
            return;
        }
        let is_covered = self.covers_invocation();
        for (order, op) in &self.waiting {
            if let Some(slot) = self.slots.get_mut(op)
                && let What::Child(Child { stage: ChildStage::Wanted(_), .. }) = &slot.what
            {
                if !is_covered {
                    self.held.extend(slot.waker.as_ref().map(|_| *order));
                } else if let Some(waker) = slot.waker.take() {
                    self.held.remove(order);
                    waker.wake();
                }
            }
        }
    }

    /// The journal has an invocation, at this position.
    pub(super) fn child_invoked(
        &mut self,
        seq: Seq,
        op: &Op,
        workflow: &str,
        detached: bool,
        workflow_ended: bool,
    ) {
        if let Some(What::Child(child)) = self.slots.get(op).map(|slot| &slot.what) {
            let recorded = (workflow, detached);
            let actual = (child.workflow.as_str(), child.awaits == Awaits::Started);
            if recorded != actual {
                let problem = words::another_child(op, recorded, actual);
                return self.stop(problem);
            }
        }
        self.deliver_to(op, workflow_ended, |what| {
            if let What::Child(Child { stage, .. }) = what {
                *stage = ChildStage::Invoked(seq);
            }
        });
    }

    /// A child that is not waited for was started.
    pub(super) fn child_started(&mut self, op: &Op, invoked: Seq, run: RunId, workflow_ended: bool) {
        self.deliver_to(op, workflow_ended, |what| {
            if let What::Child(Child { stage, awaits: Awaits::Started, .. }) = what
                && matches!(stage, ChildStage::Invoked(at) if *at == invoked)
            {
                let outcome = Outcome::Ok(Payload::null());
                *stage = ChildStage::Concluded(Concluded { run: Some(run), outcome });
            }
        });
    }

    /// A child has ended, or there is none. The end of one that nobody waits for is only history.
    pub(super) fn child_finished(
        &mut self,
        seq: Seq,
        op: &Op,
        invoked: Seq,
        concluded: Concluded,
        workflow_ended: bool,
    ) {
        let has_failed = matches!(concluded.outcome, Outcome::Err(_));
        let mut is_awaited = false;
        self.deliver_to(op, workflow_ended, |what| {
            let What::Child(Child { stage, .. }) = what else { return };
            is_awaited = match stage {
                ChildStage::Invoked(at) => *at == invoked,
                // It was refused: this stands where the invocation would.
                ChildStage::Wanted(_) | ChildStage::Asked => invoked == seq,
                ChildStage::Concluded(_) | ChildStage::Taken => false,
            };
            if is_awaited {
                *stage = ChildStage::Concluded(concluded);
            }
        });
        if is_awaited && has_failed && self.failed_since().is_none() {
            self.failing = Some((seq, self.begun));
        }
    }

    /// Takes an operation's name back that was given a moment ago.
    pub fn unname_op(&mut self, op: &Op) {
        if let Some(count) = self.named.get_mut(&(op.kind, op.name.clone()))
            && *count == op.occurrence + 1
        {
            *count -= 1;
        }
    }

    /// Whether the next commit may invoke another child.
    fn may_invoke(&self) -> bool {
        let invoked = self.outbox.iter().filter_map(|command| match command {
            Command::ChildInvoked { invocation, .. } => Some(invocation.input.size()),
            Command::StepBegun { .. }
            | Command::StepSucceeded { .. }
            | Command::StepFailed { .. }
            | Command::Emitted { .. }
            | Command::JobSent { .. } => None,
        });
        let (count, bytes) = invoked.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
        self.live && self.problem.is_none() && count < INVOKED_AT_ONCE_MAX && bytes < INVOKED_BYTES_MAX
    }

    /// Whether the call can be made that says so: what is reported anyway takes it along.
    fn covers_invocation(&self) -> bool {
        self.covers(u32::from(self.outbox.is_empty()))
    }
}
