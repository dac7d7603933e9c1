//! How long to wait before the next attempt of a step.

use stepwell_protocol::{Op, program::Retry};

/// The delay after a failed attempt (from 1). The same seed, step and attempt always give the same one.
pub fn delay_ms(retry: &Retry, seed: u64, op: &Op, attempt: u32) -> u64 {
    let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = as_f64(retry.initial_ms) * at_least(retry.factor, 1.0).powi(exponent);
    let capped = grown.min(as_f64(retry.max_ms));
    let jitter = at_least(retry.jitter, 0.0).min(1.0);
    // Jitter only ever takes away, so that the policy's maximum is one.
    whole(capped * (1.0 - jitter * chance(seed, op, attempt)))
}

/// A number from 0 to 1 that depends on nothing but its arguments.
pub(super) fn fraction(seed: u64, n: u32) -> f64 {
    as_f64(mix(seed ^ u64::from(n).rotate_left(32)) >> 11) / as_f64(1 << 53)
}

/// A part of a time.
pub(super) fn scaled(ms: u64, part: f64) -> u64 {
    whole(as_f64(ms) * part)
}

/// A policy comes from outside: no number at all counts as the least that makes sense.
fn at_least(value: f64, least: f64) -> f64 {
    if value.is_nan() { least } else { value.max(least) }
}

#[expect(clippy::cast_precision_loss, reason = "a delay of 2^53 ms is 285,000 years")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer saturates, and a delay is never negative"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// A number from 0 to 1 that depends on nothing but its arguments.
fn chance(seed: u64, op: &Op, attempt: u32) -> f64 {
    let mut state = seed ^ u64::from(attempt).rotate_left(32) ^ u64::from(op.occurrence);
    for byte in op.name.bytes() {
        state = mix(state ^ u64::from(byte));
    }
    as_f64(mix(state) >> 11) / as_f64(1 << 53)
}

/// One round of `SplitMix64`.
pub(super) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepwell_protocol::OpKind;

    use super::*;

    fn step(name: &str) -> Op {
        Op { kind: OpKind::Step, name: name.into(), occurrence: 0 }
    }

    #[test]
    fn delays_grow_by_the_factor_up_to_the_maximum() {
        let retry = Retry { attempts: 9, initial_ms: 100, factor: 3.0, max_ms: 1_000, jitter: 0.0 };
        let delays: Vec<_> = (1..=4).map(|n| delay_ms(&retry, 1, &step("a"), n)).collect();
        assert_eq!(delays, [100, 300, 900, 1_000]);
    }

    #[test]
    fn jitter_differs_between_steps_and_attempts_but_not_between_replays() {
        let retry = Retry { attempts: 9, initial_ms: 1 << 20, factor: 1.0, max_ms: 1 << 20, jitter: 1.0 };
        let first = delay_ms(&retry, 7, &step("a"), 1);
        assert_eq!(first, delay_ms(&retry, 7, &step("a"), 1));
        assert_ne!(first, delay_ms(&retry, 7, &step("a"), 2));
        assert_ne!(first, delay_ms(&retry, 7, &step("b"), 1));
        assert_ne!(first, delay_ms(&retry, 8, &step("a"), 1));
    }

    proptest! {
        #[test]
        fn no_policy_gives_a_delay_above_its_maximum(
            initial_ms: u64, factor: f64, max_ms in 0..1_u64 << 50, jitter: f64, seed: u64, attempt: u32,
        ) {
            let retry = Retry { attempts: 3, initial_ms, factor, max_ms, jitter };
            prop_assert!(delay_ms(&retry, seed, &step("a"), attempt) <= max_ms);
        }
    }
}
