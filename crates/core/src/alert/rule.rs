//! A rule: when it fires, and what is told of it.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Payload, Problem, Timestamp,
    alert::{AlertNotice, AlertSpec, AlertState, MINUTES_MAX, NoticedAlert, Watched},
    queue::{URL_LENGTH_MAX, is_queue},
    totals::LATE_BOUNDS_MS,
};

use crate::schedule::civil;

/// A rule, and how it stands. One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it watches.
    pub spec: AlertSpec,
    /// How it stands.
    pub state: AlertState,
    /// Since when.
    pub since: Timestamp,
    /// Who has made it.
    pub by: String,
    /// What the queue of webhooks does not have yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
}

/// What an address is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The rule.
    pub alert: String,
    /// By what the queue of webhooks knows it.
    pub id: String,
    /// The address.
    pub url: String,
    /// What it is told.
    pub body: Payload,
}

impl Rule {
    /// How it stands after a look; nothing, if nothing has changed.
    pub(super) fn follow(&self, now: Timestamp, namespace: &str, id: &str, value: u64) -> Option<Self> {
        let is_wrong = value > bound(&self.spec.watched);
        let wait_ms = self.spec.for_minutes * 60_000;
        let (state, since) = match (self.state, is_wrong) {
            (AlertState::Quiet, true) if wait_ms == 0 => (AlertState::Firing, now),
            (AlertState::Quiet, true) => (AlertState::Pending, now),
            (AlertState::Pending, true) if self.since.plus_millis(wait_ms) <= now => {
                (AlertState::Firing, now)
            }
            (AlertState::Pending | AlertState::Firing, false) => (AlertState::Quiet, now),
            (AlertState::Quiet, false) | (AlertState::Pending | AlertState::Firing, true) => return None,
        };
        let was_firing = self.state == AlertState::Firing;
        let notice = match state {
            AlertState::Firing => Some(self.notice(now, namespace, id, value, "fired")),
            AlertState::Quiet if was_firing => Some(self.notice(now, namespace, id, value, "resolved")),
            AlertState::Quiet | AlertState::Pending => self.notice.clone(),
        };
        Some(Self { state, since, notice, ..self.clone() })
    }

    /// The same with another spec. What it has watched before says nothing about anything else: that is over, and whoever
    /// was told of it is told that, too.
    pub(super) fn changed(
        &self,
        now: Timestamp,
        namespace: &str,
        id: &str,
        by: &str,
        spec: AlertSpec,
    ) -> Self {
        let by = by.to_owned();
        if spec.watched == self.spec.watched && spec.url == self.spec.url {
            return Self { spec, by, ..self.clone() };
        }
        let is_told = self.state == AlertState::Firing && self.notice.is_none();
        let over = is_told.then(|| self.notice(now, namespace, id, 0, "resolved"));
        // What was not told yet still is.
        let notice = over.or_else(|| self.notice.clone());
        Self { spec, state: AlertState::Quiet, since: now, by, notice }
    }

    fn notice(&self, now: Timestamp, namespace: &str, id: &str, value: u64, what: &str) -> Notice {
        let watched = self.spec.watched.clone();
        let summary = if what == "resolved" { over_in_words(&watched) } else { in_words(&watched, value) };
        let data =
            NoticedAlert { alert: id.to_owned(), namespace: namespace.to_owned(), watched, value, summary };
        let notice = AlertNotice { kind: format!("alert.{what}"), timestamp: civil::shown(now), data };
        Notice {
            alert: id.to_owned(),
            id: format!("alert/{id}/{}/{what}", now.as_millis()),
            url: self.spec.url.clone(),
            body: Payload::encode(&notice).unwrap_or_default(),
        }
    }
}

/// What a figure may be at the most.
pub(super) fn bound(watched: &Watched) -> u64 {
    match watched {
        Watched::Failures { above_percent, .. }
        | Watched::Retries { above_percent, .. }
        | Watched::CellFill { above_percent } => *above_percent,
        Watched::Waiting { above_seconds } => *above_seconds,
        // The figure is a bound that was exceeded.
        Watched::Late { above_seconds, .. } => above_seconds.saturating_sub(1),
        Watched::Backlog { above, .. }
        | Watched::DeadJobs { above, .. }
        | Watched::DeadLetters { above }
        | Watched::Pauses { above, .. }
        | Watched::BrokenCalls { above, .. }
        | Watched::Rows { above, .. }
        | Watched::Unreached { above } => *above,
    }
}

fn in_words(watched: &Watched, value: u64) -> String {
    let (of, within) = watched.span().map_or_else(Default::default, |(workflow, minutes)| {
        let of = workflow.map_or_else(String::new, |name| format!(" of '{name}'"));
        (of, format!("in the last {minutes} minutes"))
    });
    match watched {
        Watched::Failures { .. } => format!("{value} % of the runs{of} failed {within}."),
        Watched::Retries { .. } => {
            format!("For every 100 steps{of} that ended, {value} attempts failed and were retried {within}.")
        }
        Watched::Pauses { .. } => {
            format!("{value} runs{of} were paused because of a problem {within}.")
        }
        Watched::BrokenCalls { .. } => {
            format!("{value} calls of the code{of} died, hung or did not reach the app {within}.")
        }
        Watched::Late { .. } => {
            format!("A sleep, timeout or schedule{of} was more than {value} seconds late {within}.")
        }
        Watched::Rows { .. } => format!("A run{of} took {value} rows on average {within}."),
        Watched::Unreached { .. } if value == 1 => "1 cell does not answer.".to_owned(),
        Watched::Unreached { .. } => format!("{value} cells do not answer."),
        Watched::Waiting { .. } => format!("A run has waited for a place in its cell for {value} seconds."),
        Watched::Backlog { queue, .. } => format!("{value} jobs wait in the queue '{queue}'."),
        Watched::DeadJobs { queue, .. } => format!("The queue '{queue}' has {value} dead letters."),
        Watched::DeadLetters { .. } => format!("{value} messages between objects are dead."),
        Watched::CellFill { .. } => format!("The fullest cell has used {value} % of its storage."),
    }
}

/// What is said of what is over: its figure is within the bound again, or nobody looks at it any more.
fn over_in_words(watched: &Watched) -> String {
    let of = watched.span().and_then(|(workflow, _)| workflow);
    let of = of.map_or_else(String::new, |name| format!(" of '{name}'"));
    match watched {
        Watched::Failures { .. } => format!("The failures of runs{of} are within the limit again."),
        Watched::Retries { .. } => format!("The retries of steps{of} are within the limit again."),
        Watched::Pauses { .. } => format!("No more runs{of} are being paused because of a problem."),
        Watched::BrokenCalls { .. } => {
            format!("The broken calls of the code{of} are within the limit again.")
        }
        Watched::Late { .. } => format!("Sleeps, timeouts and schedules{of} are on time again."),
        Watched::Rows { .. } => format!("The rows of runs{of} are within the limit again."),
        Watched::Unreached { .. } => "The cells answer again.".to_owned(),
        Watched::Waiting { .. } => "No run waits too long for a place in its cell any more.".to_owned(),
        Watched::Backlog { queue, .. } => {
            format!("The backlog of the queue '{queue}' is within the limit again.")
        }
        Watched::DeadJobs { queue, .. } => {
            format!("The dead letters of the queue '{queue}' are within the limit again.")
        }
        Watched::DeadLetters { .. } => {
            "The dead messages between objects are within the limit again.".to_owned()
        }
        Watched::CellFill { .. } => "The fullest cell is within the limit again.".to_owned(),
    }
}

/// Refuses what no rule can watch. Whether its address may be called is for whoever calls it.
pub fn check_alert(spec: &AlertSpec) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
    if spec.url.is_empty() || spec.url.len() > URL_LENGTH_MAX {
        return bad(format!("`url` has 1 to {URL_LENGTH_MAX} bytes."));
    }
    if spec.for_minutes > MINUTES_MAX {
        return bad(format!("`for_minutes` is at most {MINUTES_MAX}."));
    }
    if let Watched::Backlog { queue, .. } | Watched::DeadJobs { queue, .. } = &spec.watched
        && !is_queue(queue)
    {
        return bad("`queue` is no name of a queue.".into());
    }
    if let Some((workflow, minutes)) = spec.watched.span() {
        if workflow.is_some_and(|name| !(1..=128).contains(&name.len())) {
            return bad("`workflow` has 1 to 128 bytes.".into());
        }
        if !(1..=MINUTES_MAX).contains(&minutes) {
            return bad(format!("`minutes` is 1 to {MINUTES_MAX}."));
        }
    }
    match &spec.watched {
        Watched::Failures { above_percent, .. } | Watched::CellFill { above_percent }
            if *above_percent >= 100 =>
        {
            bad("`above_percent` is 0 to 99.".into())
        }
        Watched::Failures { at_least: 0, .. } | Watched::Retries { at_least: 0, .. } => {
            bad("`at_least` is at least 1.".into())
        }
        Watched::Late { above_seconds, .. }
            if !LATE_BOUNDS_MS.contains(&above_seconds.saturating_mul(1_000)) =>
        {
            bad("`above_seconds` is 1, 5, 15, 60, 300 or 3600.".into())
        }
        Watched::Failures { .. }
        | Watched::Retries { .. }
        | Watched::Pauses { .. }
        | Watched::BrokenCalls { .. }
        | Watched::Late { .. }
        | Watched::Rows { .. }
        | Watched::Unreached { .. }
        | Watched::Waiting { .. }
        | Watched::Backlog { .. }
        | Watched::DeadJobs { .. }
        | Watched::DeadLetters { .. }
        | Watched::CellFill { .. } => Ok(()),
    }
}
