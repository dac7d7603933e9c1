//! How long a run is kept after its end.

use stepwell_protocol::Timestamp;

use super::{Decision, Entry, Phase, Reply, Run};

/// Runs that end within this time are deleted together, so that one alarm serves them all.
pub const EXPIRY_ROUND_MS: u64 = 60_000;

/// How long a run that Stepwell itself has started, a child or the run of a tick or an event, is known by its key from its start on,
/// however short it is kept: a start that is delivered once more must not make a second run. Longer than a message lives.
pub const INVOCATION_KEPT_MS: u64 = 7 * 86_400_000;

impl Run {
    /// Whether its row has to stay when it is deleted: only the row tells that its invocation has started a run.
    pub fn outlives_itself(&self, now: Timestamp) -> bool {
        (self.parent.is_some() || self.ticked.is_some() || self.triggered.is_some())
            && now < self.created_at.plus_millis(INVOCATION_KEPT_MS)
    }

    /// When it is deleted: once it has been kept for as long as it should, and soon after.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let Phase::Ended { at, .. } = self.phase else { return None };
        let retention_ms = self.retention_ms?;
        // Nobody notices a thousandth of the time.
        let round_ms = (retention_ms / 1_000).clamp(1, EXPIRY_ROUND_MS);
        let over = at.plus_millis(retention_ms);
        // Starts that are skipped for it have to find it.
        let over =
            over.max(self.gathering.as_ref().and_then(|known| known.until).unwrap_or(over)).as_millis();
        Some(Timestamp::from_millis(over.div_ceil(round_ms) * round_ms))
    }

    /// When its cell has to delete something of it: all but its row, or that.
    pub fn deleted_at(&self) -> Option<Timestamp> {
        let expires_at = self.expires_at()?;
        if !self.emptied {
            return Some(expires_at);
        }
        Some(expires_at.max(self.created_at.plus_millis(INVOCATION_KEPT_MS)))
    }

    /// Whether it has been kept for as long as it should.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.deleted_at().is_some_and(|at| at <= now)
    }

    /// Nothing is left of it but its row, which stays for a while.
    pub(super) fn empty(&self) -> Decision {
        if !self.deleting || self.emptied {
            return Decision { reply: Reply::Unchanged, ..Decision::default() };
        }
        Decision { entries: vec![Entry::Emptied], ..Decision::default() }
    }

    /// What cannot be deleted at once is gone for everybody before the first piece of it is.
    pub(super) fn expire(&self, now: Timestamp) -> Decision {
        if self.deleting || !self.is_expired(now) {
            return Decision { reply: Reply::Unchanged, ..Decision::default() };
        }
        Decision { entries: vec![Entry::Expired], ..Decision::default() }
    }
}
