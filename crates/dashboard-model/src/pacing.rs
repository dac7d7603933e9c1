//! How far apart requests for the same thing are: the slower the answers, the rarer the questions.

use std::ops::RangeInclusive;

/// The time from one request to the next: so many times what the last one took.
const SHARE: u64 = 3;

/// Its bounds.
pub const APART_MS: RangeInclusive<u64> = 150..=5_000;

/// When the last request was made, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    began_ms: u64,
    took_ms: u64,
}

impl Pace {
    /// A request was answered.
    pub fn took(&mut self, began_ms: u64, now_ms: u64) {
        *self = Self { began_ms, took_ms: now_ms.saturating_sub(began_ms) };
    }

    /// A request has failed: the next one waits as long as any.
    pub fn failed(&mut self, began_ms: u64) {
        *self = Self { began_ms, took_ms: *APART_MS.end() };
    }

    /// How long to wait before the next request.
    pub fn pause_ms(&self, now_ms: u64) -> u64 {
        let apart = self.took_ms.saturating_mul(SHARE).clamp(*APART_MS.start(), *APART_MS.end());
        // A clock that was set back must not stop the page.
        self.began_ms.saturating_add(apart).saturating_sub(now_ms).min(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_answers_make_requests_rare() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause_ms(1_000), 0);
        pace.took(1_000, 1_010);
        assert_eq!(pace.pause_ms(1_010), 140);
        pace.took(1_000, 1_400);
        assert_eq!(pace.pause_ms(1_400), 800);
        assert_eq!(pace.pause_ms(0), 1_200);
        pace.took(1_000, 61_000);
        assert_eq!(pace.pause_ms(61_000), 0);
        pace.failed(61_000);
        assert_eq!(pace.pause_ms(61_000), 5_000);
    }
}
