//! The schedules, and one of them.

use stepwell_protocol::{
    rest::RunList,
    routes::Route,
    schedule::{CatchUp, NextTicks, Overlap, ScheduleList, ScheduleSpec, ScheduleView},
    span,
};

use super::{RUN_COLUMNS, Viewer, latest_runs, query, run_row, word_of, workflow_link};
use crate::{
    book::{Book, Stop},
    form::{Action, Field, Kind, Then, json_text, short_instant, words},
    may::path,
    place::Place,
    sheet::{Body, Cell, Facts, Section, Sheet, Table, Tone, any, labels},
};

/// How many schedules a page has.
const PAGE: &str = "50";

/// A page of the schedules.
pub fn list(after: Option<&str>, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<ScheduleList>(&query(
        path(Route::ListSchedules, &[]),
        &[("limit", Some(PAGE)), ("after", after)],
    ))?;
    let row = |schedule: &ScheduleView| {
        let (tone, word) = standing(schedule);
        vec![
            Cell::Link(Place::Schedule(schedule.id.clone()), schedule.id.clone()),
            workflow_link(&schedule.spec.workflow),
            Cell::Mono(schedule.spec.when.clone()),
            Cell::State(tone, word),
            any(schedule.next_tick),
        ]
    };
    let table = Table::new(
        &["Schedule", "Workflow", "When", "State", "Next tick"],
        list.schedules.iter().map(row).collect(),
    )
    .or(
        "There are no schedules. Declare one in code, or create one:",
        "stepwell schedules set nightly report 'every weekday at 9:00'",
    )
    .pages(
        after.is_some(),
        Place::Schedules { after: None },
        list.next.clone().map(|next| Place::Schedules { after: Some(next) }),
    );
    let section = Section::table("", table).note(unreadable(&list.unreadable));
    let create = viewer.may.act(Route::PutSchedule, &[], "Create a schedule", "");
    let create = create.map(|action| {
        action
            .field(Field::of_path("Id").hint("A name of your choice. A schedule with this id is replaced."))
            .fields(spec_fields(&ScheduleSpec::new("", "")))
    });
    Ok(Sheet::new("Schedules").act(create).with(section))
}

/// What is said of rows that a later release has written.
pub fn unreadable(ids: &[String]) -> String {
    if ids.is_empty() {
        return String::new();
    }
    format!("This release cannot read {}. Deploy the release that stored them.", ids.join(", "))
}

/// One schedule.
pub fn one(id: &str, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let view = book.ask::<ScheduleView>(&path(Route::ShowSchedule, &[id]));
    let next = book.maybe::<NextTicks>(&path(Route::NextTicks, &[id]));
    let view = view?;
    let runs = book.maybe::<RunList>(&latest_runs(&view.spec.workflow, "&limit=100"));
    let (tone, word) = standing(&view);
    let mut sheet = Sheet::new(id)
        .below(Place::Schedules { after: None }, "Schedules")
        .stands(tone, word)
        .act(trigger(&view, viewer))
        .act(pause_or_resume(&view, viewer))
        .act(edit(&view, viewer))
        .act(backfill(&view, viewer))
        .act(delete(&view, viewer));
    let why = view.paused.as_ref().and_then(|paused| paused.why.clone());
    let problem = view.problem.as_ref().map(|problem| (problem.title.clone(), problem.detail.clone()));
    sheet.wrong = problem.or_else(|| why.map(|why| ("Paused by Stepwell".to_owned(), why)));
    let ticks = next.map(|next| next.ticks).unwrap_or_default();
    let ticks =
        Table::new(&["Tick", "In"], ticks.iter().map(|at| vec![Cell::At(*at), Cell::Ago(*at)]).collect())
            .or("It does not tick any more.", "");
    let by = format!("schedule:{id}");
    let own = runs.iter().flat_map(|runs| &runs.executions);
    let own = own.filter(|run| run.started_by.as_deref() == Some(&by)).take(20);
    let own = Table::new(&RUN_COLUMNS, own.map(run_row).collect())
        .or("None of the latest 100 runs of the workflow was started by this schedule.", "");
    Ok(sheet
        .with(about(&view))
        .with(Section::table("Next ticks", ticks))
        .with(Section::table("Latest runs", own))
        .with(ticked(&view))
        .with(Section::new(
            "Input",
            Body::Payload(view.spec.input.text().to_owned(), format!("{id}-input.json")),
        ))
        .with_any(declared(&view)))
}

/// How a schedule stands.
pub fn standing(schedule: &ScheduleView) -> (Tone, String) {
    let is_retired = schedule.declared.as_ref().is_some_and(|declared| declared.retired_at.is_some());
    match (&schedule.paused, &schedule.problem) {
        _ if is_retired => (Tone::Quiet, "retired".into()),
        (Some(paused), _) => (Tone::Held, format!("paused by {}", paused.by)),
        (None, Some(problem)) => (Tone::Bad, problem.title.clone()),
        (None, None) if schedule.next_tick.is_none() => (Tone::Quiet, "over".into()),
        (None, None) => (Tone::Good, "active".into()),
    }
}

fn about(view: &ScheduleView) -> Section {
    let spec = &view.spec;
    let jitter = (spec.jitter_ms > 0).then(|| format!("up to {}", span::in_words(spec.jitter_ms)));
    let pauses = spec.pause_after_failures.map(|count| format!("{count} failed runs in a row"));
    let facts = Facts::default()
        .add("Workflow", workflow_link(&spec.workflow))
        .add("When", Cell::Mono(spec.when.clone()))
        .add_any("Time zone", spec.zone.clone())
        .add_any("Next run starts", view.next_start)
        .add_any("Not before", spec.starts_at)
        .add_any("Not after", spec.ends_at)
        .add_any("Except", (!spec.except.is_empty()).then(|| labels(&spec.except)))
        .add_any("Starts later by", jitter)
        .add("If a run is in progress", overlap(spec.overlap))
        .add("Missed ticks", catch_up(spec.catch_up))
        .add("Starts late by up to", span::in_words(spec.catch_up_ms))
        .add_any("Pauses after", pauses)
        .add_any("Tags", (!spec.tags.is_empty()).then(|| labels(&spec.tags)))
        .add("Changed by", view.changed_by.as_str())
        .add("Changed", view.changed_at);
    Section::facts("Schedule", facts)
}

fn ticked(view: &ScheduleView) -> Section {
    let counts = view.counts;
    let running = view.running.iter().take(20).map(|run| Cell::Run(run.to_string())).collect::<Vec<_>>();
    let last = view.last.as_ref().map(|last| Cell::Run(last.run.to_string()));
    let range = view
        .backfill
        .map(|range| Cell::Many(vec![Cell::At(range.from), Cell::Dim("to".into()), Cell::At(range.to)]));
    let facts = Facts::default()
        .add("Started", counts.started)
        .add("Skipped", counts.skipped)
        .add("Missed", counts.missed)
        .add("Refused", counts.refused)
        .add("Failed in a row", counts.failures)
        .add_any("Latest run", last)
        .add_any("In progress", (!running.is_empty()).then_some(Cell::Many(running)))
        .add_any("Backfill in progress", range);
    Section::facts("Ticks so far", facts)
}

fn declared(view: &ScheduleView) -> Option<Section> {
    let declared = view.declared.as_ref()?;
    let changed = if declared.changed { "An operator has changed the schedule." } else { "Unchanged." };
    let facts = Facts::default()
        .add("When", Cell::Mono(declared.spec.when.clone()))
        .add("Workflow", workflow_link(&declared.spec.workflow))
        .add_any("Removed from the code", declared.retired_at);
    Some(Section::facts("Declared in code", facts).note(changed))
}

fn overlap(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Allow => "start another run beside it",
        Overlap::Skip => "skip the tick",
        Overlap::QueueOne => "wait for its end; only the latest waiting tick starts",
        Overlap::QueueAll => "wait for its end; all waiting ticks start",
        Overlap::Cancel => "cancel it",
    }
}

fn catch_up(catch_up: CatchUp) -> &'static str {
    match catch_up {
        CatchUp::Last => "start the latest",
        CatchUp::All => "start all",
    }
}

fn trigger(view: &ScheduleView, viewer: &Viewer) -> Option<Action> {
    let explained = "A run starts now, also if the schedule is paused. Its ticks stay as they are.";
    viewer
        .may
        .act(Route::TriggerSchedule, &[&view.id], "Trigger now", explained)
        .map(|action| action.titled(format!("Trigger {}", view.id)))
}

fn pause_or_resume(view: &ScheduleView, viewer: &Viewer) -> Option<Action> {
    let action = if view.paused.is_some() {
        let explained = "The schedule ticks again. Ticks of the pause are not started.";
        viewer.may.act(Route::ResumeSchedule, &[&view.id], "Resume", explained)?
    } else {
        let explained = "The schedule does not tick until somebody resumes it, also after a deploy.";
        viewer.may.act(Route::PauseSchedule, &[&view.id], "Pause", explained)?
    };
    let title = format!("{} {}", action.label, view.id);
    Some(action.titled(title))
}

fn edit(view: &ScheduleView, viewer: &Viewer) -> Option<Action> {
    let explained =
        if view.declared.is_some() { "The schedule then follows your change, not the code." } else { "" };
    let action = viewer.may.act(Route::PutSchedule, &[&view.id], "Edit", explained)?;
    Some(action.titled(format!("Edit {}", view.id)).fields(spec_fields(&view.spec)))
}

fn backfill(view: &ScheduleView, viewer: &Viewer) -> Option<Action> {
    let explained = "A run starts for each tick of the range, one after the other, also for ticks that have started one \
                     before. A range has at most 366 days, and a backfill at most 10,000 runs.";
    let action = viewer.may.act(Route::BackfillSchedule, &[&view.id], "Backfill", explained)?;
    let hint = "In UTC, such as 2026-11-01T00:00.";
    Some(
        action
            .titled(format!("Backfill {}", view.id))
            .field(Field::of_body("from", "From", Kind::Instant).required().hint(hint))
            .field(Field::of_body("to", "To", Kind::Instant).required().hint(hint)),
    )
}

fn delete(view: &ScheduleView, viewer: &Viewer) -> Option<Action> {
    // The engine refuses to delete what the code declares.
    if view.declared.as_ref().is_some_and(|declared| declared.retired_at.is_none()) {
        return None;
    }
    let explained = "The schedule is deleted. Its runs continue. You cannot undo this.";
    let action = viewer.may.act(Route::DeleteSchedule, &[&view.id], "Delete", explained)?;
    let then = Then::Go(Place::Schedules { after: None });
    Some(action.titled(format!("Delete {}", view.id)).then(then).grave())
}

/// The fields of a schedule, which begin as this one is.
fn spec_fields(spec: &ScheduleSpec) -> Vec<Field> {
    let of = Field::of_body;
    let overlaps = [Overlap::Allow, Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll, Overlap::Cancel];
    let choice = |value: &str, label: &str| (json_text(value), label.to_owned());
    let overlaps = overlaps.map(|one| choice(&word_of(&one).replace(' ', "_"), overlap(one))).to_vec();
    let input = if spec.input.text() == "null" { String::new() } else { spec.input.text().to_owned() };
    vec![
        of("workflow", "Workflow", Kind::Text).required().with(&spec.workflow),
        of("when", "When", Kind::Text).required().with(&spec.when).hint(
            "A cron expression, 'every 5 minutes', 'every weekday at 9:00 in Europe/Berlin', or 'at \
             2026-12-01T09:00:00Z'.",
        ),
        of("zone", "Time zone", Kind::Text)
            .with_any(spec.zone.as_ref())
            .hint("Such as Europe/Berlin; UTC by default."),
        of("input", "Input, as JSON", Kind::Json).with(input),
        of("tags", "Tags", Kind::Lines).with(spec.tags.join("\n")).hint("One per line."),
        of("except", "Except", Kind::Lines)
            .with(spec.except.join("\n"))
            .hint("Days such as 2026-12-25 and cron expressions, one per line."),
        of("starts_at", "Not before", Kind::Instant)
            .with_any(spec.starts_at.map(short_instant))
            .hint("In UTC."),
        of("ends_at", "Not after", Kind::Instant).with_any(spec.ends_at.map(short_instant)).hint("In UTC."),
        of("jitter_ms", "Start later by up to", Kind::Span)
            .with_span((spec.jitter_ms > 0).then_some(spec.jitter_ms)),
        of("overlap", "If a run is in progress", Kind::Choice(overlaps))
            .required()
            .with(json_text(&word_of(&spec.overlap).replace(' ', "_"))),
        of("catch_up", "Missed ticks", words(&[("last", "start the latest"), ("all", "start all")]))
            .required()
            .with(json_text(&word_of(&spec.catch_up))),
        of("catch_up_ms", "Start late by up to", Kind::Span).with_span(Some(spec.catch_up_ms)),
        of("pause_after_failures", "Pause after failed runs in a row", Kind::Number)
            .with_any(spec.pause_after_failures),
    ]
}
