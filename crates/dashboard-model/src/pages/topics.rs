//! Topics: their events, triggers and webhooks; and one event or trigger.

use stepwell_protocol::{
    rest::RunList,
    routes::Route,
    topic::{EventList, EventView, TriggerInput, TriggerList, TriggerSpec, TriggerView},
    webhook::WebhookList,
};

use super::{
    RUN_COLUMNS, Viewer, names, query, run_rows, schedules::unreadable, webhooks, word_of, workflow_link,
};
use crate::{
    book::{Book, Stop},
    filter::Filter,
    form::{Field, Kind, Then, json_text, words},
    may::path,
    place::{Cursor, Place, encoded},
    sheet::{Body, Cell, Facts, Find, Section, Sheet, Sought, Table, Tone, any, labels, nothing},
};

/// How many events a page has.
const PAGE: &str = "50";

/// How much of an event's data is shown in a list, in characters.
const SHORT: usize = 80;

/// The topics.
pub fn list(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let (topics, has_more) = names(Route::ListTopics, book)?;
    let rows = topics.iter().map(|topic| vec![Cell::Link(Place::topic(topic), topic.clone())]).collect();
    let table = Table::new(&["Topic"], rows)
        .or("There are no topics. Send an event:", "stepwell emit order/paid '{\"id\": 1}'");
    let note = if has_more { "There are more. Open one by its name." } else { "" };
    let find = Find { label: "Topic", example: "order", button: "Show events", of: Sought::Topic };
    Ok(Sheet::new("Events")
        .act(send("", None, viewer))
        .with(
            Section::new("Open a topic", Body::Find(find))
                .note("The first part of an event's name is its topic."),
        )
        .with(Section::table("Topics", table).note(note)))
}

/// One topic.
pub fn one(topic: &str, before: &Cursor, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let events = book.ask::<EventList>(&query(
        path(Route::ListEvents, &[]),
        &[("topic", Some(topic)), ("limit", Some(PAGE)), ("before", before.as_deref())],
    ));
    let of_topic = |route| query(path(route, &[]), &[("topic", Some(topic))]);
    let triggers = book.maybe::<TriggerList>(&of_topic(Route::ListTriggers)).unwrap_or_default();
    let webhooks = book.maybe::<WebhookList>(&of_topic(Route::ListWebhooks)).unwrap_or_default();
    let events = events?;
    let row = |event: &EventView| {
        vec![
            Cell::Link(Place::Event(topic.to_owned(), event.id.clone()), event.id.clone()),
            Cell::Text(event.name.clone()),
            Cell::Ago(event.at),
            source(event.source.as_deref()),
            runs_of_tag(&event.tag, "runs"),
            Cell::Mono(event.data.text().chars().take(SHORT).collect()),
        ]
    };
    let page = |before| Place::Topic { topic: topic.to_owned(), before };
    let table = Table::new(
        &["Event", "Name", "When", "From", "Started", "Data"],
        events.events.iter().map(row).collect(),
    )
    .or(
        "No event of this topic is kept. Events are kept for seven days. Send one:",
        &format!("stepwell emit {topic}/paid '{{\"id\": 1}}'"),
    )
    .pages(before.is_some(), page(None), events.next.map(|next| page(Some(next.to_string()))));
    Ok(Sheet::new(topic)
        .below(Place::Topics, "Events")
        .act(send(&format!("{topic}/"), None, viewer))
        .with(Section::table("Events", table))
        .with(triggers_of(topic, &triggers, viewer))
        .with(webhooks::of_topic(topic, &webhooks, viewer)))
}

/// One event.
pub fn event(topic: &str, id: &str, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let event = book.ask::<EventView>(&path(Route::ShowEvent, &[topic, id]))?;
    let runs = book.maybe::<RunList>(&format!("/api/executions?tag={}&limit=50", encoded(&event.tag)));
    let runs = runs.as_ref().map(run_rows).unwrap_or_default();
    let waits = event.waits.iter().map(|met| {
        let what = if met.wait.starts_with("cancel") { "cancelled the run" } else { "ended the wait" };
        vec![Cell::Run(met.run.to_string()), Cell::Mono(met.wait.clone()), what.into()]
    });
    let waits = Table::new(&["Run", "Wait", "Effect"], waits.collect()).or("No run waited for it.", "");
    let facts = Facts::default()
        .add("Name", event.name.as_str())
        .add("Accepted", event.at)
        .add("From", source(event.source.as_deref()));
    Ok(Sheet::new(id)
        .below(Place::topic(topic), "Topic")
        .act(send(&event.name, Some(event.data.text()), viewer))
        .with(Section::facts("Event", facts))
        .with(Section::new("Data", Body::Payload(event.data.text().to_owned(), format!("{id}.json"))))
        .with(
            Section::table(
                "Runs that it started",
                Table::new(&RUN_COLUMNS, runs).or("It started no run.", ""),
            )
            .note("Up to 50 runs."),
        )
        .with(Section::table("Waits that got it", waits).note("Up to 100 waits.")))
}

/// One trigger.
pub fn trigger(topic: &str, id: &str, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let view = book.ask::<TriggerView>(&path(Route::ShowTrigger, &[topic, id]))?;
    let (tone, word) = standing(&view);
    let names = [topic, id];
    let may = &viewer.may;
    let pause = match view.paused {
        Some(_) => {
            may.act(Route::ResumeTrigger, &names, "Resume", "Events that are accepted from now on count.")
        }
        None => {
            may.act(Route::PauseTrigger, &names, "Pause", "Events have no effect until somebody resumes it.")
        }
    };
    let pause = pause.map(|action| {
        let title = format!("{} {id}", action.label);
        action.titled(title)
    });
    let edit = may.act(
        Route::PutTrigger,
        &names,
        "Edit",
        "The change applies to events that are accepted after it.",
    );
    let edit = edit.map(|action| action.titled(format!("Edit {id}")).fields(trigger_fields(&view.spec)));
    let delete = may.act(Route::DeleteTrigger, &names, "Delete", "Its runs continue. You cannot undo this.");
    let delete =
        delete.map(|it| it.titled(format!("Delete {id}")).then(Then::Go(Place::topic(topic))).grave());
    let event_link =
        |event: &str| Cell::Link(Place::Event(topic.to_owned(), event.to_owned()), event.to_owned());
    let last = view.last.as_ref().map(|last| {
        let run = last.run.as_ref().map(|run| Cell::Run(run.to_string()));
        Cell::Many([event_link(&last.event), Cell::Ago(last.at)].into_iter().chain(run).collect())
    });
    let counts = Facts::default()
        .add("Started", view.counts.started)
        .add("Waiting", view.counts.waiting)
        .add("Refused", view.counts.refused)
        .add("Condition failed", view.counts.failed)
        .add_any("Latest", last);
    let failures = view.failures.iter().map(|failure| {
        vec![event_link(&failure.event), Cell::Ago(failure.at), Cell::Text(failure.why.clone())]
    });
    let failures = Table::new(&["Event", "When", "Why"], failures.collect())
        .or("Every event that it matched had its effect.", "");
    Ok(Sheet::new(id)
        .below(Place::topic(topic), "Topic")
        .stands(tone, word)
        .act(pause)
        .act(edit)
        .act(delete)
        .with(about(&view))
        .with(Section::facts("Events so far", counts))
        .with(Section::table("Latest failures", failures)))
}

fn about(view: &TriggerView) -> Section {
    let spec = &view.spec;
    let retired = view.declared.as_ref().and_then(|declared| declared.retired_at);
    let is_changed = view.declared.as_ref().is_some_and(|declared| declared.changed);
    let facts = Facts::default()
        .add("Events", Cell::Mono(spec.on.clone()))
        .add_any("Condition", spec.when.clone().map(Cell::Mono))
        .add("Starts", target(spec))
        .add("Input", if spec.input == TriggerInput::Data { "the event's data" } else { "the whole event" })
        .add_any("Tags", (!spec.tags.is_empty()).then(|| labels(&spec.tags)))
        .add("Declared in code", if view.declared.is_some() { "yes" } else { "no" })
        .add_any("Changed by hand", is_changed.then_some("yes: the code's declaration does not apply"))
        .add_any("Removed from the code", retired)
        .add("Changed by", view.changed_by.as_str())
        .add("Changed", view.changed_at);
    Section::facts("Trigger", facts)
}

fn triggers_of(topic: &str, list: &TriggerList, viewer: &Viewer) -> Section {
    let row = |trigger: &TriggerView| {
        let (tone, word) = standing(trigger);
        vec![
            Cell::Link(Place::Trigger(topic.to_owned(), trigger.id.clone()), trigger.id.clone()),
            Cell::Mono(trigger.spec.on.clone()),
            trigger.spec.when.clone().map_or_else(nothing, Cell::Mono),
            target(&trigger.spec),
            Cell::State(tone, word),
            trigger.counts.started.into(),
            trigger.counts.waiting.into(),
        ]
    };
    let table = Table::new(
        &["Trigger", "Events", "Condition", "Starts", "State", ">Started", ">Waiting"],
        list.triggers.iter().map(row).collect(),
    )
    .or(
        "No trigger: events of this topic start no runs. Create one:",
        &format!("stepwell triggers set charge '{topic}/*' charge"),
    );
    let create = viewer.may.act(Route::PutTrigger, &[topic], "Create a trigger", "");
    let spec = TriggerSpec {
        on: format!("{topic}/"),
        when: None,
        workflow: String::new(),
        queue: None,
        input: TriggerInput::Data,
        tags: Vec::new(),
    };
    let create = create.map(|action| {
        action
            .field(Field::of_path("Id").hint("A name of your choice. A trigger with this id is replaced."))
            .fields(trigger_fields(&spec))
    });
    Section::table("Triggers", table).note(unreadable(&list.unreadable)).act(create)
}

fn trigger_fields(spec: &TriggerSpec) -> Vec<Field> {
    let of = Field::of_body;
    vec![
        of("on", "Events", Kind::Text)
            .required()
            .with(&spec.on)
            .hint("A name such as order/paid, or order/*."),
        of("when", "Condition", Kind::Text)
            .with_any(spec.when.as_ref())
            .hint("Such as event.data.amount > 100."),
        of("workflow", "Workflow to start", Kind::Text).with(&spec.workflow),
        of("queue", "Or queue to send a job to", Kind::Text).with_any(spec.queue.as_ref()),
        of("input", "Input", words(&[("data", "the event's data"), ("event", "the whole event")]))
            .required()
            .with(json_text(&word_of(&spec.input))),
        of("tags", "Tags", Kind::Lines).with(spec.tags.join("\n")).hint("One per line."),
    ]
}

fn standing(trigger: &TriggerView) -> (Tone, String) {
    let is_retired = trigger.declared.as_ref().is_some_and(|declared| declared.retired_at.is_some());
    match &trigger.paused {
        _ if is_retired => (Tone::Quiet, "retired".into()),
        Some(paused) => (Tone::Held, format!("paused by {}", paused.by)),
        None => (Tone::Good, "active".into()),
    }
}

fn target(spec: &TriggerSpec) -> Cell {
    match &spec.queue {
        Some(queue) => {
            Cell::Many(vec![Cell::Dim("a job of".into()), Cell::Link(Place::queue(queue), queue.clone())])
        }
        None => workflow_link(&spec.workflow),
    }
}

/// Who has sent an event.
fn source(source: Option<&str>) -> Cell {
    match source.map(|text| (text, text.strip_prefix("run:"))) {
        None => Cell::Text("root".into()),
        Some((_, Some(run))) => Cell::Run(run.to_owned()),
        Some((text, None)) => any(Some(text)),
    }
}

fn runs_of_tag(tag: &str, text: &str) -> Cell {
    let filter = Filter { tag: Some(tag.to_owned()), ..Filter::default() };
    Cell::Link(Place::Runs { filter: filter.text() }, text.to_owned())
}

/// Sending an event, which begins with this name and data.
fn send(name: &str, data: Option<&str>, viewer: &Viewer) -> Option<crate::form::Action> {
    let label = if data.is_some() { "Send again, edited" } else { "Send an event" };
    let explained = "Every trigger and every wait that matches the event gets it.";
    let action = viewer.may.act(Route::SendEvents, &[], label, explained)?;
    Some(
        action
            .field(
                Field::of_body("name", "Name", Kind::Text).required().with(name).hint("Such as order/paid."),
            )
            .field(
                Field::of_body("id", "Id", Kind::Text)
                    .hint("The topic accepts each id once in seven days. Leave it empty for a new one."),
            )
            .field(
                Field::of_body("data", "Data, as JSON", Kind::Json)
                    .with(data.map(crate::json::editable).unwrap_or_default()),
            ),
    )
}
