//! What goes on in slices, beside requests: purges and redrives. Both are stored, and an instance that dies leaves them to
//! the next one.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    queue::{QueueSettings, REASON_LENGTH_MAX, Redrive, WORD_LENGTH_MAX, is_word},
};

use super::{Change, Queue, Row, Rows, SLICE, drive::Known};
use crate::{object::Fault, ordered::OrdSet};

/// How often a redrive with a rate goes on.
const TICK_MS: u64 = 200;

/// How much of its rate a redrive makes up for that has stood still.
const BURST_MS: u64 = 1_000;

/// What is being purged: what was queued, or died, up to a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purging {
    /// The latest number when queued jobs were purged; 0 if they are not.
    #[serde(default)]
    pub queued: u64,
    /// The same of dead letters.
    #[serde(default)]
    pub dead: u64,
}

/// What is being redriven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redriving {
    /// Which dead letters.
    pub redrive: Redrive,
    /// The latest number when it began: what dies again later is left alone.
    pub up_to: u64,
    /// How long each of them takes; 0 for as fast as it goes.
    pub every_ms: u64,
    /// Up to when that is used up.
    pub at: Timestamp,
}

impl Redriving {
    /// When it goes on.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        if self.every_ms == 0 { now } else { self.at.plus_millis(self.every_ms.max(TICK_MS)) }
    }

    /// How many may be redriven by now.
    fn allowed(&self, now: Timestamp) -> usize {
        let passed_ms = now.as_millis().saturating_sub(self.at.as_millis());
        let allowed = passed_ms.checked_div(self.every_ms).unwrap_or(SLICE as u64);
        usize::try_from(allowed).unwrap_or(SLICE).min(SLICE)
    }

    fn is_about(&self, row: &Row) -> bool {
        let Redrive { code, contains, group, per_second: _ } = &self.redrive;
        let Some(death) = &row.death else { return false };
        let says = |text: &String| death.reason.as_ref().is_some_and(|reason| reason.contains(text));
        row.since <= self.up_to
            && code.is_none_or(|code| code == death.code)
            && contains.as_ref().is_none_or(says)
            && group.as_ref().is_none_or(|group| row.group.as_ref() == Some(group))
    }
}

/// The highest rate of a redrive.
const PER_SECOND_MAX: u32 = 1_000;

/// Refuses what no redrive can be: it is stored until it is over.
pub fn check_redrive(redrive: &Redrive) -> Result<(), Problem> {
    let Redrive { code: _, contains, group, per_second } = redrive;
    let bad = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
    if per_second.is_some_and(|rate| !(1..=PER_SECOND_MAX).contains(&rate)) {
        return bad(format!("`per_second` is 1 to {PER_SECOND_MAX}."));
    }
    if contains.as_ref().is_some_and(|text| text.len() > REASON_LENGTH_MAX) {
        return bad(format!("`contains` has at most {REASON_LENGTH_MAX} bytes, as a reason has."));
    }
    if group.as_ref().is_some_and(|group| !is_word(group)) {
        return bad(format!(
            "`group` has 1 to {WORD_LENGTH_MAX} bytes, without control or invisible characters."
        ));
    }
    Ok(())
}

impl Queue {
    /// Begins to delete what is queued and held by nobody, or the dead letters. What comes later stays, also what is given
    /// back or redriven later.
    pub fn purge<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        dead: bool,
    ) -> Result<(), Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let last = known.head.counts.last;
        let mut purging = known.head.purging.unwrap_or_default();
        if dead {
            purging.dead = last;
        } else {
            purging.queued = last;
        }
        // A purge that is under way may have passed what is to go now.
        known.purged = (0, 0);
        known.head.purging = Some(purging);
        let change = known.store_head();
        self.commit(rows, now, &[change])
    }

    /// Goes on with a purge.
    pub(super) fn purge_slice<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let Some(purging) = known.head.purging else { return Ok(()) };
        let mut changes = Vec::new();
        let (after_plain, after_rows) = known.purged;
        let plain = rows.plain(after_plain, SLICE).map_err(Fault::Storage)?;
        let plain: Vec<_> = plain.into_iter().take_while(|plain| plain.number <= purging.queued).collect();
        // What came later stays: a purge that looked at it would not end before its queue is left in peace.
        let last = purging.queued.max(purging.dead);
        let others = rows.jobs(after_rows, SLICE).map_err(Fault::Storage)?;
        let others: Vec<_> = others.into_iter().take_while(|(number, _)| *number <= last).collect();
        let is_over = plain.is_empty() && others.is_empty();
        if let Some(last) = plain.last() {
            known.purged.0 = last.number;
        }
        if let Some((last, _)) = others.last() {
            known.purged.1 = *last;
        }
        for number in plain.into_iter().map(|plain| plain.number) {
            if !known.by_job.contains_key(&number) {
                known.head.counts.alive = known.head.counts.alive.saturating_sub(1);
                changes.push(Change::Remove { number, is_plain: true });
            }
        }
        let is_meant = |known: &Known, number: u64, row: &Row| match row.death {
            Some(_) => row.since <= purging.dead,
            None => row.since <= purging.queued && !known.by_job.contains_key(&number),
        };
        let others = others.into_iter().filter(|(number, row)| is_meant(known, *number, row));
        let others: Vec<_> = others.collect();
        let gone: OrdSet<u64> = others.iter().map(|(number, _)| *number).collect();
        let mut ready = 0;
        for (number, row) in others {
            ready += known.remove(rows, now, number, &row, &gone, &mut changes)?;
        }
        if is_over {
            known.head.purging = None;
        }
        if is_over || !changes.is_empty() {
            changes.push(known.store_head());
        }
        self.commit(rows, now, &changes)?;
        self.wake(rows, now, ready);
        Ok(())
    }

    /// Begins to queue dead letters again. It takes the place of one that is under way.
    pub fn redrive<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        redrive: Redrive,
    ) -> Result<(), Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        // Each partition has its part of the rate.
        let partitions = u64::from(known.head.settings.partitions);
        let every_ms =
            redrive.per_second.map_or(0, |rate| (1_000 * partitions).div_ceil(u64::from(rate.max(1))));
        known.head.redriving = Some(Redriving { redrive, up_to: known.head.counts.last, every_ms, at: now });
        known.redriven = (Timestamp::default(), 0);
        let change = known.store_head();
        self.commit(rows, now, &[change])
    }

    /// Goes on with a redrive.
    pub(super) fn redrive_slice<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let Some(mut redriving) = known.head.redriving.clone() else { return Ok(()) };
        let burst_ms = redriving.every_ms.max(BURST_MS);
        redriving.at = redriving.at.max(Timestamp::from_millis(now.as_millis().saturating_sub(burst_ms)));
        let mut allowed = redriving.allowed(now);
        let dead = rows.dead(known.redriven, SLICE).map_err(Fault::Storage)?;
        let mut is_over = dead.len() < SLICE;
        let mut changes = Vec::new();
        let mut groups = OrdSet::new();
        let mut ready = 0;
        for (number, row) in dead {
            let at = row.death.as_ref().map(|death| death.at).unwrap_or_default();
            if redriving.is_about(&row) {
                if allowed == 0 {
                    is_over = false;
                    break;
                }
                allowed -= 1;
                redriving.at = redriving.at.plus_millis(redriving.every_ms);
                ready += known.revive(rows, now, number, row, &mut groups, &mut changes)?;
            }
            known.redriven = (at, number);
        }
        if is_over || !changes.is_empty() {
            known.head.redriving = (!is_over).then_some(redriving);
            changes.push(known.store_head());
        }
        self.commit(rows, now, &changes)?;
        self.wake(rows, now, ready);
        Ok(())
    }
}

impl Known {
    /// Up to which number what is queued is being purged.
    pub fn purges_up_to(&self) -> u64 {
        self.head.purging.map_or(0, |purging| purging.queued)
    }

    /// A job that is not plain and that nobody holds is deleted. Those of its group that go as well are not followed. Says
    /// how many can be claimed at once.
    pub fn remove<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        row: &Row,
        gone: &OrdSet<u64>,
        changes: &mut Vec<Change>,
    ) -> Result<usize, Fault<R::Error>> {
        changes.push(Change::Remove { number, is_plain: false });
        if row.death.is_some() {
            self.head.counts.dead = self.head.counts.dead.saturating_sub(1);
            return Ok(0);
        }
        self.head.counts.alive = self.head.counts.alive.saturating_sub(1);
        if row.is_in_line { self.follow(rows, now, row, gone, changes) } else { Ok(0) }
    }

    /// A dead letter is queued again, behind all others of its group. Says how many can be claimed at once.
    pub fn revive<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        mut row: Row,
        groups: &mut OrdSet<String>,
        changes: &mut Vec<Change>,
    ) -> Result<usize, Fault<R::Error>> {
        row.since = self.number();
        row.place = row.since;
        row.attempts = 0;
        row.due = now;
        row.death = None;
        row.is_in_line = match &row.group {
            Some(group) => {
                groups.insert(group.clone()) && rows.group(group, 0, 1).map_err(Fault::Storage)?.is_empty()
            }
            None => true,
        };
        self.head.counts.dead = self.head.counts.dead.saturating_sub(1);
        self.head.counts.alive += 1;
        self.lines_up(&row);
        self.will_age(super::drive::round(now.plus_millis(self.head.settings.retention_ms)));
        let ready = usize::from(row.is_in_line);
        changes.push(Change::Update { number, row: Box::new(row) });
        Ok(ready)
    }
}
