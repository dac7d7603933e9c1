//! Worlds of topics: nothing breaks a rule, and every planted bug does.

use stepwell_sim::topics::{Planted, simulate};

/// How many worlds there are.
const SEEDS: u64 = 120;

/// How many a planted bug gets to show itself.
const PLANTED_SEEDS: u64 = 1_000;

#[test]
fn no_rule_of_topics_is_broken() {
    let (mut events, mut runs, mut waits) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let outcome = simulate(seed, None);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.transitions >= 200 && outcome.faults >= 20, "seed {seed} is too quiet");
        (events, runs, waits) = (events + outcome.events, runs + outcome.runs, waits + outcome.waits);
    }
    assert!(events > 3_000 && runs > 3_000 && waits > 1_000, "{events} {runs} {waits}");
}

#[test]
fn every_bug_that_is_planted_in_topics_is_noticed() {
    let is_noticed =
        |planted| (1..=PLANTED_SEEDS).any(|seed| simulate(seed, Some(planted)).violation.is_some());
    let unnoticed: Vec<_> = Planted::ALL.into_iter().filter(|planted| !is_noticed(*planted)).collect();
    assert!(unnoticed.is_empty(), "not noticed within {PLANTED_SEEDS} seeds: {unnoticed:?}");
}
