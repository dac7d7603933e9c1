//! Knows a request that is delivered again, by the mark that its front drew for it.
//!
//! Owns: which numbers the events of the latest requests got that came without ids, in memory. Their ids already say it, as
//! `{number}-{mark}-{index}`, so there is no further row: a fresh instance reads the latest ids once.
//!
//! Invariant: a request finds its events if they are among the latest [`EVENTS_READ`], or if this instance accepted them and
//! fewer than [`SPANS_MAX`] requests since.

use std::collections::VecDeque;

use crate::ordered::OrdMap;

/// How many ids a fresh instance reads.
pub(super) const EVENTS_READ: usize = 8_192;

/// How many spans are remembered. A request has one, unless it also has events with ids of their own.
const SPANS_MAX: usize = 8_192;

/// The latest requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// The events of each request, by its mark.
    spans: OrdMap<String, Vec<Span>>,
    /// The marks, oldest first.
    order: VecDeque<String>,
    /// How many spans there are in all.
    count: usize,
}

/// Events whose places in the request and whose numbers follow one another.
#[derive(Clone, Copy, Debug)]
struct Span {
    index: u64,
    number: u64,
    length: u64,
}

impl Recent {
    /// What was read of the rows, newest first.
    pub fn read(ids: &[String]) -> Self {
        let mut recent = Self::default();
        for id in ids.iter().rev() {
            let parts = id.split_once('-').and_then(|(number, rest)| {
                let (mark, index) = rest.rsplit_once('-')?;
                Some((number.parse().ok()?, mark, index.parse().ok()?))
            });
            if let Some((number, mark, index)) = parts {
                recent.note(mark, index, number);
            }
        }
        recent
    }

    /// Remembers an event of a request. Those of one request come in order.
    pub fn note(&mut self, mark: &str, index: u64, number: u64) {
        if !self.spans.contains_key(mark) {
            self.order.push_back(mark.to_owned());
        }
        let spans = self.spans.get_or_default(mark.to_owned());
        match spans.last_mut() {
            Some(last) if (last.index + last.length, last.number + last.length) == (index, number) => {
                last.length += 1;
            }
            Some(_) | None => {
                spans.push(Span { index, number, length: 1 });
                self.count += 1;
            }
        }
        while self.count > SPANS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.count -= self.spans.remove(&oldest).map_or(0, |spans| spans.len());
        }
    }

    /// The number of an event of a request.
    pub fn find(&self, mark: &str, index: u64) -> Option<u64> {
        let spans = self.spans.get(mark)?;
        let span = spans.iter().find(|span| (span.index..span.index + span.length).contains(&index))?;
        Some(span.number + (index - span.index))
    }
}
