//! The window: which calls of programs a cell holds at once.
//!
//! An object's outgoing calls share one budget, so a cell calls only so many programs at a time. The window has two
//! parts. A call begins in the *quick* part. After [`SLOW_MS`] it moves to the *slow* part, which has
//! [`SLOW_TIMES`] as many places, so slow steps keep no quick one waiting. It stays where it is while the slow part has
//! no place for it. In either part, a workflow takes at most half of the places that all others leave it: of 12 places,
//! hanging workflows hold 6, 3, 2 and 1. And the last quarter of the quick part is for workflows that have no slow
//! call, so workflows that are known to hang cannot take all of it again.
//!
//! A call that the cell has not heard of for [`SILENCE_MS`] is *silent*: the cell gives up on it, and its place is
//! free. Only time that the cell itself has lived through counts ([`Window::skip`]): when a machine wakes up after an
//! hour, the alarm comes first, and the beats of programs that are all alive wait behind it.
//!
//! A run under suspicion gets the window to itself until it makes progress or ends, for [`EXCLUSIVE_MS`] at the most.
//! After that, others have the window for as long as it was kept from them.
//!
//! Owns: who holds a place, who is next. Rows are the truth about who is due; this is only their order.

use stepwell_protocol::{Epoch, Timestamp};

pub use crate::line::Ready;
use crate::{line::Line, ordered::OrdMap, sorting::sort};

/// How long a run under suspicion keeps all others out, and waits for them: one whose first step is long would stop its
/// cell. Three times as long as a dead cell stays unnoticed, or nobody could be told to have died alone.
pub const EXCLUSIVE_MS: u64 = 15_000;

/// After how long a call counts as slow.
pub const SLOW_MS: u64 = 30_000;

/// How many places the slow part has for each one of the quick part.
pub const SLOW_TIMES: usize = 4;

/// How long a cell waits to hear of a call that it holds: three beats of a program
/// ([`stepwell_protocol::program::BEAT_EVERY_MS`]).
pub const SILENCE_MS: u64 = 60_000;

/// The places of one cell.
#[derive(Clone, Debug)]
pub struct Window {
    size: usize,
    held: OrdMap<(u64, Epoch), Place>,
    line: Line,
    /// Until when nobody may have the window to itself: others have their turn.
    shared_until: Timestamp,
}

#[derive(Clone, Debug)]
struct Place {
    workflow: String,
    since: Timestamp,
    /// When the cell last heard of the call.
    heard: Timestamp,
    /// Whether it is in the slow part.
    slow: bool,
    /// Whether nobody else may enter.
    exclusive: bool,
}

impl Place {
    /// Whether it keeps nobody out any more.
    fn is_old(&self, now: Timestamp) -> bool {
        now >= self.since.plus_millis(EXCLUSIVE_MS)
    }

    fn is_slow(&self, now: Timestamp) -> bool {
        now >= self.since.plus_millis(SLOW_MS)
    }
}

/// How many calls a workflow holds.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    quick: usize,
    slow: usize,
}

impl Window {
    /// A window of this many quick places, at least 1.
    pub fn new(size: usize) -> Self {
        let shared_until = Timestamp::default();
        Self { size: size.max(1), held: OrdMap::new(), line: Line::default(), shared_until }
    }

    /// Whether a run of this workflow could enter at once, ahead of nobody; and if so, whether it would be
    /// alone.
    pub fn offers(&self, now: Timestamp, workflow: &str) -> Option<bool> {
        (self.line.is_empty() && self.fits(now, workflow)).then(|| self.is_quiet(now))
    }

    /// A run enters, as this activation: an earlier call of it may still be under way.
    pub fn enter(&mut self, now: Timestamp, number: u64, epoch: Epoch, workflow: &str, exclusive: bool) {
        if exclusive {
            self.shared_until = now.plus_millis(2 * EXCLUSIVE_MS);
        }
        let place = Place { workflow: workflow.to_owned(), since: now, heard: now, slow: false, exclusive };
        self.held.insert((number, epoch), place);
    }

    /// A run that had the window to itself has made progress: others may enter.
    pub fn clear(&mut self, now: Timestamp, number: u64, epoch: Epoch) {
        if let Some(place) = self.held.get_mut(&(number, epoch))
            && std::mem::take(&mut place.exclusive)
        {
            let kept_out_ms = now.as_millis().saturating_sub(place.since.as_millis());
            self.shared_until = self.shared_until.min(now.plus_millis(kept_out_ms));
        }
    }

    /// A call is over.
    pub fn leave(&mut self, now: Timestamp, number: u64, epoch: Epoch) {
        self.clear(now, number, epoch);
        self.held.remove(&(number, epoch));
    }

    /// A program has said something on this activation's session.
    pub fn hear(&mut self, now: Timestamp, number: u64, epoch: Epoch) {
        if let Some(place) = self.held.get_mut(&(number, epoch)) {
            place.heard = now;
        }
    }

    /// So much time has passed in which the cell could not have heard of anybody: it makes no call silent.
    pub fn skip(&mut self, ms: u64) {
        for place in self.held.values_mut() {
            place.heard = place.heard.plus_millis(ms);
        }
    }

    /// The calls that the cell has not heard of for too long.
    pub fn silent(&self, now: Timestamp) -> Vec<(u64, Epoch)> {
        let silent = self.held.iter().filter(|(_, place)| place.heard.plus_millis(SILENCE_MS) <= now);
        silent.map(|(call, _)| *call).collect()
    }

    /// When the next call will have been silent for too long, if nothing is heard of it.
    pub fn next_silence(&self) -> Option<Timestamp> {
        self.held.values().map(|place| place.heard.plus_millis(SILENCE_MS)).min()
    }

    /// When somebody who waits may enter although no call has ended: a call becomes slow or keeps nobody out any more,
    /// or a run may have the window to itself again.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        if self.line.is_empty() {
            return None;
        }
        let ages = self.held.values().flat_map(|place| {
            [place.since.plus_millis(EXCLUSIVE_MS), place.since.plus_millis(SLOW_MS)].into_iter()
        });
        ages.chain([self.shared_until]).filter(|at| *at > now).min()
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
    pub fn enqueue(&mut self, now: Timestamp, ready: Ready) {
        self.line.push(now, ready);
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
    /// have a place to spare it is one that holds the fewest calls, and of those the one that waits longest,
    /// with its priority.
    pub fn take_next(&mut self, now: Timestamp) -> Option<Ready> {
        self.move_slow(now);
        // After most commits nobody waits.
        if self.line.is_empty() {
            return None;
        }
        let shares = self.shares();
        let held = |workflow: &str| shares.get(workflow).map_or(0, |share| share.quick + share.slow);
        let firsts = self.line.firsts().filter(|(_, workflow)| self.fits(now, workflow));
        let alone = self.line.first_alone().filter(|_| self.shared_until <= now);
        // Whoever wants to be alone must not be overtaken for ever by those who fit beside each other.
        let firsts = firsts.filter(|(turn, _)| alone.is_none_or(|alone| *turn < alone));
        let next = firsts.min_by_key(|(turn, workflow)| (held(workflow), *turn)).map(|(turn, _)| turn);
        let next = next.or_else(|| alone.filter(|_| self.quick() < self.size && self.is_quiet(now)))?;
        self.line.take(next)
    }

    /// Moves calls that have become slow to the slow part, the oldest first, as far as there are places.
    fn move_slow(&mut self, now: Timestamp) {
        let old = self.held.iter().filter(|(_, place)| !place.slow && place.is_slow(now));
        let mut old: Vec<_> = old.map(|(call, place)| (place.since, *call)).collect();
        sort(&mut old);
        for (_, call) in old {
            let slow: usize = self.held.values().filter(|place| place.slow).count();
            let Some(workflow) = self.held.get(&call).map(|place| place.workflow.clone()) else { continue };
            let mine = self.held.values().filter(|place| place.slow && place.workflow == workflow).count();
            if has_share(self.size * SLOW_TIMES, slow, mine)
                && let Some(place) = self.held.get_mut(&call)
            {
                place.slow = true;
            }
        }
    }

    fn shares(&self) -> OrdMap<&str, Share> {
        let mut shares: OrdMap<_, Share> = OrdMap::new();
        for place in self.held.values() {
            let share = shares.get_or_default(place.workflow.as_str());
            let count = if place.slow { &mut share.slow } else { &mut share.quick };
            *count += 1;
        }
        shares
    }

    /// How many quick places are held.
    fn quick(&self) -> usize {
        self.held.values().filter(|place| !place.slow).count()
    }

    /// Whether there is a quick place for a run of this workflow that shares the window.
    fn fits(&self, now: Timestamp, workflow: &str) -> bool {
        let (mut quick, mut mine, mut is_slow, mut is_shut) = (0, 0, false, false);
        for place in self.held.values() {
            let is_mine = place.workflow == workflow;
            quick += usize::from(!place.slow);
            mine += usize::from(is_mine && !place.slow);
            is_slow |= is_mine && place.slow;
            is_shut |= place.exclusive && !place.is_old(now);
        }
        let kept_back = if is_slow { self.size / 4 } else { 0 };
        !is_shut && quick + kept_back < self.size && has_share(self.size, quick, mine)
    }
}

/// Whether a workflow that holds `mine` of the `held` places may have one more: it gets half of what the others leave.
fn has_share(size: usize, held: usize, mine: usize) -> bool {
    let left_by_others = size.saturating_sub(held - mine);
    held < size && mine < left_by_others.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Epoch = Epoch(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn ready(number: u64, workflow: &str) -> Ready {
        Ready { number, workflow: workflow.into(), alone: false, priority: 0 }
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
        window.enqueue(at(0), ready(2, "b"));
        assert_eq!(window.take_next(at(EXCLUSIVE_MS - 1)), None);
        assert_eq!(window.take_next(at(EXCLUSIVE_MS)), Some(ready(2, "b")));
    }

    #[test]
    fn a_suspicious_run_waits_for_one_that_hangs_for_a_while_only() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", false);
        window.enqueue(at(0), Ready { alone: true, ..ready(2, "b") });
        window.enqueue(at(0), ready(3, "c"));
        assert_eq!(window.take_next(at(EXCLUSIVE_MS - 1)), None);
        assert_eq!(window.take_next(at(EXCLUSIVE_MS)).map(|ready| ready.number), Some(2));
        assert!(window.is_quiet(at(EXCLUSIVE_MS)));
    }

    #[test]
    fn a_full_share_is_overtaken_but_not_forgotten() {
        let mut window = Window::new(2);
        window.enter(at(0), 1, ONE, "slow", false);
        window.enqueue(at(0), ready(2, "slow"));
        window.enqueue(at(0), ready(3, "quick"));
        assert_eq!(window.take_next(at(0)), Some(ready(3, "quick")));
        window.enter(at(0), 3, ONE, "quick", false);
        assert_eq!(window.take_next(at(0)), None);
        window.leave(at(0), 1, ONE);
        assert_eq!(window.take_next(at(0)), Some(ready(2, "slow")));
    }

    #[test]
    fn a_suspicious_run_enters_an_empty_window_and_keeps_it_until_cleared() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", false);
        window.enqueue(at(0), Ready { alone: true, ..ready(2, "b") });
        window.enqueue(at(0), ready(3, "c"));
        assert_eq!(window.take_next(at(0)), None, "others must not overtake it for ever");
        window.leave(at(0), 1, ONE);
        assert_eq!(window.take_next(at(0)).map(|ready| ready.number), Some(2));
        window.enter(at(0), 2, ONE, "b", true);
        assert_eq!(window.take_next(at(0)), None);
        window.clear(at(0), 2, ONE);
        assert_eq!(window.take_next(at(0)).map(|ready| ready.number), Some(3));
    }

    #[test]
    fn nobody_enters_ahead_of_those_who_wait() {
        let mut window = Window::new(2);
        window.enqueue(at(0), ready(1, "a"));
        assert_eq!(window.offers(at(0), "b"), None);
    }

    /// Lets as many runs of a workflow enter as may, and gives how many.
    fn fill(window: &mut Window, now: Timestamp, workflow: &str, first: u64) -> usize {
        let mut count = 0;
        while window.offers(now, workflow).is_some() {
            window.enter(now, first + count as u64, ONE, workflow, false);
            count += 1;
        }
        count
    }

    /// Lets everybody enter who may.
    fn let_in(window: &mut Window, now: Timestamp) -> Vec<String> {
        let mut entered = Vec::new();
        while let Some(ready) = window.take_next(now) {
            window.enter(now, ready.number, ONE, &ready.workflow, false);
            entered.push(ready.workflow);
        }
        entered
    }

    #[test]
    fn slow_calls_leave_their_places_to_quick_ones() {
        let mut window = Window::new(4);
        assert_eq!(fill(&mut window, at(0), "slow", 1), 2);
        assert_eq!(fill(&mut window, at(0), "other", 10), 1);
        assert_eq!(fill(&mut window, at(0), "third", 20), 1);
        window.enqueue(at(0), ready(30, "quick"));
        assert_eq!(window.take_next(at(SLOW_MS - 1)), None);
        assert_eq!(window.next_change(at(SLOW_MS - 1)), Some(at(SLOW_MS)));
        assert_eq!(window.take_next(at(SLOW_MS)), Some(ready(30, "quick")));
        assert_eq!(window.held(), 4, "nobody was thrown out");
    }

    #[test]
    fn workflows_that_hang_leave_a_quarter_of_the_quick_places_to_others() {
        let mut window = Window::new(12);
        let names: Vec<_> = (0..12).map(|n| format!("hangs{n}")).collect();
        let (mut number, mut now) = (0, at(0));
        // Again and again each of them brings more runs than there are places, and none of them ever ends.
        for round in 0..40 {
            for name in &names {
                for _ in 0..12 {
                    number += 1;
                    window.enqueue(now, ready(number, name));
                }
            }
            let_in(&mut window, now);
            now = now.plus_millis(SLOW_MS);
            if round > 1 {
                number += 1;
                window.enqueue(now, ready(number, "healthy"));
                window.move_slow(now);
                let before = window.held();
                let entered = let_in(&mut window, now);
                assert!(entered.contains(&"healthy".to_owned()), "round {round}: {entered:?}");
                assert!(before < 12 * (1 + SLOW_TIMES));
                window.leave(now, number, ONE);
            }
        }
        assert!(window.held() > 12 * SLOW_TIMES, "{} calls hang", window.held());
        assert!(window.quick() <= 9, "{} of them in the quick part", window.quick());
    }

    #[test]
    fn a_workflow_with_fewer_calls_is_served_first() {
        let mut window = Window::new(4);
        window.enter(at(0), 1, ONE, "busy", false);
        window.enqueue(at(0), ready(2, "busy"));
        window.enqueue(at(0), ready(3, "idle"));
        assert_eq!(window.take_next(at(0)), Some(ready(3, "idle")));
        assert_eq!(window.take_next(at(0)), Some(ready(2, "busy")));
    }

    #[test]
    fn the_slow_part_is_shared_like_the_quick_one() {
        let mut window = Window::new(4);
        for round in 0..20 {
            let now = at(round * SLOW_MS);
            window.move_slow(now);
            fill(&mut window, now, "hangs", round * 100);
        }
        let slow = |window: &Window, name: &str| {
            window.held.values().filter(|place| place.slow && place.workflow == name).count()
        };
        assert_eq!(slow(&window, "hangs"), 4 * SLOW_TIMES / 2);
        let now = at(20 * SLOW_MS);
        assert!(fill(&mut window, now, "slow", 10_000) > 0);
        window.move_slow(now.plus_millis(SLOW_MS));
        assert!(slow(&window, "slow") > 0);
    }

    #[test]
    fn a_call_is_silent_when_nothing_was_heard_of_it_for_long() {
        let mut window = Window::new(4);
        window.enter(at(0), 1, ONE, "a", false);
        window.enter(at(0), 2, ONE, "b", false);
        window.hear(at(20_000), 1, ONE);
        assert_eq!(window.next_silence(), Some(at(SILENCE_MS)));
        assert_eq!(window.silent(at(SILENCE_MS - 1)), []);
        assert_eq!(window.silent(at(SILENCE_MS)), [(2, ONE)]);
        assert_eq!(window.silent(at(SILENCE_MS + 20_000)), [(1, ONE), (2, ONE)]);
    }

    #[test]
    fn suspicious_runs_take_turns_with_the_others() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", true);
        window.enqueue(at(0), Ready { alone: true, ..ready(2, "b") });
        window.enqueue(at(0), ready(3, "c"));
        // It hangs: after its time the others are let in, for as long as they had to wait.
        assert_eq!(window.take_next(at(EXCLUSIVE_MS - 1)), None);
        assert_eq!(window.take_next(at(EXCLUSIVE_MS)), Some(ready(3, "c")));
        assert_eq!(window.take_next(at(2 * EXCLUSIVE_MS - 1)), None);
        assert_eq!(window.take_next(at(2 * EXCLUSIVE_MS)).map(|ready| ready.number), Some(2));
    }

    #[test]
    fn suspicious_runs_that_make_progress_follow_each_other_closely() {
        let mut window = Window::new(8);
        window.enter(at(0), 1, ONE, "a", true);
        window.enqueue(at(0), Ready { alone: true, ..ready(2, "b") });
        window.clear(at(5), 1, ONE);
        window.leave(at(6), 1, ONE);
        assert_eq!(window.take_next(at(9)), None);
        assert_eq!(window.next_change(at(9)), Some(at(10)));
        assert_eq!(window.take_next(at(10)).map(|ready| ready.number), Some(2));
    }
}
