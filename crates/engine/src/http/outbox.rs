//! The routes of messages that have not arrived.

use futures::future::join_all;
use stepwell_protocol::{
    Code, Place,
    outbox::{OutboxList, OutboxMessage},
};

use super::{error::Refusal, front::Front, request::pairs, response::Response};
use crate::calls::cell::Operation;

/// How many letters each cell shows.
const LETTERS_MAX: u32 = 50;

/// `GET /api/outbox`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let mut only_dead = false;
    for (name, value) in pairs(query) {
        only_dead = match (name.as_str(), value.as_str()) {
            ("dead", "true") => true,
            ("dead", "false") => false,
            _ => {
                let detail = "The only parameter is `dead`, which takes `true` or `false`.";
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        };
    }
    let ask = |place: Place| async move {
        let operation = Operation::ShowOutbox { only_dead, limit: LETTERS_MAX };
        front.ask_json::<OutboxList>(&place, operation).await
    };
    let mut all = OutboxList { messages: Vec::new(), complete: true };
    for listed in join_all(front.cells().map(ask)).await {
        // A cell that does not answer may be why there is something to be seen.
        let OutboxList { messages, complete } = listed.unwrap_or_default();
        all.complete &= complete;
        all.messages.extend(messages);
    }
    all.messages.sort_by_key(|message: &OutboxMessage| message.posted_at);
    Ok(Response::of(200, &all))
}

/// `POST /api/outbox/{letter}/redeliver`
pub async fn redeliver(front: &Front, letter: &str) -> Result<Response, Refusal> {
    let found = letter.rsplit_once('-').and_then(|(place, id)| {
        let place: Place = place.parse().ok()?;
        let id = id.parse().ok().filter(|id| *id <= 1 << 53)?;
        front.cells().any(|known| known == place).then_some((place, id))
    });
    match found {
        Some((place, id)) => front.ask(&place, Operation::Redeliver { letter: id }).await,
        None => {
            let detail =
                "There is no letter with this name. `GET /api/outbox` lists those that have not arrived.";
            Err(Refusal::new(Code::LetterNotFound, detail))
        }
    }
}
