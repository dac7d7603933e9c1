//! Queues: jobs that are stored once and handed to consumers until one of them is done with each.
//!
//! Owns: the jobs of one partition, who holds which of them and until when, what became a dead letter and why, and the
//! counts of all these.
//! Does not own: which partition a job goes to, which is for whoever sends it ([`home`]), nor what a job means.
//!
//! Most jobs have no priority, delay or group. Such a *plain* job is one row, in the order in which it came, and is not
//! written again until it is deleted: a claim writes one row for all jobs that it takes. A job that has failed, or that is
//! not plain, has a row with its state beside its body, and an index has those that can be handed out. Of a group, only the
//! first job is in that index.
//!
//! Numbers, not times, say what came before what: a purge deletes what was queued up to a number, and a job that is given
//! back or redriven is queued anew, with a number of its own.
//!
//! Invariants: a job has one lease at most; a job whose end was acknowledged is never handed out again; of a group, one job
//! at most is held, and always the first; the counts are written in the commit that changes what they count.

mod addresses;
mod ageing;
mod claim;
mod dead;
mod drive;
mod leases;
mod purge;
mod push;
mod rows;
mod send;
mod settings;
mod tell;
#[cfg(test)]
mod tests;

pub use addresses::{ADDRESSES_MAX, Unwell};
pub use claim::{Looked, Wanted};
pub use dead::DEAD_PAGE_MAX;
pub use drive::{Order, Queue};
pub use leases::{End, backoff_ms};
pub use purge::{Purging, Redriving, check_redrive};
pub use push::{Pushed, check_handler, push_backoff_ms};
pub use rows::{
    Change, Content, Counts, Deleting, Form, Found, Head, Hold, Key, LeaseRow, Mark, Plain, Row, Rows,
};
pub use send::{Post, check_content, check_post, home, place_of};
pub use settings::{Closed, check_patch, is_stale, no_job, no_queue};
pub use tell::{Died, Telling};

/// The most jobs of a partition that consumers hold at once: each takes about 200 bytes of memory.
pub const IN_FLIGHT_MAX: usize = 10_000;

/// The most claims that wait for a job of a partition at once.
pub const WAITING_MAX: usize = 64;

/// The most bytes that a partition stores: the platform gives an object 10 GB.
pub const BYTES_MAX: u64 = 8_000_000_000;

/// How many rows are looked at in one turn, before the alarm has to go on with it.
const SLICE: usize = 256;

/// How many bytes of bodies are moved in one turn, before another one has to go on with it. One that is larger is moved by
/// itself.
const MOVED_BYTES_MAX: usize = 8_388_608;

/// What is over within this time is deleted together.
const ROUND_MS: u64 = 60_000;
