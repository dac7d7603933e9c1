//! What is too old: jobs that nobody has claimed become dead letters, and dead letters are deleted.

use stepwell_protocol::{Timestamp, queue::DeadCode};

use super::{
    Change, MOVED_BYTES_MAX, Queue, Row, Rows, SLICE,
    drive::{Known, PRIORITIES, round},
};
use crate::{object::Fault, ordered::OrdSet};

impl Queue {
    /// Looks for what is too old, if its time has come: a slice of each kind.
    pub(super) fn age<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = self.known.as_mut().filter(|known| known.ages_at.is_some_and(|at| at <= now))
        else {
            return Ok(());
        };
        let mut changes = Vec::new();
        known.age(rows, now, &mut changes)?;
        let is_changed = !changes.is_empty();
        if is_changed {
            changes.push(known.store_head());
        }
        // Nothing is due before what follows has looked at the rows.
        known.ages_at = None;
        self.commit(rows, now, &changes)?;
        let Some(known) = &mut self.known else { return Ok(()) };
        known.ages_at = match known.next_age(rows)? {
            // There is more than a slice. If nothing has changed, nothing would the next time.
            Some(at) if is_changed && at <= now => Some(now),
            Some(at) => Some(at.max(round(now))),
            None => None,
        };
        Ok(())
    }
}

impl Known {
    /// When the first job, or dead letter, is too old.
    pub fn next_age<R: Rows>(&mut self, rows: &R) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let plain = self.next_plain(rows, 1)?;
        let settings = &self.head.settings;
        let mut next = plain.first().map(|plain| plain.sent_at.plus_millis(settings.retention_ms));
        let mut sooner = |at: Timestamp| next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
        for priority in (0_u8..).take(PRIORITIES) {
            if let Some((_, row)) = rows.line(priority, None, 1).map_err(Fault::Storage)?.first() {
                sooner(row.due.plus_millis(settings.retention_ms));
            }
        }
        let dead = rows.dead((Timestamp::default(), 0), 1).map_err(Fault::Storage)?;
        if let Some(death) = dead.first().and_then(|(_, row)| row.death.as_ref()) {
            sooner(death.at.plus_millis(settings.dead_retention_ms));
        }
        Ok(next.map(round))
    }

    fn age<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) -> Result<(), Fault<R::Error>> {
        let retention_ms = self.head.settings.retention_ms;
        let is_old = |since: Timestamp| since.plus_millis(retention_ms) <= now;
        let plain = self.next_plain(rows, SLICE)?;
        let mut bytes = 0;
        for plain in plain.into_iter().take_while(|plain| is_old(plain.sent_at)) {
            if bytes >= MOVED_BYTES_MAX {
                break;
            }
            bytes += plain.size;
            let mut row = Row { since: self.number(), ..Row::of_plain(plain) };
            self.die(now, &mut row, DeadCode::Expired, None);
            changes.push(Change::Demote { number: plain.number, row: Box::new(row) });
        }
        for priority in (0_u8..).take(PRIORITIES) {
            let line = rows.line(priority, None, SLICE).map_err(Fault::Storage)?;
            let mut gone = OrdSet::new();
            for (number, mut row) in line.into_iter().take_while(|(_, row)| is_old(row.due)) {
                if row.since <= self.purges_up_to() {
                    // The purge has not come to it yet.
                    gone.insert(number);
                    self.remove(rows, now, number, &row, &gone, changes)?;
                    continue;
                }
                row.since = self.number();
                self.die(now, &mut row, DeadCode::Expired, None);
                // Nobody has claimed from the group for as long as that, so the one behind it keeps its own time: all that
                // are too old go one after the other.
                self.follow(rows, Timestamp::default(), &row, &OrdSet::new(), changes)?;
                changes.push(Change::Update { number, row: Box::new(row) });
            }
        }
        let dead = rows.dead((Timestamp::default(), 0), SLICE).map_err(Fault::Storage)?;
        let kept_ms = self.head.settings.dead_retention_ms;
        for (number, row) in dead {
            let Some(died_at) = row.death.as_ref().map(|death| death.at) else { break };
            let over = died_at.plus_millis(kept_ms);
            if over > now || !self.may_forget(now, (died_at, number), over) {
                break;
            }
            self.head.counts.dead = self.head.counts.dead.saturating_sub(1);
            changes.push(Change::Remove { number, is_plain: false });
        }
        Ok(())
    }
}
