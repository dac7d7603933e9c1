//! What a cell does for whoever holds a wait token, or wants one.

use std::rc::Rc;

use stepwell_core::cell::{TokenAnswer, Unsigned};
use stepwell_protocol::{
    Code, Problem, RunId,
    wait_token::{CreatedToken, NewToken, TokenReceipt, URL_VARIABLE, WaitToken},
};

use super::Host;
use crate::{
    object::{Answered, Fault},
    runtime,
};

impl Host {
    /// Signs a token. Nothing of it is stored.
    pub(super) fn new_token(
        self: &Rc<Self>,
        namespace: &str,
        id: &RunId,
        new: NewToken,
    ) -> Result<Answered, Fault> {
        let Unsigned { token, key } =
            self.turn(|machine, store, now| Ok(machine.new_token(store, now, id, new)?))?;
        let issuer = self.issuer(namespace, id, key.as_deref()).ok_or_else(|| {
            let detail = format!(
                "The engine does not know its public address. Set its variable {URL_VARIABLE}, such as \
                 https://flows.example.com."
            );
            Problem::new(Code::UrlMissing, detail)
        })?;
        let token = WaitToken { namespace: namespace.to_owned(), ..token };
        let made = CreatedToken { url: issuer.address(&token), expires_at: token.expires_at };
        Ok(Answered::new(201, &made))
    }

    /// Holds whoever brings a token to the limits of the namespace.
    pub(super) async fn admit_link(
        self: &Rc<Self>,
        namespace: &str,
        token: &WaitToken,
        bytes: usize,
    ) -> Result<(), Fault> {
        // A run that is gone is told so; and for a namespace that is gone no catalog is asked, which would begin one.
        let Ok(run) = self.find(&token.run) else { return Ok(()) };
        self.learn_rules(namespace, &token.run.place).await?;
        self.machine.borrow_mut().admit_link(runtime::clock(), Some(&run.workflow), bytes)?;
        Ok(())
    }

    pub(super) fn show_token(self: &Rc<Self>, token: &WaitToken) -> Result<Answered, Fault> {
        let view = self.turn(|machine, store, now| Ok(machine.show_token(store, now, token)?))?;
        Ok(Answered::new(200, &view))
    }

    pub(super) fn complete_token(
        self: &Rc<Self>,
        token: &WaitToken,
        answer: TokenAnswer,
    ) -> Result<Answered, Fault> {
        let is_new =
            self.turn(|machine, store, now| Ok(machine.complete_token(store, now, token, answer)?))?;
        let receipt = TokenReceipt { duplicate: !is_new };
        Ok(Answered::new(if is_new { 202 } else { 200 }, &receipt))
    }
}
