//! What is no HTTP, or not all of it: wrong lengths, broken chunks, slow and early ends, bodies that grow when they are
//! unpacked. Much of it is refused by the server, before the Worker sees it.

use std::time::Duration;

use anyhow::{Result, ensure};
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_refusal},
    case::{Case, Kind},
    wire::{Act, Request},
};

/// Long enough that a body comes in pieces.
const A_MOMENT: Duration = Duration::from_millis(150);

const START: &str = "/api/workflows/echo/start";

/// All of them.
pub fn make(bench: &Bench) -> Vec<Case> {
    let head = Head { host: bench.address.clone(), key: bench.admin.key().to_owned() };
    let mut cases = lengths(&head);
    cases.extend(chunks(&head));
    cases.extend(pieces(&head));
    cases.extend(heads(&head));
    cases.extend(packed());
    cases
}

/// What a request begins with.
struct Head {
    host: String,
    key: String,
}

impl Head {
    /// A start with these headers besides, and what follows.
    fn start(&self, headers: &str, rest: &[u8]) -> Vec<u8> {
        let Self { host, key } = self;
        let head = format!(
            "POST {START} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
             X-Canary: CANARY\r\n{headers}\r\n"
        );
        [head.as_bytes(), rest].concat()
    }
}

fn send(bytes: Vec<u8>) -> Vec<Act> {
    vec![Act::Send(bytes), Act::End]
}

fn lengths(head: &Head) -> Vec<Case> {
    let refused = [
        ("negative", "Content-Length: -1\r\n"),
        ("no-number", "Content-Length: CANARY\r\n"),
        ("hexadecimal", "Content-Length: 0x4\r\n"),
        ("too-large-for-a-number", "Content-Length: 99999999999999999999999\r\n"),
        ("twice", "Content-Length: 4\r\nContent-Length: 5\r\n"),
        ("list", "Content-Length: 4, 4\r\n"),
        ("empty", "Content-Length: \r\n"),
        ("plus", "Content-Length: +4\r\n"),
        ("fraction", "Content-Length: 4.0\r\n"),
    ];
    let mut cases: Vec<_> = refused
        .into_iter()
        .map(|(name, header)| {
            Case::server_or_good(format!("length-{name}"), send(head.start(header, b"null")))
        })
        .collect();
    // Less comes than was said: the rest never does.
    for (name, length) in [("one-more", 5), ("many-more", 1_000_000)] {
        let bytes = head.start(&format!("Content-Length: {length}\r\n"), b"null");
        cases.push(Case::server(format!("length-{name}"), send(bytes)));
    }
    // More comes than was said: the rest is no request.
    let bytes = head.start("Content-Length: 3\r\n", b"123CANARY");
    cases.push(Case::server_or_good("length-one-less", send(bytes)));
    let bytes = head.start("", b"");
    cases.push(Case::server_or_good("length-missing", send(bytes)));
    let bytes = head.start("", b"\"CANARY\"");
    cases.push(Case::server_or_good("length-missing-with-a-body", send(bytes)));
    // Announced, and far too large: nobody has to read it.
    let bytes = head.start("Content-Length: 999999999\r\n", b"null");
    cases.push(Case::new(Kind::Refused, "length-announced", move |bench| async move {
        match bench.perform(&[Act::Send(bytes)]).await? {
            Some(answer) => expect_refusal(&answer, &[Code::PayloadTooLarge]),
            None => anyhow::bail!("there was no answer"),
        }
    }));
    cases
}

fn chunks(head: &Head) -> Vec<Case> {
    let mut cases = Vec::new();
    let chunked = |rest: &[u8]| head.start("Transfer-Encoding: chunked\r\n", rest);
    let good: [(&str, &[u8]); 6] = [
        ("one", b"4\r\nnull\r\n0\r\n\r\n"),
        ("many", b"1\r\nn\r\n1\r\nu\r\n1\r\nl\r\n1\r\nl\r\n0\r\n\r\n"),
        ("none", b"0\r\n\r\n"),
        ("upper-case", b"A\r\n\"12345678\"\r\n0\r\n\r\n"),
        ("leading-zeros", b"0004\r\nnull\r\n0\r\n\r\n"),
        ("trailer", b"4\r\nnull\r\n0\r\nX-After: CANARY\r\n\r\n"),
    ];
    for (name, rest) in good {
        cases.push(Case::server_or_good(format!("chunks-{name}"), send(chunked(rest))));
    }
    let broken: [(&str, &[u8]); 13] = [
        ("no-size", b"\r\nnull\r\n0\r\n\r\n"),
        ("no-number", b"CANARY\r\nnull\r\n0\r\n\r\n"),
        ("negative", b"-4\r\nnull\r\n0\r\n\r\n"),
        ("prefixed", b"0x4\r\nnull\r\n0\r\n\r\n"),
        ("too-small", b"3\r\nnull\r\n0\r\n\r\n"),
        ("too-large", b"9\r\nnull\r\n0\r\n\r\n"),
        ("huge", b"FFFFFFFFFFFFFFFF\r\nnull\r\n0\r\n\r\n"),
        ("beyond-a-number", b"FFFFFFFFFFFFFFFFFFFFFFFF\r\nnull\r\n0\r\n\r\n"),
        ("without-an-end", b"4\r\nnull\r\n"),
        ("cut-short", b"4\r\nnu"),
        ("no-line-break", b"4null0"),
        ("bare-line-feeds", b"4\nnull\n0\n\n"),
        ("extension", b"4;a=\"CANARY\r\nnull\r\n0\r\n\r\n"),
    ];
    for (name, rest) in broken {
        cases.push(Case::server_or_good(format!("chunks-{name}"), send(chunked(rest))));
    }
    for (name, headers) in [
        ("both", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        ("both-reversed", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
        ("unknown", "Transfer-Encoding: CANARY\r\n"),
        ("gzip", "Transfer-Encoding: gzip, chunked\r\n"),
        ("twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("identity", "Transfer-Encoding: identity\r\nContent-Length: 4\r\n"),
        ("spaced", "Transfer-Encoding : chunked\r\n"),
    ] {
        let bytes = head.start(headers, b"4\r\nnull\r\n0\r\n\r\n");
        cases.push(Case::server_or_good(format!("coding-{name}"), send(bytes)));
    }
    // As large as it gets, without saying so.
    let piece = [format!("{:x}\r\n", 1 << 16).into_bytes(), vec![b' '; 1 << 16], b"\r\n".to_vec()].concat();
    for (name, count) in [("4-mib", 64), ("32-mib", 512)] {
        let bytes = [chunked(b""), piece.repeat(count), b"0\r\n\r\n".to_vec()].concat();
        cases.push(Case::new(Kind::Refused, format!("chunks-{name}"), move |bench| async move {
            match bench.perform(&[Act::Send(bytes)]).await? {
                Some(answer) => expect_refusal(&answer, &[Code::PayloadTooLarge]),
                None => anyhow::bail!("there was no answer"),
            }
        }));
    }
    cases
}

/// What comes slowly, or breaks off.
fn pieces(head: &Head) -> Vec<Case> {
    let bytes = head.start("Content-Length: 8\r\n", b"\"123456\"");
    let (first, body) = (head.start("Content-Length: 24\r\n", b""), b"\"0123456789012345678901\"".to_vec());
    let mut cases = Vec::new();
    // All of it comes in the end.
    let mut slow = vec![Act::Send(first.clone())];
    for piece in body.chunks(6) {
        slow.extend([Act::Pause(A_MOMENT), Act::Send(piece.to_vec())]);
    }
    cases.push(Case::new(
        Kind::Accepted,
        "slow-body",
        move |bench| async move { taken(&bench, &slow).await },
    ));
    let mut slow = Vec::new();
    for piece in [first.clone(), body.clone()].concat().chunks(64) {
        slow.extend([Act::Send(piece.to_vec()), Act::Pause(Duration::from_millis(10))]);
    }
    cases.push(Case::new(
        Kind::Accepted,
        "slow-head",
        move |bench| async move { taken(&bench, &slow).await },
    ));
    // It breaks off: within the first line, a header, before the body, within it.
    for at in [1, 5, 30, 60, bytes.len() - 9, bytes.len() - 8, bytes.len() - 4, bytes.len() - 1] {
        for (how, last) in [("ends", Act::End), ("leaves", Act::Leave)] {
            let acts = vec![Act::Send(bytes[..at].to_vec()), last];
            cases.push(Case::server(format!("{how}-after-{at}"), acts));
        }
    }
    // Nobody waits for the answer.
    let acts = vec![Act::Send(Request::get("/api/executions").bytes(&head.host, &head.key)), Act::Leave];
    cases.push(Case::server("leaves-before-the-answer", acts));
    let request = Request::get("/api/stream").bytes(&head.host, &head.key);
    cases.push(Case::server("leaves-a-stream", vec![Act::Send(request), Act::Pause(A_MOMENT), Act::Leave]));
    cases.push(Case::server("says-nothing", vec![Act::Pause(A_MOMENT), Act::End]));
    cases
}

async fn taken(bench: &Bench, acts: &[Act]) -> Result<()> {
    match bench.perform(acts).await? {
        Some(answer) => ensure!(answer.status == 201, "{} {}", answer.status, answer.body),
        None => anyhow::bail!("there was no answer"),
    }
    Ok(())
}

/// What is no head of a request.
fn heads(head: &Head) -> Vec<Case> {
    let Head { host, key } = head;
    let auth = format!("Authorization: Bearer {key}");
    let texts = [
        ("nothing", "\r\n\r\n".to_owned()),
        ("no-version", format!("GET /api/executions\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("old-version", format!("GET /api/executions HTTP/0.9\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("version-1-0", format!("GET /api/executions HTTP/1.0\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("version-2", format!("GET /api/executions HTTP/2.0\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("preface-of-2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("no-path", format!("GET  HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("two-spaces", format!("GET  /api/executions  HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("space-in-the-path", format!("GET /api/ executions HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("lower-case-method", format!("get /api/executions HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("unknown-method", format!("CANARY /api/executions HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n")),
        ("no-host", format!("GET /api/executions HTTP/1.1\r\n{auth}\r\nConnection: close\r\n\r\n")),
        (
            "empty-host",
            format!("GET /api/executions HTTP/1.1\r\nHost: \r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        (
            "two-hosts",
            format!(
                "GET /api/executions HTTP/1.1\r\nHost: a\r\nHost: b\r\n{auth}\r\nConnection: close\r\n\r\n"
            ),
        ),
        (
            "strange-host",
            format!("GET /api/executions HTTP/1.1\r\nHost: a b\r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        (
            "host-with-a-path",
            format!("GET /api/executions HTTP/1.1\r\nHost: a/b?c#d\r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        (
            "host-with-a-port",
            format!("GET /api/executions HTTP/1.1\r\nHost: a:99999\r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        (
            "host-with-a-user",
            format!("GET /api/executions HTTP/1.1\r\nHost: u:p@a\r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        (
            "broken-address",
            format!("GET /api/executions HTTP/1.1\r\nHost: [::1\r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        (
            "nul-in-a-header",
            format!("GET /api/executions HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n{auth}\r\n\r\n"),
        ),
        (
            "folded-header",
            format!("GET /api/executions HTTP/1.1\r\nHost: {host}\r\nX: a\r\n b\r\n{auth}\r\n\r\n"),
        ),
        ("no-colon", format!("GET /api/executions HTTP/1.1\r\nHost: {host}\r\nCANARY\r\n{auth}\r\n\r\n")),
        ("no-name", format!("GET /api/executions HTTP/1.1\r\nHost: {host}\r\n: CANARY\r\n{auth}\r\n\r\n")),
        (
            "strange-name",
            format!("GET /api/executions HTTP/1.1\r\nHost: {host}\r\nX(): CANARY\r\n{auth}\r\n\r\n"),
        ),
        (
            "bare-line-feeds",
            format!("GET /api/executions HTTP/1.1\nHost: {host}\n{auth}\nConnection: close\n\n"),
        ),
        ("bare-returns", format!("GET /api/executions HTTP/1.1\rHost: {host}\r{auth}\r\r")),
        (
            "expects",
            format!(
                "GET /api/executions HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\n{auth}\r\nConnection: close\r\n\r\n"
            ),
        ),
        (
            "expects-what",
            format!(
                "GET /api/executions HTTP/1.1\r\nHost: {host}\r\nExpect: CANARY\r\n{auth}\r\nConnection: close\r\n\r\n"
            ),
        ),
        (
            "trace",
            format!("TRACE /api/executions HTTP/1.1\r\nHost: {host}\r\n{auth}\r\nConnection: close\r\n\r\n"),
        ),
        ("tls", "\u{16}\u{3}\u{1}\u{0}\u{5}\u{1}CANARY".to_owned()),
        ("another-protocol", "EHLO CANARY\r\n".to_owned()),
    ];
    let mut cases: Vec<_> = texts
        .into_iter()
        .map(|(name, text)| Case::server_or_good(format!("head-{name}"), send(text.into_bytes())))
        .collect();
    cases.extend(long_heads(host, &auth));
    cases.push(connect(host, &auth));
    // What follows in the same connection is a request of its own.
    let get = Request::get("/api/session").header("Connection", "keep-alive").bytes(host, key);
    let hidden =
        [head.start("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), get].concat();
    cases.push(Case::server_or_good("hidden-request", send(hidden)));
    cases
}

/// Headers and addresses at any length.
fn long_heads(host: &str, auth: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for kib in [32, 64, 128, 1_024] {
        let long = "l".repeat(kib << 10);
        let text = format!(
            "GET /api/executions HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\n{auth}\r\nConnection: close\r\n\r\n"
        );
        cases.push(Case::server_or_good(format!("header-of-{kib}-kib"), send(text.into_bytes())));
        let text = format!(
            "GET /api/executions?{long} HTTP/1.1\r\nHost: {host}\r\n{auth}\r\nConnection: close\r\n\r\n"
        );
        cases.push(Case::server_or_good(format!("address-of-{kib}-kib"), send(text.into_bytes())));
    }
    cases
}

/// A tunnel to elsewhere.
fn connect(host: &str, auth: &str) -> Case {
    // The server lets no Worker see this one, unless it asks for it; and says 500 itself.
    let bytes = format!("CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n\r\n").into_bytes();
    Case::new(Kind::Server, "head-connect", move |bench| async move {
        let acts = [Act::Send(bytes), Act::End];
        let answer = super::wire::perform(&bench.address, &acts).await?;
        ensure!(answer.is_none_or(|answer| answer.status >= 400), "somebody was called");
        bench.good().await
    })
}

/// What would be large if anybody unpacked it: nobody does.
fn packed() -> Vec<Case> {
    // Ten mebibytes of spaces.
    let gzip = include_bytes!("../../fixtures/bad_input/spaces.gz");
    ["gzip", "deflate", "br", "zstd", "gzip, gzip", "CANARY", "identity, gzip"]
        .into_iter()
        .map(|coding| {
            let request = Request::post(START, gzip.to_vec()).header("Content-Encoding", coding);
            Case::refused(format!("packed-{coding}"), &[Code::InvalidRequest], request)
        })
        .collect()
}
