//! Every planted bug is noticed, and its seed is clean without it.

use stepwell_sim::{
    Sabotage, simulate,
    sweep::{Seeds, sweep},
};

/// How many worlds a planted bug gets to show itself.
const SEEDS: u64 = 300;

#[test]
fn every_planted_bug_is_noticed_and_nothing_else_is() {
    let mut unnoticed = Vec::new();
    for sabotage in Sabotage::ALL {
        match sweep(Seeds::from(1, SEEDS), 2, Some(sabotage), |_| ()).failure {
            Some((seed, _)) => {
                let sound = simulate(seed, None, false).violation;
                assert_eq!(sound, None, "seed {seed} breaks a rule without {sabotage:?}");
            }
            None => unnoticed.push(sabotage),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed within {SEEDS} seeds: {unnoticed:?}");
}
