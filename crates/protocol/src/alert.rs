//! Alert rules: what is watched, and what an address is told about it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The most rules of a namespace.
pub const ALERTS_MAX: usize = 100;

/// The longest time that a rule looks back, in minutes.
pub const MINUTES_MAX: u64 = 1_440;

/// A rule: the body of `PUT /api/alerts/{alert}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertSpec {
    /// What is watched.
    #[serde(flatten)]
    pub watched: Watched,
    /// The https address that is told when the alert fires, and when it is over.
    pub url: String,
    /// For how many minutes it has to be so before the alert fires.
    #[serde(default)]
    pub for_minutes: u64,
}

/// What a rule watches.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum Watched {
    /// The part of the runs that fail, of those that end.
    Failures {
        /// Of this workflow; of all, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        /// More than so many percent.
        #[serde(default = "ten")]
        above_percent: u64,
        /// And at least so many.
        #[serde(default = "five")]
        at_least: u64,
        /// Within the last minutes: 1 to 1,440.
        #[serde(default = "ten")]
        minutes: u64,
    },
    /// Attempts of steps that failed and are retried, beside the steps that end.
    Retries {
        /// Of this workflow; of all, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        /// More than so many for each hundred steps.
        #[serde(default = "hundred")]
        above_percent: u64,
        /// And at least so many.
        #[serde(default = "twenty")]
        at_least: u64,
        /// Within the last minutes: 1 to 1,440.
        #[serde(default = "ten")]
        minutes: u64,
    },
    /// Runs that were paused because of a problem: their code has changed, for example.
    Pauses {
        /// Of this workflow; of all, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        /// More than so many.
        #[serde(default)]
        above: u64,
        /// Within the last minutes: 1 to 1,440.
        #[serde(default = "ten")]
        minutes: u64,
    },
    /// Calls of workflow code that died, hung, or did not reach the app.
    BrokenCalls {
        /// Of this workflow; of all, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        /// More than so many.
        #[serde(default = "ten")]
        above: u64,
        /// Within the last minutes: 1 to 1,440.
        #[serde(default = "ten")]
        minutes: u64,
    },
    /// Sleeps, timeouts and ticks of schedules that happen late.
    Late {
        /// Of this workflow; of all, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        /// By more than so many seconds: 1, 5, 15, 60, 300 or 3,600.
        #[serde(default = "fifteen")]
        above_seconds: u64,
        /// Within the last minutes: 1 to 1,440.
        #[serde(default = "ten")]
        minutes: u64,
    },
    /// Rows written for each run that ends, which is what a deployment pays for.
    Rows {
        /// Of this workflow; of all, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        /// More than so many.
        above: u64,
        /// Within the last minutes: 1 to 1,440.
        #[serde(default = "sixty")]
        minutes: u64,
    },
    /// Cells that do not answer.
    Unreached {
        /// More than so many.
        #[serde(default)]
        above: u64,
    },
    /// Runs that are due and wait for a place in their cell.
    Waiting {
        /// For more than so many seconds.
        #[serde(default = "sixty")]
        above_seconds: u64,
    },
    /// The jobs of a queue that wait.
    Backlog {
        /// The queue.
        queue: String,
        /// More than so many jobs.
        above: u64,
    },
    /// The dead letters of a queue.
    DeadJobs {
        /// The queue.
        queue: String,
        /// More than so many.
        #[serde(default)]
        above: u64,
    },
    /// Messages between objects that could not be delivered.
    DeadLetters {
        /// More than so many.
        #[serde(default)]
        above: u64,
    },
    /// How full the fullest cell is.
    CellFill {
        /// More than so many percent.
        #[serde(default = "seventy")]
        above_percent: u64,
    },
}

impl Watched {
    /// What happens within a time that it looks at: of which workflow, and within how many minutes.
    pub fn span(&self) -> Option<(Option<&str>, u64)> {
        match self {
            Self::Failures { workflow, minutes, .. }
            | Self::Retries { workflow, minutes, .. }
            | Self::Pauses { workflow, minutes, .. }
            | Self::BrokenCalls { workflow, minutes, .. }
            | Self::Late { workflow, minutes, .. }
            | Self::Rows { workflow, minutes, .. } => Some((workflow.as_deref(), *minutes)),
            Self::Waiting { .. }
            | Self::Backlog { .. }
            | Self::DeadJobs { .. }
            | Self::DeadLetters { .. }
            | Self::CellFill { .. }
            | Self::Unreached { .. } => None,
        }
    }

    /// The fields that it has in JSON, besides `on`.
    pub fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::Failures { .. } | Self::Retries { .. } => {
                &["workflow", "above_percent", "at_least", "minutes"]
            }
            Self::Pauses { .. } | Self::BrokenCalls { .. } | Self::Rows { .. } => {
                &["workflow", "above", "minutes"]
            }
            Self::Late { .. } => &["workflow", "above_seconds", "minutes"],
            Self::Waiting { .. } => &["above_seconds"],
            Self::Backlog { .. } | Self::DeadJobs { .. } => &["queue", "above"],
            Self::DeadLetters { .. } | Self::Unreached { .. } => &["above"],
            Self::CellFill { .. } => &["above_percent"],
        }
    }
}

fn fifteen() -> u64 {
    15
}

fn twenty() -> u64 {
    20
}

fn hundred() -> u64 {
    100
}

fn five() -> u64 {
    5
}

fn ten() -> u64 {
    10
}

fn sixty() -> u64 {
    60
}

fn seventy() -> u64 {
    70
}

/// A rule, and how it stands: `GET /api/alerts/{alert}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertView {
    /// Its id.
    pub id: String,
    /// The rule.
    #[serde(flatten)]
    pub spec: AlertSpec,
    /// How it stands.
    pub state: AlertState,
    /// Since when.
    pub since: Timestamp,
    /// The figure, when it was last looked at; absent if it could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Timestamp>,
    /// Who has made the rule.
    pub by: String,
}

/// How an alert stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// All is well.
    Quiet,
    /// It will fire unless that changes.
    Pending,
    /// It fires.
    Firing,
}

/// The rules of a namespace: `GET /api/alerts`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlertList {
    /// By id.
    pub alerts: Vec<AlertView>,
}

/// What an address is told.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertNotice {
    /// `alert.fired` or `alert.resolved`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When: `2026-11-17T22:00:00Z`.
    pub timestamp: String,
    /// About what.
    pub data: NoticedAlert,
}

/// An alert that has fired, or is over.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoticedAlert {
    /// The id of the rule.
    pub alert: String,
    /// The namespace.
    pub namespace: String,
    /// What is watched.
    #[serde(flatten)]
    pub watched: Watched,
    /// The figure.
    pub value: u64,
    /// What that means, for people.
    pub summary: String,
}
