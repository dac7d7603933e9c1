//! Lanes: how many runs of a workflow are at work at once, and who is let in next.
//!
//! Owns: who holds a slot of which limits, who waits for one, and in which order.
//! Does not own: the runs, which are their cells'. A run's row is the intent: a cell asks for as long as a run wants to go
//! to work, so a lane that has lost nothing of its rows loses nobody.
//!
//! A run is known by its ticket. A slot is held until its cell says that the ticket is over. That word is only a hint and
//! may be lost, so a lane asks cells about slots that it has not heard of for a while; the same question tells a cell that
//! a run was let in. A cell that does not answer keeps its slots.
//!
//! Invariant: a limit's slots are held by at most as many tickets as it had when the last of them was let in.

mod drive;
mod flow;
mod gates;
mod host;
mod known;
#[cfg(test)]
mod tests;
mod why;

pub use drive::{
    CHECK_MS, CHECK_WHOLE_MS, LINE_MAX, Lane, PAGE_MAX, STOPPED_LINE_MAX, TELLS_MAX, TICKET_BYTES_MAX,
    TICKETS_MAX,
};
pub use flow::{
    Let, check_change, check_flow, check_shared, check_step_change, drops, key_of, let_in, start_id,
};
pub(crate) use flow::{narrow_first, short};
pub use host::{Order, Page, Rows, Shown, Telling, Waiter};
pub use why::limit_in_words;
