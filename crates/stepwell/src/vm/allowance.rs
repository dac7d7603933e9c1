//! How much an activation may still do: the platform cuts off an invocation that makes too many calls, and with
//! it all that is under way.
//!
//! Owns: the count of calls. A step that begins holds back the calls that it will need, so that whatever is under
//! way can be reported. Does not own: which steps those are ([`super::State`]).

use stepwell_protocol::{
    Timestamp,
    program::{Budget, STEP_TIMEOUT_MS},
};

/// What is left for the run's own work at the least, however many pages its replay takes: one part of so many.
const LEAST_SHARE: u32 = 4;

/// How much an activation may still do.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance {
    budget: Option<Budget>,
    /// When the activation began, by the engine's clock.
    began: Timestamp,
    /// Calls for the journal's pages.
    pages: u32,
    /// All other calls.
    calls: u32,
    /// Whether anything was added to the journal in this activation.
    has_moved: bool,
    /// Whether the last word was spoken.
    is_closed: bool,
}

impl Allowance {
    pub fn new(budget: Option<Budget>, began: Timestamp) -> Self {
        Self { budget, began, ..Self::default() }
    }

    /// How long one attempt of a step may take that says nothing about it.
    pub fn step_timeout_ms(&self) -> u64 {
        self.budget.and_then(|budget| budget.step_timeout_ms).unwrap_or(STEP_TIMEOUT_MS)
    }

    pub fn count_page(&mut self) {
        self.pages += 1;
    }

    pub fn count_call(&mut self) {
        self.calls += 1;
    }

    /// The journal has grown: another activation would begin further on.
    pub fn note_progress(&mut self) {
        self.has_moved = true;
    }

    /// The last word is spoken: nothing begins after it.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether a step may begin that needs so many calls, when so many others are held back.
    pub fn covers(&self, held_back: usize, needs: u32, clock: Timestamp) -> bool {
        if self.is_closed {
            return false;
        }
        let Some(Budget { commits, ms, .. }) = self.budget else { return true };
        // Whatever the budget, an activation does something, or the next one would do as little.
        if !self.has_moved && held_back == 0 {
            return true;
        }
        let is_late = ms.is_some_and(|ms| clock >= self.began.plus_millis(ms));
        let limit = commits.saturating_sub(self.pages).max(commits.div_ceil(LEAST_SHARE));
        let held_back = u32::try_from(held_back).unwrap_or(u32::MAX);
        // The last call says that there is more to do.
        let planned = self.calls.saturating_add(held_back).saturating_add(needs).saturating_add(1);
        !is_late && planned <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    fn moved(commits: u32, ms: Option<u64>) -> Allowance {
        let mut allowance = Allowance::new(Some(Budget { commits, ms, step_timeout_ms: None }), now());
        allowance.note_progress();
        allowance
    }

    #[test]
    fn without_a_budget_everything_is_covered() {
        let mut allowance = Allowance::new(None, now());
        (0..100_000).for_each(|_| allowance.count_call());
        assert!(allowance.covers(1_000, 2, now()));
    }

    #[test]
    fn results_and_the_last_word_are_held_back() {
        let mut allowance = moved(10, None);
        assert!(allowance.covers(8, 1, now()));
        assert!(!allowance.covers(9, 1, now()));
        assert!(!allowance.covers(8, 2, now()));
        allowance.count_call();
        assert!(!allowance.covers(8, 1, now()));
    }

    #[test]
    fn the_first_step_is_always_covered_and_the_next_one_is_not() {
        let mut allowance =
            Allowance::new(Some(Budget { commits: 0, ms: Some(0), step_timeout_ms: None }), now());
        assert!(allowance.covers(0, 2, now()));
        assert!(!allowance.covers(1, 1, now()), "one at a time");
        allowance.note_progress();
        assert!(!allowance.covers(0, 1, now()));
    }

    #[test]
    fn pages_count_and_leave_a_quarter() {
        let mut allowance = moved(40, None);
        (0..20).for_each(|_| allowance.count_page());
        assert!(allowance.covers(18, 1, now()));
        assert!(!allowance.covers(19, 1, now()));
        (0..80).for_each(|_| allowance.count_page());
        assert!(allowance.covers(8, 1, now()), "a long replay leaves ten calls");
        assert!(!allowance.covers(9, 1, now()));
    }

    #[test]
    fn nothing_begins_after_the_last_word() {
        let mut allowance = moved(10, None);
        allowance.close();
        assert!(!allowance.covers(0, 1, now()));
    }

    #[test]
    fn time_counts_too() {
        let allowance = moved(1_000, Some(500));
        assert!(allowance.covers(0, 1, now().plus_millis(499)));
        assert!(!allowance.covers(0, 1, now().plus_millis(500)));
    }
}
