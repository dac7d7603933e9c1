//! Finds schedules in rows, of which some may not be readable: those of a later release, after a rollback.

use stepwell_protocol::{Code, Problem};

use super::{Rows, Schedule};
use crate::object::Fault;

/// The row of a schedule cannot be read.
pub(super) struct Unreadable;

/// A schedule, if there is one of this id; an error if its row cannot be read.
pub(super) fn read<R: Rows>(
    rows: &R,
    id: &str,
) -> Result<Result<Option<Schedule>, Unreadable>, Fault<R::Error>> {
    match rows.get(id) {
        Ok(schedule) => Ok(Ok(schedule)),
        Err(error) if R::is_unreadable(&error) => Ok(Err(Unreadable)),
        Err(error) => Err(Fault::Storage(error)),
    }
}

/// A schedule that somebody asks for.
pub(super) fn find<R: Rows>(rows: &R, id: &str) -> Result<Schedule, Fault<R::Error>> {
    let Ok(found) = read(rows, id)? else {
        let detail = "This release cannot read the stored schedule. Deploy the release that stored it, replace it with \
                      `PUT`, or delete it.";
        return Err(Problem::new(Code::WrongStatus, detail).into());
    };
    Ok(found.ok_or_else(no_schedule)?)
}

pub(super) fn no_schedule() -> Problem {
    let detail = "There is no schedule of this id. `GET /api/schedules` lists them.";
    Problem::new(Code::ScheduleNotFound, detail)
}
