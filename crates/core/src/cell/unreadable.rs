//! Runs whose stored data cannot be read.
//!
//! Such a run is *quarantined*: its row says that it is paused and has no wake time, so neither the alarm nor a fresh
//! instance comes across it again, and every run behind it goes on. The mark is in the row, because memory is lost
//! with the instance and the state cannot be parsed. A person who has mended the row resumes the run.
//!
//! Invariant: one unreadable run delays no other.

use stepwell_protocol::{
    Code, Problem, Timestamp,
    rest::{Status, Why},
};

use super::{Cell, Fault, Rows};
use crate::run::Run;

impl Cell {
    /// A run from its rows. The caller is told if it cannot be read.
    pub(super) fn load<R: Rows>(rows: &R, number: u64) -> Result<Option<Run>, Fault<R::Error>> {
        rows.run(number).map_err(|error| unreadable_or_failed::<R>(error))
    }

    /// A run from its rows; if it cannot be read, it is quarantined and counts as not there.
    pub(super) fn load_or_quarantine<R: Rows>(
        &mut self,
        rows: &R,
        number: u64,
    ) -> Result<Option<Run>, Fault<R::Error>> {
        match rows.run(number) {
            Ok(run) => Ok(run),
            Err(error) if R::is_unreadable(&error) => {
                rows.quarantine(number, &error).map_err(Fault::Storage)?;
                // Nobody knows what it was counted as.
                self.counted = None;
                Ok(None)
            }
            Err(error) => Err(Fault::Storage(error)),
        }
    }

    /// A run that could not be read and can be again goes on. Says whether it was such a run.
    pub(super) fn release<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: &Run,
    ) -> Result<bool, Fault<R::Error>> {
        let is_released = rows.release(run).map_err(Fault::Storage)?;
        if is_released {
            self.counted = None;
            self.look_again(now);
        }
        Ok(is_released)
    }
}

/// What went wrong with a read: the run's fault, or the storage's.
pub(super) fn unreadable_or_failed<R: Rows>(error: R::Error) -> Fault<R::Error> {
    if R::is_unreadable(&error) { Fault::Rejected(unreadable()) } else { Fault::Storage(error) }
}

/// The problem of a run that cannot be read.
pub fn unreadable() -> Problem {
    let detail = "What is stored of this run was not written by this release, so the run was set aside. The Worker's \
                  log says what cannot be read. Restore it, then resume the run.";
    Problem::new(Code::RunUnreadable, detail)
}

/// Why such a run is where it is.
pub(super) fn why_unreadable(problem: Problem) -> Why {
    let (waits_for, next_wake, trouble) = (Vec::new(), None, None);
    let because = problem.detail;
    Why { status: Status::Paused, because, waits_for, next_wake, trouble, current_step: None }
}
