//! A run's journal as a file: what `stepwell export` writes, and what a replay of it on another machine says.

use serde::{Deserialize, Serialize};

use crate::{Life, Payload, Record, Seq, rest::RunView};

/// The form of the file. A later form is only ever one that this one's readers can read, or has another number.
pub const FORMAT: u32 = 1;

/// A run with all that it takes to replay it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Export {
    /// [`FORMAT`].
    pub format: u32,
    /// The run, as it stood.
    pub run: RunView,
    /// What it, or its present life, was started with.
    pub input: Payload,
    /// What its program was given besides. An engine that does not say it leaves chance and patches to guesses.
    #[serde(default)]
    pub replay: Option<ReplayFacts>,
    /// Its whole history.
    pub events: Vec<Record>,
}

impl Export {
    /// The events that count: what a program that is called with this run gets to see.
    pub fn counted(&self) -> impl Iterator<Item = &Record> {
        let cuts = self.replay.as_ref().map(|facts| facts.cuts.as_slice()).unwrap_or_default();
        let is_cut = |seq: Seq| cuts.iter().any(|cut| cut.after < seq && seq <= cut.through);
        self.events.iter().filter(move |record| !is_cut(record.seq))
    }
}

/// What a program receives in addition to a run's input and journal.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFacts {
    /// The seed of the run's random numbers, in hexadecimal.
    pub seed: String,
    /// The patches that the run's code applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<String>,
    /// The ranges of the history that no longer count, because the run was retried or restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<CutView>,
    /// The run's current life; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
}

/// A range of a history that no longer counts.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutView {
    /// The last position before it.
    pub after: Seq,
    /// Its last position.
    pub through: Seq,
}

/// What a replay of an [`Export`] says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// How many events were replayed.
    pub events: usize,
    /// Where the code first does something else than the journal; nothing, if it does the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// What the code would do next, if the run has not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

/// Where a replay differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The position of the event that does not fit; nothing, if all fit and the end differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// What the journal says.
    pub expected: String,
    /// What the code does.
    pub actual: String,
}
