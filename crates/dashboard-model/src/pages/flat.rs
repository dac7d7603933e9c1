//! Views that the API writes with the fields of their parts beside their own, as one object.
//!
//! The protocol's own types read such an object by way of a tree, which takes more code than all that these have. A test
//! holds them to what those types write.

use serde::Deserialize;
use stepwell_protocol::{
    RunId, Timestamp,
    access::{DeletionView, Limits, RunSettings},
    alert::{AlertState, Watched},
    outbox::LetterCounts,
    totals::{Durations, Totals},
};

use crate::{counts::Counts, map::Map};

/// The alerts.
#[derive(Deserialize)]
pub struct AlertList {
    /// By id.
    pub alerts: Vec<Alert>,
}

/// An alert, and how it stands.
#[derive(Deserialize)]
#[serde(default)]
pub struct Alert {
    /// Its id.
    pub id: String,
    on: String,
    workflow: Option<String>,
    queue: String,
    above: u64,
    above_percent: u64,
    above_seconds: u64,
    at_least: u64,
    minutes: u64,
    /// The address that is told.
    pub url: String,
    /// For how long it has to be so.
    pub for_minutes: u64,
    /// How it stands.
    pub state: AlertState,
    /// Since when.
    pub since: Timestamp,
    /// The figure.
    pub value: Option<u64>,
    /// When it was last looked at.
    pub checked_at: Option<Timestamp>,
}

impl Default for Alert {
    fn default() -> Self {
        Self {
            id: String::new(),
            on: String::new(),
            workflow: None,
            queue: String::new(),
            above: 0,
            above_percent: 0,
            above_seconds: 0,
            at_least: 0,
            minutes: 0,
            url: String::new(),
            for_minutes: 0,
            state: AlertState::Quiet,
            since: Timestamp::default(),
            value: None,
            checked_at: None,
        }
    }
}

impl Alert {
    /// What it watches.
    pub fn watched(&self) -> Watched {
        let (queue, above, minutes) = (self.queue.clone(), self.above, self.minutes);
        let workflow = self.workflow.clone();
        match self.on.as_str() {
            "retries" => Watched::Retries {
                workflow,
                above_percent: self.above_percent,
                at_least: self.at_least,
                minutes,
            },
            "pauses" => Watched::Pauses { workflow, above, minutes },
            "broken_calls" => Watched::BrokenCalls { workflow, above, minutes },
            "late" => Watched::Late { workflow, above_seconds: self.above_seconds, minutes },
            "rows" => Watched::Rows { workflow, above, minutes },
            "unreached" => Watched::Unreached { above },
            "waiting" => Watched::Waiting { above_seconds: self.above_seconds },
            "backlog" => Watched::Backlog { queue, above },
            "dead_jobs" => Watched::DeadJobs { queue, above },
            "dead_letters" => Watched::DeadLetters { above },
            "cell_fill" => Watched::CellFill { above_percent: self.above_percent },
            _ => Watched::Failures {
                workflow,
                above_percent: self.above_percent,
                at_least: self.at_least,
                minutes,
            },
        }
    }
}

/// Messages that have not arrived.
#[derive(Deserialize)]
pub struct OutboxList {
    /// Them.
    pub messages: Vec<Message>,
    /// The cursor of the next page.
    #[serde(default)]
    pub cursor: Option<String>,
    /// The cells that did not answer.
    #[serde(default)]
    pub unanswered: Vec<String>,
}

/// A message that has not arrived.
#[derive(Deserialize)]
pub struct Message {
    /// Its letter.
    pub letter: String,
    /// When it was written.
    pub posted_at: Timestamp,
    /// Whether it is no longer sent.
    #[serde(default)]
    pub dead: bool,
    /// What it does.
    pub what: String,
    /// The run that caused it.
    pub from: RunId,
    /// Where it goes to.
    pub to: String,
}

/// What has happened to the runs of each workflow.
#[derive(Deserialize)]
pub struct WorkflowTotalsList {
    /// Them.
    pub workflows: Vec<WorkflowTotals>,
    /// Whether every cell has answered.
    pub complete: bool,
}

/// What has happened to the runs of a workflow, as far as it is shown.
#[derive(Deserialize)]
pub struct WorkflowTotals {
    /// Its name.
    pub workflow: String,
    /// What has happened.
    pub totals: FewTotals,
    /// How long half of its runs took at most.
    #[serde(default)]
    pub p50_ms: Option<u64>,
    /// How long 95 % of its runs took at most.
    #[serde(default)]
    pub p95_ms: Option<u64>,
    /// What that costs.
    pub dollars: f64,
}

/// Some of what has happened.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct FewTotals {
    /// Runs that were started.
    pub started: u64,
    /// Runs that completed.
    pub completed: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Rows that were written.
    pub rows: u64,
}

/// Groups of failed runs.
#[derive(Deserialize)]
pub struct FailureList {
    /// Them, the one that has failed last first.
    pub failures: Vec<Failure>,
    /// Where the next page begins.
    #[serde(default)]
    pub next: Option<String>,
    /// Whether all cells have answered.
    pub complete: bool,
}

/// A group of failed runs.
#[derive(Deserialize)]
pub struct Failure {
    /// The workflow.
    pub workflow: String,
    /// The step.
    #[serde(default)]
    pub step: Option<String>,
    /// Which of Stepwell's own problems it is.
    #[serde(default)]
    pub code: Option<String>,
    /// The message.
    pub message: String,
    /// How often.
    pub count: u64,
    /// When the last of them failed.
    pub last_at: Timestamp,
    /// Some of the latest runs.
    pub runs: Vec<String>,
}

/// The cells.
#[derive(Deserialize)]
pub struct CellList {
    /// Those that have answered.
    pub cells: Vec<CellView>,
    /// Those that have not.
    #[serde(default)]
    pub unanswered: Vec<String>,
}

/// A cell.
#[derive(Deserialize)]
pub struct CellView {
    /// Its name.
    pub cell: String,
    /// Its runs.
    pub statuses: Counts,
    /// Whether all of them were counted.
    pub complete: bool,
    /// How many programs it calls.
    pub programs: u64,
    /// Since when a run has waited for a place.
    #[serde(default)]
    pub due_since: Option<Timestamp>,
    /// How many bytes it stores.
    pub bytes: u64,
    /// How many it could.
    pub bytes_max: u64,
    /// Its letters.
    pub letters: LetterCounts,
}

/// A page of names: topics, or lanes.
#[derive(Deserialize)]
pub struct Names {
    /// Them.
    #[serde(alias = "topics", alias = "lanes")]
    pub names: Vec<String>,
    /// Where the next page begins.
    #[serde(default)]
    pub next: Option<String>,
}

/// The settings of a namespace.
#[derive(Deserialize)]
pub struct Settings {
    /// Its limits.
    pub limits: Limits,
    /// For runs whose workflow has no setting of its own.
    pub runs: RunSettings,
    /// For runs of single workflows.
    pub workflows: Map<String, RunSettings>,
}

/// A namespace.
#[derive(Deserialize)]
pub struct Namespace {
    /// Its limits.
    pub limits: Limits,
    /// Its settings for runs.
    pub runs: RunSettings,
    /// How far its deletion is.
    #[serde(default)]
    pub deleting: Option<DeletionView>,
}

/// What has happened in each minute.
#[derive(Deserialize)]
pub struct MinuteList {
    /// Them.
    pub minutes: Vec<Minute>,
    /// Whether every cell has answered.
    pub complete: bool,
}

/// What has happened in a minute, as far as it is shown.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Minute {
    /// When it began.
    pub at: Timestamp,
    started: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    activations: u64,
    steps: u64,
    steps_failed: u64,
    retries: u64,
    run_ms: Durations,
}

impl Minute {
    /// What has happened.
    pub fn totals(&self) -> Totals {
        Totals {
            started: self.started,
            completed: self.completed,
            failed: self.failed,
            cancelled: self.cancelled,
            activations: self.activations,
            steps: self.steps,
            steps_failed: self.steps_failed,
            retries: self.retries,
            run_ms: self.run_ms.clone(),
            ..Totals::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::alert::{AlertSpec, AlertView};

    use super::*;

    #[test]
    fn an_alert_is_read_as_it_is_written() {
        let queue = || "mails".to_owned();
        for watched in [
            Watched::Failures { workflow: Some("greet".into()), above_percent: 1, at_least: 2, minutes: 3 },
            Watched::Failures { workflow: None, above_percent: 1, at_least: 2, minutes: 3 },
            Watched::Waiting { above_seconds: 4 },
            Watched::Backlog { queue: queue(), above: 5 },
            Watched::DeadJobs { queue: queue(), above: 6 },
            Watched::DeadLetters { above: 7 },
            Watched::CellFill { above_percent: 8 },
            Watched::Retries { workflow: None, above_percent: 1, at_least: 2, minutes: 3 },
            Watched::Pauses { workflow: Some("greet".into()), above: 1, minutes: 2 },
            Watched::BrokenCalls { workflow: None, above: 1, minutes: 2 },
            Watched::Late { workflow: None, above_seconds: 5, minutes: 2 },
            Watched::Rows { workflow: None, above: 1, minutes: 2 },
            Watched::Unreached { above: 3 },
        ] {
            let spec = AlertSpec { watched: watched.clone(), url: "https://x/".into(), for_minutes: 9 };
            let (since, value, checked_at) =
                (Timestamp::from_millis(1), Some(2), Some(Timestamp::from_millis(3)));
            let (id, by) = ("a".to_owned(), "root".to_owned());
            let view = AlertView { id, spec, state: AlertState::Firing, since, value, checked_at, by };
            let text = serde_json::to_string(&view).expect("it is JSON");
            let read: Alert = serde_json::from_str(&text).expect("it is an alert");
            assert_eq!(read.watched(), watched);
            assert_eq!(
                (read.url, read.for_minutes, read.state, read.since, read.value, read.checked_at),
                (view.spec.url, 9, AlertState::Firing, since, value, checked_at)
            );
        }
    }

    #[test]
    fn minutes_and_messages_are_read_as_they_are_written() {
        let mut totals = Totals { started: 1, completed: 2, failed: 3, steps: 4, ..Totals::default() };
        totals.run_ms.note(&stepwell_protocol::totals::RUN_BOUNDS_MS, 5);
        let minute =
            stepwell_protocol::totals::Minute { at: Timestamp::from_millis(60_000), totals: totals.clone() };
        let text = serde_json::to_string(&minute).expect("it is JSON");
        let read: Minute = serde_json::from_str(&text).expect("it is a minute");
        assert_eq!((read.at, read.totals()), (minute.at, totals));
        let head = stepwell_protocol::outbox::MessageHead {
            what: "start".into(),
            from: "default-1-3-9-0123456789ab".parse().expect("it is a run's id"),
            to: "cell".into(),
        };
        let (letter, posted_at) = ("l".to_owned(), Timestamp::from_millis(4));
        let message = stepwell_protocol::outbox::OutboxMessage { letter, posted_at, dead: true, head };
        let text = serde_json::to_string(&message).expect("it is JSON");
        let read: Message = serde_json::from_str(&text).expect("it is a message");
        assert_eq!((read.letter.as_str(), read.posted_at, read.dead), ("l", posted_at, true));
        assert_eq!((read.what, read.from, read.to), (message.head.what, message.head.from, message.head.to));
    }
}
