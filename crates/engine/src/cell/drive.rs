//! The one loop: decide, commit, apply, arm, perform. Every change of a run goes through here.

use std::rc::Rc;

use stepwell_core::run::{Decision, Effect, Input, Phase, Run, Session, Slot, Start};
use stepwell_core::window::Ready;
use stepwell_protocol::Payload;

use super::{
    Host,
    fault::Fault,
    store::{Key, NewRun},
};

impl Host {
    /// Lets an input happen to a run: `input` gets the slot that is free for it, if one is.
    pub fn drive(
        self: &Rc<Self>,
        number: u64,
        input: impl FnOnce(Option<Slot>) -> Input,
    ) -> Result<Decision, Fault> {
        let run = self.run(number)?;
        let slot = self.slot(&run.workflow);
        let decision = run.decide(self.now(), input(slot))?;
        if decision.entries.is_empty() {
            self.perform(&run, &decision.effects);
            return Ok(decision);
        }
        let mut next = run;
        let before = next.wake_at();
        next.apply_all(&decision.entries);
        // No await from here to the alarm: rows and alarm are one commit.
        self.store.commit(&next, before, &decision.entries)?;
        self.settle(next, &decision.effects)?;
        Ok(decision)
    }

    /// Starts a run that is not there yet.
    pub fn start(self: &Rc<Self>, start: Start, input: &Payload, key: Option<&Key>) -> Result<Run, Fault> {
        let (mut run, decision) = Run::start(self.now(), start);
        run.apply_all(&decision.entries);
        self.store.insert(&NewRun { run: &run, input, key })?;
        self.settle(run.clone(), &decision.effects)?;
        Ok(run)
    }

    /// After a commit: memory, alarm, effects.
    fn settle(self: &Rc<Self>, run: Run, effects: &[Effect]) -> Result<(), Fault> {
        if let Some(wake_at) = self.next_look(&run) {
            self.arm_by(wake_at)?;
        }
        self.remember(&run);
        self.perform(&run, effects);
        Ok(())
    }

    /// Keeps what is pending or running; the rest is read again when somebody asks.
    fn remember(&self, run: &Run) {
        let mut runs = self.runs.borrow_mut();
        match run.phase {
            Phase::Pending { .. } | Phase::Running { .. } => {
                runs.insert(run.id.number, run.clone());
            }
            Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
                runs.remove(&run.id.number);
            }
        }
        // Whoever had the window to itself and has made progress lets others in.
        if !run.wants_to_be_alone() {
            self.window.borrow_mut().clear(run.id.number);
        }
    }

    fn perform(self: &Rc<Self>, run: &Run, effects: &[Effect]) {
        let number = run.id.number;
        for effect in effects {
            match effect {
                Effect::Activate { epoch } => self.activate(run, *epoch),
                Effect::Enqueue => {
                    // One that is not due yet waits for the alarm.
                    if run.wake_at().is_some_and(|due| due <= self.now()) {
                        self.window.borrow_mut().enqueue(Ready {
                            number,
                            workflow: run.workflow.clone(),
                            alone: run.wants_to_be_alone(),
                        });
                        self.dispatch_later();
                    }
                }
                Effect::TellProgram => self.listeners.borrow_mut().tell_program(number),
                Effect::TellEnd => self.listeners.borrow_mut().tell_end(number),
            }
        }
    }

    /// A run from memory or from its rows.
    pub fn run(&self, number: u64) -> Result<Run, Fault> {
        if let Some(run) = self.runs.borrow().get(&number) {
            return Ok(run.clone());
        }
        self.store.run(number)
    }

    /// The slot that a run of this workflow could have at once.
    pub fn slot(&self, workflow: &str) -> Option<Slot> {
        self.window.borrow().offers(workflow).map(|alone| Slot { session: Session::Capability, alone })
    }
}
