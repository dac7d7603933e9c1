//! The window: which activations of a cell may be under way at once.
//!
//! An object's outgoing calls share one budget, so a cell calls only so many programs at a time. A workflow takes
//! at most half of the places that all others leave it, so that several hanging endpoints do not stop the rest:
//! of 12 places they hold 6, 3, 2 and 1. And a run under suspicion gets the window to itself until it makes
//! progress or ends. A place that was held for [`EXCLUSIVE_MS`] keeps nobody out, and nobody waits for its end.
//!
//! Owns: who holds a place, who is next. Rows are the truth about who is due; this is only their order.

use std::collections::BTreeMap;

use stepwell_protocol::{Epoch, Timestamp};

use crate::line::Line;
pub use crate::line::Ready;

/// How long a run under suspicion keeps all others out, and waits for them: one whose endpoint hangs would stop its
/// cell for ever. Longer than a dead cell stays unnoticed, or nobody could be told to have died alone.
pub const EXCLUSIVE_MS: u64 = 30_000;

/// The places of one cell.
#[derive(Debug)]
pub struct Window {
    size: usize,
    held: BTreeMap<(u64, Epoch), Place>,
    line: Line,
}

#[derive(Debug)]
struct Place {
    workflow: String,
    since: Timestamp,
    /// Whether nobody else may enter.
    exclusive: bool,
}

impl Place {
    fn is_old(&self, now: Timestamp) -> bool {
        now >= self.since.plus_millis(EXCLUSIVE_MS)
    }
}

impl Window {
    /// A window of this many places, at least 1.
    pub fn new(size: usize) -> Self {
        Self { size: size.max(1), held: BTreeMap::new(), line: Line::default() }
    }

    /// Whether a run of this workflow could enter at once, ahead of nobody; and if so, whether it would be
    /// alone.
    pub fn offers(&self, now: Timestamp, workflow: &str) -> Option<bool> {
        (self.line.is_empty() && self.fits(now, workflow, false)).then(|| self.is_quiet(now))
    }

    /// A run enters, as this activation: an earlier call of it may still be under way.
    pub fn enter(&mut self, now: Timestamp, number: u64, epoch: Epoch, workflow: &str, exclusive: bool) {
        let place = Place { workflow: workflow.to_owned(), since: now, exclusive };
        self.held.insert((number, epoch), place);
    }

    /// A run that had the window to itself has made progress: others may enter.
    pub fn clear(&mut self, number: u64, epoch: Epoch) {
        if let Some(place) = self.held.get_mut(&(number, epoch)) {
            place.exclusive = false;
        }
    }

    /// A call is over.
    pub fn leave(&mut self, number: u64, epoch: Epoch) {
        self.held.remove(&(number, epoch));
    }

    /// Whether this activation's call is under way.
    pub fn holds(&self, number: u64, epoch: Epoch) -> bool {
        self.held.contains_key(&(number, epoch))
    }

    /// Whether any call of this run is under way.
    pub fn is_called(&self, number: u64) -> bool {
        self.held.range((number, Epoch(0))..=(number, Epoch(u32::MAX))).next().is_some()
    }

    /// How many calls are under way.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether whoever enters would be alone, but for what has been under way for long.
    pub fn is_quiet(&self, now: Timestamp) -> bool {
        self.held.values().all(|place| place.is_old(now))
    }

    /// A run is due and waits for a place.
    pub fn enqueue(&mut self, ready: Ready) {
        self.line.push(ready);
    }

    /// Whether anybody waits for a place.
    pub fn has_ready(&self) -> bool {
        !self.line.is_empty()
    }

    /// A run does not wait for a place any more.
    pub fn forget(&mut self, number: u64) {
        self.line.forget(number);
    }

    /// The next run that may enter, if any; it leaves the line and still has to [`Self::enter`]. Of the workflows that
    /// have a place to spare it is the one that waits longest.
    pub fn take_next(&mut self, now: Timestamp) -> Option<Ready> {
        let next = self.line.firsts().filter(|(_, workflow)| self.fits(now, workflow, false)).min();
        let next = next.map(|(turn, _)| turn);
        // Whoever wants to be alone must not be overtaken for ever by those who fit beside each other.
        let next = match (next, self.line.first_alone()) {
            (Some(next), Some(alone)) if alone < next => Some(alone),
            (None, Some(alone)) => Some(alone),
            (next, _) => next,
        }?;
        if self.line.first_alone() == Some(next) && !self.fits(now, "", true) {
            return None;
        }
        self.line.take(next)
    }

    fn fits(&self, now: Timestamp, workflow: &str, alone: bool) -> bool {
        if alone {
            return self.held.len() < self.size && self.is_quiet(now);
        }
        let mine = self.held.values().filter(|place| place.workflow == workflow).count();
        let left_by_others = self.size.saturating_sub(self.held.len() - mine);
        self.held.len() < self.size
            && mine < left_by_others.div_ceil(2)
            && self.held.values().all(|place| !place.exclusive || place.is_old(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Epoch = Epoch(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn ready(number: u64, workflow: &str) -> Ready {
        Ready { number, workflow: workflow.into(), alone: false }
    }

    #[test]
    fn one_workflow_takes_at_most_half_of_the_places() {
        let mut window = Window::new(4);
        window.enter(at(0), 1, ONE, "slow", false);
        window.enter(at(0), 2, ONE, "slow", false);
        assert_eq!(window.offers(at(0), "slow"), None);
        assert_eq!(window.offers(at(0), "quick"), Some(false));
    }

    #[test]
    fn hanging_workflows_leave_a_place_for_the_next_as_long_as_there_is_one() {
        let mut window = Window::new(12);
        let (mut number, mut held) = (0, Vec::new());
        for workflow in ["a", "b", "c", "d", "e"] {
            let mut count = 0;
            while window.offers(at(0), workflow).is_some() {
                (number, count) = (number + 1, count + 1);
                window.enter(at(0), number, ONE, workflow, false);
            }
            held.push(count);
        }
        assert_eq!(held, [6, 3, 2, 1, 0]);
    }

    #[test]
    fn a_window_of_one_place_takes_any_workflow() {
        let mut window = Window::new(1);
        assert_eq!(window.offers(at(0), "a"), Some(true));
        window.enter(at(0), 1, ONE, "a", false);
        assert_eq!(window.offers(at(0), "b"), None);
    }

    #[test]
    fn a_suspicious_run_that_hangs_keeps_the_others_out_for_a_while_only() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", true);
        window.enqueue(ready(2, "b"));
        assert_eq!(window.take_next(at(EXCLUSIVE_MS - 1)), None);
        assert_eq!(window.take_next(at(EXCLUSIVE_MS)), Some(ready(2, "b")));
    }

    #[test]
    fn a_suspicious_run_waits_for_one_that_hangs_for_a_while_only() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", false);
        window.enqueue(Ready { alone: true, ..ready(2, "b") });
        window.enqueue(ready(3, "c"));
        assert_eq!(window.take_next(at(EXCLUSIVE_MS - 1)), None);
        assert_eq!(window.take_next(at(EXCLUSIVE_MS)).map(|ready| ready.number), Some(2));
        assert!(window.is_quiet(at(EXCLUSIVE_MS)));
    }

    #[test]
    fn a_full_share_is_overtaken_but_not_forgotten() {
        let mut window = Window::new(2);
        window.enter(at(0), 1, ONE, "slow", false);
        window.enqueue(ready(2, "slow"));
        window.enqueue(ready(3, "quick"));
        assert_eq!(window.take_next(at(0)), Some(ready(3, "quick")));
        window.enter(at(0), 3, ONE, "quick", false);
        assert_eq!(window.take_next(at(0)), None);
        window.leave(1, ONE);
        assert_eq!(window.take_next(at(0)), Some(ready(2, "slow")));
    }

    #[test]
    fn a_suspicious_run_enters_an_empty_window_and_keeps_it_until_cleared() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", false);
        window.enqueue(Ready { alone: true, ..ready(2, "b") });
        window.enqueue(ready(3, "c"));
        assert_eq!(window.take_next(at(0)), None, "others must not overtake it for ever");
        window.leave(1, ONE);
        assert_eq!(window.take_next(at(0)).map(|ready| ready.number), Some(2));
        window.enter(at(0), 2, ONE, "b", true);
        assert_eq!(window.take_next(at(0)), None);
        window.clear(2, ONE);
        assert_eq!(window.take_next(at(0)).map(|ready| ready.number), Some(3));
    }

    #[test]
    fn nobody_enters_ahead_of_those_who_wait() {
        let mut window = Window::new(2);
        window.enqueue(ready(1, "a"));
        assert_eq!(window.offers(at(0), "b"), None);
    }
}
