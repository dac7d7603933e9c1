//! Throttles callers who try credentials that are not good.
//!
//! Owns: how many failures an address may have, and for how long it is refused after that. The memory is one isolate's:
//! an attacker who reaches many isolates gets the allowance of each. So it slows guessing down; the length of the keys
//! is what makes guessing hopeless.

use std::collections::VecDeque;

use stepwell_protocol::Timestamp;

use crate::{access::Bucket, ordered::OrdMap};

/// How many callers are remembered. The oldest goes first.
const CALLERS_MAX: usize = 4_096;

/// Failures by caller: see [`network`].
#[derive(Clone, Debug)]
pub struct Guesses {
    /// Failures a second that a caller may have.
    per_second: u64,
    /// In how much time a caller may have had as many at once.
    burst_ms: u64,
    failures: OrdMap<String, Bucket>,
    order: VecDeque<String>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self::new()
    }
}

impl Guesses {
    /// Nobody has failed yet. A caller may fail ten times a second, and twice as often at once.
    pub const fn new() -> Self {
        Self { per_second: 10, burst_ms: 2_000, failures: OrdMap::new(), order: VecDeque::new() }
    }

    /// The same for callers who are programs, and have secrets that nobody types: once a second, and as often as that makes
    /// in a minute at once. Such a one tries again and again while its secret is wrong, but not as fast as that.
    pub const fn of_programs() -> Self {
        Self { per_second: 1, burst_ms: 60_000, failures: OrdMap::new(), order: VecDeque::new() }
    }

    /// Whether nobody has failed yet.
    pub fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    /// Refuses a caller who has failed too often; says after how many seconds to try again.
    pub fn check(&mut self, now: Timestamp, caller: &str) -> Result<(), u32> {
        match self.failures.get_mut(caller) {
            Some(bucket) => bucket.take_of(now, self.per_second, self.burst_ms, 0),
            None => Ok(()),
        }
    }

    /// Counts a credential that is known not to be good; or refuses even to say so, after how many seconds to try again.
    pub fn tried(&mut self, now: Timestamp, caller: &str) -> Result<(), u32> {
        self.check(now, caller)?;
        self.failed(now, caller);
        Ok(())
    }

    /// Counts a credential that was not good.
    pub fn failed(&mut self, now: Timestamp, caller: &str) {
        if !self.failures.contains_key(caller) {
            if self.order.len() >= CALLERS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.failures.remove(&oldest);
            }
            self.order.push_back(caller.to_owned());
        }
        let bucket = self.failures.get_or_default(caller.to_owned());
        // A caller who is refused already owes no more.
        let _ = bucket.take_of(now, self.per_second, self.burst_ms, 1);
    }
}

/// What one caller has, by the address of a request: an IPv4 address, or the first 64 bits of an IPv6 address.
pub fn network(address: &str) -> String {
    match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(v4)) => v4.to_string(),
        Ok(std::net::IpAddr::V6(v6)) => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        // Cloudflare sends nothing else; others share one allowance.
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    #[test]
    fn an_address_that_keeps_failing_is_refused_until_it_stops() {
        let mut guesses = Guesses::new();
        let mut failed = 0;
        while guesses.check(at(0), "192.0.2.1").is_ok() {
            guesses.failed(at(0), "192.0.2.1");
            failed += 1;
            assert!(failed < 100, "nothing stops it");
        }
        assert_eq!(failed, 21);
        assert_eq!(guesses.check(at(0), "192.0.2.1"), Err(1));
        assert_eq!(guesses.check(at(0), "192.0.2.2"), Ok(()), "another address");
        assert_eq!(guesses.check(at(1_100), "192.0.2.1"), Ok(()));
    }

    #[test]
    fn what_is_not_good_is_told_so_until_there_is_too_much_of_it() {
        let mut guesses = Guesses::new();
        let told = (0..100).filter(|_| guesses.tried(at(0), "192.0.2.1").is_ok()).count();
        assert_eq!(told, 21);
        assert_eq!(guesses.tried(at(1_100), "192.0.2.1"), Ok(()));
    }

    #[test]
    fn over_a_minute_an_address_gets_the_rate_and_no_more() {
        let (mut guesses, mut tried) = (Guesses::new(), 0);
        for ms in (0..60_000).step_by(10) {
            if guesses.check(at(ms), "2001:db8::1").is_ok() {
                guesses.failed(at(ms), "2001:db8::1");
                tried += 1;
            }
        }
        assert!((600..=630).contains(&tried), "{tried} guesses in a minute");
    }

    #[test]
    fn a_program_with_a_wrong_secret_is_heard_for_longer_and_then_once_a_second() {
        let mut guesses = Guesses::of_programs();
        let told = (0..100).filter(|_| guesses.tried(at(0), "192.0.2.1 a").is_ok()).count();
        assert_eq!(told, 61);
        assert_eq!(guesses.check(at(0), "192.0.2.1 a"), Err(1));
        assert_eq!(guesses.check(at(0), "192.0.2.1 b"), Ok(()), "it delivers elsewhere, too");
        let tried = (0..60_000).step_by(100).filter(|&ms| guesses.tried(at(ms), "192.0.2.1 a").is_ok());
        assert!((59..=61).contains(&tried.count()));
    }

    #[test]
    fn one_network_of_ipv6_is_one_caller() {
        let mut guesses = Guesses::new();
        for n in 0..30 {
            guesses.failed(at(0), &network(&format!("2001:db8:1:2::{n:x}")));
        }
        assert!(guesses.check(at(0), &network("2001:db8:1:2:ffff::1")).is_err());
        assert!(guesses.check(at(0), &network("2001:db8:1:3::1")).is_ok());
    }

    #[test]
    fn a_flood_of_addresses_takes_bounded_memory() {
        let mut guesses = Guesses::new();
        for n in 0..20_000_u32 {
            guesses.failed(at(0), &std::net::Ipv4Addr::from(n).to_string());
        }
        assert!(guesses.failures.len() == CALLERS_MAX && guesses.order.len() == CALLERS_MAX);
    }
}
