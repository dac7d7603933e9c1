//! What workerd takes of the machine's memory.

use std::fmt;

use anyhow::Result;

use crate::Workerd;

/// What workerd had resident when nothing was going on.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    idle_kib: u64,
}

/// What it had at the most.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    idle_kib: u64,
    peak_kib: u64,
}

impl Baseline {
    /// Looks at it now.
    pub fn of(workerd: &Workerd) -> Result<Self> {
        Ok(Self { idle_kib: workerd.memory()?.0 })
    }

    /// The most since it was started.
    pub fn peak(self, workerd: &Workerd) -> Result<Peak> {
        Ok(Peak { idle_kib: self.idle_kib, peak_kib: workerd.memory()?.1 })
    }
}

impl Peak {
    /// How much more that was than before, in MiB.
    pub fn above_idle_mib(self) -> u64 {
        self.peak_kib.saturating_sub(self.idle_kib) / 1_024
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory {} MiB, {} MiB above idle", self.peak_kib / 1_024, self.above_idle_mib())
    }
}
