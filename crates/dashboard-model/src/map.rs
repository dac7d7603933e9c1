//! A map with little code: a sorted list.
//!
//! The standard library's maps are compiled anew for each type, some kilobytes each. This one is for few entries, and for
//! those that come in their order: another one moves all that are behind it.

use std::{borrow::Borrow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<K, V>(Vec<(K, V)>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Map<K, V> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        // Most are asked for the last one, or come after it.
        match self.0.last() {
            Some((last, _)) if last.borrow() < key => Err(self.0.len()),
            _ => self.0.binary_search_by(|(known, _)| known.borrow().cmp(key)),
        }
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// Whether there is a value of a key.
    pub fn has<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    /// Keeps those that fit.
    pub fn retain(&mut self, fits: impl Fn(&K, &V) -> bool) {
        self.0.retain(|(key, value)| fits(key, value));
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Map<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = Map<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Map<K, V>, A::Error> {
                let mut map = Map::default();
                while let Some((key, value)) = entries.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(entries in proptest::collection::vec((0_u8..20, 0_u8..9), 0..60), most in 0_u8..20) {
            let (mut map, mut theirs) = (Map::default(), BTreeMap::new());
            for (key, value) in entries {
                map.insert(key, value);
                theirs.insert(key, value);
            }
            map.retain(|key, _| *key < most);
            theirs.retain(|key, _| *key < most);
            prop_assert_eq!(map.iter().collect::<Vec<_>>(), theirs.iter().collect::<Vec<_>>());
            prop_assert_eq!((map.len(), map.is_empty()), (theirs.len(), theirs.is_empty()));
            for key in 0_u8..20 {
                prop_assert_eq!((map.get(&key), map.has(&key)), (theirs.get(&key), theirs.contains_key(&key)));
            }
        }
    }
}
