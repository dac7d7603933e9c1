//! When a schedule ticks next.
//!
//! A clock that is put forward skips times: what was due then is due once, at the end of the gap. A clock that is put
//! back shows times twice: they count the first time. Intervals know nothing of clocks.
//!
//! Invariant: ticks only go forward, and two of them are never at the same instant.

use stepwell_protocol::Timestamp;

use super::{
    civil::{Civil, DAY_S},
    cron::Cron,
    spec::{Except, Moment, Plan, When},
    zone::{Clock, NoZone, Zones},
};

/// How many ticks that are left out are passed over at once.
pub const PASSED_MAX: usize = 500;

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
    pub fn next_after(&self, zones: &dyn Zones, after: Timestamp) -> Result<Next, NoZone> {
        let clock = Clock::new(zones, &self.zone)?;
        // The first tick may be at the very start.
        let before_start =
            self.starts_at.map(|start| start.as_millis().checked_sub(1).map(Timestamp::from_millis));
        let mut after = match before_start {
            Some(Some(before)) => after.max(before),
            Some(None) | None => after,
        };
        for _ in 0..PASSED_MAX {
            let Some(tick) = self.candidate_after(clock, after)? else { return Ok(Next::Never) };
            if tick == Timestamp::MAX || self.ends_at.is_some_and(|end| tick > end) {
                return Ok(Next::Never);
            }
            match self.left_out_until(clock, tick)? {
                None => return Ok(Next::At(tick)),
                Some(until) => after = until,
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
                Except::Clock(cron) if cron.includes(shown) => return Ok(Some(tick)),
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
