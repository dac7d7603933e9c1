//! How long a run is kept after its end.

use stepwell_protocol::Timestamp;

use super::{Decision, Entry, Phase, Reply, Run};

/// Runs that end within this time are deleted together, so that one alarm serves them all.
pub const EXPIRY_ROUND_MS: u64 = 60_000;

impl Run {
    /// When it is deleted: once it has been kept for as long as it should, and soon after.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let Phase::Ended { at, .. } = self.phase else { return None };
        let retention_ms = self.retention_ms?;
        // Nobody notices a thousandth of the time.
        let round_ms = (retention_ms / 1_000).clamp(1, EXPIRY_ROUND_MS);
        let over = at.plus_millis(retention_ms).as_millis();
        Some(Timestamp::from_millis(over.div_ceil(round_ms) * round_ms))
    }

    /// Whether it has been kept for as long as it should.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// What cannot be deleted at once is gone for everybody before the first piece of it is.
    pub(super) fn expire(&self, now: Timestamp) -> Decision {
        if self.deleting || !self.is_expired(now) {
            return Decision { reply: Reply::Unchanged, ..Decision::default() };
        }
        Decision { entries: vec![Entry::Expired], ..Decision::default() }
    }
}
