//! How much may break on one way through a model.

use std::fmt;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An instance dies.
    Crash,
    /// A second instance gets the cell's name.
    Second,
    /// A message arrives twice.
    Twice,
    /// A message is lost, with or without anybody's knowing.
    Lost,
    /// Time passes while something is under way; or an activation outlives the instance that has called it.
    Late,
    /// An instance has another turn before what it has written is durable.
    Overlap,
    /// The alarm comes too early, once more, or never.
    Alarm,
    /// The storage refuses, or fails after it has written; or the alarm cannot be set.
    Storage,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Crash,
        Self::Second,
        Self::Twice,
        Self::Lost,
        Self::Late,
        Self::Overlap,
        Self::Alarm,
        Self::Storage,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Crash => "crashes",
            Self::Second => "second instances",
            Self::Twice => "messages twice",
            Self::Lost => "messages lost",
            Self::Late => "late",
            Self::Overlap => "turns before a write is durable",
            Self::Alarm => "alarms early, twice or lost",
            Self::Storage => "storage failures",
        }
    }
}

/// How often each kind of fault may happen on one way, and all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    each: [u8; 8],
    all: u8,
}

impl Bounds {
    /// So many faults on one way: crashes twice at the most, whatever else is lost or late twice once there are more than
    /// three, and every other kind once.
    pub fn of(all: u8) -> Self {
        let mut bounds = Self { each: [1; 8], all };
        bounds.each[Kind::Crash as usize] = 2;
        if all > 3 {
            bounds.each[Kind::Lost as usize] = 2;
            bounds.each[Kind::Late as usize] = 2;
        }
        bounds
    }

    /// These faults and no others, one for each time that its kind is named.
    pub fn only(kinds: &[Kind]) -> Self {
        let all = u8::try_from(kinds.len()).expect("there are few");
        let mut bounds = Self { each: [0; 8], all };
        for kind in kinds {
            bounds.each[*kind as usize] += 1;
        }
        bounds
    }

    /// What is left after these; nothing, if that is too much.
    pub(super) fn without(mut self, cost: Cost) -> Option<Self> {
        for kind in Kind::ALL {
            let count = cost.0[kind as usize];
            self.each[kind as usize] = self.each[kind as usize].checked_sub(count)?;
            self.all = self.all.checked_sub(count)?;
        }
        Some(self)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} faults on one way:", self.all)?;
        for kind in Kind::ALL {
            write!(f, " {} ≤ {};", kind.name(), self.each[kind as usize].min(self.all))?;
        }
        Ok(())
    }
}

/// The faults that one event stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost([u8; 8]);

impl Cost {
    /// Nothing is broken.
    pub const CALM: Self = Self([0; 8]);

    /// One fault of a kind, besides these.
    pub fn and(mut self, kind: Kind) -> Self {
        self.0[kind as usize] += 1;
        self
    }

    pub fn of(kind: Kind) -> Self {
        Self::CALM.and(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_ends_at_the_limit_of_a_kind_and_at_that_of_all() {
        let (crash, lost) = (Cost::of(Kind::Crash), Cost::of(Kind::Lost));
        let left = Bounds::of(3).without(lost).expect("one may be lost");
        assert_eq!(left.without(lost), None);
        let left = left.without(crash).and_then(|left| left.without(crash)).expect("two may die");
        assert_eq!(left.without(Cost::of(Kind::Alarm)), None, "there were three faults");
        assert_eq!(left.without(Cost::CALM), Some(left));
        assert_eq!(Bounds::of(1).without(crash.and(Kind::Overlap)), None);
    }
}
