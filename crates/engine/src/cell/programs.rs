//! Calls programs.

use std::rc::Rc;

use stepwell_core::run::CallEnd;
use stepwell_protocol::Epoch;
use wasm_bindgen::{JsCast, JsValue};

use super::{
    Host,
    fault::{Fault, StoreError},
};
use crate::{
    runtime::{self, Program},
    settings::APP_BINDING,
};

impl Host {
    /// Calls a run's program. The call goes out only when the commit before it is durable.
    pub(super) fn call_program(self: &Rc<Self>, number: u64, epoch: Epoch) {
        let host = self.clone();
        self.state.wait_until(async move {
            let mut end = host.until_it_ends(number, epoch).await;
            if host.blameless.borrow_mut().remove(&(number, epoch)) {
                end = CallEnd::Lost("the storage failed".into());
            }
            if let CallEnd::Threw(message) | CallEnd::Lost(message) = &end {
                worker::console_warn!("stepwell: the program of run {number} stopped: {message}");
            }
            let ended =
                host.turn(|machine, store, now| Ok(machine.call_ended(store, now, number, epoch, end)?));
            host.listeners.borrow_mut().forget_program(number);
            if let Err(fault) = ended {
                worker::console_error!("stepwell: the end of run {number}'s call was not recorded: {fault}");
            }
        });
    }

    async fn until_it_ends(self: &Rc<Self>, number: u64, epoch: Epoch) -> CallEnd {
        let called = self.turn(|machine, store, now| Ok(machine.activation(store, now, number)?)).and_then(
            |activation| {
                let text =
                    serde_json::to_string(&activation).expect("an activation holds only what JSON can say");
                Ok(self.program()?.activate(&text, &self.session(number, epoch))?)
            },
        );
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
            return Err(StoreError::Refused(format!("there is no app: bind one as {APP_BINDING}")).into());
        }
        Ok(program.unchecked_into())
    }
}
