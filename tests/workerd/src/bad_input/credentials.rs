//! What is brought in the place of a key, and where else one might be put.

use stepwell_protocol::{Code, key};

use super::{bench::Bench, case::Case, wire::Request};

const UNAUTHORIZED: &[Code] = &[Code::Unauthorized];

/// All of them.
pub fn make(bench: &Bench) -> Vec<Case> {
    let good = bench.admin.key();
    let mut cases: Vec<_> = headers(good)
        .into_iter()
        .enumerate()
        .map(|(number, value)| {
            let request = Request::get("/api/executions").header("Authorization", value);
            Case::refused(format!("authorization-{number}"), UNAUTHORIZED, request)
        })
        .collect();
    // In another place it is no key.
    let elsewhere = [
        Request::get(format!("/api/executions?key={good}")),
        Request::get(format!("/api/executions?access_token={good}")),
        Request::get(format!("/api/executions?authorization=Bearer%20{good}")),
        Request::get("/api/executions").header("X-Api-Key", good),
        Request::get("/api/executions").header("Proxy-Authorization", format!("Bearer {good}")),
        Request::get("/api/executions").header("Cookie", format!("stepwell_session={good}")),
        Request::get("/api/executions").header("Cookie", format!("key={good}; other")),
        Request::get("/api/executions").header("Cookie", "stepwell_session=CANARY"),
        Request::get("/api/executions").header("Cookie", ";;;=;="),
        Request::get("/api/executions").header("Cookie", "stepwell_session"),
        Request::get("/api/executions").header("Cf-Access-Jwt-Assertion", "CANARY"),
        Request::get("/api/executions").header("Cf-Access-Jwt-Assertion", "a.b.c"),
    ];
    for (number, request) in elsewhere.into_iter().enumerate() {
        cases.push(Case::refused(format!("elsewhere-{number}"), UNAUTHORIZED, request.by("")));
    }
    // Whatever the route, and whether it is one.
    for (number, path) in [
        "/",
        "/api",
        "/api/nothing",
        "/api/keys",
        "/api/namespaces",
        "/api/stream",
        "/api/executions/x/stream",
    ]
    .into_iter()
    .enumerate()
    {
        cases.push(Case::refused(format!("nobody-{number}"), UNAUTHORIZED, Request::get(path).by("")));
    }
    cases
}

fn headers(good: &str) -> Vec<Vec<u8>> {
    let forged = |namespace: &str| key::make(key::Kind::Live, namespace, [7; key::RANDOM_BYTES]).text;
    let session = key::make(key::Kind::Session, "acme", [7; key::RANDOM_BYTES]).text;
    let texts = [
        String::new(),
        " ".into(),
        "Bearer".into(),
        "Bearer ".into(),
        "Bearer  ".into(),
        "CANARY".into(),
        "Bearer CANARY".into(),
        good.to_owned(),
        format!("Bearer{good}"),
        format!("Basic {good}"),
        format!("Token {good}"),
        format!("Bearer,{good}"),
        format!("Bearer {good}, Bearer {good}"),
        format!("Bearer {good} {good}"),
        format!("Bearer \"{good}\""),
        format!("Bearer {good}x"),
        format!("Bearer x{good}"),
        format!("Bearer {}", &good[..good.len() - 1]),
        format!("Bearer {}", good.to_uppercase()),
        format!("Bearer {}", good.replace("acme", "ACME")),
        format!("Bearer {}", good.replace("acme", "other")),
        format!("Bearer {}", good.replace("acme", "default")),
        format!("Bearer {}", good.replace("live", "test")),
        format!("Bearer {}", good.replace("live", "session")),
        format!("Bearer {}", good.replace('_', "-")),
        format!("Bearer {}", forged("acme")),
        format!("Bearer {}", forged("default")),
        // Names of namespaces that nobody has made: no object may come of them.
        format!("Bearer {}", forged("never-was")),
        format!("Bearer {}", forged("a")),
        format!("Bearer {}", forged(&"n".repeat(32))),
        format!("Bearer {session}"),
        "Bearer sw_live_".into(),
        "Bearer sw_live__".into(),
        "Bearer sw_live_acme_".into(),
        format!("Bearer sw_live_acme_{}", "0".repeat(47)),
        format!("Bearer sw_live_../x_{}", "0".repeat(47)),
        format!("Bearer sw_live_acme_{}", "_".repeat(47)),
        "Bearer ..".into(),
        "Bearer a.b.c".into(),
        "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJDQU5BUlkifQ.".into(),
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJ4In0.AAAA".into(),
        "Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6Ii4uLy4uIn0.eyJpc3MiOiJ4In0.AAAA".into(),
        "Bearer bnVsbA.bnVsbA.".into(),
        "Bearer W10.W10.W10".into(),
        format!("Bearer {}.{}.{}", "a".repeat(20_000), "b".repeat(20_000), "c".repeat(10_000)),
        "Bearer é".into(),
        "Bearer \u{202e}".into(),
        "Bearer ' OR 1=1--".into(),
        "Bearer null".into(),
        "Bearer undefined".into(),
    ];
    let mut headers: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    headers.extend([
        b"Bearer \xff\xfe".to_vec(),
        b"\xff".to_vec(),
        b"Bearer \xc3\x28".to_vec(),
        b"Bearer a\tb".to_vec(),
    ]);
    headers
}
