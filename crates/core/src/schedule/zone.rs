//! What a wall clock shows at an instant, and at which instant it shows something.
//!
//! Owns: what becomes of times that a wall clock skips or shows twice. Does not own: the rules of the zones. Whoever
//! hosts a machine brings them ([`Zones`]): the runtime knows them all, and a copy of them would take 49 kB of a
//! compressed bundle.

use stepwell_protocol::Timestamp;

use super::civil::{Civil, DAY_S};

/// The zone of those who say none.
pub const UTC: &str = "UTC";

/// The longest name of a zone.
pub const ZONE_LENGTH_MAX: usize = 64;

/// The rules of the world's zones.
pub trait Zones {
    /// By how many seconds the clocks of a zone are ahead of UTC at an instant, given in seconds since 1970; nothing, if
    /// there is no such zone.
    fn offset_s(&self, zone: &str, at_s: i64) -> Option<i32>;
}

/// A zone that nobody has rules for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("There is no time zone '{0}'. Write a name of the IANA database, such as 'Europe/Berlin' or 'UTC'.")]
pub struct NoZone(pub String);

/// One zone's wall clock.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    zones: &'a dyn Zones,
    zone: &'a str,
}

impl<'a> Clock<'a> {
    /// The clock of a zone.
    pub fn new(zones: &'a dyn Zones, zone: &'a str) -> Result<Self, NoZone> {
        let looks_right = zone.len() <= ZONE_LENGTH_MAX
            && zone.starts_with(|c: char| c.is_ascii_alphabetic())
            && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-/".contains(&byte));
        let clock = Self { zones, zone };
        if !looks_right {
            return Err(NoZone(zone.chars().take(ZONE_LENGTH_MAX).collect()));
        }
        clock.offset(0)?;
        Ok(clock)
    }

    fn offset(self, at_s: i64) -> Result<i64, NoZone> {
        if self.zone == UTC {
            return Ok(0);
        }
        let offset = self.zones.offset_s(self.zone, at_s);
        offset.map(i64::from).ok_or_else(|| NoZone(self.zone.to_owned()))
    }

    /// What it shows at an instant, in whole seconds.
    pub fn shows(self, at: Timestamp) -> Result<Civil, NoZone> {
        let at_s = seconds(at);
        Ok(Civil(at_s + self.offset(at_s)?))
    }

    /// The first instant at which it shows this time. If it never does, because it was put forward, the instant at which
    /// that happened: what was due in the gap is due at its end.
    pub fn first_at(self, civil: Civil) -> Result<Timestamp, NoZone> {
        // No zone is a day off, and none changes twice within two days.
        let (before, after) = (self.offset(civil.0 - DAY_S)?, self.offset(civil.0 + DAY_S)?);
        let (early, late) = (civil.0 - before.max(after), civil.0 - before.min(after));
        for at_s in [early, late] {
            if at_s + self.offset(at_s)? == civil.0 {
                return Ok(instant(at_s));
            }
        }
        // At the early instant the clock is not yet put forward, at the late one it is.
        self.change_between(early, late).map(instant)
    }

    /// If the clock was put back and shows this time again: the first time that it shows only once.
    pub fn end_of_repeat(self, at: Timestamp) -> Result<Option<Civil>, NoZone> {
        let at_s = seconds(at);
        let civil = Civil(at_s + self.offset(at_s)?);
        let first_s = seconds(self.first_at(civil)?);
        if first_s >= at_s {
            return Ok(None);
        }
        let before = self.offset(first_s)?;
        Ok(Some(Civil(self.change_between(first_s, at_s)? + before)))
    }

    /// The first instant after one, up to another, at which the offset is not that of the first.
    fn change_between(self, mut same_s: i64, mut other_s: i64) -> Result<i64, NoZone> {
        let before = self.offset(same_s)?;
        while other_s - same_s > 1 {
            let middle_s = same_s + (other_s - same_s) / 2;
            if self.offset(middle_s)? == before {
                same_s = middle_s;
            } else {
                other_s = middle_s;
            }
        }
        Ok(other_s)
    }
}

/// Whole seconds since 1970.
fn seconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis() / 1_000).unwrap_or(i64::MAX / 2)
}

/// An instant of whole seconds; none is before 1970.
fn instant(at_s: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at_s).unwrap_or_default().saturating_mul(1_000))
}
