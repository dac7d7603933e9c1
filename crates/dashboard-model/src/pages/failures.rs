//! What has failed, in groups of runs that failed alike.

use stepwell_protocol::routes::Route;

use super::{
    Viewer,
    flat::{Failure, FailureList},
    query, workflow_link,
};
use crate::{
    book::{Book, Stop},
    may::path,
    place::Place,
    sheet::{Cell, Section, Sheet, Table, any, nothing},
};

/// The heads of the table.
const COLUMNS: [&str; 6] = [">Runs", "Latest", "Workflow", "Step", "Error", "Latest runs"];

/// The most workflows of a narrow key that are asked for one by one.
const NARROW_MAX: usize = 32;

/// A page of the groups; for a key for some workflows, the latest groups of each.
pub fn list(cursor: Option<&str>, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    if let Some(only) = viewer.may.only_workflows() {
        let mut sheet = Sheet::new("Failures");
        for name in only.iter().take(NARROW_MAX) {
            if let Ok(list) = ask(Some(name), None, book) {
                sheet = sheet.with(Section::table(name, table(&list)).note(note(&list)));
            }
        }
        return Ok(sheet);
    }
    let list = ask(None, cursor, book)?;
    let next = list.next.clone().map(|next| Place::Failures { cursor: Some(next) });
    let table = table(&list).pages(cursor.is_some(), Place::Failures { cursor: None }, next);
    Ok(Sheet::new("Failures").with(Section::table("", table).note(note(&list))))
}

/// What the API says of the failures of a workflow, or of all.
pub fn ask(workflow: Option<&str>, cursor: Option<&str>, book: &mut Book) -> Result<FailureList, Stop> {
    book.ask(&query(path(Route::ListFailures, &[]), &[("workflow", workflow), ("cursor", cursor)]))
}

/// What people should know about the groups.
pub fn note(list: &FailureList) -> &'static str {
    if list.complete {
        "Runs that failed alike are one group, which is kept for 90 days after its last failure, longer than its runs."
    } else {
        "A cell did not answer: failures are missing here. Refresh the page."
    }
}

/// The groups, the one that failed last first.
pub fn table(list: &FailureList) -> Table {
    Table::new(&COLUMNS, list.failures.iter().map(row).collect())
        .or("No run has failed in the last 90 days.", "")
}

fn row(group: &Failure) -> Vec<Cell> {
    let code = group.code.clone().map(Cell::Label);
    let mut error = vec![Cell::Text(group.message.clone())];
    error.extend(code);
    let runs: Vec<_> = group.runs.iter().cloned().map(Cell::Run).collect();
    vec![
        group.count.into(),
        Cell::Ago(group.last_at),
        workflow_link(&group.workflow),
        any(group.step.clone()),
        Cell::Many(error),
        if runs.is_empty() { nothing() } else { Cell::Many(runs) },
    ]
}
