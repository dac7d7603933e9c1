//! The routes of queues as a whole: their settings, their counts, their ends.

use std::cell::Cell;

use futures::future::{LocalBoxFuture, join_all, ready};
use stepwell_core::{catalog::Named, queue::check_patch};
use stepwell_protocol::{
    Code,
    callback::CALLBACK_QUEUE,
    queue::{QueueCounts, QueueList, QueuePatch, QueueSecret, QueueSettings, QueueState, QueueView},
};

use super::{answer_of, ask, check_own, read_answer, remember, with_settings};
use crate::{
    calls::{catalog, queues::Request},
    http::{
        body::{read, shown},
        error::Refusal,
        front::Front,
        names,
        request::pairs,
        response::Response,
    },
    keyring::Keyring,
    object, outbound,
};

/// `GET /api/queues`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (queues, next) = names::list(front, Named::Queues, query).await?;
    Ok(Response::of(200, &QueueList { queues, next }))
}

/// `GET /api/queues/{queue}`
pub async fn show(front: &Front, queue: String) -> Result<Response, Refusal> {
    front.asker().await?;
    let rows = Cell::new(None);
    let act = &|settings| -> LocalBoxFuture<'_, _> { Box::pin(counted(front, &queue, settings, &rows)) };
    let shown = with_settings(front, &queue, act).await?;
    Ok(Response::json(200, shown).metered(rows.get()))
}

/// What is in all partitions together, and what they have written and read, where that is metered.
async fn counted(
    front: &Front,
    queue: &str,
    settings: QueueSettings,
    rows: &Cell<Option<(u64, u64)>>,
) -> Result<String, Refusal> {
    let asked = (0..settings.partitions)
        .map(|partition| answer_of(front, queue, partition, Some(&settings), Request::Counts));
    let (mut counts, mut metered) = (QueueCounts::default(), None);
    for part in join_all(asked).await {
        let part = part?;
        counts = counts.plus(read_answer(&object::body(&part))?);
        if let Some((written, read)) = object::rows(&part) {
            let (all_written, all_read) = metered.unwrap_or_default();
            metered = Some((all_written + written, all_read + read));
        }
    }
    rows.set(metered);
    let view = QueueView { name: queue.to_owned(), settings, counts };
    Ok(serde_json::to_string(&view).expect("a view holds only what JSON can say"))
}

/// `PATCH /api/queues/{queue}`
pub async fn set(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    check_own(queue)?;
    let patch: QueuePatch = read(body)?;
    check_patch(&patch).map_err(Refusal)?;
    let push = patch.push.as_ref().and_then(Option::as_ref);
    if let Some(url) = push.and_then(|push| push.url.as_deref()) {
        outbound::check("url", url, front.deployment().is_dev).map_err(Refusal)?;
    }
    if let Some(sink) = push.and_then(|push| push.sink.as_deref())
        && outbound::sink(front.env(), sink).is_none()
    {
        return Err(Refusal::new(Code::InvalidRequest, outbound::no_sink(sink)));
    }
    configure(front, queue, Request::Configure { patch, state: None, create: true }).await
}

/// `GET /api/queues/{queue}/secret`
pub async fn secret(front: &Front, queue: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    // Whoever is called back wants to know it before the first callback.
    if queue != CALLBACK_QUEUE {
        with_settings(front, queue, &|_| Box::pin(ready(Ok(String::new())))).await?;
    }
    let life = front.ask_catalog(catalog::Request::ShowLife).await?;
    let mut secrets = Keyring::of(front.env()).push_secrets(front.namespace(), life, queue).into_iter();
    let Some(secret) = secrets.next() else {
        let detail = "The deployment has no STEPWELL_KEY to make secrets of, so pushed jobs are not signed.";
        return Err(Refusal::new(Code::WrongStatus, detail));
    };
    Ok(Response::of(200, &QueueSecret { secret, previous: secrets.next() }))
}

/// `POST /api/queues/{queue}/pause`, and the like.
pub async fn put_state(front: &Front, queue: &str, state: QueueState) -> Result<Response, Refusal> {
    front.asker().await?;
    if state == QueueState::Draining {
        check_own(queue)?;
    }
    // So that no object is made for a queue that is not there.
    with_settings(front, queue, &|_| Box::pin(ready(Ok(String::new())))).await?;
    let patch = QueuePatch::default();
    configure(front, queue, Request::Configure { patch, state: Some(state), create: false }).await
}

async fn configure(front: &Front, queue: &str, request: Request) -> Result<Response, Refusal> {
    remember(front, queue, None);
    let settings = ask(front, queue, 0, None, request).await?;
    remember(front, queue, Some(read_answer(&settings)?));
    Ok(Response::json(200, settings))
}

/// `DELETE /api/queues/{queue}`
pub async fn delete(front: &Front, queue: &str, query: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    check_own(queue)?;
    let mut with_jobs = false;
    for (name, value) in pairs(query) {
        match (name.as_str(), value.as_str()) {
            ("purge", "true") => with_jobs = true,
            ("purge", "false") => with_jobs = false,
            ("purge", _) => {
                return Err(Refusal::new(Code::InvalidRequest, "`purge` is `true` or `false`."));
            }
            (other, _) => return Err(unknown(other, "`purge`")),
        }
    }
    with_settings(front, queue, &|_| Box::pin(ready(Ok(String::new())))).await?;
    remember(front, queue, None);
    ask(front, queue, 0, None, Request::Delete { with_jobs }).await?;
    remember(front, queue, None);
    Ok(Response::of(200, &()))
}

/// There is no such parameter.
pub fn unknown(parameter: &str, known: &str) -> Refusal {
    let detail = format!("There is no parameter `{}`: use {known}.", shown(parameter));
    Refusal::new(Code::InvalidRequest, detail)
}
