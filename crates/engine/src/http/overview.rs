//! What there is, over all cells: the app's workflows, and how many runs are in which status.

use futures::future::join_all;
use stepwell_core::catalog::Layers;
use stepwell_protocol::{
    Code, Place,
    outbox::LetterCounts,
    rest::{Metrics, WorkflowList},
};

use super::{error::Refusal, front::Front, request::pairs, response::Response, workflows::described};
use crate::{
    calls::{
        catalog::Request,
        cell::{CountedRuns, Operation},
    },
    settings::DEFAULT_NAMESPACE,
};

/// How often a cell is asked for one answer. Each time it counts a slice of its runs.
const ROUNDS_MAX: usize = 20;

/// `GET /api/workflows`
pub async fn workflows(front: &Front) -> Result<Response, Refusal> {
    let (declared, layers) = futures::try_join!(described(front), layers(front))?;
    Ok(Response::of(200, &WorkflowList { workflows: layers.views(declared) }))
}

/// `GET /api/workflows/{workflow}`
pub async fn workflow(front: &Front, name: &str) -> Result<Response, Refusal> {
    let (declared, layers) = futures::try_join!(described(front), layers(front))?;
    match layers.views(declared).iter().find(|workflow| workflow.declared.name == name) {
        Some(workflow) => Ok(Response::of(200, workflow)),
        None => {
            let detail =
                "The app has no workflow of this name. `GET /api/workflows` shows those that it has.";
            Err(Refusal::new(Code::WorkflowNotFound, detail))
        }
    }
}

/// What is around what the code declares: the namespace's own settings and pauses, and what the deployment has retired.
async fn layers(front: &Front) -> Result<Layers, Refusal> {
    if !front.has_catalog() {
        return Ok(Layers::default());
    }
    let own: Layers = front.itself().ask_catalog(Request::ShowLayers).await?;
    if front.namespace() == DEFAULT_NAMESPACE {
        return Ok(own);
    }
    let Layers { retired, .. } = front.registry().ask_catalog(Request::ShowLayers).await?;
    Ok(Layers { retired, ..own })
}

/// `GET /api/metrics`
pub async fn metrics(front: &Front, query: &str) -> Result<Response, Refusal> {
    let mut wanted = None;
    for (name, value) in pairs(query) {
        if name != "workflow" {
            return Err(Refusal::new(Code::InvalidRequest, "The only parameter is `workflow`."));
        }
        wanted = Some(value);
    }
    // Letters belong to no workflow.
    let letters = wanted.is_none().then(LetterCounts::default);
    let mut metrics = Metrics { letters, complete: true, ..Metrics::default() };
    for counted in join_all(front.cells().map(|place| count(front, place))).await {
        let CountedRuns { workflows, is_all, letters } = counted?;
        metrics.complete &= is_all;
        if let Some(all) = &mut metrics.letters {
            (all.waiting, all.dead) = (all.waiting + letters.waiting, all.dead + letters.dead);
        }
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
    Ok(Response::of(200, &metrics))
}

/// All that a cell has, if it does not take too long.
async fn count(front: &Front, place: Place) -> Result<CountedRuns, Refusal> {
    let mut counted: CountedRuns = front.ask_json(&place, Operation::Count).await?;
    for _ in 1..ROUNDS_MAX {
        if counted.is_all {
            break;
        }
        counted = front.ask_json(&place, Operation::Count).await?;
    }
    Ok(counted)
}
