//! Many seeds, on two threads, and what came of them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    coverage::Coverage,
    rng::{hash64, mix},
    sabotage::Sabotage,
    simulate,
    world::Violation,
};

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Sweep {
    /// How many worlds there were.
    pub seeds: u64,
    /// Turns of machines in all of them.
    pub transitions: u64,
    /// The fewest in one.
    pub transitions_min: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The fewest in one.
    pub faults_min: u64,
    /// Runs that were started.
    pub runs: u64,
    /// Pairs of phase and input.
    pub coverage: Coverage,
    /// A hash of all that happened in all of them, in whatever order they ran.
    pub digest: u64,
    /// The first seed that broke a rule.
    pub failure: Option<(u64, Violation)>,
}

/// Which seeds to run: those of every tree, then those of this tree alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first of the fixed ones, and how many there are.
    pub fixed: (u64, u64),
    /// The first of the tree's own, and how many there are.
    pub fresh: (u64, u64),
}

impl Seeds {
    /// So many in a row.
    pub fn from(first: u64, count: u64) -> Self {
        Self { fixed: (first, count), fresh: (0, 0) }
    }

    /// Half of them fixed, from 1 on; the other half from a number that the tree's hash decides. A bug that one seed in
    /// a million shows is found in time only if each change tries other seeds.
    pub fn of_tree(tree: &str, count: u64) -> Self {
        let fixed = count.div_ceil(2);
        // 40 bits: short enough to type again.
        Self { fixed: (1, fixed), fresh: (hash64(tree) >> 24, count - fixed) }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.fixed.1 + self.fresh.1
    }

    fn nth(&self, index: u64) -> u64 {
        if index < self.fixed.1 { self.fixed.0 + index } else { self.fresh.0 + (index - self.fixed.1) }
    }
}

/// Runs seeds; stops at the first that breaks a rule. `tell` hears how many are done.
pub fn sweep(seeds: Seeds, threads: usize, sabotage: Option<Sabotage>, tell: impl Fn(u64) + Sync) -> Sweep {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let sum = Mutex::new(Sweep { transitions_min: u64::MAX, faults_min: u64::MAX, ..Sweep::default() });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds.count() {
                        return;
                    }
                    let seed = seeds.nth(index);
                    let outcome = simulate(seed, sabotage, false);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.seeds += 1;
                    sum.transitions += outcome.transitions;
                    sum.runs += outcome.runs;
                    sum.digest = sum.digest.wrapping_add(mix(outcome.digest ^ seed));
                    sum.coverage.add(&outcome.coverage);
                    let faults = outcome.faults.values().sum();
                    for (kind, count) in outcome.faults {
                        *sum.faults.entry(kind).or_default() += count;
                    }
                    if let Some(violation) = outcome.violation {
                        stop.store(true, Ordering::Relaxed);
                        if sum.failure.as_ref().is_none_or(|(other, _)| seed < *other) {
                            sum.failure = Some((seed, violation));
                        }
                    } else {
                        sum.transitions_min = sum.transitions_min.min(outcome.transitions);
                        sum.faults_min = sum.faults_min.min(faults);
                    }
                    tell(sum.seeds);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_seeds_are_the_trees_own() {
        let (one, two) = (Seeds::of_tree("one", 5), Seeds::of_tree("two", 5));
        let all = |seeds: Seeds| (0..seeds.count()).map(|index| seeds.nth(index)).collect::<Vec<_>>();
        assert_eq!(all(one)[..3], [1, 2, 3]);
        assert_eq!(all(one), all(Seeds::of_tree("one", 5)));
        assert_eq!(all(one)[..3], all(two)[..3]);
        assert_ne!(all(one)[3..], all(two)[3..]);
        assert_eq!(all(one)[4], all(one)[3] + 1);
    }
}
