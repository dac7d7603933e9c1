//! Callers who go on asking beyond the rate of their namespace, as far as this isolate sees them.
//!
//! A cell that refuses a request was asked all the same, and others wait for it meanwhile. So a key that is refused again
//! and again is refused here, for as long as it takes to bring refusals by cells down to ten a second. What the rate allows
//! still gets through, one after the other: the door opens again before a cell's allowance has grown by much.

use std::cell::RefCell;

use stepwell_core::pressing::Pressing;
use stepwell_protocol::{Code, LimitName, Problem};

use super::{error::Refusal, front::Front, response::Response, verdicts};
use crate::runtime;

/// The status of what is beyond a limit.
const TOO_MANY: u16 = 429;

thread_local! {
    static REFUSED: RefCell<Pressing> = const { RefCell::new(Pressing::new()) };
}

/// Refuses a key that was refused too often. One that no object has accepted lately is not told so.
pub fn check(front: &Front) -> Result<(), Refusal> {
    // Most isolates never see anybody beyond a limit.
    if REFUSED.with_borrow(Pressing::is_empty) {
        return Ok(());
    }
    let Some(hash) = front.hash().filter(|hash| verdicts::is_good(front.namespace(), hash)) else {
        return Ok(());
    };
    let name = name(front, hash);
    let checked = REFUSED.with_borrow_mut(|refused| refused.check(runtime::clock(), &name));
    checked.map_err(|seconds| {
        let detail =
            "Too many requests with this key were beyond the rate of the namespace. Send them more slowly.";
        Refusal(
            Problem::new(Code::LimitReached, detail).of_limit(LimitName::RequestsPerSecond).after(seconds),
        )
    })
}

/// Counts an answer: whether it says that the rate was exceeded. Other limits hold for some requests and not for others.
pub fn count(front: &Front, response: &Response) {
    let is_refused = response.status == TOO_MANY
        && response.problem_read().is_some_and(|it| it.limit == Some(LimitName::RequestsPerSecond));
    if !is_refused && REFUSED.with_borrow(Pressing::is_empty) {
        return;
    }
    let Some(hash) = front.hash() else { return };
    let (now, name) = (runtime::clock(), name(front, hash));
    REFUSED.with_borrow_mut(|refused| {
        if is_refused { refused.refused(now, &name) } else { refused.passed(now, &name) }
    });
}

fn name(front: &Front, hash: &str) -> String {
    format!("{} {hash}", front.namespace())
}
