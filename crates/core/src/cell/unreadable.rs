//! Runs whose stored data cannot be read.
//!
//! Such a run is *quarantined*: its row says that it is paused, and when its cell reads it again. Until then neither the
//! alarm nor a fresh instance comes across it, and every run behind it goes on. The mark is in the row's columns,
//! because memory is lost with the instance and the state cannot be parsed. Once the run can be read, because somebody
//! has restored the row or deployed the release that has written it, it goes on by itself at the next look, or with
//! whatever happens to it before.
//!
//! Invariant: one unreadable run delays no other.

use std::rc::Rc;

use stepwell_protocol::{
    Code, Problem, Timestamp,
    rest::{Status, Why},
};

use super::{Cell, Rows};
use crate::{object::Fault, run::Run};

/// How long until a row that cannot be read is read again: 24 reads a day. Always the same time, because nothing that
/// could count the looks is left: the state cannot be parsed, and no instance lives for so long. It is also how long
/// runs stand still at the most once a release that can read them is deployed.
pub const LOOK_AT_UNREADABLE_MS: u64 = 3_600_000;

impl Cell {
    /// A run from its rows. The caller is told if it cannot be read.
    pub(super) fn load<R: Rows>(rows: &R, number: u64) -> Result<Option<Run>, Fault<R::Error>> {
        rows.run(number).map_err(|error| unreadable_or_failed::<R>(error))
    }

    /// A run from its rows; if it cannot be read, it is quarantined and counts as not there.
    pub(super) fn load_or_quarantine<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
    ) -> Result<Option<Run>, Fault<R::Error>> {
        match rows.run(number) {
            Ok(run) => Ok(run),
            Err(error) if R::is_unreadable(&error) => {
                let until = now.plus_millis(LOOK_AT_UNREADABLE_MS);
                rows.quarantine(number, &error, until).map_err(Fault::Storage)?;
                // Nobody knows what it was counted as.
                self.counted = None;
                Ok(None)
            }
            Err(error) => Err(Fault::Storage(error)),
        }
    }

    /// A run that could not be read and can be again goes on.
    pub(super) fn release<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        mut run: Rc<Run>,
    ) -> Result<Rc<Run>, Fault<R::Error>> {
        if !run.quarantined {
            return Ok(run);
        }
        Rc::make_mut(&mut run).quarantined = false;
        rows.release(&run).map_err(Fault::Storage)?;
        self.counted = None;
        self.look_again(now);
        Ok(run)
    }
}

/// What went wrong with a read: the run's fault, or the storage's.
pub(super) fn unreadable_or_failed<R: Rows>(error: R::Error) -> Fault<R::Error> {
    if R::is_unreadable(&error) { Fault::Rejected(unreadable()) } else { Fault::Storage(error) }
}

/// The problem of a run that cannot be read.
pub fn unreadable() -> Problem {
    let detail = "What is stored of this run was not written by this release, so the run was set aside. The Worker's \
                  log says what cannot be read. Restore it, or deploy the release that has written it. The cell reads \
                  the run again every hour, and lets it go on; resume it to go on at once.";
    Problem::new(Code::RunUnreadable, detail)
}

/// The problem of a run that can be read again, and has not been looked at since.
pub fn readable_again() -> Problem {
    let detail = "What is stored of this run could not be read, so the run was set aside. It can be read again: the \
                  run goes on within an hour. Resume it to go on at once.";
    Problem::new(Code::RunUnreadable, detail)
}

/// The problem of a run whose input or journal cannot be read. Its row can be, and says so: nobody looks again.
pub(crate) fn unreadable_journal() -> Problem {
    let detail = "The stored input or journal of this run was not written by this release, so the run was set aside. \
                  The Worker's log says what cannot be read. Restore it, then resume the run.";
    Problem::new(Code::RunUnreadable, detail)
}

/// Why such a run is where it is.
pub(super) fn why_unreadable(problem: Problem) -> Why {
    let (waits_for, next_wake, trouble) = (Vec::new(), None, None);
    let because = problem.detail;
    Why {
        status: Status::Paused,
        because,
        life: None,
        lane: None,
        waits_for,
        next_wake,
        trouble,
        current_step: None,
    }
}
