//! The alerts: what is watched, how it stands, and the rules.

use stepwell_protocol::{
    alert::{AlertState, Watched},
    routes::Route,
};

use super::{
    Viewer,
    flat::{Alert, AlertList},
};
use crate::{
    book::{Book, Stop},
    form::{Action, Field, Kind, json_text},
    may::path,
    sheet::{Cell, Section, Sheet, Table, Tone, any, nothing},
};

/// All alerts.
pub fn list(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<AlertList>(&path(Route::ListAlerts, &[]))?;
    let row = |alert: &Alert| {
        let (tone, word) = match alert.state {
            AlertState::Quiet => (Tone::Good, "quiet"),
            AlertState::Pending => (Tone::Held, "pending"),
            AlertState::Firing => (Tone::Bad, "firing"),
        };
        let actions = actions(alert, viewer);
        vec![
            Cell::Text(alert.id.clone()),
            Cell::State(tone, word.to_owned()),
            Cell::Ago(alert.since),
            any(alert.value),
            Cell::Text(watched(alert)),
            Cell::Mono(alert.url.clone()),
            any(alert.checked_at.map(Cell::Ago)),
            if actions.is_empty() { nothing() } else { Cell::Actions(actions) },
        ]
    };
    let table = Table::new(
        &["Alert", "State", "Since", ">Figure", "Fires when", "Tells", "Checked", ""],
        list.alerts.iter().map(row).collect(),
    )
    .or(
        "There are no alerts. Create one:",
        "stepwell alerts set charge-fails failures https://ops.example.com/stepwell --workflow charge",
    );
    let mut create =
        Section::new("Create an alert", crate::sheet::Body::Nothing).note("Choose what it watches.");
    for watched in kinds() {
        create = create.act(put(None, &watched, viewer));
    }
    let sheet = Sheet::new("Alerts").with(Section::table("", table));
    Ok(if create.actions.is_empty() { sheet } else { sheet.with(create) })
}

/// One of each kind, as it begins.
fn kinds() -> [Watched; 12] {
    [
        Watched::Failures { workflow: None, above_percent: 10, at_least: 5, minutes: 10 },
        Watched::Retries { workflow: None, above_percent: 100, at_least: 20, minutes: 10 },
        Watched::Pauses { workflow: None, above: 0, minutes: 10 },
        Watched::BrokenCalls { workflow: None, above: 10, minutes: 10 },
        Watched::Late { workflow: None, above_seconds: 15, minutes: 10 },
        Watched::Rows { workflow: None, above: 100, minutes: 60 },
        Watched::Unreached { above: 0 },
        Watched::Waiting { above_seconds: 60 },
        Watched::Backlog { queue: String::new(), above: 1_000 },
        Watched::DeadJobs { queue: String::new(), above: 0 },
        Watched::DeadLetters { above: 0 },
        Watched::CellFill { above_percent: 70 },
    ]
}

fn watched(alert: &Alert) -> String {
    let watched = alert.watched();
    let (of, within) = watched.span().map_or_else(Default::default, |(workflow, minutes)| {
        let of = workflow.map(|name| format!(" of {name}")).unwrap_or_default();
        (of, format!("in {minutes} minutes"))
    });
    let what = match &watched {
        Watched::Failures { above_percent, at_least, .. } => {
            format!("more than {above_percent} % and at least {at_least} runs{of} failed {within}")
        }
        Watched::Retries { above_percent, at_least, .. } => format!(
            "more than {above_percent} attempts for each 100 steps{of} were retried, and at least {at_least}, {within}"
        ),
        Watched::Pauses { above, .. } => {
            format!("more than {above} runs{of} were paused because of a problem {within}")
        }
        Watched::BrokenCalls { above, .. } => {
            format!("more than {above} calls of the code{of} broke off {within}")
        }
        Watched::Late { above_seconds, .. } => {
            format!("a sleep, timeout or schedule{of} was more than {above_seconds} s late {within}")
        }
        Watched::Rows { above, .. } => format!("a run{of} takes more than {above} rows on average {within}"),
        Watched::Unreached { above } => format!("more than {above} cells do not answer"),
        Watched::Waiting { above_seconds } => {
            format!("a run waits for a place for more than {above_seconds} s")
        }
        Watched::Backlog { queue, above } => format!("more than {above} jobs of {queue} wait"),
        Watched::DeadJobs { queue, above } => format!("{queue} has more than {above} dead letters"),
        Watched::DeadLetters { above } => format!("more than {above} messages in the outbox are dead"),
        Watched::CellFill { above_percent } => {
            format!("a cell has used more than {above_percent} % of its storage")
        }
    };
    match alert.for_minutes {
        0 => what,
        minutes => format!("{what}, for {minutes} minutes"),
    }
}

fn actions(alert: &Alert, viewer: &Viewer) -> Vec<Action> {
    let explained = "Nobody is told that the alert is gone. You cannot undo this.";
    let delete = viewer.may.act(Route::DeleteAlert, &[&alert.id], "Delete", explained);
    let delete = delete.map(|action| action.titled(format!("Delete {}", alert.id)).grave());
    put(Some(alert), &alert.watched(), viewer).into_iter().chain(delete).collect()
}

/// Creating an alert, or changing one.
fn put(known: Option<&Alert>, watched: &Watched, viewer: &Viewer) -> Option<Action> {
    let of = Field::of_body;
    let number = |name: &str, label: &str, value: u64| of(name, label, Kind::Number).required().with(value);
    let queue = |name: &str| of("queue", "Queue", Kind::Text).required().with(name);
    let (on, label, mut fields) = match watched {
        Watched::Failures { above_percent, at_least, .. } => (
            "failures",
            "Failed runs",
            vec![
                number("above_percent", "More than this percentage fails", *above_percent),
                number("at_least", "And at least so many", *at_least),
            ],
        ),
        Watched::Retries { above_percent, at_least, .. } => (
            "retries",
            "Retried steps",
            vec![
                number("above_percent", "More than so many for each 100 steps", *above_percent),
                number("at_least", "And at least so many", *at_least),
            ],
        ),
        Watched::Pauses { above, .. } => {
            ("pauses", "Paused runs", vec![number("above", "More than so many", *above)])
        }
        Watched::BrokenCalls { above, .. } => {
            ("broken_calls", "Broken calls", vec![number("above", "More than so many", *above)])
        }
        Watched::Late { above_seconds, .. } => (
            "late",
            "Late timers",
            vec![
                number("above_seconds", "Late by more than seconds", *above_seconds)
                    .hint("1, 5, 15, 60, 300 or 3600."),
            ],
        ),
        Watched::Rows { above, .. } => {
            ("rows", "Rows of a run", vec![number("above", "More than so many on average", *above)])
        }
        Watched::Unreached { above } => {
            ("unreached", "Unreached cells", vec![number("above", "More than so many", *above)])
        }
        Watched::Waiting { above_seconds } => (
            "waiting",
            "Waiting runs",
            vec![number("above_seconds", "Waits for more than seconds", *above_seconds)],
        ),
        Watched::Backlog { queue: name, above } => {
            ("backlog", "Waiting jobs", vec![queue(name), number("above", "More than so many jobs", *above)])
        }
        Watched::DeadJobs { queue: name, above } => {
            ("dead_jobs", "Dead jobs", vec![queue(name), number("above", "More than so many", *above)])
        }
        Watched::DeadLetters { above } => {
            ("dead_letters", "Dead letters of the outbox", vec![number("above", "More than so many", *above)])
        }
        Watched::CellFill { above_percent } => (
            "cell_fill",
            "Full cells",
            vec![number("above_percent", "More than this percentage", *above_percent)],
        ),
    };
    if let Some((workflow, minutes)) = watched.span() {
        let named = of("workflow", "Workflow", Kind::Text).with_any(workflow);
        fields.insert(0, named.hint("Leave it empty for all."));
        fields.push(number("minutes", "Within minutes", minutes));
    }
    let (names, shown): (Vec<&str>, _) = match known {
        Some(alert) => (vec![alert.id.as_str()], "Edit"),
        None => (Vec::new(), label),
    };
    let explained = "The address gets a signed message when the alert fires, and when it is over. Keys that may read see \
                     the address.";
    let mut action = viewer.may.act(Route::PutAlert, &names, shown, explained)?.fixed("on", json_text(on));
    action = match known {
        Some(alert) => action.titled(format!("Edit {}", alert.id)),
        None => action
            .confirmed("Create")
            .titled(format!("Create an alert: {}", label.to_ascii_lowercase()))
            .field(Field::of_path("Id").hint("A name of your choice. An alert with this id is replaced.")),
    };
    Some(
        action
            .fields(fields)
            .field(
                of("url", "Address to tell", Kind::Text)
                    .required()
                    .with_any(known.map(|alert| &alert.url))
                    .hint("An https address."),
            )
            .field(of("for_minutes", "For minutes", Kind::Number).with_any(known.map(|it| it.for_minutes))),
    )
}
