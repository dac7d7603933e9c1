//! Failed runs, in groups of those that failed alike. They outlive the runs.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Code, RunId, Timestamp, text::hex};

/// Runs of a workflow that failed in the same way.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// Its id.
    pub id: String,
    /// The workflow.
    pub workflow: String,
    /// Which of Stepwell's own problems it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The step whose failure failed the run, if a step did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The message, with placeholders for what differs from run to run: `<n>`, `<id>`, `<text>`.
    pub message: String,
    /// How often a run has failed like this.
    pub count: u64,
    /// When the first of them failed.
    pub first_at: Timestamp,
    /// When the last of them failed.
    pub last_at: Timestamp,
    /// Some of the latest runs, the last one first. They may have been deleted since.
    pub runs: Vec<RunId>,
}

/// `GET /api/failures`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureList {
    /// The groups, the one that has failed last first.
    pub failures: Vec<FailureGroup>,
    /// What to pass as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether all cells have answered.
    pub complete: bool,
}

impl FailureGroup {
    /// How many runs a group names.
    pub const RUNS_MAX: usize = 5;

    /// The id of a group: the same in each cell.
    pub fn id_of(workflow: &str, code: Option<Code>, step: Option<&str>, message: &str) -> String {
        let mut hasher = Sha256::new();
        for text in [workflow, code.map_or("", Code::as_str), step.unwrap_or_default(), message] {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        hex(&hasher.finalize()[..8])
    }

    /// Adds what another cell has of the same group.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first_at = self.first_at.min(other.first_at);
        // The cell that has the latest failure names its runs first.
        let (first, then) = if other.last_at > self.last_at {
            (other.runs, &self.runs)
        } else {
            (std::mem::take(&mut self.runs), &other.runs)
        };
        let mut runs = first;
        runs.extend(then.iter().cloned());
        runs.truncate(Self::RUNS_MAX);
        self.runs = runs;
        self.last_at = self.last_at.max(other.last_at);
    }
}
