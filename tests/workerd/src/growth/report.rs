//! The counts that a person reads.

use std::{fmt, time::Duration};

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Starts that were answered.
    pub starts: u32,
    /// Starts that had to be sent again.
    pub repeats: u32,
    /// SIGKILLs.
    pub kills: u32,
    /// Keys, each of which everybody was told one run of.
    pub keys: usize,
    /// Runs in all cells of all generations.
    pub runs: usize,
    /// Runs in the generation that the pool has grown to.
    pub grown: usize,
    /// How long it took until the last start was answered.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} starts answered in {:.1} s, {} sent again, {} kills",
            self.starts,
            self.took.as_secs_f64(),
            self.repeats,
            self.kills
        )?;
        write!(
            f,
            "  {} keys, {} runs: {} in the 16 cells of before, {} in the 64 that were added; 0 keys with two runs",
            self.keys,
            self.runs,
            self.runs - self.grown,
            self.grown
        )
    }
}
