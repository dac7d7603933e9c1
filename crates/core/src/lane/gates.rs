//! The limits of a lane: how many hold a slot of each, and the line before it.
//!
//! A waiter passes its limits one after the other, always in the same order, and waits in one line at a time. What it has
//! passed it keeps, so each slot that is freed lets in the first of one line: nobody is looked at in vain, nobody is
//! overtaken for ever, and two who wait for the same two limits cannot hold up each other.
//!
//! A slot of a rate is held for the rate's time after its holder was let in, whether it is at work or not: so no more
//! are let in within any such time than there are slots.
//!
//! How many slots a limit has, the run that was started last says: one that was started before a deploy, and sleeps for
//! a month, does not bring the old number back. What people have set goes before that.

use stepwell_protocol::{Timestamp, lane::Limit};

use crate::ordered::{OrdMap, OrdSet};

/// A place in a line: the round of its share, its time with its priority, and its number.
pub(super) type Turn = (u64, u64, u64);

/// How many numbers of keys are remembered for which nobody is known.
const OWN_KEPT: usize = 1_000;

/// All limits for which anybody is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    by_name: OrdMap<String, Gate>,
    /// How many slots there are for each key, by the kind of limit and the expression of the key; and when the run was
    /// started that said so.
    declared: OrdMap<String, (Timestamp, u32)>,
    /// The same for keys that have a number of their own, by the name of the limit.
    declared_for_one: OrdMap<String, (Timestamp, u32)>,
    /// How many there are for all keys because people say so, by the same.
    set: OrdMap<String, u32>,
    /// How many there are for one key because people say so, by the name of its limit.
    set_for_one: OrdMap<String, u32>,
    /// How many wait in all lines.
    waiting: usize,
}

#[derive(Clone, Debug, Default)]
struct Gate {
    taken: u32,
    line: OrdSet<Turn>,
}

/// What a limit is known by. Both parts may hold any character.
fn name(limit: &Limit) -> String {
    format!("{}{}", prefix(limit), limit.key)
}

fn prefix(Limit { by, per_ms, .. }: &Limit) -> String {
    prefix_of(by, *per_ms)
}

fn prefix_of(by: &str, per_ms: Option<u64>) -> String {
    // What has begun by a rate with another time does not count for this one.
    format!("{} {} {by}", by.len(), per_ms.unwrap_or_default())
}

impl Gates {
    /// A run that was started then says how many slots these limits have. Gives those who may pass one of them because it
    /// has more by now.
    pub fn declare(&mut self, started: Timestamp, limits: &[Limit]) -> Vec<u64> {
        let mut freed = Vec::new();
        for limit in limits {
            let (prefix, name) = (prefix(limit), limit.is_own.then(|| name(limit)));
            let declared = if limit.is_own { &mut self.declared_for_one } else { &mut self.declared };
            let known_by = name.as_ref().unwrap_or(&prefix);
            let known = declared.get(known_by).copied();
            if known.is_some_and(|(since, _)| since > started) {
                continue;
            }
            declared.insert(known_by.clone(), (started, limit.max));
            if known.is_none_or(|(_, max)| max >= limit.max) {
                continue;
            }
            freed.append(&mut self.let_in(&prefix, name.as_deref()));
        }
        if self.declared_for_one.len() > 2 * self.by_name.len() + OWN_KEPT {
            let by_name = &self.by_name;
            self.declared_for_one.retain(|name, _| by_name.contains_key(name));
        }
        freed
    }

    /// What the run that was started last has said.
    fn declared(&self, prefix: &str, name: &str) -> Option<u32> {
        let for_one = self.declared_for_one.get(name);
        self.declared.get(prefix).into_iter().chain(for_one).max().map(|(_, max)| *max)
    }

    /// People say how many slots a limit has, or no longer do. Gives those who may pass it because it has more by now.
    pub fn set(&mut self, by: &str, key: Option<&str>, per_ms: Option<u64>, max: Option<u32>) -> Vec<u64> {
        let prefix = prefix_of(by, per_ms);
        let name = key.map(|key| format!("{prefix}{key}"));
        let set = if name.is_some() { &mut self.set_for_one } else { &mut self.set };
        let known_by = name.as_ref().unwrap_or(&prefix);
        match max {
            Some(max) => drop(set.insert(known_by.clone(), max)),
            None => drop(set.remove(known_by)),
        }
        self.let_in(&prefix, name.as_deref())
    }

    /// Lets in whoever has a slot by now, at one limit or at all of a kind.
    fn let_in(&mut self, prefix: &str, only: Option<&str>) -> Vec<u64> {
        let is_one = |name: &str| only.map_or_else(|| name.starts_with(prefix), |only| only == name);
        let names: Vec<_> = self.by_name.keys().filter(|name| is_one(name)).cloned().collect();
        let mut freed = Vec::new();
        for name in names {
            let max = self.max_of(prefix, &name);
            if let (Some(gate), Some(max)) = (self.by_name.get_mut(&name), max) {
                freed.append(&mut gate.let_in(max));
            }
        }
        self.waiting -= freed.len();
        freed
    }

    /// How many slots a limit has.
    pub fn max(&self, limit: &Limit) -> u32 {
        self.max_of(&prefix(limit), &name(limit)).unwrap_or(limit.max)
    }

    fn max_of(&self, prefix: &str, name: &str) -> Option<u32> {
        let set = self.set_for_one.get(name).or_else(|| self.set.get(prefix)).copied();
        set.or_else(|| self.declared(prefix, name))
    }

    /// How many numbers of keys are remembered.
    #[cfg(test)]
    pub fn own_numbers(&self) -> usize {
        self.declared_for_one.len()
    }

    /// How many wait for a slot of a limit.
    pub fn line(&self, limit: &Limit) -> usize {
        self.by_name.get(&name(limit)).map_or(0, |gate| gate.line.len())
    }

    /// How many wait for a slot of a limit before somebody.
    pub fn before(&self, limit: &Limit, turn: Turn) -> usize {
        self.by_name
            .get(&name(limit))
            .map_or(0, |gate| gate.line.iter().take_while(|other| **other < turn).count())
    }

    /// Whether anybody waits in a line.
    pub fn has_line(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a limit has a slot that is free.
    pub fn has_room(&self, limit: &Limit) -> bool {
        let max = self.max(limit);
        self.by_name.get(&name(limit)).map_or(max > 0, |gate| gate.taken < max && gate.line.is_empty())
    }

    /// Somebody holds a slot of this one, whether there are enough of them or not.
    pub fn hold(&mut self, limit: &Limit) {
        self.by_name.get_or_default(name(limit)).taken += 1;
    }

    /// Passes as many limits as have a slot, from this one on; gives how many were passed in all. At the first one that has
    /// none, it waits in line.
    pub fn pass(&mut self, limits: &[Limit], passed: usize, turn: Turn) -> usize {
        let mut passed = passed;
        while let Some(limit) = limits.get(passed) {
            let max = self.max(limit);
            let gate = self.by_name.get_or_default(name(limit));
            if gate.taken >= max || !gate.line.is_empty() {
                gate.line.insert(turn);
                self.waiting += 1;
                break;
            }
            gate.taken += 1;
            passed += 1;
        }
        passed
    }

    /// Gives a slot back. Gives those who may pass one more limit now: it is taken for them.
    pub fn free(&mut self, limit: &Limit) -> Vec<u64> {
        self.change(limit, |gate| {
            gate.taken = gate.taken.saturating_sub(1);
            0
        })
    }

    /// Leaves the line of a limit.
    pub fn leave_line(&mut self, limit: &Limit, turn: Turn) -> Vec<u64> {
        self.change(limit, |gate| usize::from(gate.line.remove(&turn)))
    }

    /// Lets in whoever may pass after a change, which says how many have left the line by it.
    fn change(&mut self, limit: &Limit, act: impl FnOnce(&mut Gate) -> usize) -> Vec<u64> {
        let (name, max) = (name(limit), self.max(limit));
        let Some(gate) = self.by_name.get_mut(&name) else { return Vec::new() };
        let left = act(gate);
        let freed = gate.let_in(max);
        if gate.taken == 0 && gate.line.is_empty() {
            self.by_name.remove(&name);
            self.declared_for_one.remove(&name);
        }
        self.waiting -= left + freed.len();
        freed
    }
}

impl Gate {
    /// Takes the free slots for the first ones of the line, and gives their numbers.
    fn let_in(&mut self, max: u32) -> Vec<u64> {
        let mut numbers = Vec::new();
        while self.taken < max
            && let Some((_, _, number)) = self.line.pop_first()
        {
            self.taken += 1;
            numbers.push(number);
        }
        numbers
    }
}
