//! An object's one alarm.
//!
//! It is only ever set earlier, and the next time is looked for when it fires. While something is under way it is also
//! the dead man's switch: if the instance dies, the alarm wakes the next one.

use stepwell_protocol::Timestamp;

use super::{DEAD_MAN_MS, LOOK_AGAIN_MS};

/// How long ago an alarm was due that has not come, and is taken for lost although the platform believes in it.
const OVERDUE_MS: u64 = 60_000;

/// The alarm, as far as one instance knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarm {
    /// When it is set for.
    armed: Option<Timestamp>,
    /// When the host has to set it for.
    ordered: Option<Timestamp>,
    /// Whether an alarm could not be set, or was lost: the platform's may be any, so the next one has to look at all rows.
    at_once: bool,
    /// Whether this instance has compared it with the rows.
    compared: bool,
    /// What the platform said that it was set for when this instance was loaded.
    found: Option<Timestamp>,
    /// Whether the platform had none, or one that has not come.
    missing: bool,
    /// How many alarms in a row could not read the rows.
    failures: u32,
}

impl Alarm {
    /// Makes sure that it fires by then.
    pub fn by(&mut self, now: Timestamp, at: Timestamp) {
        self.notice_loss(now);
        // An alarm armed from within an alarm for the very millisecond that fires would be lost.
        let soonest = now.plus_millis(1);
        // After an alarm that could not be set, an earlier one must not be replaced by a later; and after one that was
        // lost, whatever it was for is due.
        let at = if std::mem::take(&mut self.at_once) { soonest } else { at.max(soonest) };
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            self.ordered = Some(at);
        }
    }

    /// Notices that the platform has lost it: its time is long past, and it has not come. Taken for one that is still to
    /// come, it would keep every later one from being set for as long as this instance lives. One that is only late is
    /// left alone: set anew at every turn of a busy object, it would never come.
    pub fn notice_loss(&mut self, now: Timestamp) {
        if self.armed.take_if(|armed| armed.plus_millis(DEAD_MAN_MS) <= now).is_some() {
            self.at_once = true;
            self.compared = false;
        }
    }

    /// Sets it once more, at another time that is not later: a platform does nothing about the same one.
    pub fn anew(&mut self, now: Timestamp) {
        let at = match self.armed {
            Some(armed) => Timestamp::from_millis(armed.as_millis().saturating_sub(1)),
            None => now.plus_millis(DEAD_MAN_MS),
        };
        self.armed = None;
        self.by(now, at);
    }

    /// Whether the platform had lost it when this instance was loaded. Said once.
    pub fn was_missing(&mut self) -> bool {
        std::mem::take(&mut self.missing)
    }

    /// What the host has to set it for.
    pub fn take(&mut self) -> Option<Timestamp> {
        self.ordered.take()
    }

    /// It could not be set.
    pub fn not_set(&mut self) {
        self.armed = None;
        self.at_once = true;
        self.compared = false;
    }

    /// It has fired, and whoever it has woken looks at all rows that are due.
    pub fn fired(&mut self) {
        self.armed = None;
        self.compared = true;
    }

    /// Whatever was due could be read.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The rows could not be read. Says how long to wait until they are looked at again.
    pub fn failed(&mut self) -> u64 {
        let pause_ms = (LOOK_AGAIN_MS << self.failures.min(16)).min(DEAD_MAN_MS);
        self.failures = self.failures.saturating_add(1);
        pause_ms
    }

    /// Whether this instance knows that it is right.
    pub fn is_compared(&self) -> bool {
        self.compared
    }

    /// What the platform believes.
    pub fn found(&mut self, at: Option<Timestamp>) {
        self.found = at;
    }

    /// Before the rows are looked at: whatever this instance has ordered so far counts for nothing, since the platform
    /// may have lost it.
    pub fn forget(&mut self) {
        self.armed = None;
    }

    /// What it has to be set for, given when the first thing is due by the rows.
    pub fn compare(&mut self, first: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        self.compared = true;
        let (found, soonest) = (self.found.take(), now.plus_millis(1));
        let at = match first {
            _ if std::mem::take(&mut self.at_once) => soonest,
            Some(first) => first.max(soonest),
            None => return None,
        };
        self.missing = found.is_none_or(|found| found.plus_millis(OVERDUE_MS) <= now);
        // A platform that has lost the alarm, and does not know, does nothing about one that is set for the same time
        // again. It may fire a moment early, and is then set for the right time.
        Some(match found {
            Some(found) if found == at && at > soonest => Timestamp::from_millis(at.as_millis() - 1),
            Some(found) if found == at => at.plus_millis(1),
            Some(_) | None => at,
        })
    }
}
