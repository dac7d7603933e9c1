//! Addresses that jobs name themselves, and what is known of those that are not well.
//!
//! Only an address that has failed is remembered, and of those no more than [`ADDRESSES_MAX`]: one that is forgotten is
//! taken for well, and its jobs have their own back-off all the same. While an address is down, its jobs *stand back*:
//! they are in no line, so that nobody has to pass over them, and one at a time is put in line to see whether it is back.
//! So do jobs of an address that has many more than it gets at once, if others may be behind them.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Timestamp,
    queue::{DeadCode, PushFailure},
};

use super::{
    Change, Found, Queue, Row, Rows,
    drive::Known,
    push::{DOWN, pause_ms},
};
use crate::{object::Fault, sorting::sort_by};

/// How many addresses a partition remembers.
pub const ADDRESSES_MAX: usize = 1_000;

/// How many jobs go to one address at once.
const AT_ONCE: usize = 3;

/// How many jobs go to addresses at once that are not well: the other places are for those that are.
const UNWELL_AT_ONCE: usize = 3;

/// How many jobs that are too old are found while others are put in line.
const OLD_TOGETHER: usize = 128;

/// What a job's death says whose address is disabled.
const DISABLED: &str = "the address is disabled: it has answered 410 Gone";

/// What is known of an address that is not well, or that jobs stand back for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwell {
    /// How often in a row it did not answer, or was overloaded.
    #[serde(default)]
    pub failures: u32,
    /// Before when it is left alone.
    #[serde(default)]
    pub until: Timestamp,
    /// If it has said that it is gone: the latest number then. What was queued by then does not go there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// Whether jobs stand back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_awaited: bool,
    /// When it was last heard of.
    #[serde(default)]
    pub at: Timestamp,
}

impl Unwell {
    fn is_down(&self) -> bool {
        self.failures >= DOWN || self.gone.is_some()
    }

    fn is_well(&self) -> bool {
        self.failures == 0 && self.gone.is_none()
    }
}

/// What becomes of a job that is next in line.
pub(super) enum Turn {
    /// It goes.
    Now,
    /// Its address has as many as it gets at once.
    Waits,
    /// Its address is not well: it stands back.
    Back,
    /// Its address is disabled.
    Never,
}

impl Queue {
    /// Notes how an address has taken a job.
    pub(super) fn note_address<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        failure: Option<&PushFailure>,
    ) -> Result<bool, Fault<R::Error>> {
        let Some(known) = self.known.as_mut().filter(|known| known.head.settings.addressed) else {
            return Ok(false);
        };
        let Some(Found::Row(Row { to: Some(address), .. })) = rows.job(number).map_err(Fault::Storage)?
        else {
            return Ok(false);
        };
        // Whatever it says, the job has not stopped the instance.
        known.recovers();
        let mut changes = Vec::new();
        let before = known.addresses.get(&address).copied();
        let unwell = before.unwrap_or_default();
        let after = match failure {
            Some(failure) if failure.gone => {
                Unwell { failures: 0, until: now, gone: Some(known.head.counts.last), ..unwell }
            }
            Some(failure) if failure.is_down => {
                let failures = unwell.failures.saturating_add(1);
                let until = pause_ms(failures).map_or(unwell.until, |ms| now.plus_millis(ms));
                Unwell { failures, until, ..unwell }
            }
            // It answers, if not with what it is asked for.
            Some(_) => Unwell { failures: 0, until: now, ..unwell },
            None => Unwell { failures: 0, until: now, gone: None, ..unwell },
        };
        if after.is_well() && !after.is_awaited {
            known.forget_address(&address, &mut changes);
        } else {
            known.remember(address, Unwell { at: now, ..after }, &mut changes);
        }
        self.commit(rows, now, &changes)?;
        Ok(true)
    }
}

impl Known {
    /// What becomes of a job that is next in line.
    pub fn turn_of(&self, now: Timestamp, row: &Row) -> Turn {
        let Some(address) = &row.to else { return Turn::Now };
        let held = self.pushing.held_by(address);
        match self.addresses.get(address).filter(|unwell| !unwell.is_well()) {
            None if held < AT_ONCE => Turn::Now,
            None => Turn::Waits,
            Some(unwell) if unwell.gone.is_some_and(|gone| row.since <= gone) => Turn::Never,
            Some(unwell) if self.may_try(now, unwell, held) => Turn::Now,
            Some(_) => Turn::Back,
        }
    }

    /// Whether one more job may go to an address that is not well and has so many.
    fn may_try(&self, now: Timestamp, unwell: &Unwell, held: usize) -> bool {
        let at_once = if unwell.is_down() { 1 } else { AT_ONCE };
        unwell.until <= now && held < at_once && self.unwell_held() < UNWELL_AT_ONCE
    }

    /// How many jobs are on their way to addresses that are not well.
    fn unwell_held(&self) -> usize {
        let is_unwell = |address: &&String| self.addresses.get(*address).is_some_and(|it| !it.is_well());
        self.pushing.to.values().filter(is_unwell).count()
    }

    /// A job does not go for now, or never.
    pub fn turn_away(
        &mut self,
        now: Timestamp,
        number: u64,
        row: &Row,
        is_dead: bool,
        changes: &mut Vec<Change>,
    ) {
        let mut row = row.clone();
        if is_dead {
            row.since = self.number();
            self.disable(now, &mut row);
        } else {
            self.stand_back(&mut row, changes);
        }
        changes.push(Change::Update { number, row: Box::new(row) });
    }

    /// Jobs that wait only for others of their address stand back, so that those behind them can pass. Says whether any of
    /// them does.
    pub fn let_pass(&mut self, now: Timestamp, waiting: Vec<(u64, Row)>, changes: &mut Vec<Change>) -> bool {
        let mut any = false;
        for (number, mut row) in waiting {
            let Some(address) = row.to.clone() else { continue };
            if !self.addresses.contains_key(&address) {
                self.remember(address.clone(), Unwell { until: now, at: now, ..Unwell::default() }, changes);
            }
            // Where it is not known that jobs stand back, none may.
            if self.addresses.contains_key(&address) {
                self.stand_back(&mut row, changes);
                changes.push(Change::Update { number, row: Box::new(row) });
                any = true;
            }
        }
        any
    }

    /// Gives a new job its place: in line, behind, or among the dead letters.
    pub fn place_by_address(&mut self, now: Timestamp, row: &mut Row, changes: &mut Vec<Change>) {
        let unwell = row.to.as_ref().and_then(|to| self.addresses.get(to)).copied();
        match unwell {
            Some(Unwell { gone: Some(_), .. }) => self.disable(now, row),
            Some(unwell) if unwell.is_down() => self.stand_back(row, changes),
            Some(_) | None => {}
        }
    }

    fn disable(&mut self, now: Timestamp, row: &mut Row) {
        let reason = format!("{DISABLED}. Redrive a dead letter to try it again.");
        self.die(now, row, DeadCode::Disabled, Some(reason));
    }

    fn stand_back(&mut self, row: &mut Row, changes: &mut Vec<Change>) {
        (row.is_in_line, row.is_back) = (false, true);
        if let Some(address) = row.to.clone()
            && let Some(unwell) = self.addresses.get(&address).copied().filter(|unwell| !unwell.is_awaited)
        {
            self.remember(address, Unwell { is_awaited: true, ..unwell }, changes);
        }
    }

    /// Puts jobs in line that stood back and may go now: up to so many.
    pub fn bring_back<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        mut limit: usize,
        changes: &mut Vec<Change>,
    ) -> Result<(), Fault<R::Error>> {
        let waits = |(_, unwell): &(&String, &Unwell)| unwell.is_awaited && unwell.until <= now;
        let mut awaited: Vec<_> = self.addresses.iter().filter(waits).collect();
        let served = |address: &String| self.pushing.served.get(address).copied().unwrap_or_default();
        sort_by(&mut awaited, |(one, a), (other, b)| (served(one), a.until).cmp(&(served(other), b.until)));
        let awaited: Vec<_> =
            awaited.into_iter().map(|(address, unwell)| (address.clone(), *unwell)).collect();
        for (address, unwell) in awaited {
            let held = self.pushing.held_by(&address);
            let wanted = if unwell.is_well() {
                AT_ONCE.saturating_sub(held).min(limit)
            } else {
                usize::from(limit > 0 && self.may_try(now, &unwell, held))
            };
            if wanted == 0 && unwell.gone.is_none() {
                continue;
            }
            limit -= wanted;
            if wanted > 0 {
                self.pushing.serve(&address);
            }
            self.bring_back_of(rows, now, &address, wanted, changes)?;
        }
        Ok(())
    }

    fn bring_back_of<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        address: &str,
        mut wanted: usize,
        changes: &mut Vec<Change>,
    ) -> Result<(), Fault<R::Error>> {
        let Some(unwell) = self.addresses.get(address).copied() else { return Ok(()) };
        // If the first is not for the dead letters, neither are those behind it.
        let some = wanted + if unwell.is_well() || wanted == 0 { 1 } else { OLD_TOGETHER };
        let mut back = rows.back(address, some).map_err(Fault::Storage)?;
        let mut is_last = back.len() < some;
        let is_over = |row: &Row| {
            row.due.plus_millis(self.head.settings.retention_ms) <= now
                || unwell.gone.is_some_and(|gone| row.since <= gone)
        };
        if !is_last && back.first().is_some_and(|(_, row)| is_over(row)) {
            back = rows.back(address, wanted + OLD_TOGETHER).map_err(Fault::Storage)?;
            is_last = back.len() < wanted + OLD_TOGETHER;
        }
        let mut left = back.len();
        for (number, mut row) in back {
            let is_old = row.due.plus_millis(self.head.settings.retention_ms) <= now;
            if is_old {
                row.since = self.number();
                self.die(now, &mut row, DeadCode::Expired, None);
            } else if unwell.gone.is_some_and(|gone| row.since <= gone) {
                row.since = self.number();
                self.disable(now, &mut row);
            } else if wanted > 0 {
                wanted -= 1;
                (row.is_in_line, row.is_back) = (true, false);
                self.lines_up(&row);
            } else {
                break;
            }
            left -= 1;
            changes.push(Change::Update { number, row: Box::new(row) });
        }
        if is_last && left == 0 {
            let unwell = Unwell { is_awaited: false, ..unwell };
            if unwell.is_well() {
                self.forget_address(address, changes);
            } else {
                self.remember(address.to_owned(), unwell, changes);
            }
        }
        Ok(())
    }

    /// When a job that stands back may be tried.
    pub fn back_at(&self, now: Timestamp) -> Option<Timestamp> {
        let may_try = |address: &String, unwell: &Unwell| {
            let held = self.pushing.held_by(address);
            if unwell.is_well() { held < AT_ONCE } else { self.may_try(unwell.until.max(now), unwell, held) }
        };
        let awaited = self.addresses.iter().filter(|(address, it)| it.is_awaited && may_try(address, it));
        awaited.map(|(_, unwell)| unwell.until.max(now)).min()
    }

    fn remember(&mut self, address: String, unwell: Unwell, changes: &mut Vec<Change>) {
        if !self.addresses.contains_key(&address) && self.addresses.len() >= ADDRESSES_MAX {
            // Where jobs stand back, somebody has to know of them.
            let others = self.addresses.iter().filter(|(_, other)| !other.is_awaited);
            let oldest = others.min_by_key(|(_, other)| other.at).map(|(address, _)| address.clone());
            let Some(oldest) = oldest else { return };
            self.forget_address(&oldest, changes);
        }
        if self.addresses.insert(address.clone(), unwell) != Some(unwell) {
            changes.push(Change::Address { address, unwell: Some(unwell) });
        }
    }

    fn forget_address(&mut self, address: &str, changes: &mut Vec<Change>) {
        self.pushing.served.remove(&address.to_owned());
        if self.addresses.remove(address).is_some() {
            changes.push(Change::Address { address: address.to_owned(), unwell: None });
        }
    }
}
