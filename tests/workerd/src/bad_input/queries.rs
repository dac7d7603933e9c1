//! Cursors that nobody gave out, and filters that mean nothing.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::future::{BoxFuture, FutureExt as _};
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_refusal, shown},
    case::{Case, Kind, start},
    naughty::encoded,
    wire::Request,
};

const INVALID: &[Code] = &[Code::InvalidRequest];

/// All of them.
pub fn make(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        for _ in 0..4 {
            start(&bench, "echo", "1").await?;
        }
        let run = start(&bench, "echo", "1").await?;
        let page = bench.admin.get("/api/executions?limit=2").await?.json()?;
        let cursor = page["cursor"].as_str().context("there is another page")?.to_owned();
        let mut cases = cursors(&cursor);
        cases.extend(filters());
        cases.extend(others(&run));
        Ok(cases)
    }
    .boxed()
}

fn list(query: &str) -> Request {
    Request::get(format!("/api/executions?{query}")).may_echo()
}

fn cursors(good: &str) -> Vec<Case> {
    let pack = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let refused = [
        "!".to_owned(),
        "CANARY".into(),
        good[..good.len() - 1].to_owned(),
        format!("{good}A"),
        format!("{good}="),
        format!("{good}%00"),
        good.to_lowercase(),
        pack(""),
        pack("null"),
        pack("1"),
        pack("[]"),
        pack("\"CANARY\""),
        pack("{"),
        pack(r#"{"1-0":"1"}"#),
        pack(r#"{"1-0":-1}"#),
        pack(r#"{"1-0":1.5}"#),
        pack(r#"{"1-0":null}"#),
        pack(r#"{"1-0":18446744073709551616}"#),
        pack(r#"{"1-0":1e400}"#),
        pack(r#"{"1-0":1}x"#),
        pack("\u{0}"),
        pack(&"[".repeat(10_000)),
        "A".repeat(10_000),
    ];
    let mut cases: Vec<_> = refused
        .into_iter()
        .enumerate()
        .map(|(number, cursor)| {
            Case::refused(format!("cursor-{number}"), INVALID, list(&format!("cursor={cursor}")))
        })
        .collect();
    // Places that there are none of, and numbers that no run has: an empty page, or all of them.
    let harmless = [
        pack("{}"),
        pack(r#"{"CANARY":1}"#),
        pack(r#"{"1-0":0}"#),
        pack(r#"{"1-0":1}"#),
        pack(r#"{"1-0":9007199254740993,"1-1":18446744073709551615}"#),
        pack(r#"{"1-99999":5,"99-0":5,"0-0":5}"#),
        pack(r#"{"0":5}"#),
        pack(r#"{"1-0' OR 1=1":5}"#),
        pack(r#"{"__proto__":5}"#),
        pack(r#"{"1-0":5,"1-0":6}"#),
        pack(&format!("{{{}}}", (0..2_000).map(|n| format!("\"1-{n}\":1")).collect::<Vec<_>>().join(","))),
    ];
    for (number, cursor) in harmless.into_iter().enumerate() {
        let request = list(&format!("cursor={cursor}"));
        cases.push(Case::new(Kind::Accepted, format!("made-up-cursor-{number}"), move |bench| async move {
            let page = bench.ask(&request).await?.json()?;
            ensure!(page["executions"].is_array(), "{}", shown(&page.to_string()));
            Ok(())
        }));
    }
    cases
}

/// Queries of lists that mean nothing.
const MEANINGLESS: &[&str] = &[
    "colour=red",
    "CANARY=1",
    "=1",
    "&&=",
    "Status=failed",
    "status[]=failed",
    "status=",
    "status=FAILED",
    "status=failed%20",
    "status=failed,gone",
    "status=failed,,running",
    "status=,",
    "id=",
    "id=CANARY",
    "error=",
    "retrying=",
    "retrying=yes",
    "min_duration_ms=-1",
    "min_duration_ms=5m",
    "ended_from=now",
    "ended_until=1.5",
    "status=failed%00",
    "status=1",
    "limit=",
    "limit=ten",
    "limit=-1",
    "limit=1.0",
    "limit=1e2",
    "limit=0x10",
    "limit=+1%20",
    "limit=%31%00",
    "limit=99999999999999999999",
    "from=",
    "from=now",
    "from=1.5",
    "from=1e3",
    "from=2026-01-01",
    "until=-0.1",
    "until=NaN",
    "until=Infinity",
    "attribute=",
    "attribute=a",
    "attribute=%00",
    "limit=1&limit=0",
    "workflow=echo&colour=red",
    "__proto__=1",
    "constructor=1",
    "order=asc;DROP%20TABLE%20runs",
    "offset=1",
];

fn filters() -> Vec<Case> {
    let mut cases: Vec<_> = MEANINGLESS
        .iter()
        .enumerate()
        .map(|(number, query)| Case::refused(format!("filter-{number}"), INVALID, list(query)))
        .collect();
    // What means something, and fits nothing.
    for (number, text) in [
        "' OR '1'='1",
        "%",
        "_",
        "*",
        "\u{0}",
        "null",
        "echo'--",
        "ECHO",
        "echo ",
        "\u{ff45}cho",
        "echo\u{0}",
    ]
    .into_iter()
    .enumerate()
    {
        let value = encoded(text);
        for query in [
            format!("workflow={value}"),
            format!("tag={value}&workflow=ten"),
            format!("attribute={value}:{value}"),
            format!("attribute=a:{value}&status=completed"),
        ] {
            let name = format!("fits-nothing-{}-{number}", query.split('=').next().unwrap_or_default());
            let name = if query.contains("status") { format!("{name}-status") } else { name };
            let request = list(&query);
            cases.push(Case::new(Kind::Accepted, name, move |bench| async move {
                let page = bench.ask(&request).await?.json()?;
                let count = page["executions"].as_array().map(Vec::len);
                ensure!(count == Some(0), "it finds {}", shown(&page.to_string()));
                Ok(())
            }));
        }
    }
    for (number, query) in [
        "",
        "&",
        "&&&",
        "workflow=",
        "tag=",
        "from=0&until=0",
        "from=9&until=1",
        "workflow=a&workflow=echo",
        "limit=%31",
    ]
    .into_iter()
    .enumerate()
    {
        cases.push(Case::either(format!("odd-filter-{number}"), list(query)));
    }
    cases
}

/// The other routes that have parameters.
fn others(run: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, after) in [
        "-1",
        "",
        "CANARY",
        "1.5",
        "1e1",
        "0x1",
        "%31",
        "4294967296",
        "99999999999999999999",
        "%00",
        "1%00",
        "' OR 1=1",
    ]
    .into_iter()
    .enumerate()
    {
        let after = after.replace(' ', "%20");
        let request = Request::get(format!("/api/executions/{run}/history?after={after}"));
        cases.push(Case::new(Kind::Either, format!("after-{number}"), move |bench| async move {
            let answer = bench.ask(&request).await?;
            if answer.status < 400 { Ok(()) } else { expect_refusal(&answer, INVALID) }
        }));
    }
    for (number, query) in
        ["status=failed", "CANARY=1", "workflow=a&limit=1", "=", "Workflow=a"].into_iter().enumerate()
    {
        let request = Request::get(format!("/api/metrics?{query}"));
        cases.push(Case::refused(format!("metrics-{number}"), INVALID, request));
    }
    for (number, before) in
        ["-1", "", "CANARY", "1.5", "9007199254740993", "18446744073709551616"].into_iter().enumerate()
    {
        let request = Request::get(format!("/api/audit?before={before}"));
        cases.push(Case::refused(format!("audit-{number}"), INVALID, request));
    }
    for (number, query) in ["replay=CANARY", "replay=1", "replay", "replay=true&replay=false", "x=CANARY"]
        .into_iter()
        .enumerate()
    {
        let request = Request::get(format!("/api/executions/{run}/history?{query}"));
        cases.push(Case::either(format!("history-{number}"), request));
    }
    cases
}
