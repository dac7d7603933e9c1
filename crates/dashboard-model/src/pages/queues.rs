//! The queues, one queue with its dead letters, and one job.

use stepwell_protocol::{
    queue::{
        DeadCode, JobList, JobStatus, JobView, QueueCounts, QueueList, QueueSettings, QueueState, QueueView,
    },
    routes::Route,
    span,
};

use super::{Viewer, query};
use crate::{
    book::{Book, Stop},
    form::{Action, Field, Kind, Then, words},
    json,
    may::path,
    place::{Cursor, Place},
    sheet::{Body, Cell, Facts, Find, Section, Sheet, Sought, Table, Tone, any, nothing},
};

/// The most queues of a page whose jobs are counted.
const COUNTED_MAX: usize = 40;

/// How many dead letters a page has.
const PAGE: &str = "50";

/// A page of the queues.
pub fn list(after: Option<&str>, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<QueueList>(&query(path(Route::ListQueues, &[]), &[("after", after)]))?;
    let mut rows = Vec::new();
    for (index, name) in list.queues.iter().enumerate() {
        let link = Cell::Link(Place::queue(name), name.clone());
        let view = if index < COUNTED_MAX {
            book.maybe::<QueueView>(&path(Route::ShowQueue, &[name]))
        } else {
            None
        };
        rows.push(match view {
            Some(QueueView { settings, counts, .. }) => {
                let (tone, word) = standing(settings.state);
                vec![
                    link,
                    Cell::State(tone, word.into()),
                    counts.depth.into(),
                    counts.in_flight.into(),
                    dead_count(counts.dead),
                    any(counts.oldest.map(Cell::Ago)),
                    Cell::Text(consumer(&settings)),
                ]
            }
            None => vec![link],
        });
    }
    let table =
        Table::new(&["Queue", "State", ">Waiting", ">In flight", ">Dead", "Oldest", "Consumer"], rows)
            .or(
                "There are no queues. The first job makes one:",
                "stepwell jobs send mails '{\"to\": \"ada@example.com\"}'",
            )
            .pages(
                after.is_some(),
                Place::Queues { after: None },
                list.next.clone().map(|next| Place::Queues { after: Some(next) }),
            );
    let note = if list.queues.len() > COUNTED_MAX {
        "The jobs of the first 40 queues are counted. Open a queue to see the others."
    } else {
        ""
    };
    let find = Find { label: "Queue", example: "mails", button: "Show queue", of: Sought::Queue };
    let create = viewer.may.act(Route::SetQueue, &[], "Create a queue", "");
    let create = create.map(|action| {
        action
            .field(Field::of_path("Name").hint("Letters, digits, '.', '_' and '-'."))
            .fields(setting_fields(None))
    });
    Ok(Sheet::new("Queues")
        .act(create)
        .with(Section::table("", table).note(note))
        .with(Section::new("Open a queue", Body::Find(find))))
}

/// One queue.
pub fn one(name: &str, cursor: &Cursor, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let view = book.ask::<QueueView>(&path(Route::ShowQueue, &[name]));
    let dead = book.maybe::<JobList>(&query(
        path(Route::ListDead, &[name]),
        &[("limit", Some(PAGE)), ("cursor", cursor.as_deref())],
    ));
    let view = view?;
    let (tone, word) = standing(view.settings.state);
    let mut sheet = Sheet::new(name).below(Place::Queues { after: None }, "Queues").stands(tone, word);
    for action in state_actions(&view, viewer) {
        sheet = sheet.act(action);
    }
    let find = Find {
        label: "Job's id",
        example: "18bcfe56800-0-1",
        button: "Show job",
        of: Sought::Job(name.into()),
    };
    let page = |cursor| Place::Queue { name: name.to_owned(), cursor };
    let dead = dead.unwrap_or_default();
    let table = Table::new(
        &["Job", "Died", "Why", ">Attempts", "Reason", ""],
        dead.jobs.iter().map(|job| dead_row(name, job, viewer)).collect(),
    )
    .or("No dead letters.", "")
    .pages(cursor.is_some(), page(None), dead.next.map(|next| page(Some(next))));
    Ok(sheet
        .with(counts(&view.counts))
        .with(
            Section::table("Dead letters", table)
                .act(redrive_all(name, &view.counts, viewer))
                .act(purge_dead(name, &view.counts, viewer)),
        )
        .with(Section::new("Find a job", Body::Find(find)))
        .with(settings(&view, viewer)))
}

/// One job.
pub fn job(queue: &str, id: &str, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let job = book.ask::<JobView>(&path(Route::ShowJob, &[queue, id]))?;
    let (tone, word) = match job.status {
        JobStatus::Queued => (Tone::Good, "queued"),
        JobStatus::Delayed => (Tone::Held, "delayed"),
        JobStatus::InFlight => (Tone::Good, "in flight"),
        JobStatus::Dead => (Tone::Bad, "dead"),
    };
    let death = job.death.as_ref();
    let facts = Facts::default()
        .add("Queue", Cell::Link(Place::queue(queue), queue.to_owned()))
        .add("Sent", job.sent_at)
        .add("Attempts", job.attempts)
        .add_any("Until", job.until)
        .add("Priority", u64::from(job.priority))
        .add_any("Group", job.group.clone())
        .add_any("Pushed to", job.url.clone().map(Cell::Mono))
        .add_any("Died", death.map(|death| death.at))
        .add_any("Because", death.map(|death| dead_words(death.code)))
        .add_any("Type", job.content_type.clone())
        .add("Size", json::size(job.size));
    let body = match (&job.body, &job.text, &job.base64) {
        (Some(body), _, _) => Some((body.text().to_owned(), "json")),
        (None, Some(text), _) => Some((text.clone(), "txt")),
        (None, None, bytes) => bytes.clone().map(|bytes| (bytes, "base64")),
    };
    let mut sheet = Sheet::new(id).below(Place::queue(queue), "Queue").stands(tone, word);
    sheet.wrong = death.and_then(|death| Some((dead_words(death.code).to_owned(), death.reason.clone()?)));
    if job.status == JobStatus::Dead {
        sheet = sheet
            .act(redrive(queue, &job, viewer))
            .act(edit(queue, &job, viewer))
            .act(discard(queue, &job, viewer));
    }
    let body = body.map(|(text, kind)| Section::new("Body", Body::Payload(text, format!("{id}.{kind}"))));
    Ok(sheet.with(Section::facts("Job", facts)).with_any(body))
}

fn standing(state: QueueState) -> (Tone, &'static str) {
    match state {
        QueueState::Active => (Tone::Good, "active"),
        QueueState::Paused => (Tone::Held, "paused"),
        QueueState::Draining => (Tone::Held, "draining"),
        QueueState::Deleting => (Tone::Quiet, "being deleted"),
    }
}

fn dead_count(count: u64) -> Cell {
    if count == 0 { Cell::from(count) } else { Cell::State(Tone::Bad, crate::sheet::grouped(count)) }
}

fn consumer(settings: &QueueSettings) -> String {
    match &settings.push {
        None => "claims".into(),
        Some(push) => match (&push.url, &push.sink) {
            (Some(url), _) => format!("push to {url}"),
            (None, Some(sink)) => format!("push to {sink}"),
            (None, None) if settings.addressed => "push to each job's address".into(),
            (None, None) => "the app's handler".into(),
        },
    }
}

fn counts(counts: &QueueCounts) -> Section {
    let mut notes = Vec::new();
    if counts.purging {
        notes.push("Jobs are being deleted.");
    }
    if counts.redriving {
        notes.push("Dead letters are being queued again.");
    }
    let facts = Facts::default()
        .add("Waiting", counts.depth)
        .add("Of these, delayed", counts.delayed)
        .add("In flight", counts.in_flight)
        .add("Dead letters", dead_count(counts.dead))
        .add_any("Oldest waits since", counts.oldest);
    Section::facts("Jobs", facts).note(notes.join(" "))
}

fn settings(view: &QueueView, viewer: &Viewer) -> Section {
    let settings = &view.settings;
    let mut facts = Facts::default()
        .add("Consumer", consumer(settings))
        .add("Lease", span::in_words(settings.visibility_ms))
        .add("Attempts", settings.max_attempts)
        .add("Kept while waiting", span::in_words(settings.retention_ms))
        .add("Dead letters kept", span::in_words(settings.dead_retention_ms))
        .add("Dedupe ids known", span::in_words(settings.dedupe_ms))
        .add("Partitions", settings.partitions)
        .add_any(
            "Tells of dead letters",
            settings.dead_to.as_ref().map(|queue| Cell::Link(Place::queue(queue), queue.clone())),
        );
    if let Some(push) = &settings.push {
        facts = facts
            .add("Pushed at once", push.concurrency)
            .add_any("Pushed per second", push.per_second)
            .add("Consumer's timeout", span::in_words(push.timeout_ms));
    }
    let facts = facts.add("Made", settings.made_at).add("Revision", settings.revision);
    let explained = "Fields that are empty stay as they are.";
    let edit = viewer.may.act(Route::SetQueue, &[&view.name], "Change", explained);
    let edit =
        edit.map(|it| it.titled(format!("Change {}", view.name)).fields(setting_fields(Some(settings))));
    let push =
        viewer.may.act(Route::SetQueue, &[&view.name], "Change the push", "An empty address ends the push.");
    let push = push.filter(|_| !settings.declared && !settings.addressed);
    let push =
        push.map(|it| it.titled(format!("Change how {} is pushed", view.name)).fields(push_fields(settings)));
    let secret = viewer.may.act(
        Route::ShowQueueSecret,
        &[&view.name],
        "Show the secret",
        "The secret signs jobs that are pushed to an address. Give it to the consumer only.",
    );
    let secret = secret.filter(|_| settings.push.is_some()).map(|it| {
        it.titled("Show the signing secret").then(Then::Show(
            &["secret"],
            "For a library of Standard Webhooks. Keep it out of logs and chats.",
        ))
    });
    Section::facts("Settings", facts).act(edit).act(push).act(secret)
}

fn setting_fields(settings: Option<&QueueSettings>) -> Vec<Field> {
    let of = Field::of_body;
    let ms = |read: fn(&QueueSettings) -> u64| settings.map(read);
    vec![
        of("visibility_ms", "Lease", Kind::Span).with_span(ms(|it| it.visibility_ms)),
        of("max_attempts", "Attempts", Kind::Number).with_any(settings.map(|it| it.max_attempts)),
        of("retention_ms", "Kept while waiting", Kind::Span).with_span(ms(|it| it.retention_ms)),
        of("dead_retention_ms", "Dead letters kept", Kind::Span).with_span(ms(|it| it.dead_retention_ms)),
        of("dedupe_ms", "Dedupe ids known", Kind::Span).with_span(ms(|it| it.dedupe_ms)),
        of("partitions", "Partitions", Kind::Number)
            .with_any(settings.map(|it| it.partitions))
            .hint("1 to 64, and never fewer than there are."),
        of("dead_to", "Queue to tell of dead letters", Kind::Text)
            .with_any(settings.and_then(|it| it.dead_to.clone()))
            .clearing(),
    ]
}

fn push_fields(settings: &QueueSettings) -> Vec<Field> {
    let of = |name, label, kind| Field::of_inner("push", name, label, kind);
    let push = settings.push.as_ref();
    vec![
        of("url", "Address", Kind::Text)
            .with_any(push.and_then(|it| it.url.as_ref()))
            .hint("An https address."),
        of("sink", "Or Cloudflare Queue", Kind::Text)
            .with_any(push.and_then(|it| it.sink.as_ref()))
            .hint("The name of its binding, SINK_…"),
        of("concurrency", "At once", Kind::Number).with_any(push.map(|it| it.concurrency)),
        of("per_second", "Per second", Kind::Number).with_any(push.and_then(|it| it.per_second)),
        of("timeout_ms", "Timeout", Kind::Span).with_span(push.map(|it| it.timeout_ms)),
    ]
}

fn state_actions(view: &QueueView, viewer: &Viewer) -> Vec<Option<Action>> {
    let name = view.name.as_str();
    let act = |route, label: &str, explained: &str| {
        let action = viewer.may.act(route, &[name], label, explained)?;
        Some(action.titled(format!("{label} {name}")))
    };
    let is_active = view.settings.state == QueueState::Active;
    let pause = act(
        Route::PauseQueue,
        "Pause",
        "Consumers get no jobs until somebody resumes the queue. Jobs can be sent.",
    );
    let drain = act(
        Route::DrainQueue,
        "Drain",
        "The queue accepts no jobs until somebody resumes it. Consumers get those that it has.",
    );
    let resume = act(Route::ResumeQueue, "Resume", "The queue accepts jobs, and consumers get them.");
    let purge = act(
        Route::PurgeQueue,
        "Purge",
        "All jobs that wait are deleted. Jobs in flight stay. You cannot undo this.",
    );
    let delete = act(Route::DeleteQueue, "Delete", "You cannot undo this.").map(|action| {
        let choices =
            vec![("false".into(), "only if it is empty".into()), ("true".into(), "with all its jobs".into())];
        let field = Field::of_query("purge", "Delete it").required().with("false");
        let field = field.filled_as(Kind::Choice(choices));
        action.field(field).then(Then::Go(Place::Queues { after: None })).grave()
    });
    vec![
        send(name, viewer),
        pause.filter(|_| is_active),
        drain.filter(|_| is_active),
        resume.filter(|_| !is_active),
        purge.map(Action::grave),
        delete,
    ]
}

fn send(queue: &str, viewer: &Viewer) -> Option<Action> {
    let of = Field::of_body;
    let action = viewer.may.act(Route::SendJobs, &[queue], "Send a job", "")?;
    Some(
        action
            .titled(format!("Send a job to {queue}"))
            .field(of("body", "Body, as JSON", Kind::Json).required())
            .field(of("delay_ms", "Delay", Kind::Span).hint("Such as 10m."))
            .field(
                of("priority", "Priority", Kind::Number).hint("0 to 9; jobs with a higher one come first."),
            )
            .field(
                of("group", "Group", Kind::Text)
                    .hint("Jobs of a group are handed out in order, one at a time."),
            )
            .field(of("dedupe_id", "Dedupe id", Kind::Text)),
    )
}

fn dead_row(queue: &str, job: &JobView, viewer: &Viewer) -> Vec<Cell> {
    let id = job.id.to_string();
    let actions: Vec<_> =
        redrive(queue, job, viewer).into_iter().chain(discard(queue, job, viewer)).collect();
    let death = job.death.as_ref();
    vec![
        Cell::Link(Place::Job(queue.to_owned(), id.clone()), id),
        any(death.map(|death| Cell::Ago(death.at))),
        any(death.map(|death| dead_words(death.code))),
        job.attempts.into(),
        any(death.and_then(|death| death.reason.clone())),
        if actions.is_empty() { nothing() } else { Cell::Actions(actions) },
    ]
}

fn dead_words(code: DeadCode) -> &'static str {
    match code {
        DeadCode::Attempts => "no attempts left",
        DeadCode::Rejected => "rejected by its consumer",
        DeadCode::Expired => "not claimed in time",
        DeadCode::Disabled => "its address is gone",
    }
}

fn redrive(queue: &str, job: &JobView, viewer: &Viewer) -> Option<Action> {
    let explained = "The job is queued again, with all its attempts.";
    let action = viewer.may.act(Route::RedriveJob, &[queue, &job.id.to_string()], "Redrive", explained)?;
    Some(action.titled(format!("Redrive {}", job.id)))
}

fn discard(queue: &str, job: &JobView, viewer: &Viewer) -> Option<Action> {
    let explained = "The dead letter is deleted. You cannot undo this.";
    let action = viewer.may.act(Route::DiscardJob, &[queue, &job.id.to_string()], "Discard", explained)?;
    Some(action.titled(format!("Discard {}", job.id)).then(Then::Go(Place::queue(queue))).grave())
}

fn edit(queue: &str, job: &JobView, viewer: &Viewer) -> Option<Action> {
    let explained = "The dead letter gets another body. Redrive it after that.";
    let action = viewer.may.act(Route::EditJob, &[queue, &job.id.to_string()], "Edit", explained)?;
    let field = match (&job.body, &job.text) {
        (Some(body), _) => {
            Field::of_body("body", "Body, as JSON", Kind::Json).required().with(json::editable(body.text()))
        }
        // A field of one line would join those of a longer text.
        (None, Some(text)) if !text.contains(['\r', '\n']) => {
            Field::of_body("text", "Body", Kind::Free).required().with(text)
        }
        // Bytes are not edited by hand.
        (None, Some(_) | None) => return None,
    };
    let is_long = job.body.as_ref().is_some_and(|body| json::pretty(body.text()).is_cut);
    (!is_long).then(|| action.titled(format!("Edit {}", job.id)).field(field))
}

fn redrive_all(queue: &str, counts: &QueueCounts, viewer: &Viewer) -> Option<Action> {
    let explained = "All dead letters are queued again, or those that match all of these.";
    let action = viewer
        .may
        .act(Route::RedriveJobs, &[queue], "Redrive many", explained)
        .filter(|_| counts.dead > 0)?;
    let codes = words(&[
        ("attempts", "no attempts left"),
        ("rejected", "rejected by its consumer"),
        ("expired", "not claimed in time"),
        ("disabled", "its address is gone"),
    ]);
    let of = Field::of_body;
    Some(
        action
            .titled(format!("Redrive dead letters of {queue}"))
            .field(of("code", "Why they died", codes))
            .field(of("contains", "Reason contains", Kind::Text))
            .field(of("group", "Group", Kind::Text))
            .field(of("per_second", "At most per second", Kind::Number)),
    )
}

fn purge_dead(queue: &str, counts: &QueueCounts, viewer: &Viewer) -> Option<Action> {
    let explained = "All dead letters are deleted. You cannot undo this.";
    let action =
        viewer.may.act(Route::PurgeQueue, &[queue], "Discard all", explained).filter(|_| counts.dead > 0)?;
    Some(action.titled(format!("Discard all dead letters of {queue}")).fixed("dead", true).grave())
}
