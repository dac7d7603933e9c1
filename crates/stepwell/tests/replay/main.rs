//! Workflows on the real run machine, in memory, with virtual time and a cell that dies at every commit.

mod driver;
mod engine;
mod journals;
mod parallel;
mod sequential;
mod waiting;
mod world;
