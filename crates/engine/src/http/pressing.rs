//! Callers who go on asking beyond the rate of their namespace, as far as this isolate sees them.
//!
//! A cell that refuses a request was asked all the same, and others wait for it meanwhile. So a key that is refused again
//! and again is refused here, for as long as it takes to bring refusals by cells down to ten a second. What the rate allows
//! still gets through: the door opens again before a cell's allowance has grown by much.

use std::cell::RefCell;

use stepwell_core::guesses::Guesses;
use stepwell_protocol::{Code, LimitName, Problem};

use super::{error::Refusal, front::Front, response::Response, verdicts};
use crate::runtime;

/// The status of what is beyond a limit.
const TOO_MANY: u16 = 429;

thread_local! {
    static REFUSED: RefCell<Guesses> = const { RefCell::new(Guesses::new()) };
}

/// Refuses a key that was refused too often. One that no object has accepted lately is not told so.
pub fn check(front: &Front) -> Result<(), Refusal> {
    // Most isolates never see anybody beyond a limit.
    if REFUSED.with_borrow(Guesses::is_empty) {
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

/// Counts an answer that says that the rate was exceeded. Other limits hold for some requests and not for others.
pub fn count(front: &Front, response: &Response) {
    if response.status == TOO_MANY
        && response.problem_read().is_some_and(|it| it.limit == Some(LimitName::RequestsPerSecond))
        && let Some(hash) = front.hash()
    {
        let name = name(front, hash);
        REFUSED.with_borrow_mut(|refused| refused.failed(runtime::clock(), &name));
    }
}

fn name(front: &Front, hash: &str) -> String {
    format!("{} {hash}", front.namespace())
}
