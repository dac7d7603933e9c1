//! JSON that is good and hard to carry: deep, with keys that come twice, with numbers and characters that not every
//! reader can hold. And the same where Stepwell reads it.

use anyhow::{Result, ensure};
use serde_json::json;
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_success},
    case::{Case, Kind, start},
    wire::{Request, find},
};

/// All of them.
pub fn make(_: &Bench) -> Vec<Case> {
    let mut cases = Vec::new();
    for depth in [1, 10, 64, 127, 128, 129, 255, 512, 999, 1_000, 1_001, 2_000, 10_000, 100_000] {
        cases.push(Case::payload(format!("arrays-{depth}"), arrays(depth)));
        cases.push(Case::payload(format!("objects-{depth}"), objects(depth)));
    }
    for depth in [128, 1_001, 100_000] {
        let open = Request::post("/api/workflows/echo/start", "[".repeat(depth));
        cases.push(Case::refused(format!("open-arrays-{depth}"), &[Code::InvalidRequest], open));
        let open = Request::post("/api/workflows/echo/start", r#"{"a":"#.repeat(depth));
        cases.push(Case::refused(format!("open-objects-{depth}"), &[Code::InvalidRequest], open));
        let crossed = format!("{}{}", "[".repeat(depth), "}".repeat(depth));
        let crossed = Request::post("/api/workflows/echo/start", crossed);
        cases.push(Case::refused(format!("crossed-{depth}"), &[Code::InvalidRequest], crossed));
        for (name, path) in
            [("restart", "/api/executions/default-1-0-1-000000000000/restart"), ("bulk", "/api/bulk")]
        {
            let request = Request::post(path, arrays(depth));
            // The deepest have more bytes than these routes read.
            let codes = &[Code::InvalidRequest, Code::PayloadTooLarge];
            cases.push(Case::refused(format!("{name}-{depth}"), codes, request));
            let body =
                format!(r#"{{"from":{},"filter":{},"action":"cancel"}}"#, objects(depth), objects(depth));
            let request = Request::post(path, body).may_echo();
            cases.push(Case::refused(format!("{name}-field-{depth}"), codes, request));
        }
    }
    for depth in [129, 1_001, 100_000] {
        cases.push(Case::new(Kind::Accepted, format!("signal-{depth}"), move |bench| async move {
            taken_back(&bench, &objects(depth)).await
        }));
    }
    for (name, text) in PAYLOADS {
        cases.push(Case::payload(*name, *text));
        cases.push(Case::new(Kind::Accepted, format!("signal-{name}"), move |bench| async move {
            taken_back(&bench, text).await
        }));
    }
    let many = (0..50_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    cases.push(Case::payload("many-elements", format!("[{many}]")));
    let many = (0..50_000).map(|n| format!(r#""k{n}":{n}"#)).collect::<Vec<_>>().join(",");
    cases.push(Case::payload("many-keys", format!("{{{many}}}")));
    cases.push(Case::payload("many-escapes", format!("\"{}\"", r"\u0000".repeat(100_000))));
    cases.push(Case::payload("much-space", format!("[{}1]", " ".repeat(1_000_000))));
    cases.push(Case::payload("long-number", "1".repeat(100_000)));
    cases.push(Case::payload("long-fraction", format!("0.{}1", "0".repeat(100_000))));
    cases.push(Case::payload("long-exponent", format!("1e{}", "9".repeat(1_000))));
    cases.push(Case::payload("long-key", format!(r#"{{"{}":1}}"#, "k".repeat(100_000))));
    cases
}

const PAYLOADS: &[(&str, &str)] = &[
    ("twice", r#"{"a":"CANARY","a":1,"a":null}"#),
    ("twice-escaped", r#"{"a":1,"\u0061":2,"CANARY":3}"#),
    ("too-large-a-number", r#"["CANARY",1e400,-1e400]"#),
    ("beyond-2-to-53", r#"["CANARY",9007199254740993,-9007199254740993,123456789012345678901234567890]"#),
    ("nul", r#"{"\u0000":"CANARY\u0000"}"#),
    ("half-a-pair", r#"["CANARY","\ud800","\udfff\ud800"]"#),
    ("line-breaks", "[\"CANARY\",\n1,\r\n2,\r3]"),
    (
        "like-an-event",
        r#"{"step_finished":{"op":"step:0:first","attempt":1,"outcome":{"err":{"message":"CANARY"}}}}"#,
    ),
    ("like-an-outcome", r#"["CANARY","\"outcome\":{\"err\":",{"outcome":{"err":{}}}]"#),
];

fn arrays(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

fn objects(depth: usize) -> String {
    format!(r#"{}"CANARY"{}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth))
}

/// Sends a run a payload, and lets people do all to the run that reads its journal.
async fn taken_back(bench: &Bench, payload: &str) -> Result<()> {
    let run = start(bench, "found", "[]").await?;
    bench.admin.until(&run, "waiting").await?;
    let path = format!("/api/executions/{run}");
    for (what, body) in [("signals/other", payload), ("pause", "")] {
        expect_success(&bench.ask(&Request::post(format!("{path}/{what}"), body)).await?)?;
    }
    let step = json!({ "from": { "step": "first" } }).to_string();
    for body in [step.as_str(), ""] {
        expect_success(&bench.ask(&Request::post(format!("{path}/restart"), body)).await?)?;
        bench.admin.until(&run, "waiting").await?;
        expect_success(&bench.ask(&Request::post(format!("{path}/pause"), "")).await?)?;
    }
    let history = bench.ask(&Request::get(format!("{path}/history"))).await?;
    let sent = bench.filled(payload.as_bytes());
    ensure!(find(history.body.as_bytes(), &sent).is_some(), "the history does not have it");
    let stream = bench.ask(&Request::get(format!("{path}/stream?types=signal"))).await?;
    // There, line breaks between values become spaces, and what is large is left out.
    let sent = String::from_utf8(sent)?.replace("\r\n", " ").replace(['\r', '\n'], " ");
    let is_shown = stream.body.contains(&sent) || stream.body.contains("left_out_bytes");
    ensure!(is_shown, "the stream does not have it");
    // The workflow waits for a number, fails of it, and of it again. A run that is paused takes any signal.
    for (what, body) in [("signals/go", payload), ("resume", "")] {
        expect_success(&bench.ask(&Request::post(format!("{path}/{what}"), body)).await?)?;
    }
    bench.admin.until(&run, "failed").await?;
    expect_success(&bench.ask(&Request::post(format!("{path}/retry"), "")).await?)?;
    bench.admin.until(&run, "failed").await.map(drop)
}
