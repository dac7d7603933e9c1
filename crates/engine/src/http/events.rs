//! The routes of events and triggers.

use futures::future::join_all;
use stepwell_core::{
    ordered::OrdMap,
    topic::{LIST_MAX, check_trigger, no_event, no_trigger},
};
use stepwell_protocol::{
    Code, Problem, json,
    program::{RESERVED_PREFIX, is_reserved},
    topic::{
        Accepted, AcceptedList, AcceptedStatus, BATCH_MAX, EVENT_BYTES_MAX, EVENT_ID_LENGTH_MAX, EventBatch,
        NewEvent, TriggerSpec, is_event_id, is_given_id, is_topic, parts,
    },
};

use super::{
    body::{read, shown},
    error::Refusal,
    front::Front,
    request::{check_name, pairs},
    response::Response,
    starts::nonce,
    workflows,
};
use crate::calls::topics::{Call, Request};

/// How many events a page has, unless the request says it.
const PAGE: usize = 50;

/// How many topics the events of one request belong to at the most: each is asked once.
const TOPICS_MAX: usize = 16;

/// `POST /api/events`
pub async fn send(front: &Front, body: &str) -> Result<Response, Refusal> {
    if let Ok(EventBatch { events }) = read(body) {
        let by = front.sender(&events).await?;
        return send_batch(front, by, events).await;
    }
    let event: NewEvent = match read(body) {
        Ok(event) => event,
        Err(refusal) => {
            // Whoever may send none is told that first.
            front.asker().await?;
            return Err(refusal);
        }
    };
    let by = front.sender(std::slice::from_ref(&event)).await?;
    let topic = check_id(&event).and_then(|()| check(&event)).map_err(Refusal)?;
    let call = Call { by, request: Request::Accept { mark: nonce(), events: vec![event] } };
    let (status, body) = front.call_topic(&topic, &call).await?;
    let accepted = json::from_str::<AcceptedList>(&body).ok();
    match accepted.and_then(|list| list.results.into_iter().next()) {
        Some(accepted) => {
            let is_new = accepted.status == AcceptedStatus::Accepted;
            Ok(Response::of(if is_new { 201 } else { 200 }, &accepted))
        }
        None => Ok(Response::of_object(status, body)),
    }
}

/// Several events are answered one by one: what is wrong with one holds up no other.
async fn send_batch(front: &Front, by: String, events: Vec<NewEvent>) -> Result<Response, Refusal> {
    if !(1..=BATCH_MAX).contains(&events.len()) {
        let detail = format!("`events` has {} events. Send 1 to {BATCH_MAX} at once.", events.len());
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let problems: Vec<_> = events.iter().map(|event| check_id(event).err()).collect();
    let good = events.iter().zip(&problems).filter(|(_, problem)| problem.is_none());
    let mut accepted = accept(front, &by, good.map(|(event, _)| event.clone()).collect()).await?.into_iter();
    let results = events.into_iter().zip(problems).map(|(event, problem)| match problem {
        Some(_) => Accepted { problem, ..unanswered(event.name) },
        None => accepted.next().unwrap_or_else(|| unanswered(event.name)),
    });
    Ok(Response::of(200, &AcceptedList { results: results.collect() }))
}

/// Gives events to their topics. Says of each what became of it.
pub async fn accept(front: &Front, by: &str, events: Vec<NewEvent>) -> Result<Vec<Accepted>, Refusal> {
    let mut results: Vec<_> = events.iter().map(|event| unanswered(event.name.clone())).collect();
    let mut topics: OrdMap<String, (Vec<usize>, Vec<NewEvent>)> = OrdMap::new();
    for (index, event) in events.into_iter().enumerate() {
        match check(&event) {
            Ok(topic) => {
                let (indexes, events) = topics.get_or_default(topic);
                indexes.push(index);
                events.push(event);
            }
            Err(problem) => refuse(&mut results, &[index], &problem),
        }
    }
    if topics.len() > TOPICS_MAX {
        let detail =
            format!("The events belong to {} topics. Send those of {TOPICS_MAX} at once.", topics.len());
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let calls = topics.into_iter().map(|(topic, (indexes, events))| {
        let call = Call { by: by.to_owned(), request: Request::Accept { mark: nonce(), events } };
        async move { (indexes, front.call_topic(&topic, &call).await) }
    });
    for (indexes, answer) in join_all(calls).await {
        match answer {
            Ok((200, body)) => {
                let list: AcceptedList = json::from_str(&body).unwrap_or_default();
                for (index, accepted) in indexes.into_iter().zip(list.results) {
                    if let Some(result) = results.get_mut(index) {
                        *result = accepted;
                    }
                }
            }
            Ok((_, body)) => {
                if let Ok(problem) = json::from_str(&body) {
                    refuse(&mut results, &indexes, &problem);
                }
            }
            Err(Refusal(problem)) => refuse(&mut results, &indexes, &problem),
        }
    }
    Ok(results)
}

/// What is said of an event that nobody has said anything of.
fn unanswered(name: String) -> Accepted {
    let problem = Problem::new(Code::Internal, "The topic gave no answer. Try again.");
    Accepted { status: AcceptedStatus::Refused, name, id: None, problem: Some(problem) }
}

fn refuse(results: &mut [Accepted], indexes: &[usize], problem: &Problem) {
    for index in indexes {
        if let Some(result) = results.get_mut(*index) {
            result.problem = Some(problem.clone());
        }
    }
}

/// Refuses an id that only Stepwell gives.
fn check_id(event: &NewEvent) -> Result<(), Problem> {
    if event.id.as_deref().is_some_and(is_given_id) {
        let detail = "Ids of this form are given by Stepwell. Choose another one, or leave `id` out.";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

/// The topic of an event, if it is one.
fn check(event: &NewEvent) -> Result<String, Problem> {
    let bad = |detail: String| Problem::new(Code::InvalidRequest, detail);
    let Some((topic, _)) = parts(&event.name) else {
        return Err(bad(format!(
            "'{}' is no name of an event. It has two parts of letters, digits, '-', '_' and '.': a topic of up to \
             40 characters and up to 64 more, as in 'order/paid'.",
            shown(&event.name)
        )));
    };
    if event.id.as_ref().is_some_and(|id| !is_event_id(id)) {
        return Err(bad(format!(
            "The id of an event has 1 to {EVENT_ID_LENGTH_MAX} visible ASCII characters, without / ? # % \" \\."
        )));
    }
    if event.data.size() > EVENT_BYTES_MAX {
        let detail = format!(
            "The data has {} bytes, and {EVENT_BYTES_MAX} are the most. Store large values elsewhere, for example in \
             R2, and send their name.",
            event.data.size()
        );
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    Ok(topic.to_owned())
}

/// `GET /api/events`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (mut topic, mut before, mut limit) = (None, u64::MAX >> 11, PAGE);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "topic" => topic = Some(value),
            "before" => {
                before = value.parse().ok().filter(|before| *before < u64::MAX >> 11).ok_or_else(|| {
                    Refusal::new(Code::InvalidRequest, "`before` is the `next` of another page.")
                })?;
            }
            "limit" => {
                limit =
                    value.parse().ok().filter(|limit| (1..=LIST_MAX).contains(limit)).ok_or_else(|| {
                        let detail = format!("`limit` is a number from 1 to {LIST_MAX}.");
                        Refusal::new(Code::InvalidRequest, detail)
                    })?;
            }
            other => return Err(unknown(other, "`topic`, `before` and `limit`")),
        }
    }
    front.ask_topic(&wanted(topic)?, Request::List { before, limit }).await
}

/// `GET /api/events/{topic}/{event}`
pub async fn show(front: &Front, topic: &str, id: String) -> Result<Response, Refusal> {
    if !is_topic(topic) || !is_event_id(&id) {
        return Err(Refusal(no_event()));
    }
    front.ask_topic(topic, Request::Get { id }).await
}

/// `GET /api/triggers`
pub async fn list_triggers(front: &Front, query: &str) -> Result<Response, Refusal> {
    front.ask_topic(&topic_of_query(query)?, Request::ListTriggers).await
}

/// The topic of a query that has nothing else.
pub fn topic_of_query(query: &str) -> Result<String, Refusal> {
    let mut topic = None;
    for (name, value) in pairs(query) {
        match name.as_str() {
            "topic" => topic = Some(value),
            other => return Err(unknown(other, "`topic`")),
        }
    }
    wanted(topic)
}

/// `PUT /api/triggers/{topic}/{trigger}`
pub async fn put_trigger(front: &Front, topic: &str, id: String, body: &str) -> Result<Response, Refusal> {
    check_name("trigger", &id)?;
    let spec: TriggerSpec = read(body)?;
    let topic = wanted(Some(topic.to_owned()))?;
    check_trigger(&topic, &spec).map_err(Refusal)?;
    if spec.queue.is_none() {
        check_name("workflow", &spec.workflow)?;
        if is_reserved(&spec.workflow) {
            let detail =
                format!("Workflows that begin with '{RESERVED_PREFIX}' are started by Stepwell itself.");
            return Err(Refusal::new(Code::InvalidRequest, detail));
        }
        workflows::terms(front, &spec.workflow).await?;
    }
    front.ask_topic(&topic, Request::PutTrigger { id, spec: Box::new(spec) }).await
}

/// Something about one trigger.
pub async fn trigger(front: &Front, topic: &str, request: Request) -> Result<Response, Refusal> {
    if !is_topic(topic) {
        return Err(Refusal(no_trigger()));
    }
    front.ask_topic(topic, request).await
}

/// The topic that is named, if one can be called that.
pub fn wanted(topic: Option<String>) -> Result<String, Refusal> {
    topic.filter(|topic| is_topic(topic)).ok_or_else(|| {
        let detail = "Name a topic, as in `topic=order`: 1 to 40 letters, digits, '-', '_' or '.'.";
        Refusal::new(Code::InvalidRequest, detail)
    })
}

fn unknown(parameter: &str, known: &str) -> Refusal {
    let detail = format!("There is no parameter `{}`: use {known}.", shown(parameter));
    Refusal::new(Code::InvalidRequest, detail)
}
