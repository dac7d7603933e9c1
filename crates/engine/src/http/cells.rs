//! The cells, as operators see them.

use futures::{StreamExt as _, stream};
use stepwell_protocol::{
    cells::{CellList, CellView},
    rest::Counts,
};

use super::{
    error::Refusal,
    front::Front,
    metrics::{is_one_cells, measure_cell},
    response::Response,
};
use crate::calls::figures::{CountedRuns, Measured};

/// How many cells are asked at once.
const AT_ONCE: usize = 16;

/// `GET /api/cells`
pub async fn list(front: &Front) -> Result<Response, Refusal> {
    let asked = front.cells().map(|place| measure_cell(front, place));
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    let mut list = CellList::default();
    while let Some((place, measured)) = answers.next().await {
        match measured {
            Ok(measured) => list.cells.push(view(place.to_string(), measured)),
            Err(refusal) if is_one_cells(&refusal) => list.unanswered.push(place.to_string()),
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Response::of(200, &list))
}

fn view(cell: String, measured: Measured) -> CellView {
    let Measured { counted, bytes, bytes_max, at_work, due_since, .. } = measured;
    let CountedRuns { workflows, is_all, letters } = counted;
    let mut statuses = Counts::new();
    for (status, count) in workflows.values().flatten() {
        *statuses.entry(*status).or_default() += count;
    }
    CellView { cell, statuses, complete: is_all, programs: at_work, due_since, bytes, bytes_max, letters }
}
