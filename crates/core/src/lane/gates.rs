//! The limits of a lane: how many hold a slot of each, and the line before it.
//!
//! A waiter passes its limits one after the other, always in the same order, and waits in one line at a time. What it has
//! passed it keeps, so each slot that is freed lets in the first of one line: nobody is looked at in vain, nobody is
//! overtaken for ever, and two who wait for the same two limits cannot hold up each other.

use stepwell_protocol::lane::Limit;

use crate::ordered::{OrdMap, OrdSet};

/// A place in a line: the round of its share, its time with its priority, and its number.
pub(super) type Turn = (u64, u64, u64);

/// All limits for which anybody is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    gates: OrdMap<String, Gate>,
}

#[derive(Clone, Debug, Default)]
struct Gate {
    /// How many slots there are, as the latest ask has said.
    max: u32,
    taken: u32,
    line: OrdSet<Turn>,
}

/// What a limit is known by. Both parts may hold any character.
fn name(limit: &Limit) -> String {
    format!("{} {}{}", limit.by.len(), limit.by, limit.key)
}

impl Gates {
    /// Somebody asks for slots of these limits: this is how many they have by now. Gives those who may pass one of them
    /// because it has more.
    pub fn declare(&mut self, limits: &[Limit]) -> Vec<u64> {
        let mut freed = Vec::new();
        for limit in limits {
            let gate = self.gates.get_or_default(name(limit));
            gate.max = limit.max;
            freed.append(&mut gate.let_in());
        }
        freed
    }

    /// Somebody holds a slot of each of these, whether there are enough of them or not.
    pub fn hold(&mut self, limits: &[Limit]) {
        for limit in limits {
            self.gates.get_or_default(name(limit)).taken += 1;
        }
    }

    /// Passes as many limits as have a slot, from this one on; gives how many were passed in all. At the first one that has
    /// none, it waits in line.
    pub fn pass(&mut self, limits: &[Limit], passed: usize, turn: Turn) -> usize {
        let mut passed = passed;
        while let Some(limit) = limits.get(passed) {
            let gate = self.gates.get_or_default(name(limit));
            if gate.taken >= gate.max || !gate.line.is_empty() {
                gate.line.insert(turn);
                break;
            }
            gate.taken += 1;
            passed += 1;
        }
        passed
    }

    /// Gives back what was passed, and leaves the line. Gives those who may pass one more limit now: it is taken for them.
    pub fn leave(&mut self, limits: &[Limit], passed: usize, turn: Turn) -> Vec<u64> {
        let mut freed = Vec::new();
        for (place, limit) in limits.iter().enumerate().take(passed + 1) {
            let name = name(limit);
            let Some(gate) = self.gates.get_mut(&name) else { continue };
            if place < passed {
                gate.taken = gate.taken.saturating_sub(1);
            } else {
                gate.line.remove(&turn);
            }
            freed.append(&mut gate.let_in());
            if gate.taken == 0 && gate.line.is_empty() {
                self.gates.remove(&name);
            }
        }
        freed
    }
}

impl Gate {
    /// Takes the free slots for the first ones of the line, and gives their numbers.
    fn let_in(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        while self.taken < self.max
            && let Some((_, _, number)) = self.line.pop_first()
        {
            self.taken += 1;
            numbers.push(number);
        }
        numbers
    }
}
