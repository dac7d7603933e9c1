//! The routes of a namespace's settings.

use stepwell_protocol::access::RunSettings;

use super::{body::read, error::Refusal, front::Front, request::check_name, response::Response};
use crate::calls::catalog::Request;

/// `GET /api/settings`
pub(super) async fn show(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ShowSettings).await
}

/// `PUT /api/settings`
pub(super) async fn set(front: &Front, body: &str) -> Result<Response, Refusal> {
    let settings: RunSettings = read(body)?;
    front.pass_on(Request::SetRuns { settings }).await
}

/// `PUT /api/settings/workflows/{workflow}`
pub(super) async fn set_workflow(front: &Front, workflow: String, body: &str) -> Result<Response, Refusal> {
    check_name("workflow", &workflow)?;
    let settings: RunSettings = read(body)?;
    front.pass_on(Request::SetWorkflow { workflow, settings: Some(settings) }).await
}

/// `DELETE /api/settings/workflows/{workflow}`
pub(super) async fn remove_workflow(front: &Front, workflow: String) -> Result<Response, Refusal> {
    front.pass_on(Request::SetWorkflow { workflow, settings: None }).await
}
