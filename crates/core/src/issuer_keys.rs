//! The public keys of one issuer, as an isolate has fetched them, and when to fetch them again.
//!
//! Owns: how long keys are used, that only one request fetches at a time, and the pause after a failed fetch. Does not
//! own: the fetch itself. Without the pause, each token that names an unreachable issuer would cost a fetch.

use std::rc::Rc;

use stepwell_protocol::Timestamp;

use crate::token::{Jwks, Token};

/// How long fetched keys are used.
const KEYS_MS: u64 = 600_000;

/// How long a key id that is not among them is not looked for again: anybody can invent one.
const UNKNOWN_KEY_MS: u64 = 30_000;

/// How long a fetch may take. After that another request may begin one.
pub const FETCH_MS: u64 = 6_000;

/// The pause after the first failed fetch. It doubles with each further one.
const PAUSE_MS: u64 = 1_000;

/// The longest pause.
const PAUSE_MS_MAX: u64 = 60_000;

/// What to do about a token.
#[derive(Clone, Debug)]
pub enum Next {
    /// Verify it with these keys.
    Use(Rc<Jwks>),
    /// Fetch the keys, and say how that ended.
    Fetch,
    /// Another request is fetching them: ask again a moment later.
    Wait,
    /// The last fetch failed. Refuse the token for so many seconds.
    Refuse(u32),
}

/// What an isolate knows of one issuer's keys.
#[derive(Clone, Debug, Default)]
pub struct IssuerKeys {
    fetched: Option<(Rc<Jwks>, Timestamp)>,
    fetching_until: Option<Timestamp>,
    failures: u32,
    paused_until: Timestamp,
}

impl IssuerKeys {
    /// What to do about a token of this issuer. After [`Next::Fetch`], [`Self::ended`] has to follow.
    pub fn next(&mut self, now: Timestamp, token: &Token) -> Next {
        if let Some((keys, at)) = &self.fetched {
            let age_ms = now.as_millis().saturating_sub(at.as_millis());
            let is_known = age_ms < KEYS_MS && keys.find(token).is_some();
            // Keys that are not old are used while no others can be had.
            let is_all_there_is = age_ms < KEYS_MS && now < self.paused_until;
            if is_known || is_all_there_is || age_ms < UNKNOWN_KEY_MS {
                return Next::Use(keys.clone());
            }
        }
        if self.fetching_until.is_some_and(|until| now < until) {
            return Next::Wait;
        }
        if now < self.paused_until {
            let left_ms = self.paused_until.as_millis() - now.as_millis();
            return Next::Refuse(u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX));
        }
        self.fetching_until = Some(now.plus_millis(FETCH_MS));
        Next::Fetch
    }

    /// A fetch has ended, with keys or without.
    pub fn ended(&mut self, now: Timestamp, keys: Option<Jwks>) {
        self.fetching_until = None;
        match keys {
            Some(keys) => {
                self.fetched = Some((Rc::new(keys), now));
                (self.failures, self.paused_until) = (0, Timestamp::default());
            }
            None => {
                let pause_ms = PAUSE_MS.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MS_MAX);
                self.failures = self.failures.saturating_add(1);
                self.paused_until = now.plus_millis(pause_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn token(kid: &str) -> Token {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let head = part(&format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#));
        Token::read(&format!("{head}.{}.AAAA", part("{}"))).expect("a token")
    }

    fn keys(kid: &str) -> Jwks {
        let text = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{kid}"}}]}}"#);
        serde_json::from_str(&text).expect("a set of keys")
    }

    #[test]
    fn one_request_fetches_and_the_others_wait_for_it() {
        let mut known = IssuerKeys::default();
        assert!(matches!(known.next(at(0), &token("a")), Next::Fetch));
        assert!(matches!(known.next(at(10), &token("a")), Next::Wait));
        known.ended(at(20), Some(keys("a")));
        assert!(matches!(known.next(at(30), &token("a")), Next::Use(_)));
        assert!(matches!(known.next(at(KEYS_MS + 20), &token("a")), Next::Fetch), "they are old");
    }

    #[test]
    fn a_fetch_whose_request_is_gone_blocks_nobody_for_long() {
        let mut known = IssuerKeys::default();
        assert!(matches!(known.next(at(0), &token("a")), Next::Fetch));
        assert!(matches!(known.next(at(FETCH_MS), &token("a")), Next::Fetch));
    }

    #[test]
    fn after_failures_the_pauses_grow_to_a_minute() {
        let (mut known, mut now, mut pauses) = (IssuerKeys::default(), 0, Vec::new());
        for _ in 0..9 {
            assert!(matches!(known.next(at(now), &token("a")), Next::Fetch));
            known.ended(at(now), None);
            let Next::Refuse(seconds) = known.next(at(now), &token("a")) else { panic!("it fetches again") };
            pauses.push(seconds);
            now += u64::from(seconds) * 1_000;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(matches!(known.next(at(now), &token("a")), Next::Fetch));
        known.ended(at(now), Some(keys("a")));
        assert!(matches!(known.next(at(now), &token("a")), Next::Use(_)));
    }

    #[test]
    fn a_key_id_that_nobody_has_costs_a_fetch_in_thirty_seconds() {
        let mut known = IssuerKeys::default();
        known.ended(at(0), Some(keys("a")));
        assert!(matches!(known.next(at(29_999), &token("b")), Next::Use(_)));
        assert!(matches!(known.next(at(30_000), &token("b")), Next::Fetch), "the issuer may have a new key");
        known.ended(at(30_000), None);
        assert!(
            matches!(known.next(at(30_001), &token("b")), Next::Use(_)),
            "it is refused with those there are"
        );
        assert!(matches!(known.next(at(30_001), &token("a")), Next::Use(_)));
    }
}
