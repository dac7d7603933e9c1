//! The pure machines of Stepwell.
//!
//! A machine looks at its state, the time and an input, and *decides*: [`run::Run::decide`] gives entries
//! to record and effects to perform, or a rejection. Whoever hosts it records the entries in one
//! transaction, *applies* them, and then performs the effects. Nothing here does I/O, reads a clock or
//! draws a random number; `now` and seeds come in. So the same code runs inside a Durable Object, in a
//! simulator and in a unit test, and does the same thing in each.

pub mod access;
pub mod alert;
pub mod bulk;
pub mod catalog;
pub mod cell;
pub mod expression;
pub mod guesses;
pub mod issuer_keys;
pub mod lane;
mod line;
pub mod object;
pub mod ordered;
pub mod pools;
pub mod pressing;
pub mod queue;
pub mod recent;
pub mod run;
pub mod schedule;
pub mod stream;
pub mod sweep;
pub mod token;
pub mod topic;
pub mod window;

pub use stepwell_protocol::sorting;
