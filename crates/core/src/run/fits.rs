//! What fits into a run's row: its input, its state and its result are one row, and the platform bounds a row.
//!
//! A row that the storage refuses would be refused each time, and the program's steps would run again for each try. So
//! what a program says is measured before it is recorded: a run whose row would be too large fails at once, and keeps
//! what its steps gave.

use stepwell_protocol::{Code, Failure, Timestamp};

use super::{Decision, Effect, Entry, Rejection, Reply, Run};

/// How many bytes the input, the state and the result of a run have together. The platform takes 2 MB for a row; the
/// rest is for its short columns.
pub const ROW_BYTES_MAX: usize = 2_000_000 - 1_024;

/// What of that a run leaves free until it ends, so that its end can always be written: why it failed (4 KiB), what
/// people have done to it (4 KiB), its last error and its troubles.
pub const ROW_RESERVE_BYTES: usize = 10_240;

/// A state with this many things in each of its lists is never larger than [`SMALL_STATE_BYTES`].
const SMALL_LIST: usize = 16;

/// More than such a state takes, with names, values and shapes of their full lengths, and each byte of them escaped.
const SMALL_STATE_BYTES: usize = 1 << 20;

impl Run {
    /// What a program's report leads to, or the run's failure if its row could not be stored.
    pub(super) fn within_its_row(&self, now: Timestamp, mut decision: Decision) -> Decision {
        if self.is_surely_small(&decision.entries) {
            return decision;
        }
        let Some(Excess { input, bytes, room }) = self.excess(&decision.entries) else { return decision };
        let message = format!(
            "{}: beside the run's input of {input} bytes, there is room for {room} bytes of output and of what it waits \
             for; these have {bytes}. Store what is large elsewhere (R2, say) and pass its name.",
            Code::PayloadTooLarge.title(),
        );
        // What its steps gave is kept; a repeat of the commit is known.
        decision.entries.retain(|entry| !entry.changes_row() || matches!(entry, Entry::Marked(_)));
        decision
            .entries
            .push(Entry::Failed { failure: Failure::coded(Code::PayloadTooLarge, message), at: now });
        Decision { effects: vec![Effect::TellEnd], reply: Reply::Stop, ..decision }
    }

    /// Refuses what somebody else wants to be recorded, if the row could not be stored.
    pub(super) fn check_row(&self, entries: &[Entry]) -> Result<(), Rejection> {
        let Some(Excess { input, bytes, room }) = self.excess(entries) else { return Ok(()) };
        let detail = format!(
            "The run's state would have {bytes} bytes; beside its input of {input} bytes there is room for {room}."
        );
        Err(Rejection::new(Code::PayloadTooLarge, detail))
    }

    /// Whether nobody has to look: making a row only to measure it would cost each commit as much as storing it.
    fn is_surely_small(&self, entries: &[Entry]) -> bool {
        let (mut open, mut patches, mut cuts) = (self.open.len(), self.patches.len(), self.cuts.len());
        let mut input_bytes = self.input_bytes as usize;
        for entry in entries {
            if let Entry::OpenChanged(changed) = entry {
                open = changed.len();
            } else if let Entry::Patched(more) = entry {
                patches += more.len();
            } else if let Entry::BegunAnew { input, cuts: left, .. } = entry {
                (input_bytes, cuts) = (input.size(), left.len());
            }
        }
        [open, patches, cuts].iter().all(|count| *count <= SMALL_LIST)
            && input_bytes + result_bytes(entries) + SMALL_STATE_BYTES <= ROW_BYTES_MAX - ROW_RESERVE_BYTES
    }

    /// Whether the row with these entries would be too large.
    fn excess(&self, entries: &[Entry]) -> Option<Excess> {
        let mut next = self.clone();
        next.apply_all(entries);
        let row = next.to_row();
        let bytes = row.state.len() + result_bytes(entries);
        let most = if row.ended_at.is_some() { ROW_BYTES_MAX } else { ROW_BYTES_MAX - ROW_RESERVE_BYTES };
        // A new life has an input of its own.
        let input = next.input_bytes as usize;
        let room = most.saturating_sub(input);
        (bytes > room).then_some(Excess { input, bytes, room })
    }
}

/// A row that would be too large.
struct Excess {
    /// What its input has.
    input: usize,
    /// What it has beside that.
    bytes: usize,
    /// What it may have beside that.
    room: usize,
}

/// What an end among these entries adds to the row.
fn result_bytes(entries: &[Entry]) -> usize {
    let result = entries.iter().find_map(|entry| {
        if let Entry::Completed { output, .. } = entry {
            Some(output.size())
        } else if let Entry::Failed { failure, .. } = entry {
            serde_json::to_string(failure).ok().map(|failure| failure.len())
        } else {
            None
        }
    });
    result.unwrap_or_default()
}
