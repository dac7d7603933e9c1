//! From what a workflow declares and a run's input to the limits that the run is under.

use serde_json::Value as Json;
use stepwell_protocol::{
    Code, Payload, Place, Problem, RunId,
    lane::{
        BATCH_MAX, Flow, GATHER_MS, Hold, KEY_LENGTH_MAX, LANE_LENGTH_MAX, LIMITS_MAX, Limit, LimitChange,
        LimitSpec, PRIORITY_MAX, RATE_MAX, RATE_MS, StartRule,
    },
};

use crate::{expression::Expression, ordered::OrdMap, topic::is_too_much};

/// What expressions are over.
const NAMES: [&str; 1] = ["input"];

/// Within which limits a run is let in, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Let {
    /// The limits, in the order in which they are passed.
    pub limits: Vec<Limit>,
    /// Its priority.
    pub priority: i8,
    /// Whose run it is, if they take turns.
    pub share: Option<String>,
    /// For how long it counts.
    pub hold: Hold,
}

/// Refuses what no workflow can declare.
pub fn check_flow(workflow: &str, flow: &Flow) -> Result<(), Problem> {
    let refused = |what: String| {
        Err(Problem::new(Code::InvalidRequest, format!("The limits of the workflow '{workflow}': {what}")))
    };
    let has_none = flow.limits.is_empty() && flow.starts.is_none();
    if has_none || flow.limits.len() > LIMITS_MAX {
        return refused(format!("there are {}; a workflow has 1 to {LIMITS_MAX}.", flow.limits.len()));
    }
    if flow.limits.iter().any(|limit| limit.max == 0) {
        return refused("one is 0, and no run could ever go to work. To stop a workflow, pause it.".into());
    }
    for LimitSpec { max, per_ms, .. } in &flow.limits {
        if per_ms.is_some_and(|per_ms| !RATE_MS.contains(&per_ms) || *max > RATE_MAX) {
            return refused(format!("a rate is 1 to {RATE_MAX} runs in 10 milliseconds to 1 day."));
        }
    }
    if flow.limits.iter().any(|limit| limit.drop && limit.per_ms.is_none()) {
        return refused("only a rate drops starts; runs beyond a concurrency limit wait.".into());
    }
    if flow.lane.as_ref().is_some_and(|lane| lane.is_empty() || lane.len() > LANE_LENGTH_MAX) {
        return refused(format!("the name of a lane has 1 to {LANE_LENGTH_MAX} bytes."));
    }
    if flow.lane.is_some() && flow.limits.is_empty() {
        return refused("a lane needs a limit.".into());
    }
    let waits = |wait_ms: &u64| !GATHER_MS.contains(wait_ms);
    match &flow.starts {
        Some(StartRule::Batch { max, .. }) if !(2..=BATCH_MAX).contains(max) => {
            return refused(format!("a batch is 2 to {BATCH_MAX} starts."));
        }
        Some(StartRule::Batch { wait_ms, .. } | StartRule::Debounce { wait_ms, .. }) if waits(wait_ms) => {
            return refused("starts are waited for from 100 milliseconds to 7 days.".into());
        }
        Some(StartRule::Debounce { max_ms: Some(max_ms), wait_ms, leading, .. })
            if *leading || max_ms < wait_ms || waits(max_ms) =>
        {
            return refused(
                "the longest wait of a debounce is at least its wait and at most 7 days; with `leading` there is none."
                    .into(),
            );
        }
        Some(_) | None => {}
    }
    let kinds = flow.limits.iter().map(|limit| (limit.per_ms, limit.key.as_deref()));
    for (place, kind) in kinds.clone().enumerate() {
        if kinds.clone().take(place).any(|other| other == kind) {
            let kind_of = if kind.0.is_some() { "rates of the same time" } else { "concurrency limits" };
            return refused(format!("two {kind_of} have the same key, {}.", kind.1.unwrap_or("none")));
        }
    }
    let keys = kinds.filter_map(|(_, key)| key).chain(flow.starts.as_ref().and_then(StartRule::key));
    let numbers = flow.limits.iter().filter_map(|limit| limit.max_by.as_deref());
    let expressions = keys.chain(numbers).chain(flow.priority.as_deref()).chain(flow.fair_by.as_deref());
    for text in expressions {
        if let Err(bad) = Expression::parse(text, &NAMES) {
            return refused(format!("'{text}' is no expression over `input`: {bad}."));
        }
    }
    Ok(())
}

/// Refuses workflows that share a lane and do not agree on a limit of it: the run that was started last would decide.
pub fn check_shared<'a>(flows: impl Iterator<Item = (&'a str, &'a Flow)>) -> Result<(), Problem> {
    let mut known = OrdMap::new();
    for (workflow, flow) in flows {
        let Some(lane) = flow.lane.as_deref() else { continue };
        // One with more of them is refused for that.
        for limit in flow.limits.iter().take(LIMITS_MAX) {
            let says = (limit.max, limit.max_by.as_deref());
            let limit = (lane, limit.per_ms, limit.key.as_deref());
            let Some((other, theirs)) = known.get(&limit).copied() else {
                known.insert(limit, (workflow, says));
                continue;
            };
            if theirs != says {
                let key = limit.2.map_or("without a key".into(), |key| format!("with the key {key}"));
                let detail = format!(
                    "workflows '{other}' and '{workflow}' share the lane '{lane}' and declare different numbers for its limit {key}"
                );
                return Err(Problem::new(Code::InvalidRequest, detail));
            }
        }
    }
    Ok(())
}

/// A change of a limit as its lane knows that limit. Refuses one of a limit that the workflow does not have.
pub fn check_change(
    workflow: &str,
    flow: Option<&Flow>,
    change: LimitChange,
) -> Result<LimitChange, Problem> {
    let refused = |what: String| Err(Problem::new(Code::InvalidRequest, what));
    let limits = flow.map(|flow| &flow.limits[..]).unwrap_or_default();
    let LimitChange { by, key, per_ms, max } = change;
    let is_it = |limit: &&LimitSpec| limit.key.as_deref().unwrap_or_default() == by && limit.per_ms == per_ms;
    // What has left the code can still be reset.
    if max.is_some() && !limits.iter().any(|limit| is_it(&limit)) {
        let named = |limit: &LimitSpec| {
            let by = limit.key.as_ref().map_or("without `by`".into(), |key| format!("`by` {key}"));
            limit.per_ms.map_or(by.clone(), |per_ms| format!("{by} and `per_ms` {per_ms}"))
        };
        let known: Vec<_> = limits.iter().map(named).collect();
        return refused(if known.is_empty() {
            format!(
                "The workflow '{workflow}' declares no limits, so there is none to set. To stop it, pause it."
            )
        } else {
            format!("The workflow '{workflow}' has no such limit. It has: {}.", known.join("; "))
        });
    }
    check_step_change(LimitChange { by, key, per_ms, max })
}

/// A change of a limit as its lane knows that limit. Steps say in their code what limits a lane has, so any may be.
pub fn check_step_change(change: LimitChange) -> Result<LimitChange, Problem> {
    let LimitChange { by, key, per_ms, max } = change;
    let refused = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
    if by.is_empty() && key.is_some() {
        return refused("A `key` needs `by`: the expression of the limit that it belongs to.".into());
    }
    if per_ms.is_some() && max.is_some_and(|max| max > RATE_MAX) {
        return refused(format!("A rate lets in up to {RATE_MAX} runs."));
    }
    Ok(LimitChange { by: short(&by), key: key.as_deref().map(short), per_ms, max })
}

/// The limits that a run with this input is under; none, if its workflow declares none.
///
/// Whatever an expression cannot say of this input is taken for nothing: such runs have the empty key together, no
/// priority, and one share.
pub fn let_in(flow: &Flow, input: &Payload) -> Option<Let> {
    let mut waits = flow.limits.iter().filter(|limit| !limit.drop).peekable();
    waits.peek()?;
    let needs_input = flow.priority.is_some() || flow.fair_by.is_some();
    let needs_input = needs_input || flow.limits.iter().any(depends_on_input);
    let input = if needs_input { read(input) } else { Json::Null };
    let find = |text: &str| find(text, &input);
    let mut limits = limits_of(waits, &input);
    narrow_first(&mut limits);
    let priority = flow.priority.as_deref().and_then(find).and_then(|text| text.parse::<f64>().ok());
    #[expect(clippy::cast_possible_truncation, reason = "it is clamped")]
    let priority = priority
        .map_or(0, |priority| priority.clamp(f64::from(-PRIORITY_MAX), f64::from(PRIORITY_MAX)) as i8);
    let share = flow.fair_by.as_deref().map(|text| find(text).unwrap_or_default());
    // A rate counts the beginning of a run, so there is nothing to be held.
    let hold = if limits.iter().all(|limit| limit.per_ms.is_some()) { Hold::Work } else { flow.hold };
    Some(Let { limits, priority, share, hold })
}

/// The same order for all, and the narrow ones first: who waits for a wide one has the narrow ones already, and keeps
/// nobody out who could go to work.
pub(crate) fn narrow_first(limits: &mut Vec<Limit>) {
    crate::sorting::sort_by(limits, |a, b| {
        let rank = |limit: &Limit| (limit.by.is_empty(), limit.per_ms);
        (rank(a), &a.by).cmp(&(rank(b), &b.by))
    });
}

/// The rates that a start with this input is dropped by, if they have no room for it.
pub fn drops(flow: &Flow, input: &Payload) -> Vec<Limit> {
    let mut drops = flow.limits.iter().filter(|limit| limit.drop).peekable();
    if drops.peek().is_none() {
        return Vec::new();
    }
    let needs_input = flow.limits.iter().any(|limit| limit.drop && depends_on_input(limit));
    limits_of(drops, &if needs_input { read(input) } else { Json::Null })
}

fn depends_on_input(limit: &LimitSpec) -> bool {
    limit.key.is_some() || limit.max_by.is_some()
}

/// What a start is known by in its lane: it has no run yet.
pub fn start_id(key: &str) -> RunId {
    let place = Place { pool: "start".into(), generation: 1, cell: 0 };
    RunId { place, number: 1, suffix: RunId::suffix_from(crate::pools::spread(key)) }
}

/// The value of an expression over an input; the empty one, if it has none.
pub fn key_of(text: &str, input: &Payload) -> String {
    find(text, &read(input)).unwrap_or_default()
}

fn limits_of<'a>(specs: impl Iterator<Item = &'a LimitSpec>, input: &Json) -> Vec<Limit> {
    let limit = |LimitSpec { max, max_by, key, per_ms, .. }: &LimitSpec| {
        let most = if per_ms.is_some() { RATE_MAX } else { u32::MAX };
        Limit {
            by: key.as_deref().map(short).unwrap_or_default(),
            key: key.as_deref().and_then(|key| find(key, input)).unwrap_or_default(),
            // None at all would keep everybody waiting for ever.
            max: max_by.as_deref().and_then(|text| number(text, input)).unwrap_or(*max).clamp(1, most),
            per_ms: *per_ms,
            is_own: max_by.is_some(),
        }
    };
    specs.take(LIMITS_MAX).map(limit).collect()
}

/// The whole number that an expression says.
fn number(text: &str, input: &Json) -> Option<u32> {
    let number = find(text, input)?.parse::<f64>().ok().filter(|number| number.is_finite())?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    Some(number.clamp(0.0, f64::from(u32::MAX)) as u32)
}

fn read(input: &Payload) -> Json {
    if is_too_much(input.text()) { Json::Null } else { input.decode::<Json>().unwrap_or_default() }
}

fn find(text: &str, input: &Json) -> Option<String> {
    let expression = Expression::parse(text, &NAMES).ok()?;
    let found = expression.find(&[("input", input)]).ok()?;
    found.text().map(|text| short(&text))
}

/// A text that is no longer than a key may be, and another one for another text.
pub(crate) fn short(text: &str) -> String {
    if text.len() <= KEY_LENGTH_MAX {
        return text.to_owned();
    }
    let mut end = KEY_LENGTH_MAX - 17;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}~{hash:016x}", &text[..end])
}
