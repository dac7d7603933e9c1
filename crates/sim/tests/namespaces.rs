//! Namespaces that are deleted and made again, in worlds where words are lost, doubled and late.

use stepwell_sim::namespaces::{Bug, Seen, simulate};

#[test]
fn nothing_survives_the_deletion_of_a_namespace_and_nothing_else_is_lost() {
    let mut sum = Seen::default();
    for seed in 1..=400 {
        let seen = simulate(seed, None).unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}"));
        sum.lives += seen.lives;
        sum.stored += seen.stored;
        sum.of_other_lives += seen.of_other_lives;
        sum.deleting += seen.deleting;
    }
    assert!(sum.lives > 800 && sum.stored > 4_000, "too little happens: {sum:?}");
    assert!(sum.of_other_lives > 50 && sum.deleting > 50, "too little goes wrong: {sum:?}");
}

#[test]
fn every_bug_that_is_planted_is_noticed() {
    for bug in Bug::ALL {
        let found = (1..=400).find_map(|seed| Some((seed, simulate(seed, Some(bug)).err()?)));
        let (seed, (rule, detail)) = found.unwrap_or_else(|| panic!("{bug:?} is not noticed"));
        println!("{bug:?}: seed {seed}: {rule}: {detail}");
        assert!(simulate(seed, None).is_ok(), "{bug:?}: the seed is clean without it");
    }
}
