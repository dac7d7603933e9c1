//! Whether the caller's key is good, as objects have said so: before the rest of a request is read, and again before
//! its answer leaves the Worker.

use stepwell_core::access::not_good;
use stepwell_protocol::Code;

use super::Front;
use crate::{
    calls::catalog::Request,
    http::{error::Refusal, response::Response, verdicts},
};

impl Front {
    /// Refuses a key that is not good, before the rest of the request is read and before any cell is asked: what an
    /// invented key costs is one call of the catalog, and nothing if it was refused a moment ago. A key that was good a
    /// moment ago is let through to whoever answers; unless the route is checked first, because that one may be asked
    /// too late.
    pub async fn vouch(&self, is_checked_first: bool) -> Result<(), Refusal> {
        let Some(access) = &self.access else { return Ok(()) };
        let hash = &access.credential.hash;
        if !is_checked_first && verdicts::is_good(&self.namespace, hash) {
            return Ok(());
        }
        if verdicts::is_bad(&self.namespace, hash) {
            return Err(Refusal(not_good()));
        }
        let checked = self.ask_catalog::<()>(Request::Check).await;
        checked.inspect_err(|refusal| {
            if refusal.0.code == Code::Unauthorized {
                verdicts::refused(&self.namespace, hash);
            }
        })
    }

    /// Lets an answer out only if a cell or the catalog has found the caller's key good. What the Worker can tell
    /// by itself is for those alone who have one.
    pub async fn vouched(&self, response: Response) -> Response {
        if self.is_vouched.get() {
            return response;
        }
        match self.pass_on(Request::Check).await {
            Ok(answer) if answer.is_success() => response,
            Ok(refused) => refused,
            Err(refusal) => refusal.into_response(),
        }
    }

    /// The catalog has found the caller's key good, though not for this.
    pub fn is_known_now(&self) {
        self.is_vouched.set(true);
    }

    /// Whether it is known who asks: somebody with a key that an object has found good, now or a short while ago.
    pub fn is_known(&self) -> bool {
        let is_good = |hash: &str| verdicts::is_good(&self.namespace, hash);
        !self.is_nobody && (self.is_vouched.get() || self.hash().is_some_and(is_good))
    }

    /// An object has answered. Unless it refuses the caller or has failed, it has found the key good.
    pub fn hear(&self, status: u16) {
        let Some(access) = &self.access else { return };
        let hash = &access.credential.hash;
        match status {
            401 => verdicts::doubted(&self.namespace, hash),
            403 | 429 | 500.. => {}
            _ => {
                self.is_vouched.set(true);
                verdicts::accepted(&self.namespace, hash);
            }
        }
    }

    /// Refuses whoever has no key, wherever an object is asked.
    pub(super) fn check_somebody(&self) -> Result<(), Refusal> {
        if self.is_nobody {
            let detail = "This takes a key: send one as `Authorization: Bearer <key>`.";
            return Err(Refusal::new(Code::Unauthorized, detail));
        }
        Ok(())
    }
}
