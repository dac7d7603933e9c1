//! Starting a run, from its route to the cell that gets it: what is read of the request, on which terms, and which cells
//! are asked in which order.
//!
//! A run without a key goes to any cell of the latest generation. A key leads to one run for ever: it is
//! looked for where it was at home before the pool grew, and sent on from there ([`Walk`]). It belongs to a workflow:
//! whoever may start one workflow learns nothing about the keys of another, and takes none of them away.

use sha2::{Digest, Sha256};
use stepwell_core::{
    cell::{Joins, scoped_key},
    ordered::OrdSet,
    pools::{Ask, Search, Walk},
};
use stepwell_protocol::{
    Code, Payload, Place, RunId,
    filter::Filter,
    json,
    lane::StartRule,
    program::{BULK_WORKFLOW, RESERVED_PREFIX, is_reserved},
    rest::Bulk,
};

use super::{
    body,
    error::Refusal,
    front::Front,
    generations, pauses,
    request::{Headers, callback, check_name, idempotency_key, payload, starts_at, tags, trace, wait_ms},
    response::Response,
    workflows,
};
use crate::{
    calls::cell::{ByKey, Moved, Operation, Start, fingerprint},
    joining::{Meeting, check_rates},
    runtime,
    terms::Terms,
};

/// The status of a cell's answer about a key that has gone to another cell.
const MOVED: u16 = 308;

/// How many cells a run without a key is offered to, if they are full.
const CELLS_TRIED_MAX: usize = 4;

/// `POST /api/workflows/{workflow}/start`
pub async fn run(
    front: &Front,
    workflow: String,
    query: &str,
    headers: &Headers,
    body: String,
) -> Result<Response, Refusal> {
    check_name("workflow", &workflow)?;
    if is_reserved(&workflow) {
        let detail = format!("Workflows that begin with '{RESERVED_PREFIX}' are started by Stepwell itself.");
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let tags = tags(query)?;
    let input = payload(body)?;
    let key = idempotency_key(headers)?;
    let starts_at = starts_at(headers, runtime::clock())?;
    let callback = callback(headers, front.deployment().is_dev)?;
    let (terms, may_start) =
        futures::join!(workflows::terms(front, &workflow), pauses::check(front, &workflow));
    let terms = terms?;
    let wait_ms = wait_ms(headers)?;
    let starts = terms.flow.as_ref().and_then(|flow| flow.starts.clone());
    if starts_at.is_some() && matches!(starts, Some(StartRule::Debounce { .. } | StartRule::Batch { .. })) {
        let detail = "The workflow waits for other starts before it begins a run, so a start of it has no delay of its own.";
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let start = new(workflow, input, key, terms);
    let callback = callback.or_else(|| start.callback.clone());
    let start = Start { tags, starts_at, callback, trace: trace(headers), wait_ms, ..start };
    check_key(&start)?;
    let refusal = match may_start {
        Err(paused) => Some(paused),
        Ok(()) => dropped(front, &start).await?,
    };
    match refusal {
        None => begin(front, start).await,
        // A repeat starts nothing: it is answered as before.
        Some(refusal) => again(front, &start).await?.ok_or(refusal),
    }
}

/// The answer to a start that its key has brought here before; nothing, if there was none.
async fn again(front: &Front, start: &Start) -> Result<Option<Response>, Refusal> {
    let Some(key) = &start.key else { return Ok(None) };
    if let Some(meeting) =
        Meeting::of(front.deployment(), &start.workflow, start.flow.as_deref(), &start.input)
    {
        let known = joined(front, meeting, start, true).await?;
        if known.status != Code::RunNotFound.status() {
            return Ok(Some(known));
        }
    }
    let fingerprint = fingerprint(&start.workflow, &start.input);
    let ask = ByKey::Again { fingerprint, is_strict: start.is_strict, wait_ms: start.wait_ms };
    find_scoped(front, &start.workflow, key, ask).await
}

/// Asks the workflow's lane whether a start is beyond a rate that drops it.
async fn dropped(front: &Front, start: &Start) -> Result<Option<Refusal>, Refusal> {
    let flow = start.flow.as_deref();
    if !flow.is_some_and(|flow| flow.limits.iter().any(|limit| limit.drop)) {
        return Ok(None);
    }
    // Only who may start runs uses up what others may start.
    front.asker().await?;
    let key = start.key.as_ref().or(start.nonce.as_ref()).map(String::as_str).unwrap_or_default();
    let start = (&start.workflow, flow, &start.input);
    match check_rates(front.env(), front.namespace(), start.0, (start.1, start.2), key).await {
        Ok(()) => Ok(None),
        Err(problem) if problem.code == Code::StartDropped => Ok(Some(Refusal(problem))),
        Err(problem) => Err(Refusal(problem)),
    }
}

/// `POST /api/bulk`: a run of the engine's own workflow, which does something to many others.
pub async fn bulk(front: &Front, headers: &Headers, body: &str) -> Result<Response, Refusal> {
    let bulk: Bulk = body::read(body)?;
    if bulk.filter == Filter::default() {
        let detail = "The filter is empty, so this would be about every run there is. Name what it is about; \
                      `\"from\": 0` is all of them.";
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    if let Some(detail) = bulk.filter.fault() {
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let input = Payload::encode(&bulk).expect("what was read from JSON can be written as JSON");
    let key = idempotency_key(headers)?;
    let terms = Terms::unsaid(front.deployment());
    let wait_ms = wait_ms(headers)?;
    let start = Start { wait_ms, ..new(BULK_WORKFLOW.into(), input, key, terms) };
    check_key(&start)?;
    begin(front, start).await
}

/// What a client request is known by. To be drawn once for each: if the connection to a cell breaks, the runtime may
/// deliver the same call again, and what it does must happen once.
pub fn nonce() -> String {
    RunId::suffix_from(runtime::random())
}

/// What a cell is asked for, on these terms.
fn new(workflow: String, input: Payload, key: Option<String>, terms: Terms) -> Start {
    let Terms { dispatch, timeout_ms, retention_ms, retention_is_default, key_required, callback, flow } =
        terms;
    Start {
        // As cells know it: it belongs to this workflow.
        key: key.map(|key| scoped_key(&workflow, &key)),
        nonce: Some(nonce()),
        workflow,
        input,
        dispatch,
        timeout_ms,
        retention_ms,
        retention_is_default,
        is_strict: key_required,
        callback,
        trace: None,
        flow,
        joins: None,
        tags: Vec::new(),
        starts_at: None,
        wait_ms: 0,
    }
}

/// Starts a run, or finds the one that its key has started.
async fn begin(front: &Front, start: Start) -> Result<Response, Refusal> {
    generations::tell(front).await?;
    let meeting = Meeting::of(front.deployment(), &start.workflow, start.flow.as_deref(), &start.input);
    match (&start.key, meeting) {
        (key, Some(meeting)) => {
            // It may have been started when each start was a run.
            let fingerprint = fingerprint(&start.workflow, &start.input);
            let ask = ByKey::Again { fingerprint, is_strict: start.is_strict, wait_ms: start.wait_ms };
            if let Some(key) = key
                && let Some(known) = find_scoped(front, &start.workflow, key, ask).await?
            {
                return Ok(known);
            }
            joined(front, meeting, &start, false).await
        }
        (Some(key), None) => keyed(front, key, &start).await,
        (None, None) => unkeyed(front, &start).await,
    }
}

/// Refuses a start without a key, if there has to be one.
fn check_key(start: &Start) -> Result<(), Refusal> {
    if start.key.is_some() || !start.is_strict {
        return Ok(());
    }
    let detail = "Runs of this workflow are started only with an `Idempotency-Key`. Send one that is new for each run that \
                  you want, and the same again when you repeat the request.";
    Err(Refusal::new(Code::IdempotencyKeyMissing, detail))
}

/// Lets a start meet those that it may become one run with; or only asks what has become of it.
async fn joined(
    front: &Front,
    mut meeting: Meeting<'_>,
    start: &Start,
    asks: bool,
) -> Result<Response, Refusal> {
    loop {
        let (at, joins) = meeting.ask();
        let start = Start { joins: Some(Joins { asks, ..joins }), ..start.clone() };
        let response = front.ask(&at, Operation::Start(start)).await?;
        if response.status != MOVED {
            return Ok(response);
        }
        if !moved_to(response).is_some_and(|to| meeting.sent_on(to)) {
            return Err(misled());
        }
    }
}

async fn unkeyed(front: &Front, start: &Start) -> Result<Response, Refusal> {
    let any_cell = || front.deployment().pool.any(runtime::random());
    let (mut tried, mut place) = (OrdSet::new(), any_cell());
    loop {
        let response = front.ask(&place, Operation::Start(start.clone())).await?;
        tried.insert(place);
        if response.status != Code::CellFull.status() || tried.len() == CELLS_TRIED_MAX {
            return Ok(response);
        }
        let mut others = (0..CELLS_TRIED_MAX * 4).map(|_| any_cell());
        match others.find(|other| !tried.contains(other)) {
            Some(other) => place = other,
            None => return Ok(response),
        }
    }
}

async fn keyed(front: &Front, key: &str, start: &Start) -> Result<Response, Refusal> {
    let deployment = front.deployment();
    let mut walk = Walk::new(&deployment.pool, spread(key), runtime::clock(), deployment.key_days);
    loop {
        let (at, operation) = match walk.ask() {
            Ask::Start { at } => (at, Operation::Start(start.clone())),
            Ask::Reserve { at, to } => {
                let fingerprint = fingerprint(&start.workflow, &start.input);
                let (key, to, wait_ms) = (key.to_owned(), to.to_string(), start.wait_ms);
                (at, Operation::Reserve { key, fingerprint, to, wait_ms })
            }
        };
        let response = front.ask(&at, operation).await?;
        if response.status != MOVED {
            return Ok(response);
        }
        if !moved_to(response).is_some_and(|to| walk.sent_on(to)) {
            return Err(misled());
        }
    }
}

/// Asks for the run that a key has started, one cell after the other, until one has it. Starts nothing, and writes no
/// row for a key that has no run.
pub async fn find(front: &Front, workflow: &str, key: &str, ask: ByKey) -> Result<Option<Response>, Refusal> {
    find_scoped(front, workflow, &scoped_key(workflow, key), ask).await
}

/// The same by a key as cells know it.
async fn find_scoped(
    front: &Front,
    workflow: &str,
    scoped: &str,
    ask: ByKey,
) -> Result<Option<Response>, Refusal> {
    let deployment = front.deployment();
    let key = scoped.strip_prefix(workflow).and_then(|key| key.strip_prefix('\n')).unwrap_or(scoped);
    let mut search = Search::new(&deployment.pool, spread(scoped), runtime::clock(), deployment.key_days);
    loop {
        let (workflow, key, ask) = (workflow.to_owned(), key.to_owned(), ask.clone());
        let response = front.ask(search.at(), Operation::ByKey { workflow, key, ask }).await?;
        let goes_on = if response.status == MOVED {
            moved_to(response).and_then(|to| search.sent_on(to)).ok_or_else(misled)?
        } else if response.status == Code::RunNotFound.status() {
            search.not_here()
        } else {
            return Ok(Some(response));
        };
        if !goes_on {
            return Ok(None);
        }
    }
}

/// What somebody is told whose key was sent where no key can be.
fn misled() -> Refusal {
    let detail = "A cell sent the key to a place where it cannot be. Check that no number in STEPWELL_CELLS was \
                  changed: a pool grows by another number at its end.";
    Refusal::new(Code::Internal, detail)
}

/// Where a cell says that a key has gone.
fn moved_to(response: Response) -> Option<Place> {
    let Moved { to } = json::from_str(&response.into_text()).ok()?;
    to.parse().ok()
}

/// Spreads keys, as cells know them, evenly and for ever in the same way.
fn spread(key: &str) -> u64 {
    let digest = Sha256::digest(key.as_bytes());
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}
