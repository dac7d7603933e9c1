//! The settings and limits of the namespace, and who has changed what.

use stepwell_protocol::{
    access::{AuditPage, AuditRecord, Limits, RunSettings},
    routes::Route,
    span,
};

use super::{Viewer, flat::Settings, query, workflow_link, workflows::setting_fields};
use crate::{
    book::{Book, Stop},
    json,
    may::path,
    place::Place,
    sheet::{Cell, Facts, Section, Sheet, Table, any, grouped, nothing},
};

/// The settings.
pub fn page(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let settings = book.ask::<Settings>(&path(Route::ShowSettings, &[]))?;
    let explained = "They apply to new runs whose workflow says nothing else.";
    let set = viewer.may.act(Route::SetSettings, &[], "Change", explained);
    let set = set.map(|it| it.titled("Change the settings for runs").fields(setting_fields(&settings.runs)));
    let row = |(name, own): (&String, &RunSettings)| {
        let explained = "They take precedence over the code, and apply to new runs.";
        let change = viewer.may.act(Route::SetWorkflowSettings, &[name], "Change", explained);
        let change =
            change.map(|it| it.titled(format!("Change the settings of {name}")).fields(setting_fields(own)));
        let explained = "What the code declares applies again.";
        let remove = viewer.may.act(Route::RemoveWorkflowSettings, &[name], "Remove", explained);
        let remove = remove.map(|it| it.titled(format!("Remove the settings of {name}")).grave());
        let actions: Vec<_> = change.into_iter().chain(remove).collect();
        vec![
            workflow_link(name),
            any(own.timeout_ms.map(span::in_words)),
            any(own.retention_ms.map(kept)),
            any(own.payload_bytes_max.map(bytes)),
            if actions.is_empty() { nothing() } else { Cell::Actions(actions) },
        ]
    };
    let table = Table::new(
        &["Workflow", "Timeout", "Kept after the end", "Largest payload", ""],
        settings.workflows.iter().map(row).collect(),
    )
    .or(
        "No workflow has settings of its own. Set some:",
        "stepwell settings set --workflow greet --timeout 10m",
    );
    Ok(Sheet::new("Settings")
        .with(Section::facts("For all runs", of_runs(&settings.runs)).act(set))
        .with(Section::table("For single workflows", table))
        .with(
            Section::facts("Limits of the namespace", limits(settings.limits))
                .note("Only the deployment's own key can change them."),
        ))
}

fn kept(ms: u64) -> String {
    if ms == 0 { "forever".into() } else { span::in_words(ms) }
}

fn bytes(bytes: u32) -> String {
    json::size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Settings for runs, as facts.
pub fn of_runs(settings: &RunSettings) -> Facts {
    Facts::default()
        .add("Timeout", any(settings.timeout_ms.map(span::in_words)))
        .add("Kept after the end", any(settings.retention_ms.map(kept)))
        .add("Largest payload", any(settings.payload_bytes_max.map(bytes)))
}

/// Limits of a namespace, as facts.
pub fn limits(limits: Limits) -> Facts {
    let number =
        |number: Option<u32>| number.map_or_else(|| "no limit".to_owned(), |it| grouped(u64::from(it)));
    let size = |number: Option<u32>| number.map_or_else(|| "no limit".to_owned(), bytes);
    Facts::default()
        .add("Requests per second", number(limits.requests_per_second))
        .add("Payloads per second", size(limits.payload_bytes_per_second))
        .add("Runs that have not ended", number(limits.live_runs))
        .add("Largest payload", size(limits.payload_bytes_max))
}

/// A page of the audit log.
pub fn audit(before: Option<&str>, book: &mut Book) -> Result<Sheet, Stop> {
    let page = book.ask::<AuditPage>(&query(path(Route::Audit, &[]), &[("before", before)]))?;
    let row = |record: &AuditRecord| {
        vec![
            Cell::At(record.at),
            Cell::Text(record.actor.clone()),
            Cell::Text(record.action.replace('_', " ")),
            Cell::Text(record.subject.clone()),
            any(record.detail.clone()),
        ]
    };
    let table = Table::new(&["When", "Who", "Did", "To", "Detail"], page.records.iter().map(row).collect())
        .or("No entries.", "")
        .pages(
            before.is_some(),
            Place::Audit { before: None },
            page.next.map(|next| Place::Audit { before: Some(next.to_string()) }),
        );
    let refused = Facts::default()
        .add("Invalid keys, sessions and tokens", page.refused.unauthorized)
        .add("Missing scopes", page.refused.forbidden)
        .add("Beyond a limit", page.refused.limit_reached)
        .add_any("Since", page.refused.since);
    Ok(Sheet::new("Audit log")
        .with(Section::table("", table))
        .with(Section::facts("Refused requests", refused).note("Counted by the catalog, without entries.")))
}
