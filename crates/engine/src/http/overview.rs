//! The app's workflows, with what is around their code.

use stepwell_core::catalog::Layers;
use stepwell_protocol::{Code, rest::WorkflowList};

use super::{error::Refusal, front::Front, response::Response, workflows::described};
use crate::{calls::catalog::Request, settings::DEFAULT_NAMESPACE};

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
            let detail = "The app has no workflow with this name. `GET /api/workflows` lists its workflows.";
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
