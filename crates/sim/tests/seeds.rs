//! A couple of hundred worlds, the same each time.

use stepwell_sim::{
    Script, Violation, World, shrink, simulate,
    sweep::{Seeds, sweep},
};

#[test]
fn two_hundred_worlds_break_no_rule() {
    let sum = sweep(Seeds::from(1, 200), 2, None, |_| ());
    assert_eq!(sum.failure, None, "run `just sim-seed SEED`");
    assert!(sum.transitions_min >= 200, "a world had {} transitions", sum.transitions_min);
    assert!(sum.faults_min >= 20, "a world had {} faults", sum.faults_min);
}

/// Worlds that once broke a rule, by a mistake of the engine's or of the simulator's.
#[test]
fn worlds_that_once_broke_a_rule_break_none() {
    for seed in [95_936, 204_295, 62_029_784_971, 615_397_512_564] {
        assert_eq!(simulate(seed, None, false).violation, None, "run `just sim-seed {seed}`");
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    for seed in 1..=20 {
        let (one, two) = (simulate(seed, None, true), simulate(seed, None, true));
        assert_eq!(one.digest, two.digest, "seed {seed}");
        assert_eq!(one.transcript, two.transcript, "seed {seed}");
    }
}

#[test]
fn a_transcript_does_not_change_what_happens() {
    for seed in 1..=20 {
        assert_eq!(simulate(seed, None, true).digest, simulate(seed, None, false).digest, "seed {seed}");
    }
}

#[test]
fn a_failing_world_shrinks_to_a_smaller_one_that_breaks_the_same_rule() {
    let sabotage = Some(stepwell_sim::Sabotage::NeverArmed);
    let script = Script::of(1);
    let violation: Violation = simulate(1, sabotage, false).violation.expect("no alarm is ever set");
    let small = shrink::shrink(1, script.clone(), sabotage, &violation);
    assert!(small.faults.len() < script.faults.len() / 2, "{} faults are left", small.faults.len());
    assert!(small.actions.len() < script.actions.len() / 2, "{} actions are left", small.actions.len());
    let again = World::new(1, small, sabotage, false).run().violation.expect("it still fails");
    assert_eq!(again.rule, violation.rule);
}
