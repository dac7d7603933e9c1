//! That the maps do what the standard library's do, and that their pieces stay as large as they should be.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};

use super::*;

/// Large, so that a piece has few entries and there are many pieces.
type Large = [u64; 64];

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u64),
    Default(u16),
    Change(u16),
    Remove(u16),
    PopFirst,
    /// Keeps the keys that are no multiples.
    Retain(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0_u16..300;
    prop_oneof![
        6 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        1 => key().prop_map(Step::Default),
        1 => key().prop_map(Step::Change),
        6 => key().prop_map(Step::Remove),
        1 => Just(Step::PopFirst),
        1 => (2_u16..9).prop_map(Step::Retain),
    ]
}

fn large(value: u64) -> Large {
    [value; 64]
}

fn check(map: &OrdMap<u16, Large>, model: &BTreeMap<u16, Large>) {
    assert_eq!(map.len(), model.len());
    assert!(map.iter().eq(model), "the same entries in the same order");
    assert!(map.iter().rev().eq(model.iter().rev()), "and backwards");
    assert_eq!(map.first_key_value(), model.first_key_value());
    assert_eq!(map.last_key_value(), model.last_key_value());
    assert!(map.pieces.iter().all(|piece| (1..=OrdMap::<u16, Large>::MOST).contains(&piece.len())));
    let is_large =
        |pair: &[Vec<_>]| pair.iter().map(Vec::len).sum::<usize>() > OrdMap::<u16, Large>::MOST / 2;
    assert!(map.pieces.windows(2).all(is_large), "no two neighbours are small");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_map_does_what_the_standard_librarys_does(
        first in vec((0_u16..300, any::<u64>()), 0..200),
        steps in vec(step(), 0..200),
        (from, to) in (0_u16..300, 0_u16..300),
    ) {
        let first = first.into_iter().map(|(key, value)| (key, large(value)));
        let mut map: OrdMap<_, _> = first.clone().collect();
        let mut model: BTreeMap<_, _> = first.collect();
        check(&map, &model);
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    assert_eq!(map.insert(key, large(value)), model.insert(key, large(value)));
                }
                Step::Default(key) => {
                    let new = || large(7);
                    assert_eq!(map.get_or_insert_with(key, new), model.entry(key).or_insert_with(new));
                }
                Step::Change(key) => {
                    let (ours, theirs) = (map.get_mut(&key), model.get_mut(&key));
                    assert_eq!(ours, theirs);
                    for value in ours.into_iter().chain(theirs) {
                        value[0] = 1;
                    }
                }
                Step::Remove(key) => assert_eq!(map.remove(&key), model.remove(&key)),
                Step::PopFirst => assert_eq!(map.pop_first(), model.pop_first()),
                Step::Retain(divisor) => {
                    map.retain(|key, _| key % divisor != 0);
                    model.retain(|key, _| key % divisor != 0);
                }
            }
            check(&map, &model);
        }
        for key in 0..300 {
            assert_eq!(map.get(&key), model.get(&key));
            assert_eq!(map.contains_key(&key), model.contains_key(&key));
        }
        let (from, to) = (from.min(to), from.max(to));
        assert!(map.range(from..to).eq(model.range(from..to)));
        assert!(map.range(from..=to).eq(model.range(from..=to)));
        assert!(map.range(..to).eq(model.range(..to)));
        let after = (Bound::Excluded(from), Bound::Unbounded);
        assert!(map.range(after).eq(model.range(after)));
        assert_eq!(map.clone(), model.clone().into_iter().rev().collect(), "however it was made");
        assert!(map.into_iter().eq(model));
    }

    #[test]
    fn a_set_does_what_the_standard_librarys_does(
        members in vec(0_u16..500, 0..400),
        others in vec(0_u16..500, 0..400),
    ) {
        let (mut set, mut model) = (OrdSet::new(), BTreeSet::new());
        for member in members {
            assert_eq!(set.insert(member), model.insert(member));
        }
        let (other, other_model): (OrdSet<_>, BTreeSet<_>) = (others.iter().copied().collect(), others.iter().copied().collect());
        assert!(set.difference(&other).eq(model.difference(&other_model)));
        for member in &others {
            assert_eq!(set.contains(member), model.contains(member));
            assert_eq!(set.remove(member), model.remove(member));
            assert_eq!(set.first(), model.first());
        }
        assert!(set.iter().eq(&model));
        assert_eq!(set.pop_first(), model.pop_first());
        assert!(set.into_iter().eq(model));
    }
}

#[test]
fn keys_that_come_in_order_fill_their_pieces() {
    let map: OrdMap<u64, u64> = (0..100_000).map(|key| (key, key)).collect();
    assert_eq!(map.pieces.len(), 100_000_usize.div_ceil(OrdMap::<u64, u64>::MOST));
}

#[test]
fn both_are_written_and_read_like_the_standard_librarys() {
    let map = OrdMap::from([("b".to_owned(), 2), ("a".to_owned(), 1)]);
    let set = OrdSet::from([3, 1, 2]);
    let text = serde_json::to_string(&(&map, &set)).expect("JSON");
    assert_eq!(text, r#"[{"a":1,"b":2},[1,2,3]]"#);
    assert_eq!(format!("{map:?} {set:?}"), r#"{"a": 1, "b": 2} {1, 2, 3}"#);
    let read =
        stepwell_protocol::json::from_str::<(OrdMap<String, u32>, OrdSet<u8>)>(&text).expect("it is read");
    assert_eq!(read, (map, set));
}
