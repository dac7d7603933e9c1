//! When a schedule ticks next.
//!
//! A clock that is put forward skips times: what was due then is due once, at the end of the gap. A clock that is put
//! back shows times twice: they count the first time. Intervals know nothing of clocks.
//!
//! Invariant: ticks only go forward, and two of them are never at the same instant.

use std::cell::Cell;

use stepwell_protocol::Timestamp;

use super::{
    civil::{Civil, DAY_S},
    cron::Cron,
    spec::{Except, Moment, Plan, When},
    zone::{Clock, NoZone, Zones},
};

/// How many ticks that are left out are passed over at once.
pub const PASSED_MAX: u32 = 500;

/// What a turn may spend on looking for ticks: about 2,000 of them, each of which asks the rules of its zone ten times.
const EFFORT_MAX: u32 = 8_000;

/// What one tick takes, and so many exclusions take as much again as a quarter of that.
const TICK_EFFORT: u32 = 4;
const EXCEPT_PER_EFFORT: usize = 10;

/// What is left of what a turn may spend on looking for ticks. Whoever has spent it still finds the next tick, or that
/// there is none up to some later instant; then it is for the next turn to go on.
#[derive(Clone, Debug)]
pub struct Effort(Cell<u32>);

impl Default for Effort {
    fn default() -> Self {
        Self(Cell::new(EFFORT_MAX))
    }
}

impl Effort {
    /// Whether there is none left.
    pub fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    fn spend(&self, effort: u32) {
        self.0.set(self.0.get().saturating_sub(effort));
    }
}

/// When a schedule ticks next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Then.
    At(Timestamp),
    /// Not up to then: from there on one has to look again.
    NotUpTo(Timestamp),
    /// Never again.
    Never,
}

impl Plan {
    /// Its first tick after an instant.
    pub fn next_after(&self, zones: &dyn Zones, effort: &Effort, after: Timestamp) -> Result<Next, NoZone> {
        let clock = Clock::new(zones, &self.zone)?;
        let exclusions = u32::try_from(self.except.len() / EXCEPT_PER_EFFORT).unwrap_or(u32::MAX);
        // The first tick may be at the very start.
        let before_start =
            self.starts_at.map(|start| start.as_millis().checked_sub(1).map(Timestamp::from_millis));
        let mut after = match before_start {
            Some(Some(before)) => after.max(before),
            Some(None) | None => after,
        };
        for _ in 0..PASSED_MAX {
            effort.spend(TICK_EFFORT.saturating_add(exclusions));
            let Some(tick) = self.candidate_after(clock, after)? else { return Ok(Next::Never) };
            if tick == Timestamp::MAX || self.ends_at.is_some_and(|end| tick > end) {
                return Ok(Next::Never);
            }
            match self.left_out_until(clock, tick)? {
                None => return Ok(Next::At(tick)),
                Some(until) => after = until,
            }
            if effort.is_spent() {
                break;
            }
        }
        Ok(Next::NotUpTo(after))
    }

    /// The first tick after an instant, whether it is left out or not.
    fn candidate_after(&self, clock: Clock<'_>, after: Timestamp) -> Result<Option<Timestamp>, NoZone> {
        match &self.when {
            When::Clock(cron) => clock_after(cron, clock, after),
            When::Every { ms } => {
                let anchor = self.starts_at.unwrap_or_default();
                let Some(past) = after.as_millis().checked_sub(anchor.as_millis()) else {
                    return Ok(Some(anchor));
                };
                Ok(Some(anchor.plus_millis((past / ms + 1).saturating_mul(*ms))))
            }
            When::Once(moment) => {
                let at = match moment {
                    Moment::Instant(at) => *at,
                    Moment::Shown(civil) => clock.first_at(*civil)?,
                };
                Ok(Some(at).filter(|at| *at > after))
            }
        }
    }

    /// If a tick is left out: up to when all are.
    fn left_out_until(&self, clock: Clock<'_>, tick: Timestamp) -> Result<Option<Timestamp>, NoZone> {
        if self.except.is_empty() {
            return Ok(None);
        }
        let shown = clock.shows(tick)?;
        for except in &self.except {
            match except {
                Except::Day(date) if *date == shown.date() => {
                    let next_day = clock.first_at(Civil(date.days() * DAY_S + DAY_S))?;
                    let last = Timestamp::from_millis(next_day.as_millis().saturating_sub(1));
                    return Ok(Some(last.max(tick)));
                }
                Except::Clock(cron) if cron.includes(shown) => {
                    let span_s = cron.span_s();
                    if span_s == 1 {
                        return Ok(Some(tick));
                    }
                    let end = Civil((shown.0.div_euclid(span_s) + 1) * span_s);
                    let until = clock.first_at(end)?.as_millis().saturating_sub(1);
                    // A clock that is put back meanwhile shows other times as well.
                    let left_ms = u64::try_from(end.0 - shown.0).unwrap_or_default().saturating_mul(1_000);
                    let is_straight = until.saturating_sub(tick.as_millis()) < left_ms;
                    return Ok(Some(if is_straight {
                        tick.max(Timestamp::from_millis(until))
                    } else {
                        tick
                    }));
                }
                Except::Day(_) | Except::Clock(_) => {}
            }
        }
        Ok(None)
    }
}

/// The first instant after another at which the clock shows, for the first time, one of these times.
fn clock_after(cron: &Cron, clock: Clock<'_>, after: Timestamp) -> Result<Option<Timestamp>, NoZone> {
    let mut from = match clock.end_of_repeat(after)? {
        // All that the clock shows until then, it has shown before.
        Some(end) => end,
        None => clock.shows(after)?.plus(1),
    };
    // Whatever a gap has swallowed is at one and the same instant: the second time is behind it.
    for _ in 0..2 {
        let Some(civil) = cron.first_from(from) else { return Ok(None) };
        let at = clock.first_at(civil)?;
        if at > after {
            return Ok(Some(at));
        }
        from = clock.shows(after)?.plus(1).max(civil.plus(1));
    }
    Ok(None)
}
