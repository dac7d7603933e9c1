//! What Workers and objects ask each other, and how an object is asked.
//!
//! Owns: the texts that go from one to the other. Does not own: what is done about them. Whoever asks and whoever
//! answers import this module, and not each other.

pub mod alerts;
pub mod catalog;
pub mod cell;
pub mod figures;
pub mod lanes;
pub mod queue;
pub mod queues;
pub mod schedules;
pub mod topics;
