//! What has happened to the runs of each workflow, over all cells, and what that costs.

use futures::{StreamExt as _, stream};
use stepwell_core::{
    cell::{Happened, MINUTES_KEPT, add_happened},
    sorting::sort_by,
};
use stepwell_protocol::{
    Code, Timestamp,
    totals::{WorkflowTotals, WorkflowTotalsList},
};

use super::{
    body::shown, error::Refusal, front::Front, metrics::is_one_cells, request::pairs, response::Response,
};
use crate::{
    calls::{cell::Operation, figures::Totalled},
    runtime,
};

/// How many cells are asked at once: each may have counted for hundreds of workflows.
const AT_ONCE: usize = 16;

/// `GET /api/metrics/workflows`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (workflow, since) = read(query, runtime::clock())?;
    let asked = front.cells().map(|place| {
        let operation = Operation::Total { since, workflow: workflow.clone() };
        async move { front.ask_in_time::<Totalled>(&place, operation).await }
    });
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    let (mut all, mut complete) = (Happened::new(), true);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Totalled { totals }) => add_happened(&mut all, &totals),
            Err(refusal) if is_one_cells(&refusal) => complete = false,
            Err(refusal) => return Err(refusal),
        }
    }
    let mut workflows: Vec<_> =
        all.into_iter().map(|(name, totals)| WorkflowTotals::of(name, totals)).collect();
    sort_by(&mut workflows, |a, b| a.workflow.cmp(&b.workflow));
    Ok(Response::of(200, &WorkflowTotalsList { workflows, complete }))
}

/// Which workflow, and since when.
fn read(query: &str, now: Timestamp) -> Result<(Option<String>, Option<Timestamp>), Refusal> {
    let (mut workflow, mut since) = (None, None);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "workflow" => workflow = Some(value),
            "minutes" => {
                let minutes = value.parse().ok().filter(|minutes| (1..=MINUTES_KEPT).contains(minutes));
                let minutes: u64 = minutes.ok_or_else(|| {
                    let detail = format!("`minutes` is a number from 1 to {MINUTES_KEPT}.");
                    Refusal::new(Code::InvalidRequest, detail)
                })?;
                since = Some(Timestamp::from_millis(now.as_millis().saturating_sub(minutes * 60_000)));
            }
            other => {
                let detail =
                    format!("There is no parameter '{}'. There are workflow and minutes.", shown(other));
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    Ok((workflow, since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_workflow_and_a_time() {
        let now = Timestamp::from_millis(600_000);
        let (workflow, since) = read("workflow=pay&minutes=3", now).expect("it is one");
        assert_eq!((workflow.as_deref(), since), (Some("pay"), Some(Timestamp::from_millis(420_000))));
        assert_eq!(read("", now).ok(), Some((None, None)));
        for query in ["minutes=0", "minutes=1441", "minutes=x", "since=1"] {
            assert!(read(query, now).is_err(), "{query}");
        }
    }
}
