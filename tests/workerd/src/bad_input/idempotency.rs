//! Idempotency keys: missing where one is needed, in use, used for something else, and none at all.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Result, ensure};
use futures::future::join_all;
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_refusal, expect_success, run_id},
    case::{Case, Kind},
    wire::Request,
};

const INVALID: &[Code] = &[Code::InvalidRequest];
const MISSING: &[Code] = &[Code::IdempotencyKeyMissing];
const REUSED: &[Code] = &[Code::IdempotencyKeyReused];

/// All of them.
pub fn make(_: &Bench) -> Vec<Case> {
    let keyed = |body: &str| Request::post("/api/workflows/keyed/start", body);
    let bulk = r#"{"action":"cancel","filter":{"tag":"nobody has it"}}"#;
    let mut cases = vec![
        Case::refused("missing", MISSING, keyed("1")),
        Case::refused("missing-with-wait", MISSING, keyed("1").header("Prefer", "wait=1")),
        Case::refused("missing-other-header", MISSING, keyed("1").header("X-Idempotency-Key", "CANARY")),
        Case::refused(
            "missing-in-the-query",
            MISSING,
            Request::post("/api/workflows/keyed/start?idempotency_key=a", "1"),
        ),
        Case::refused("empty", INVALID, keyed("1").header("Idempotency-Key", "")),
        Case::refused("spaces", INVALID, keyed("1").header("Idempotency-Key", "   ")),
        // No path can name these: `by-key/%2e/signals/cancel` would cancel the run of the key `signals`.
        Case::refused("dot", INVALID, keyed("1").header("Idempotency-Key", ".")),
        Case::refused("two-dots", INVALID, keyed("1").header("Idempotency-Key", "..")),
        Case::refused("not-ascii", INVALID, keyed("1").header("Idempotency-Key", "é")),
        Case::refused("not-text", INVALID, keyed("1").header("Idempotency-Key", b"\xff\xfe".to_vec())),
        Case::refused("too-long", INVALID, keyed("1").header("Idempotency-Key", "CANARY".repeat(50))),
        Case::refused("far-too-long", INVALID, keyed("1").header("Idempotency-Key", "k".repeat(30_000))),
        Case::refused("bad-body", INVALID, keyed("{").header("Idempotency-Key", "idem-bad-body")),
        Case::either(
            "twice",
            keyed("1").header("Idempotency-Key", "idem-a").header("Idempotency-Key", "idem-b"),
        ),
    ];
    // After what was refused, the key is free.
    cases.push(Case::new(Kind::Accepted, "free-after-a-refusal", |bench| async move {
        let request = |body: &str| {
            Request::post("/api/workflows/echo/start", body).header("Idempotency-Key", "idem-free-again")
        };
        expect_refusal(&bench.ask(&request("{")).await?, INVALID)?;
        let answer = bench.ask(&request("{}")).await?;
        ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
        Ok(())
    }));
    for (name, second) in [
        ("other-input", Request::post("/api/workflows/echo/start", "2")),
        ("a-space-more", Request::post("/api/workflows/echo/start", "[1 ]")),
        ("no-input", Request::post("/api/workflows/echo/start", "")),
    ] {
        cases.push(reused(name, second));
    }
    for (name, second) in [
        ("other-workflow", Request::post("/api/workflows/ten/start", "[1]")),
        ("a-bulk", Request::post("/api/bulk", bulk)),
    ] {
        cases.push(of_another_workflow(name, second));
    }
    cases.push(Case::new(Kind::Accepted, "case-counts", |bench| async move {
        let request = |key| Request::post("/api/workflows/echo/start", "1").header("Idempotency-Key", key);
        let (one, other) = (bench.ask(&request("idem-Case")).await?, bench.ask(&request("idem-case")).await?);
        ensure!(run_id(&one)? != run_id(&other)?, "they lead to the same run");
        Ok(())
    }));
    cases.extend(by_key());
    cases.push(Case::new(Kind::Accepted, "all-at-once", |bench| async move { all_at_once(bench).await }));
    cases.push(Case::new(Kind::Refused, "in-flight", |bench| async move { in_flight(bench).await }));
    cases.push(Case::new(Kind::Refused, "signal-id-not-text", |bench| async move {
        let run = super::case::start(&bench, "wait", "3600000").await?;
        let signal = Request::post(format!("/api/executions/{run}/signals/x"), "1");
        for key in [b"".to_vec(), b"\xff".to_vec(), vec![b'k'; 257]] {
            let answer = bench.ask(&signal.clone().header("Idempotency-Key", key)).await?;
            expect_refusal(&answer, INVALID)?;
        }
        ensure!(bench.admin.history(&run).await?.is_empty(), "something was recorded");
        Ok(())
    }));
    cases
}

/// Keys in paths.
fn by_key() -> Vec<Case> {
    const NO_ROUTE: &[Code] = &[Code::RouteNotFound];
    const NO_RUN: &[Code] = &[Code::RunNotFound];
    let long = "k".repeat(10_000);
    let mut cases = Vec::new();
    for (name, key, codes) in [
        ("nothing", "", NO_ROUTE),
        ("a-slash", "/", NO_ROUTE),
        ("slashes", "acme/2026/order-7", NO_ROUTE),
        ("encoded-slashes", "acme%2F2026%2Forder-7", NO_RUN),
        ("encoded-signal", "order-7%2Fsignals%2Fgo", NO_RUN),
        ("dots", "..", NO_ROUTE),
        ("encoded-dots", "%2e%2E", NO_ROUTE),
        ("dots-and-a-slash", "..%2F..%2Fkeys", NO_RUN),
        ("too-long", long.as_str(), INVALID),
        ("nul", "%00", INVALID),
        ("nul-inside", "order%00-7", INVALID),
        ("line-feed", "order%0A7", INVALID),
        ("delete", "order%7F7", INVALID),
        ("not-ascii", "%C3%A9", INVALID),
        ("not-text", "%FF%FE", INVALID),
        ("overlong", "%C0%AF", INVALID),
        ("half-a-percent", "order%", NO_RUN),
        ("percent-twice", "order%252F7", NO_RUN),
        ("plus", "order+7", NO_RUN),
        ("canary", "CANARY", NO_RUN),
    ] {
        let path = format!("/api/workflows/wait/by-key/{key}");
        cases.push(Case::refused(format!("by-key-{name}"), codes, Request::get(path.as_str())));
        let cancel = Request::post(format!("{path}/cancel"), "");
        cases.push(Case::refused(format!("by-key-cancel-{name}"), codes, cancel));
        let signal = Request::post(format!("{path}/signals/go"), "\"CANARY\"");
        cases.push(Case::refused(format!("by-key-signal-{name}"), codes, signal));
    }
    let to = |path: &str| Request::post(format!("/api/workflows/{path}"), "1");
    cases.extend([
        Case::refused("by-key-no-workflow", NO_ROUTE, to("/by-key/k/cancel")),
        Case::refused("by-key-bad-workflow", INVALID, to("a%0Ab/by-key/k/cancel")),
        Case::refused("by-key-long-workflow", INVALID, to(&format!("{long}/by-key/k/cancel"))),
        Case::refused("by-key-no-signal", NO_ROUTE, to("wait/by-key/k/signals/")),
        Case::refused("by-key-bad-signal", INVALID, to("wait/by-key/k/signals/%00")),
        Case::refused(
            "by-key-bad-wait",
            INVALID,
            Request::get("/api/workflows/wait/by-key/k").header("Prefer", "wait=x"),
        ),
    ]);
    // The key of one workflow cannot be made to look like that of another.
    cases.push(Case::new(Kind::Refused, "by-key-joined", |bench| async move {
        let start = Request::post("/api/workflows/echo/start", "1").header("Idempotency-Key", "idem-joined");
        expect_success(&bench.ask(&start).await?)?;
        for path in
            ["echo/by-key/idem-joined%0A", "ech/by-key/o%0Aidem-joined", "echo%0Aidem-joined/by-key/x"]
        {
            let answer = bench.ask(&Request::get(format!("/api/workflows/{path}"))).await?;
            expect_refusal(&answer, INVALID)?;
        }
        let found = bench.ask(&Request::get("/api/workflows/echo/by-key/idem-joined")).await?;
        expect_success(&found)
    }));
    cases
}

/// The same key for something else.
fn reused(name: &'static str, second: Request) -> Case {
    Case::new(Kind::Refused, name, move |bench| async move {
        let key = format!("idem-{name}");
        let first = Request::post("/api/workflows/echo/start", "[1]").header("Idempotency-Key", key.as_str());
        let (first, again) = (bench.ask(&first).await?, bench.ask(&first).await?);
        expect_success(&first)?;
        ensure!(run_id(&first)? == run_id(&again)?, "it leads to another run");
        expect_refusal(&bench.ask(&second.header("Idempotency-Key", key.as_str())).await?, REUSED)
    })
}

/// The same key for another workflow: that is another key.
fn of_another_workflow(name: &'static str, second: Request) -> Case {
    Case::new(Kind::Accepted, name, move |bench| async move {
        let key = format!("idem-{name}");
        let first = Request::post("/api/workflows/echo/start", "[1]").header("Idempotency-Key", key.as_str());
        let second = second.header("Idempotency-Key", key.as_str());
        let (first, second, again) =
            (bench.ask(&first).await?, bench.ask(&second).await?, bench.ask(&second).await?);
        ensure!(run_id(&first)? != run_id(&second)?, "it leads to the run of another workflow");
        ensure!(run_id(&second)? == run_id(&again)?, "it leads to another run");
        Ok(())
    })
}

async fn all_at_once(bench: Arc<Bench>) -> Result<()> {
    let request =
        Request::post("/api/workflows/echo/start", "1").header("Idempotency-Key", "idem-all-at-once");
    let answers = join_all((0..20).map(|_| bench.ask(&request))).await;
    let mut runs = BTreeSet::new();
    let mut created = 0;
    for answer in answers {
        let answer = answer?;
        expect_success(&answer)?;
        created += usize::from(answer.status == 201);
        runs.insert(run_id(&answer)?);
    }
    ensure!((runs.len(), created) == (1, 1), "{} runs, {created} times created", runs.len());
    Ok(())
}

/// The first request waits for the end of its run, and the second one would, too.
async fn in_flight(bench: Arc<Bench>) -> Result<()> {
    let request = Request::post("/api/workflows/keyed/start?tag=in-flight", "3600000")
        .header("Idempotency-Key", "idem-in-flight");
    let waiting = {
        let (bench, request) = (bench.clone(), request.clone().header("Prefer", "wait=10"));
        tokio::spawn(async move { bench.ask(&request).await })
    };
    // Whoever does not wait gets the run, once it is there.
    let run = loop {
        let list = bench.admin.get("/api/executions?tag=in-flight&status=waiting").await?.json()?;
        if let Some(id) = list["executions"][0]["id"].as_str() {
            break id.to_owned();
        }
        ensure!(!waiting.is_finished(), "the first request has ended");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let refused = bench.ask(&request.clone().header("Prefer", "wait=10")).await?;
    let now = bench.ask(&request).await?;
    let go = Request::post(format!("/api/executions/{run}/signals/go"), "\"CANARY\"");
    expect_success(&bench.ask(&go).await?)?;
    expect_success(&waiting.await??)?;
    expect_success(&now)?;
    expect_refusal(&refused, &[Code::IdempotencyKeyInFlight])
}
