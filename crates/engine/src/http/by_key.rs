//! The routes of runs that their callers know by their own keys.
//!
//! A key is looked for where a start with it would ask ([`find`]), and the cell that has its run does the rest in the
//! same call. Nothing is started, and no row is written for a key that has no run. That a key was never used, was used
//! for another workflow, or that its run was deleted is all the same to the caller.

use stepwell_core::{cell::Action, run::check_signal_name};
use stepwell_protocol::Code;

use super::{
    error::Refusal,
    front::Front,
    request::{Headers, check_key, check_name, idempotency_key, payload, wait_ms},
    response::Response,
    starts::{find, nonce},
};
use crate::calls::cell::ByKey;

/// `GET /api/workflows/{workflow}/by-key/{key}`
pub async fn show(front: &Front, workflow: &str, key: &str, headers: &Headers) -> Result<Response, Refusal> {
    let wait_ms = wait_ms(headers)?;
    ask(front, workflow, key, ByKey::Get { wait_ms }).await
}

/// `POST /api/workflows/{workflow}/by-key/{key}/cancel`
pub async fn cancel(front: &Front, workflow: &str, key: &str) -> Result<Response, Refusal> {
    ask(front, workflow, key, ByKey::Act { action: Action::Cancel }).await
}

/// `POST /api/workflows/{workflow}/by-key/{key}/signals/{name}`
pub async fn signal(
    front: &Front,
    workflow: &str,
    key: &str,
    name: String,
    headers: &Headers,
    body: String,
) -> Result<Response, Refusal> {
    check_name("signal", &name)?;
    check_signal_name(&name).map_err(Refusal)?;
    let payload = payload(body)?;
    let id = idempotency_key(headers)?;
    ask(front, workflow, key, ByKey::Signal { name, id, nonce: Some(nonce()), payload }).await
}

/// Asks the cell that has the run.
async fn ask(front: &Front, workflow: &str, key: &str, ask: ByKey) -> Result<Response, Refusal> {
    check_name("workflow", workflow)?;
    check_key(key)?;
    match find(front, workflow, key, ask).await? {
        // The answer is what stands at the run's own address.
        Some(response) => Ok(response.renamed("location", "content-location")),
        None => {
            let detail = "This key has not started a run of this workflow, or the run was deleted. Check the workflow and \
                          the Idempotency-Key of the start.";
            Err(Refusal::new(Code::RunNotFound, detail))
        }
    }
}
