//! The pages that are made of tables, facts and actions: each is a function of the API's answers.
//!
//! Owns: which answers each page asks for, and what is said on it. A page asks for what its viewer may see, and has the
//! actions that the viewer may do.

mod access;
mod alerts;
mod cells;
mod failures;
mod flat;
mod lanes;
mod limits;
mod metrics;
mod outbox;
mod queues;
mod schedules;
mod settings;
mod topics;
mod webhooks;
mod workflows;

use serde::Serialize;
use stepwell_protocol::{
    Timestamp,
    rest::{RunList, RunView, Status},
    routes::Route,
};

use flat::Names;

use crate::{
    book::{Book, Refused, Stop},
    filter::Filter,
    may::{May, path},
    place::{Place, encoded},
    sheet::{Cell, Sheet, nothing},
};

pub use workflows::start;

/// How many pages of names are shown together: 500 names.
const NAME_PAGES_MAX: usize = 5;

/// Who looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewer {
    /// What they may do.
    pub may: May,
    /// The time.
    pub now: Timestamp,
}

/// The page of a place. Runs have views of their own.
pub fn sheet(place: &Place, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    match place {
        Place::Workflows => workflows::list(viewer, book),
        Place::Workflow { name, lane } => workflows::one(name, lane.as_deref(), viewer, book),
        Place::Schedules { after } => schedules::list(after.as_deref(), viewer, book),
        Place::Schedule(id) => schedules::one(id, viewer, book),
        Place::Topics => topics::list(viewer, book),
        Place::Topic { topic, before } => topics::one(topic, before, viewer, book),
        Place::Event(topic, id) => topics::event(topic, id, viewer, book),
        Place::Trigger(topic, id) => topics::trigger(topic, id, viewer, book),
        Place::Webhook(topic, id) => webhooks::one(topic, id, viewer, book),
        Place::Delivery(topic, id, number) => webhooks::delivery(topic, id, number, viewer, book),
        Place::Lanes => lanes::list(book),
        Place::Lane { name, cursor } => lanes::one(name, cursor.as_deref(), viewer, book),
        Place::Queues { after } => queues::list(after.as_deref(), viewer, book),
        Place::Queue { name, cursor } => queues::one(name, cursor, viewer, book),
        Place::Job(queue, id) => queues::job(queue, id, viewer, book),
        Place::Outbox { cursor } => outbox::list(cursor.as_deref(), viewer, book),
        Place::Metrics { workflow, minutes } => metrics::page(workflow.as_deref(), *minutes, viewer, book),
        Place::Failures { cursor } => failures::list(cursor.as_deref(), viewer, book),
        Place::Cells => cells::list(viewer, book),
        Place::Alerts => alerts::list(viewer, book),
        Place::Keys => access::keys(viewer, book),
        Place::Sessions => access::sessions(viewer, book),
        Place::Namespaces => access::namespaces(viewer, book),
        Place::Namespace(name) => access::namespace(name, viewer, book),
        Place::Settings => settings::page(viewer, book),
        Place::Audit { before } => settings::audit(before.as_deref(), book),
        Place::Runs { .. } | Place::Run { .. } | Place::Nowhere => {
            Err(Stop::Refused(Refused { status: 404, words: "There is no such page.".into() }))
        }
    }
}

/// A link to the runs of a workflow, all or in one status.
fn runs_of(workflow: &str, status: Option<Status>, text: impl Into<String>) -> Cell {
    let filter = Filter { workflow: Some(workflow.to_owned()), ..Filter::default() }.with_status(status);
    Cell::Link(Place::Runs { filter: filter.text() }, text.into())
}

/// A link to a workflow.
fn workflow_link(name: &str) -> Cell {
    Cell::Link(Place::workflow(name), name.to_owned())
}

/// The path of the latest runs of a workflow.
fn latest_runs(workflow: &str, rest: &str) -> String {
    format!("/api/executions?workflow={}{rest}", encoded(workflow))
}

/// Runs in a table: which, how they stand, when they were accepted, and what went wrong.
fn run_rows(runs: &RunList) -> Vec<Vec<Cell>> {
    runs.executions.iter().map(run_row).collect()
}

fn run_row(run: &RunView) -> Vec<Cell> {
    vec![
        Cell::Run(run.id.to_string()),
        Cell::Status(run.status),
        Cell::Ago(run.created_at),
        what_went_wrong(run).map_or_else(nothing, Cell::Text),
    ]
}

/// The heads of such a table.
const RUN_COLUMNS: [&str; 4] = ["Run", "Status", "Started", "Error"];

/// What went wrong in a run, in a line.
fn what_went_wrong(run: &RunView) -> Option<String> {
    let error = run.error.as_ref().map(|error| error.message.clone());
    let problem = run.problem.as_ref().map(|problem| format!("{}: {}", problem.title, problem.detail));
    let last = run.last_error.as_ref();
    match (error, last) {
        (Some(message), Some(last)) => Some(format!("{} (attempt {}): {message}", last.step, last.attempt)),
        (Some(message), None) => Some(message),
        (None, last) => problem.or_else(|| last.map(|last| format!("{}: {}", last.step, last.message))),
    }
}

/// The names that a route lists, as far as a page shows them, and whether there are more.
fn names(route: Route, book: &mut Book) -> Result<(Vec<String>, bool), Stop> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    for _ in 0..NAME_PAGES_MAX {
        let page: Names = book.ask(&query(path(route, &[]), &[("after", after.as_deref())]))?;
        all.extend(page.names);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok((all, after.is_some()))
}

/// The word that a value has in JSON.
fn word_of(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    json.trim_matches('"').replace('_', " ")
}

/// A query with the parameters that have a value.
fn query(path: String, parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = path;
    let mut mark = '?';
    for (name, value) in parameters {
        if let Some(value) = value {
            query = format!("{query}{mark}{name}={}", encoded(value));
            mark = '&';
        }
    }
    query
}

#[cfg(test)]
mod tests;
