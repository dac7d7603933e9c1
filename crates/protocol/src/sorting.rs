//! Sorting with little code.
//!
//! The standard library's sorts are compiled anew for each type, about four kilobytes each. These sort the places of the
//! items, which are numbers for all types, and then put the items there.

use std::cmp::Ordering;

/// Sorts a list. Equal items stay in their order.
pub fn sort<T: Ord>(items: &mut Vec<T>) {
    sort_by(items, T::cmp);
}

/// Sorts a list by a comparison. Equal items stay in their order.
pub fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let order = order(items.len(), &|a, b| {
        items.get(a).zip(items.get(b)).map_or(Ordering::Equal, |(a, b)| compare(a, b))
    });
    let mut taken: Vec<_> = items.drain(..).map(Some).collect();
    items.extend(order.into_iter().filter_map(|place| taken.get_mut(place)?.take()));
}

/// The places of so many items, in the order of the items there.
fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<_> = (0..count).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_the_standard_library(mut items in vec((0_u8..20, any::<u8>()), 0..100)) {
            let (mut theirs, mut by_first) = (items.clone(), items.clone());
            theirs.sort_by_key(|(first, _)| *first);
            sort_by(&mut by_first, |(a, _), (b, _)| a.cmp(b));
            assert_eq!(by_first, theirs, "and what is equal stays in its order");
            theirs.sort_unstable();
            sort(&mut items);
            assert_eq!(items, theirs);
        }
    }
}
