//! What has happened in the last minutes: charts, and a table of the same.

use stepwell_protocol::{Timestamp, routes::Route, sorting::sort_by, totals::Totals};

use super::{
    Viewer,
    flat::{MinuteList, WorkflowTotals, WorkflowTotalsList},
    query, workflow_link,
};
use crate::{
    book::{Book, Stop},
    chart::{COLUMNS_MAX, Chart, Series},
    may::path,
    number::fixed,
    place::Place,
    sheet::{Body, Cell, Facts, Find, Section, Sheet, Sought, Table, Tone, any, length, nothing},
};

const MINUTE_MS: u64 = 60_000;

/// About so many rows has the table.
const ROWS: u32 = 96;

/// The metrics of a workflow, or of all.
pub fn page(workflow: Option<&str>, minutes: u32, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    // A key for some workflows sees the metrics of one of them at a time.
    let only = viewer.may.only_workflows();
    let first = only.as_ref().and_then(|only| only.first().cloned());
    let workflow = workflow.map(str::to_owned).or(first);
    let workflow = workflow.as_deref();
    let columns = u32::try_from(COLUMNS_MAX).unwrap_or(u32::MAX);
    let minutes = minutes.clamp(1, columns);
    let list = book.ask::<MinuteList>(&query(
        path(Route::ListMinutes, &[]),
        &[("workflow", workflow), ("minutes", Some(&minutes.to_string()))],
    ));
    let totals = book.maybe::<WorkflowTotalsList>(&query(
        path(Route::ListTotals, &[]),
        &[("workflow", workflow), ("minutes", Some(&minutes.to_string()))],
    ));
    let list = list?;
    let by_minute = by_minute(&list, minutes, viewer.now);
    let begin = first_minute(minutes, viewer.now);
    let span = (begin, begin.plus_millis(u64::from(minutes) * MINUTE_MS));
    let series = |name, tone, read: fn(&Totals) -> u64| Series {
        name,
        tone,
        values: by_minute.iter().map(read).collect(),
    };
    let chart = |title: &str, series: &[Series]| Section::new(title, Body::Chart(Chart::of(span, series)));
    let other = |minutes: u32, text: &str| {
        let place = Place::Metrics { workflow: workflow.map(str::to_owned), minutes };
        Cell::Link(place, text.to_owned())
    };
    let subject = workflow.map_or_else(|| "all".into(), workflow_link);
    let about = Facts::default()
        .add("Workflow", subject)
        .add("Show", Cell::Many(vec![other(60, "1 hour"), other(360, "6 hours"), other(1_440, "24 hours")]));
    let find = Find {
        label: "Workflow",
        example: "all workflows",
        button: "Show metrics",
        of: Sought::Metrics(minutes),
    };
    let note =
        if list.complete { "" } else { "A cell did not answer: the figures are too low. Refresh the page." };
    Ok(Sheet::new("Metrics")
        .with(Section::facts("", about).note(note))
        .with(Section::new("Other workflow", Body::Find(find)))
        .with(chart("Runs started", &[series("started", Tone::Quiet, |it| it.started)]))
        .with(chart(
            "Runs ended",
            &[
                series("completed", Tone::Good, |it| it.completed),
                series("failed", Tone::Bad, |it| it.failed),
                series("cancelled", Tone::Quiet, |it| it.cancelled),
            ],
        ))
        .with(chart(
            "Steps",
            &[
                series("succeeded", Tone::Good, |it| it.steps),
                series("retried", Tone::Held, |it| it.retries),
                series("failed", Tone::Bad, |it| it.steps_failed),
            ],
        ))
        .with_any(totals.map(|totals| by_workflow(&totals)))
        .with(table(&by_minute, begin)))
}

/// What each workflow has done, and what it costs, the dearest first.
fn by_workflow(list: &WorkflowTotalsList) -> Section {
    let mut workflows: Vec<_> = list.workflows.iter().collect();
    sort_by(&mut workflows, |a, b| b.dollars.total_cmp(&a.dollars));
    let row = |of: &&WorkflowTotals| {
        vec![
            workflow_link(&of.workflow),
            of.totals.started.into(),
            of.totals.completed.into(),
            of.totals.failed.into(),
            any(of.p50_ms.map(length)),
            any(of.p95_ms.map(length)),
            of.totals.rows.into(),
            Cell::Text(format!("${}", fixed(of.dollars, 6))),
        ]
    };
    let columns = ["Workflow", ">Started", ">Completed", ">Failed", ">p50", ">p95", ">Rows", ">Cost"];
    let table =
        Table::new(&columns, workflows.iter().map(row).collect()).or("No workflow has done anything.", "");
    let note = if list.complete {
        "Costs are list prices of rows and requests, without what your plan includes. p50 and p95 are estimates of how long \
         runs take."
    } else {
        "A cell did not answer: the figures are too low. Refresh the page."
    };
    Section::table("By workflow", table).note(note)
}

/// When the first of the last minutes begins.
fn first_minute(minutes: u32, now: Timestamp) -> Timestamp {
    let last = now.as_millis() / MINUTE_MS;
    Timestamp::from_millis((last + 1).saturating_sub(u64::from(minutes)) * MINUTE_MS)
}

/// The figures of each of the last minutes, also of those in which nothing has happened.
fn by_minute(list: &MinuteList, minutes: u32, now: Timestamp) -> Vec<Totals> {
    let begin = first_minute(minutes, now).as_millis();
    let mut all = vec![Totals::default(); usize::try_from(minutes).unwrap_or(0)];
    for minute in &list.minutes {
        let index = minute.at.as_millis().checked_sub(begin).map(|ms| ms / MINUTE_MS);
        let slot = index.and_then(|index| all.get_mut(usize::try_from(index).ok()?));
        if let Some(slot) = slot {
            slot.add(&minute.totals());
        }
    }
    all
}

/// The same in numbers, newest first, without times in which nothing has happened.
fn table(by_minute: &[Totals], begin: Timestamp) -> Section {
    let rows_max = usize::try_from(ROWS).unwrap_or(usize::MAX);
    let each = by_minute.len().div_ceil(rows_max).max(1);
    let mut rows = Vec::new();
    for (index, minutes) in by_minute.chunks(each).enumerate().rev() {
        let mut totals = Totals::default();
        for minute in minutes {
            totals.add(minute);
        }
        if totals == Totals::default()
            || totals.started + totals.activations + totals.steps + ended(&totals) == 0
        {
            continue;
        }
        let at = begin.plus_millis((index * each) as u64 * MINUTE_MS);
        rows.push(vec![
            Cell::At(at),
            totals.started.into(),
            totals.completed.into(),
            totals.failed.into(),
            totals.cancelled.into(),
            totals.steps.into(),
            totals.retries.into(),
            totals.steps_failed.into(),
            mean(&totals).map_or_else(nothing, length),
        ]);
    }
    let columns = [
        "From",
        ">Started",
        ">Completed",
        ">Failed",
        ">Cancelled",
        ">Steps",
        ">Retries",
        ">Steps failed",
        ">Mean run",
    ];
    let table = Table::new(&columns, rows)
        .or("Nothing has happened in this time. Start a run:", "stepwell start greet '\"Ada\"'");
    let note = match each {
        1 => "A row for each minute in which something has happened.".to_owned(),
        each => format!("A row for every {each} minutes in which something has happened."),
    };
    Section::table("In numbers", table).note(note)
}

fn ended(totals: &Totals) -> u64 {
    totals.completed + totals.failed + totals.cancelled
}

/// How long runs took on average.
fn mean(totals: &Totals) -> Option<u64> {
    let count: u64 = totals.run_ms.counts.iter().sum();
    totals.run_ms.sum_ms.checked_div(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_has_its_column_and_what_is_older_has_none() {
        let now = Timestamp::from_millis(100 * MINUTE_MS + 7);
        let minute = |at: u64| {
            format!(
                r#"{{"at":{},"started":1,"completed":1,"run_ms":{{"counts":[1],"sum_ms":40}}}}"#,
                at * MINUTE_MS
            )
        };
        let minutes: Vec<_> = [90, 91, 100].map(minute).to_vec();
        let text = format!(r#"{{"minutes":[{}],"complete":true}}"#, minutes.join(","));
        let list: MinuteList = serde_json::from_str(&text).expect("it is a list");
        let all = by_minute(&list, 10, now);
        assert_eq!(
            all.iter().map(|minute| minute.started).collect::<Vec<_>>(),
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(first_minute(10, now).as_millis(), 91 * MINUTE_MS);
        let Body::Table(table) = table(&all, first_minute(10, now)).body else { panic!("it is a table") };
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.rows[0][0], Cell::At(Timestamp::from_millis(100 * MINUTE_MS)));
        assert_eq!(table.rows[0][8], Cell::Text("40 ms".into()));
    }

    #[test]
    fn a_day_has_a_table_that_can_be_read() {
        let all = vec![Totals { started: 1, ..Totals::default() }; 1_440];
        let Body::Table(table) = table(&all, Timestamp::default()).body else { panic!("it is a table") };
        assert_eq!(table.rows.len(), 96);
    }
}
