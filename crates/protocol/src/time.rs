//! Points in time, in whole milliseconds, as the engine's clock gave them.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch. Always below 2^53, so JavaScript reads it exactly.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
