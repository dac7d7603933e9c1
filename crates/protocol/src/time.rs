//! Points in time, in whole milliseconds, as the engine's clock gave them.

use serde::{Deserialize, Deserializer, Serialize};

/// Milliseconds since the Unix epoch. Always below 2^53, so JavaScript reads it exactly.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest time that can be stored: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// A time from milliseconds since the Unix epoch; later than [`Self::MAX`] becomes that.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(Self::MAX.0))
    }

    /// Milliseconds since the Unix epoch.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// This time and `millis` more, at most [`Self::MAX`].
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    // Programs and clients say times, too: one that no alarm can be set for must not get any further.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_could_not_be_stored_is_read_as_the_latest_that_can() {
        for (text, time) in [
            ("0", Timestamp::default()),
            ("1700000000000", Timestamp::from_millis(1_700_000_000_000)),
            ("253402300799999", Timestamp::MAX),
            ("253402300800000", Timestamp::MAX),
            ("18446744073709551615", Timestamp::MAX),
        ] {
            assert_eq!(serde_json::from_str::<Timestamp>(text).expect(text), time);
        }
        for bad in ["-1", "1.5", "18446744073709551616", "\"0\"", "null"] {
            assert!(serde_json::from_str::<Timestamp>(bad).is_err(), "{bad}");
        }
    }
}
