//! One input, and what becomes of it.

use std::{future::Future, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use futures::future::{BoxFuture, FutureExt as _};
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_refusal, expect_success, is_problem, run_id, shown},
    wire::{Act, Request, find},
};

/// What must become of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is accepted, and comes back as it was sent.
    Accepted,
    /// It is refused with a problem.
    Refused,
    /// It may be accepted, or refused with a problem.
    Either,
    /// It is no HTTP, or breaks off: the server may refuse it in its own words, before the Worker sees it.
    Server,
}

/// What is done, and what is wrong with what came of it.
type Doing = Box<dyn FnOnce(Arc<Bench>) -> BoxFuture<'static, Result<()>> + Send>;

/// One input.
pub struct Case {
    /// What it is called within its class.
    pub name: String,
    /// What must become of it.
    pub kind: Kind,
    doing: Doing,
}

impl Case {
    /// A case that takes more than one request.
    pub fn new<F, T>(kind: Kind, name: impl Into<String>, doing: F) -> Self
    where
        F: FnOnce(Arc<Bench>) -> T + Send + 'static,
        T: Future<Output = Result<()>> + Send + 'static,
    {
        Self { name: name.into(), kind, doing: Box::new(move |bench| doing(bench).boxed()) }
    }

    /// A request that is refused with one of these codes; with any, if none is named.
    pub fn refused(name: impl Into<String>, codes: &'static [Code], request: Request) -> Self {
        Self::new(Kind::Refused, name, move |bench| async move {
            expect_refusal(&bench.ask(&request).await?, codes)
        })
    }

    /// A request that is accepted.
    pub fn accepted(name: impl Into<String>, request: Request) -> Self {
        Self::new(
            Kind::Accepted,
            name,
            move |bench| async move { expect_success(&bench.ask(&request).await?) },
        )
    }

    /// A request that may be accepted or refused.
    pub fn either(name: impl Into<String>, request: Request) -> Self {
        Self::new(Kind::Either, name, move |bench| async move { bench.ask(&request).await.map(drop) })
    }

    /// Something on a socket that the server itself may refuse; if it does not, the Worker does.
    pub fn server(name: impl Into<String>, acts: Vec<Act>) -> Self {
        Self::new(Kind::Server, name, move |bench| async move {
            if let Some(answer) = bench.perform(&acts).await? {
                ensure!(answer.status >= 400, "{} is no refusal: {}", answer.status, shown(&answer.body));
            }
            Ok(())
        })
    }

    /// The same for what the server may also mend, so that it is accepted.
    pub fn server_or_good(name: impl Into<String>, acts: Vec<Act>) -> Self {
        Self::new(Kind::Server, name, move |bench| async move {
            if let Some(answer) = bench.perform(&acts).await? {
                ensure!(
                    answer.status < 400 || is_problem(&answer) || !answer.body.starts_with('{'),
                    "{} {}",
                    answer.status,
                    shown(&answer.body)
                );
            }
            Ok(())
        })
    }

    /// A payload that is accepted, and is the input and the output of its run, byte for byte.
    pub fn payload(name: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self::new(Kind::Accepted, name, move |bench| async move { comes_back(&bench, &body).await })
    }

    /// Does it.
    pub async fn run(self, bench: Arc<Bench>) -> Result<()> {
        (self.doing)(bench).await
    }
}

/// About how many bytes a run's input and output may have together.
const BOTH_BYTES_MAX: usize = 1_998_000;

/// Starts a run with a payload, and looks for it where it comes back.
pub async fn comes_back(bench: &Bench, body: &[u8]) -> Result<()> {
    let start = Request::post("/api/workflows/echo/start", body).header("Prefer", "wait=10");
    let answer = bench.ask(&start).await?;
    expect_success(&answer)?;
    // What stands around a value is no part of it; no value at all is null.
    let sent = bench.filled(body);
    let sent = sent.trim_ascii();
    let sent = if sent.is_empty() { b"null" } else { sent };
    // What a run was given and what it gives share a row.
    if 2 * sent.len() > BOTH_BYTES_MAX {
        ensure!(answer.body.contains("payload_too_large"), "it does not fit: {}", shown(&answer.body));
        return Ok(());
    }
    let is_there = |text: &str, before: &str, after: &str| {
        let wanted = [before.as_bytes(), sent, after.as_bytes()].concat();
        find(text.as_bytes(), &wanted).is_some()
    };
    ensure!(
        is_there(&answer.body, r#""output":"#, r#","expires_at""#),
        "it does not come back: {}",
        shown(&answer.body)
    );
    let history = Request::get(format!("/api/executions/{}/history", run_id_of(&answer.body)?));
    let history = bench.ask(&history).await?;
    ensure!(
        is_there(&history.body, r#"{"input":"#, r#","events""#),
        "its history has {}",
        shown(&history.body)
    );
    Ok(())
}

/// The id of a run that is too deep for a client to read.
fn run_id_of(body: &str) -> Result<&str> {
    let rest = body.strip_prefix(r#"{"id":""#).context("a run begins with its id")?;
    Ok(rest.split('"').next().unwrap_or_default())
}

/// Starts a run, and gives its id.
pub async fn start(bench: &Bench, workflow: &str, input: &str) -> Result<String> {
    let answer = bench.ask(&Request::post(format!("/api/workflows/{workflow}/start"), input)).await?;
    expect_success(&answer)?;
    run_id(&answer)
}
