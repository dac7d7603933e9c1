//! Keeps callers who go on asking beyond a rate from holding up others.
//!
//! Owns: when a caller who is refused again and again is refused without asking anybody, and how evenly what gets through
//! is spread over time. Does not own: the rate. Whoever keeps it says what was refused, and what was not.
//!
//! Without the second part, a caller at ten times its rate gets through in bursts, each as long as it takes until the first
//! refusal is known: ten starts at once, ten times a second, and everybody else waits behind them.

use stepwell_protocol::Timestamp;

use crate::{access::Bucket, guesses::Guesses, ordered::OrdMap};

/// For how long after its last refusal a caller is paced.
const PRESSED_MS: u64 = 2_000;

/// The slowest pace, a second: a caller that was quiet for a moment must not be slowed down to nothing.
const SLOWEST: u64 = 50;

/// How many callers are paced. If there are more, all begin anew.
const PACED_MAX: usize = 256;

/// Callers who were refused.
#[derive(Clone, Debug)]
pub struct Pressing {
    refused: Guesses,
    paces: OrdMap<String, Pace>,
}

/// How fast one of them gets through.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    refused_at: Timestamp,
    /// The present second.
    second: u64,
    /// What was not refused in it.
    passed: u64,
    /// Whether that is seen from its beginning.
    is_whole: bool,
    /// About as much passed in the second before, once that was seen from its beginning.
    before: Option<u64>,
    bucket: Bucket,
}

impl Default for Pressing {
    fn default() -> Self {
        Self::new()
    }
}

impl Pressing {
    /// Nobody was refused yet.
    pub const fn new() -> Self {
        Self { refused: Guesses::new(), paces: OrdMap::new() }
    }

    /// Whether nobody was refused yet.
    pub fn is_empty(&self) -> bool {
        self.refused.is_empty()
    }

    /// Refuses a caller who was refused too often, or who has just got through; says after how many seconds to try again.
    pub fn check(&mut self, now: Timestamp, caller: &str) -> Result<(), u32> {
        self.refused.check(now, caller)?;
        let Some(pace) = self.paces.get_mut(caller) else { return Ok(()) };
        if pace.refused_at.plus_millis(PRESSED_MS) <= now {
            self.paces.remove(caller);
            return Ok(());
        }
        pace.take(now)
    }

    /// Counts a refusal by whoever keeps the rate.
    pub fn refused(&mut self, now: Timestamp, caller: &str) {
        self.refused.failed(now, caller);
        if !self.paces.contains_key(caller) && self.paces.len() >= PACED_MAX {
            self.paces.clear();
        }
        let new = || Pace { second: second_of(now), ..Pace::default() };
        self.paces.get_or_insert_with(caller.to_owned(), new).refused_at = now;
    }

    /// Counts what was not refused.
    pub fn passed(&mut self, now: Timestamp, caller: &str) {
        if let Some(pace) = self.paces.get_mut(caller) {
            pace.turn_to(now);
            pace.passed += 1;
        }
    }
}

impl Pace {
    /// Lets through a little more than what was not refused of late, one after the other: so it finds out when the rate
    /// allows more. In the first second nobody knows what it allows.
    fn take(&mut self, now: Timestamp) -> Result<(), u32> {
        self.turn_to(now);
        match self.before {
            Some(before) => {
                let known = before.max(self.passed);
                let per_second = known.saturating_add(known / 4).max(SLOWEST);
                self.bucket.take_of(now, per_second, 0, 1)
            }
            None => Ok(()),
        }
    }

    fn turn_to(&mut self, now: Timestamp) {
        let second = second_of(now);
        if second <= self.second {
            return;
        }
        let is_next = second == self.second + 1;
        // A pause after a refusal says little about the rate: what was known of it fades.
        let faded = self.before.map_or(0, |before| before - before / 4);
        self.before = (is_next && self.is_whole).then(|| self.passed.max(faded));
        self.is_whole = is_next;
        (self.second, self.passed) = (second, 0);
    }
}

fn second_of(now: Timestamp) -> u64 {
    now.as_millis() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    /// Asks so often a second for some time, of whoever allows so much a second. Answers come 10 ms later. Gives when
    /// something got through, and how much was refused by whoever keeps the rate.
    fn press(pressing: &mut Pressing, offered: u64, allowed: u64, seconds: u64) -> (Vec<u64>, u64) {
        let mut rate = Bucket::default();
        let (mut got_through, mut refused, mut answers) = (Vec::new(), 0, Vec::new());
        for ask in 0..offered * seconds {
            let ms = ask * 1_000 / offered;
            answers.retain(|&(due, passes)| {
                if due > ms {
                    return true;
                }
                if passes {
                    pressing.passed(at(due), "key");
                } else {
                    pressing.refused(at(due), "key");
                }
                false
            });
            if pressing.check(at(ms), "key").is_ok() {
                let passes = rate.take(at(ms), allowed, 1).is_ok();
                answers.push((ms + 10, passes));
                if passes { got_through.push(ms) } else { refused += 1 }
            }
        }
        (got_through, refused)
    }

    #[test]
    fn what_the_rate_allows_gets_through_evenly_and_few_others_are_asked_about() {
        let mut pressing = Pressing::new();
        let (got_through, refused) = press(&mut pressing, 500, 50, 20);
        let late: Vec<_> = got_through.iter().filter(|ms| **ms >= 5_000).copied().collect();
        assert!((600..=765).contains(&late.len()), "{} of 750 got through", late.len());
        assert!(refused <= 300, "{refused} were asked about for nothing");
        let in_a_row = |ms: u64| late.iter().filter(|it| (ms..ms + 20).contains(*it)).count();
        let most = late.iter().map(|&ms| in_a_row(ms)).max();
        assert!(most <= Some(4), "{most:?} within 20 ms");
    }

    #[test]
    fn a_high_rate_is_not_slowed_down() {
        let (got_through, _) = press(&mut Pressing::new(), 2_000, 1_000, 10);
        assert!(got_through.len() >= 8_000, "{} of 10,000", got_through.len());
    }

    #[test]
    fn a_high_rate_is_not_slowed_down_by_a_part_of_a_second_or_a_pause() {
        let mut pressing = Pressing::new();
        // Refused for the first time at the end of a second.
        pressing.refused(at(990), "key");
        pressing.passed(at(995), "key");
        let got_through = (1_000..1_100).filter(|ms| pressing.check(at(*ms), "key").is_ok()).count();
        assert_eq!(got_through, 100);
        for ms in 2_000..4_000 {
            pressing.passed(at(ms), "key");
        }
        pressing.refused(at(3_999), "key");
        for ms in [4_400, 5_400] {
            // It has heard of that, and waits for a while.
            let got_through = (ms..ms + 100).filter(|ms| pressing.check(at(*ms), "key").is_ok()).count();
            assert!(got_through >= 45, "{got_through} of 100 got through at {ms}");
        }
    }

    #[test]
    fn whoever_asks_less_is_asked_about_as_before() {
        let mut pressing = Pressing::new();
        press(&mut pressing, 500, 50, 5);
        let quiet = (0..20).filter(|it| pressing.check(at(8_000 + it), "key").is_ok()).count();
        assert_eq!(quiet, 20, "nothing was refused for two seconds");
        assert_eq!(pressing.check(at(8_000), "another"), Ok(()));
    }

    #[test]
    fn the_callers_in_memory_are_bounded() {
        let mut pressing = Pressing::new();
        for caller in 0..10 * PACED_MAX {
            pressing.refused(at(0), &caller.to_string());
        }
        assert!(pressing.paces.len() <= PACED_MAX);
    }
}
