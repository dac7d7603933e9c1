//! Worlds of schedules: nothing breaks a rule, and every planted bug does.

use stepwell_sim::schedules::{Planted, simulate};

/// How many worlds there are, and how many a planted bug gets to show itself.
const SEEDS: u64 = 60;

#[test]
fn no_rule_of_schedules_is_broken() {
    let (mut transitions, mut runs) = (u64::MAX, 0);
    for seed in 1..=SEEDS {
        let outcome = simulate(seed, None, false);
        assert_eq!(outcome.violation, None, "seed {seed}");
        transitions = transitions.min(outcome.transitions);
        runs += outcome.runs;
        assert!(outcome.faults >= 20, "seed {seed}");
    }
    assert!(transitions >= 100 && runs > 10_000, "{transitions} {runs}");
}

#[test]
fn a_tick_that_was_looked_at_a_moment_before_is_on_time() {
    assert_eq!(simulate(1_673, None, false).violation, None);
}

#[test]
fn a_clock_that_jumps_is_not_taken_for_the_silence_of_a_cell() {
    for seed in [257, 2_059] {
        assert_eq!(simulate(seed, None, false).violation, None, "seed {seed}");
    }
}

#[test]
fn every_bug_that_is_planted_in_schedules_is_noticed() {
    for planted in Planted::ALL {
        let noticed = (1..=SEEDS).any(|seed| simulate(seed, Some(planted), false).violation.is_some());
        assert!(noticed, "{planted:?} is not noticed within {SEEDS} seeds");
    }
}
