//! Every message of Stepwell that crosses a wire.
//!
//! Owns: the words that engine, SDKs and clients share: ids and times, the [`journal`] as it is stored and as programs
//! read it, the [`program`] protocol (activate, commit, answer), an app's [`manifest`], the [`rest`] bodies and their
//! [`routes`], [`child`] runs, [`schedule`]s, [`topic`]s, [`queue`]s, the [`outbox`], what a [`stream`] shows, [`failures`], how the
//! files of the [`dashboard`] are served, a run's [`timeline`] and [`trace`], the [`signature`] of an activation,
//! [`wait_token`]s, [`webhook`]s, how secrets are [`seal`]ed, and the [`problem`] codes.
//! Does not own: any decision. Nothing here reads a clock or does I/O.
//!
//! Stored and sent enums are externally tagged with explicit names; a name is never reused, a field is
//! only ever added with a default, so that the release before this one can read what this one writes.

pub mod access;
pub mod alert;
pub mod callback;
pub mod cells;
pub mod child;
pub mod command;
pub mod dashboard;
pub mod export;
pub mod failures;
pub mod filter;
pub mod ids;
pub mod journal;
pub mod json;
pub mod key;
pub mod lane;
pub mod life;
pub mod manifest;
pub mod outbox;
pub mod payload;
pub mod problem;
pub mod program;
pub mod progress;
pub mod queue;
pub mod rest;
pub mod routes;
pub mod schedule;
#[cfg(feature = "schema")]
mod schema;
pub mod seal;
pub mod shape;
pub mod signature;
pub mod sorting;
pub mod span;
pub mod stream;
pub mod text;
pub mod time;
pub mod timeline;
pub mod topic;
pub mod totals;
pub mod trace;
pub mod wait_token;
pub mod webhook;

pub use child::{Awaits, Invocation, OnClose, Parent};
pub use ids::{Epoch, Place, RunId, Seq};
pub use journal::{Event, Failure, Op, OpKind, Outcome, Record};
pub use life::Life;
pub use payload::Payload;
pub use problem::{Code, LimitName, Problem};
pub use shape::Shape;
pub use time::Timestamp;

/// The version of the program protocol that this crate speaks.
pub const PROTOCOL: u32 = 1;
