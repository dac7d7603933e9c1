//! The line of an [`crate::ops::Each`]: how many of its steps are at work at once.
//!
//! A step takes a place for each attempt, and gives it back when it is recorded what became of that: a step that waits
//! an hour for its next attempt keeps nobody waiting.
//!
//! Owns: whose code may run. Does not own: when steps begin and end. That is in the journal, so a replay takes the same
//! turns, whoever has a place.
//!
//! Invariant: while a place is free and somebody is in the line, somebody was woken who takes it, or wakes the next one
//! on leaving.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, task::Waker};

/// The places of one line.
#[derive(Clone)]
pub(crate) struct Line(Rc<RefCell<Places>>);

struct Places {
    free: usize,
    /// Those who wait for a place, in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    /// How many ever came.
    came: u64,
}

impl Line {
    /// A line of this many places.
    pub fn new(places: usize) -> Self {
        Self(Rc::new(RefCell::new(Places { free: places, waiting: BTreeMap::new(), came: 0 })))
    }
}

/// What a step has of its line. Dropped, it gives that back.
pub(super) struct Pass {
    line: Line,
    stand: Stand,
}

enum Stand {
    Outside,
    InLine(u64),
    Inside,
}

impl Pass {
    pub fn new(line: Line) -> Self {
        Self { line, stand: Stand::Outside }
    }

    pub fn is_in_line(&self) -> bool {
        matches!(self.stand, Stand::InLine(_))
    }

    /// Takes a place if there is one, or else waits in the line until it is woken. Says whether it has one.
    pub fn enter(&mut self, waker: &Waker) -> bool {
        let places = &mut *self.line.0.borrow_mut();
        let turn = match self.stand {
            Stand::Inside => return true,
            Stand::InLine(turn) => turn,
            Stand::Outside => {
                places.came += 1;
                places.came
            }
        };
        if places.free == 0 {
            places.waiting.insert(turn, waker.clone());
            self.stand = Stand::InLine(turn);
            return false;
        }
        places.free -= 1;
        places.waiting.remove(&turn);
        self.stand = Stand::Inside;
        true
    }

    /// Steps out of the line, without having had a place.
    pub fn give_way(&mut self) {
        if let Stand::InLine(turn) = self.stand {
            self.line.0.borrow_mut().waiting.remove(&turn);
            self.stand = Stand::Outside;
        }
    }

    /// Gives the place back, and wakes whoever may have it.
    pub fn leave(&mut self) {
        self.give_way();
        let places = &mut *self.line.0.borrow_mut();
        if let Stand::Inside = std::mem::replace(&mut self.stand, Stand::Outside) {
            places.free += 1;
        }
        // All that are free: whoever was woken for one may have gone without having taken it.
        places.waiting.values().take(places.free).for_each(Waker::wake_by_ref);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_leaves_lets_the_next_one_in() {
        let line = Line::new(1);
        let [mut first, mut second, mut third] = [(); 3].map(|()| Pass::new(line.clone()));
        let waker = Waker::noop();
        assert!(first.enter(waker) && first.enter(waker));
        assert!(!second.enter(waker) && !third.enter(waker));
        assert!(second.is_in_line());
        first.leave();
        assert!(second.enter(waker) && !third.enter(waker));
        drop(second);
        assert!(third.enter(waker));
        assert!(!first.enter(waker));
    }

    #[test]
    fn one_that_goes_without_its_place_wakes_the_next() {
        use std::sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        };

        #[derive(Default)]
        struct Woken(AtomicUsize);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let line = Line::new(1);
        let woken = Arc::new(Woken::default());
        let [mut first, mut second, mut third] = [(); 3].map(|()| Pass::new(line.clone()));
        first.enter(Waker::noop());
        second.enter(Waker::noop());
        third.enter(&Waker::from(woken.clone()));
        first.leave();
        second.give_way();
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        drop(second);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
