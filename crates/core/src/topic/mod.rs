//! Topics: events that are stored once, the runs that they start, and the waits that they meet.
//!
//! Owns: which events a topic has accepted, by whom they may be delivered without a key, which triggers and waits they
//! meet, and which of their runs are still to be started.
//! Does not own: the runs, which are their cells'.
//!
//! An event's row is the intent of all that it triggers: it says in which generation of the pool its runs are at home.
//! Nothing is written for a start that has succeeded. Instead, a watermark says up to which event everything is done; it
//! is stored about once a second. A crash asks again for what came after it, and the cells know each run by trigger and
//! event. What cannot be started is parked, in a row of its own, so that it holds up no other event.
//!
//! Waits are delivered in the same way: what is asked is one cell, for all its runs that an event may matter to.
//!
//! Invariant: whatever is at or below the watermark has started its runs, was refused for good, or is parked.

mod drive;
mod flights;
mod host;
mod kinds;
mod layers;
mod look_back;
mod pages;
mod parked;
mod recent;
mod row;
#[cfg(test)]
mod tests;
mod transform;
mod triggers;
mod waits;
mod webhooks;

pub use drive::{Topic, no_event};
pub use host::{EventStart, Head, Meeting, NewRow, Order, Parked, Rows, StartEnd, WaitHead};
pub use look_back::{LOOK_BACK_BYTES_MAX, LOOK_BACK_EVENTS_MAX};
pub use row::{EventRow, RunOf, Shown, Trigger, runs_of};
use stepwell_protocol::{
    Code, Problem,
    queue::check_target,
    text::{TAG_LENGTH_MAX, TAGS_MAX, is_tag},
    topic::{TriggerSpec, Triggered},
};
pub use transform::is_too_much;
pub use triggers::no_trigger;
pub use waits::{Bucket, Conditions, WAITS_MAX, WaitRow, check_wait, from_when, input_for, wait_id};
pub use webhooks::{
    DELIVERIES_MAX, Delivered, HookKeys, Kept, Sealed, WEBHOOKS_MAX, Webhook, check_webhook, event_of,
    no_webhook,
};

/// The most triggers of a topic that people make, and the most that the code declares.
pub const TRIGGERS_MAX: usize = 100;

/// How many events a page of the list has at the most.
pub const LIST_MAX: usize = 100;

/// The most bytes that a topic stores: the platform gives an object 10 GB.
pub const BYTES_MAX: u64 = 8_000_000_000;

/// Refuses what no trigger of a topic can be, so that no topic is made for it.
pub fn check_trigger(topic: &str, spec: &TriggerSpec) -> Result<(), Problem> {
    row::condition(topic, spec)?;
    match &spec.queue {
        Some(queue) => check_target(queue)?,
        None if spec.workflow.is_empty() => return Err(one_target()),
        None => {}
    }
    if spec.queue.is_some() && !(spec.workflow.is_empty() && spec.tags.is_empty()) {
        return Err(one_target());
    }
    if spec.tags.len() >= TAGS_MAX || !spec.tags.iter().all(|tag| is_tag(tag)) {
        let detail = format!(
            "A trigger has up to {} tags of 1 to {TAG_LENGTH_MAX} bytes, without control or invisible characters.",
            TAGS_MAX - 1
        );
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

fn one_target() -> Problem {
    let detail = "A trigger has a `workflow`, whose runs may have `tags`, or a `queue`, but not both.";
    Problem::new(Code::InvalidRequest, detail)
}

/// By what a cell knows the run of an event. No workflow's name is empty, so no caller's key looks like it.
pub fn event_key(triggered: &Triggered) -> String {
    let Triggered { topic, trigger, event } = triggered;
    format!("\nevent\n{topic}\n{trigger}\n{event}")
}
