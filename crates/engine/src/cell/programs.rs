//! Calls programs.

use std::{pin::pin, rc::Rc};

use futures::{
    channel::oneshot,
    future::{Either, select},
};
use stepwell_core::{run::CallEnd, window::SILENCE_MS};
use stepwell_protocol::{
    Epoch, RunId,
    program::{Activation, RawPage},
    wait_token::Issuer,
};
use wasm_bindgen::JsValue;

use super::Host;
use crate::{
    keyring::Keyring,
    log,
    object::{Fault, StoreError},
    program::{activate, end_of, why},
    runtime,
    settings::{APP_BINDING, Deployment},
};

impl Host {
    /// Calls a run's program. The call goes out only when the commit before it is durable.
    pub(super) fn call_program(self: &Rc<Self>, number: u64, epoch: Epoch) {
        let host = self.clone();
        self.go_on_with(async move {
            let ended = host.until_it_ends(number, epoch).await;
            host.calls.borrow_mut().remove(&(number, epoch));
            let Some(mut end) = ended else {
                log::warn!(
                    "nothing was heard of run {number} for {} s: it is called again",
                    SILENCE_MS / 1_000
                );
                host.blameless.borrow_mut().remove(&(number, epoch));
                return;
            };
            if host.blameless.borrow_mut().remove(&(number, epoch)) {
                end = CallEnd::Lost("the storage failed".into());
            }
            if let Some(why) = why(&end) {
                log::warn!("the program of run {number} stopped: {why}");
            }
            let ended =
                host.turn(|machine, store, now| Ok(machine.call_ended(store, now, number, epoch, end)?));
            // The run may have been activated anew by now: what its next program was told is not to be forgotten.
            if !host.machine.borrow().is_called(number) {
                host.listeners.borrow_mut().forget_program(number);
            }
            if let Err(fault) = ended {
                log::error!("the end of run {number}'s call was not recorded: {fault}");
            }
        });
    }

    /// The machine has given up on a call: nobody waits for its end any more. The call itself goes on where the program
    /// is: the runtime cancels none, even if its promise is disposed (`tests/workerd/tests/suite/sessions.rs`).
    pub(super) fn give_up(&self, number: u64, epoch: Epoch) {
        if let Some(call) = self.calls.borrow_mut().remove(&(number, epoch)) {
            // It may have ended at this very moment.
            let _ = call.send(());
        }
        self.listeners.borrow_mut().forget_program(number);
    }

    /// Nothing, if the machine gave up on it.
    async fn until_it_ends(self: &Rc<Self>, number: u64, epoch: Epoch) -> Option<CallEnd> {
        let (sender, given_up) = oneshot::channel();
        self.calls.borrow_mut().insert((number, epoch), sender);
        let called = self
            .turn(|machine, store, now| Ok(machine.activation(store, now, number, epoch)?))
            .and_then(|activation| {
                let activation = self.signed(activation)?;
                let text =
                    serde_json::to_string(&activation).expect("an activation holds only what JSON can say");
                self.activate(&activation.workflow, &text, &self.session(number, epoch))
            });
        let answer = match called {
            Ok(answer) => pin!(runtime::settle(answer)),
            // The storage's fault, not the program's.
            Err(fault) => return Some(CallEnd::Lost(fault.to_string())),
        };
        match select(answer, given_up).await {
            Either::Left((answer, _)) => Some(end_of(answer)),
            Either::Right(_) => None,
        }
    }

    /// Says of an activation that this cell has made it.
    pub(super) fn signed(&self, activation: Activation<RawPage>) -> Result<Activation<RawPage>, Fault> {
        let namespace = self.own_namespace()?;
        let signature = Keyring::of(&self.env).sign(&activation, namespace, runtime::clock());
        let used = activation.tokens.as_ref().map(|tokens| tokens.key.as_str());
        let tokens = self.issuer(namespace, &activation.run, used).map(Box::new);
        Ok(Activation { signature, tokens, ..activation })
    }

    /// A cell that has a run to call knows its namespace, and never changes it.
    pub(super) fn own_namespace(&self) -> Result<&str, Fault> {
        if let Some(known) = self.namespace.get() {
            return Ok(known);
        }
        let read = self.store.namespace()?;
        Ok(self.namespace.get_or_init(|| read))
    }

    /// What makes the wait tokens of a run, if the engine knows its public address.
    pub(super) fn issuer(&self, namespace: &str, run: &RunId, used: Option<&str>) -> Option<Issuer> {
        let deployment = Deployment::known(&self.env).ok()?;
        Keyring::of(&self.env).issuer(deployment.url.as_deref()?, namespace, run, used)
    }

    fn activate(&self, workflow: &str, activation: &str, session: &JsValue) -> Result<JsValue, Fault> {
        let exports = runtime::property(&JsValue::from(self.state.as_raw()), "exports");
        let own = runtime::property(&exports, "default");
        let none = || StoreError::Refused(format!("there is no app: bind one as {APP_BINDING}"));
        Ok(activate(&self.env, own, workflow, activation, session).ok_or_else(none)??)
    }
}
