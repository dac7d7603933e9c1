//! Goes on before the engine has answered, where it is known what the answer will be.
//!
//! A workflow that awaits one step and nothing else will be told next that the step has ended. So it is told at once,
//! without letting anything begin; if that ends the workflow, the step and the end are one commit and not two. Should
//! something else have come first, the engine records the step and activates the run anew: the workflow has gone a
//! way that no replay would go, and is forgotten.
//!
//! Owns: what the engine's clock shows by now. Does not own: what is done with it ([`super::Vm`]).

use stepwell_protocol::{Record, Seq, Timestamp, program::Then};

use super::{Clock, Order, TURNS_STILL_MAX, Vm, Workflow};

/// What the engine's clock shows: what it showed last, and what has passed since by the clock at hand.
pub(super) struct Foresight {
    clock: Clock,
    heard: Timestamp,
    heard_at_ms: u64,
}

impl Foresight {
    pub fn new(clock: Clock, heard: Timestamp) -> Self {
        let heard_at_ms = clock();
        Self { clock, heard, heard_at_ms }
    }

    /// The engine has said what time it is.
    pub fn hear(&mut self, now: Timestamp) {
        (self.heard, self.heard_at_ms) = (now, (self.clock)());
    }

    fn now(&self) -> Timestamp {
        self.heard.plus_millis((self.clock)().saturating_sub(self.heard_at_ms))
    }
}

impl Vm {
    /// Lets the workflow go on with the result of its only step, if there is nothing else that could come first.
    pub(super) fn foresee(&mut self) -> Option<Order> {
        let at = self.foresight.as_ref()?.now();
        // What the engine was told to wake the run for may happen at any time.
        let waits_for_nothing = self.told.as_ref().is_some_and(Vec::is_empty);
        if !waits_for_nothing || !self.queue.is_empty() || matches!(self.workflow, Workflow::Ended(_)) {
            return None;
        }
        let event = self.state.borrow().sole_result()?.clone().recorded()?;
        let base = self.known;
        let seq = Seq(base.0 + 1);
        let commands = self.state.borrow_mut().take_outbox();
        (self.known, self.delivered) = (seq, seq);
        self.state.borrow_mut().go_still();
        self.state.borrow_mut().deliver(Record { seq, at, event }, false);
        self.tell_where_we_are();
        self.poll_workflow(TURNS_STILL_MAX);
        let problem = self.state.borrow().problem();
        let then = match problem {
            Some(problem) => Then::Pause { problem },
            None => self.ending().unwrap_or_else(|| {
                let open = self.state.borrow().has_new_patches().then(|| self.state.borrow().open());
                if open.is_some() {
                    self.told.clone_from(&open);
                }
                Then::Continue { open }
            }),
        };
        Some(self.send(commands, then, Some((base, at))))
    }
}
