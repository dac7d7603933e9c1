//! The places that a workflow's steps have in their lanes.

use stepwell_protocol::{Op, Seq, program::LetIn};

use super::{super::slot::What, State};

impl State {
    /// What the engine says of the places of its steps.
    pub fn places(&mut self, let_in: Option<Box<LetIn>>) {
        self.let_in = let_in;
    }

    /// A lane has let a step in.
    pub(super) fn step_let_in(&mut self, seq: Seq, op: Op, ticket: u32, workflow_ended: bool) {
        // Its run has stopped since, and has given the place back.
        if self.let_in.as_ref().is_some_and(|let_in| !let_in.holds(seq, ticket)) {
            return;
        }
        // One that nobody awaits any more, or that the code no longer has, needs no place.
        if !self.slots.contains_key(&op) {
            self.asides.leave_place(op);
            return;
        }
        self.deliver_to(&op, workflow_ended, |what| {
            if let What::Step { visit: Some(visit), .. } = what {
                visit.is_in = true;
            }
        });
    }
}
