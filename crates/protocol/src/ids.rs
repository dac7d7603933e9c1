//! Where things are and in which order they happened.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::Error as _};

/// The number of an activation of a run. Only the latest activation may write.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch of the next activation.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A position in a run's journal. The first event has position 1; 0 means before all events.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u32);

impl Seq {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A cell's place within a namespace: pool, generation of that pool, number of the cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The pool's name.
    pub pool: String,
    /// Which growth of the pool the cell belongs to, from 1.
    pub generation: u32,
    /// The cell within the generation, from 0.
    pub cell: u32,
}

impl Place {
    /// The longest name of a pool.
    pub const POOL_LENGTH_MAX: usize = 24;

    /// Whether a text can name a pool: a lower-case letter, then lower-case letters and digits.
    pub fn is_pool_name(text: &str) -> bool {
        text.len() <= Self::POOL_LENGTH_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    }

    /// The name of the object that is this cell.
    pub fn object_name(&self, namespace: &str) -> String {
        format!("{namespace}/{}/{}/{}", self.pool, self.generation, self.cell)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.pool, self.generation, self.cell)
    }
}

/// A text that is no place of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a place")]
pub struct NotAPlace;

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let mut parts = text.split('-');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(pool), Some(generation), Some(cell), None) if Self::is_pool_name(pool) => Ok(Self {
                pool: pool.to_owned(),
                generation: canonical(generation).map_err(|_| NotAPlace)?,
                cell: canonical(cell).map_err(|_| NotAPlace)?,
            }),
            _ => Err(NotAPlace),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A run's id: its cell's place, its number in that cell, and a random part.
///
/// The place lets any request find the run without a look-up. The number is the row's key, so the id
/// needs no index. The random part makes ids unguessable, and tells apart two runs that got the same
/// number because an older copy of the cell was restored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId {
    /// The cell that holds the run.
    pub place: Place,
    /// The run's number in its cell, from 1.
    pub number: u64,
    /// [`RunId::SUFFIX_LENGTH`] random characters of [`RunId::ALPHABET`].
    pub suffix: String,
}

impl RunId {
    /// What the random part is made of: 32 characters that people do not mix up.
    pub const ALPHABET: &'static [u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

    /// How many characters the random part has: 60 bits.
    pub const SUFFIX_LENGTH: usize = 12;

    /// Whether a text can be the random part.
    pub fn is_suffix(text: &str) -> bool {
        text.len() == Self::SUFFIX_LENGTH && text.bytes().all(|b| Self::ALPHABET.contains(&b))
    }

    /// The random part made of 60 of the given bits.
    #[expect(clippy::cast_possible_truncation, reason = "five bits of it are used")]
    pub fn suffix_from(random: u64) -> String {
        (0..Self::SUFFIX_LENGTH).map(|i| Self::ALPHABET[(random >> (i * 5)) as usize & 31] as char).collect()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.place, self.number, self.suffix)
    }
}

/// A text that is no run id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a run id")]
pub struct NotARunId;

impl FromStr for RunId {
    type Err = NotARunId;

    fn from_str(text: &str) -> Result<Self, NotARunId> {
        // The longest id: every number at its largest. Longer text is refused before it is looked at.
        if text.len() > Place::POOL_LENGTH_MAX + 10 + 10 + 20 + Self::SUFFIX_LENGTH + 4 {
            return Err(NotARunId);
        }
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(NotARunId);
        let (pool, generation, cell, number, suffix) = (part()?, part()?, part()?, part()?, part()?);
        if parts.next().is_some() || !Place::is_pool_name(pool) || !Self::is_suffix(suffix) {
            return Err(NotARunId);
        }
        let id = Self {
            place: Place {
                pool: pool.to_owned(),
                generation: canonical(generation)?,
                cell: canonical(cell)?,
            },
            number: canonical(number)?,
            suffix: suffix.to_owned(),
        };
        // Numbers bind to SQL as doubles, which are exact up to here.
        if id.number == 0 || id.number > (1 << 53) || id.place.generation == 0 {
            return Err(NotARunId);
        }
        Ok(id)
    }
}

/// A decimal number in its only spelling, so that one run has one id.
fn canonical<T: FromStr>(text: &str) -> Result<T, NotARunId> {
    if text.is_empty()
        || !text.bytes().all(|b| b.is_ascii_digit())
        || (text.len() > 1 && text.starts_with('0'))
    {
        return Err(NotARunId);
    }
    text.parse().map_err(|_| NotARunId)
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_reads_back_as_it_was_written() {
        let id = RunId {
            place: Place { pool: "default".into(), generation: 1, cell: 15 },
            number: 42,
            suffix: RunId::suffix_from(0x0123_4567_89ab_cdef),
        };
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn a_place_reads_back_as_it_was_written_and_nothing_else_does() {
        let place = Place { pool: "default".into(), generation: 2, cell: 63 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for bad in ["", "default-2", "default-2-63-1", "Default-2-63", "default-02-63", "default--63"] {
            assert_eq!(bad.parse::<Place>(), Err(NotAPlace), "{bad}");
        }
    }

    #[test]
    fn only_one_spelling_of_a_run_id_is_accepted() {
        let good = "default-1-15-42-0123456789ab";
        assert!(good.parse::<RunId>().is_ok());
        for bad in [
            "",
            "default",
            "default-1-15-42",
            "default-1-15-42-0123456789ab-x",
            "default-01-15-42-0123456789ab",
            "default-1-+5-42-0123456789ab",
            "default-1-15-0-0123456789ab",
            "default-0-15-42-0123456789ab",
            "default-1-15-42-0123456789aB",
            "default-1-15-42-0123456789a",
            "default-1-15-99999999999999999-0123456789ab",
            "Default-1-15-42-0123456789ab",
            "default-4294967296-15-42-0123456789ab",
            "-1-15-42-0123456789ab",
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad} was accepted");
        }
    }
}
