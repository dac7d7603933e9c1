//! Lanes: who works, who waits for what, and the limits that somebody has set.

use stepwell_protocol::{
    lane::{LaneView, SetLimit},
    manifest::WorkflowView,
    rest::WorkflowList,
    routes::Route,
};

use super::{Viewer, limits, names, query, workflow_link};
use crate::{
    book::{Book, Stop},
    form::{Action, Field, Kind, short_span},
    may::path,
    place::Place,
    sheet::{Body, Cell, Find, Section, Sheet, Sought, Table, nothing},
};

/// How many of a lane are on a page.
pub const PAGE: &str = "100";

/// The lanes: of workflows with limits, and of steps.
pub fn list(book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<WorkflowList>(&path(Route::ListWorkflows, &[]));
    let (steps, has_more) = names(Route::ListStepLanes, book)?;
    let list = list?;
    let row = |view: &WorkflowView| {
        let flow = view.declared.flow.as_deref()?;
        let declared = flow.limits.iter().map(limits::declared).collect::<Vec<_>>().join(", ");
        Some(vec![
            workflow_link(&view.declared.name),
            Cell::Text(declared),
            flow.lane.clone().map_or_else(nothing, Cell::Text),
        ])
    };
    let of_workflows = Table::new(
        &["Workflow", "Limits in code", "Shared lane"],
        list.workflows.iter().filter_map(row).collect(),
    )
    .or("No workflow declares limits, such as #[workflow(concurrency = 10)].", "");
    let of_steps = steps.iter().map(|name| vec![Cell::Link(Place::lane(name), name.clone())]);
    let of_steps = Table::new(&["Lane"], of_steps.collect())
        .or("There are no lanes of steps, such as ctx.step(…).lane(\"openai\", key).limit(5).", "");
    let note = if has_more { "There are more. Open one by its name." } else { "" };
    let find = Find { label: "Lane of steps", example: "openai", button: "Show lane", of: Sought::Lane };
    Ok(Sheet::new("Lanes")
        .with(Section::table("Lanes of workflows", of_workflows))
        .with(
            Section::new("Open a lane of steps", Body::Find(find))
                .note("By the name that the code gives to .lane(…). A run that waits in one names it."),
        )
        .with(Section::table("Lanes of steps", of_steps).note(note)))
}

/// One lane of steps.
pub fn one(name: &str, cursor: Option<&str>, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let asked = query(path(Route::ShowStepLane, &[name]), &[("limit", Some(PAGE)), ("cursor", cursor)]);
    let lane = book.ask::<LaneView>(&asked)?;
    let mut sheet = Sheet::new(name).below(Place::Lanes, "Lanes");
    let pages = |cursor| Place::Lane { name: name.to_owned(), cursor };
    for section in sections(&lane, Route::SetStepLimit, name, pages, cursor.is_some(), viewer) {
        sheet = sheet.with(section);
    }
    Ok(sheet)
}

/// The sections of a lane. `change` is the route that sets its limits, of this name.
pub fn sections(
    lane: &LaneView,
    change: Route,
    name: &str,
    pages: impl Fn(Option<String>) -> Place,
    is_later: bool,
    viewer: &Viewer,
) -> Vec<Section> {
    let (working, waiting): (Vec<_>, Vec<_>) = lane.runs.iter().partition(|run| run.waits_for.is_none());
    let row = |run: &&stepwell_protocol::lane::LaneRun| {
        let who = match &run.step {
            Some(step) => Cell::Many(vec![Cell::Run(run.run.to_string()), Cell::Label(step.clone())]),
            None => Cell::Run(run.run.to_string()),
        };
        let words = match &run.waits_for {
            Some(limit) => limits::in_effect(limit),
            None => run.limits.iter().map(limits::in_effect).collect::<Vec<_>>().join(", "),
        };
        vec![who, Cell::Ago(run.since), Cell::Text(words)]
    };
    let hold = Table::new(&["Run", "Since", "Limits"], working.iter().map(row).collect())
        .or("Nobody holds a place.", "");
    let wait = Table::new(&["Run", "Since", "Waits for"], waiting.iter().map(row).collect())
        .or("Nobody waits.", "")
        .pages(is_later, pages(None), lane.next.clone().map(|next| pages(Some(next))));
    let count =
        |count: usize| if lane.next.is_some() || is_later { String::new() } else { format!(" ({count})") };
    let set_rows = lane.set.iter().map(|limit| set_row(limit, change, name, viewer)).collect();
    let set = Section::table(
        "Limits set by hand",
        Table::new(&["For", "Limit", "Set by", "When", ""], set_rows)
            .or("No limit was changed: those of the code apply.", ""),
    )
    .act(change_limit(change, name, None, viewer));
    let mut sections = vec![
        Section::table(&format!("Working{}", count(working.len())), hold),
        Section::table(&format!("Waiting{}", count(waiting.len())), wait),
    ];
    // The API tells them on the first page only.
    if !is_later {
        sections.push(set);
    }
    sections
}

/// What is said where a lane may not be seen.
pub fn hidden() -> Section {
    Section::new("Lane", Body::Nothing)
        .note("This lane is shared with other workflows. A key that can read the whole namespace sees it.")
}

fn set_row(limit: &SetLimit, change: Route, name: &str, viewer: &Viewer) -> Vec<Cell> {
    let reset = viewer
        .may
        .act(change, &[name], "Reset", "The limit that the code declares applies again.")
        .map(|action| {
            let action = action.titled("Reset this limit").fixed("max", "null");
            with_target(action, limit)
        });
    let actions: Vec<_> = change_limit(change, name, Some(limit), viewer).into_iter().chain(reset).collect();
    vec![
        Cell::Text(limits::set_for(limit)),
        Cell::Text(limits::set_to(limit)),
        Cell::Text(limit.set_by.clone()),
        Cell::Ago(limit.set_at),
        if actions.is_empty() { nothing() } else { Cell::Actions(actions) },
    ]
}

fn with_target(action: Action, limit: &SetLimit) -> Action {
    let mut action = action.fixed("by", crate::form::json_text(&limit.by));
    if let Some(key) = &limit.key {
        action = action.fixed("key", crate::form::json_text(key));
    }
    match limit.per_ms {
        Some(ms) => action.fixed("per_ms", ms),
        None => action,
    }
}

fn change_limit(route: Route, name: &str, known: Option<&SetLimit>, viewer: &Viewer) -> Option<Action> {
    let explained = "The number applies at once, and a deploy does not change it. 0 lets in nobody.";
    let label = if known.is_some() { "Change" } else { "Change a limit" };
    let action = viewer.may.act(route, &[name], label, explained)?.titled("Change a limit");
    let max = Field::of_body("max", "Limit", Kind::Number).required();
    if let Some(limit) = known {
        let action = action.titled(format!("Change the limit for {}", limits::set_for(limit)));
        return Some(with_target(action, limit).field(max.with(limit.max)));
    }
    let is_of_steps = route == Route::SetStepLimit;
    let by = Field::of_body("by", "Which limit", Kind::Text).hint(if is_of_steps {
        "Write key for the limit of each key. Leave it empty for the limit of all steps."
    } else {
        "The key's expression as the code has it, such as input.customer. Leave it empty for the limit of the \
         whole workflow."
    });
    Some(
        action
            .field(by)
            .field(
                Field::of_body("key", "For this key only", Kind::Text)
                    .hint("Such as acme. Leave it empty for all keys."),
            )
            .field(
                Field::of_body("per_ms", "Time of a rate", Kind::Span)
                    .hint(&format!("Only for a rate, as the code has it, such as {}.", short_span(60_000))),
            )
            .field(max),
    )
}
