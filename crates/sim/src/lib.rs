//! A deterministic simulator: many small worlds, each decided by one number.
//!
//! A world has cells, programs, clients and a network between them. The cells are the real machine
//! (`stepwell_core::cell`) on storage in memory, the programs are real workflows run by the real replay VM.
//! Everything around them is in the simulator's hands: time, the order of messages, what is durable when, and
//! what breaks. Beside the world stands a model of what must be true of it, asked after every transition and
//! once more when everything has come to rest.
//!
//! Schedules, topics, lanes and queues have worlds of their own ([`schedules`], [`topics`], [`lanes`], [`queues`]).
//!
//! Beside it stands the explorer ([`explore`]), which looks at every world of a small size.
//!
//! Owns: worlds, faults, the model, planted bugs, the explorer, the command.
//! Does not own: any decision of the engine; what it finds out is fixed where it is.

pub mod catalog;
pub mod check;
pub mod coverage;
pub mod explore;
pub mod family;
pub mod flows;
pub mod host;
pub mod lanes;
pub mod namespaces;
pub mod one;
pub mod outside;
pub mod queues;
pub mod rng;
pub mod sabotage;
pub mod schedules;
pub mod script;
pub mod shrink;
pub mod store;
pub mod sweep;
pub mod tables;
pub mod topics;
pub mod world;

pub use sabotage::Sabotage;
pub use script::Script;
pub use world::{Outcome, Violation, World};

/// Runs the world of a seed.
pub fn simulate(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Outcome {
    World::new(seed, Script::of(seed), sabotage, traced).run()
}
