//! Many seeds, on two threads, and what came of them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{coverage::Coverage, sabotage::Sabotage, simulate, world::Violation};

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
    /// The first seed that broke a rule.
    pub failure: Option<(u64, Violation)>,
}

/// Runs `count` seeds from `first` on; stops at the first that breaks a rule. `tell` hears how many are done.
pub fn sweep(
    first: u64,
    count: u64,
    threads: usize,
    sabotage: Option<Sabotage>,
    tell: impl Fn(u64) + Sync,
) -> Sweep {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let sum = Mutex::new(Sweep { transitions_min: u64::MAX, faults_min: u64::MAX, ..Sweep::default() });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let seed = first + index;
                    let outcome = simulate(seed, sabotage, false);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.seeds += 1;
                    sum.transitions += outcome.transitions;
                    sum.runs += outcome.runs;
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
