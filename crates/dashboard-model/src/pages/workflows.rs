//! The workflows, and one of them.

use std::collections::BTreeSet;

use stepwell_protocol::{
    access::RunSettings,
    lane::{Flow, Hold, LaneView, StartRule},
    manifest::{WorkflowStatus, WorkflowView},
    program::WorkflowDescription,
    rest::{RunList, Status, WorkflowList},
    routes::Route,
    schedule::ScheduleList,
    span,
    topic::TriggerList,
};

use super::{
    Viewer, failures, flat::FailureList, lanes, latest_runs, limits, query, runs_of, word_of, workflow_link,
};
use crate::{
    book::{Book, Stop},
    counts::Metrics,
    form::{Action, Field, Kind, Then},
    json,
    map::Map,
    may::path,
    place::{Place, encoded},
    schema,
    sheet::{Body, Cell, Facts, Section, Sheet, Table, Tone, grouped, nothing},
};

/// The most workflows of a narrow key that are asked for one by one.
const NARROW_MAX: usize = 32;

/// The most topics that triggers are looked for in.
const TOPICS_MAX: usize = 5;

/// All workflows that the viewer may see.
pub fn list(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let (views, counts) = match viewer.may.only_workflows() {
        None => {
            let list = book.ask::<WorkflowList>(&path(Route::ListWorkflows, &[]));
            let metrics = book.maybe::<Metrics>(&path(Route::ShowMetrics, &[]));
            (list?.workflows, metrics.map(|metrics| metrics.workflows).unwrap_or_default())
        }
        Some(names) => {
            let mut views = Vec::new();
            let mut counts = Map::default();
            for name in names.iter().take(NARROW_MAX) {
                views.extend(book.maybe::<WorkflowView>(&path(Route::ShowWorkflow, &[name])));
                let metrics = book.maybe::<Metrics>(&metrics_of(name));
                let of_it = metrics.and_then(|metrics| metrics.workflows.get(name).copied());
                counts.insert(name.clone(), of_it.unwrap_or_default());
            }
            (views, counts)
        }
    };
    let row = |view: &WorkflowView| {
        let name = &view.declared.name;
        let (tone, word) = standing(view);
        let mut row = vec![workflow_link(name), Cell::State(tone, word)];
        row.extend(Status::ALL.map(|status| {
            let count = counts.get(name).map_or(0, |counts| counts.of(status));
            if count == 0 { Cell::Dim(String::new()) } else { runs_of(name, Some(status), grouped(count)) }
        }));
        row
    };
    let table = Table::new(
        &[
            "Workflow",
            "State",
            ">pending",
            ">running",
            ">sleeping",
            ">waiting",
            ">paused",
            ">completed",
            ">failed",
            ">cancelled",
        ],
        views.iter().map(row).collect(),
    )
    .or(
        "The app has no workflows. Write one, add it with App::new().workflow(…), and deploy:",
        "stepwell deploy",
    );
    Ok(Sheet::new("Workflows").with(Section::table("", table)))
}

/// One workflow.
pub fn one(name: &str, cursor: Option<&str>, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let view = book.ask::<WorkflowView>(&path(Route::ShowWorkflow, &[name]));
    let metrics = book.maybe::<Metrics>(&metrics_of(name));
    let failed = failures::ask(Some(name), None, book).ok();
    let latest = book.maybe::<RunList>(&latest_runs(name, "&limit=50"));
    let sees_all = viewer.may.ask(Route::ListSchedules, None);
    let schedules = if sees_all { book.maybe::<ScheduleList>("/api/schedules?limit=100") } else { None };
    let topics = if sees_all { topics_of(latest.as_ref()) } else { BTreeSet::new() };
    let triggers: Vec<_> = topics
        .iter()
        .filter_map(|topic| book.maybe::<TriggerList>(&format!("/api/triggers?topic={}", encoded(topic))))
        .flat_map(|list| list.triggers)
        .filter(|trigger| trigger.spec.workflow == name)
        .collect();
    let view = view?;
    let flow = view.declared.flow.as_deref();
    let lane_path =
        query(path(Route::ShowLane, &[name]), &[("limit", Some(lanes::PAGE)), ("cursor", cursor)]);
    let lane = if flow.is_some() { book.maybe::<LaneView>(&lane_path) } else { None };
    let (tone, word) = standing(&view);
    let mut sheet = Sheet::new(name)
        .below(Place::Workflows, "Workflows")
        .stands(tone, word)
        .act(start(&view.declared, None, viewer))
        .act(pause_or_resume(&view, viewer))
        .with(counts(name, metrics.as_ref()))
        .with_any(failed.as_ref().map(failed_alike))
        .with(settings(&view, viewer))
        .with(declared(&view.declared));
    if let Some(lane) = &lane {
        let pages = |lane| Place::Workflow { name: name.to_owned(), lane };
        for section in lanes::sections(lane, Route::SetLimit, name, pages, cursor.is_some(), viewer) {
            sheet = sheet.with(section);
        }
    } else if flow.is_some() {
        sheet = sheet.with(lanes::hidden());
    }
    if sees_all {
        sheet = sheet.with(schedules_of(name, schedules.as_ref())).with(triggers_of(&triggers));
    }
    if let Some(schema) = &view.declared.input_schema {
        sheet = sheet.with(Section::new(
            "Schema of the input",
            Body::Payload(schema.text().to_owned(), format!("{name}.schema.json")),
        ));
    }
    Ok(sheet)
}

fn metrics_of(name: &str) -> String {
    query(path(Route::ShowMetrics, &[]), &[("workflow", Some(name))])
}

fn standing(view: &WorkflowView) -> (Tone, String) {
    match (view.status, &view.paused) {
        (WorkflowStatus::Active, _) => (Tone::Good, "active".into()),
        (WorkflowStatus::Paused, Some(paused)) => (Tone::Held, format!("paused by {}", paused.by)),
        (WorkflowStatus::Paused, None) => (Tone::Held, "paused".into()),
        (WorkflowStatus::Retired, _) => (Tone::Quiet, "retired".into()),
    }
}

/// Starting a run; `given` is the JSON that its input begins with.
pub fn start(declared: &WorkflowDescription, given: Option<&str>, viewer: &Viewer) -> Option<Action> {
    let name = &declared.name;
    let label = if given.is_some() { "Start again" } else { "Start a run" };
    let explained = "";
    let key = Field::of_header("idempotency-key", "Idempotency key")
        .hint("A repeat with the same key returns the same run, and starts no other one.");
    let key = if declared.key_required { key.required() } else { key };
    let delay = Field::of_header("stepwell-delay", "Start later")
        .hint("After a length of time, such as 2h, or at an instant, such as 2026-12-01T09:00:00Z.");
    let action = viewer.may.act(Route::StartRun, &[name], label, explained)?;
    Some(
        action
            .titled(format!("Start a run of {name}"))
            .fields(schema::fields(declared.input_schema.as_ref(), given))
            .field(key)
            .field(delay)
            .field(Field::of_query("tag", "Tag"))
            .then(Then::Run),
    )
}

fn pause_or_resume(view: &WorkflowView, viewer: &Viewer) -> Option<Action> {
    let name = view.declared.name.as_str();
    match view.status {
        WorkflowStatus::Active => {
            let explained = "New runs are refused until somebody resumes the workflow, also after a deploy. Runs that \
                             were started continue.";
            let action = viewer.may.act(Route::PauseWorkflow, &[name], "Pause", explained)?;
            Some(action.titled(format!("Pause {name}")))
        }
        WorkflowStatus::Paused => {
            let explained = "New runs are accepted again.";
            let action = viewer.may.act(Route::ResumeWorkflow, &[name], "Resume", explained)?;
            Some(action.titled(format!("Resume {name}")))
        }
        WorkflowStatus::Retired => None,
    }
}

fn counts(name: &str, metrics: Option<&Metrics>) -> Section {
    let counts = metrics.and_then(|metrics| metrics.workflows.get(name).copied()).unwrap_or_default();
    let total = counts.live() + counts.ended();
    let mut facts = Facts::default().add("all", runs_of(name, None, grouped(total)));
    for status in Status::ALL {
        let count = counts.of(status);
        if count > 0 {
            facts = facts.add(status.as_str(), runs_of(name, Some(status), grouped(count)));
        }
    }
    let metrics_link = Cell::Link(
        Place::Metrics { workflow: Some(name.to_owned()), minutes: crate::place::MINUTES_DEFAULT },
        "minute by minute".into(),
    );
    let is_counted = metrics.is_none_or(|metrics| metrics.complete);
    let note = if is_counted { "" } else { "Not all runs are counted yet. Refresh the page in a moment." };
    Section::facts("Runs", facts.add("Metrics", metrics_link)).note(note)
}

fn failed_alike(list: &FailureList) -> Section {
    Section::table("Failures", failures::table(list)).note(failures::note(list))
}

fn settings(view: &WorkflowView, viewer: &Viewer) -> Section {
    let declared = &view.declared;
    let name = declared.name.as_str();
    let (changed, effective) = (view.changed.unwrap_or_default(), view.effective);
    let time = |ms: Option<u64>| ms.map_or_else(nothing, |ms| Cell::Text(span::in_words(ms)));
    let kept = |ms: Option<u64>| match ms {
        Some(0) => Cell::Text("forever".into()),
        ms => time(ms),
    };
    let bytes = |bytes: Option<u32>| {
        bytes.map_or_else(nothing, |bytes| {
            Cell::Text(json::size(usize::try_from(bytes).unwrap_or(usize::MAX)))
        })
    };
    let rows = vec![
        vec![
            "Timeout".into(),
            time(declared.timeout_ms),
            time(changed.timeout_ms),
            time(effective.timeout_ms),
        ],
        vec![
            "Kept after the end".into(),
            kept(declared.retention_ms),
            kept(changed.retention_ms),
            kept(effective.retention_ms),
        ],
        vec![
            "Largest payload".into(),
            nothing(),
            bytes(changed.payload_bytes_max),
            bytes(effective.payload_bytes_max),
        ],
    ];
    let explained = "These settings take precedence over the code. They apply to new runs. Leave a field empty to use \
                     the code's value.";
    let change = viewer.may.act(Route::SetWorkflowSettings, &[name], "Change", explained);
    let change = change.map(|action| {
        action.titled(format!("Change the settings of {name}")).fields(setting_fields(&changed))
    });
    let remove = view.changed.and_then(|_| {
        let explained = "What the code declares applies again.";
        let action = viewer.may.act(Route::RemoveWorkflowSettings, &[name], "Remove changes", explained)?;
        Some(action.titled(format!("Remove the changed settings of {name}")).grave())
    });
    Section::table("Settings", Table::new(&["Setting", "Code", "Changed", "In effect"], rows))
        .act(change)
        .act(remove)
}

/// The fields of settings for runs.
pub fn setting_fields(settings: &RunSettings) -> Vec<Field> {
    vec![
        Field::of_body("timeout_ms", "Timeout", Kind::Span)
            .with_span(settings.timeout_ms)
            .hint("How long a run may take, such as 10m."),
        Field::of_body("retention_ms", "Kept after the end", Kind::Span)
            .with_span(settings.retention_ms)
            .hint("Such as 30d; 0s keeps runs forever."),
        Field::of_body("payload_bytes_max", "Largest payload, in bytes", Kind::Number)
            .with_any(settings.payload_bytes_max),
    ]
}

fn declared(declared: &WorkflowDescription) -> Section {
    let mut facts = Facts::default()
        .add("Calls", word_of(&declared.dispatch))
        .add("Idempotency key", if declared.key_required { "required" } else { "optional" })
        .add_any("Callback", declared.callback.clone());
    if let Some(flow) = declared.flow.as_deref() {
        facts = facts_of_flow(facts, flow);
    }
    Section::facts("Declared in code", facts)
}

fn facts_of_flow(mut facts: Facts, flow: &Flow) -> Facts {
    for limit in &flow.limits {
        facts = facts.add("Limit", limits::declared(limit));
    }
    let starts = flow.starts.as_ref().map(|rule| match rule {
        StartRule::Singleton { cancel: true, .. } => "one run at a time: a new start cancels it".to_owned(),
        StartRule::Singleton { cancel: false, .. } => {
            "one run at a time: other starts are skipped".to_owned()
        }
        StartRule::Debounce { wait_ms, .. } => {
            format!("one run for all starts within {} of each other", span::in_words(*wait_ms))
        }
        StartRule::Batch { max, wait_ms, .. } => {
            format!("one run for up to {max} starts within {}", span::in_words(*wait_ms))
        }
    });
    let key = flow.starts.as_ref().and_then(StartRule::key).map(str::to_owned);
    let hold = match flow.hold {
        Hold::Work => None,
        Hold::Run => Some("from the beginning to the end of a run"),
    };
    facts
        .add_any("Starts", starts)
        .add_any("Starts, by", key)
        .add_any("Priority", flow.priority.clone())
        .add_any("In turns by", flow.fair_by.clone())
        .add_any("Holds a place", hold)
        .add_any("Shared lane", flow.lane.clone())
}

fn schedules_of(name: &str, list: Option<&ScheduleList>) -> Section {
    let own = list.iter().flat_map(|list| &list.schedules).filter(|schedule| schedule.spec.workflow == name);
    let row = |schedule: &stepwell_protocol::schedule::ScheduleView| {
        let (tone, word) = super::schedules::standing(schedule);
        vec![
            Cell::Link(Place::Schedule(schedule.id.clone()), schedule.id.clone()),
            Cell::Mono(schedule.spec.when.clone()),
            Cell::State(tone, word),
            crate::sheet::any(schedule.next_tick),
        ]
    };
    let table = Table::new(&["Schedule", "When", "State", "Next tick"], own.map(row).collect()).or(
        "No schedule starts it. Create one:",
        &format!("stepwell schedules set nightly {name} 'every weekday at 9:00'"),
    );
    let has_more = list.is_some_and(|list| list.next.is_some());
    let note = if has_more { "Of the first 100 schedules of the namespace." } else { "" };
    Section::table("Schedules", table).note(note)
}

fn triggers_of(triggers: &[stepwell_protocol::topic::TriggerView]) -> Section {
    let row = |trigger: &stepwell_protocol::topic::TriggerView| {
        let place = Place::Trigger(trigger.topic.clone(), trigger.id.clone());
        vec![
            Cell::Link(place, trigger.id.clone()),
            Cell::Mono(trigger.spec.on.clone()),
            trigger.spec.when.clone().map_or_else(nothing, Cell::Mono),
            trigger.counts.started.into(),
        ]
    };
    let table =
        Table::new(&["Trigger", "Events", "Condition", ">Started"], triggers.iter().map(row).collect())
            .or("No event has started one of its latest 50 runs.", "");
    Section::table("Triggers", table).note("Found by the latest 50 runs of the workflow.")
}

/// The topics of the events that have started these runs.
fn topics_of(runs: Option<&RunList>) -> BTreeSet<String> {
    let tags = runs.iter().flat_map(|runs| &runs.executions).flat_map(|run| &run.tags);
    let topics = tags.filter_map(|tag| tag.strip_prefix("event:")?.split_once('/').map(|(topic, _)| topic));
    let mut all = BTreeSet::new();
    for topic in topics {
        if all.len() < TOPICS_MAX {
            all.insert(topic.to_owned());
        }
    }
    all
}
