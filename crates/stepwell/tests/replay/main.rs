//! Workflows on the real run machine, in memory, with virtual time and a cell that dies at every commit.

mod budgets;
mod driver;
mod journals;
mod parallel;
mod promises;
mod sequential;
mod stopping;
mod waiting;
mod world;
