//! What a run costs: rows and requests, counted as the platform counts them.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Event, Seq, Timestamp, rest::Meter, totals::dollars_per_million};

use super::{Entry, Run, Transport};
use crate::cell::Mail;

/// What a run has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Rows written for it.
    #[serde(default)]
    pub rows: u32,
    /// Requests that its cell got for it.
    #[serde(default)]
    pub requests: u32,
    /// Requests of a consumer that has called its program: its claims, words and beats.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub words: u32,
    /// The journal's head when this was stored: whatever came after it is one row each.
    #[serde(default)]
    pub at: Seq,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Run {
    /// Counts what storing entries costs; `wake_before` is the wake time before them.
    pub fn spend(&mut self, wake_before: Option<Timestamp>, entries: &[Entry]) {
        let mut rows: u32 = entries.iter().map(other_rows).sum();
        if entries.iter().any(Entry::changes_row) {
            let wake_at = self.wake_at();
            // An entry that enters or moves within the index is a row; one that leaves it is not.
            rows += 1 + u32::from(wake_at.is_some() && wake_at != wake_before);
        }
        let signals = entries.iter().filter(|entry| is_signal(entry)).count();
        self.spent.requests += u32::try_from(signals).unwrap_or(u32::MAX);
        let words = entries.iter().filter(|entry| is_word(entry)).count();
        self.spent.words += u32::try_from(words).unwrap_or(u32::MAX);
        self.spent.rows += rows;
        self.spent.at = self.head;
    }

    /// Counts what its insertion costs: its row, its entry in the index, its key and its tags.
    pub fn spend_start(&mut self, has_key: bool) {
        let tags = u32::try_from(self.tags.len()).unwrap_or(u32::MAX);
        self.spent.rows = 2 + u32::from(has_key) + u32::from(self.gathering.is_some()) + tags;
        self.spent.requests = 1;
    }

    /// Counts what its letters cost: each is a row twice, when it is written and when it has arrived.
    pub(crate) fn spend_mail(&mut self, mail: &Mail) {
        self.spent.rows += 2 * u32::try_from(mail.post.len()).unwrap_or(u32::MAX);
    }

    /// Its bill, by the list prices.
    pub fn meter(&self) -> Meter {
        let Spent { rows, requests, words, .. } = self.spent;
        let (asked, called) = (requests.saturating_add(words), self.epoch.0.saturating_add(requests));
        let dollars = dollars_per_million(rows.into(), asked.into(), called.into());
        let dollars_per_million = (dollars * 100.0).round() / 100.0;
        Meter { rows_written: rows, requests: asked, dollars_per_million }
    }
}

/// The rows of an entry besides the run's own.
fn other_rows(entry: &Entry) -> u32 {
    // A run that has failed is in the row of those that failed alike.
    let is_one = matches!(
        entry,
        Entry::Reopened { .. } | Entry::SignalNoted(_) | Entry::SignalForgotten(_) | Entry::Failed { .. }
    );
    let of_record = entry.record().map_or(0, |record| {
        // The id of a signal is a row of its own.
        1 + u32::from(matches!(&record.event, Event::SignalReceived { id: Some(_), .. }))
    });
    // What it is found by is a row of its own, and so is what it was found by before.
    let of_attribute =
        if let Entry::Attributed { before, .. } = entry { 1 + u32::from(before.is_some()) } else { 0 };
    // With its entry in the index of when it is forgotten.
    let of_join = if entry.known_join().is_some() { 2 } else { 0 };
    u32::from(is_one) + of_record + of_attribute + of_join
}

/// Whether a consumer was there: it has claimed the run, or was heard of.
fn is_word(entry: &Entry) -> bool {
    match entry {
        Entry::Activated { slot, .. } => slot.session == Transport::Token,
        Entry::Leased { .. } => true,
        Entry::Recorded { .. }
        | Entry::SignalNoted(_)
        | Entry::SignalForgotten(_)
        | Entry::TokenKeyUsed(_)
        | Entry::SignalsRead { .. }
        | Entry::Marked(_)
        | Entry::OpenChanged(_)
        | Entry::Troubled(_)
        | Entry::Queued { .. }
        | Entry::Joined(_)
        | Entry::Suspended
        | Entry::Patched(_)
        | Entry::Progressed(_)
        | Entry::ProgressForgotten
        | Entry::FailingSince(_)
        | Entry::Attributed { .. }
        | Entry::Rewound(_)
        | Entry::BegunAnew { .. }
        | Entry::Reopened { .. }
        | Entry::Paused(_)
        | Entry::Completed { .. }
        | Entry::Failed { .. }
        | Entry::LetGo(_)
        | Entry::Left(_)
        | Entry::ActedOn(_)
        | Entry::Expired
        | Entry::Emptied
        | Entry::Cancelled { .. } => false,
    }
}

fn is_signal(entry: &Entry) -> bool {
    entry.record().is_some_and(|record| matches!(record.event, Event::SignalReceived { .. }))
}
