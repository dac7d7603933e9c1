//! What cells say in numbers.

use serde::{Deserialize, Serialize};
use stepwell_core::{cell::Happened, ordered::OrdMap};
use stepwell_protocol::{
    Timestamp,
    failures::FailureGroup,
    outbox::LetterCounts,
    rest::Counts,
    totals::{Durations, Minute, Totals},
};

/// How many kinds of answers are told apart. There are fewer routes with codes than that, whoever asks for what.
const ANSWERS_MAX: usize = 1_000;

/// How many answers were given, and how long they took, by method, path and status: `GET /api/executions 200`.
pub type Answers = OrdMap<String, Durations>;

/// Adds what was answered besides.
pub fn add_answers(all: &mut Answers, more: &Answers) {
    for (name, more) in more {
        if all.contains_key(name) || all.len() < ANSWERS_MAX {
            all.get_or_default(name.clone()).add(more);
        }
    }
}

/// A cell's part of the counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CountedRuns {
    /// How many runs of each workflow are in which status.
    pub workflows: OrdMap<String, Counts>,
    /// Whether all were counted. If not, the next request goes on.
    pub is_all: bool,
    /// How many letters have not arrived.
    #[serde(default)]
    pub letters: LetterCounts,
}

/// A cell's part of what Prometheus is told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// How many runs there are.
    pub counted: CountedRuns,
    /// What has ever happened to them.
    pub totals: Happened,
    /// How many bytes are stored.
    pub bytes: u64,
    /// How many could be.
    pub bytes_max: u64,
    /// How many programs are called at this moment.
    pub at_work: u64,
    /// Since when the run has been due that has waited longest for a place.
    pub due_since: Option<Timestamp>,
    /// Since when the letter has waited that has waited longest.
    #[serde(default)]
    pub posted_since: Option<Timestamp>,
    /// How many streams are open.
    #[serde(default)]
    pub streams: u64,
    /// How many of them have readers that have not kept up for a while.
    #[serde(default)]
    pub streams_behind: u64,
    /// What the API has ever answered, as far as it was told here.
    #[serde(default)]
    pub answers: Answers,
}

/// A cell's part of what alert rules look at.
#[derive(Debug, Serialize, Deserialize)]
pub struct Summed {
    /// What has happened, in the order in which it was asked for.
    pub spans: Vec<Totals>,
    /// How many messages to other objects are dead.
    pub dead_letters: u64,
    /// How many bytes are stored.
    pub bytes: u64,
    /// How many could be.
    pub bytes_max: u64,
    /// Since when the run has been due that has waited longest for a place.
    pub due_since: Option<Timestamp>,
}

/// A cell's part of what has happened to the runs of each workflow.
#[derive(Debug, Serialize, Deserialize)]
pub struct Totalled {
    /// By workflow.
    pub totals: Happened,
}

/// A cell's groups of failed runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedFailures {
    /// In no order.
    pub failures: Vec<FailureGroup>,
}

/// A cell's part of what has happened.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedMinutes {
    /// Minute by minute.
    pub minutes: Vec<Minute>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_answers_are_bounded() {
        let mut all = Answers::new();
        for at in 0..2_000 {
            let mut took = Durations::default();
            took.note(&[10], 5);
            let more = [(format!("GET /{at} 200"), took.clone()), ("GET /0 200".to_owned(), took)];
            add_answers(&mut all, &more.into_iter().collect());
        }
        assert_eq!((all.len(), all.get("GET /0 200").map(|it| it.counts[0])), (ANSWERS_MAX, Some(2_000)));
    }
}
