//! Worlds of queues: nothing breaks a rule, and every planted bug does.

use stepwell_sim::queues::{Planted, simulate};

/// How many worlds there are, and how many a planted bug gets to show itself.
const SEEDS: u64 = 200;

#[test]
fn no_rule_of_queues_is_broken() {
    let (mut transitions, mut jobs) = (u64::MAX, 0);
    for seed in 1..=SEEDS {
        let outcome = simulate(seed, None, false);
        assert_eq!(outcome.violation, None, "seed {seed}");
        transitions = transitions.min(outcome.transitions);
        jobs += outcome.runs;
        assert!(outcome.faults >= 20, "seed {seed}");
    }
    assert!(transitions >= 200 && jobs > 2_000, "{transitions} {jobs}");
}

/// In it, an instance that another one had replaced took a pause for what held already, and said so.
#[test]
fn a_world_that_once_broke_a_rule_breaks_none() {
    assert_eq!(simulate(4_047, None, false).violation, None);
}

#[test]
fn every_bug_that_is_planted_in_queues_is_noticed() {
    let is_noticed =
        |planted| (1..=SEEDS).any(|seed| simulate(seed, Some(planted), false).violation.is_some());
    let unnoticed: Vec<_> = Planted::ALL.into_iter().filter(|planted| !is_noticed(*planted)).collect();
    assert!(unnoticed.is_empty(), "not noticed within {SEEDS} seeds: {unnoticed:?}");
}
