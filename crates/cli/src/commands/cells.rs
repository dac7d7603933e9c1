//! `stepwell cells`: how full the cells are, and what waits in them.

use stepwell_protocol::{
    cells::{CellList, CellView},
    rest::Status,
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// Lists them.
pub fn list(global: &Global) -> Result {
    let answer: Answer<CellList> = global.client()?.get(&["cells"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let head = ["CELL", "LIVE", "ENDED", "FULL", "PROGRAMS", "WAITS", "LETTERS", "DEAD"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(answer.value.cells.iter().map(row));
    table::print(&rows);
    for cell in &answer.value.unanswered {
        anstream::eprintln!("The cell {} did not answer.", words::plain(cell));
    }
    Ok(())
}

fn row(cell: &CellView) -> Vec<String> {
    let CellView { cell, statuses, complete, programs, due_since, bytes, bytes_max, letters } = cell;
    let count = |is_terminal: bool| -> u64 {
        let of = |(status, _): &(&Status, &u64)| status.is_terminal() == is_terminal;
        statuses.iter().filter(of).map(|(_, count)| count).sum()
    };
    let more = if *complete { "" } else { "+" };
    let percent = bytes.saturating_mul(100) / (*bytes_max).max(1);
    let waits =
        due_since.map_or_else(|| "–".into(), |since| words::length(words::between(since, words::now())));
    vec![
        words::plain(cell),
        format!("{}{more}", count(false)),
        format!("{}{more}", count(true)),
        format!("{percent} %"),
        programs.to_string(),
        waits,
        letters.waiting.to_string(),
        letters.dead.to_string(),
    ]
}
