//! What there is, over all cells: the app's workflows, and how many runs are in which status.

use axum::{
    Extension,
    extract::{Path, RawQuery},
    response::Response,
};
use futures::future::join_all;
use http::StatusCode;
use serde::Serialize;
use stepwell_protocol::{
    Code, Place,
    rest::{Metrics, WorkflowList},
};

use super::{error::Refusal, forward::Front, json, runs::pairs};
use crate::cell::{CountedRuns, Operation};

/// How often a cell is asked for one answer. Each time it counts a slice of its runs.
const ROUNDS_MAX: usize = 20;

/// `GET /api/workflows`
#[worker::send]
pub async fn workflows(Extension(front): Extension<Front>) -> Result<Response, Refusal> {
    Ok(answer(&WorkflowList { workflows: front.described().await? }))
}

/// `GET /api/workflows/{workflow}`
#[worker::send]
pub async fn workflow(
    Extension(front): Extension<Front>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let workflows = front.described().await?;
    match workflows.iter().find(|workflow| workflow.name == name) {
        Some(workflow) => Ok(answer(workflow)),
        None => {
            let detail =
                "The app has no workflow of this name. `GET /api/workflows` shows those that it has.";
            Err(Refusal::new(Code::WorkflowNotFound, detail))
        }
    }
}

/// `GET /api/metrics`
#[worker::send]
pub async fn metrics(
    Extension(front): Extension<Front>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut wanted = None;
    for (name, value) in pairs(query.as_deref().unwrap_or_default()) {
        if name != "workflow" {
            return Err(Refusal::new(Code::InvalidRequest, "The only parameter is `workflow`."));
        }
        wanted = Some(value);
    }
    let mut metrics = Metrics { complete: true, ..Metrics::default() };
    for counted in join_all(front.cells().map(|place| count(front.clone(), place))).await {
        let CountedRuns { workflows, is_all } = counted?;
        metrics.complete &= is_all;
        let fits = |name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
        for (name, counts) in workflows.into_iter().filter(|(name, _)| fits(name)) {
            let of_workflow = metrics.workflows.entry(name).or_default();
            for (status, count) in counts {
                *of_workflow.entry(status).or_default() += count;
                *metrics.statuses.entry(status).or_default() += count;
                metrics.total += count;
            }
        }
    }
    Ok(answer(&metrics))
}

/// All that a cell has, if it does not take too long.
async fn count(front: Front, place: Place) -> Result<CountedRuns, Refusal> {
    let mut counted: CountedRuns = front.ask_json(&place, Operation::Count).await?;
    for _ in 1..ROUNDS_MAX {
        if counted.is_all {
            break;
        }
        counted = front.ask_json(&place, Operation::Count).await?;
    }
    Ok(counted)
}

fn answer<T: Serialize>(body: &T) -> Response {
    json(StatusCode::OK, serde_json::to_string(body).expect("answers hold only what JSON can say"))
}
