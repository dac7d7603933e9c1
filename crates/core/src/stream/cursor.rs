//! Where a reader is, as a text that means nothing to it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Place, Seq};

use crate::ordered::OrdMap;

/// Where a reader of one run is: `12.40.1837…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// All events of the journal up to here were shown.
    pub journal: Seq,
    /// All published items up to this number were shown.
    pub told: u32,
    /// All states before this stamp were shown, or overtaken.
    pub states: u64,
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is the `id` of an event of the same stream")]
pub struct NotACursor;

/// Stamps are exact in JavaScript's numbers; what is not was never given out.
const STAMP_MAX: u64 = 1 << 53;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.journal.0, self.told, self.states)
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let mut parts = text.split('.');
        let (Some(journal), Some(told), Some(states), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotACursor);
        };
        Ok(Self { journal: Seq(digits(journal)?), told: digits(told)?, states: stamp(states)? })
    }
}

impl Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where a reader of all runs of a cell is: `1837…`, or `1837….500.1840…` in the middle of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellCursor {
    /// It has seen all changes before this stamp.
    pub from: u64,
    /// Where it is in a walk through the runs that have changed since.
    pub walk: Option<Walk>,
}

/// A walk through the runs of a cell, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// It has seen all runs up to this number.
    pub after: u64,
    /// What has changed at this stamp or later comes after the walk.
    pub until: u64,
}

impl fmt::Display for CellCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, walk } = self;
        match walk {
            Some(Walk { after, until }) => write!(f, "{from}.{after}.{until}"),
            None => write!(f, "{from}"),
        }
    }
}

impl FromStr for CellCursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let mut parts = text.split('.').map(stamp);
        let from = parts.next().ok_or(NotACursor)??;
        let walk = match (parts.next(), parts.next(), parts.next()) {
            (None, _, _) => None,
            (Some(after), Some(until), None) => Some(Walk { after: after?, until: until? }),
            (Some(_), _, _) => return Err(NotACursor),
        };
        Ok(Self { from, walk })
    }
}

/// Where a reader of a whole pool is: where it is in each cell, by generation and number. Written
/// `1-0:1837…,1-1:1837…`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCursor(OrdMap<(u32, u32), CellCursor>);

impl PoolCursor {
    /// Where the reader is in one cell, if it has been there.
    pub fn get(&self, place: &Place) -> Option<CellCursor> {
        self.0.get(&(place.generation, place.cell)).copied()
    }

    /// The reader has come so far in one cell.
    pub fn set(&mut self, place: &Place, cursor: CellCursor) {
        self.0.insert((place.generation, place.cell), cursor);
    }
}

impl fmt::Display for PoolCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((generation, cell), states)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{generation}-{cell}:{states}")?;
        }
        Ok(())
    }
}

impl FromStr for PoolCursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let parts = text.split(',').map(|part| {
            let (place, states) = part.split_once(':').ok_or(NotACursor)?;
            let (generation, cell) = place.split_once('-').ok_or(NotACursor)?;
            Ok(((digits(generation)?, digits(cell)?), states.parse()?))
        });
        parts.collect::<Result<_, _>>().map(Self)
    }
}

/// Only digits: what Rust reads as a number besides would be two texts for one place.
fn digits(text: &str) -> Result<u32, NotACursor> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotACursor);
    }
    text.parse().map_err(|_| NotACursor)
}

fn stamp(text: &str) -> Result<u64, NotACursor> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotACursor);
    }
    text.parse().ok().filter(|stamp| *stamp <= STAMP_MAX).ok_or(NotACursor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_is_read_as_it_was_written(journal: u32, told: u32, states in 0..=STAMP_MAX) {
            let cursor = Cursor { journal: Seq(journal), told, states };
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }

        #[test]
        fn a_pools_cursor_is_read_as_it_was_written(
            cells in prop::collection::btree_map((any::<u32>(), any::<u32>()), 0..=STAMP_MAX, 1..20),
            walk in prop::option::of((0..=STAMP_MAX, 0..=STAMP_MAX)),
        ) {
            let walk = walk.map(|(after, until)| Walk { after, until });
            let cells = cells.into_iter().map(|(place, from)| (place, CellCursor { from, walk }));
            let cursor = PoolCursor(cells.collect());
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }

        #[test]
        fn no_text_breaks_it(text: String) {
            let _ = text.parse::<Cursor>();
            let _ = text.parse::<PoolCursor>();
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "1.2.-3",
            "+1.2.3",
            " 1.2.3",
            "4294967296.0.0",
            "1.2.9007199254740993",
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(NotACursor), "{text}");
        }
        for text in [
            "",
            "1-0",
            "1:5",
            "1-0:",
            "1-0:5,",
            "1-0:x",
            "1-0:5;1-1:5",
            "1-0:5.6",
            "1-0:5.6.7.8",
            "1-0:5.x.7",
        ] {
            assert_eq!(text.parse::<PoolCursor>(), Err(NotACursor), "{text}");
        }
    }
}
