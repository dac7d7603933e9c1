//! Limits in words: for how many, how often, and for whom.

use stepwell_protocol::{
    lane::{Limit, LimitSpec, SetLimit},
    span,
};

/// How many at once, or within a time.
fn how_many(max: u64, per_ms: Option<u64>) -> String {
    match per_ms {
        Some(ms) => format!("{max} per {}", span::in_words(ms)),
        None => format!("{max} at once"),
    }
}

/// A limit as the code declares it.
pub fn declared(limit: &LimitSpec) -> String {
    let most = match &limit.max_by {
        Some(expression) => format!("{expression} (or {})", how_many(u64::from(limit.max), limit.per_ms)),
        None => how_many(u64::from(limit.max), limit.per_ms),
    };
    let each = limit.key.as_ref().map(|key| format!(" for each {key}")).unwrap_or_default();
    let drop = if limit.drop { "; starts beyond it are refused" } else { "" };
    format!("{most}{each}{drop}")
}

/// A limit that somebody is under.
pub fn in_effect(limit: &Limit) -> String {
    let most = how_many(u64::from(limit.max), limit.per_ms);
    if limit.by.is_empty() && limit.key.is_empty() {
        return format!("{most} in all");
    }
    let by = if limit.by.is_empty() { "key" } else { &limit.by };
    format!("{most} with {by} = '{}'", limit.key)
}

/// For whom a limit was set.
pub fn set_for(limit: &SetLimit) -> String {
    match (&limit.key, limit.by.as_str()) {
        (_, "") => "all".into(),
        (None, by) => format!("each {by}"),
        (Some(key), by) => format!("{by} = '{key}'"),
    }
}

/// What a limit was set to.
pub fn set_to(limit: &SetLimit) -> String {
    how_many(u64::from(limit.max), limit.per_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_how_many_and_for_whom() {
        let limit = |by: &str, key: &str, per_ms| Limit {
            by: by.into(),
            key: key.into(),
            max: 2,
            per_ms,
            is_own: false,
        };
        assert_eq!(in_effect(&limit("", "", None)), "2 at once in all");
        assert_eq!(
            in_effect(&limit("input.customer", "acme", Some(60_000))),
            "2 per 1 minute with input.customer = 'acme'"
        );
        let spec = LimitSpec {
            max: 5,
            max_by: Some("input.seats".into()),
            key: Some("input.customer".into()),
            per_ms: None,
            drop: true,
        };
        assert_eq!(
            declared(&spec),
            "input.seats (or 5 at once) for each input.customer; starts beyond it are refused"
        );
    }
}
