//! The cells: how full each of them is, and what waits in it.

use stepwell_protocol::{cells::FULL_PERCENT, routes::Route};

use super::{
    Viewer,
    flat::{CellList, CellView},
};
use crate::{
    book::{Book, Stop},
    json,
    may::path,
    sheet::{Cell, Section, Sheet, Table, Tone, grouped, length, nothing},
};

/// All of them.
pub fn list(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<CellList>(&path(Route::ListCells, &[]))?;
    let row = |cell: &CellView| {
        let count = |count: u64| -> Cell {
            let count = grouped(count);
            Cell::Text(if cell.complete { count } else { format!("{count}+") })
        };
        let percent = cell.bytes.saturating_mul(100) / cell.bytes_max.max(1);
        let tone = if percent >= FULL_PERCENT { Tone::Bad } else { Tone::Good };
        let waits =
            cell.due_since.map(|since| length(viewer.now.as_millis().saturating_sub(since.as_millis())));
        let dead = cell.letters.dead;
        vec![
            Cell::Mono(cell.cell.clone()),
            Cell::State(tone, format!("{percent} % full")),
            count(cell.statuses.live()),
            count(cell.statuses.ended()),
            Cell::Text(json::size(usize::try_from(cell.bytes).unwrap_or(usize::MAX))),
            cell.programs.into(),
            waits.unwrap_or_else(nothing),
            cell.letters.waiting.into(),
            if dead > 0 { Cell::State(Tone::Bad, grouped(dead)) } else { nothing() },
        ]
    };
    let columns = [
        "Cell",
        "State",
        ">Live runs",
        ">Ended runs",
        ">Stored",
        ">Programs",
        ">Waits for",
        ">Letters",
        ">Dead letters",
    ];
    let table = Table::new(&columns, list.cells.iter().map(row).collect()).or("No cell has answered.", "");
    let note = if list.unanswered.is_empty() {
        "Cells hold the runs. One that is 80 % full takes no new runs; more cells make room.".to_owned()
    } else {
        format!("These cells did not answer: {}.", list.unanswered.join(", "))
    };
    Ok(Sheet::new("Cells").with(Section::table("", table).note(note)))
}
