//! Streams: cursors that nobody gave out, types that there are none of, and handshakes that are none.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::{BoxFuture, FutureExt as _};
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_success, shown},
    case::{Case, Kind, start},
    naughty::encoded,
    wire::{Act, Request},
};

const INVALID: &[Code] = &[Code::InvalidRequest];

/// What is no cursor of a run's stream, nor of that of all runs.
const NO_CURSORS: &[&str] = &[
    " ",
    "CANARY",
    "1",
    "1.2",
    "1.2.3.4",
    "-1.0.0",
    "1.2.-3",
    "+1.0.0",
    " 1.0.0",
    "1.0.0 ",
    "1..0",
    "...",
    "a.b.c",
    "1,2,3",
    "4294967296.0.0",
    "0.4294967296.0",
    "0.0.9007199254740993",
    "0.0.18446744073709551616",
    "1.0.0\u{0}",
    "1e1.0.0",
    "0x1.0.0",
    "\u{661}.0.0",
    "Start",
    "start ",
    "1-0",
    "1-0:",
    "1-0:x",
    "1-0:-1",
    ":5",
    "-:5",
    "1-0:5,",
    ",1-0:5",
    "1-0:5;1-1:5",
    "1-0:5,,1-1:5",
    "1:5",
    "1-0-0:5",
    "1-0:9007199254740993",
    "4294967296-0:5",
    "' OR 1=1--",
    "null",
    "undefined",
    "[]",
    "{}",
    "../..",
    "\u{feff}1.0.0",
];

/// What is no list of types.
const NO_TYPES: &[&str] = &[
    "CANARY",
    "everything",
    "*",
    "all",
    "Status",
    "STEP",
    "steps",
    "step,",
    ",step",
    "step,,log",
    "step, log",
    " step",
    "step;log",
    "step|log",
    "end",
    "ack",
    "ready",
    "step,end",
    "\u{0}",
    "step\u{0}",
    "' OR 1=1--",
    "null",
    "0",
    "step\u{200b}",
    "\u{ff53}tep",
];

/// All of them.
pub fn make(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        let run = start(&bench, "wait", "3600000").await?;
        bench.admin.until(&run, "waiting").await?;
        let of_run = format!("/api/executions/{run}/stream");
        let mut cases = Vec::new();
        for (number, text) in NO_CURSORS.iter().enumerate() {
            let value = encoded(text);
            for (what, path) in [("run", of_run.as_str()), ("all", "/api/stream")] {
                let is_cursor_of_all = what == "all" && ["start"].contains(text);
                let request = Request::get(format!("{path}?cursor={value}"));
                if !is_cursor_of_all {
                    cases.push(Case::refused(format!("cursor-of-{what}-{number}"), INVALID, request));
                }
                // As a header it may be something that no header can be.
                if text.bytes().all(|byte| byte > 0x20) && text.is_ascii() {
                    let request = Request::get(path).header("Last-Event-ID", *text);
                    cases.push(Case::refused(format!("last-event-of-{what}-{number}"), INVALID, request));
                }
            }
        }
        for (number, text) in NO_TYPES.iter().enumerate() {
            let request = Request::get(format!("{of_run}?types={}", encoded(text)));
            cases.push(Case::refused(format!("types-{number}"), INVALID, request));
        }
        for (number, query) in
            ["CANARY=1", "Cursor=1.0.0", "type=step", "=", "cursor[]=1.0.0"].iter().enumerate()
        {
            for (what, path) in [("run", of_run.as_str()), ("all", "/api/stream")] {
                let request = Request::get(format!("{path}?{query}")).may_echo();
                cases.push(Case::refused(format!("parameter-of-{what}-{number}"), INVALID, request));
            }
        }
        cases.push(Case::refused("types-of-all", INVALID, Request::get("/api/stream?types=step")));
        cases.extend(harmless(&of_run));
        cases.extend(handshakes(&bench, &of_run));
        Ok(cases)
    }
    .boxed()
}

/// Cursors of a future that never comes, and all kinds of things that mean nothing.
fn harmless(of_run: &str) -> Vec<Case> {
    let paths = [
        format!("{of_run}?cursor=0.0.0"),
        format!("{of_run}?cursor=4294967295.4294967295.9007199254740992"),
        format!("{of_run}?cursor=000.000.000"),
        format!("{of_run}?types="),
        format!("{of_run}?types=step,step,step"),
        format!("{of_run}?cursor=x&cursor=0.0.0"),
        "/api/stream?cursor=start".to_owned(),
        "/api/stream?cursor=1-0:9007199254740992,1-1:0".to_owned(),
        "/api/stream?cursor=99-99:5".to_owned(),
        "/api/stream?cursor=1-0:5,1-0:6".to_owned(),
    ];
    let mut cases: Vec<_> = paths
        .into_iter()
        .enumerate()
        .map(|(number, path)| {
            Case::new(Kind::Accepted, format!("harmless-{number}"), move |bench| async move {
                let answer = bench.ask(&Request::get(path)).await?;
                expect_success(&answer)?;
                ensure!(answer.body.starts_with("retry:"), "{}", shown(&answer.body));
                Ok(())
            })
        })
        .collect();
    for (number, id) in ["", "  ", "\u{e9}"].into_iter().enumerate() {
        let request = Request::get(of_run).header("Last-Event-ID", id);
        cases.push(Case::either(format!("no-last-event-{number}"), request));
    }
    cases
}

/// Requests for a WebSocket that lack something, or have too much. The server itself looks at most of it.
fn handshakes(bench: &Bench, of_run: &str) -> Vec<Case> {
    const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";
    const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let headers = [
        ("good", format!("{UPGRADE}{KEY}{VERSION}")),
        ("no-key", format!("{UPGRADE}{VERSION}")),
        ("empty-key", format!("{UPGRADE}Sec-WebSocket-Key: \r\n{VERSION}")),
        ("short-key", format!("{UPGRADE}Sec-WebSocket-Key: CANARY\r\n{VERSION}")),
        ("two-keys", format!("{UPGRADE}{KEY}{KEY}{VERSION}")),
        ("no-version", format!("{UPGRADE}{KEY}")),
        ("old-version", format!("{UPGRADE}{KEY}Sec-WebSocket-Version: 8\r\n")),
        ("strange-version", format!("{UPGRADE}{KEY}Sec-WebSocket-Version: CANARY\r\n")),
        ("nothing-but-upgrade", UPGRADE.to_owned()),
        ("no-connection", format!("Upgrade: websocket\r\n{KEY}{VERSION}")),
        ("connection-closes", format!("Connection: close\r\nUpgrade: websocket\r\n{KEY}{VERSION}")),
        ("upper-case", format!("Connection: Upgrade\r\nUpgrade: WEBSOCKET\r\n{KEY}{VERSION}")),
        ("another-protocol", format!("Connection: Upgrade\r\nUpgrade: h2c\r\n{KEY}{VERSION}")),
        ("two-protocols", format!("Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n{KEY}{VERSION}")),
        ("with-a-version", format!("Connection: Upgrade\r\nUpgrade: websocket/13\r\n{KEY}{VERSION}")),
        ("empty-upgrade", format!("Connection: Upgrade\r\nUpgrade: \r\n{KEY}{VERSION}")),
        ("two-upgrades", format!("{UPGRADE}Upgrade: websocket\r\n{KEY}{VERSION}")),
        ("extensions", format!("{UPGRADE}{KEY}{VERSION}Sec-WebSocket-Extensions: CANARY; ;\r\n")),
        ("subprotocol", format!("{UPGRADE}{KEY}{VERSION}Sec-WebSocket-Protocol: CANARY,,\r\n")),
        ("body", format!("{UPGRADE}{KEY}{VERSION}Content-Length: 4\r\n")),
        ("origin", format!("{UPGRADE}{KEY}{VERSION}Origin: null\r\n")),
    ];
    let mut cases = Vec::new();
    for (name, headers) in headers {
        for (what, path) in [
            ("run", of_run),
            ("all", "/api/stream"),
            ("list", "/api/executions"),
            ("nothing", "/api/nothing"),
        ] {
            let text = format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{headers}\r\n",
                bench.address,
                bench.admin.key()
            );
            let acts = vec![Act::Send(text.into_bytes()), Act::End];
            cases.push(Case::server_or_good(format!("handshake-{name}-{what}"), acts));
        }
    }
    for method in ["POST", "HEAD", "PUT"] {
        let text = format!(
            "{method} {of_run} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{UPGRADE}{KEY}{VERSION}\
             Content-Length: 0\r\n\r\n",
            bench.address,
            bench.admin.key()
        );
        let acts = vec![Act::Send(text.into_bytes()), Act::End];
        cases.push(Case::server_or_good(format!("handshake-by-{method}"), acts));
    }
    cases
}
