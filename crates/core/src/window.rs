//! The window: which activations of a cell may be under way at once.
//!
//! An object's outgoing calls share one budget, so a cell calls only so many programs at a time. No
//! workflow may take more than half of the places, or a hanging endpoint would stop all others; and a run
//! under suspicion gets the window to itself until it makes progress or ends.
//!
//! Owns: who holds a place, who is next. Rows are the truth about who is due; this is only their order.

use std::collections::{BTreeMap, VecDeque};

use stepwell_protocol::Epoch;

/// How many runs wait in memory; more of them are read from the rows when there is room again.
pub const READY_MAX: usize = 1_024;

/// The places of one cell.
#[derive(Debug)]
pub struct Window {
    size: usize,
    held: BTreeMap<(u64, Epoch), Place>,
    ready: VecDeque<Ready>,
    overflowed: bool,
}

#[derive(Debug)]
struct Place {
    workflow: String,
    /// Whether nobody else may enter.
    exclusive: bool,
}

/// A run that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its number in the cell.
    pub number: u64,
    /// Its workflow.
    pub workflow: String,
    /// Whether it wants the window to itself.
    pub alone: bool,
}

impl Window {
    /// A window of this many places, at least 1.
    pub fn new(size: usize) -> Self {
        Self { size: size.max(1), held: BTreeMap::new(), ready: VecDeque::new(), overflowed: false }
    }

    /// Whether a run of this workflow could enter at once, ahead of nobody; and if so, whether it would be
    /// alone.
    pub fn offers(&self, workflow: &str) -> Option<bool> {
        (self.ready.is_empty() && self.fits(workflow, false)).then_some(self.held.is_empty())
    }

    /// A run enters, as this activation: an earlier call of it may still be under way.
    pub fn enter(&mut self, number: u64, epoch: Epoch, workflow: &str, exclusive: bool) {
        self.held.insert((number, epoch), Place { workflow: workflow.to_owned(), exclusive });
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

    /// How many calls are under way.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether any call is under way.
    pub fn is_busy(&self) -> bool {
        !self.held.is_empty()
    }

    /// A run is due and waits for a place.
    pub fn enqueue(&mut self, ready: Ready) {
        if self.ready.iter().any(|other| other.number == ready.number) {
            return;
        }
        if self.ready.len() < READY_MAX {
            self.ready.push_back(ready);
        } else {
            self.overflowed = true;
        }
    }

    /// The next run that may enter, if any; it leaves the queue and still has to [`Self::enter`].
    pub fn take_next(&mut self) -> Option<Ready> {
        let at = self.ready.iter().position(|ready| self.fits(&ready.workflow, ready.alone));
        // Whoever wants to be alone must not be overtaken for ever by those who fit beside each other.
        let first_alone = self.ready.iter().position(|ready| ready.alone);
        match (at, first_alone) {
            (Some(at), Some(alone)) if at > alone => None,
            (Some(at), _) => self.ready.remove(at),
            (None, _) => None,
        }
    }

    /// Whether runs were left out because too many waited: once the queue is empty, the rows have more.
    pub fn take_overflow(&mut self) -> bool {
        self.ready.is_empty() && std::mem::take(&mut self.overflowed)
    }

    fn fits(&self, workflow: &str, alone: bool) -> bool {
        if alone {
            return self.held.is_empty();
        }
        let share = (self.size / 2).max(1);
        self.held.len() < self.size
            && self.held.values().all(|place| !place.exclusive)
            && self.held.values().filter(|place| place.workflow == workflow).count() < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Epoch = Epoch(1);

    fn ready(number: u64, workflow: &str) -> Ready {
        Ready { number, workflow: workflow.into(), alone: false }
    }

    #[test]
    fn one_workflow_takes_at_most_half_of_the_places() {
        let mut window = Window::new(4);
        window.enter(1, ONE, "slow", false);
        window.enter(2, ONE, "slow", false);
        assert_eq!(window.offers("slow"), None);
        assert_eq!(window.offers("quick"), Some(false));
    }

    #[test]
    fn a_full_share_is_overtaken_but_not_forgotten() {
        let mut window = Window::new(2);
        window.enter(1, ONE, "slow", false);
        window.enqueue(ready(2, "slow"));
        window.enqueue(ready(3, "quick"));
        assert_eq!(window.take_next(), Some(ready(3, "quick")));
        window.enter(3, ONE, "quick", false);
        assert_eq!(window.take_next(), None);
        window.leave(1, ONE);
        assert_eq!(window.take_next(), Some(ready(2, "slow")));
    }

    #[test]
    fn a_suspicious_run_enters_an_empty_window_and_keeps_it_until_cleared() {
        let mut window = Window::new(8);
        window.enter(1, ONE, "a", false);
        window.enqueue(Ready { alone: true, ..ready(2, "b") });
        window.enqueue(ready(3, "c"));
        assert_eq!(window.take_next(), None, "others must not overtake it for ever");
        window.leave(1, ONE);
        assert_eq!(window.take_next().map(|ready| ready.number), Some(2));
        window.enter(2, ONE, "b", true);
        assert_eq!(window.take_next(), None);
        window.clear(2, ONE);
        assert_eq!(window.take_next().map(|ready| ready.number), Some(3));
    }

    #[test]
    fn nobody_enters_ahead_of_those_who_wait() {
        let mut window = Window::new(2);
        window.enqueue(ready(1, "a"));
        assert_eq!(window.offers("b"), None);
    }

    #[test]
    fn more_runs_than_the_queue_holds_are_reported_once_it_is_empty() {
        let mut window = Window::new(4);
        for number in 0..=READY_MAX as u64 {
            window.enqueue(ready(number, "a"));
        }
        assert!(!window.take_overflow());
        while window.take_next().is_some() {}
        assert!(window.take_overflow());
        assert!(!window.take_overflow());
    }
}
