//! What must hold of lanes: who is at work, who begins when, and what is on disk.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::lane::{CHECK_WHOLE_MS, Waiter};
use stepwell_protocol::{
    Timestamp,
    lane::{Limit, Ticket},
};

use super::{
    cells::{House, State},
    rows::Table,
};
use crate::check::Checked;

/// What is known beside the rows.
#[derive(Debug, Default)]
pub struct Model {
    /// Who was let in, by the disk.
    known: BTreeSet<Ticket>,
    /// When, by the limit.
    begun: BTreeMap<(String, String), Vec<Timestamp>>,
    /// How often the clock had jumped by then.
    jumps: u32,
    /// How many tickets each question to a cell is about.
    pub tells: BTreeMap<(u64, u64), usize>,
}

impl Model {
    /// No more are at work than each limit says.
    pub fn at_work(house: &House) -> Checked {
        let mut taken: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for run in house.runs.iter().filter(|run| matches!(run.state, State::AtWork)) {
            for Limit { by, key, max, .. } in run.limits.iter().filter(|limit| limit.per_ms.is_none()) {
                let taken = taken.entry((by, key)).or_default();
                *taken += 1;
                if *taken > *max {
                    let detail = format!("{taken} of {max} for '{key}' by '{by}'");
                    return Err(("18 no more are at work than a limit says", detail));
                }
            }
        }
        Ok(())
    }

    /// No more are let in within a rate's time than it says, by what the lane has stored.
    pub fn durable(&mut self, table: &Table, jumps: u32) -> Checked {
        if std::mem::replace(&mut self.jumps, jumps) != jumps {
            // What was within a time by the clock before is not within it by this one.
            self.begun.clear();
        }
        for (_, waiter) in table.waiters() {
            let limits = waiter.limits.iter().filter(|limit| limit.per_ms.is_some());
            if !waiter.is_in || !self.known.insert(waiter.ticket.clone()) {
                continue;
            }
            for Limit { by, key, max, per_ms, .. } in limits {
                let begun = self.begun.entry((by.clone(), key.clone())).or_default();
                begun.push(waiter.since);
                let is_within = |other: &&Timestamp| {
                    **other <= waiter.since && other.plus_millis(per_ms.unwrap_or_default()) > waiter.since
                };
                let within = begun.iter().filter(is_within).count();
                if within > *max as usize {
                    let detail = format!("{within} of {max} for '{key}' until {}", waiter.since.as_millis());
                    return Err(("19 no more are let in within a time than a rate says", detail));
                }
            }
        }
        Ok(())
    }

    /// Whoever holds slots is asked about some day.
    pub fn alarm(table: &Table, alarm: Option<Timestamp>, latest: Timestamp) -> Checked {
        let holds = table.waiters().any(|(_, waiter)| waiter.is_in && !waiter.is_over);
        let by = latest.plus_millis(CHECK_WHOLE_MS + 1_000);
        if holds && alarm.is_none_or(|alarm| alarm > by) {
            let detail = format!("{:?} at {}", alarm.map(Timestamp::as_millis), latest.as_millis());
            return Err(("12 the alarm is never later than what is due", detail));
        }
        Ok(())
    }

    /// Everything has been well for long.
    pub fn at_rest(house: &House, table: &Table) -> Checked {
        if let Some(run) = house.runs.iter().find(|run| !matches!(run.state, State::Over)) {
            let line = |(number, waiter): (u64, Waiter)| {
                format!("{number} {} {} {}", waiter.ticket.run.number, waiter.ticket.number, waiter.is_in)
            };
            let stored: Vec<_> = table.waiters().map(line).collect();
            let detail =
                format!("{} by ticket {}: {:?}, and in the lane {stored:?}", run.id, run.ticket, run.state);
            return Err(("20 everybody is let in some day", detail));
        }
        if let Some((number, waiter)) = table.waiters().next() {
            let detail = format!("{number}: {waiter:?}");
            return Err(("18 no slot is left behind", detail));
        }
        Ok(())
    }
}
