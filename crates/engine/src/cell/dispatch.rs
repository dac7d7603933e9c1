//! Calls programs, within the window.

use std::rc::Rc;

use stepwell_core::run::{CallEnd, Input, Run, Session, Slot};
use stepwell_protocol::{Epoch, PROTOCOL, Timestamp, program::Activation};
use wasm_bindgen::{JsCast, JsValue};

use super::{Host, fault::Fault};
use crate::{
    runtime::{self, Program},
    settings::APP_BINDING,
};

impl Host {
    /// Calls a run's program. The call goes out only when the commit before it is durable.
    pub(super) fn activate(self: &Rc<Self>, run: &Run, epoch: Epoch) {
        let number = run.id.number;
        self.window.borrow_mut().enter(number, &run.workflow, run.wants_to_be_alone());
        let host = self.clone();
        self.state.wait_until(async move {
            let end = host.call_program(number, epoch).await;
            host.call_ended(number, epoch, end);
        });
    }

    /// Gives free places to those who wait.
    pub(super) fn dispatch(self: &Rc<Self>) {
        loop {
            let Some(ready) = self.window.borrow_mut().next() else { break };
            let alone = !self.window.borrow().is_busy();
            let slot = Slot { session: Session::Capability, alone };
            if let Err(fault) = self.drive(ready.number, |_| Input::Activate(slot)) {
                // Its row is still due: the alarm will find it.
                worker::console_error!("stepwell: run {} could not be activated: {fault}", ready.number);
                self.look_again();
            }
        }
        if self.window.borrow_mut().take_overflow() {
            self.look_again();
        }
    }

    /// Like [`Self::dispatch`], when the present turn is over: it may be in the middle of a decision.
    pub(super) fn dispatch_later(self: &Rc<Self>) {
        let host = self.clone();
        self.state.wait_until(async move { host.dispatch() });
    }

    /// Looks at all due rows anew.
    fn look_again(&self) {
        self.scanned.set((Timestamp::default(), 0));
        if let Err(fault) = self.arm_by(self.now().plus_millis(100)) {
            worker::console_error!("stepwell: the alarm could not be armed: {fault}");
        }
    }

    async fn call_program(self: &Rc<Self>, number: u64, epoch: Epoch) -> CallEnd {
        let called = self.activation(number).and_then(|activation| {
            let session = self.session(number, epoch);
            Ok(self.program()?.activate(&activation, &session)?)
        });
        let answer = match called {
            Ok(answer) => runtime::settle(answer).await,
            // The storage's fault, not the program's.
            Err(fault) => return CallEnd::Lost(fault.to_string()),
        };
        match answer {
            Ok(_) => CallEnd::Returned,
            Err(thrown) => {
                let message = runtime::message(&thrown);
                // The runtime marks what nobody's code has thrown: broken connections, resets, overload.
                let is_lost = ["retryable", "overloaded", "durableObjectReset"]
                    .iter()
                    .any(|mark| runtime::property(&thrown, mark).is_truthy());
                if is_lost { CallEnd::Lost(message) } else { CallEnd::Threw(message) }
            }
        }
    }

    fn call_ended(self: &Rc<Self>, number: u64, epoch: Epoch, end: CallEnd) {
        self.window.borrow_mut().leave(number);
        self.listeners.borrow_mut().tell_program(number);
        if let CallEnd::Threw(message) | CallEnd::Lost(message) = &end {
            worker::console_warn!("stepwell: the program of run {number} stopped: {message}");
        }
        if let Err(fault) = self.drive(number, |_| Input::ActivationEnded { epoch, end }) {
            worker::console_error!("stepwell: the end of run {number}'s call was not recorded: {fault}");
            self.look_again();
        }
        self.dispatch();
    }

    /// What the program is called with.
    fn activation(&self, number: u64) -> Result<String, Fault> {
        let run = self.run(number)?;
        let activation = Activation {
            protocol: PROTOCOL,
            workflow: run.workflow.clone(),
            epoch: run.epoch,
            seed: format!("{:016x}", run.seed),
            now: self.now(),
            started_at: run.created_at,
            input: self.store.input(number)?,
            journal: self.store.page(number, stepwell_protocol::Seq(0))?,
            run: run.id,
        };
        Ok(serde_json::to_string(&activation).expect("an activation holds only what JSON can say"))
    }

    /// The app that this Worker is bound to, or else the Worker itself.
    fn program(&self) -> Result<Program, Fault> {
        let bound = runtime::property(&self.env, APP_BINDING);
        let program = if bound.is_undefined() {
            let exports = runtime::property(&JsValue::from(self.state.as_raw()), "exports");
            runtime::property(&exports, "default")
        } else {
            bound
        };
        if program.is_undefined() {
            return Err(Fault::Storage(format!("there is no app: bind one as {APP_BINDING}")));
        }
        Ok(program.unchecked_into())
    }
}
