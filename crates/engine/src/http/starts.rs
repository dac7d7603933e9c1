//! Starting a run: which cells are asked, and in which order.
//!
//! A run without a key goes to any cell of the latest generation. A key leads to one run for ever: it is
//! looked for where it was at home before the pool grew, and sent on from there ([`Walk`]). It belongs to a workflow:
//! whoever may start one workflow learns nothing about the keys of another, and takes none of them away.

use std::collections::BTreeSet;

use axum::{body::to_bytes, response::Response};
use http::StatusCode;
use stepwell_core::{
    cell::scoped_key,
    pools::{Ask, Walk},
};
use stepwell_protocol::{Code, Payload, Place, RunId};

use super::{
    error::Refusal,
    forward::{Front, Terms},
    generations,
};
use crate::{
    cell::{Moved, Operation, fingerprint},
    runtime,
};

/// How many cells a run without a key is offered to, if they are full.
const CELLS_TRIED_MAX: usize = 4;

/// A run that somebody wants.
pub struct Wanted {
    /// The workflow to run.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// The idempotency key.
    pub key: Option<String>,
    /// What this request is known by if it is delivered to a cell twice: see [`nonce`].
    pub nonce: String,
    /// How it is treated.
    pub terms: Terms,
    /// What people call it by.
    pub tags: Vec<String>,
    /// How long the caller waits for the end.
    pub wait_ms: u64,
}

impl Wanted {
    /// The key as cells know it: it belongs to this workflow.
    fn scoped_key(&self) -> Option<String> {
        self.key.as_ref().map(|key| scoped_key(&self.workflow, key))
    }

    fn operation(&self) -> Operation {
        Operation::Start {
            workflow: self.workflow.clone(),
            input: self.input.clone(),
            key: self.scoped_key(),
            nonce: Some(self.nonce.clone()),
            dispatch: self.terms.dispatch,
            timeout_ms: self.terms.timeout_ms,
            retention_ms: self.terms.retention_ms,
            retention_is_default: self.terms.retention_is_default,
            tags: self.tags.clone(),
            is_strict: self.terms.key_required,
            wait_ms: self.wait_ms,
        }
    }
}

/// What a client request is known by. To be drawn once for each: if the connection to a cell breaks, the runtime may
/// deliver the same call again, and what it does must happen once.
pub fn nonce() -> String {
    RunId::suffix_from(runtime::random())
}

/// Starts a run, or finds the one that its key has started.
pub async fn start(front: &Front, wanted: &Wanted) -> Result<Response, Refusal> {
    generations::tell(front).await?;
    match wanted.scoped_key() {
        Some(key) => keyed(front, &key, wanted).await,
        None if wanted.terms.key_required => {
            let detail = "Runs of this workflow are started only with an `Idempotency-Key`. Send one that is new for \
                          each run that you want, and the same again when you repeat the request.";
            Err(Refusal::new(Code::IdempotencyKeyMissing, detail))
        }
        None => unkeyed(front, wanted).await,
    }
}

async fn unkeyed(front: &Front, wanted: &Wanted) -> Result<Response, Refusal> {
    let (mut tried, mut place) = (BTreeSet::new(), front.any_cell());
    loop {
        let response = front.ask(&place, wanted.operation()).await?;
        tried.insert(place);
        if response.status() != StatusCode::INSUFFICIENT_STORAGE || tried.len() == CELLS_TRIED_MAX {
            return Ok(response);
        }
        let others = (0..CELLS_TRIED_MAX * 4).map(|_| front.any_cell());
        match others.into_iter().find(|other| !tried.contains(other)) {
            Some(other) => place = other,
            None => return Ok(response),
        }
    }
}

async fn keyed(front: &Front, key: &str, wanted: &Wanted) -> Result<Response, Refusal> {
    let mut walk = Walk::new(front.pool(), spread(key), runtime::clock(), front.key_days());
    loop {
        let response = match walk.ask() {
            Ask::Start { at } => front.ask(&at, wanted.operation()).await?,
            Ask::Reserve { at, to } => {
                let reserve = Operation::Reserve {
                    key: key.to_owned(),
                    fingerprint: fingerprint(&wanted.workflow, &wanted.input),
                    to: to.to_string(),
                    wait_ms: wanted.wait_ms,
                };
                front.ask(&at, reserve).await?
            }
        };
        if response.status() != StatusCode::PERMANENT_REDIRECT {
            return Ok(response);
        }
        let to = moved_to(response).await;
        if !to.is_some_and(|to| walk.sent_on(to)) {
            let detail = "A cell sent the key to a place where it cannot be. Check that no number in \
                          STEPWELL_CELLS was changed: a pool grows by another number at its end.";
            return Err(Refusal::new(Code::Internal, detail));
        }
    }
}

async fn moved_to(response: Response) -> Option<Place> {
    let body = to_bytes(response.into_body(), usize::MAX).await.ok()?;
    let Moved { to } = serde_json::from_slice(&body).ok()?;
    to.parse().ok()
}

/// Spreads keys evenly and for ever in the same way.
fn spread(key: &str) -> u64 {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(key.as_bytes());
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}
