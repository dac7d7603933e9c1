//! What a workflow awaits: steps, sleeps, waits, tokens, events and children, as futures.
//!
//! Each becomes ready only when the [`crate::vm`] delivers its journal event, never by itself: that is what
//! makes a replay take the same turns.

mod abort;
mod each;
mod event;
mod invoke;
mod job;
mod outgoing;
mod sleep;
mod step;
mod token;
mod wait;

pub use each::Each;
pub use event::{Emit, Event, WaitFor};
pub use invoke::{Detached, Invoke};
pub use job::SendJob;
pub use sleep::Sleep;
pub(crate) use step::Policy;
pub use step::{LaneKey, Step, StepInfo};
pub use token::Token;
pub use wait::{Wait, WaitError};

use std::time::Duration;

/// Whole milliseconds, rounded up: a sleep is never shorter than it says.
pub(crate) fn millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX)
}
