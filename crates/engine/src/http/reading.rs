//! What the front makes of texts from outside, for whoever tries it with texts of all sorts: the fuzz targets. No part
//! of the API, and in no Worker.

use stepwell_protocol::{Payload, Place, Problem, Seq, Timestamp, filter::Filter, json};

use super::{
    auth, cookie,
    error::Refusal,
    list, need,
    request::{self, Headers, Names},
    streams, token,
};
use crate::calls::{cell::Call, queue::Nudge};

/// What a list is asked for.
pub struct ListQuery {
    /// Which runs.
    pub filter: Filter,
    /// How many at the most.
    pub limit: u32,
    /// Where to go on.
    pub cursor: Option<ListCursor>,
}

/// Where a list goes on.
pub struct ListCursor(list::Cursor);

impl ListCursor {
    /// Below which number a cell goes on.
    pub fn below(&self, place: &Place) -> Option<u64> {
        self.0.below(place)
    }

    /// As clients get it.
    pub fn written(&self) -> String {
        self.0.written()
    }
}

/// What a start is asked for.
pub struct StartRequest {
    /// Its tags.
    pub tags: Vec<String>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// How long the caller waits.
    pub wait_ms: u64,
    /// Its input.
    pub input: Payload,
}

/// What a stream is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct StreamQuery {
    /// Where to go on.
    pub cursor: Option<String>,
    /// Which kinds of events.
    pub kinds: Option<String>,
}

/// The query of a list.
pub fn list_query(query: &str) -> Result<ListQuery, Problem> {
    let (filter, limit, cursor) = list::read(query).map_err(problem)?;
    Ok(ListQuery { filter, limit, cursor: cursor.map(ListCursor) })
}

/// The query, headers and body of a start; headers that HTTP does not allow never come here.
pub fn start_request(
    query: &str,
    key: &str,
    prefer: &str,
    body: &str,
) -> Option<Result<StartRequest, Problem>> {
    let headers = headers([("idempotency-key", key), ("prefer", prefer)])?;
    let read = || {
        Ok(StartRequest {
            tags: request::tags(query)?,
            key: request::idempotency_key(&headers)?,
            wait_ms: request::wait_ms(&headers)?,
            input: request::payload(body.to_owned())?,
        })
    };
    Some(read().map_err(problem))
}

/// When a run begins, by the header of a start that came at this time.
pub fn starts_at(delay: &str, now: Timestamp) -> Option<Result<Option<Timestamp>, Problem>> {
    let headers = headers([(request::DELAY, delay)])?;
    Some(request::starts_at(&headers, now).map_err(problem))
}

/// What a stream is asked for: by its query, and by a header that never comes here if HTTP does not allow it.
pub fn stream_query(query: &str, last_event_id: &str, of_run: bool) -> Option<Result<StreamQuery, Problem>> {
    let headers = headers([("last-event-id", last_event_id)])?;
    let asked = streams::asked(query, &headers, of_run);
    Some(asked.map(|asked| StreamQuery { cursor: asked.cursor, kinds: asked.kinds }).map_err(problem))
}

/// The position of `?after=N`.
pub fn after(query: &str) -> Result<Seq, Problem> {
    request::after(query).map_err(problem)
}

/// How many events of a history a page may have.
pub fn limit(query: &str) -> Result<Option<usize>, Problem> {
    request::limit(query).map_err(problem)
}

/// Whether a name can be a workflow's or a signal's.
pub fn is_name(name: &str) -> bool {
    request::check_name("workflow", name).is_ok()
}

/// What an `Authorization` header carries.
pub fn bearer(header: &str) -> &str {
    auth::bearer(header)
}

/// The session of a `Cookie` header.
pub fn session_of(cookies: &str, is_https: bool) -> Option<&str> {
    cookie::session_of(cookies, is_https)
}

/// The cookie of a session, as it is set.
pub fn cookie(is_https: bool, token: &str) -> String {
    cookie::cookie(is_https, token, 60)
}

/// The workflow in a path, by which a key's scopes are looked at.
pub fn workflow_of(pattern: &'static str, path: &str) -> Option<String> {
    need::workflow_of(pattern, path)
}

/// What a handler gets of a path by this name; nothing, if the path is not UTF-8 text.
pub fn name_in(pattern: &'static str, path: &str, name: &str) -> Option<String> {
    Names::of(pattern, path).map(|mut names| names.take(name))
}

/// Whether a text looks like a token of another issuer.
pub fn is_token(text: &str) -> bool {
    token::is_token(text)
}

/// What a Worker asks of a cell, read and written again.
pub fn internal_call(text: &str) -> Option<String> {
    let call: Call = json::from_str(text).ok()?;
    Some(serde_json::to_string(&call).expect("a call holds only what JSON can say"))
}

/// A message of the queue, read and written again.
pub fn nudge(text: &str) -> Option<String> {
    let nudge: Nudge = json::from_str(text).ok()?;
    Some(serde_json::to_string(&nudge).expect("a message holds only what JSON can say"))
}

/// Headers as the runtime hands them over: what is empty is not there.
fn headers<const N: usize>(named: [(&'static str, &str); N]) -> Option<Headers> {
    let there = named.into_iter().filter(|(_, value)| !value.is_empty());
    Headers::of(there.map(|(name, value)| (name, value.to_owned())).collect())
}

fn problem(Refusal(problem): Refusal) -> Problem {
    problem
}
