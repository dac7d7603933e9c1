//! Just below, at and above every limit that a caller can reach.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::json;
use stepwell_protocol::{Code, program::PAYLOAD_BYTES_MAX, rest::Status, routes::Route};

use super::{
    bench::{Bench, expect_refusal, expect_success, shown},
    case::{Case, Kind, start},
    naughty::encoded,
    wire::Request,
};

/// Refused because it is no request.
const INVALID: &[Code] = &[Code::InvalidRequest];

/// Refused because it is too large.
const TOO_LARGE: &[Code] = &[Code::PayloadTooLarge];

/// All of them.
pub fn make(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        let run = start(&bench, "wait", "3600000").await?;
        bench.admin.until(&run, "waiting").await?;
        let mut cases = payloads(&run);
        cases.extend(names(&run));
        cases.extend(numbers(&run));
        cases.extend(addresses(&run));
        cases.extend(results());
        Ok(cases)
    }
    .boxed()
}

/// A string whose JSON has so many bytes.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

fn payloads(run: &str) -> Vec<Case> {
    let signal = format!("/api/executions/{run}/signals/large");
    let mut cases = Vec::new();
    for over in [-1_isize, 0, 1] {
        let bytes = PAYLOAD_BYTES_MAX.saturating_add_signed(over);
        if over <= 0 {
            cases.push(Case::payload(format!("input{over:+}"), text(bytes)));
            cases
                .push(Case::accepted(format!("signal{over:+}"), Request::post(signal.as_str(), text(bytes))));
        } else {
            let request = Request::post("/api/workflows/echo/start", text(bytes));
            cases.push(Case::refused(format!("input{over:+}"), TOO_LARGE, request));
            let request = Request::post(signal.as_str(), text(bytes));
            cases.push(Case::refused(format!("signal{over:+}"), TOO_LARGE, request));
        }
        // The most that is read of a body with a payload, and of any other.
        let bytes = Route::StartRun.body_bytes_max().saturating_add_signed(over);
        let request = Request::post("/api/workflows/echo/start", text(bytes));
        cases.push(Case::refused(format!("body{over:+}"), TOO_LARGE, request));
        let bytes = Route::StartBulk.body_bytes_max().saturating_add_signed(over);
        let code = if over > 0 { TOO_LARGE } else { INVALID };
        let request = Request::post("/api/bulk", text(bytes));
        cases.push(Case::refused(format!("bulk{over:+}"), code, request));
        let request = Request { method: "PUT".into(), ..Request::post("/api/settings", text(bytes)) };
        cases.push(Case::refused(format!("settings{over:+}"), code, request));
        let request = Request::post("/api/keys", text(bytes));
        cases.push(Case::refused(format!("key{over:+}"), code, request));
    }
    for mib in [4, 16] {
        let request = Request::post("/api/workflows/echo/start", text(mib << 20));
        cases.push(Case::refused(format!("body-{mib}-mib"), TOO_LARGE, request));
    }
    // Nobody who is still sending misses the answer, whichever route it is.
    for (name, bytes) in [("slightly", 70_000), ("far", 4 << 20)] {
        for path in ["/api/bulk", "/api/keys", "/api/session"] {
            let case = format!("{name}-too-large{}", path.replace('/', "-"));
            cases.push(Case::refused(case, TOO_LARGE, Request::post(path, text(bytes))));
        }
    }
    // Spaces around a value are read, but are no part of it.
    let padded = format!("{}1{}", " ".repeat(4_000), " ".repeat(4_000));
    cases.push(Case::payload("padded", padded));
    cases
}

fn names(run: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for length in [127, 128, 129] {
        let is_good = length <= 128;
        let name = "n".repeat(length);
        let request = Request::post(format!("/api/executions/{run}/signals/{name}"), "1");
        cases.push(limit(format!("signal-name-{length}"), is_good, request));
        let codes: &[_] = if is_good { &[Code::WorkflowNotFound] } else { INVALID };
        let request = Request::post(format!("/api/workflows/{name}/start"), "1").may_echo();
        cases.push(Case::refused(format!("workflow-name-{length}"), codes, request));
    }
    for length in [1, 255, 256, 257, 8_000] {
        let request = Request::post("/api/workflows/echo/start", "1");
        let request = request.header("Idempotency-Key", "k".repeat(length));
        cases.push(limit(format!("idempotency-key-{length}"), length <= 256, request));
        let request = Request::post(format!("/api/executions/{run}/signals/identified"), "1");
        let request = request.header("Idempotency-Key", "s".repeat(length));
        cases.push(limit(format!("signal-id-{length}"), length <= 256, request));
    }
    for length in [0, 1, 63, 64, 65] {
        let tag = "t".repeat(length);
        let request = Request::post(format!("/api/workflows/echo/start?tag={tag}"), "1");
        cases.push(limit(format!("tag-{length}"), (1..=64).contains(&length), request));
    }
    for length in [16, 17] {
        let tag = encoded(&"\u{1f600}".repeat(length));
        let request = Request::post(format!("/api/workflows/echo/start?tag={tag}"), "1");
        cases.push(limit(format!("wide-tag-{length}"), length <= 16, request));
    }
    for count in [7, 8, 9, 1_000] {
        let tags: Vec<_> = (0..count).map(|n| format!("tag=t{n}")).collect();
        let request = Request::post(format!("/api/workflows/echo/start?{}", tags.join("&")), "1");
        cases.push(limit(format!("{count}-tags"), count <= 8, request));
    }
    let tags = vec!["tag=same"; 100].join("&");
    let request = Request::post(format!("/api/workflows/echo/start?{tags}"), "1");
    cases.push(limit("same-tag-often", true, request));
    for count in [15, 16, 17] {
        let attributes: Vec<_> = (0..count).map(|n| format!("attribute=a{n}:x")).collect();
        let request = Request::get(format!("/api/executions?{}", attributes.join("&"))).may_echo();
        cases.push(limit(format!("{count}-attributes"), count <= 16, request));
    }
    for length in [255, 256, 257, 100_000] {
        let body = json!({ "from": { "step": "s".repeat(length) } }).to_string();
        let request = Request::post(format!("/api/executions/{run}/restart"), body).may_echo();
        cases.push(Case::refused(
            format!("step-name-{length}"),
            &[Code::StepNotFound, Code::InvalidRequest, Code::PayloadTooLarge],
            request,
        ));
    }
    cases
}

fn numbers(run: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (text, is_good) in [
        ("0", false),
        ("1", true),
        ("2", true),
        ("199", true),
        ("200", true),
        ("201", false),
        ("4294967296", false),
    ] {
        let request = Request::get(format!("/api/executions?limit={text}")).may_echo();
        cases.push(limit(format!("limit-{text}"), is_good, request));
    }
    for text in ["0", "1", "9007199254740991", "9007199254740993", "253402300799999", "253402300800000"] {
        for name in ["from", "until"] {
            let request = Request::get(format!("/api/executions?{name}={text}"));
            cases.push(limit(format!("{name}-{text}"), true, request));
        }
    }
    for (text, is_good) in [("18446744073709551615", true), ("18446744073709551616", false), ("-1", false)] {
        let request = Request::get(format!("/api/executions?from={text}")).may_echo();
        cases.push(limit(format!("from-{text}"), is_good, request));
    }
    for (text, is_good) in [("0", true), ("4294967294", true), ("4294967295", true), ("4294967296", false)] {
        let request = Request::get(format!("/api/executions/{run}/history?after={text}"));
        cases.push(limit(format!("after-{text}"), is_good, request));
        let body = format!(r#"{{"from":{{"step":"none","occurrence":{text}}}}}"#);
        let request = Request::post(format!("/api/executions/{run}/restart"), body).may_echo();
        let codes: &[_] = if is_good { &[Code::StepNotFound] } else { INVALID };
        cases.push(Case::refused(format!("occurrence-{text}"), codes, request));
    }
    for (text, is_good) in [
        ("0", true),
        ("299", true),
        ("300", true),
        ("301", true),
        ("18446744073709551615", true),
        ("18446744073709551616", false),
        ("-1", false),
        ("1.5", false),
        ("", false),
        ("CANARY", false),
    ] {
        let request =
            Request::post("/api/workflows/echo/start", "1").header("Prefer", format!("wait={text}"));
        cases.push(limit(format!("wait-{text}"), is_good, request));
    }
    cases
}

fn addresses(run: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in [1_000, 8_000, 16_000, 32_000, 60_000] {
        let long = "u".repeat(bytes);
        let request = Request::get(format!("/api/executions?workflow={long}"));
        cases.push(Case::either(format!("query-{bytes}"), request));
        let request = Request::get(format!("/api/executions/{long}"));
        cases.push(Case::refused(format!("id-{bytes}"), &[Code::RunNotFound, Code::InvalidRequest], request));
        let request = Request::get(format!("/api/executions/{run}?{long}=1"));
        cases.push(Case::either(format!("unknown-{bytes}"), request));
        let request = Request::get("/api/executions").header("X-Long", long.clone());
        cases.push(Case::either(format!("header-{bytes}"), request));
        let request = Request::get("/api/executions").header("Prefer", long.clone());
        cases.push(Case::either(format!("prefer-{bytes}"), request));
        let request = Request::get("/api/executions").header("Authorization", format!("Bearer {long}"));
        cases.push(Case::refused(format!("bearer-{bytes}"), &[Code::Unauthorized], request));
        let request = Request::get(format!("/api/executions?{long}=1")).may_echo();
        cases.push(Case::refused(format!("parameter-{bytes}"), INVALID, request));
        let request = Request::get(format!("/api/executions/{run}/stream?{long}=1")).may_echo();
        cases.push(Case::refused(format!("stream-parameter-{bytes}"), INVALID, request));
        let request = Request::get(format!("/api/executions?status={long}")).may_echo();
        cases.push(Case::refused(format!("status-{bytes}"), INVALID, request));
    }
    for count in [10, 100, 500] {
        let mut request = Request::get("/api/executions");
        for n in 0..count {
            request = request.header(&format!("X-Header-{n}"), "CANARY");
        }
        cases.push(Case::either(format!("{count}-headers"), request));
    }
    cases
}

/// What steps and workflows give back.
fn results() -> Vec<Case> {
    [(PAYLOAD_BYTES_MAX - 3, true), (PAYLOAD_BYTES_MAX - 2, true), (PAYLOAD_BYTES_MAX - 1, false)]
        .into_iter()
        .map(|(length, fits)| {
            Case::new(Kind::Either, format!("step-result-{length}"), move |bench| async move {
                let request = Request::post("/api/workflows/many/start", format!("[1,{length}]"));
                let run = bench.ask(&request.header("Prefer", "wait=10")).await?.json()?;
                let wanted = if fits { Status::Completed } else { Status::Failed };
                ensure!(run["status"] == wanted.as_str(), "{}", shown(&run.to_string()));
                Ok(())
            })
        })
        .collect()
}

/// A request that is within a limit, or is not.
fn limit(name: impl Into<String>, is_good: bool, request: Request) -> Case {
    let kind = if is_good { Kind::Accepted } else { Kind::Refused };
    Case::new(kind, name, move |bench| async move {
        let answer = bench.ask(&request).await?;
        if is_good { expect_success(&answer) } else { expect_refusal(&answer, INVALID) }
    })
}
