//! A bounded memory of things that happened a short time ago.
//!
//! Owns: which texts are remembered, and until when. An isolate uses it for facts that are cheap to lose: which keys an
//! object has just accepted or refused. Memory is bounded by a number of entries whatever callers send.

use std::collections::VecDeque;

use stepwell_protocol::Timestamp;

use crate::ordered::OrdMap;

/// Texts that are remembered for the same time each, up to a number of them.
#[derive(Clone, Debug)]
pub struct Recent {
    keep_ms: u64,
    entries_max: usize,
    until: OrdMap<String, Timestamp>,
    /// In the order in which they end, which is the order in which they came.
    order: VecDeque<(Timestamp, String)>,
}

impl Recent {
    /// Remembers up to `entries_max` texts for `keep_ms` each.
    pub const fn new(keep_ms: u64, entries_max: usize) -> Self {
        Self { keep_ms, entries_max, until: OrdMap::new(), order: VecDeque::new() }
    }

    /// Remembers a text from `now` on. Drops what is over, and the oldest if there is no room.
    pub fn insert(&mut self, now: Timestamp, text: String) {
        let until = now.plus_millis(self.keep_ms);
        self.order.push_back((until, text.clone()));
        self.until.insert(text, until);
        while let Some((ends, _)) = self.order.front()
            && (*ends <= now || self.order.len() > self.entries_max)
        {
            let Some((ends, text)) = self.order.pop_front() else { break };
            // A text that came again has a later end, and another place in the order.
            if self.until.get(&text) == Some(&ends) {
                self.until.remove(&text);
            }
        }
    }

    /// Whether a text is remembered at `now`.
    pub fn contains(&self, now: Timestamp, text: &str) -> bool {
        self.until.get(text).is_some_and(|until| now < *until)
    }

    /// Forgets a text.
    pub fn remove(&mut self, text: &str) {
        self.until.remove(text);
    }

    /// How many entries it holds in memory.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    #[test]
    fn a_text_is_remembered_for_its_time_and_no_longer() {
        let mut recent = Recent::new(1_000, 8);
        recent.insert(at(0), "a".into());
        assert!(recent.contains(at(999), "a") && !recent.contains(at(1_000), "a"));
        assert!(!recent.contains(at(0), "b"));
        recent.insert(at(500), "a".into());
        recent.insert(at(1_200), "b".into());
        assert!(recent.contains(at(1_300), "a"), "it came again");
        recent.remove("a");
        assert!(!recent.contains(at(1_300), "a"));
    }

    #[test]
    fn a_flood_of_texts_takes_bounded_memory() {
        let mut recent = Recent::new(60_000, 100);
        for n in 0..10_000_u64 {
            recent.insert(at(n), format!("key-{}", n % 7_000));
            assert!(recent.len() <= 100 && recent.until.len() <= 100);
        }
        assert!(recent.contains(at(10_000), "key-2999"), "the latest is there");
        assert!(!recent.contains(at(10_000), "key-100"));
        recent.insert(at(100_000), "alone".into());
        assert_eq!(recent.len(), 1, "what is over goes with the next insert");
    }
}
