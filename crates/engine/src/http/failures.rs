//! Failed runs, in groups of those that failed alike, over all cells.

use futures::{StreamExt as _, stream};
use stepwell_core::{ordered::OrdMap, sorting::sort_by};
use stepwell_protocol::{
    Code, Timestamp,
    failures::{FailureGroup, FailureList},
};

use super::{
    body::shown, error::Refusal, front::Front, metrics::is_one_cells, request::pairs, response::Response,
};
use crate::calls::{cell::Operation, figures::ListedFailures};

/// How many groups a page has, unless it says otherwise.
const LIMIT_DEFAULT: usize = 50;

/// How many groups a page has at the most.
const LIMIT_MAX: usize = 200;

/// How many cells are asked at once: each may have some hundreds of groups.
const AT_ONCE: usize = 16;

/// How many groups are kept while cells are asked. Beyond that, those that failed least lately are left out.
const GROUPS_MAX: usize = 5_000;

/// What a request asks for.
struct Asked {
    workflow: Option<String>,
    since: Timestamp,
    limit: usize,
    /// The group that the page before ended with.
    after: Option<(Timestamp, String)>,
}

/// `GET /api/failures`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let Asked { workflow, since, limit, after } = read(query)?;
    let asked = front.cells().map(|place| {
        let operation = Operation::ListFailures { workflow: workflow.clone() };
        async move { front.ask_in_time::<ListedFailures>(&place, operation).await }
    });
    let (mut groups, mut complete) = (OrdMap::<String, FailureGroup>::new(), true);
    // In the order of the cells: which runs a group names must not depend on who answers first.
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    while let Some(listed) = answers.next().await {
        match listed {
            Ok(ListedFailures { failures }) => {
                for group in failures {
                    match groups.get_mut(&group.id) {
                        Some(known) => known.add(group),
                        None => drop(groups.insert(group.id.clone(), group)),
                    }
                }
            }
            // What the others say is worth more than nothing.
            Err(refusal) if is_one_cells(&refusal) => complete = false,
            Err(refusal) => return Err(refusal),
        }
        complete &= !leave_out(&mut groups);
    }
    // Only now is it known when each of them failed last.
    let groups = groups.into_iter().map(|(_, group)| group).filter(|group| group.last_at >= since).collect();
    let (failures, next) = page(groups, limit, after.as_ref());
    Ok(Response::of(200, &FailureList { failures, next, complete }))
}

/// Leaves out groups if there are too many; says whether it did.
fn leave_out(groups: &mut OrdMap<String, FailureGroup>) -> bool {
    if groups.len() <= GROUPS_MAX {
        return false;
    }
    let mut times: Vec<_> = groups.values().map(|group| group.last_at).collect();
    sort_by(&mut times, |a, b| b.cmp(a));
    let oldest = times[GROUPS_MAX / 2];
    groups.retain(|_, group| group.last_at > oldest);
    true
}

/// The groups after one of them, the one that has failed last first, and where the next page begins.
fn page(
    mut groups: Vec<FailureGroup>,
    limit: usize,
    after: Option<&(Timestamp, String)>,
) -> (Vec<FailureGroup>, Option<String>) {
    sort_by(&mut groups, |a, b| b.last_at.cmp(&a.last_at).then_with(|| a.id.cmp(&b.id)));
    if let Some((at, id)) = after {
        groups.retain(|group| group.last_at < *at || group.last_at == *at && group.id > *id);
    }
    let has_more = groups.len() > limit;
    groups.truncate(limit);
    let last = groups.last().filter(|_| has_more);
    let next = last.map(|last| format!("{}-{}", last.last_at.as_millis(), last.id));
    (groups, next)
}

fn read(query: &str) -> Result<Asked, Refusal> {
    let mut asked = Asked { workflow: None, since: Timestamp::default(), limit: LIMIT_DEFAULT, after: None };
    for (name, value) in pairs(query) {
        let wrong = |what: &str| {
            Refusal::new(Code::InvalidRequest, format!("`{name}` takes {what}, not '{}'.", shown(&value)))
        };
        match name.as_str() {
            "workflow" => asked.workflow = Some(value),
            "since" => {
                let millis = value.parse().map_err(|_| wrong("milliseconds since 1970"))?;
                asked.since = Timestamp::from_millis(millis);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                asked.limit = limit.ok_or_else(|| wrong("1 to 200"))?;
            }
            "cursor" => {
                let parts = value.split_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id)));
                let (at, id) = parts.ok_or_else(|| wrong("the `next` of the page before"))?;
                asked.after = Some((Timestamp::from_millis(at), id.to_owned()));
            }
            other => {
                let detail = format!(
                    "There is no parameter '{}'. There are workflow, since, limit and cursor.",
                    shown(other)
                );
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: &str, at: u64) -> FailureGroup {
        FailureGroup {
            id: id.into(),
            workflow: "w".into(),
            code: None,
            step: None,
            message: "busy".into(),
            count: 1,
            first_at: Timestamp::from_millis(at),
            last_at: Timestamp::from_millis(at),
            runs: Vec::new(),
        }
    }

    #[test]
    fn pages_have_each_group_once_the_latest_first() {
        let groups = || vec![group("a", 5), group("b", 9), group("c", 5), group("d", 7)];
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = page(groups(), 1, after.as_ref());
            seen.extend(page.into_iter().map(|group| group.id));
            let Some(next) = next else { break };
            after = read(&format!("cursor={next}")).ok().and_then(|asked| asked.after);
            assert!(after.is_some(), "{next} is no cursor");
        }
        assert_eq!(seen, ["b", "d", "a", "c"]);
    }

    #[test]
    fn beyond_their_most_those_that_failed_last_are_kept() {
        let of = |count: usize| (0..count).map(|n| (format!("g{n:05}"), group("g", n as u64)));
        let mut groups: OrdMap<_, _> = of(GROUPS_MAX).collect();
        assert!(!leave_out(&mut groups) && groups.len() == GROUPS_MAX);
        let mut groups: OrdMap<_, _> = of(GROUPS_MAX + 1).collect();
        assert!(leave_out(&mut groups) && (1..GROUPS_MAX).contains(&groups.len()));
        assert!(groups.values().all(|group| group.last_at.as_millis() > GROUPS_MAX as u64 / 3));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in ["since=yesterday", "limit=0", "limit=201", "cursor=x", "status=failed"] {
            assert!(read(query).is_err(), "{query}");
        }
    }
}
