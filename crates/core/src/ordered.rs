//! Maps and sets in the order of their keys, made of little code.
//!
//! Owns: [`OrdMap`] and [`OrdSet`], which the machines use in place of the standard library's. Those are compiled anew for
//! each type of key and value, about ten kilobytes each, and a Worker has dozens of them: they were a sixth of the engine.
//! These are a list of sorted pieces of a few kilobytes each. What is looked up is found by bisection, and what is put in
//! or taken out moves one piece's entries at most, or now and then the list of pieces.

use std::{
    borrow::Borrow,
    fmt,
    marker::PhantomData,
    mem,
    ops::{Bound, RangeBounds},
    slice, vec,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
};

#[cfg(test)]
mod tests;

/// About how many bytes a piece has at most.
const PIECE_BYTES: usize = 2048;

/// A map in the order of its keys.
#[derive(Clone)]
pub struct OrdMap<K, V> {
    /// No piece is empty, and two neighbours have more than half a piece together.
    pieces: Vec<Vec<(K, V)>>,
    len: usize,
}

/// A set in the order of its members.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrdSet<K>(OrdMap<K, ()>);

/// Where an entry is, or belongs: its piece, and its place therein.
#[derive(Clone, Copy)]
struct Spot {
    piece: usize,
    at: usize,
    is_taken: bool,
}

impl<K, V> OrdMap<K, V> {
    /// How many entries a piece has at most.
    const MOST: usize = {
        let entries = PIECE_BYTES / (mem::size_of::<(K, V)>() + 1);
        if entries < 8 {
            8
        } else if entries > 64 {
            64
        } else {
            entries
        }
    };

    /// An empty map.
    pub const fn new() -> Self {
        Self { pieces: Vec::new(), len: 0 }
    }

    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its entries.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { entries: self.pieces.iter().flatten() }
    }

    /// Its keys.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.pieces.iter().flatten().map(|(key, _)| key)
    }

    /// Its values, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.pieces.iter().flatten().map(|(_, value)| value)
    }

    /// Its entries, to change the values.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        self.pieces.iter_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// Its values, to change them.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.pieces.iter_mut().flatten().map(|(_, value)| value)
    }

    /// Its keys, without the values.
    pub fn into_keys(self) -> impl DoubleEndedIterator<Item = K> {
        self.pieces.into_iter().flatten().map(|(key, _)| key)
    }

    /// Its values, without the keys.
    pub fn into_values(self) -> impl DoubleEndedIterator<Item = V> {
        self.pieces.into_iter().flatten().map(|(_, value)| value)
    }

    /// The first entry.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.pieces.first()?.first().map(|(key, value)| (key, value))
    }

    /// The last entry.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.pieces.last()?.last().map(|(key, value)| (key, value))
    }

    /// Takes the first entry out.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (self.len > 0).then(|| self.take(0, 0))
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Keeps the entries of which this is true.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&K, &mut V) -> bool) {
        for piece in &mut self.pieces {
            piece.retain_mut(|(key, value)| is_kept(key, value));
        }
        let kept = mem::take(&mut self.pieces);
        self.len = 0;
        for piece in kept.into_iter().filter(|piece| !piece.is_empty()) {
            self.len += piece.len();
            self.pieces.push(piece);
            self.join(self.pieces.len().saturating_sub(2));
        }
    }

    /// Takes an entry out that is there.
    fn take(&mut self, piece: usize, at: usize) -> (K, V) {
        let entry = self.pieces[piece].remove(at);
        self.len -= 1;
        if self.pieces[piece].is_empty() {
            self.pieces.remove(piece);
        } else {
            self.join(piece);
        }
        self.join(piece.saturating_sub(1));
        entry
    }

    /// Makes one of a piece and the one behind it, if they are small.
    fn join(&mut self, piece: usize) {
        if let Some([left, right]) = self.pieces.get_mut(piece..piece + 2)
            && left.len() + right.len() <= Self::MOST / 2
        {
            left.append(right);
            self.pieces.remove(piece + 1);
        }
    }

    /// Puts an entry where it belongs, and says where it is now.
    fn put(&mut self, mut spot: Spot, entry: (K, V)) -> Spot {
        let is_behind_all = spot.piece == self.pieces.len();
        if is_behind_all {
            self.pieces.push(Vec::new());
        } else if self.pieces[spot.piece].len() == Self::MOST {
            let right = self.pieces[spot.piece].split_off(Self::MOST / 2);
            self.pieces.insert(spot.piece + 1, right);
            if spot.at > Self::MOST / 2 {
                spot = Spot { piece: spot.piece + 1, at: spot.at - Self::MOST / 2, ..spot };
            }
        }
        self.pieces[spot.piece].insert(spot.at, entry);
        self.len += 1;
        spot
    }
}

impl<K: Ord, V> OrdMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let spot = self.spot(key);
        spot.is_taken.then(|| &self.pieces[spot.piece][spot.at].1)
    }

    /// The value of a key, to change it.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let spot = self.spot(key);
        spot.is_taken.then(|| &mut self.pieces[spot.piece][spot.at].1)
    }

    /// Whether a key has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.spot(key).is_taken
    }

    /// Gives a key a value, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let spot = self.spot(&key);
        if spot.is_taken {
            return Some(mem::replace(&mut self.pieces[spot.piece][spot.at].1, value));
        }
        self.put(spot, (key, value));
        None
    }

    /// The value of a key, which gets this one if it has none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let mut spot = self.spot(&key);
        if !spot.is_taken {
            spot = self.put(spot, (key, value()));
        }
        &mut self.pieces[spot.piece][spot.at].1
    }

    /// The value of a key, which gets the default one if it has none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Takes a key out, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let spot = self.spot(key);
        spot.is_taken.then(|| self.take(spot.piece, spot.at).1)
    }

    /// The entries between two keys.
    pub fn range<'a, R: RangeBounds<K> + 'a>(&'a self, range: R) -> impl Iterator<Item = (&'a K, &'a V)> {
        let (start, skips) = match range.start_bound() {
            Bound::Included(key) => (self.spot(key), false),
            Bound::Excluded(key) => (self.spot(key), true),
            Bound::Unbounded => (Spot { piece: 0, at: 0, is_taken: false }, false),
        };
        let skipped = start.at + usize::from(skips && start.is_taken);
        let entries = self.pieces.iter().skip(start.piece).flatten().skip(skipped);
        entries
            .take_while(move |(key, _)| match range.end_bound() {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            })
            .map(|(key, value)| (key, value))
    }

    fn spot<Q: Ord + ?Sized>(&self, key: &Q) -> Spot
    where
        K: Borrow<Q>,
    {
        let piece =
            self.pieces.partition_point(|piece| piece.last().is_some_and(|(last, _)| last.borrow() < key));
        let Some(entries) = self.pieces.get(piece) else { return self.end() };
        match entries.binary_search_by(|(other, _)| other.borrow().cmp(key)) {
            Ok(at) => Spot { piece, at, is_taken: true },
            Err(at) => Spot { piece, at, is_taken: false },
        }
    }

    /// The place behind all others: in the last piece, or in one that is yet to be made.
    fn end(&self) -> Spot {
        match self.pieces.last() {
            Some(last) if last.len() < Self::MOST => {
                Spot { piece: self.pieces.len() - 1, at: last.len(), is_taken: false }
            }
            Some(_) | None => Spot { piece: self.pieces.len(), at: 0, is_taken: false },
        }
    }
}

impl<K: Ord> OrdSet<K> {
    /// An empty set.
    pub const fn new() -> Self {
        Self(OrdMap::new())
    }

    /// How many members it has.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no member.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is a member.
    pub fn contains<Q: Ord + ?Sized>(&self, member: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(member)
    }

    /// Makes this a member, and says whether it is a new one.
    pub fn insert(&mut self, member: K) -> bool {
        self.0.insert(member, ()).is_none()
    }

    /// Takes a member out, and says whether it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, member: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.remove(member).is_some()
    }

    /// The first member.
    pub fn first(&self) -> Option<&K> {
        self.0.first_key_value().map(|(member, ())| member)
    }

    /// The last member.
    pub fn last(&self) -> Option<&K> {
        self.0.last_key_value().map(|(member, ())| member)
    }

    /// Takes the first member out.
    pub fn pop_first(&mut self) -> Option<K> {
        self.0.pop_first().map(|(member, ())| member)
    }

    /// Its members.
    pub fn iter(&self) -> Members<'_, K> {
        Members { entries: self.0.pieces.iter().flatten() }
    }

    /// The members between two.
    pub fn range<'a, R: RangeBounds<K> + 'a>(&'a self, range: R) -> impl Iterator<Item = &'a K> {
        self.0.range(range).map(|(member, ())| member)
    }

    /// Keeps the members of which this is true.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&K) -> bool) {
        self.0.retain(|member, ()| is_kept(member));
    }

    /// Its members that another set does not have.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a K> {
        self.iter().filter(|member| !other.contains(*member))
    }
}

/// The entries of a map.
pub struct Iter<'a, K, V> {
    entries: std::iter::Flatten<slice::Iter<'a, Vec<(K, V)>>>,
}

/// The members of a set.
pub struct Members<'a, K> {
    entries: std::iter::Flatten<slice::Iter<'a, Vec<(K, ())>>>,
}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone() }
    }
}

impl<K> Clone for Members<'_, K> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone() }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|(key, value)| (key, value))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back().map(|(key, value)| (key, value))
    }
}

impl<'a, K> Iterator for Members<'a, K> {
    type Item = &'a K;

    fn next(&mut self) -> Option<&'a K> {
        self.entries.next().map(|(member, ())| member)
    }
}

impl<K> DoubleEndedIterator for Members<'_, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back().map(|(member, ())| member)
    }
}

impl<'a, K, V> IntoIterator for &'a OrdMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> IntoIterator for OrdMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Flatten<vec::IntoIter<Vec<(K, V)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

impl<'a, K: Ord> IntoIterator for &'a OrdSet<K> {
    type Item = &'a K;
    type IntoIter = Members<'a, K>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The members of a set, without it.
pub struct IntoMembers<K>(std::iter::Flatten<vec::IntoIter<Vec<(K, ())>>>);

impl<K> Iterator for IntoMembers<K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.0.next().map(|(member, ())| member)
    }
}

impl<K> IntoIterator for OrdSet<K> {
    type Item = K;
    type IntoIter = IntoMembers<K>;

    fn into_iter(self) -> IntoMembers<K> {
        IntoMembers(self.0.into_iter())
    }
}

impl<K: Ord, V> Extend<(K, V)> for OrdMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for OrdMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for OrdMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord> Extend<K> for OrdSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl<K: Ord> FromIterator<K> for OrdSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(members: I) -> Self {
        let mut set = Self::new();
        set.extend(members);
        set
    }
}

impl<K: Ord, const N: usize> From<[K; N]> for OrdSet<K> {
    fn from(members: [K; N]) -> Self {
        members.into_iter().collect()
    }
}

impl<K, V> Default for OrdMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord> Default for OrdSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

// By their entries: how those are divided into pieces is nobody's business.
impl<K: PartialEq, V: PartialEq> PartialEq for OrdMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for OrdMap<K, V> {}

impl<K: PartialOrd, V: PartialOrd> PartialOrd for OrdMap<K, V> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.iter().partial_cmp(other.iter())
    }
}

impl<K: Ord, V: Ord> Ord for OrdMap<K, V> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.iter().cmp(other.iter())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for OrdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: fmt::Debug> fmt::Debug for OrdSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<K: Serialize, V: Serialize> Serialize for OrdMap<K, V> {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_map(self.iter())
    }
}

impl<K: Serialize + Ord> Serialize for OrdSet<K> {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_seq(self.iter())
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for OrdMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = OrdMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut map = OrdMap::new();
                while let Some((key, value)) = access.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }

        reader.deserialize_map(Entries(PhantomData))
    }
}

impl<'de, K: Deserialize<'de> + Ord> Deserialize<'de> for OrdSet<K> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct All<K>(PhantomData<K>);

        impl<'de, K: Deserialize<'de> + Ord> Visitor<'de> for All<K> {
            type Value = OrdSet<K>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut set = OrdSet::new();
                while let Some(member) = access.next_element()? {
                    set.insert(member);
                }
                Ok(set)
            }
        }

        reader.deserialize_seq(All(PhantomData))
    }
}
