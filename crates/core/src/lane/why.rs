//! Why somebody waits in a lane, in a sentence.

use stepwell_protocol::{
    RunId, Timestamp,
    lane::{Limit, SetLimit, shared_name},
    span::in_words,
};

use super::{Lane, Rows, STOPPED_LINE_MAX};
use crate::{object::Fault, schedule::civil::shown};

/// A limit of this lane in words.
pub fn limit_in_words(limit: &Limit, lane: &str) -> String {
    let of = if !limit.by.is_empty() {
        format!("those with {} = '{}'", limit.by, limit.key)
    } else if shared_name(lane) == lane {
        format!("all runs of '{lane}'")
    } else {
        format!("all of the lane '{}'", shared_name(lane))
    };
    match limit.per_ms {
        Some(per_ms) => format!("{} in {} for {of}", limit.max, in_words(per_ms)),
        None => format!("{} at once for {of}", limit.max),
    }
}

impl Lane {
    /// Why a run waits here: the limit that it waits for, with the number in effect, and how many wait before it. Nothing,
    /// if it does not wait.
    pub fn why<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        run: &RunId,
        lane: &str,
    ) -> Result<Option<String>, Fault<R::Error>> {
        let known = self.known(rows, clock)?;
        // Its own ticket or, in a lane of steps, the first of those that wait.
        let of_run = known.by_holder.range((run.clone(), 0)..=(run.clone(), u32::MAX));
        let mut entries = of_run.filter_map(|(_, number)| Some((number, known.waiters.get(number)?)));
        let mut first = entries.next();
        if let Some(waits) = entries.find(|(_, entry)| !entry.waiter.is_in)
            && first.is_some_and(|(_, first)| first.waiter.is_in)
        {
            first = Some(waits);
        }
        let Some((number, entry)) = first else {
            let because = format!(
                "It waits to be let in: so many wait already that it is not in line yet, and asks again every few seconds. \
                 A key that is stopped has up to {STOPPED_LINE_MAX} runs in line."
            );
            return Ok(Some(because));
        };
        let Some(limit) = entry.waiter.limits.get(entry.passed).filter(|_| !entry.waiter.is_in) else {
            return Ok(None);
        };
        let in_effect = Limit { max: known.gates.max(limit), ..limit.clone() };
        let who = entry.waiter.step.as_ref().map_or("It".into(), |step| format!("Its step '{step}'"));
        let mut because = format!("{who} waits to be let in: {}", limit_in_words(&in_effect, lane));
        let is_it = |set: &&SetLimit| {
            (&set.by, set.per_ms) == (&limit.by, limit.per_ms)
                && set.key.as_ref().is_none_or(|key| *key == limit.key)
        };
        // What is set for one key goes before what is set for all.
        let set = known.set.iter().filter(is_it).max_by_key(|set| set.key.is_some());
        if let Some(SetLimit { set_by, set_at, .. }) = set {
            because = format!("{because}, as {set_by} has set it at {}", shown(*set_at));
        }
        let before = known.gates.before(limit, entry.turn(*number));
        Ok(Some(match before {
            0 => format!("{because}. It is the next one."),
            1 => format!("{because}. One waits before it."),
            more => format!("{because}. {more} wait before it."),
        }))
    }
}
