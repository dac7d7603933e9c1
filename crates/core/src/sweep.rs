//! The last net, decided: which objects one sweep visits, and where the next one goes on.
//!
//! One invocation may make only so many calls, so a sweep visits a bounded part of a deployment's objects and leaves a
//! cursor. All of them are visited, in one order, before any is visited again, however many there are.

use std::{fmt, str::FromStr};

use stepwell_protocol::Place;

use crate::sorting::sort;

/// An object to visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its namespace.
    pub namespace: String,
    /// The cell's place; nothing for the namespace's catalog.
    pub place: Option<Place>,
}

/// What one sweep visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The objects.
    pub targets: Vec<Target>,
    /// Where the next sweep goes on; nothing, if this one visits all of them.
    pub next: Option<Cursor>,
}

/// The last object that was visited: `acme/3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    namespace: String,
    /// 0 for the catalog, then the cells in their order.
    ordinal: usize,
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor of a sweep")]
pub struct NotACursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.ordinal)
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (namespace, ordinal) = text.split_once('/').ok_or(NotACursor)?;
        Ok(Self { namespace: namespace.into(), ordinal: ordinal.parse().map_err(|_| NotACursor)? })
    }
}

/// The objects after a cursor, at most so many. After the last one comes the first.
pub fn part(
    mut namespaces: Vec<String>,
    places: &[Place],
    has_catalogs: bool,
    after: Option<&Cursor>,
    limit: usize,
) -> Part {
    sort(&mut namespaces);
    namespaces.dedup();
    let each: Vec<_> = has_catalogs.then_some(None).into_iter().chain(places.iter().map(Some)).collect();
    let first = usize::from(!has_catalogs);
    let total = namespaces.len() * each.len();
    let start = match after {
        Some(Cursor { namespace, ordinal }) => match namespaces.binary_search(namespace) {
            Ok(index) => index * each.len() + (ordinal + 1).saturating_sub(first).min(each.len()),
            // It is gone by now.
            Err(index) => index * each.len(),
        },
        None => 0,
    };
    let visited = (start..start + limit.min(total)).map(|index| index % total.max(1));
    let cursors: Vec<_> = visited.map(|index| (index / each.len(), index % each.len())).collect();
    let targets = cursors.iter().map(|(namespace, ordinal)| Target {
        namespace: namespaces[*namespace].clone(),
        place: each[*ordinal].cloned(),
    });
    let last = cursors.last().filter(|_| total > limit);
    Part {
        targets: targets.collect(),
        next: last.map(|(namespace, ordinal)| Cursor {
            namespace: namespaces[*namespace].clone(),
            ordinal: ordinal + first,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn places(cells: u32) -> Vec<Place> {
        (0..cells).map(|cell| Place { pool: "default".into(), generation: 1, cell }).collect()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("n{n:03}")).chain(["default".into()]).collect()
    }

    #[test]
    fn what_fits_into_one_sweep_needs_no_cursor() {
        let part = part(names(2), &places(4), true, None, 15);
        assert_eq!((part.targets.len(), part.next), (15, None));
    }

    #[test]
    fn every_object_is_visited_before_any_is_visited_again() {
        for (has_catalogs, each) in [(true, 5), (false, 4)] {
            let (names, places, limit) = (names(500), places(4), 997);
            let total = names.len() * each;
            let (mut visits, mut cursor) = (BTreeMap::new(), None::<Cursor>);
            for _ in 0..total.div_ceil(limit) {
                let part = part(names.clone(), &places, has_catalogs, cursor.as_ref(), limit);
                assert_eq!(part.targets.len(), limit);
                for Target { namespace, place } in part.targets {
                    *visits.entry((namespace, place.map(|place| place.cell))).or_insert(0) += 1;
                }
                cursor = part.next.map(|next| next.to_string().parse().expect("it is one"));
            }
            assert_eq!(visits.len(), total, "the tail is visited too");
            let again = visits.values().filter(|times| **times > 1).count();
            assert_eq!(again, total.div_ceil(limit) * limit - total);
        }
    }

    #[test]
    fn a_namespace_that_is_gone_leads_to_the_next_one() {
        let cursor = "n0005/3".parse().expect("it is one");
        let part = part(names(10), &places(2), true, Some(&cursor), 1);
        assert_eq!(part.targets, [Target { namespace: "n001".into(), place: None }]);
        assert_eq!(part.next.map(|next| next.to_string()).as_deref(), Some("n001/0"));
    }

    #[test]
    fn cells_that_are_no_more_lead_to_the_next_namespace() {
        let cursor = "n001/9".parse().expect("it is one");
        let part = part(names(10), &places(2), true, Some(&cursor), 1);
        assert_eq!(part.targets[0].namespace, "n002");
    }

    #[test]
    fn nothing_is_visited_where_there_is_nothing() {
        assert_eq!(part(vec![], &[], false, None, 10), Part { targets: vec![], next: None });
    }
}
