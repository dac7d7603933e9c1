//! The routes of runs that are there.

use stepwell_core::{cell::Action, object::Address, run::check_signal_name};
use stepwell_protocol::{
    Code, Op, RunId, json,
    rest::{Restart, Why},
};

use super::{
    body,
    error::Refusal,
    front::Front,
    generations::locate,
    request::{Headers, after, check_name, idempotency_key, limit, pairs, payload, wait_ms},
    response::Response,
    starts::nonce,
};
use crate::{
    calls::{cell::Operation, lanes::Call},
    object::{self, in_time},
};

/// `GET /api/executions/{id}`
pub async fn show(front: &Front, id: &str, headers: &Headers) -> Result<Response, Refusal> {
    let id = locate(front, id).await?;
    let wait_ms = wait_ms(headers)?;
    front.ask(&id.place, Operation::Get { number: id.number, suffix: id.suffix, wait_ms }).await
}

/// `GET /api/executions/{id}/why`
pub async fn why(front: &Front, id: &str) -> Result<Response, Refusal> {
    let id = locate(front, id).await?;
    let operation = Operation::Why { number: id.number, suffix: id.suffix.clone() };
    let mut why: Why = front.ask_json(&id.place, operation).await?;
    if let Some(lane) = &why.lane {
        let (lane, call) = (Address::lane(front.namespace(), lane), Call::Why { run: id });
        // It knows which limit it is. What the cell knows is good enough if the lane does not answer.
        if let Ok((200, body)) = in_time(object::ask(front.env(), &lane, &call)).await
            && let Ok(Some(because)) = json::from_str::<Option<String>>(&body)
        {
            why.because = because;
        }
    }
    Ok(Response::of(200, &why))
}

/// `GET /api/executions/{id}/history`
pub async fn history(front: &Front, id: &str, query: &str) -> Result<Response, Refusal> {
    let id = locate(front, id).await?;
    let (after, limit) = (after(query)?, limit(query)?);
    let says = |wanted: &str| pairs(query).any(|(name, value)| name == wanted && value == "true");
    let (outline, replay) = (says("outline"), says("replay"));
    let (number, suffix) = (id.number, id.suffix);
    front.ask(&id.place, Operation::History { number, suffix, after, limit, outline, replay }).await
}

/// `POST /api/executions/{id}/signals/{name}`
pub async fn signal(
    front: &Front,
    id: &str,
    name: String,
    headers: &Headers,
    body: String,
) -> Result<Response, Refusal> {
    let run = locate(front, id).await?;
    check_name("signal", &name)?;
    check_signal_name(&name).map_err(Refusal)?;
    let payload = payload(body)?;
    let id = idempotency_key(headers)?;
    let (number, suffix, nonce) = (run.number, run.suffix, Some(nonce()));
    front.ask(&run.place, Operation::Signal { number, suffix, name, id, nonce, payload }).await
}

/// `POST /api/executions/{id}/cancel`
pub async fn cancel(front: &Front, id: &str) -> Result<Response, Refusal> {
    act(front, id, Action::Cancel).await
}

/// `POST /api/executions/{id}/pause`
pub async fn pause(front: &Front, id: &str) -> Result<Response, Refusal> {
    act(front, id, Action::Pause).await
}

/// `POST /api/executions/{id}/resume`
pub async fn resume(front: &Front, id: &str) -> Result<Response, Refusal> {
    act(front, id, Action::Resume).await
}

/// `POST /api/executions/{id}/retry`
pub async fn retry(front: &Front, id: &str) -> Result<Response, Refusal> {
    act(front, id, Action::Retry).await
}

/// `POST /api/executions/{id}/restart`
pub async fn restart(front: &Front, id: &str, body: &str) -> Result<Response, Refusal> {
    let Restart { from, without_signal } =
        if body::is_empty(body) { Restart::default() } else { body::read(body)? };
    if from.as_ref().is_some_and(|from| from.step.len() > Op::NAME_LENGTH_MAX) {
        let detail = format!("The name of a step has up to {} bytes.", Op::NAME_LENGTH_MAX);
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let action = match (from, without_signal) {
        (from, None) => Action::Restart { from },
        (None, Some(seq)) => Action::DropSignal { seq },
        (Some(_), Some(_)) => {
            let detail =
                "A run goes back to before a step or to before a signal: send `from` or `without_signal`.";
            return Err(Refusal::new(Code::InvalidRequest, detail));
        }
    };
    act(front, id, action).await
}

async fn act(front: &Front, id: &str, action: Action) -> Result<Response, Refusal> {
    let RunId { place, number, suffix } = locate(front, id).await?;
    front.ask(&place, Operation::Act { number, suffix, action }).await
}
